"""Messages: appended with the next number of their session, read in windows, and never rewritten except for edits, marks and redaction."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from keryx.core import codec
from keryx.core.changes import ChangeKind
from keryx.core.clock import to_micros
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import PrincipalId, SessionId, TurnId
from keryx.core.media import filter_media
from keryx.core.messages import REMOVED, Mark, Message, Parts, Role, TurnVersion, edit_exact
from keryx.core.texts import Phrase
from keryx.store import changes, media
from keryx.store.db import Row, Transaction

TURN_CLOSED = """not exists (
  select 1 from turns where turns.id = messages.turn and turns.state in ('queued', 'running')
)"""


class UndoGroup(NamedTuple):
    group: int
    first_seq: int


class _RareFields(msgspec.Struct, frozen=True, array_like=True):
    """The columns that few messages use, as they are stored."""

    author: str
    platform_id: str
    mark: Mark | None
    observed: int
    undone: int


def columns(table: str, *, session: bool = True) -> str:
    """Return the columns that `from_rows` reads. The rare ones of a plain message are not looked at."""
    return f"""
      {f"{table}.session" if session else "null"}, {table}.seq, {table}.role, {table}.parts, {table}.at, {table}.turn,
      {table}.epoch, {table}.surface, case {table}.plain when 1 then null else
        '[' || coalesce(nullif({table}.author, ''), '""') || ',' || coalesce(nullif({table}.platform_id, ''), '""')
        || ',' || coalesce('"' || {table}.mark || '"', 'null') || ',' || {table}.observed || ',' || {table}.undone || ']'
      end, case {table}.plain when 1 then null else {table}.exact end
    """


# Readers of one session know its id, so it is not read with every row.
_SELECT = f"select {columns('messages', session=False)} from messages"
_DECODE_BATCH = 250
# The decoder holds the interpreter while it works, so long messages are not decoded together.
_DECODE_CHARS = 500_000
# Looking a member up in a table is many times faster than calling the enum.
_ROLES = {role.value: role for role in Role}


def append(
    tx: Transaction,
    session: SessionId,
    role: Role,
    parts: Parts,
    *,
    turn: TurnId | None = None,
    author: str = "",
    surface: str = "",
    platform_id: str = "",
    mark: Mark | None = None,
    observed: bool = False,
    exact: str | None = None,
    said_by: PrincipalId | None = None,
) -> int:
    """Append a message to its session and note it; return its number. Locks the session. `said_by` is the person who
    wrote the words, wherever they are stored."""
    moved = tx.row(
        """
        update sessions
        set last_seq = last_seq + 1,
            messages = messages + 1,
            active_at = case when active_at < :now then :now else active_at end
        where id = :session
        returning last_seq, epoch, profile, owner
        """,
        {"session": session, "now": to_micros(tx.now)},
    )
    if moved is None:
        raise NotFound(f"session {session} does not exist", Phrase("session.gone"))
    seq, epoch, profile, owner = moved
    message = Message(
        session,
        seq,
        role,
        parts,
        to_micros(tx.now),
        turn,
        epoch,
        author,
        surface,
        platform_id,
        mark,
        observed,
        exact=exact,
    )
    insert(tx, message, said_by=said_by)
    media.link(tx, session, parts, profile=profile, owner=owner)
    scope = changes.Scope(profile, owner, session, turn)
    changes.note(tx, ChangeKind.MESSAGE, message.id, scope, n=seq, note="added")
    return int(seq)


def insert(tx: Transaction, message: Message, *, said_by: PrincipalId | None = None) -> None:
    """Insert a message that has its number already. The caller updates the counters of the session."""
    tx.run(
        """
        insert into messages
          (session, seq, role, parts, at, turn, epoch, author, surface, platform_id, mark, observed, undone, exact, said_by,
           plain)
        values
          (:session, :seq, :role, :parts, :at, :turn, :epoch, :author, :surface, :platform_id, :mark, :observed, :undone,
           :exact, :said_by, :plain)
        """,
        {**_encode(tx, message), "said_by": said_by},
    )


def overwrite(tx: Transaction, message: Message) -> None:
    """Replace everything but the author's principal in the message with the same number."""
    tx.run(
        """
        update messages
        set role = :role, parts = :parts, at = :at, turn = :turn, epoch = :epoch, author = :author, surface = :surface,
            platform_id = :platform_id, mark = :mark, observed = :observed, undone = :undone, exact = :exact,
            plain = :plain
        where session = :session and seq = :seq
        """,
        _encode(tx, message),
    )


