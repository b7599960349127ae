"""Indexing: what an index of the messages must be told next, and the seam between search and the indexes."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from keryx.core import wire
from keryx.core.changes import Change, Kind
from keryx.core.errors import CursorExpired, Invalid, NotFound
from keryx.core.ids import Cursor, SessionId
from keryx.core.messages import Message
from keryx.core.query import Expr
from keryx.core.sessions import Session
from keryx.store import changes, cursors, entries, feed, messages, sessions
from keryx.store.database import AMONG_IDS, Engine, Params, Transaction
from keryx.store.entries import Entry

FORMAT = 1
BATCH = 500
BATCH_BYTES = 4_000_000
# After these, a session is taken in anew: every entry names its owner, and the feed does not name what an import brings.
# Nor does it name what a fork was made with.
_WHOLE = frozenset({sessions.GIVEN, sessions.IMPORTED})


class Damaged(Exception):
    """The index cannot be used as it is. It never leaves the store: the index is mended and filled again."""


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far an index has come. While it is filled, `filled` and `titled` say what it has, up to `until`;
    after that it takes what the feed has after `cursor`. `witness` is what the feed had at the cursor. `anew` are
    sessions whose messages are taken in part by part, each from its first; `upto` is how far the first of them has come."""

    format: int
    cursor: Cursor
    witness: str = ""
    filled: int | None = None
    until: int = 0
    titled: SessionId | None = None
    anew: tuple[SessionId, ...] = ()
    upto: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One step of an index from the state `seen` to `state`, to be made in one transaction or not at all.

    Entries replace those of the same message or the same session's title. `complete`: the index is filled."""

    seen: str | None
    state: str
    reset: bool = False
    entries: list[Entry] = field(default_factory=list[Entry])
    titles: list[Entry] = field(default_factory=list[Entry])
    gone: list[SessionId] = field(default_factory=list[SessionId])
    progress: tuple[int, int] | None = None
    complete: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """What entries must have: of each list of tags at least one, and words that fit the expression."""

    tags: list[list[str]]
    expr: Expr | None


@dataclass(frozen=True, slots=True)
class Page:
    """Messages that fit, by the number of their rows, each with its relevance from 0 to 1. Those that are
    left lie below `below`; with `None` there are no more."""

    found: dict[int, float]
    below: int | None


class Backend(Protocol):
    """An index: it keeps entries and a state, and knows nothing of who may see what. The store is the truth."""

    def state(self, tx: Transaction) -> str | None:
        """The state of the last batch, `None` if there is none."""
        ...

    async def put(self, batch: Batch) -> bool:
        """Make a step. `False` if the state is another one by now, and nothing was changed."""
        ...

    def messages(self, tx: Transaction, ask: Ask, *, below: int, limit: int) -> Page:
        """About `limit` of the messages that fit, newest first."""
        ...

    def titles(self, tx: Transaction, ask: Ask, *, limit: int) -> dict[SessionId, float]:
        """The newest titles that fit."""
        ...

    def numbers(self, tx: Transaction, *, above: int, upto: int) -> list[int]:
        """The numbers of the messages that have entries, within bounds."""
        ...

    def check(self) -> None:
        """Raise `Damaged` if the index does not hang together."""
        ...

    def mend(self) -> None:
        """Empty a damaged index."""
        ...

    def close(self) -> None: ...


def step(tx: Transaction, seen: str | None) -> Batch | None:
    """What comes next for an index in the state `seen`, or `None` if it has everything."""
    state = _standing(tx, seen)
    if state is None:
        return restart(tx, seen)
    if state.filled is not None:
        return _fill(tx, seen, state, state.filled)
    if state.titled is not None:
        return _fill_titles(tx, seen, state, state.titled)
    if state.anew:
        return _take_parts(tx, seen, state)
    try:
        changed = feed.after(tx, state.cursor, limit=BATCH)
    except (CursorExpired, Invalid):
        return restart(tx, seen)
    return _take(tx, seen, changed) if changed else None


def current(tx: Transaction, seen: str | None) -> bool:
    """Whether an index in the state `seen` has everything, and nothing waits for a transaction to end."""
    state = _standing(tx, seen)
    if state is None or state.filled is not None or state.titled is not None or state.anew:
        return False
    try:
        return not feed.after(tx, state.cursor, limit=1) and not feed.held_back(tx)
    except (CursorExpired, Invalid):
        return False


def restart(tx: Transaction, seen: str | None) -> Batch:
    """Empty the index and fill it from the messages that there are. What comes meanwhile is in the feed."""
    cursor = changes.head(tx)
    row = tx.row("select max(id) from messages")
    until = row[0] if row and row[0] else 0
    witness = _witness(tx, cursor, "")
    state = State(format=FORMAT, cursor=cursor, witness=witness, filled=0, until=until, titled=SessionId(""))
    return Batch(seen=seen, state=wire.dumps(state), reset=True)


def _standing(tx: Transaction, seen: str | None) -> State | None:
    """The state of an index that this store has made; `None` if it has to begin anew."""
    state = _decoded(seen)
    known = state is not None and state.witness == _witness(tx, state.cursor, state.witness)
    return state if known else None


def _decoded(seen: str | None) -> State | None:
    try:
        state = None if seen is None else wire.loads(seen, State)
    except Invalid:
        return None
    return state if state and state.format == FORMAT else None


def _witness(tx: Transaction, cursor: Cursor, expected: str) -> str:
    """What the feed has at a cursor. An index file may outlive its store, or a store may be brought back from
    a backup: then the feed has something else there, or nothing. A trimmed entry is as good as expected."""
    if tx.engine is Engine.POSTGRES or not cursor.isdigit():
        return ""
    row = tx.row(
        "select at, kind, subject from changes where position = :position", {"position": int(cursor)}
    )
    if row is None and cursors.get(tx, changes.TRIMMED) == cursor:
        return expected
    return "" if row is None else f"{row[0]} {row[1]} {row[2]}"


