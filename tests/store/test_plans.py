"""Every hot query goes through its index: asked of the engines themselves, with the statements as they are."""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import pytest
from tests.builders import ANN, ANNS, LEASE, OPERATORS, TELEGRAM, WORKER, after, at_time, claim

from keryx.core.clock import to_micros
from keryx.core.ids import (
    DEFAULT_PROFILE,
    Cursor,
    DeliveryId,
    LaneKey,
    PrincipalId,
    QuestionId,
    SessionId,
    TurnId,
)
from keryx.core.lanes import LaneAddress
from keryx.core.messages import Image, Role, text_parts
from keryx.core.sessions import SessionFilter, TitleBy, Viewer
from keryx.core.source import Source
from keryx.store import (
    access,
    api_turns,
    change_feed,
    deliveries,
    imports,
    inbox,
    jobs,
    lanes,
    media,
    messages,
    platforms,
    questions,
    sessions,
    turns,
    usage,
    viewer_state,
)
from keryx.store.api_turns import ApiTurnFilter
from keryx.store.db import NO_PARAMS, Database, Engine, Params, Row, Transaction
from keryx.store.frameworks import adk_sessions, checkpoints
from keryx.store.frameworks.checkpoints import CheckpointKey, CheckpointQuery, NewCheckpoint
from keryx.testing import START_TIME

