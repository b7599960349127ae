import pytest
from tests.builders import ODD_TEXTS, Store, a_message, a_session, after, at_time

from keryx.core.sessions import Session
from keryx.store import epochs, messages, sessions
from keryx.store.db import Transaction
from keryx.testing import START_TIME


async def test_nothing_was_compacted_at_first(store: Store) -> None:
    session = await store.write(a_session)
    assert await store.read(epochs.find_current, session.id) is None
    assert await store.read(epochs.list_all, session.id) == []


async def test_a_new_epoch_is_current_and_stamps_the_messages_after_it(store: Store) -> None:
    session = await store.write(a_session)
    await store.write(a_message, session.id)
    for n in (1, 2):
        begun = await store.at(after(n)).write(epochs.begin, session.id, first_seq=n + 1, summary=f"s{n}")
        assert begun == n
        await store.write(a_message, session.id)
    assert [m.epoch for m in await store.read(messages.list_after, session.id, after=0)] == [0, 1, 2]
    current = await store.read(epochs.find_current, session.id)
    assert current and (current.number, current.first_seq, current.summary) == (2, 3, "s2")
    assert [e.number for e in await store.read(epochs.list_all, session.id)] == [2, 1]
    assert (await store.read(sessions.get, session.id)).epoch == 2


async def test_a_summary_may_be_any_text(store: Store, subtests: pytest.Subtests) -> None:
    for text in ODD_TEXTS:
        with subtests.test(ascii(text)):
            session = await store.write(a_session)
            await store.at(START_TIME).write(epochs.begin, session.id, first_seq=1, summary=text)
            current = await store.read(epochs.find_current, session.id)
            assert current and current.summary == text


async def test_a_fork_gets_the_epochs_that_began_within_what_was_copied(store: Store) -> None:
    def fork(tx: Transaction, through: int) -> Session:
        parent, child = a_session(tx), a_session(tx)
        for n in (1, 2, 3):
            a_message(tx, parent.id)
            epochs.begin(at_time(tx, START_TIME), parent.id, first_seq=n + 1, summary=f"s{n}")
        a_message(tx, parent.id)
        messages.copy(tx, source=parent.id, target=child.id, through=through)
        epochs.copy(tx, source=parent.id, target=child.id, through=through)
        sessions.copy_counters(tx, source=parent.id, target=child.id)
        return sessions.get(tx, child.id)

    for through, expected in ((1, []), (2, ["s1"]), (4, ["s3", "s2", "s1"])):
        child = await store.write(fork, through)
        assert [e.summary for e in await store.read(epochs.list_all, child.id)] == expected
        assert child.epoch == len(expected)