def _encode(tx: Transaction, message: Message) -> dict[str, Any]:
    """Return the values of a message's columns by name, except `said_by`."""
    row = {
        "session": message.session,
        "seq": message.seq,
        "role": message.role.value,
        **_encode_content(tx, message.session, message.parts, message.exact),
        "at": message.micros,
        "turn": message.turn,
        "epoch": message.epoch,
        "author": codec.dumps(message.author) if message.author else "",
        "surface": message.surface,
        "platform_id": codec.dumps(message.platform_id) if message.platform_id else "",
        "mark": message.mark and message.mark.value,
        "observed": int(message.observed),
        "undone": message.undone,
    }
    # A plain message has none of the fields that few messages have; readers skip those columns.
    rare = (*_RareFields.__struct_fields__, "exact")
    return {**row, "plain": int(not any(row[name] for name in rare))}


def _encode_content(
    tx: Transaction, session: SessionId, parts: Parts, exact: str | None
) -> dict[str, str | None]:
    """Return the columns with what a message says. Those of a temporary session are sealed."""
    return {
        "parts": tx.keys.seal(session, codec.dumps(parts)),
        "exact": None if exact is None else tx.keys.seal(session, codec.dumps(exact)),
    }


def get(tx: Transaction, session: SessionId, seq: int) -> Message:
    row = tx.row(f"{_SELECT} where session = :session and seq = :seq", {"session": session, "seq": seq})
    if row is None:
        raise NotFound(f"message {session}.{seq} does not exist", Phrase("session.no_message"))
    return from_rows([row], session)[0]


def list_latest(
    tx: Transaction, session: SessionId, *, limit: int, before: int | None = None
) -> list[Message]:
    """The last messages below `before`, oldest first."""
    rows = tx.rows(
        f"{_SELECT} where session = :session and seq < :before order by seq desc limit :limit",
        {"session": session, "before": before if before is not None else 1 << 60, "limit": limit},
    )
    return from_rows(rows[::-1], session)


def list_after(tx: Transaction, session: SessionId, *, after: int, limit: int = 1 << 60) -> list[Message]:
    """The messages above `after`, oldest first."""
    batches = tx.batches(
        f"{_SELECT} where session = :session and seq > :after order by seq limit :limit",
        {"session": session, "after": after, "limit": limit},
        _DECODE_BATCH,
    )
    found: list[Message] = []
    for rows in batches:
        found += _decode_batch(rows, session)
    return found


def list_with_file(tx: Transaction, session: SessionId, file: str, *, through: int) -> list[Message]:
    """The messages up to `through` that have this file, oldest first. Others are not decoded."""
    rows = tx.rows(
        f"{_SELECT} where session = :session and seq <= :through and parts like :wanted order by seq limit 1000",
        {"session": session, "through": through, "wanted": f"%{file}%"},
    )
    return [m for m in from_rows(rows, session) if any(part.media == file for part in filter_media(m.parts))]


def list_since_question(tx: Transaction, session: SessionId, *, limit: int) -> list[Message]:
    """The observed messages and the notices since the last message to the agent, oldest first. Answers are not read, however
    long they are."""
    rows = tx.rows(
        f"""
        {_SELECT}
        where session = :session and (role = 'notice' or role = 'user' and observed = 1) and seq > coalesce(
          (
            select seq from messages where session = :session and role = 'user' and observed = 0
            order by seq desc limit 1
          ),
          0
        )
        order by seq desc limit :limit
        """,
        {"session": session, "limit": limit},
    )
    return from_rows(rows[::-1], session)


def list_for_turn(tx: Transaction, session: SessionId, turn: TurnId, *, first: int) -> list[Message]:
    """What a turn was asked and wrote; `first` is the number of its first input."""
    rows = tx.rows(
        f"{_SELECT} where turn = :turn and seq >= :first and session = :session order by seq",
        {"session": session, "turn": turn, "first": first},
    )
    return from_rows(rows, session)


