import asyncio

import pytest
from tests.builders import ODD_TEXTS, Store, after, at_time

from keryx.core.ids import SessionId, TurnId
from keryx.core.ports.adapter import Receipt
from keryx.store import inbox
from keryx.store.db import Transaction
from keryx.testing import START_TIME

RECEIPT = Receipt(duplicate=False, session=SessionId("s"), turn=TurnId("t"), seq=3, reply="done")


async def record(store: Store, event: str, *, account: str = "bot", platform: str = "telegram") -> None:
    await store.at(START_TIME).write(inbox.record, RECEIPT, platform=platform, account=account, event=event)


async def seen(
    store: Store, event: str, *, account: str = "bot", platform: str = "telegram"
) -> Receipt | None:
    return await store.read(inbox.find_receipt, platform=platform, account=account, event=event)


async def test_an_event_is_known_by_platform_account_and_id(store: Store) -> None:
    await record(store, "1")
    assert await seen(store, "1") == RECEIPT
    assert await seen(store, "2") is None
    assert await seen(store, "1", account="other") is None
    assert await seen(store, "1", platform="slack") is None


async def test_an_event_id_may_be_any_text(store: Store, subtests: pytest.Subtests) -> None:
    for text in ODD_TEXTS:
        with subtests.test(ascii(text)):
            await record(store, text, account=text, platform=text)
            assert await seen(store, text, account=text, platform=text) == RECEIPT
            assert await seen(store, text + "\x00", account=text, platform=text) is None


async def test_an_event_that_comes_many_times_at_once_is_taken_in_once(store: Store) -> None:
    def receive(tx: Transaction, n: int) -> Receipt:
        known = inbox.find_receipt(tx, platform="telegram", account="bot", event="1")
        if known is not None:
            return known
        receipt = Receipt(duplicate=False, seq=n)
        inbox.record(at_time(tx, START_TIME), receipt, platform="telegram", account="bot", event="1")
        return receipt

    receipts = await asyncio.gather(*(store.write(receive, n) for n in range(16)))
    assert len({receipt.seq for receipt in receipts}) == 1


async def test_old_events_are_forgotten(store: Store) -> None:
    await record(store, "1")
    assert await store.write(inbox.trim, before=START_TIME) == 0
    assert await store.write(inbox.trim, before=after(1)) == 1
    assert await seen(store, "1") is None


async def test_a_cursor_is_unknown_until_it_moves(store: Store) -> None:
    assert await store.read(inbox.get_cursor, "telegram:bot") is None
    await store.at(START_TIME).write(inbox.set_cursor, "telegram:bot", "1")
    await store.at(START_TIME).write(inbox.set_cursor, "telegram:bot", "2")
    await store.at(START_TIME).write(inbox.set_cursor, "telegram:other", "9")
    assert await store.read(inbox.get_cursor, "telegram:bot") == "2"


async def test_a_platform_may_use_any_text_as_its_position(store: Store, subtests: pytest.Subtests) -> None:
    for text in ["", *ODD_TEXTS]:
        with subtests.test(ascii(text)):
            await store.at(START_TIME).write(inbox.set_cursor, "matrix:bot", text)
            assert await store.read(inbox.get_cursor, "matrix:bot") == text
