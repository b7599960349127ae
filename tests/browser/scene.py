"""A scene: a store as it looks after some weeks of use, for pictures and for checks of every screen."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.builders import at_time

from keryx.core import ids, lanes
from keryx.core.deliveries import Target
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, PrincipalId, SessionId, TurnId
from keryx.core.messages import Mark, Parts, Reasoning, Role, Text, ToolCall, ToolResult, text_parts
from keryx.core.sessions import EndReason, TitleBy, Viewer
from keryx.core.source import ChatType, Source
from keryx.core.turns import BusyMode, Turn, TurnState
from keryx.core.usage import Usage
from keryx.store import deliveries, epochs, messages, people, projects, sessions, usage
from keryx.store import lanes as lane_store
from keryx.store.changes import Scope
from keryx.store.db import Transaction
from keryx.store.db.sqlite import SqliteDatabase

VIEWER = Viewer(DEFAULT_PROFILE, OPERATOR)
_TITLES = (
    ("Postgres upgrade plan", "cli", None),
    ("Reading list for March", "web", None),
    (
        "Standup notes",
        "gateway",
        Source(platform="slack", chat="ops", chat_name="#ops", chat_type=ChatType.GROUP),
    ),
    ("Learning Norwegian", "gateway", Source(platform="telegram", chat="7", user="7", user_name="Ann")),
    ("Rename the metrics", "acp", None),
    (
        "Dinner for eight",
        "gateway",
        Source(platform="matrix", chat="!k", chat_name="Kitchen", chat_type=ChatType.GROUP),
    ),
    ("Quarterly report, second draft", "web", None),
    ("Home server backup", "cli", None),
    ("Why is the build slow?", "acp", None),
    ("Garden in spring", "gateway", Source(platform="telegram", chat="8", user="8", user_name="Bob")),
    ("Invoice template", "api", None),
    ("Names for a sailing boat", "web", None),
)
_TAGS = {0: ["infra"], 3: ["later"], 7: ["infra", "later"]}
_ANSWER = """The second worker restarts because its **lease** runs out while the model is silent. Two ways to mend it:

1. Raise `limits.lease` to 30 s.
2. Renew it from the runner while a tool is at work.

```python
async def renew(lease: Lease, *, every: float) -> None:
    \"\"\"Keep the lease while the turn runs.\"\"\"
    while True:
        await clock.sleep(every)
        await leases.renew(lease)  # raises LeaseLost
```

| worker | restarts | last reason |
|---|---|---|
| a | 0 | |
| b | 14 | lease lost |

