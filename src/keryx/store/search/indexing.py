"""The protocol of search backends, the next batch of documents that a backend must index, and the comparison of an index with the messages."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from keryx.core import codec
from keryx.core.changes import Change, ChangeKind
from keryx.core.errors import CursorExpired, Invalid, NotFound
from keryx.core.ids import Cursor, SessionId, is_temporary
from keryx.core.messages import Message
from keryx.core.search import And, Expr, Not, Or, WordSequence
from keryx.core.sessions import Session
from keryx.store import change_feed, changes, inbox, messages, sessions
from keryx.store.db import Engine, Params, Transaction
from keryx.store.search import documents
from keryx.store.search.documents import IndexDocument

INDEX_FORMAT = 1
BATCH_SIZE = 500
BATCH_BYTES = 4_000_000
# After these, a session is indexed again: every entry names its owner, and the feed does not list imported messages.
# Nor does it list the messages that a fork begins with.
_REINDEX_NOTES = frozenset({sessions.OWNER_CHANGED, sessions.MESSAGES_IMPORTED})
_CHECK_PAGE_SIZE = 5_000
_SAMPLE_SIZE = 200
_PHRASE_LENGTH = 8
_MAX_ID = 1 << 62
_MISSING = "messages that it lacks"


class IndexDamaged(Exception):
    """The index is damaged. Handled within the store, which rebuilds the index."""


class IndexState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The progress of an index. It is filled with all messages, then all titles, then follows the change feed."""

    format: int
    # Where to go on in the feed, and the entry that the feed had there.
    cursor: Cursor
    witness: str = ""
    # The last message row that was indexed while it is filled, and the row to stop at.
    filled: int | None = None
    until: int = 0
    # The last session whose title was indexed while it is filled.
    titled: SessionId | None = None
    # Sessions to index again from their first message, and how far the first of them has come.
    anew: tuple[SessionId, ...] = ()
    upto: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBatch:
    """One step of an index, applied in one transaction or not at all."""

    # Applied only if the index is in this state.
    previous_state: str | None
    state: str
    # Empty the index first.
    reset: bool = False
    # Each replaces the entry of the same message, or of the same session's title.
    documents: list[IndexDocument] = field(default_factory=list[IndexDocument])
    titles: list[IndexDocument] = field(default_factory=list[IndexDocument])
    removed_sessions: list[SessionId] = field(default_factory=list[SessionId])
    # Messages indexed so far and in total, while the index is filled.
    progress: tuple[int, int] | None = None
    # The index is filled.
    complete: bool = False


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """Matches entries that have at least one tag of each list, and words that match the expression."""

    tags: list[list[str]]
    expr: Expr | None


def list_terms(expr: Expr | None, *, negated: bool = False) -> Iterator[Expr]:
    """Yield the words, phrases and prefixes of an expression; with `negated`, those that must not occur too."""
    match expr:
        case And(items) | Or(items):
            for item in items:
                yield from list_terms(item, negated=negated)
        case Not(item):
            if negated:
                yield from list_terms(item, negated=negated)
        case None:
            pass
        case _:
            yield expr


@dataclass(frozen=True, slots=True)
class IndexPage:
    # The relevance of each matching message, from 0 to 1, by the id of its row.
    found: dict[int, float]
    # The remaining matches have smaller row ids than this; None if there are none.
    below: int | None


class SearchBackend(Protocol):
    """An index of entries with a state. It does not know who may see what: the caller checks that with the store."""

    def read_state(self, tx: Transaction) -> str | None:
        """Return the state of the last batch, or `None` before the first."""
        ...

    async def apply(self, batch: IndexBatch) -> bool:
        """Apply a batch. Return False, without a change, if the index has another state by now."""
        ...

    def find_messages(self, tx: Transaction, ask: IndexQuery, *, below: int, limit: int) -> IndexPage:
        """Return about `limit` matching messages, newest first."""
        ...

    def find_titles(self, tx: Transaction, ask: IndexQuery, *, limit: int) -> dict[SessionId, float]:
        """Return the newest matching titles."""
        ...

    def list_message_ids(self, tx: Transaction, *, above: int, upto: int) -> list[int]:
        """Return the row ids of the messages that have entries, within bounds."""
        ...

    def check(self) -> None:
        """Raise `IndexDamaged` if the index is inconsistent."""
        ...

    def reset(self) -> None:
        """Empty a damaged index."""
        ...

    def close(self) -> None: ...


