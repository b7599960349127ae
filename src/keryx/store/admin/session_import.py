"""Writes records of a session into the store. Existing rows are compared and never overwritten, and imported turns never run."""

from collections.abc import Sequence

import msgspec

from keryx.core import codec, records
from keryx.core import media as core_media
from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.errors import Conflict
from keryx.core.ids import OPERATOR, PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.messages import Message, TurnVersion
from keryx.core.records import MessageRecord, SessionRecord, TurnRecord, UsageRecord
from keryx.core.sessions import Viewer
from keryx.core.turns import TurnState
from keryx.store import changes, media, messages, projects, sessions, viewer_state
from keryx.store.admin import session_export
from keryx.store.db import Transaction, maybe_micros

UNFINISHED_ERROR = "This turn had not ended when its session was exported."


class ImportTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a session of a file is imported into, and the progress of the import."""

    session: SessionId
    created: bool
    # Its id is not the one in the file, which another owner has here.
    moved: bool
    # Messages were added to a session that existed.
    grown: bool = False
    # The number of usage records that were read from the file.
    usage: int = 0
    notes: tuple[str, ...] = ()

    def get_turn_id(self, id_: TurnId) -> TurnId:
        """Return the id of a turn in this store. In a moved session it differs: the original session has those ids."""
        return TurnId(records.derive_id(id_, self.session)) if self.moved else id_


class ImportCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch added."""

    messages: int = 0
    turns: int = 0
    usage: int = 0
    # Messages that differ here only in marks, and stay as they are.
    kept: int = 0
    # Files that the messages name and that are not here.
    missing: int = 0


def begin(tx: Transaction, record: SessionRecord, *, profile: ProfileId, owner: PrincipalId) -> ImportTarget:
    """Find the session of a record, or create it. Raise `Conflict` if this store has another one with that id."""
    row = tx.row("select profile, owner from sessions where id = :id", {"id": record.id})
    moved = row is not None and (row[0], row[1]) != (profile, owner)
    id_ = SessionId(records.derive_id(record.id, profile, owner)) if moved else record.id
    if sessions.exists(tx, id_):
        sessions.lock(tx, id_)
        if sessions.get(tx, id_, deleted=True).deleted_at is not None:
            raise Conflict("it was deleted here: bring it back first, or erase it")
        ours = session_export.read_session(tx, id_)
        if ours.created_at != record.created_at:
            raise Conflict("this store has another session of that id: it is left as it is")
        if any(a != b for a, b in zip(ours.epochs, record.epochs, strict=False)):
            raise Conflict("it was compacted in another way here: the session is left as it is")
        return ImportTarget(session=id_, created=False, moved=moved)
    _create_session(tx, record, id_, profile, owner)
    place = ImportTarget(session=id_, created=True, moved=moved)
    session = sessions.get(tx, id_)
    title = sessions.import_title(tx, session, record.title, by=record.title_by) if record.title else ""
    notes = [f"its title is taken here: it is called {title!r}"] if title != record.title else []
    notes += _add_aliases(tx, record, place)
    if owner != OPERATOR and not tx.row("select 1 from principals where id = :id", {"id": owner}):
        notes.append(f"its owner {owner!r} is not known here: only the operator sees it")
    _set_project(tx, record, place, profile, owner)
    viewer = Viewer(profile, owner)
    known = {tag.name for tag in projects.list_tags(tx, viewer)} if record.tags else set[str]()
    for tag in record.tags:
        if tag.name not in known:
            projects.add_tag(tx, viewer, tag.name, colour=tag.colour)
    projects.put_tags(tx, viewer, place.session, [tag.name for tag in record.tags])
    return msgspec.structs.replace(place, notes=tuple(notes))


def add_messages(
    tx: Transaction,
    place: ImportTarget,
    record: SessionRecord,
    batch: Sequence[MessageRecord],
) -> tuple[ImportTarget, ImportCounts]:
    """Compare the messages that exist and append the others. Raise `Conflict` at the first that differs."""
    if not batch:
        return place, ImportCounts()
    sessions.lock(tx, place.session)
    here = [
        msgspec.structs.replace(m, session=place.session, turn=m.turn and place.get_turn_id(m.turn))
        for m in batch
    ]
    stored = messages.list_after(tx, place.session, after=here[0].seq - 1, limit=len(here))
    known = {m.seq: records.from_message(m) for m in stored}
    kept = mended = 0
    for message in here:
        if message.seq in known and not message.lost:
            ours = known[message.seq]
            if ours.lost:
                messages.overwrite(tx, _to_message(message))
                mended += 1
            elif _strip_mutable(ours) != _strip_mutable(message):
                raise Conflict(f"message {message.seq} is another one here: the session is left as it is")
            else:
                kept += ours != message
    fresh = [m for m in here if m.seq not in known]
    if fresh and not place.created and not place.grown:
        _update_session(tx, place.session, record)
    if fresh:
        _append_messages(tx, place.session, fresh)
    session = sessions.get(tx, place.session)
    missing: set[str] = set()
    for message in here:
        files = core_media.filter_media(message.parts)
        media.link(tx, session.id, files, profile=session.profile, owner=session.owner)
        missing |= {p.media for p in files if media.find_in_session(tx, session.id, p.media) is None}
    if fresh or mended:
        changes.note(tx, ChangeKind.SESSION, session.id, session, note=sessions.MESSAGES_IMPORTED)
    place = msgspec.structs.replace(place, grown=place.grown or bool(fresh))
    return place, ImportCounts(messages=len(fresh) + mended, kept=kept, missing=len(missing))


