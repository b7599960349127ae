"""Checks every invariant of a store and names the rows that break one."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from keryx.core import codec
from keryx.core import source as sources
from keryx.core.access import AccessRule
from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, Invalid, NotFound, StoreDamaged
from keryx.core.ids import is_temporary
from keryx.core.media import Media
from keryx.core.messages import Message, Parts, Role, ToolCall, ToolResult
from keryx.core.ports.adapter import Receipt
from keryx.core.questions import Question
from keryx.core.records import Progress, ignore_progress
from keryx.core.schedules import Schedule
from keryx.core.sessions import SessionSettings
from keryx.core.source import Source
from keryx.store import changes, epochs, inbox, media, sessions
from keryx.store.db import Database, Engine, Transaction, get_last_issued
from keryx.store.db.session_keys import is_sealed
from keryx.store.frameworks import checkpoints
from keryx.store.questions import ORPHANED
from keryx.store.search import SearchIndex

MAX_PROBLEMS = 50
SEARCH_INDEX_CHECK = "search index"
_PAGE_SIZE = 500
# A damaged row can hold any value: text that is none, a number where a word should be.
_UNREADABLE = (StoreDamaged, Invalid, NotFound, Conflict, ValueError, TypeError, LookupError)
_JSON_COLUMNS: tuple[tuple[str, str, str, Any], ...] = (
    ("messages", "id", "parts", Parts),
    ("messages", "id", "author", str),
    ("messages", "id", "platform_id", str),
    ("messages", "id", "exact", str),
    ("sessions", "id", "settings", SessionSettings),
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
    ("rules", "platform", "rule", AccessRule),
    ("questions", "id", "body", Question),
    ("questions", "id", "answer", str),
    ("principals", "id", "name", str),
    ("turns", "id", "source", Source),
    ("lanes", "key", "target", Target),
    ("lanes", "key", "instructions", str),
    ("projects", "id", "instructions", str),
)


class StoreProblem(msgspec.Struct, frozen=True, kw_only=True):
    """`check` is the invariant, `subject` the row that breaks it, `text` how."""

    check: str
    subject: str
    text: str


# Yields the subject and the text of each problem.
StoreCheck = Callable[[Transaction], Iterator[tuple[str, str]]]


def _make_sql_check(check: str, text: str, sql: str) -> tuple[str, StoreCheck]:
    """A check by SQL: each row is a problem, its first column the subject, the others values for the text."""

    def run(tx: Transaction) -> Iterator[tuple[str, str]]:
        for subject, *values in tx.rows(f"{sql} limit {MAX_PROBLEMS + 1}"):
            yield str(subject), text.format(*values)

    return check, run


_CHECKS: list[tuple[str, StoreCheck]] = [
    _make_sql_check(
        "message numbers",
        "{0} messages are numbered {1} to {2}: numbers begin at 1 and have no gaps",
        """
        select session, count(*), min(seq), max(seq) from messages
        group by session having min(seq) <> 1 or max(seq) <> count(*)
        """,
    ),
    _make_sql_check(
        "message numbers",
        "number {0} is there {1} times",
        "select session, seq, count(*) from messages group by session, seq having count(*) > 1",
    ),
    _make_sql_check(
        "message counters",
        "counts {0} messages up to {1}, has {2} up to {3}",
        """
        select s.id, s.messages, s.last_seq, coalesce(m.n, 0), coalesce(m.last, 0)
        from sessions s
        left join (select session, count(*) as n, max(seq) as last from messages group by session) m on m.session = s.id
        where s.messages <> coalesce(m.n, 0) or s.last_seq <> coalesce(m.last, 0)
        """,
    ),
    _make_sql_check(
        "no empty sessions",
        "has no message",
        "select s.id from sessions s where not exists (select 1 from messages m where m.session = s.id)",
    ),
    _make_sql_check(
        "rows have their session",
        "a {0} belongs to session {1}, which does not exist",
        """
        select subject, kind, session from (
          select cast(id as text) as subject, 'message' as kind, session from messages
          union all select id, 'turn', session from turns
          union all select cast(id as text), 'usage entry', session from usage
          union all select cast(number as text), 'compaction', session from epochs
          union all select alias, 'name', session from aliases
          union all select id, 'delivery', session from deliveries where session is not null
          union all select key, 'lane', session from lanes where session is not null
          union all select session, 'final', session from finals
          union all select id, 'question', session from questions
          union all select tool, 'consent', session from consents
          union all select agent, 'binding', session from bindings
          union all select job, 'run', session from job_runs where session is not null
        ) r
        where not exists (select 1 from sessions s where s.id = r.session)
        """,
    ),
    _make_sql_check(
        "one running turn",
        "has {0} running turns",
        "select session, count(*) from turns where state = 'running' group by session having count(*) > 1",
    ),
    _make_sql_check(
        "turn states",
        "is {0} and does not look it: lease {1}, worker {2}, ended {3}",
        """
        select id, state, coalesce(lease, 'none'), coalesce(worker, 'none'), coalesce(cast(finished_at as text), 'never')
        from turns
        where (state = 'running') <> (lease is not null)
          or (state = 'running') <> (lease_until is not null)
          or (state = 'running' and (worker is null or started_at is null))
          or (state in ('queued', 'running')) <> (finished_at is null)
          or attempts < 0
        """,
    ),
    _make_sql_check(
        "turn inputs",
        "answers message {0}, which its session {1} does not have",
        """
        select t.id, t.input_seq, t.session from turns t
        where not exists (select 1 from messages m where m.session = t.session and m.seq = t.input_seq)
        """,
    ),
    _make_sql_check(
        "line of turns",
        "is the next of session {0} and waits for no file, and no worker will find it",
        """
        select t.id, t.session from turns t
        where t.state = 'queued' and t.ready_at is null
          and not exists (select 1 from turns r where r.session = t.session and r.state = 'running')
          and not exists (
            select 1 from turns q where q.session = t.session and q.state = 'queued' and q.position < t.position
          )
          and not exists (select 1 from downloads d where d.turn = t.id)
        """,
    ),
    _make_sql_check(
        "files to fetch",
        "belongs to message {0} of session {1}, which does not exist",
        """
        select cast(d.position as text), d.seq, d.session from downloads d
        where not exists (select 1 from messages m where m.session = d.session and m.seq = d.seq)
        """,
    ),
    _make_sql_check(
        "merged turns",
        "is {0}, merged into {1}",
        """
        select t.id, t.state, coalesce(t.merged_into, 'nothing') from turns t
        where (t.state = 'merged') <> (t.merged_into is not null)
          or (t.merged_into is not null
            and not exists (select 1 from turns o where o.id = t.merged_into and o.session = t.session))
        """,
    ),
    _make_sql_check(
        "drafts",
        "has {0} pieces of a draft, and no running turn",
        """
        select p.turn, count(*) from pieces p
        where not exists (select 1 from turns t where t.id = p.turn and t.state = 'running')
        group by p.turn
        """,
    ),
    _make_sql_check(
        "previews",
        "is {0} and does not look it: as {1}",
        """
        select p.turn, p.state, case when p.receipt = '' then 'nothing' else p.receipt end from previews p
        where (p.state = 'shown') <> (p.receipt <> '')
          or not exists (select 1 from turns t where t.id = p.turn)
        """,
    ),
    _make_sql_check(
        "questions",
        "waits for an answer, and its turn {0} does not wait or run, nor was it left",
        f"""
        select q.id, q.turn from questions q
        where q.state = 'open'
          and not exists (select 1 from turns t where t.id = q.turn and t.state in ('queued', 'running'))
          and not ({ORPHANED})
        """,
    ),
    _make_sql_check(
        "deliveries",
        "is {0} and does not look it: lease {1}, sent {2}",
        """
        select id, state, coalesce(lease, 'none'), coalesce(cast(sent_at as text), 'never') from deliveries
        where (state = 'sending') <> (lease is not null)
          or (state = 'sending') <> (lease_until is not null)
          or (state = 'sent') <> (sent_at is not null)
          or attempts < 0
        """,
    ),
    _make_sql_check(
        "order of deliveries",
        "has {0} deliveries on their way at once",
        """
        select target_key, count(*) from deliveries where state = 'sending' group by target_key having count(*) > 1
        """,
    ),
    _make_sql_check(
        "lanes",
        "talks to session {0}, which is {1}",
        """
        select l.key, l.session, case when s.id is null then 'gone' when s.deleted_at is not null then 'deleted' else 'of another profile' end
        from lanes l left join sessions s on s.id = l.session
        where l.session is not null and (s.id is null or s.deleted_at is not null or s.profile <> l.profile)
        """,
    ),
    _make_sql_check(
        "compactions",
        "is in epoch {0}, and has {1} compactions numbered up to {2}",
        """
        select s.id, s.epoch, count(e.number), coalesce(max(e.number), 0)
        from sessions s left join epochs e on e.session = s.id
        group by s.id, s.epoch
        having s.epoch <> count(e.number) or s.epoch <> coalesce(max(e.number), 0)
        """,
    ),
    _make_sql_check(
        "compactions",
        "compaction {0} begins at message {1}, which is not between the one before and the end of the session",
        """
        select e.session, e.number, e.first_seq from epochs e
        join sessions s on s.id = e.session
        left join epochs b on b.session = e.session and b.number = e.number - 1
        where e.first_seq < 1 or e.first_seq > s.last_seq + 1 or e.first_seq < b.first_seq
        """,
    ),
    _make_sql_check(
        "compactions",
        "message {0} is in epoch {1}, and the session or the message before it is in another",
        """
        select m.session, m.seq, m.epoch from messages m
        join sessions s on s.id = m.session
        left join messages b on b.session = m.session and b.seq = m.seq - 1
        where m.epoch > s.epoch or m.epoch < b.epoch
        """,
    ),
    _make_sql_check(
        "undo",
        "message {0} belongs to undo {1}, and the session counts {2}",
        """
        select m.session, m.seq, m.undone, s.undo from messages m join sessions s on s.id = m.session
        where m.undone > s.undo or m.undone < -1
        """,
    ),
    _make_sql_check(
        "versions",
        "{1} versions of the question of turn {0} are in use",
        """
        select v.session, v.first, count(*) from versions v
        join messages m on m.session = v.session and m.seq = v.seq
        where m.undone = 0
        group by v.session, v.first having count(*) > 1
        """,
    ),
    _make_sql_check(
        "titles",
        "{0} sessions of {1} are called {2}",
        """
        select min(id), count(*), owner, title_key from sessions
        where deleted_at is null and title_key is not null
        group by profile, owner, title_key having count(*) > 1
        """,
    ),
    _make_sql_check(
        "projects",
        "is in project {0}, which does not exist or is somebody else's",
        """
        select s.id, s.project from sessions s
        where s.project is not null
          and not exists (select 1 from projects p where p.id = s.project and p.profile = s.profile)
        """,
    ),
    _make_sql_check(
        "jobs",
        "is {0} and does not look it: due {1}",
        """
        select id, state, coalesce(cast(next_at as text), 'never') from jobs
        where (state = 'active') <> (next_at is not null)
        """,
    ),
    _make_sql_check(
        "jobs",
        "has a run of {0} at {1}, which belongs to somebody else",
        """
        select j.id, r.owner, r.due_at from job_runs r join jobs j on j.id = r.job
        where r.owner <> j.owner or r.profile <> j.profile
        """,
    ),
    _make_sql_check(
        "people",
        "belongs to person {0}, who does not exist",
        """
        select i.platform || ':' || i.person, i.principal from identities i
        where not exists (select 1 from principals p where p.id = i.principal)
        """,
    ),
    _make_sql_check(
        "files",
        "is shown by session {0}, and is {1}",
        """
        select l.media, l.session, case when m.id is null then 'not there' else 'not there as a whole' end
        from media_links l left join media m on m.id = l.media
        where m.id is null or m.whole = 0
        """,
    ),
    _make_sql_check(
        "known words",
        "{0} {1} is not a word that Keryx knows",
        """
        select session || '.' || cast(seq as text), 'mark', mark from messages
        where mark not in ('interrupted', 'cancelled', 'failed', 'late', 'edited', 'withdrawn', 'deleted')
        union all
        select id, 'end', end_reason from sessions
        where end_reason not in ('reset', 'idle', 'daily', 'suspended', 'person', 'merged')
        """,
    ),
]


async def verify(database: Database, *, progress: Progress = ignore_progress) -> list[StoreProblem]:
    """Every broken invariant, at most `MAX_PROBLEMS` of each kind. Damage is a problem, never an error.

    Raise `Unavailable` if the store cannot be read now, which says nothing about what is in it."""
    found: list[StoreProblem] = []
    for n, (name, check) in enumerate(_CHECKS):
        progress(name, n, len(_CHECKS))
        try:
            problems = await database.read(
                "verify", lambda tx, check=check: list(islice(check(tx), MAX_PROBLEMS + 1))
            )
        except _UNREADABLE as exc:
            problems = [("store", f"cannot be checked: {exc}")]
        if len(problems) > MAX_PROBLEMS:
            problems[-1] = "store", "there are more of these"
        found += [StoreProblem(check=name, subject=subject, text=text) for subject, text in problems]
    progress("search index", len(_CHECKS), len(_CHECKS))
    # The search index has what the messages say.
    index = SearchIndex(database)
    try:
        text = await index.describe_differences()
    except _UNREADABLE as exc:
        text = f"cannot be checked: {exc}"
    finally:
        index.close()
    mend = "nothing is lost, `keryx store reindex` builds it again"
    if text:
        found.append(StoreProblem(check=SEARCH_INDEX_CHECK, subject="store", text=f"{text}; {mend}"))
    return found


def _register(name: str) -> Callable[[StoreCheck], StoreCheck]:
    """Add the decorated function to the checks."""

    def add(check: StoreCheck) -> StoreCheck:
        _CHECKS.append((name, check))
        return check

    return add


@_register("titles")
def _check_titles(tx: Transaction) -> Iterator[tuple[str, str]]:
    """Titles are found by a key that is made from them."""
    last = ""
    while rows := tx.rows(
        "select id, title, title_key, title_base from sessions where id > :last and title <> '' order by id limit :limit",
        {"last": last, "limit": _PAGE_SIZE},
    ):
        for id_, title, key, base in rows:
            if {"key": key, "base": base} != sessions.find_title_keys(id_, title):
                yield id_, f"{title!r} cannot be found by its title"
        last = rows[-1][0]


def _check_json(
    tx: Transaction, *, table: str, key: str, column: str, kind: Any
) -> Iterator[tuple[str, str]]:
    """Everything that is kept as JSON can be read as what it is."""
    last: str | int = 0 if table == "messages" else ""
    while rows := tx.rows(
        f"select {key}, {column} from {table} where {key} > :last order by {key} limit :limit",
        {"last": last, "limit": _PAGE_SIZE},
    ):
        for id_, text in rows:
            try:
                # A backup has no keys, so what temporary sessions say cannot be read there.
                if text and not is_sealed(text):
                    codec.loads(text, kind)
            except Invalid as exc:
                yield str(id_), f"{column}: {exc}"
        last = rows[-1][0]


_CHECKS.extend(
    (f"text of {table}", partial(_check_json, table=table, key=key, column=column, kind=kind))
    for table, key, column, kind in _JSON_COLUMNS
)


@_register("text of sources")
def _check_sources(tx: Transaction) -> Iterator[tuple[str, str]]:
    rows = tx.rows(
        "select key, source from lanes union all select id, origin from sessions where origin is not null"
    )
    for subject, text in rows:
        try:
            sources.decode(text)
        except Invalid as exc:
            yield subject, str(exc)


@_register("text of inbox")
def _check_receipts(tx: Transaction) -> Iterator[tuple[str, str]]:
    for platform, event, text in tx.rows("select platform, event, receipt from inbox"):
        try:
            codec.loads(text, Receipt)
        except Invalid as exc:
            yield f"{platform} {event}", str(exc)


@_register("numbers given out")
def _check_sequences(tx: Transaction) -> Iterator[tuple[str, str]]:
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
        following = get_last_issued(tx, table, column)
        if first < 1 or last > following:
            yield table, f"{column} goes from {first} to {last}, and {following} was the last given out"


@_register("feed")
def _check_trim_point(tx: Transaction) -> Iterator[tuple[str, str]]:
    """No entry of the feed is older than the trim point."""
    trimmed = inbox.get_cursor(tx, changes.TRIM_CURSOR)
    if trimmed is None:
        return
    if not trimmed.isascii() or not trimmed.isdigit():
        yield "changes", f"{trimmed!r} is no trim point"
        return
    position = "position" if tx.engine is Engine.SQLITE else "xid"
    row = tx.row(f"select count(*) from changes where {position} <= :trimmed", {"trimmed": int(trimmed)})
    if row and row[0]:
        yield "changes", f"{row[0]} entries lie before the trim point {trimmed}"


@_register("what the model sees")
def _check_model_views(tx: Transaction) -> Iterator[tuple[str, str]]:
    """What the model sees of each session can be made, and every tool call in it has its one result."""
    last = ""
    while rows := tx.rows(
        """
        select s.id from sessions s
        where s.id > :last and exists (select 1 from messages m where m.session = s.id and m.role = 'tool')
        order by s.id limit :limit
        """,
        {"last": last, "limit": _PAGE_SIZE},
    ):
        for (session,) in rows:
            if is_temporary(session):
                continue
            try:
                broken = _find_unpaired_call(epochs.load_model_view(tx, session))
            except (Invalid, LookupError, ValueError) as exc:
                broken = f"cannot be made: {exc}"
            if broken:
                yield str(session), broken
        last = rows[-1][0]


def _find_unpaired_call(seen: list[Message]) -> str:
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


@_register("graphs")
def _check_graphs(tx: Transaction) -> Iterator[tuple[str, str]]:
    """The last checkpoints of every thread of a graph can be read."""
    yield from checkpoints.find_damaged(tx)


@_register("files")
def _check_files(tx: Transaction) -> Iterator[tuple[str, str]]:
    """The bytes of every file match the hash in its id."""
    yield from media.find_damaged(tx)
