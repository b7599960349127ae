"""The adapter against the fake homeserver: what a real one does too rarely."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.builders import until
from tests.fakes.matrix import FakeMatrix

from keryx.core.deliveries import Target
from keryx.core.errors import NotSent, SendError
from keryx.core.ids import DeliveryId
from keryx.core.ports.adapter import LinkState, OutgoingPart
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.matrix import MatrixAdapter, encryption, make
from keryx.surfaces.gateway.matrix.encryption import DeviceTrust
from keryx.surfaces.gateway.matrix.encryption.olm_machine import OlmMachine
from keryx.surfaces.gateway.matrix.homeserver import Homeserver
from keryx.testing import RecordingAdapterContext
from keryx.testing.fault_injection import PlatformFaults

ROOM = "!r:fake.test"


@asynccontextmanager
async def around(matrix: FakeMatrix) -> AsyncGenerator[MatrixAdapter]:
    async def soon(seconds: float) -> None:
        await asyncio.sleep(0)

    adapter = MatrixAdapter(Homeserver(matrix.url, matrix.token), matrix.user, sleep=soon)
    try:
        yield adapter
    finally:
        await adapter.close()


@asynccontextmanager
async def listening(
    adapter: MatrixAdapter, context: RecordingAdapterContext
) -> AsyncGenerator[RecordingAdapterContext]:
    task = asyncio.create_task(adapter.listen(context))
    try:
        yield context
    finally:
        task.cancel()
        await asyncio.wait({task})


def build_part(adapter: MatrixAdapter, text: str) -> OutgoingPart:
    target = Target("matrix", adapter.account, ROOM)
    [part] = adapter.parts(text)
    return OutgoingPart(
        delivery=DeliveryId("d"), number=0, key="d.0", target=target, text=part.text, markup=part.markup
    )


async def test_a_new_account_begins_now_and_remembers_where() -> None:
    with FakeMatrix() as matrix:
        matrix.say(ROOM, "long ago")
        async with around(matrix) as adapter:
            context = RecordingAdapterContext()
            async with listening(adapter, context):
                await until(lambda: context.cursor is not None)
            matrix.say(ROOM, "while it was away")
            async with listening(adapter, RecordingAdapterContext(context.cursor)) as later:
                [event] = await later.wait_for(1)
    assert event.cursor == "s2"


async def test_a_homeserver_without_encryption_serves_the_other_rooms(tmp_path: Path) -> None:
    with FakeMatrix() as matrix:
        server = Homeserver(matrix.url, matrix.token)
        machine = OlmMachine(server, matrix.user, tmp_path, trust=DeviceTrust.FIRST_USE)
        adapter = MatrixAdapter(server, matrix.user, machine=machine)
        async with listening(adapter, RecordingAdapterContext("s0")) as context:
            matrix.say(ROOM, "hello")
            await context.wait_for(1)
            await adapter.send(build_part(adapter, "hello yourself"))
        await adapter.close()
    assert matrix.texts(ROOM) == ["hello yourself"]


async def test_a_batch_that_was_cut_short_goes_on_behind_the_last_stored_event() -> None:
    with FakeMatrix() as matrix:
        names = [matrix.say(ROOM, f"m{n}") for n in range(3)]
        async with around(matrix) as adapter:
            async with listening(adapter, RecordingAdapterContext("s0")) as context:
                events = await context.wait_for(3)
            assert [e.cursor for e in events] == [
                f"s0 {names[0]}",
                f"s0 {names[0]} {names[1]}",
                "s3",
            ]
            async with listening(adapter, RecordingAdapterContext(f"s0 {names[0]} {names[1]}")) as context:
                assert [e.event for e in await context.wait_for(1)] == names[2:]


async def test_a_repeated_send_whose_reply_was_lost_is_seen_once() -> None:
    with FakeMatrix(faults=PlatformFaults(lost_reply=0.7, broken=0.1), seed=3) as matrix:
        matrix.open(ROOM)
        async with around(matrix) as adapter:
            for _ in range(50):
                try:
                    await adapter.send(build_part(adapter, "hello"))
                    break
                except SendError:
                    continue
        assert matrix.texts(ROOM) == ["hello"]


async def test_the_homeserver_may_go_away_and_come_back() -> None:
    with FakeMatrix(faults=PlatformFaults(torn=1)) as matrix:
        async with around(matrix) as adapter, listening(adapter, RecordingAdapterContext("s0")) as context:
            matrix.say(ROOM, "hello")
            await until(lambda: [link for link, _ in context.link_states[1:]] == [LinkState.CONNECTING])
            matrix.faults = PlatformFaults()
            await context.wait_for(1)
            await until(lambda: context.link_states[-1][0] is LinkState.CONNECTED)


async def test_an_invitation_that_cannot_be_followed_blocks_nothing() -> None:
    with FakeMatrix() as matrix:
        matrix.invite("!gone:fake.test")
        matrix.unjoinable.add("!gone:fake.test")
        async with around(matrix) as adapter, listening(adapter, RecordingAdapterContext("s0")) as context:
            matrix.say(ROOM, "hello")
            await context.wait_for(1)


async def test_without_the_extra_nothing_is_sent_to_an_encrypted_room_and_the_reason_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"{encryption.__name__}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "vodozemac", None)
    with FakeMatrix() as matrix:
        matrix.push(ROOM, {"algorithm": "m.megolm.v1.aes-sha2"}, kind="m.room.encryption", state_key="")
        table = {"homeserver": matrix.url, "user": matrix.user}
        environ = {"KERYX_MATRIX_TOKEN": matrix.token}
        adapter = make(AdapterSetup(platform="matrix", home=tmp_path, table=table, environ=environ))
        assert isinstance(adapter, MatrixAdapter)
        try:
            with pytest.raises(NotSent, match=r"an extra is missing \(vodozemac\): run .*matrix-encryption"):
                await adapter.send(build_part(adapter, "a secret"))
        finally:
            await adapter.close()
    assert matrix.texts(ROOM) == []
