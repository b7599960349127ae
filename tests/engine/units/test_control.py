"""Turns that are cancelled while they are queued."""

from collections.abc import Callable

import pytest
from tests.builders import Store, a_turn

from keryx.core.deliveries import Delivery, PreviewState, Target
from keryx.core.ids import TurnId, WorkerId
from keryx.core.turns import TurnState
from keryx.engine.units import control
from keryx.store import deliveries, turns
from keryx.store.db import Transaction

CHAT = Target("fake", chat="1")


@pytest.mark.parametrize("cancel", [control.cancel, control.drop])
async def test_a_queued_turn_that_was_shown_before_a_crash_is_marked_as_stopped(
    store: Store, cancel: Callable[[Transaction, TurnId], object]
) -> None:
    def cancel_shown_turn(tx: Transaction) -> tuple[TurnState, list[Delivery]]:
        turn = a_turn(tx, reply=CHAT)
        preview = deliveries.begin_preview(tx, turn, CHAT, worker=WorkerId("dead"))
        deliveries.record_preview(tx, preview, PreviewState.SHOWN, receipt="m1")
        cancel(tx, turn.id)
        return turns.get(tx, turn.id).state, deliveries.list_for_turn(tx, turn.id)

    state, (notice,) = await store.write(cancel_shown_turn)
    assert state is TurnState.CANCELLED
    assert "(stopped)" in notice.text
