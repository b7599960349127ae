"""WeChat for the contract suite."""

import asyncio
import mimetypes
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

from tests.fakes.wechat import ANN, BEN, BOT, TOKEN, FakeWeChat

from keryx.core.media import Attachment
from keryx.surfaces.gateway.wechat import WeChatAdapter, WeChatSettings
from keryx.testing.contracts import AdapterHarness, Trait
from keryx.testing.wire import UNREACHABLE_URL
from keryx.timing import Sleep


async def sleep_briefly(seconds: float) -> None:
    await asyncio.sleep(0.001)


def build_adapter(
    base_url: str, *, token: str = TOKEN, sleep: Sleep = sleep_briefly, account: str = "", **settings: Any
) -> WeChatAdapter:
    given: dict[str, Any] = {"bot_id": BOT, "interval": timedelta(0), **settings}
    return WeChatAdapter(
        token,
        WeChatSettings(base_url=base_url, cdn_url=f"{base_url}/c2c", **given),
        account=account,
        sleep=sleep,
    )


@asynccontextmanager
async def open_wechat() -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        fake = stack.enter_context(FakeWeChat())
        adapter, unreachable = build_adapter(fake.url), build_adapter(UNREACHABLE_URL)
        stack.push_async_callback(adapter.close)
        stack.push_async_callback(unreachable.close)
        person = _Person(fake)
        yield AdapterHarness(
            adapter=adapter,
            traits=frozenset(
                {
                    Trait.RECEIVES,
                    Trait.REDELIVERS,
                    Trait.ORDERS,
                    Trait.RESUMES,
                    Trait.KEEPS_STATE,
                    Trait.NETWORK,
                    Trait.THROTTLES,
                    Trait.DELETES,
                    Trait.ATTACHES,
                    Trait.MALFORMED,
                    Trait.HOLDS,
                }
            ),
            chats=(ANN, BEN),
            texts=fake.texts,
            files=fake.sent_files,
            count_typing=fake.count_typing,
            write=person.write,
            delete=person.delete,
            attach=person.attach,
            send_malformed=person.send_malformed,
            close_reply_window=fake.closed.add,
            set_faults=fake.set_faults,
            unreachable=unreachable,
            secret=TOKEN,
        )
        assert fake.problems == []


class _Person:
    def __init__(self, fake: FakeWeChat) -> None:
        self._fake = fake
        self._last = ""

    def write(self, chat: str, text: str) -> None:
        self._last = self._fake.write(chat, text)

    def delete(self, chat: str) -> None:
        self._fake.write(chat, None, message_id=int(self._last), delete_time_ms=1_790_000_000_000)

    def attach(self, chat: str, text: str, attachment: Attachment) -> None:
        name = attachment.name
        if not mimetypes.guess_type(name)[0] and attachment.mime:
            name += mimetypes.guess_extension(attachment.mime) or ""
        media = self._fake.add_file(name, attachment.body)
        document = {"media": media, "file_name": name, "len": str(len(attachment.body))}
        items: list[dict[str, Any]] = [
            {"type": 1, "text_item": {"text": text}},
            {"type": 4, "file_item": document},
        ]
        self._fake.push_items(chat, items)

    def send_malformed(self) -> None:
        broken: list[Any] = [3, None, "words", [], {"from_user_id": 5}, {"message_id": 7, "item_list": []}]
        for message in broken:
            self._fake.push(message)
        self._fake.push({"message_id": 8, "from_user_id": ANN, "group_id": "g1@im.chatroom"})
        self._fake.push({"message_id": 9, "from_user_id": BOT, "message_type": 2})
        self._fake.push({"message_id": 10, "from_user_id": ANN, "create_time_ms": -1})