ROWS = 2000
SESSION = SessionId("s7")
_NUMBERS = f"with recursive n (i) as (select 1 union all select i + 1 from n where i < {ROWS})"
_FILL = (
    """
    insert into sessions (id, profile, owner, surface, title, title_key, title_base, settings, created_at, active_at)
    select 's' || i, 'default', case when i % 20 = 0 then 'ann' else 'p' || (i % 50) end, 'web', 't' || i, 't' || i,
      't' || i, '{}', :now, :now + i
    from n
    """,
    """
    insert into messages (session, seq, role, parts, at)
    select 's' || (i % 20), i, 'user', '[]', :now from n where i % 20 > 0
    """,
    """
    insert into turns
      (id, session, profile, owner, asker, surface, state, mode, input_seq, created_at, lease, lease_until, ready_at)
    select 't' || i, 's' || (i % 1000 + 1), 'default', 'p' || i, 'p' || i, case when i % 2 = 0 then 'api' else 'web' end,
      case when i > 1990 then 'queued' when i > 1980 then 'running' else 'done' end, 'queue', 1, :now,
      case when i > 1980 and i <= 1990 then 'x' end, case when i > 1980 and i <= 1990 then :now end,
      case when i > 1990 then :now end
    from n
    """,
    """
    insert into deliveries (id, profile, owner, session, turn, target, target_key, platform, account, body, state, created_at)
    select 'd' || i, 'default', 'ann', 's' || i, 't' || i, '{"platform": "telegram"}', 'telegram-' || (i % 100),
      'telegram', 'bot', '""', case when i > 1990 then 'ready' else 'sent' end, :now
    from n
    """,
    """
    insert into inbox (platform, account, event, receipt, received_at)
    select 'telegram', 'bot', 'e' || i, '{"duplicate": false}', :now from n
    """,
    """
    insert into lanes (key, profile, owner, session, source, created_at, active_at, expires_at)
    select 'k' || i, 'default', 'ann', 's' || i, '{"platform": "telegram"}', :now, :now + i, :now + i from n
    """,
    """
    insert into questions
      (id, profile, owner, session, turn, asker, key, body, state, created_at, expires_at, closed_at)
    select 'q' || i, 'default', 'ann', 's' || i, 't' || i, 'ann', 'k', '{"key": "k", "title": "t"}',
      case when i > 1990 then 'open' else 'answered' end, :now, :now, case when i > 1990 then null else :now end
    from n
    """,
    "insert into finals (session, reason, due_at) select 's' || i, 'idle', :now + i from n",
    """
    insert into changes (at, kind, profile, owner, subject, session, n)
    select :now, 'message', 'default', 'ann', 'x', 's' || (i % 20), i from n
    """,
    "insert into media (id, size, whole, written_at) select 'm' || i, 1, 1, :now + i from n",
    """
    insert into media_holders (media, profile, owner, mime, name, created_at)
    select 'm' || i, 'default', 'p' || i, '', '""', :now + i from n
    """,
    "insert into media_links (session, media, mime, name) select 's' || i, 'm' || i, '', '\"\"' from n",
    """
    insert into previews (turn, target, state, token, worker, at)
    select 't' || i, '{"platform": "telegram"}', 'sending', 'x', 'w', :now + i from n
    """,
    """
    insert into jobs (id, profile, owner, name, name_key, prompt, schedule, targets, state, next_at, created_at)
    select 'j' || i, 'default', 'p' || i, 'n' || i, 'n' || i, '""', '{"rule":{"kind":"cron","expression":"@daily"}}',
      '[]', 'active', :now + i, :now
    from n
    """,
    """
    insert into job_runs (job, due_at, profile, owner, outcome, at, session, turn)
    select 'j' || (i % 100 + 1), :now + i, 'default', 'p' || (i % 50), 'started', :now + i, 's' || i, 't' || i from n
    """,
    """
    insert into api_turns (turn, session, fingerprint, prefix, thread, options, echo, temporary, created_at)
    select 't' || i, 's' || (i % 1000 + 1), 'f' || i, 'p' || i, 'h' || i, '{}', '{}', case when i = 7 then 1 else 0 end, :now
    from n
    """,
    """
    insert into users (name, profile, principal, password, created_at)
    select 'u' || i, 'default', 'p' || i, 'x', :now from n
    """,
    """
    insert into passkeys (id, profile, principal, name, public_key, uses, created_at)
    select 'p' || i, 'default', 'p' || i, '""', 'x', 0, :now from n
    """,
    """
    insert into api_keys (id, profile, principal, name, digest, created_at)
    select 'k' || i, 'default', 'p' || i, '""', 'd' || i, :now + i from n
    """,
    "insert into versions (session, turn, first, seq) select 's' || i, 't' || i, 't' || i, i from n",
    "insert into shares (id, session, digest, through, created_at) select 'h' || i, 's' || i, 'd' || i, 1, :now from n",
    """
    insert into usage (turn, session, profile, owner, surface, model, at)
    select 't' || i, 's' || (i % 20 + 1), 'default', 'ann', 'web', 'm', :now from n
    """,
    "insert into buttons (question, receipt, delivery) select 'q' || i, '\"1\"', 'e' || i from n",
    "update sessions set erase_at = :now where id = 's3'",
    """
    insert into imports (session, profile, owner, program, source)
    select 's' || i, 'default', 'ann', 'qwen', 'q' || i from n
    """,
    """
    insert into watched_sessions (session, machine, pushed, file, wrote_at, seen_at)
    select 's' || i, 'desk', 0, 'f' || i, :now, :now from n
    """,
    "insert into principals (id, profile, name, created_at) select 'p' || i, 'default', '\"p' || i || '\"', :now from n",
    "insert into projects (id, profile, owner, name, created_at) select 'p' || i, 'default', case when i < 20 then 'operator' else 'x' || i end, 'p' || i, :now from n",
    "insert into tags (id, profile, owner, name, colour, created_at) select 'g' || i, 'default', case when i < 20 then 'operator' else 'x' || i end, 'g' || i, 'red', :now from n",
    "insert into session_tags (session, tag) select 's' || i, 'g' || (i % 19 + 1) from n",
    "update sessions set project = 'p7' where id in (select 's' || i from n where i % 9 = 0)",
    "update sessions set deleted_at = :now where id in (select 's' || i from n where i % 100 = 99)",
    "update sessions set surface = 'cli' where id in (select 's' || i from n where i % 5 = 0)",
    "update turns set state = 'failed' where id in (select 't' || i from n where i % 100 = 0 and i < 1900)",
    "insert into graph_threads (profile, owner, name, changed_at) select 'default', 'operator', 'x' || i, :now from n",
)
# The engines name the index of a key or a constraint in their own way.
_SQLITE_NAMES = {
    "messages_seq": "sqlite_autoindex_messages_1",
    "inbox_pkey": "sqlite_autoindex_inbox_1",
    "lanes_pkey": "sqlite_autoindex_lanes_1",
    "sessions_pkey": "sqlite_autoindex_sessions_1",
    "turns_id": "sqlite_autoindex_turns_1",
    "questions_key": "sqlite_autoindex_questions_2",
    "deliveries_id": "sqlite_autoindex_deliveries_1",
    "changes_pkey": "INTEGER PRIMARY KEY",
    "media_pkey": "sqlite_autoindex_media_1",
    "media_holders_pkey": "sqlite_autoindex_media_holders_1",
    "media_links_pkey": "sqlite_autoindex_media_links_1",
    "previews_pkey": "sqlite_autoindex_previews_1",
    "jobs_pkey": "sqlite_autoindex_jobs_1",
    "job_runs_pkey": "sqlite_autoindex_job_runs_1",
    "questions_pkey": "sqlite_autoindex_questions_1",
    "imports_pkey": "sqlite_autoindex_imports_1",
    "watched_sessions_pkey": "sqlite_autoindex_watched_sessions_1",
    "api_turns_turn_key": "sqlite_autoindex_api_turns_1",
    "users_pkey": "sqlite_autoindex_users_1",
    "passkeys_pkey": "sqlite_autoindex_passkeys_1",
    "api_keys_digest_key": "sqlite_autoindex_api_keys_2",
    "graph_threads_name": "sqlite_autoindex_graph_threads_1",
    "graph_checkpoints_pkey": "graph_checkpoints USING PRIMARY KEY",
    "graph_items_pkey": "graph_items USING PRIMARY KEY",
    "graph_writes_pkey": "graph_writes USING PRIMARY KEY",
    "adk_sessions_name": "sqlite_autoindex_adk_sessions_1",
    "adk_events_pkey": "sqlite_autoindex_adk_events_1",
    "session_tags_pkey": "sqlite_autoindex_session_tags_1",
    "versions_pkey": "sqlite_autoindex_versions_1",
    "shares_digest_key": "sqlite_autoindex_shares_2",
}
_TABLES = (
    "api_keys|api_turns|buttons|changes|deliveries|finals|imports|inbox|job_runs|jobs|lanes|media|media_holders|media_links|messages|pieces|previews|"
    "questions|"
    "sessions|shares|turns|watched_sessions|session_tags|principals|usage|versions|users|passkeys"
)


