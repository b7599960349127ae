"""The harness of the contract for e-mail: one mailbox on a fake provider, whose server saves what it sends, or does not."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from tests.fakes.email import PASSWORD, FakeMail, open_adapter

from keryx.core.media import Attachment
from keryx.testing.contracts import AdapterHarness, Trait

ANN, BOB = "ann@people.test", "bob@people.test"
UNREACHABLE = "127.0.0.1:9"


@asynccontextmanager
async def open_harness() -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        fake = stack.enter_context(FakeMail())
        adapter = open_adapter(fake.settings(), sleep=sleep_briefly)
        gone = fake.settings(imap=f"imap://{UNREACHABLE}", smtp=f"smtp://{UNREACHABLE}")
        unreachable = open_adapter(gone, sleep=sleep_briefly)
        stack.push_async_callback(adapter.close)
        stack.push_async_callback(unreachable.close)

        def attach(chat: str, text: str, attachment: Attachment) -> None:
            fake.write(chat, text, files=[attachment])

        def send_malformed() -> None:
            fake.deliver(b"")
            fake.deliver(b"no header at all")
            fake.deliver(b"From: ann@people.test\r\nFrom: bob@people.test\r\n\r\ntwo authors")
            fake.deliver(b"\xff\xfe\x00From\r\n: <<>>\r\n\r\n\x00")

        yield AdapterHarness(
            adapter=adapter,
            traits=frozenset(
                {
                    Trait.RECEIVES,
                    Trait.ORDERS,
                    Trait.NETWORK,
                    Trait.THROTTLES,
                    Trait.REDELIVERS,
                    Trait.RESUMES,
                    Trait.KEEPS_STATE,
                    Trait.ATTACHES,
                    Trait.MALFORMED,
                }
            ),
            chats=(ANN, BOB),
            texts=fake.texts,
            files=fake.files,
            count_messages=lambda chat: len(fake.mails(chat)),
            write=fake.write,
            attach=attach,
            send_malformed=send_malformed,
            set_faults=fake.set_faults,
            unreachable=unreachable,
            secret=PASSWORD,
            cursor="1.0.0.0",
        )
        assert fake.errors == []


async def sleep_briefly(seconds: float) -> None:
    await asyncio.sleep(0)
