"""What the engine relies on in every adapter."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.builders import ODD_TEXTS
from tests.contracts.adapters import CASES, Setting

from keryx.core.deliveries import Idempotency, Target
from keryx.core.errors import SendError
from keryx.core.ids import DeliveryId
from keryx.core.messages import Text
from keryx.core.ports import Inbound, Parcel, Receipt
from keryx.testing import RecordingDoor

SECONDS = 10


@pytest.fixture(params=CASES, ids=str)
async def setting(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Setting]:
    async with request.param.make(tmp_path) as made:
        yield made


def parcel(setting: Setting, text: str = "hello", *, delivery: str = "d1", chat: str = "c1") -> Parcel:
    target = Target(setting.adapter.platform, setting.adapter.account, chat)
    return Parcel(delivery=DeliveryId(delivery), part=0, key=f"{delivery}.0", target=target, text=text)


async def test_what_is_sent_arrives_and_has_an_id(setting: Setting) -> None:
    receipt = await setting.adapter.send(parcel(setting))
    assert receipt and setting.seen("c1") == ["hello"]


async def test_what_is_sent_one_after_the_other_arrives_in_order(setting: Setting) -> None:
    receipts = [await setting.adapter.send(parcel(setting, f"t{n}", delivery=f"d{n}")) for n in range(5)]
    assert setting.seen("c1") == [f"t{n}" for n in range(5)]
    assert len(set(receipts)) == 5


async def test_chats_are_apart(setting: Setting) -> None:
    await setting.adapter.send(parcel(setting, "one"))
    await setting.adapter.send(parcel(setting, "two", delivery="d2", chat="c2"))
    assert (setting.seen("c1"), setting.seen("c2")) == (["one"], ["two"])


async def test_a_repetition_under_one_key_arrives_once_where_the_platform_says_so(setting: Setting) -> None:
    first = await setting.adapter.send(parcel(setting))
    again = await setting.adapter.send(parcel(setting))
    native = setting.adapter.capabilities.idempotency is Idempotency.NATIVE
    assert setting.seen("c1") == ["hello"] * (1 if native else 2)
    assert (first == again) == native


@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
async def test_any_text_arrives_or_is_refused_by_name(setting: Setting, text: str) -> None:
    try:
        await setting.adapter.send(parcel(setting, text))
    except SendError:
        assert setting.seen("c1") == []
    else:
        assert setting.seen("c1") == [text]


@pytest.mark.parametrize("text", ["x", "word " * 3000, "👩‍👩‍👧‍👦" * 500])
async def test_the_parts_of_a_text_lose_nothing_and_are_never_none(setting: Setting, text: str) -> None:
    parts = setting.adapter.parts(text)
    assert "".join(parts) == text and all(parts)
    assert list(setting.adapter.parts(text)) == list(parts)


async def test_listening_goes_on_until_it_is_cancelled(setting: Setting) -> None:
    task = asyncio.create_task(setting.adapter.listen(RecordingDoor()))
    await asyncio.sleep(0.02)
    assert not task.done()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=SECONDS)
    assert done and task.cancelled()


async def test_events_come_in_order_with_ids_of_their_own_and_go_on_from_the_cursor(setting: Setting) -> None:
    if setting.say is None:
        pytest.skip("nothing comes in from this platform")
    for n in range(4):
        setting.say("c1", f"m{n}")
    first = await heard(setting, 4, None)
    assert ["".join(p.text for p in m.parts if isinstance(p, Text)) for m in first] == [
        f"m{n}" for n in range(4)
    ]
    assert len({m.event for m in first}) == 4
    assert all(
        m.reply and m.reply.chat == "c1" and m.source.platform == setting.adapter.platform for m in first
    )
    cursor = first[1].cursor
    assert cursor and cursor[0] == f"{setting.adapter.platform}:{setting.adapter.account}"
    assert [m.event for m in await heard(setting, 2, cursor[1])] == [m.event for m in first[2:]]


async def test_an_event_that_could_not_be_taken_in_comes_again(setting: Setting) -> None:
    if setting.say is None:
        pytest.skip("nothing comes in from this platform")
    setting.say("c1", "hello")

    async def refuse(inbound: Inbound) -> Receipt:
        raise RuntimeError("the store is away")

    async with asyncio.timeout(SECONDS):
        with pytest.raises(RuntimeError):
            await setting.adapter.listen(RecordingDoor(receive=refuse))
    assert len(await heard(setting, 1, None)) == 1


async def heard(setting: Setting, count: int, cursor: str | None) -> list[Inbound]:
    """Listen until this many events have come."""
    door = RecordingDoor(cursor)
    task = asyncio.create_task(setting.adapter.listen(door))
    events = await door.wait_for(count, seconds=SECONDS)
    task.cancel()
    await asyncio.wait({task})
    return events