def find_by_platform_id(
    tx: Transaction, session: SessionId, platform_id: str, *, among: int = 500
) -> Message | None:
    """The newest message with a platform's id, among the last few hundred."""
    rows = tx.rows(
        f"""
        {_SELECT}
        where session = :session and platform_id = :platform_id
          and seq > (select last_seq from sessions where id = :session) - :among
        order by seq desc limit 1
        """,
        {"session": session, "platform_id": codec.dumps(platform_id), "among": among},
    )
    return from_rows(rows, session)[0] if rows else None


def rewrite(tx: Transaction, message: Message, parts: Parts) -> None:
    """Apply an edit to an input that no turn has started to answer. The model's preamble stays."""
    exact = edit_exact(message, parts)
    _update(
        tx,
        message,
        "parts = :parts, mark = :mark, exact = :exact, plain = 0",
        {**_encode_content(tx, message.session, parts, exact), "mark": Mark.EDITED.value},
        linked=parts,
    )


def replace_parts(tx: Transaction, message: Message, parts: Parts) -> None:
    """Store other parts of a message, such as a file that was fetched. The model's preamble stays."""
    exact = edit_exact(message, parts)
    _update(
        tx,
        message,
        "parts = :parts, exact = :exact",
        _encode_content(tx, message.session, parts, exact),
        linked=parts,
    )


def set_mark(tx: Transaction, message: Message, mark: Mark) -> None:
    _update(tx, message, "mark = :mark, plain = 0", {"mark": mark.value})


def redact(tx: Transaction, message: Message, parts: Parts) -> None:
    """Put something else in the place of what a person said, and forget who said it. What the model was told with
    later messages may quote it, so that goes too."""
    tx.run(
        "update messages set exact = null where session = :session and seq > :seq and exact is not null",
        {"session": message.session, "seq": message.seq},
    )
    _update(
        tx,
        message,
        "parts = :parts, author = '', platform_id = '', exact = null, said_by = null",
        {"parts": tx.keys.seal(message.session, codec.dumps(parts))},
        linked=parts,
    )


def reassign(tx: Transaction, session: SessionId, *, old: TurnId, new: TurnId, first: int) -> None:
    """Give the messages of one turn to another. `first` is the number of its first input."""
    tx.run(
        "update messages set turn = :new where session = :session and seq >= :first and turn = :old",
        {"session": session, "old": old, "new": new, "first": first},
    )


def set_undone(tx: Transaction, session: SessionId, turn: TurnId, *, first: int, group: int) -> int:
    """Make the messages of a turn inactive as part of an undo group; return how many."""
    return tx.count(
        """
        update messages set undone = :group, plain = 0
        where session = :session and seq >= :first and turn = :turn and undone = 0
        """,
        {"session": session, "turn": turn, "group": group, "first": first},
    )


def set_undone_since(tx: Transaction, session: SessionId, *, first: int, group: int) -> None:
    """Make the turns that begin with message `first` or later inactive as one undo group, withdrawn ones and those whose
    question was removed too."""
    tx.run(
        """
        update messages set undone = :group, plain = 0
        where session = :session and seq >= :first and undone = 0 and turn in (
          select q.turn from messages q
          where q.session = :session and q.seq >= :first and q.role = 'user' and q.undone <= 0 and not exists (
            select 1 from messages e where e.turn = q.turn and e.session = :session and e.seq < :first
          )
        )
        """,
        {"session": session, "first": first, "group": group},
    )


def find_last_undo(tx: Transaction, session: SessionId) -> UndoGroup | None:
    """The newest undo group that is still undone."""
    row = tx.row(
        """
        select undone, min(seq) from messages
        where session = :session and undone > 0
        group by undone order by undone desc limit 1
        """,
        {"session": session},
    )
    return None if row is None else UndoGroup(int(row[0]), int(row[1]))


def has_user_message_after(tx: Transaction, session: SessionId, seq: int) -> bool:
    """Whether a person wrote an active message after this one."""
    row = tx.row(
        "select 1 from messages where session = :session and seq > :seq and role = 'user' and undone = 0 limit 1",
        {"session": session, "seq": seq},
    )
    return row is not None


def restore(tx: Transaction, session: SessionId, group: int) -> int:
    """Make the messages of an undo group active again; return how many."""
    return tx.count(
        "update messages set undone = 0 where session = :session and undone = :group",
        {"session": session, "group": group},
    )


