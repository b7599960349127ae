"""Imports: which session a conversation of another program became, which of its records are there, the writes of a batch, which
sessions are watched in their program, and what a migration has added besides."""

import base64
import hashlib
import struct
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from keryx.core import codec, ids
from keryx.core import source as sources
from keryx.core.clock import from_micros, to_micros
from keryx.core.ids import PrincipalId, ProfileId, SessionId, TurnId
from keryx.core.messages import Role
from keryx.core.sessions import ProgramState, WatchedSession
from keryx.core.source import Source
from keryx.core.usage import Tokens
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper

_RECORD = struct.Struct("<QI")


class ImportKey(msgspec.Struct, frozen=True):
    """A conversation of another program, as one person imports it."""

    profile: ProfileId
    owner: PrincipalId
    program: str
    # The program's id of the conversation.
    source: str

    @property
    def params(self) -> dict[str, str]:
        return {
            "profile": self.profile,
            "owner": self.owner,
            "program": self.program,
            "source": ids.escape(self.source),
        }


class ImportTotal(Tokens, frozen=True, kw_only=True, omit_defaults=True):
    """The usage of a conversation with one model that was added so far."""

    # In millionths of the currency.
    cost: int = 0


class Import(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId
    # Of the conversation when all of it was imported, empty before.
    fingerprint: str
    # By model and task.
    totals: dict[str, ImportTotal]
    deleted: bool


class OwnTurn(msgspec.Struct, frozen=True):
    """A turn of an imported session that ran here."""

    id: TurnId
    input_seq: int
    created_at: datetime
    finished_at: datetime | None


class CallUsage(Tokens, frozen=True, kw_only=True):
    """The usage of one call of a model, as it is added to a session."""

    turn: TurnId
    at: datetime
    model: str
    task: str
    cost: int | None
    estimated: bool


def hash_record(id_: str) -> int:
    """Return the number that stands for a record of a conversation."""
    return int.from_bytes(hashlib.blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def find(tx: Transaction, key: ImportKey) -> Import | None:
    row = tx.row(
        """
        select i.session, i.fingerprint, i.totals, s.deleted_at
        from imports i join sessions s on s.id = i.session
        where i.profile = :profile and i.owner = :owner and i.program = :program and i.source = :source
        """,
        key.params,
    )
    if row is None:
        return None
    return Import(
        session=SessionId(row[0]),
        fingerprint=row[1],
        totals=codec.loads(row[2], dict[str, ImportTotal]),
        deleted=row[3] is not None,
    )


def change_owner(tx: Transaction, session: SessionId, *, old: PrincipalId, new: PrincipalId) -> None:
    """Let a person import what is new of a session that another one has imported. If both have imported it, each part stays as it is."""
    tx.run(
        """
        update imports set owner = :new
        where session = :id and owner = :old and not exists (
          select 1 from imports o
          where o.profile = imports.profile and o.owner = :new and o.program = imports.program
            and o.source = imports.source)
        """,
        {"id": session, "old": old, "new": new},
    )


def add(tx: Transaction, key: ImportKey, session: SessionId) -> None:
    tx.run(
        """
        insert into imports (session, profile, owner, program, source)
        values (:session, :profile, :owner, :program, :source)
        """,
        {**key.params, "session": session},
    )


def finish(
    tx: Transaction, session: SessionId, *, fingerprint: str, totals: Mapping[str, ImportTotal]
) -> None:
    """Note that all of a conversation is there."""
    tx.run(
        "update imports set fingerprint = :fingerprint, totals = :totals where session = :session",
        {"session": session, "fingerprint": fingerprint, "totals": codec.dumps(totals)},
    )


def load_records(tx: Transaction, session: SessionId) -> dict[int, int]:
    """Return the records that are there: the number of the message by the hash of the record, 0 for one without a message."""
    rows = tx.rows(
        "select records from import_records where session = :session order by n", {"session": session}
    )
    return {record: seq for (batch,) in rows for record, seq in _RECORD.iter_unpack(base64.b64decode(batch))}


def list_messages(tx: Transaction, session: SessionId) -> list[tuple[int, Role, int, TurnId | None]]:
    """Return the numbers of the messages of a session, each with its role, its time in microseconds, and its turn."""
    rows = tx.rows(
        "select seq, role, at, turn from messages where session = :session order by seq", {"session": session}
    )
    return [(seq, Role(role), at, turn and TurnId(turn)) for seq, role, at, turn in rows]


def count_record_batches(tx: Transaction, session: SessionId) -> int:
    """Return the number of batches of records that are there."""
    row = tx.row(
        "select coalesce(max(n), 0) from import_records where session = :session", {"session": session}
    )
    assert row is not None
    return int(row[0])


def add_records(tx: Transaction, session: SessionId, records: Mapping[int, int]) -> None:
    """Note the records of a batch, which are not there yet."""
    packed = b"".join(_RECORD.pack(record, seq) for record, seq in records.items())
    tx.run(
        """
        insert into import_records (session, n, records)
        values (
          :session, (select coalesce(max(n), 0) + 1 from import_records where session = :session), :records
        )
        """,
        {"session": session, "records": base64.b64encode(packed).decode()},
    )


def set_state(
    tx: Transaction, session: SessionId, *, created_at: datetime, pinned: bool, archived: bool
) -> None:
    """Set what a new session has from its conversation."""
    tx.run(
        """
        update sessions
        set pinned = :pinned, archived = :archived, created_at = :created_at, active_at = :created_at
        where id = :id
        """,
        {
            "id": session,
            "pinned": int(pinned),
            "archived": int(archived),
            "created_at": to_micros(created_at),
        },
    )


def count_batch(
    tx: Transaction,
    session: SessionId,
    *,
    last_seq: int,
    messages: int,
    turns: int,
    undo: int,
    active_at: datetime,
) -> None:
    """Add a batch to the counters of its session."""
    tx.run(
        """
        update sessions
        set last_seq = :last_seq, messages = messages + :messages, turns = turns + :turns, undo = :undo,
            active_at = case when active_at < :active_at then :active_at else active_at end
        where id = :id
        """,
        {
            "id": session,
            "last_seq": last_seq,
            "messages": messages,
            "turns": turns,
            "undo": undo,
            "active_at": to_micros(active_at),
        },
    )


def get_position(tx: Transaction, session: SessionId) -> tuple[int, int, int]:
    """Return the last message, the epoch and the last undo group of a session that the caller has locked."""
    row = tx.row("select last_seq, epoch, undo from sessions where id = :id", {"id": session})
    assert row is not None
    return int(row[0]), int(row[1]), int(row[2])


def begin_epoch(
    tx: Transaction, session: SessionId, *, number: int, first_seq: int, summary: str, at: datetime
) -> None:
    tx.run(
        """
        insert into epochs (session, number, first_seq, summary, created_at)
        values (:session, :number, :first_seq, :summary, :at)
        """,
        {
            "session": session,
            "number": number,
            "first_seq": first_seq,
            "summary": codec.dumps(summary),
            "at": to_micros(at),
        },
    )
    tx.run("update sessions set epoch = :number where id = :id", {"id": session, "number": number})


def get_epoch_start(tx: Transaction, session: SessionId) -> int:
    """Return the first message of the current epoch."""
    row = tx.row(
        "select coalesce(max(first_seq), 1) from epochs where session = :session", {"session": session}
    )
    assert row is not None
    return int(row[0])


def undo(tx: Transaction, session: SessionId, seqs: Sequence[int], *, group: int) -> int:
    """Make messages inactive as an undo group; return how many were active."""
    return tx.count(
        f"""
        update messages set undone = :group, plain = 0
        where session = :session and undone = 0 and seq {tx.in_ids}
        """,
        {"session": session, "group": group, "ids": codec.dumps(list(seqs))},
    )


def add_usage(
    tx: Transaction, session: SessionId, key: ImportKey, surface: str, calls: Sequence[CallUsage]
) -> None:
    """Record calls of models, and add them to the session. They count against no budget: nobody asked for them here."""
    for call in calls:
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
                **msgspec.structs.asdict(call),
                "session": session,
                "profile": key.profile,
                "owner": key.owner,
                "surface": surface,
                "estimated": int(call.estimated),
                "at": to_micros(call.at),
            },
        )
    priced = [call for call in calls if call.cost is not None]
    tx.run(
        """
        update sessions
        set tokens_input = tokens_input + :input, tokens_output = tokens_output + :output,
            tokens_reasoning = tokens_reasoning + :reasoning, tokens_cache_read = tokens_cache_read + :cache_read,
            tokens_cache_write = tokens_cache_write + :cache_write,
            cost = case when :priced = 0 then cost else coalesce(cost, 0) + :cost end,
            cost_status = case
              when :priced = 0 then cost_status
              when :estimated = 1 or cost_status = 'estimated' then 'estimated'
              else 'actual' end
        where id = :id
        """,
        {
            "id": session,
            "input": sum(call.input for call in calls),
            "output": sum(call.output for call in calls),
            "reasoning": sum(call.reasoning for call in calls),
            "cache_read": sum(call.cache_read for call in calls),
            "cache_write": sum(call.cache_write for call in calls),
            "priced": len(priced),
            "cost": sum(call.cost or 0 for call in priced),
            "estimated": int(any(call.estimated for call in priced)),
        },
    )


