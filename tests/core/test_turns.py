"""Who is blamed when a process dies, and when a turn is set aside."""

import pytest

from keryx.core import turns
from keryx.core.ids import PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.turns import BusyMode, Turn, TurnState
from keryx.testing import START_TIME


def ran(name: str, attempts: int) -> Turn:
    return Turn(
        id=TurnId(name),
        session=SessionId(name),
        profile=ProfileId("default"),
        owner=PrincipalId("ann"),
        asker=PrincipalId("ann"),
        state=TurnState.RUNNING,
        mode=BusyMode.QUEUE,
        attempts=attempts,
        created_at=START_TIME,
        input_seq=1,
    )


def test_a_turn_that_ran_alone_is_blamed() -> None:
    assert turns.find_blamed([ran("a", 1)]) == {"a"}


def test_nobody_is_blamed_when_several_ran_for_the_first_or_second_time() -> None:
    assert turns.find_blamed([ran("a", 1), ran("b", 2)]) == frozenset()


def test_the_suspect_is_blamed_and_not_those_beside_it() -> None:
    assert turns.find_blamed([ran("a", 1), ran("b", 3), ran("c", 2)]) == {"b"}


def test_nobody_ran() -> None:
    assert turns.find_blamed([]) == frozenset()


@pytest.mark.parametrize(
    ("attempts", "blames", "expected"),
    [(2, 2, False), (3, 1, False), (3, 2, True), (4, 2, True), (11, 1, False), (12, 0, True)],
)
def test_a_turn_is_set_aside_when_it_is_certain_or_was_tried_far_too_often(
    attempts: int, blames: int, expected: bool
) -> None:
    assert turns.is_poisonous(attempts, blames) is expected
