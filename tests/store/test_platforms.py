from tests.builders import ODD_TEXTS, Store, after

from keryx.store import platforms
from keryx.testing import START_TIME


async def test_a_later_moment_wins(store: Store) -> None:
    await store.write(platforms.close_gate, "a", until=after(30), reason="")
    await store.write(platforms.close_gate, "a", until=after(10), reason="")
    assert await store.at(START_TIME).read(platforms.get_next_gate_opening) == after(30)
    await store.write(platforms.close_gate, "a", until=after(40), reason="")
    assert await store.at(START_TIME).read(platforms.get_next_gate_opening) == after(40)


async def test_the_next_opening_is_the_earliest_of_those_still_closed(store: Store) -> None:
    assert await store.at(START_TIME).read(platforms.get_next_gate_opening) is None
    await store.write(platforms.close_gate, "a", until=after(30), reason="")
    await store.write(platforms.close_gate, "b", until=after(10), reason="")
    assert await store.at(START_TIME).read(platforms.get_next_gate_opening) == after(10)
    assert await store.at(after(10)).read(platforms.get_next_gate_opening) == after(30)


async def test_gates_that_are_open_again_are_forgotten(store: Store) -> None:
    await store.write(platforms.close_gate, "a", until=after(10), reason="")
    assert await store.at(after(9)).write(platforms.trim_gates) == 0
    assert await store.at(after(10)).write(platforms.trim_gates) == 1


async def test_a_reason_may_be_any_text(store: Store) -> None:
    for text in ODD_TEXTS:
        await store.write(platforms.close_gate, "a", until=after(10), reason=text)