class MigrationItem(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration has added or changed once, and what is needed to take it back."""

    kind: str
    key: str
    # The person whom it is about, or the operator.
    owner: PrincipalId
    data: dict[str, Any]


_ITEM_ROWS = RowMapper(MigrationItem)
_SELECT_ITEM = f"select {_ITEM_ROWS.columns} from migration_items"


def add_item(tx: Transaction, profile: ProfileId, program: str, item: MigrationItem) -> None:
    """Note an item, or change one that is noted."""
    tx.run(
        """
        insert into migration_items (profile, program, kind, key, owner, data, at)
        values (:profile, :program, :kind, :key, :owner, :data, :now)
        on conflict (profile, program, kind, key) do update set owner = excluded.owner, data = excluded.data
        """,
        {"profile": profile, "program": program, **_ITEM_ROWS.encode(item), "now": to_micros(tx.now)},
    )


def find_item(
    tx: Transaction, profile: ProfileId, program: str, *, kind: str, key: str
) -> MigrationItem | None:
    row = tx.row(
        f"""
        {_SELECT_ITEM}
        where profile = :profile and program = :program and kind = :kind and key = :key
        """,
        {"profile": profile, "program": program, "kind": kind, "key": key},
    )
    return _ITEM_ROWS.decode_optional(row)


def list_items(tx: Transaction, profile: ProfileId, program: str, kind: str) -> list[MigrationItem]:
    rows = tx.rows(
        f"{_SELECT_ITEM} where profile = :profile and program = :program and kind = :kind order by key",
        {"profile": profile, "program": program, "kind": kind},
    )
    return _ITEM_ROWS.decode_all(rows)


def list_items_for_owner(tx: Transaction, profile: ProfileId, owner: PrincipalId) -> list[MigrationItem]:
    """Return what migrations have added for a person."""
    rows = tx.rows(
        f"{_SELECT_ITEM} where profile = :profile and owner = :owner order by program, kind, key",
        {"profile": profile, "owner": owner},
    )
    return _ITEM_ROWS.decode_all(rows)


def remove_item(tx: Transaction, profile: ProfileId, program: str, *, kind: str, key: str) -> None:
    tx.run(
        """
        delete from migration_items
        where profile = :profile and program = :program and kind = :kind and key = :key
        """,
        {"profile": profile, "program": program, "kind": kind, "key": key},
    )


def note_earlier(tx: Transaction, profile: ProfileId, program: str, *, kind: str) -> None:
    """Note every session that was imported from a program before its migration."""
    tx.run(
        """
        insert into migration_items (profile, program, kind, key, owner, data, at)
        select i.profile, i.program, :kind, i.session, i.owner, '{}', :now
        from imports i where i.profile = :profile and i.program = :program
        """,
        {"profile": profile, "program": program, "kind": kind, "now": to_micros(tx.now)},
    )


def find_session(tx: Transaction, profile: ProfileId, program: str, id_: str) -> SessionId | None:
    """Return the session that has an id of the program, as the first of its conversation or a later one."""
    row = tx.row(
        """
        select i.session from aliases a
        join imports i on i.session = a.session
        join sessions s on s.id = i.session
        where a.profile = :profile and a.alias = :alias and i.program = :program and s.deleted_at is null
        """,
        {"profile": profile, "program": program, "alias": id_},
    )
    return None if row is None else SessionId(row[0])


def list_sessions(
    tx: Transaction, profile: ProfileId, program: str, *, after: str = "", limit: int
) -> list[SessionId]:
    """Return sessions that were imported from a program, in order of their ids."""
    rows = tx.rows(
        """
        select session from imports
        where profile = :profile and program = :program and session > :after
        order by session limit :limit
        """,
        {"profile": profile, "program": program, "after": after, "limit": limit},
    )
    return [SessionId(row[0]) for row in rows]


def set_origin(tx: Transaction, session: SessionId, origin: Source) -> None:
    tx.run(
        "update sessions set origin = :origin where id = :id",
        {"id": session, "origin": sources.encode(origin)},
    )


def list_own_turns(tx: Transaction, session: SessionId, *, surface: str, since: datetime) -> list[OwnTurn]:
    """Return the turns of an imported session that ran here, and not in its program, and that had not ended at a time."""
    rows = tx.rows(
        """
        select id, input_seq, created_at, finished_at
        from turns
        where session = :session and surface <> :surface and (finished_at is null or finished_at >= :since)
        order by position
        """,
        {"session": session, "surface": surface, "since": to_micros(since)},
    )
    return [
        OwnTurn(
            TurnId(row[0]), int(row[1]), from_micros(row[2]), None if row[3] is None else from_micros(row[3])
        )
        for row in rows
    ]


def get_last_seq(tx: Transaction, session: SessionId, *, surface: str) -> int:
    """Return the number of the last message that the program wrote."""
    row = tx.row(
        """
        select seq from messages
        where session = :session and surface = :surface
        order by seq desc
        limit 1
        """,
        {"session": session, "surface": surface},
    )
    return int(row[0]) if row else 0


def watch(
    tx: Transaction,
    session: SessionId,
    *,
    machine: str,
    pushed: bool,
    file: str,
    stamp: str | None,
    wrote_at: datetime | None,
) -> None:
    """Note that a session is watched, with a stamp that all of its file was imported, and with `wrote_at` that the program
    wrote."""
    tx.run(
        """
        insert into watched_sessions (session, machine, pushed, file, stamp, wrote_at, seen_at)
        values (:session, :machine, :pushed, :file, :stamp, :wrote_at, :now)
        on conflict (session) do update
        set machine = excluded.machine, pushed = excluded.pushed, file = excluded.file,
            stamp = case when :stamped = 1 then excluded.stamp else watched_sessions.stamp end,
            wrote_at = case when :wrote = 1 then excluded.wrote_at else watched_sessions.wrote_at end
        """,
        {
            "session": session,
            "machine": ids.escape(machine),
            "pushed": int(pushed),
            "file": ids.escape(file),
            "stamp": stamp or "",
            "stamped": int(stamp is not None),
            "wrote_at": to_micros(wrote_at or tx.now),
            "wrote": int(wrote_at is not None),
            "now": to_micros(tx.now),
        },
    )


def is_watched(
    tx: Transaction, session: SessionId, *, machine: str, pushed: bool, file: str, stamp: str | None
) -> bool:
    """Whether a session is known to be watched in this file, and the file has not changed."""
    row = tx.row(
        "select machine, pushed, file, stamp from watched_sessions where session = :session",
        {"session": session},
    )
    if row is None or tuple(row[:3]) != (ids.escape(machine), int(pushed), ids.escape(file)):
        return False
    return stamp is None or row[3] == stamp


def list_watched_files(
    tx: Transaction, *, profile: ProfileId, owner: PrincipalId, program: str, machine: str
) -> dict[str, str]:
    """Return the files of a program that were imported, escaped, each with its stamp."""
    rows = tx.rows(
        """
        select w.file, w.stamp
        from imports i join watched_sessions w on w.session = i.session
        where i.profile = :profile and i.owner = :owner and i.program = :program and w.machine = :machine
        """,
        {"profile": profile, "owner": owner, "program": program, "machine": ids.escape(machine)},
    )
    return {row[0]: row[1] for row in rows}


def find_watched(tx: Transaction, session: SessionId) -> WatchedSession | None:
    row = tx.row(
        """
        select i.program, i.source, w.machine, w.pushed, w.state, w.wrote_at, w.seen_at, w.taken_at
        from watched_sessions w join imports i on i.session = w.session
        where w.session = :session
        """,
        {"session": session},
    )
    if row is None:
        return None
    return WatchedSession(
        session=session,
        program=row[0],
        source=ids.unescape(row[1]),
        machine=ids.unescape(row[2]),
        pushed=bool(row[3]),
        state=ProgramState(row[4]),
        wrote_at=from_micros(row[5]),
        seen_at=from_micros(row[6]),
        taken_at=None if row[7] is None else from_micros(row[7]),
    )


def set_program_state(tx: Transaction, session: SessionId, state: ProgramState) -> None:
    """Note what the program does with a session now."""
    tx.run(
        "update watched_sessions set state = :state, seen_at = :now where session = :session",
        {"session": session, "state": state.value, "now": to_micros(tx.now)},
    )


def set_taken(tx: Transaction, session: SessionId) -> None:
    """Note that a person took a session over."""
    tx.run(
        "update watched_sessions set taken_at = :now where session = :session",
        {"session": session, "now": to_micros(tx.now)},
    )