class _Part(NamedTuple):
    """The next messages: what an index must know of them, the number of the last, their size, and whether none follow."""

    entries: list[Entry]
    last: int | None
    size: int
    ended: bool


def _fill(tx: Transaction, seen: str | None, state: State, filled: int) -> Batch:
    part = _next(tx, "id", "m.id > :filled and m.id <= :until", {"filled": filled, "until": state.until})
    return Batch(
        seen=seen,
        state=wire.dumps(msgspec.structs.replace(state, filled=part.last)),
        entries=part.entries,
        progress=(state.until if part.last is None else part.last, state.until),
    )


def _take_parts(tx: Transaction, seen: str | None, state: State) -> Batch:
    """The next messages of the sessions that are taken in anew: of several, if those are short."""
    anew, upto = state.anew, state.upto
    found: list[Entry] = []
    size = 0
    while anew and len(found) < BATCH and size < BATCH_BYTES:
        where = "m.session = :session and m.seq > :upto"
        part = _next(tx, "seq", where, {"session": anew[0], "upto": upto})
        found += part.entries
        size += part.size
        anew, upto = (anew[1:], 0) if part.ended else (anew, part.last or 0)
    following = msgspec.structs.replace(state, anew=anew, upto=upto)
    return Batch(seen=seen, state=wire.dumps(following), entries=found)


def _next(tx: Transaction, number: str, where: str, params: Params) -> _Part:
    """Messages in the order of a column: as many as a batch may have, or one if that is too large already."""
    sizes = tx.rows(
        f"select m.{number}, octet_length(m.parts) from messages m where {where} order by m.{number} limit :limit",
        {**params, "limit": BATCH},
    )
    last, size = None, 0
    for position, length in sizes:
        if last is not None and size + length > BATCH_BYTES:
            break
        last = position
        size += length
    rows = tx.rows(
        f"""
        select m.id, {messages.columns("m")} from messages m
        where {where} and m.{number} <= :last
        order by m.{number}
        """,
        {**params, "last": last or 0},
    )
    known = _Sessions(tx)
    said = messages.from_rows([row[1:] for row in rows])
    found = [known.entry(row[0], message) for row, message in zip(rows, said, strict=True)]
    ended = len(rows) == len(sizes) < BATCH
    return _Part([entry for entry in found if entry], last, size, ended)


def _fill_titles(tx: Transaction, seen: str | None, state: State, titled: SessionId) -> Batch:
    rows = tx.rows(
        "select id from sessions where id > :titled and title <> '' order by id limit :limit",
        {"titled": titled, "limit": BATCH},
    )
    following = msgspec.structs.replace(state, titled=rows[-1][0] if rows else None)
    titles = [entries.of_title(session) for session in sessions.among(tx, [row[0] for row in rows])]
    return Batch(seen=seen, state=wire.dumps(following), titles=titles, complete=not rows)


def _take(tx: Transaction, seen: str | None, changed: list[Change]) -> Batch:
    """What the feed tells, looked up as it is now: an entry may be behind the row that it names."""
    cursor = changed[-1].cursor
    known = _Sessions(tx)
    found = {(c.message.session, c.message.seq): c.message for c in changed if c.message}
    touched = {c.session: None for c in changed if c.session and c.kind in {Kind.SESSION, Kind.SESSION_GONE}}
    whole = {c.session: None for c in changed if c.session and c.kind is Kind.SESSION and c.note in _WHOLE}
    forks = {c.session: None for c in changed if c.session and c.kind is Kind.SESSION and c.note == "created"}
    anew = tuple(id_ for id_ in whole | forks if (s := known.get(id_)) and (id_ in whole or s.parent_seq))
    state = State(format=FORMAT, cursor=cursor, witness=_witness(tx, cursor, ""), anew=anew)
    made = [known.entry(id_, message) for id_, message in _numbered(tx, found.values())]
    return Batch(
        seen=seen,
        state=wire.dumps(state),
        entries=[entry for entry in made if entry],
        titles=[entries.of_title(s) for s in map(known.get, touched) if s],
        gone=[id_ for id_ in touched if id_ in whole or known.get(id_) is None],
    )


def _numbered(tx: Transaction, found: Iterable[Message]) -> list[tuple[int, Message]]:
    """The messages with the numbers of their rows."""
    by_session: dict[SessionId, dict[int, Message]] = {}
    for message in found:
        by_session.setdefault(message.session, {})[message.seq] = message
    numbered: list[tuple[int, Message]] = []
    for session, by_seq in by_session.items():
        rows = tx.rows(
            f"select id, seq from messages where session = :session and seq {AMONG_IDS[tx.engine]}",
            {"session": session, "ids": json.dumps(list(by_seq))},
        )
        numbered += [(id_, by_seq[seq]) for id_, seq in rows]
    return sorted(numbered, key=lambda pair: pair[0])


class _Sessions:
    """Sessions of one batch, each read once. Deleted ones are there until they are erased."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._known: dict[SessionId, Session | None] = {}

    def get(self, id: SessionId | None) -> Session | None:
        if id is not None and id not in self._known:
            try:
                self._known[id] = sessions.get(self._tx, id, deleted=True)
            except NotFound:
                self._known[id] = None
        return None if id is None else self._known[id]

    def entry(self, id: int, message: Message) -> Entry | None:
        session = self.get(message.session)
        return None if session is None else entries.of_message(id, message, session)