def _create_session(
    tx: Transaction, record: SessionRecord, id_: SessionId, profile: ProfileId, owner: PrincipalId
) -> None:
    sessions.create(
        tx,
        profile=profile,
        owner=owner,
        surface=record.surface,
        origin=record.origin and msgspec.structs.replace(record.origin, profile=profile),
        parent=record.parent,
        parent_seq=record.parent_seq,
        cwd=record.cwd,
        settings=record.settings,
        id=id_,
    )
    tx.run(
        """
        update sessions
        set pinned = :pinned, archived = :archived, ended_at = :ended_at, end_reason = :end_reason,
            created_at = :created_at, active_at = :created_at
        where id = :id
        """,
        {
            "id": id_,
            "pinned": int(record.pinned),
            "archived": int(record.archived),
            "ended_at": maybe_micros(record.ended_at),
            "end_reason": record.end_reason and record.end_reason.value,
            "created_at": to_micros(record.created_at),
        },
    )
    _update_session(tx, id_, record)


def _update_session(tx: Transaction, id_: SessionId, record: SessionRecord) -> None:
    """Set the counters and epochs from the record. Message counts follow the messages."""
    tx.run(
        """
        update sessions
        set epoch = :epoch, turns = :turns, undo = :undo, tokens_input = :input, tokens_output = :output,
            tokens_reasoning = :reasoning, tokens_cache_read = :cache_read, tokens_cache_write = :cache_write,
            cost = :cost, cost_status = :cost_status, context_used = :context_used, context_limit = :context_limit,
            active_at = case when active_at < :active_at then :active_at else active_at end
        where id = :id
        """,
        {
            "id": id_,
            "epoch": record.epoch,
            "turns": record.turns,
            "undo": record.undo,
            **msgspec.structs.asdict(record.tokens),
            "cost": record.cost,
            "cost_status": record.cost_status,
            "context_used": record.context_used,
            "context_limit": record.context_limit,
            "active_at": to_micros(record.active_at),
        },
    )
    for version in record.versions:
        messages.add_version(tx, id_, TurnVersion(version.turn, version.first, version.seq))
    for epoch in record.epochs:
        tx.run(
            """
            insert into epochs (session, number, first_seq, summary, created_at)
            values (:session, :number, :first_seq, :summary, :at)
            on conflict (session, number) do nothing
            """,
            {
                "session": id_,
                "number": epoch.number,
                "first_seq": epoch.first_seq,
                "summary": codec.dumps(epoch.summary),
                "at": to_micros(epoch.created_at),
            },
        )


def _add_aliases(tx: Transaction, record: SessionRecord, place: ImportTarget) -> list[str]:
    session = sessions.get(tx, place.session)
    notes: list[str] = []
    for alias in (*record.aliases, *([record.id] if place.moved else ())):
        sessions.add_alias(tx, session, alias)
        row = tx.row(
            "select session from aliases where profile = :profile and alias = :alias",
            {"profile": session.profile, "alias": alias.strip()},
        )
        if row is None or row[0] != place.session:
            notes.append(f"its old name {alias!r} leads to another session here")
    if place.moved:
        notes.append(f"its id belongs to somebody else here: it is now {place.session}")
    return notes


def _set_project(
    tx: Transaction,
    record: SessionRecord,
    place: ImportTarget,
    profile: ProfileId,
    owner: PrincipalId,
) -> None:
    if record.project is None:
        return
    given = record.project
    key = {"profile": profile, "owner": owner, "name": given.name}
    find = "select id from projects where profile = :profile and owner = :owner and name = :name"
    if tx.row(find, key) is None:
        taken = tx.row("select 1 from projects where id = :id", {"id": given.id})
        id_ = records.derive_id(given.id, profile, owner) if taken else given.id
        tx.run(
            """
            insert into projects (id, profile, owner, name, colour, created_at)
            values (:id, :profile, :owner, :name, :colour, :at)
            """,
            {**key, "id": id_, "colour": given.colour, "at": to_micros(given.created_at)},
        )
        changes.note(tx, ChangeKind.PROJECT, id_, changes.Scope(profile, owner), note="added")
    tx.run(
        f"update sessions set project = ({find}) where id = :id",
        {**key, "id": place.session},
    )


