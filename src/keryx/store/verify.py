"""Verify: every invariant of a store is checked, and what breaks one is named."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from keryx.core import source as sources
from keryx.core import titles, wire
from keryx.core.access import Rule
from keryx.core.deliveries import Target
from keryx.core.errors import Invalid, KeryxError
from keryx.core.media import Media
from keryx.core.messages import Message, Parts, Role, ToolCall, ToolResult
from keryx.core.ports import Receipt
from keryx.core.progress import Progress, silent
from keryx.core.questions import Question
from keryx.core.schedules import Schedule
from keryx.core.sessions import Settings
from keryx.core.source import Source
from keryx.store import changes, cursors, epochs, media
from keryx.store.database import Database, Engine, Transaction
from keryx.store.invariants import MOST, QUESTIONS, Check, Problem
from keryx.store.numbers import issued
from keryx.store.search import Index

INDEX = "search index"
_PAGE = 500


async def verify(database: Database, *, progress: Progress = silent) -> list[Problem]:
    """Every broken invariant, at most `MOST` of each kind. What cannot be read is a problem, never an error."""
    checks = [*QUESTIONS, *_READINGS]
    found: list[Problem] = []
    for n, (name, check) in enumerate(checks):
        progress(name, n, len(checks))
        try:
            found += await database.read("verify", partial(_some, check=check, name=name))
        except (KeryxError, ValueError, TypeError, LookupError) as exc:
            # A damaged row can hold any value: text that is none, a number where a word should be.
            found.append(Problem(check=name, subject="store", text=f"cannot be checked: {exc}"))
    progress("search index", len(checks), len(checks))
    return found + await _index(database)


async def _index(database: Database) -> list[Problem]:
    """The search index has what the messages say."""
    index = Index(database)
    try:
        text = await index.wrong()
    except (KeryxError, ValueError, TypeError, LookupError) as exc:
        text = f"cannot be checked: {exc}"
    finally:
        index.close()
    mend = "nothing is lost, `keryx store reindex` builds it again"
    return [Problem(check=INDEX, subject="store", text=f"{text}; {mend}")] if text else []


def _some(tx: Transaction, *, check: Check, name: str) -> list[Problem]:
    found: list[Problem] = []
    for problem in check(tx):
        if len(found) == MOST:
            return [*found, Problem(check=name, subject="store", text="there are more of these")]
        found.append(problem)
    return found


def _titles(tx: Transaction) -> Iterator[Problem]:
    """Titles are found by a key that is made from them."""
    last = ""
    while rows := tx.rows(
        "select id, title, title_key, title_base from sessions where id > :last and title <> '' order by id limit :limit",
        {"last": last, "limit": _PAGE},
    ):
        for id_, title, key, base in rows:
            if (key, base) != (title.casefold(), titles.base(title)[0].casefold()):
                yield Problem(check="titles", subject=id_, text=f"{title!r} cannot be found by its title")
        last = rows[-1][0]


_TEXTS: tuple[tuple[str, str, str, Any], ...] = (
    ("messages", "id", "parts", Parts),
    ("messages", "id", "author", str),
    ("messages", "id", "platform_id", str),
    ("messages", "id", "exact", str),
    ("sessions", "id", "settings", Settings),
    ("turns", "id", "reply", Target),
    ("turns", "id", "error", str),
    ("turns", "id", "also", tuple[Target, ...]),
    ("jobs", "id", "prompt", str),
    ("jobs", "id", "schedule", Schedule),
    ("jobs", "id", "targets", tuple[Target, ...]),
    ("jobs", "id", "source", Source),
    ("deliveries", "id", "target", Target),
    ("deliveries", "id", "body", str),
    ("deliveries", "id", "receipts", tuple[str, ...]),
    ("deliveries", "id", "media", tuple[Media, ...]),
    ("deliveries", "id", "error", str),
    ("previews", "turn", "target", Target),
    ("previews", "turn", "receipt", str),
    ("buttons", "question", "receipt", str),
    ("cursors", "name", "value", str),
    ("rules", "platform", "rule", Rule),
    ("questions", "id", "body", Question),
    ("questions", "id", "answer", str),
    ("principals", "id", "name", str),
    ("turns", "id", "source", Source),
    ("lanes", "key", "target", Target),
    ("lanes", "key", "instructions", str),
    ("projects", "id", "instructions", str),
)


def _texts(tx: Transaction, *, table: str, key: str, column: str, kind: Any) -> Iterator[Problem]:
    """Everything that is kept as JSON can be read as what it is."""
    last: str | int = 0 if table == "messages" else ""
    while rows := tx.rows(
        f"select {key}, {column} from {table} where {key} > :last order by {key} limit :limit",
        {"last": last, "limit": _PAGE},
    ):
        for id_, text in rows:
            try:
                if text:
                    wire.loads(text, kind)
            except Invalid as exc:
                yield Problem(check=f"text of {table}", subject=str(id_), text=f"{column}: {exc}")
        last = rows[-1][0]


def _sources(tx: Transaction) -> Iterator[Problem]:
    rows = tx.rows(
        "select key, source from lanes union all select id, origin from sessions where origin is not null"
    )
    for subject, text in rows:
        try:
            sources.decode(text)
        except Invalid as exc:
            yield Problem(check="text of sources", subject=subject, text=str(exc))


def _receipts(tx: Transaction) -> Iterator[Problem]:
    for platform, event, text in tx.rows("select platform, event, receipt from inbox"):
        try:
            wire.loads(text, Receipt)
        except Invalid as exc:
            yield Problem(check="text of inbox", subject=f"{platform} {event}", text=str(exc))


def _numbers(tx: Transaction) -> Iterator[Problem]:
    """Positions of the feed, and every other number that is given out, lie behind what comes next."""
    for table, column in (
        ("changes", "position"),
        ("messages", "id"),
        ("turns", "position"),
        ("deliveries", "position"),
        ("usage", "id"),
        ("lane_moves", "id"),
    ):
        row = tx.row(f"select coalesce(min({column}), 1), coalesce(max({column}), 0) from {table}")
        first, last = row or (1, 0)
        following = issued(tx, table, column)
        if first < 1 or last > following:
            yield Problem(
                check="numbers given out",
                subject=table,
                text=f"{column} goes from {first} to {last}, and {following} was the last given out",
            )


def _trimmed(tx: Transaction) -> Iterator[Problem]:
    """Nothing of the feed lies before the point up to which it was trimmed."""
    trimmed = cursors.get(tx, changes.TRIMMED)
    if trimmed is None:
        return
    if not trimmed.isascii() or not trimmed.isdigit():
        yield Problem(check="feed", subject="changes", text=f"{trimmed!r} is no trim point")
        return
    place = "position" if tx.engine is Engine.SQLITE else "xid"
    row = tx.row(f"select count(*) from changes where {place} <= :trimmed", {"trimmed": int(trimmed)})
    if row and row[0]:
        text = f"{row[0]} entries lie before the trim point {trimmed}"
        yield Problem(check="feed", subject="changes", text=text)


def _views(tx: Transaction) -> Iterator[Problem]:
    """What the model sees of each session can be made, and every tool call in it has its one result."""
    last = ""
    while rows := tx.rows(
        """
        select s.id from sessions s
        where s.id > :last and exists (select 1 from messages m where m.session = s.id and m.role = 'tool')
        order by s.id limit :limit
        """,
        {"last": last, "limit": _PAGE},
    ):
        for (id_,) in rows:
            yield from _view(tx, id_)
        last = rows[-1][0]


def _view(tx: Transaction, session: Any) -> Iterator[Problem]:
    try:
        broken = _unpaired(epochs.view(tx, session))
    except (Invalid, LookupError, ValueError) as exc:
        broken = f"cannot be made: {exc}"
    if broken:
        yield Problem(check="what the model sees", subject=str(session), text=broken)


def _unpaired(seen: list[Message]) -> str:
    open_calls: list[str] = []
    for message in seen:
        if message.role is not Role.TOOL and open_calls:
            return f"tool call {open_calls[0]} has no result before message {message.seq}"
        for part in message.parts:
            if isinstance(part, ToolCall):
                open_calls.append(part.id)
            elif isinstance(part, ToolResult):
                if part.id not in open_calls:
                    return f"message {message.seq} has a result of {part.id}, which was not called"
                open_calls.remove(part.id)
    return f"tool call {open_calls[0]} has no result" if open_calls else ""


def _files(tx: Transaction) -> Iterator[Problem]:
    """Every file holds the bytes that its id stands for."""
    for subject, text in media.damaged(tx):
        yield Problem(check="files", subject=subject, text=text)


_READINGS: tuple[tuple[str, Check], ...] = (
    ("titles", _titles),
    *(
        (f"text of {table}", partial(_texts, table=table, key=key, column=column, kind=kind))
        for table, key, column, kind in _TEXTS
    ),
    ("text of sources", _sources),
    ("text of inbox", _receipts),
    ("numbers given out", _numbers),
    ("feed", _trimmed),
    ("what the model sees", _views),
    ("files", _files),
)