def next_batch(tx: Transaction, seen: str | None) -> IndexBatch | None:
    """Return the next batch for an index in the state `seen`, or `None` if it is up to date."""
    state = _load_state(tx, seen)
    if state is None:
        return begin_rebuild(tx, seen)
    if state.filled is not None:
        part = _read_slice(
            tx, "id", "m.id > :filled and m.id <= :until", {"filled": state.filled, "until": state.until}
        )
        return IndexBatch(
            previous_state=seen,
            state=codec.dumps(msgspec.structs.replace(state, filled=part.last)),
            documents=part.documents,
            progress=(state.until if part.last is None else part.last, state.until),
        )
    if state.titled is not None:
        rows = tx.rows(
            "select id from sessions where id > :titled and title <> '' order by id limit :limit",
            {"titled": state.titled, "limit": BATCH_SIZE},
        )
        following = msgspec.structs.replace(state, titled=rows[-1][0] if rows else None)
        titles = [
            documents.build_for_title(session)
            for session in sessions.get_many(tx, [row[0] for row in rows])
            if not is_temporary(session.id)
        ]
        return IndexBatch(previous_state=seen, state=codec.dumps(following), titles=titles, complete=not rows)
    if state.anew:
        # The next messages of the sessions to index again: of several, if those are short.
        anew, upto = state.anew, state.upto
        found: list[IndexDocument] = []
        size = 0
        while anew and len(found) < BATCH_SIZE and size < BATCH_BYTES:
            where = "m.session = :session and m.seq > :upto"
            part = _read_slice(tx, "seq", where, {"session": anew[0], "upto": upto})
            found += part.documents
            size += part.size
            anew, upto = (anew[1:], 0) if part.ended else (anew, part.last or 0)
        following = msgspec.structs.replace(state, anew=anew, upto=upto)
        return IndexBatch(previous_state=seen, state=codec.dumps(following), documents=found)
    try:
        changed = change_feed.list_after(tx, state.cursor, limit=BATCH_SIZE)
    except (CursorExpired, Invalid):
        return begin_rebuild(tx, seen)
    return _apply_changes(tx, seen, changed) if changed else None


def is_current(tx: Transaction, seen: str | None) -> bool:
    """Return whether an index in the state `seen` is up to date, and no entry of the feed is held back."""
    state = _load_state(tx, seen)
    if state is None or state.filled is not None or state.titled is not None or state.anew:
        return False
    try:
        page = change_feed.read_page(tx, state.cursor, limit=1)
    except (CursorExpired, Invalid):
        return False
    return not page.changes and not page.held_back


def count_pending(tx: Transaction, seen: str | None, *, most: int) -> int | None:
    """Return how many changes an index in the state `seen` lacks, at most `most`; `None` if it must be filled first."""
    state = _load_state(tx, seen)
    if state is None or state.filled is not None or state.titled is not None:
        return None
    try:
        return len(change_feed.list_after(tx, state.cursor, limit=most))
    except (CursorExpired, Invalid):
        return None


def begin_rebuild(tx: Transaction, seen: str | None) -> IndexBatch:
    """Return the batch that empties the index, to fill it from the stored messages. Later ones are in the feed."""
    cursor = changes.get_head(tx)
    row = tx.row("select max(id) from messages")
    until = row[0] if row and row[0] else 0
    witness = _read_witness(tx, cursor, "")
    state = IndexState(
        format=INDEX_FORMAT, cursor=cursor, witness=witness, filled=0, until=until, titled=SessionId("")
    )
    return IndexBatch(previous_state=seen, state=codec.dumps(state), reset=True)


def _load_state(tx: Transaction, seen: str | None) -> IndexState | None:
    """Return the state of an index that was built from this store, or `None` if it must be rebuilt."""
    try:
        state = None if seen is None else codec.loads(seen, IndexState)
    except Invalid:
        return None
    if state is None or state.format != INDEX_FORMAT:
        return None
    return state if state.witness == _read_witness(tx, state.cursor, state.witness) else None


def _read_witness(tx: Transaction, cursor: Cursor, expected: str) -> str:
    """Return the entry of the feed at a cursor, as text. An index file may outlive its store, or a store may be
    restored from a backup: then the entry differs or is missing. For a trimmed entry return `expected`."""
    if tx.engine is Engine.POSTGRES or not cursor.isdigit():
        return ""
    row = tx.row(
        "select at, kind, subject from changes where position = :position", {"position": int(cursor)}
    )
    if row is None and inbox.get_cursor(tx, changes.TRIM_CURSOR) == cursor:
        return expected
    return "" if row is None else f"{row[0]} {row[1]} {row[2]}"


class _MessageSlice(NamedTuple):
    """The next messages as documents, with the number of the last, their size, and whether none follow."""

    documents: list[IndexDocument]
    last: int | None
    size: int
    ended: bool