def set_removed(tx: Transaction, session: SessionId, seqs: Sequence[int]) -> None:
    """Make single messages inactive. Undo and redo leave them alone."""
    for seq in seqs:
        tx.run(
            "update messages set undone = :removed, plain = 0 where session = :session and seq = :seq",
            {"session": session, "seq": seq, "removed": REMOVED},
        )


def restore_removed(tx: Transaction, session: SessionId, seqs: Sequence[int]) -> None:
    """Bring back messages that were removed one by one: they stand as the rest of their turn does."""
    for seq in seqs:
        tx.run(
            """
            update messages
            set undone = coalesce(
              (select max(o.undone) from messages o where o.session = :session and o.turn = messages.turn and o.undone > 0), 0
            )
            where session = :session and seq = :seq and undone = :removed
            """,
            {"session": session, "seq": seq, "removed": REMOVED},
        )


def find_first_since(tx: Transaction, session: SessionId, at: datetime) -> int | None:
    """Return the number of the first message that is not older than a time. Messages are stored in order of time, so only a
    few are looked at."""
    row = tx.row("select max(seq) from messages where session = :session", {"session": session})
    newest = int(row[0] or 0) if row else 0
    low, high, micros = 1, newest + 1, to_micros(at)
    while low < high:
        middle = (low + high) // 2
        found = tx.row(
            "select at from messages where session = :session and seq >= :seq order by seq limit 1",
            {"session": session, "seq": middle},
        )
        if found is None or int(found[0]) >= micros:
            high = middle
        else:
            low = middle + 1
    return low if low <= newest else None


def list_questions(
    tx: Transaction, session: SessionId, *, limit: int, before: int | None = None
) -> list[Message]:
    """The last messages of people below `before` that are part of the conversation, oldest first."""
    rows = tx.rows(
        f"""
        {_SELECT}
        where session = :session and seq < :before and role = 'user' and undone = 0 and observed = 0
        order by seq desc limit :limit
        """,
        {"session": session, "before": before if before is not None else 1 << 60, "limit": limit},
    )
    return from_rows(rows[::-1], session)


def add_version(tx: Transaction, session: SessionId, version: TurnVersion) -> None:
    """Record a turn as a version of a question, unless it is known as one."""
    tx.run(
        """
        insert into versions (session, turn, first, seq) values (:session, :turn, :first, :seq)
        on conflict (session, turn) do nothing
        """,
        {"session": session, "turn": version.turn, "first": version.first, "seq": version.seq},
    )


def list_versions(tx: Transaction, session: SessionId) -> list[TurnVersion]:
    """Return the versions of all questions of a session that have several, oldest first."""
    rows = tx.rows(
        """
        select v.turn, v.first, v.seq,
          (select m.undone from messages m where m.session = v.session and m.seq = v.seq)
        from versions v
        where v.session = :session
        order by v.seq
        """,
        {"session": session},
    )
    return [
        TurnVersion(
            TurnId(turn), TurnId(first), seq, max(undone, 0) or _find_undo(tx, session, turn, seq, undone)
        )
        for turn, first, seq, undone in rows
        if undone is not None
    ]


def _find_undo(tx: Transaction, session: SessionId, turn: str, seq: int, undone: int) -> int:
    """Return the undo of a turn. The first question of it may have been removed by itself."""
    if undone == 0:
        return 0
    row = tx.row(
        "select max(undone) from messages where session = :session and seq >= :seq and turn = :turn",
        {"session": session, "seq": seq, "turn": turn},
    )
    return max(0, int(row[0])) if row else 0


def copy_versions(tx: Transaction, *, source: SessionId, target: SessionId) -> None:
    """Give a fork the versions of its parent that were copied."""
    tx.run(
        """
        insert into versions (session, turn, first, seq)
        select :target, v.turn, v.first, min(m.seq)
        from versions v join messages m on m.session = :target and m.turn = v.turn and m.role = 'user'
        where v.session = :source
        group by v.turn, v.first
        """,
        {"source": source, "target": target},
    )