def _strip_mutable(message: MessageRecord) -> MessageRecord:
    """Return a message without what may change: its turn, mark and undo group."""
    return msgspec.structs.replace(message, turn=None, mark=None, undone=0)


def _append_messages(tx: Transaction, id_: SessionId, fresh: Sequence[MessageRecord]) -> None:
    """Append messages and mark them as read."""
    row = tx.row("select last_seq from sessions where id = :id", {"id": id_})
    if row is None or [m.seq for m in fresh] != list(range(row[0] + 1, row[0] + 1 + len(fresh))):
        raise Conflict("somebody spoke here meanwhile: import the file again")
    for record in fresh:
        messages.insert(tx, _to_message(record))
    tx.run(
        "update sessions set last_seq = :last, messages = messages + :more where id = :id",
        {"id": id_, "last": fresh[-1].seq, "more": len(fresh)},
    )
    session = sessions.get(tx, id_)
    for principal in dict.fromkeys((OPERATOR, session.owner)):
        viewer_state.mark_read(tx, Viewer(session.profile, principal), session, session.last_seq)


def _to_message(record: MessageRecord) -> Message:
    fields = msgspec.structs.asdict(record)
    del fields["at"]
    return Message(**fields, micros=to_micros(record.at))


def add_turns(
    tx: Transaction, place: ImportTarget, batch: Sequence[TurnRecord]
) -> tuple[ImportCounts, list[str]]:
    """Add the turns that are missing. One that had not ended is added as ended: imported turns never run."""
    added, notes = 0, list[str]()
    session = sessions.get(tx, place.session)
    for record in batch:
        turn = _localize_turn(place, record)
        row = tx.row("select session, error from turns where id = :id", {"id": turn.id})
        if row is None:
            tx.run(
                """
                insert into turns
                  (id, session, profile, owner, asker, surface, state, mode, attempts, input_seq, reply, error, merged_into,
                   created_at, started_at, finished_at, interrupted_at)
                values
                  (:id, :session, :profile, :owner, :asker, :surface, :state, :mode, :attempts, :input_seq, :reply, :error,
                   :merged_into, :created_at, :started_at, :finished_at, :interrupted_at)
                """,
                {**session_export.TURN_ROWS.encode(turn), "profile": session.profile, "owner": session.owner},
            )
            added += 1
        elif row[0] != place.session:
            notes.append(f"turn {turn.id} belongs to another session here: it is left out")
        elif row[1] == codec.dumps(UNFINISHED_ERROR) and turn.error != UNFINISHED_ERROR:
            # It was imported before it had ended, and has ended since.
            tx.run(
                """
                update turns
                set state = :state, attempts = :attempts, error = :error, merged_into = :merged_into,
                    started_at = :started_at, finished_at = :finished_at, interrupted_at = :interrupted_at
                where id = :id
                """,
                session_export.TURN_ROWS.encode(turn),
            )
            added += 1
    return ImportCounts(turns=added), notes


def add_usage(
    tx: Transaction, place: ImportTarget, batch: Sequence[UsageRecord]
) -> tuple[ImportTarget, ImportCounts]:
    """Add the usage records after those that are stored already."""
    if not batch:
        return place, ImportCounts()
    session = sessions.get(tx, place.session)
    [[stored]] = tx.rows("select count(*) from usage where session = :session", {"session": session.id})
    fresh = batch[max(0, stored - place.usage) :]
    for used in fresh:
        tx.run(
            """
            insert into usage
              (turn, session, profile, owner, surface, model, task, input, output, reasoning, cache_read, cache_write,
               cost, estimated, at)
            values
              (:turn, :session, :profile, :owner, :surface, :model, :task, :input, :output, :reasoning, :cache_read,
               :cache_write, :cost, :estimated, :at)
            """,
            {
                **session_export.USAGE_ROWS.encode(used),
                "turn": place.get_turn_id(used.turn),
                "session": session.id,
                "profile": session.profile,
                "owner": session.owner,
            },
        )
    return msgspec.structs.replace(place, usage=place.usage + len(batch)), ImportCounts(usage=len(fresh))


def _localize_turn(place: ImportTarget, record: TurnRecord) -> TurnRecord:
    """Return a turn as it is stored here: with its ids in this store, and ended."""
    turn = msgspec.structs.replace(
        record,
        id=place.get_turn_id(record.id),
        session=place.session,
        merged_into=record.merged_into and place.get_turn_id(record.merged_into),
    )
    if turn.state.finished:
        return turn
    state = TurnState.EXPIRED if turn.state is TurnState.RUNNING else TurnState.CANCELLED
    return msgspec.structs.replace(
        turn, state=state, error=UNFINISHED_ERROR, finished_at=turn.started_at or turn.created_at
    )
