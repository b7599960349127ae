from tests.builders import ODD_TEXTS, Store, after

from keryx.store import platforms
from keryx.testing import START_TIME


async def test_a_later_moment_wins(store: Store) -> None:
    await store.write(platforms.close_gate, "a", until=after(30), reason="")
    await store.write(platforms.close_gate, "a", until=after(10), reason="")
    assert await store.read(platforms.get_next_gate_opening, now=START_TIME) == after(30)
    await store.write(platforms.close_gate, "a", until=after(40), reason="")
    assert await store.read(platforms.get_next_gate_opening, now=START_TIME) == after(40)


async def test_the_next_opening_is_the_earliest_of_those_still_closed(store: Store) -> None:
    assert await store.read(platforms.get_next_gate_opening, now=START_TIME) is None
    await store.write(platforms.close_gate, "a", until=after(30), reason="")
    await store.write(platforms.close_gate, "b", until=after(10), reason="")
    assert await store.read(platforms.get_next_gate_opening, now=START_TIME) == after(10)
    assert await store.read(platforms.get_next_gate_opening, now=after(10)) == after(30)


async def test_gates_that_are_open_again_are_forgotten(store: Store) -> None:
    await store.write(platforms.close_gate, "a", until=after(10), reason="")
    assert await store.write(platforms.trim_gates, now=after(9)) == 0
    assert await store.write(platforms.trim_gates, now=after(10)) == 1


async def test_a_reason_may_be_any_text(store: Store) -> None:
    for text in ODD_TEXTS:
        await store.write(platforms.close_gate, "a", until=after(10), reason=text)
