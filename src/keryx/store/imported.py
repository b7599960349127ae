"""Imported: turns and usage of a session that came from another store. Nothing of them ever runs."""

from collections.abc import Sequence

import msgspec

from keryx.core import wire
from keryx.core.ids import PrincipalId, ProfileId
from keryx.core.records import TurnRecord, UsageRecord
from keryx.core.turns import TurnState
from keryx.store import sessions
from keryx.store.database import Transaction, maybe_micros, micros
from keryx.store.imports import Added, Place

CLOSED = "This turn had not ended when its session was exported."


def turns(tx: Transaction, place: Place, batch: Sequence[TurnRecord]) -> tuple[Added, list[str]]:
    """Add turns that are not there. One that had not ended is added as ended: nothing that comes in ever runs."""
    added, notes = 0, list[str]()
    session = sessions.get(tx, place.session)
    for given in batch:
        ended = _ended(given)
        turn = msgspec.structs.replace(
            ended,
            id=place.turn(ended.id),
            session=place.session,
            merged_into=ended.merged_into and place.turn(ended.merged_into),
        )
        row = tx.row("select session, error from turns where id = :id", {"id": turn.id})
        if row is None:
            _insert_turn(tx, turn, session.profile, session.owner)
            added += 1
        elif row[0] != place.session:
            notes.append(f"turn {turn.id} belongs to another session here: it is left out")
        elif row[1] == wire.dumps(CLOSED) and turn.error != CLOSED:
            _finish_turn(tx, turn)
            added += 1
    return Added(turns=added), notes


def usage(tx: Transaction, place: Place, batch: Sequence[UsageRecord]) -> tuple[Place, Added]:
    """Add the usage that comes after what is there; the two lists are the same as far as both go."""
    if not batch:
        return place, Added()
    session = sessions.get(tx, place.session)
    row = tx.row("select count(*) from usage where session = :session", {"session": place.session})
    there = row[0] if row else 0
    fresh = batch[max(0, there - place.usage) :]
    for used in fresh:
        _insert_usage(tx, place, used, session.profile, session.owner)
    return msgspec.structs.replace(place, usage=place.usage + len(batch)), Added(usage=len(fresh))


def _ended(turn: TurnRecord) -> TurnRecord:
    if turn.state.finished:
        return turn
    state = TurnState.EXPIRED if turn.state is TurnState.RUNNING else TurnState.CANCELLED
    return msgspec.structs.replace(
        turn, state=state, error=CLOSED, finished_at=turn.started_at or turn.created_at
    )


def _insert_turn(tx: Transaction, turn: TurnRecord, profile: ProfileId, owner: PrincipalId) -> None:
    tx.run(
        """
        insert into turns
          (id, session, profile, owner, asker, surface, state, mode, attempts, input_seq, reply, error, merged_into,
           created_at, started_at, finished_at, interrupted_at)
        values
          (:id, :session, :profile, :owner, :asker, :surface, :state, :mode, :attempts, :input_seq, :reply, :error,
           :merged_into, :created_at, :started_at, :finished_at, :interrupted_at)
        """,
        {
            "id": turn.id,
            "session": turn.session,
            "profile": profile,
            "owner": owner,
            "asker": turn.asker,
            "surface": turn.surface,
            "state": turn.state.value,
            "mode": turn.mode.value,
            "attempts": turn.attempts,
            "input_seq": turn.input_seq,
            "reply": turn.reply and wire.dumps(turn.reply),
            "error": None if turn.error is None else wire.dumps(turn.error),
            "merged_into": turn.merged_into,
            "created_at": micros(turn.created_at),
            "started_at": maybe_micros(turn.started_at),
            "finished_at": maybe_micros(turn.finished_at),
            "interrupted_at": maybe_micros(turn.interrupted_at),
        },
    )


def _finish_turn(tx: Transaction, turn: TurnRecord) -> None:
    """A turn that came in before it had ended has ended since."""
    tx.run(
        """
        update turns
        set state = :state, attempts = :attempts, error = :error, merged_into = :merged_into, started_at = :started_at,
            finished_at = :finished_at, interrupted_at = :interrupted_at
        where id = :id
        """,
        {
            "id": turn.id,
            "state": turn.state.value,
            "attempts": turn.attempts,
            "error": None if turn.error is None else wire.dumps(turn.error),
            "merged_into": turn.merged_into,
            "started_at": maybe_micros(turn.started_at),
            "finished_at": maybe_micros(turn.finished_at),
            "interrupted_at": maybe_micros(turn.interrupted_at),
        },
    )


def _insert_usage(
    tx: Transaction, place: Place, used: UsageRecord, profile: ProfileId, owner: PrincipalId
) -> None:
    values = msgspec.structs.asdict(used)
    tx.run(
        """
        insert into usage
          (turn, session, profile, owner, surface, model, task, input, output, reasoning, cache_read, cache_write, cost,
           estimated, at)
        values
          (:turn, :session, :profile, :owner, :surface, :model, :task, :input, :output, :reasoning, :cache_read,
           :cache_write, :cost, :estimated, :at)
        """,
        {
            **values,
            "turn": place.turn(used.turn),
            "session": place.session,
            "profile": profile,
            "owner": owner,
            "estimated": int(used.estimated),
            "at": micros(used.at),
        },
    )