class Recorder:
    """A transaction that asks for the plan of every statement before it runs it."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.engine = tx.engine
        self.for_update = tx.for_update
        self.skip_locked = tx.skip_locked
        self.in_ids = tx.in_ids
        self.in_names = tx.in_names
        self.noted = False
        self.now = tx.now
        self.texts = tx.texts
        self.keys = tx.keys
        self.plan: list[str] = []

    def run(self, sql: str, params: Params = NO_PARAMS) -> None:
        self.count(sql, params)

    def count(self, sql: str, params: Params = NO_PARAMS) -> int:
        self._explain(sql, params)
        return self._tx.count(sql, params)

    def batches(self, sql: str, params: Params, size: int) -> Iterator[list[Row]]:
        self._explain(sql, params)
        return self._tx.batches(sql, params, size)

    def rows(self, sql: str, params: Params = NO_PARAMS) -> list[Row]:
        self._explain(sql, params)
        return self._tx.rows(sql, params)

    def row(self, sql: str, params: Params = NO_PARAMS) -> Row | None:
        self._explain(sql, params)
        return self._tx.row(sql, params)

    def _explain(self, sql: str, params: Params) -> None:
        if sql.startswith("set "):
            return
        explain = "explain query plan " if self.engine is Engine.SQLITE else "explain "
        self.plan += [str(row[-1]) for row in self._tx.rows(explain + sql, params)]

    def scans(self) -> list[str]:
        """The steps that read a whole table."""
        if self.engine is Engine.SQLITE:
            return [step for step in self.plan if step.startswith("SCAN") and not _uses_index(step)]
        return [step for step in self.plan if re.search(rf"Seq Scan on ({_TABLES})\b", step)]


def _uses_index(step: str) -> bool:
    return " USING " in step or step.startswith(
        ("SCAN CONSTANT ROW", "SCAN json_each", "SCAN recent", "SCAN oldest", "SCAN counted")
    )


def fill(tx: Transaction, *, counted: bool = True) -> None:
    for statement in _FILL:
        body = statement.strip()
        tx.run(f"{_NUMBERS} {body}" if " from n" in body else body, {"now": to_micros(START_TIME)})
    fill_frameworks(tx)
    if not counted:
        return
    tx.run("analyze")
    if tx.engine is Engine.POSTGRES:
        tx.run("set local enable_seqscan = off")


def fill_frameworks(tx: Transaction) -> None:
    timed, change = at_time(tx, START_TIME), adk_sessions.StateChange()
    for n in range(1, 200):
        items = tuple(b"%d" % i for i in range(n))
        new = NewCheckpoint(
            thread="t",
            namespace="",
            id=f"c{n:03}",
            parent=f"c{n - 1:03}" if n > 1 else None,
            run=f"r{n}",
            body=b"",
            values={"messages": (n, items)},
            kept={},
        )
        assert checkpoints.put(timed, OPERATORS, new)
        adk_sessions.create(timed, OPERATORS, app="a", person=f"p{n}", name="s", change=change, at=n)
        names = {"app": "a", "person": "p5", "name": "s"}
        if n >= 5:
            adk_sessions.append_event(
                timed, OPERATORS, **names, known=n, event=f"e{n}", body="{}", change=change, at=n
            )


def load_checkpoint(tx: Transaction) -> object:
    [key] = checkpoints.list_keys(tx, OPERATORS, CheckpointQuery(thread="t", namespace="", limit=1))
    assert isinstance(key, CheckpointKey)
    return checkpoints.load(tx, key)


def load_adk_session(tx: Transaction) -> object:
    found = adk_sessions.find(tx, OPERATORS, app="a", person="p5", name="s")
    assert found is not None
    return adk_sessions.list_events(tx, found.number, since=None, limit=9)


def ensure_lane(tx: Transaction) -> object:
    address = LaneAddress(key=LaneKey("k5"), shared=False)
    return lanes.ensure(at_time(tx, START_TIME), address, Source(platform="telegram", chat="1"), owner=ANN)


def claim_delivery(tx: Transaction) -> object:
    return deliveries.claim(
        at_time(tx, START_TIME), most=1, platform="telegram", account="bot", worker=WORKER, lease=LEASE
    ).leased


def read_feed(tx: Transaction) -> object:
    start = "1900" if tx.engine is Engine.SQLITE else "1900.0"
    return change_feed.list_after(tx, Cursor(start), limit=50)


def next_page(tx: Transaction) -> object:
    _, cursor = sessions.list_page(tx, ANNS, SessionFilter(limit=10))
    return sessions.list_page(tx, ANNS, SessionFilter(limit=10, after=cursor))


def list_filtered(tx: Transaction, query: str) -> object:
    return sessions.list_page(at_time(tx, after(1)), OPERATORS, SessionFilter(query=query))


def rename(tx: Transaction) -> object:
    return sessions.rename(at_time(tx, START_TIME), sessions.get(tx, SESSION), "t57", by=TitleBy.RULE)


def job_runs(tx: Transaction) -> object:
    job = jobs.find_due(at_time(tx, after(1)))
    assert job
    return jobs.list_runs(tx, job)


Case = tuple[str, Callable[[Transaction], object], Sequence[str]]
CASES: list[Case] = [
    (
        "sessions by activity",
        lambda tx: sessions.list_page(tx, OPERATORS, SessionFilter()),
        ["sessions_activity"],
    ),
    (
        "sessions of a folder",
        lambda tx: sessions.list_page(tx, OPERATORS, SessionFilter(cwd="/projects/7")),
        ["sessions_cwd"],
    ),
    ("sessions of a surface", lambda tx: list_filtered(tx, "surface:cli"), ["sessions_surface"]),
    ("sessions of a project", lambda tx: list_filtered(tx, "project:p7"), ["sessions_project"]),
    ("sessions of a person", lambda tx: list_filtered(tx, "person:p7"), ["sessions_owner"]),
    ("archived sessions", lambda tx: list_filtered(tx, "is:archived"), ["sessions_activity"]),
    ("sessions of some days", lambda tx: list_filtered(tx, "after:2d before:1d"), ["sessions_activity"]),
    ("sessions with a tag", lambda tx: list_filtered(tx, "tag:g7"), ["session_tags_tag", "sessions_pkey"]),
    ("running sessions", lambda tx: list_filtered(tx, "is:running"), ["turns_running", "sessions_pkey"]),
    ("waiting sessions", lambda tx: list_filtered(tx, "is:waiting"), ["turns_queued", "sessions_pkey"]),
    ("failed sessions", lambda tx: list_filtered(tx, "is:failed"), ["turns_failed", "sessions_pkey"]),
    ("the trash", lambda tx: list_filtered(tx, "is:deleted"), ["sessions_deleted"]),
    ("people by name", lambda tx: sessions.find_people(tx, OPERATORS, "p", limit=9), ["principals_name"]),
    ("sessions of an owner", lambda tx: sessions.list_page(tx, ANNS, SessionFilter()), ["sessions_owner"]),
    ("the next page of sessions", next_page, ["sessions_owner"]),
    ("a session by title", lambda tx: sessions.resolve(tx, OPERATORS, "t9"), ["sessions_line"]),
    ("a free title", rename, ["sessions_title", "sessions_line"]),
    (
        "sessions to erase",
        lambda tx: sessions.list_due_for_erasure(at_time(tx, START_TIME)),
        ["sessions_erase"],
    ),
    ("temporary sessions", sessions.list_temporary, ["sessions_temporary"]),
    ("the last messages", lambda tx: messages.list_latest(tx, SESSION, limit=50), ["messages_seq"]),
    ("older messages", lambda tx: messages.list_latest(tx, SESSION, limit=50, before=900), ["messages_seq"]),
    ("messages after", lambda tx: messages.list_after(tx, SESSION, after=900, limit=50), ["messages_seq"]),
    (
        "what a turn wrote",
        lambda tx: messages.list_for_turn(tx, SESSION, TurnId("t1"), first=1),
        ["messages_of_turn"],
    ),
    ("an edited message", lambda tx: messages.find_by_platform_id(tx, SESSION, "p1"), ["messages_seq"]),
    (
        "a new message",
        lambda tx: messages.append(at_time(tx, START_TIME), SessionId("s1999"), Role.USER, text_parts("x")),
        ["sessions_pkey"],
    ),
    (
        "a message with a file",
        lambda tx: messages.append(at_time(tx, START_TIME), SessionId("s1998"), Role.USER, (Image("m5"),)),
        ["media_pkey", "media_holders_pkey", "media_links_media"],
    ),
    (
        "a file of a viewer",
        lambda tx: media.find_for_viewer(tx, ANNS, "m5"),
        ["media_holders_pkey", "media_links_media"],
    ),
    ("a file of a session", lambda tx: media.find_in_session(tx, SESSION, "m7"), ["media_pkey"]),
    (
        "what nobody holds any more",
        lambda tx: media.trim_holders(tx, before=START_TIME),
        ["media_holders_age"],
    ),
    ("the preview of a turn", lambda tx: deliveries.find_preview(tx, TurnId("t5")), ["previews_pkey"]),
    (
        "the buttons that a delivery replaces",
        lambda tx: questions.find_replaced_receipt(tx, DeliveryId("e5")),
        ["buttons_delivery"],
    ),
    (
        "the question of a delivery",
        lambda tx: questions.find_by_id(tx, QuestionId("none")),
        ["questions_pkey"],
    ),
    ("what waits for a place", lambda tx: deliveries.has_waiting(tx, TELEGRAM), ["deliveries_open"]),
    ("the next turn", claim, ["turns_ready", "turns_running_asker", "turns_id"]),
    ("the newest turn", lambda tx: turns.find_newest(tx, SESSION, "p7"), ["turns_queued"]),
    (
        "what a message may concern",
        lambda tx: sessions.find_pending(tx, SESSION),
        ["questions_waiting", "turns_queued", "turns_running", "lanes_mirror", "messages_seq"],
    ),
    ("waiting turns", lambda tx: turns.list_queued(tx, SESSION), ["turns_queued"]),
    ("the running turn", lambda tx: turns.find_running(tx, SESSION), ["turns_running"]),
    ("abandoned turns", lambda tx: turns.list_abandoned(at_time(tx, after(1)), workers=[]), ["turns_lease"]),
    ("the next delivery", claim_delivery, ["deliveries_ready", "deliveries_open", "deliveries_id"]),
    ("deliveries of a turn", lambda tx: deliveries.list_for_turn(tx, TurnId("t5")), ["deliveries_turn"]),
    ("deliveries of a session", lambda tx: deliveries.list_for_session(tx, SESSION), ["deliveries_session"]),
    (
        "an event seen before",
        lambda tx: inbox.find_receipt(tx, platform="telegram", account="bot", event="e5"),
        ["inbox_pkey"],
    ),
    ("changes after a cursor", read_feed, ["changes_pkey", "messages_seq"]),
    ("a lane by its key", ensure_lane, ["lanes_pkey"]),
    ("lanes of a session", lambda tx: lanes.list_for_session(tx, SESSION), ["lanes_session"]),
    (
        "moves of a lane around a session",
        lambda tx: lanes.list_moves_around(tx, LaneKey("k5"), SESSION, limit=9),
        ["lane_moves_lane"],
    ),
    ("a turn of the API", lambda tx: api_turns.find(tx, TurnId("t5")), ["api_turns_turn_key"]),
    (
        "equal requests",
        lambda tx: api_turns.list_by_fingerprint(tx, "f5", since=START_TIME),
        ["api_turns_fingerprint"],
    ),
    ("requests that said the same", lambda tx: api_turns.list_by_prefix(tx, "p5"), ["api_turns_prefix"]),
    ("the last request of a thread", lambda tx: api_turns.find_by_thread(tx, "h5"), ["api_turns_thread"]),
    ("later requests", lambda tx: api_turns.list_after(tx, SESSION, after=5), ["api_turns_session"]),
    (
        "answers that nobody took",
        lambda tx: api_turns.list_abandoned(tx, before=after(1)),
        ["api_turns_temporary"],
    ),
    (
        "the last checkpoint of a graph",
        load_checkpoint,
        ["graph_threads_name", "graph_checkpoints_pkey", "graph_items_pkey", "graph_writes_pkey"],
    ),
    (
        "checkpoints of a run",
        lambda tx: checkpoints.remove_runs(tx, OPERATORS, ["r5"]),
        ["graph_checkpoints_run"],
    ),
    ("events of a session of the kit", load_adk_session, ["adk_sessions_name", "adk_events_pkey"]),
    (
        "the turns of programs, for the operator",
        lambda tx: api_turns.list_changed(tx, OPERATORS, ApiTurnFilter(), limit=5),
        ["turns_api"],
    ),
    (
        "the turns that programs of a person asked for",
        lambda tx: api_turns.list_changed(
            tx, Viewer(DEFAULT_PROFILE, PrincipalId("p5")), ApiTurnFilter(), limit=5
        ),
        ["turns_api_owner"],
    ),
    ("the user of a viewer", lambda tx: access.find_user_of(tx, ANNS), ["users_principal"]),
    ("a user by name", lambda tx: access.find_user(tx, "u5"), ["users_pkey"]),
    ("a passkey", lambda tx: access.find_passkey(tx, "p5"), ["passkeys_pkey"]),
    ("passkeys of a viewer", lambda tx: access.list_passkeys(tx, ANNS), ["passkeys_principal"]),
    ("a key of a program", lambda tx: api_turns.find_key(tx, "d5"), ["api_keys_digest_key"]),
    (
        "the program of a session",
        lambda tx: imports.find_watched(tx, SESSION),
        ["watched_sessions_pkey", "imports_pkey"],
    ),
    (
        "turns of an imported session that ran here",
        lambda tx: imports.list_own_turns(tx, SESSION, surface="qwen", since=START_TIME),
        ["turns_session"],
    ),
    (
        "the last message of a program",
        lambda tx: imports.get_last_seq(tx, SESSION, surface="qwen"),
        ["messages_seq"],
    ),
    (
        "the versions of questions",
        lambda tx: messages.list_versions(tx, SESSION),
        ["versions_pkey", "messages_seq"],
    ),
    (
        "the questions of a session",
        lambda tx: messages.list_questions(tx, SESSION, limit=50),
        ["messages_seq"],
    ),
    (
        "the first message of a day",
        lambda tx: messages.find_first_since(tx, SESSION, START_TIME),
        ["messages_seq"],
    ),
    (
        "what answers took",
        lambda tx: usage.list_answers(tx, sessions.get(tx, SESSION), [TurnId("t5"), TurnId("t6")]),
        ["usage_turn"],
    ),
    (
        "what a person has not read",
        lambda tx: (
            viewer_state.save_preferences(tx, ANNS, {"theme": "dark"}),
            viewer_state.list_unread(tx, ANNS, limit=100),
        ),
        ["sessions_owner"],
    ),
    ("a shared link", lambda tx: viewer_state.find_share(tx, digest="d5"), ["shares_digest_key"]),
    ("the links to a session", lambda tx: viewer_state.list_shares(tx, SESSION), ["shares_session"]),
    ("expired lanes", lambda tx: lanes.list_expired(at_time(tx, after(0.0001))), ["lanes_expiry"]),
    ("the job that is due first", lambda tx: jobs.find_due(at_time(tx, after(1))), ["jobs_due"]),
    ("when a job is due next", jobs.get_next_due_at, ["jobs_due"]),
    ("jobs of a person", lambda tx: jobs.list_for_viewer(tx, ANNS), ["jobs_owner"]),
    ("runs of a job", job_runs, ["job_runs_pkey", "turns_id", "deliveries_turn"]),
    ("the last runs of a person", lambda tx: jobs.list_recent_runs(tx, ANNS, limit=9), ["job_runs_recent"]),
    ("open questions of a session", lambda tx: questions.list_open(tx, SESSION), ["questions_waiting"]),
    (
        "questions of a turn",
        lambda tx: questions.cancel_for_turn(at_time(tx, START_TIME), TurnId("t5")),
        ["questions_key"],
    ),
    ("open questions", lambda tx: questions.list_open_for_viewer(tx, OPERATORS), ["questions_open"]),
    (
        "answers that were kept",
        lambda tx: questions.list_orphaned_answers(tx, SESSION),
        ["questions_session", "turns_id"],
    ),
    (
        "questions that ran out",
        lambda tx: questions.list_orphaned_overdue(at_time(tx, START_TIME)),
        ["turns_id"],
    ),
    ("questions of a session", lambda tx: questions.list_for_session(tx, SESSION), ["questions_session"]),
    (
        "the next final",
        lambda tx: sessions.claim_end_hook(
            at_time(tx, after(0.0001)), retry_at=START_TIME + timedelta(hours=1), most=3
        ),
        ["finals_due"],
    ),
]


async def test_every_hot_query_uses_its_index_and_reads_no_whole_table(
    database: Database, subtests: pytest.Subtests
) -> None:
    def explain(tx: Transaction) -> dict[str, Recorder]:
        fill(tx)
        recorders = {name: Recorder(tx) for name, _, _ in CASES}
        for name, query, _ in CASES:
            query(recorders[name])
        return recorders

    recorders = await database.write("plans", explain)
    for name, _, indexes in CASES:
        with subtests.test(name):
            plan = "\n".join(recorders[name].plan)
            for index in indexes:
                wanted = _SQLITE_NAMES.get(index, index) if database.engine is Engine.SQLITE else index
                assert re.search(rf"\b{wanted}\b", plan), f"{name} does not use {wanted}:\n{plan}"
            assert recorders[name].scans() == [], plan


async def test_a_store_that_nobody_has_counted_yet_is_not_read_whole_either(
    database: Database, subtests: pytest.Subtests
) -> None:
    """So it is for a minute or more when it is new, and after a copy."""
    swept = "what nobody holds any more"  # once an hour, and all of it may have to go
    listed = "what answers took"  # by a short list of turns: how that is joined does not matter
    cases = {name: query for name, query, _ in CASES if name not in (swept, listed)}
    cases["changes that wait"] = change_feed.has_held_back

    def explain(tx: Transaction) -> dict[str, Recorder]:
        fill(tx, counted=False)
        recorders = {name: Recorder(tx) for name in cases}
        for name, query in cases.items():
            query(recorders[name])
        return recorders

    for name, recorder in (await database.write("plans", explain)).items():
        with subtests.test(name):
            assert recorder.scans() == []
            assert not [step for step in recorder.plan if re.search(r"Hash .*Join|Merge .*Join", step)]


async def test_a_rush_that_nobody_has_counted_yet_changes_no_plan(database: Database) -> None:
    """The engine believes that nothing waits; very much does, and most of it for a chat that is held up."""

    def rush(tx: Transaction) -> tuple[Recorder, Recorder]:
        fill(tx)
        tx.run("update turns set state = 'done', ready_at = null where state = 'queued'")
        tx.run("update deliveries set state = 'sent'")
        tx.run("analyze")
        tx.run(
            """
            insert into turns (id, session, profile, owner, asker, surface, state, mode, input_seq, created_at, ready_at)
            select 'r' || id, id, profile, owner, owner, 'web', 'queued', 'queue', 1, created_at, created_at from sessions
            """
        )
        tx.run("update deliveries set state = 'ready', target_key = 'telegram-0' where position <= 1800")
        tx.run("update deliveries set state = 'ready' where position > 1800")
        platforms.close_gate(tx, "telegram-0", until=after(60), reason="")
        turn, delivery = Recorder(tx), Recorder(tx)
        assert claim(turn) and claim_delivery(delivery)
        return turn, delivery

    turn, delivery = await database.write("rush", rush)
    assert "turns_ready" in "\n".join(turn.plan)
    all_waiting = r"turns_queued on turns t\b|\bt USING (COVERING )?INDEX turns_queued"
    assert not [step for step in turn.plan if re.search(rf"Sort|TEMP B-TREE|{all_waiting}", step)]
    assert "deliveries_open" in "\n".join(delivery.plan)
    assert not [step for step in delivery.plan if re.search(r"Hash|Merge|TEMP B-TREE", step)]
