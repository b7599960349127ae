"""The adapter over `imsg`: what the program may do wrong, and what becomes of messages meanwhile."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.contracts.imessage import build_imsg
from tests.fakes.imessage import ANN, GROUP, FakeImsg

from keryx.core.deliveries import ReplyContext, Target
from keryx.core.errors import Forbidden, Invalid, NotSent, Refused, TargetGone, Uncertain
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import InboundEvent, LinkState, OutgoingPart, Receipt
from keryx.surfaces.gateway.imessage import NO_DISK_ACCESS, ImsgAdapter
from keryx.testing import RecordingAdapterContext
from keryx.testing.fault_injection import PlatformFaults


@pytest.fixture
def mac(tmp_path: Path) -> Iterator[FakeImsg]:
    with FakeImsg(tmp_path) as fake:
        yield fake
    assert fake.problems == []


@pytest.fixture
async def adapter(mac: FakeImsg) -> AsyncIterator[ImsgAdapter]:
    adapter = build_imsg(mac.command)
    yield adapter
    await adapter.close()


@asynccontextmanager
async def listening(
    adapter: ImsgAdapter, cursor: str | None = "0"
) -> AsyncGenerator[RecordingAdapterContext]:
    context = RecordingAdapterContext(cursor)
    task = asyncio.create_task(adapter.listen(context))
    try:
        yield context
    finally:
        task.cancel()
        await asyncio.wait({task})


def build_part(text: str = "hello", **fields: object) -> OutgoingPart:
    part = OutgoingPart(delivery=DeliveryId("d1"), number=0, key="", target=Target("imessage", chat=ANN))
    return msgspec.structs.replace(part, text=text, **fields)


def read_links(context: RecordingAdapterContext) -> list[LinkState]:
    return [link for link, _ in context.link_states]


async def test_a_program_that_ends_is_started_again_and_nothing_is_missed(
    mac: FakeImsg, adapter: ImsgAdapter
) -> None:
    async with listening(adapter) as context:
        mac.write(ANN, "one")
        await context.wait_for(1)
        mac.cut()
        mac.write(ANN, "two")
        await context.wait_for(2)
    assert LinkState.CONNECTING in read_links(context) and read_links(context)[-1] is LinkState.CONNECTED
    assert len({event.event for event in context.events}) == 2


async def test_a_torn_line_is_read_again(mac: FakeImsg, adapter: ImsgAdapter) -> None:
    for number in range(6):
        mac.write(ANN, f"m{number}")
    mac.set_faults(PlatformFaults(torn=0.5, duplicate=0.5))
    async with listening(adapter) as context:
        await context.wait_for(6)
    assert [event.cursor for event in context.events] == [f"{row.row}.{row.date}" for row in mac.rows], (
        "each row moves the position once"
    )


async def test_the_first_connection_begins_behind_what_is_there(mac: FakeImsg, adapter: ImsgAdapter) -> None:
    old = mac.write(ANN, "long ago")
    async with listening(adapter, None) as context:
        await asyncio.to_thread(mac.wait_for, lambda: mac.reads > 0)
        assert context.cursor == f"{old.row}.0"
        mac.write(ANN, "now")
        [event] = await context.wait_for(1)
    assert event.source.message == mac.rows[-1].guid


async def test_an_empty_mac_is_read_from_its_first_row(mac: FakeImsg, adapter: ImsgAdapter) -> None:
    async with listening(adapter, None) as context:
        await asyncio.to_thread(mac.wait_for, lambda: mac.reads > 0)
        mac.write(ANN, "first")
        await context.wait_for(1)
    assert context.cursor == "0.0"


async def test_a_program_that_may_not_read_the_messages_is_refused(
    mac: FakeImsg, adapter: ImsgAdapter
) -> None:
    mac.startup_error = (
        "authorization denied (code: 23)\n\nThe database requires Full Disk Access permission."
    )
    with pytest.raises(Forbidden, match="Full Disk Access") as caught:
        await adapter.listen(RecordingAdapterContext("0"))
    assert str(caught.value) == NO_DISK_ACCESS
    with pytest.raises(NotSent):
        await adapter.send(build_part())


async def test_a_program_that_is_not_there_is_reported_with_how_to_see_why(tmp_path: Path) -> None:
    adapter = build_imsg([str(tmp_path / "imsg"), "rpc"])
    reported = asyncio.Event()

    class Context(RecordingAdapterContext):
        def report(self, link: LinkState, detail: str = "") -> None:
            super().report(link, detail)
            reported.set()

    context = Context("0")
    task = asyncio.create_task(adapter.listen(context))
    async with asyncio.timeout(30):
        await reported.wait()
    task.cancel()
    await asyncio.wait({task})
    link, detail = context.link_states[0]
    assert link is LinkState.CONNECTING and "No such file" in detail and "by hand" in detail


async def test_an_event_that_is_refused_as_invalid_blocks_nothing(
    mac: FakeImsg, adapter: ImsgAdapter
) -> None:
    mac.write(ANN, "bad")
    mac.write(ANN, "good")

    async def refuse(inbound: InboundEvent) -> Receipt:
        if inbound.event == mac.rows[0].guid:
            raise Invalid("it is bad")
        return Receipt(duplicate=False)

    async with listening(adapter) as context:
        context.set_receive(refuse)
        [event] = await context.wait_for(1)
    assert event.event == mac.rows[1].guid


async def test_a_reply_goes_to_the_chat_that_asked_and_others_to_the_handle(
    mac: FakeImsg, adapter: ImsgAdapter
) -> None:
    context = ReplyContext(token=f"SMS;-;{ANN}")
    await adapter.send(build_part("by sms", target=Target("imessage", chat=ANN, reply_context=context)))
    await adapter.send(build_part("on its own"))
    await adapter.send(build_part("to all", target=Target("imessage", chat=GROUP)))
    assert [row.chat for row in mac.rows] == [f"SMS;-;{ANN}", f"iMessage;-;{ANN}", GROUP]


async def test_refusals_are_told_apart(mac: FakeImsg, adapter: ImsgAdapter) -> None:
    with pytest.raises(TargetGone):
        await adapter.send(build_part(target=Target("imessage", chat="iMessage;+;gone")))
    with pytest.raises(Refused, match="no chat"):
        await adapter.send(build_part(target=Target("imessage")))
    with pytest.raises(Refused, match="text or file is required"):
        await adapter.send(build_part(""))
    mac.set_faults(PlatformFaults(broken=1))
    with pytest.raises(Uncertain, match="timed out"):
        await adapter.send(build_part())
    assert mac.rows == []


async def test_typing_is_not_asked_for_again_after_it_failed(mac: FakeImsg, adapter: ImsgAdapter) -> None:
    mac.private_api = False
    target = Target("imessage", chat=ANN)
    with pytest.raises(NotSent, match="no bridge"):
        await adapter.typing(target)
    await adapter.typing(target)
    mac.private_api = True
    assert mac.typed == []


async def test_the_same_text_sent_before_is_not_taken_for_a_lost_one(
    mac: FakeImsg, adapter: ImsgAdapter
) -> None:
    first = build_part("yes")
    await adapter.send(msgspec.structs.replace(first, key=adapter.create_send_key(first)))
    second = msgspec.structs.replace(first, key=adapter.create_send_key(first), again=True)
    assert await adapter.find_sent(second) is None
    await adapter.send(msgspec.structs.replace(second, again=False))
    assert await adapter.find_sent(second) == mac.rows[1].guid


async def test_a_text_that_messages_has_changed_is_found(mac: FakeImsg, adapter: ImsgAdapter) -> None:
    part = build_part('He said "no" -- twice...')
    keyed = msgspec.structs.replace(part, key=adapter.create_send_key(part))
    mac.write_as_agent(ANN, "He said “no” — twice…")
    assert await adapter.find_sent(keyed) == mac.rows[0].guid


@pytest.mark.parametrize("ssh", [False, True])
async def test_files_are_copied_to_the_mac_and_removed_and_read_from_it(mac: FakeImsg, ssh: bool) -> None:
    adapter = build_imsg(mac.ssh_command if ssh else mac.command)
    body = bytes(range(256)) * 2000
    attachment = Attachment(name='it\'s a "plan".pdf', mime="application/pdf", body=body)
    await adapter.send(build_part("", attachment=attachment))
    [sent] = mac.rows[0].files
    assert sent.body == body and not await asyncio.to_thread(os.path.exists, sent.path)
    row = mac.attach(ANN, "", "back; rm -rf x.bin", "application/pdf", body)
    file = RemoteFile(reference=row.files[0].path, name="back.bin")
    assert (await adapter.download(file, limit=len(body))).body == body
    with pytest.raises(Invalid, match="larger"):
        await adapter.download(file, limit=len(body) - 1)
    with pytest.raises(Invalid, match="iCloud"):
        await adapter.download(RemoteFile(reference="/nowhere/at all", name="x"), limit=9)
    await adapter.close()


@pytest.mark.parametrize("command", [["imsg"], ["imsg", "chats"], []])
def test_a_command_that_is_not_rpc_is_refused(command: list[str]) -> None:
    with pytest.raises(Invalid, match=r"write the program and its command `rpc`"):
        build_imsg(command)
