"""Reads a session and everything that belongs to it as records, in small pages."""

from collections.abc import Iterator

import msgspec

from keryx.core import codec, records
from keryx.core.clock import from_micros
from keryx.core.deliveries import Target
from keryx.core.ids import SessionId
from keryx.core.messages import Message
from keryx.core.records import EpochRecord, MediaRecord, ProjectRecord, SessionRecord, TurnRecord, UsageRecord
from keryx.core.sessions import Session, SessionFilter, Viewer
from keryx.core.turns import BusyMode, TurnState
from keryx.store import epochs, media, messages, sessions
from keryx.store.db.database import Row, Transaction, maybe_moment

PAGE_SIZE = 100
_TURN_COLUMNS = """
  id, asker, state, mode, input_seq, created_at, surface, attempts, started_at, finished_at, interrupted_at, reply, error,
  merged_into
"""
# The fields that a session and its record have in common, by name.
_SHARED_FIELDS = (set(SessionRecord.__struct_fields__) & set(Session.__struct_fields__)) - {"project"}
_USAGE_COLUMNS = (
    "turn, at, surface, model, task, input, output, reasoning, cache_read, cache_write, cost, estimated"
)


def read_session(tx: Transaction, id_: SessionId) -> SessionRecord:
    """A session with its aliases, epochs, lineage and project. Raises `NotFound` for one that is not there."""
    found = sessions.get(tx, id_, deleted=True)
    undo = tx.row("select undo from sessions where id = :id", {"id": id_})
    aliases = tx.rows("select alias from aliases where session = :id order by alias", {"id": id_})
    return SessionRecord(
        **{name: value for name, value in msgspec.structs.asdict(found).items() if name in _SHARED_FIELDS},
        undo=undo[0] if undo else 0,
        project=_read_project(tx, found),
        aliases=tuple(row[0] for row in aliases),
        epochs=tuple(
            EpochRecord(number=e.number, first_seq=e.first_seq, summary=e.summary, created_at=e.created_at)
            for e in reversed(epochs.list_all(tx, id_, limit=1 << 60))
        ),
    )


def iterate_sessions(tx: Transaction, viewer: Viewer) -> Iterator[Session]:
    """Every session that a viewer may see, archived ones and those of jobs included."""
    after: str | None = None
    while True:
        found, after = sessions.list_page(
            tx, viewer, SessionFilter(archived=None, jobs=True, limit=PAGE_SIZE, after=after)
        )
        yield from (entry.session for entry in found)
        if after is None:
            return


def iterate_messages(tx: Transaction, session: SessionId) -> Iterator[Message]:
    """The messages in order, never more than a page of them in memory."""
    last = 0
    while page := messages.list_after(tx, session, after=last, limit=PAGE_SIZE):
        yield from page
        last = page[-1].seq


def iterate_turns(tx: Transaction, session: SessionId) -> Iterator[TurnRecord]:
    """The turns in the order of their queue."""
    last = 0
    while rows := tx.rows(
        f"select position, {_TURN_COLUMNS} from turns where session = :session and position > :last order by position limit :limit",
        {"session": session, "last": last, "limit": PAGE_SIZE},
    ):
        yield from (_turn_from_row(session, row[1:]) for row in rows)
        last = rows[-1][0]


def iterate_usage(tx: Transaction, session: SessionId) -> Iterator[UsageRecord]:
    """What each call used, in order."""
    last = 0
    while rows := tx.rows(
        f"select id, {_USAGE_COLUMNS} from usage where session = :session and id > :last order by id limit :limit",
        {"session": session, "last": last, "limit": PAGE_SIZE},
    ):
        yield from (_usage_from_row(session, row[1:]) for row in rows)
        last = rows[-1][0]


def iterate_records(tx: Transaction, session: SessionId) -> Iterator[records.Entry]:
    """Everything of a session but itself: messages, then turns, then usage."""
    yield from (records.from_message(m) for m in iterate_messages(tx, session))
    yield from iterate_turns(tx, session)
    yield from iterate_usage(tx, session)


def iterate_files(tx: Transaction, session: SessionId, *, known: set[str]) -> Iterator[MediaRecord]:
    """The files that a session shows, chunk by chunk, but for those that are `known`, which then has them too."""
    for file in media.list_for_session(tx, session):
        if file.id in known:
            continue
        known.add(file.id)
        for n, body in enumerate(media.read_chunks(tx, file.id)):
            yield MediaRecord(
                session=session, id=file.id, n=n, size=file.size, body=body, mime=file.mime, name=file.name
            )


def _turn_from_row(session: SessionId, row: Row) -> TurnRecord:
    (
        id_, asker, state, mode, input_seq, created_at, surface, attempts, started_at, finished_at, interrupted_at,
        reply, error, merged_into,
    ) = row  # fmt: skip
    return TurnRecord(
        session=session,
        id=id_,
        asker=asker,
        state=TurnState(state),
        mode=BusyMode(mode),
        input_seq=input_seq,
        created_at=from_micros(created_at),
        surface=surface,
        attempts=attempts,
        started_at=maybe_moment(started_at),
        finished_at=maybe_moment(finished_at),
        interrupted_at=maybe_moment(interrupted_at),
        reply=codec.loads(reply, Target) if reply else None,
        error=codec.loads(error, str) if error else None,
        merged_into=merged_into,
    )


def _usage_from_row(session: SessionId, row: Row) -> UsageRecord:
    turn, at, surface, model, task, input_, output, reasoning, cache_read, cache_write, cost, estimated = row
    return UsageRecord(
        session=session,
        turn=turn,
        at=from_micros(at),
        surface=surface,
        model=model,
        task=task,
        input=input_,
        output=output,
        reasoning=reasoning,
        cache_read=cache_read,
        cache_write=cache_write,
        cost=cost,
        estimated=bool(estimated),
    )


def _read_project(tx: Transaction, session: Session) -> ProjectRecord | None:
    if session.project is None:
        return None
    row = tx.row("select id, name, colour, created_at from projects where id = :id", {"id": session.project})
    if row is None:
        return None
    return ProjectRecord(id=row[0], name=row[1], colour=row[2], created_at=from_micros(row[3]))
