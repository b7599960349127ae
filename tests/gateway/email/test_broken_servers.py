"""Servers that do not keep to the protocol, or to any: the adapter says so, and tries again."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from tests.builders import until
from tests.fakes.email import FakeMail, open_adapter
from tests.gateway.email.conftest import sleep_briefly

from keryx.core.deliveries import Target
from keryx.core.errors import NotSent, SendError, Uncertain
from keryx.core.ids import DeliveryId
from keryx.core.ports.adapter import LinkState, OutgoingPart
from keryx.surfaces.gateway.email.imap_client import decode_mailbox, encode_mailbox
from keryx.testing import RecordingAdapterContext

_HELLO = b"* OK hi\r\n"
_CAPABILITY = b"* CAPABILITY IMAP4rev1 AUTH=PLAIN IDLE\r\nk1 OK\r\n"


@asynccontextmanager
async def serve(*answers: bytes) -> AsyncGenerator[str]:
    """A server that sends the first answer at once, and one more for each line that it gets; then it closes."""
    sessions: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number, answer in enumerate(answers):
            if number:
                await reader.readline()
            writer.write(answer)
            await writer.drain()
        while answers[-1].startswith(b"354") and await reader.readline() not in (b".\r\n", b""):
            pass
        writer.close()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(handle(reader, writer))
        sessions.add(task)

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    server.close()
    for task in sessions:
        task.cancel()
    await asyncio.gather(*sessions, return_exceptions=True)


@pytest.mark.parametrize(
    "answers",
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", b""),
        (b"* BYE too many connections\r\n",),
        (b"\x16\x03\x01\x00",),
        (b"",),
        (_HELLO, b"k1 BAD what?\r\n"),
        (_HELLO, _CAPABILITY, b"+ \r\n", b"k2 NO [UNAVAILABLE] later\r\n"),
        (_HELLO, b"* CAPABILITY {999999999999}\r\n"),
        (_HELLO, b"* CAPABILITY {100}\r\nshort"),
    ],
    ids=range(8),
)
async def test_a_server_that_speaks_something_else_is_tried_again(
    fake: FakeMail, answers: tuple[bytes, ...]
) -> None:
    async with serve(*answers) as address:
        adapter = open_adapter(fake.settings(imap=f"imap://{address}"), sleep=sleep_briefly)
        context = RecordingAdapterContext()
        listening = asyncio.create_task(adapter.listen(context))
        await until(lambda: listening.done() or bool(context.link_states))
        listening.cancel()
        await asyncio.wait({listening})
    assert listening.cancelled() and context.link_states[0][0] is LinkState.CONNECTING
    assert address in context.link_states[0][1]


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ((b"554 go away\r\n",), SendError),
        ((b"hello\r\n",), NotSent),
        ((b"220 hi\r\n", b"250 ok\r\n", b"250 ok\r\n", b"250 ok\r\n", b"what?\r\n"), NotSent),
        ((b"220-" + b"x" * 100 + b"\r\n") * 200, NotSent),
        ((b"220 hi\r\n", b"250 ok\r\n", b"250 ok\r\n", b"250 ok\r\n", b"354 go\r\n"), Uncertain),
    ],
    ids=range(5),
)
async def test_nothing_is_taken_for_sent_that_was_not_confirmed(
    fake: FakeMail, answers: tuple[bytes, ...] | bytes, error: type[SendError]
) -> None:
    async with serve(*([answers] if isinstance(answers, bytes) else answers)) as address:
        adapter = open_adapter(fake.settings(smtp=f"smtp://{address}"), sleep=sleep_briefly)
        target = Target("email", adapter.account, "ann@people.test")
        part = OutgoingPart(delivery=DeliveryId("d"), number=0, key="", target=target, text="hello")
        with pytest.raises(error):
            await adapter.send(part)
        await adapter.close()


@pytest.mark.parametrize("name", ["INBOX", "Gesendete Objekte", "Entwürfe", "送信済み & mehr", "a\\b", "😀"])
def test_names_of_mailboxes_are_written_as_imap_wants_them(name: str) -> None:
    encoded = encode_mailbox(name)
    assert encoded.isascii() and decode_mailbox(encoded) == name