def copy(tx: Transaction, *, source: SessionId, target: SessionId, through: int) -> int:
    """Copy the messages up to `through` into an empty session, without those of running or queued turns; return how
    many. They are numbered from one, without gaps."""
    copied = tx.count(
        f"""
        insert into messages
          (session, seq, role, parts, at, turn, epoch, author, surface, platform_id, mark, observed, undone, exact,
           said_by, plain)
        select :target, row_number() over (order by seq), role, parts, at, turn, epoch, author, surface, platform_id,
          mark, observed, undone, exact, said_by, plain
        from messages
        where session = :source and seq <= :through and {TURN_CLOSED}
        order by seq
        """,
        {"source": source, "target": target, "through": through},
    )
    if media.list_for_session(tx, source):
        for message in list_after(tx, target, after=0):
            media.copy_links(tx, source=source, target=target, parts=message.parts)
    return copied


def copy_turns(tx: Transaction, *, source: SessionId, target: SessionId, turns: Sequence[TurnId]) -> int:
    """Copy the messages of these turns that are not undone into an empty session; return how many. They are numbered from
    one, without gaps."""
    copied = tx.count(
        f"""
        insert into messages
          (session, seq, role, parts, at, turn, epoch, author, surface, platform_id, mark, observed, undone, exact,
           said_by, plain)
        select :target, row_number() over (order by seq), role, parts, at, turn, 0, author, surface, platform_id,
          mark, observed, undone, exact, said_by, plain
        from messages
        where session = :source and turn {tx.in_names} and undone = 0 and {TURN_CLOSED}
        order by seq
        """,
        {"source": source, "target": target, "names": json.dumps(list(turns))},
    )
    for message in list_after(tx, target, after=0):
        media.copy_links(tx, source=source, target=target, parts=message.parts)
    return copied


def from_row(row: Row) -> Message:
    return from_rows([row])[0]


def from_rows(rows: Sequence[Row], session: SessionId | None = None) -> list[Message]:
    """Decode the parts and the times of many rows in one go: several times faster than one by one. What is decoded
    at once stays small enough for the caches of the processor. The rows of one `session` need not name it."""
    return [
        m
        for n in range(0, len(rows), _DECODE_BATCH)
        for m in _decode_batch(rows[n : n + _DECODE_BATCH], session)
    ]


def _decode_batch(rows: Sequence[Row], known: SessionId | None) -> list[Message]:
    """Decode rows together, or one by one if they are long."""
    if len(rows) > 1 and sum(len(row[3]) for row in rows) > _DECODE_CHARS:
        half = len(rows) // 2
        return [*_decode_batch(rows[:half], known), *_decode_batch(rows[half:], known)]
    with_rare = [n for n, row in enumerate(rows) if row[8] is not None]
    rare, exact = list[_RareFields](), list[str | None]()
    try:
        parts = codec.loads(f"[{','.join([row[3] for row in rows])}]", list[Parts])
        if with_rare:
            rare = codec.loads(f"[{','.join([rows[n][8] for n in with_rare])}]", list[_RareFields])
            exact = codec.loads(f"[{','.join([rows[n][9] or 'null' for n in with_rare])}]", list[str | None])
    except Invalid as exc:
        raise Invalid(f"a message of session {known or rows[0][0]} is damaged: {exc}") from exc
    # In the order of the fields: a third faster than by name.
    found = [
        Message(known or session, seq, _ROLES[role], content, at, turn, epoch, "", surface)
        for (session, seq, role, _, at, turn, epoch, surface, *_), content in zip(rows, parts, strict=True)
    ]
    for n, more, said in zip(with_rare, rare, exact, strict=True):
        found[n] = msgspec.structs.replace(
            found[n],
            author=more.author,
            platform_id=more.platform_id,
            mark=more.mark,
            observed=more.observed != 0,
            undone=more.undone,
            exact=said,
        )
    return found


def _update(
    tx: Transaction,
    message: Message,
    assignment: str,
    params: dict[str, str | None],
    *,
    linked: Parts = (),
) -> None:
    tx.run(
        f"update messages set {assignment} where session = :session and seq = :seq",
        {**params, "session": message.session, "seq": message.seq},
    )
    row = tx.row("select profile, owner from sessions where id = :id", {"id": message.session})
    assert row is not None
    profile, owner = row
    media.link(tx, message.session, linked, profile=profile, owner=owner)
    scope = changes.Scope(profile, owner, message.session, message.turn)
    changes.note(tx, ChangeKind.MESSAGE, message.id, scope, n=message.seq, note="edited")