The second is better: a longer lease only hides the silence."""


_LOOKS = (
    ("Leases are taken where turns are claimed.", "src/store/turns.py"),
    ("The claim sets it. Who renews it?", "src/engine/leases.py"),
    ("Renewing is left to the runner, while the model talks.", "src/engine/runner.py"),
    ("A tool may be silent for longer than that.\nIt has no timer of its own.", "src/engine/driver.py"),
    ("The tests should show how long a tool may be silent.", "tests/engine/test_leases.py"),
)


async def furnish(path: Path) -> SessionId:
    """Fill a store; gives the conversation that shows most."""
    async with SqliteDatabase(path) as database:
        return await database.write("scene", _write)


def _write(tx: Transaction) -> SessionId:
    now = datetime.now(UTC)
    project = projects.add(at_time(tx, now), VIEWER, name="Operations", colour="hsl(200 55% 50%)")
    others: list[SessionId] = []
    for n, (title, surface, origin) in enumerate(_TITLES):
        at = now - timedelta(hours=2 + 9 * n * (1 + n // 4))
        made = _session(tx, title, surface, origin, at)
        _exchange(
            tx,
            made,
            at,
            f"Tell me about this: {title.lower()}.",
            "Here is a first version. What should change?",
        )
        others.append(made)
        found = sessions.get(tx, made)
        if n in (0, 4):
            sessions.set_project(at_time(tx, at), found, project.id)
        if n in (1, 9):
            sessions.set_pinned(at_time(tx, at), found, True)
        if n in _TAGS:
            projects.put_tags(at_time(tx, at), VIEWER, made, _TAGS[n])
    shown = _story(tx, now)
    sessions.set_project(at_time(tx, now), sessions.get(tx, shown), project.id)
    for day in range(30):
        _used(tx, shown, others, now - timedelta(days=day), day)
    deliveries.enqueue(
        at_time(tx, now),
        Target("telegram", "bot", "9"),
        "It is in `runner.py` now.",
        of=Scope(DEFAULT_PROFILE, OPERATOR, shown),
    )
    return shown


def _session(tx: Transaction, title: str, surface: str, origin: Source | None, at: datetime) -> SessionId:
    owner = _person(tx, origin.user, origin.user_name or "", at) if origin and origin.user else OPERATOR
    made = sessions.create(
        at_time(tx, at), profile=DEFAULT_PROFILE, owner=owner, surface=surface, origin=origin
    )
    if origin and origin.user:
        lane = lane_store.ensure(at_time(tx, at), lanes.build_address(origin), origin, owner=owner)
        lane_store.move(at_time(tx, at), lane, made, why="first message")
    sessions.rename(at_time(tx, at), sessions.get(tx, made), title, by=TitleBy.PERSON)
    return made


def _person(tx: Transaction, person: str, name: str, at: datetime) -> PrincipalId:
    return people.resolve(
        at_time(tx, at), profile=DEFAULT_PROFILE, platform="telegram", person=person, name=name
    )


def _exchange(tx: Transaction, session: SessionId, at: datetime, asked: str, answered: str) -> None:
    turn = TurnId(ids.new(at))
    sessions.count_turn(at_time(tx, at), session)
    messages.append(at_time(tx, at), session, Role.USER, text_parts(asked), turn=turn, surface="web")
    messages.append(
        at_time(tx, at + timedelta(seconds=4)), session, Role.ASSISTANT, text_parts(answered), turn=turn
    )


def _story(tx: Transaction, now: datetime) -> SessionId:
    origin = Source(platform="telegram", chat="9", user="9", user_name="Ann")
    begun = now - timedelta(hours=26)
    _earlier(tx, origin, begun)
    made = _session(tx, "Restarts of the billing worker", "gateway", origin, begun)

    def add(
        role: Role, parts: Parts, minutes: float, turn: str, mark: Mark | None = None, author: str = ""
    ) -> None:
        messages.append(
            at_time(tx, begun + timedelta(minutes=minutes)), made, role, parts, turn=TurnId(turn), mark=mark, author=author,
            surface="telegram" if author else "web" if role is Role.USER else "",
        )  # fmt: skip

    add(
        Role.USER,
        text_parts("Since yesterday the second worker of billing restarts every few minutes. Why?"),
        0,
        "t1",
        author="Ann",
    )
    add(
        Role.ASSISTANT,
        (
            Reasoning("They want the cause, not a restart. The logs of a day should be enough."),
            Text("I look at the logs and at the settings."),
            ToolCall("c1", "search_logs", '{"service": "billing", "since": "24h"}'),
            ToolCall("c2", "read_file", '{"path": "/etc/billing/worker.toml"}'),
        ),
        0.1,
        "t1",
    )
    add(
        Role.TOOL,
        (ToolResult("c1", "search_logs", "14 restarts\n" + "worker b: lease lost\n" * 12),),
        0.15,
        "t1",
    )
    add(Role.TOOL, (ToolResult("c2", "read_file", "no such file", failed=True),), 0.16, "t1")
    add(Role.ASSISTANT, text_parts(_ANSWER), 0.4, "t1")
    for minutes in (0, 24 * 60, 25 * 60):
        sessions.count_turn(at_time(tx, begun + timedelta(minutes=minutes)), made)
    epochs.begin(
        at_time(tx, now), made, first_seq=5, summary="Billing worker b lost its lease 14 times in a day."
    )
    add(Role.USER, text_parts("Good. Write the change, please."), 24 * 60, "t2")
    add(
        Role.ASSISTANT,
        text_parts("The change is small: the runner renews"),
        24 * 60 + 1,
        "t2",
        Mark.INTERRUPTED,
    )
    add(Role.USER, text_parts("Go on where you were."), 25 * 60, "t3")
    add(
        Role.ASSISTANT,
        text_parts("It is in `runner.py` now, with a test that lets a tool sleep for a minute."),
        25 * 60 + 1,
        "t3",
    )
    return made


def _earlier(tx: Transaction, origin: Source, until: datetime) -> None:
    """What was talked about in a place before a silence, after which its lane began anew."""
    at = until - timedelta(days=3)
    made = _session(tx, "Billing alerts at night", "gateway", origin, at)
    _exchange(tx, made, at, "Which alerts may wait until the morning?", "All but the one of the ledger.")
    lane = lane_store.list_for_session(tx, made)[0]
    sessions.end(at_time(tx, until), sessions.get(tx, made), EndReason.IDLE)
    lane_store.move(at_time(tx, until), lane, None, why=EndReason.IDLE)


def _used(tx: Transaction, shown: SessionId, others: list[SessionId], at: datetime, day: int) -> None:
    """What was used on a day: most of it in other conversations than the one that is shown."""
    ann = _person(tx, "9", "Ann", at)
    for n, (model, surface, asker) in enumerate(
        (("large", "web", OPERATOR), ("small", "gateway", ann), ("local", "cli", OPERATOR))
    ):
        if (day * 3 + n) % 5 == 0:
            continue
        session = shown if n == 1 and day < 2 else others[(day * 3 + n) % len(others)]
        turn = Turn(
            id=TurnId(ids.new(at)), session=session, profile=DEFAULT_PROFILE, owner=OPERATOR, asker=asker,
            state=TurnState.DONE, mode=BusyMode.QUEUE, attempts=1, created_at=at, input_seq=1, surface=surface,
        )  # fmt: skip
        size = 1 + (day * 7 + n * 13) % 11
        usage.add(
            at_time(tx, at),
            turn,
            Usage(
                model=model, input=size * 2100, output=size * 640, cache_read=size * 900, cost=size * 4100 // (n + 1),
                context_used=31_000, context_limit=128_000,
            ),
        )  # fmt: skip


async def add_steps(path: Path, title: str) -> SessionId:
    """Add a conversation whose agent thought and called a tool in five messages, one after the other."""
    async with SqliteDatabase(path) as database:
        return await database.write("steps", lambda tx: _steps(tx, title))


def _steps(tx: Transaction, title: str) -> SessionId:
    at = datetime.now(UTC) - timedelta(minutes=5)
    made = _session(tx, title, "web", None, at)
    turn = TurnId(ids.new(at))
    now = at_time(tx, at)
    messages.append(now, made, Role.USER, text_parts("look at it"), turn=turn, surface="web")
    for n, (thought, path) in enumerate(_LOOKS, 1):
        parts = (Reasoning(thought), ToolCall(f"s{n}", "read_file", f'{{"path": "{path}"}}'))
        messages.append(now, made, Role.ASSISTANT, parts, turn=turn)
        # The first one takes no time.
        now = at_time(tx, now.now + timedelta(seconds=0.7 * (n - 1)))
        messages.append(now, made, Role.TOOL, (ToolResult(f"s{n}", "read_file", f"text {n}"),), turn=turn)
    messages.append(now, made, Role.ASSISTANT, text_parts("I have looked."), turn=turn)
    return made