def _read_slice(tx: Transaction, number: str, where: str, params: Params) -> _MessageSlice:
    """Read messages in the order of a column: as many as a batch may have, but at least one."""
    sizes = tx.rows(
        f"select m.{number}, octet_length(m.parts) from messages m where {where} order by m.{number} limit :limit",
        {**params, "limit": BATCH_SIZE},
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
    known = _SessionCache(tx)
    said = messages.from_rows([row[1:] for row in rows])
    found = [known.build_document(row[0], message) for row, message in zip(rows, said, strict=True)]
    ended = len(rows) == len(sizes) < BATCH_SIZE
    return _MessageSlice([entry for entry in found if entry], last, size, ended)


def _apply_changes(tx: Transaction, seen: str | None, changed: list[Change]) -> IndexBatch:
    """Return the batch for entries of the feed. Rows are read as they are now, which may be newer than the entry."""
    cursor = changed[-1].cursor
    known = _SessionCache(tx)
    found = {(c.message.session, c.message.seq): c.message for c in changed if c.message}
    touched = {
        c.session: None
        for c in changed
        if c.session and c.kind in {ChangeKind.SESSION, ChangeKind.SESSION_GONE}
    }
    whole = {
        c.session: None
        for c in changed
        if c.session and c.kind is ChangeKind.SESSION and c.note in _REINDEX_NOTES
    }
    forks = {
        c.session: None for c in changed if c.session and c.kind is ChangeKind.SESSION and c.note == "created"
    }
    anew = tuple(id_ for id_ in whole | forks if (s := known.get(id_)) and (id_ in whole or s.parent_seq))
    state = IndexState(format=INDEX_FORMAT, cursor=cursor, witness=_read_witness(tx, cursor, ""), anew=anew)
    made = [known.build_document(id_, message) for id_, message in _find_row_ids(tx, found.values())]
    return IndexBatch(
        previous_state=seen,
        state=codec.dumps(state),
        documents=[entry for entry in made if entry],
        titles=[documents.build_for_title(s) for s in map(known.get, touched) if s],
        removed_sessions=[id_ for id_ in touched if id_ in whole or known.get(id_) is None],
    )


def _find_row_ids(tx: Transaction, found: Iterable[Message]) -> list[tuple[int, Message]]:
    """Return the messages with the ids of their rows, in the order of these."""
    by_session: dict[SessionId, dict[int, Message]] = {}
    for message in found:
        by_session.setdefault(message.session, {})[message.seq] = message
    numbered: list[tuple[int, Message]] = []
    for session, by_seq in by_session.items():
        rows = tx.rows(
            f"select id, seq from messages where session = :session and seq {tx.in_ids}",
            {"session": session, "ids": json.dumps(list(by_seq))},
        )
        numbered += [(id_, by_seq[seq]) for id_, seq in rows]
    return sorted(numbered, key=lambda pair: pair[0])


class _SessionCache:
    """Sessions of one batch, each read once. Deleted ones are there until they are erased."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._known: dict[SessionId, Session | None] = {}

    def get(self, id: SessionId | None) -> Session | None:
        if id is not None and is_temporary(id):
            return None
        if id is not None and id not in self._known:
            try:
                self._known[id] = sessions.get(self._tx, id, deleted=True)
            except NotFound:
                self._known[id] = None
        return None if id is None else self._known[id]

    def build_document(self, id: int, message: Message) -> IndexDocument | None:
        session = self.get(message.session)
        return None if session is None else documents.build_for_message(id, message, session)


def find_differences(tx: Transaction, backend: SearchBackend) -> set[tuple[int, str]]:
    """Return the row ids of messages that the index has wrong, each with a reason. Every message is looked up by its
    id, and a sample by their words. The index must be up to date."""
    found: set[tuple[int, str]] = set()
    last, count = 0, 0
    while rows := tx.rows(
        """
        select id from messages
        where id > :last and substr(session, 1, 4) <> 'tmp-'
        order by id limit :limit
        """,
        {"last": last, "limit": _CHECK_PAGE_SIZE},
    ):
        ids = {row[0] for row in rows}
        found |= _compare_ids(ids, set(backend.list_message_ids(tx, above=last, upto=rows[-1][0])))
        last, count = rows[-1][0], count + len(ids)
    found |= _compare_ids(set(), set(backend.list_message_ids(tx, above=last, upto=_MAX_ID)))
    sample = tx.rows(
        """
        select id from messages
        where id % :every = 0 and substr(session, 1, 4) <> 'tmp-'
        order by id
        """,
        {"every": max(1, count // _SAMPLE_SIZE)},
    )
    for id_, message in load_messages(tx, [row[0] for row in sample]).items():
        words = documents.tokenize(documents.extract_text(message)).words[:_PHRASE_LENGTH]
        query = IndexQuery([[documents.build_session_tag(message.session)]], WordSequence(tuple(words)))
        if (
            words
            and (id_, _MISSING) not in found
            and id_ not in backend.find_messages(tx, query, below=id_ + 1, limit=1).found
        ):
            found.add((id_, "messages not found by their words"))
    return found


def load_messages(tx: Transaction, ids: Iterable[int]) -> dict[int, Message]:
    """Return messages by the ids of their rows."""
    rows = tx.rows(
        f"select m.id, {messages.columns('m')} from messages m where m.id {tx.in_ids}",
        {"ids": json.dumps(list(ids))},
    )
    decoded = messages.from_rows([row[1:] for row in rows])
    return {row[0]: message for row, message in zip(rows, decoded, strict=True)}


def _compare_ids(ids: set[int], held: set[int]) -> set[tuple[int, str]]:
    return {(id_, _MISSING) for id_ in ids - held} | {(id_, "messages that are gone") for id_ in held - ids}
