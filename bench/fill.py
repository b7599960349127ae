"""Fill: many lanes, sessions, messages, turns and deliveries, each a copy of one that the product made."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec
from tests.builders import at_time

from bench import copies
from bench.copies import Sample, Value
from keryx.core import ids, lanes
from keryx.core.clock import to_micros
from keryx.core.deliveries import Target
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, DeliveryId, LaneKey, PrincipalId, SessionId, TurnId
from keryx.core.messages import Role, text_parts
from keryx.core.ports.adapter import Receipt
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.core.turns import BusyMode
from keryx.store import deliveries, inbox, messages, people, projects, sessions, turns
from keryx.store import lanes as lane_store
from keryx.store.db import Database, Transaction

PLATFORM, ACCOUNT = "bench", "bot"
_UNIT = 2000
_OPERATORS = Viewer(DEFAULT_PROFILE, OPERATOR)
# Filters of the list for what `filtered_sessions` makes.
FILTERS = (
    "is:running",
    "is:waiting",
    "is:failed",
    "is:archived",
    "is:deleted",
    "is:pinned",
    "surface:web",
    "surface:acp",
    "person:many",
    "person:few",
    "project:many",
    "project:few",
    "tag:many",
    "tag:few",
    "after:30d",
    "before:30d",
    "surface:web tag:many after:30d",
)
# Numbers that stand for those of a copy: nothing else in a row may look like them.
_NUMBER, _SEQ = 987_654_321, 456_789_123
# A short while ago: a lane that was silent for a day gets a new session with its next message, which costs more.
_START = datetime.now(UTC) - timedelta(minutes=10)
_STEP = timedelta(milliseconds=5)
_SAID = (
    "Could you look at the deployment of the billing service again? Since yesterday evening the second worker "
    "restarts every few minutes, and I do not see why; the logs say nothing but the usual start-up lines."
)


class Filled(msgspec.Struct, frozen=True):
    """A lane with its session, as benchmarks need it."""

    lane: LaneKey
    session: SessionId
    owner: PrincipalId


def source(n: int) -> Source:
    return Source(platform=PLATFORM, account=ACCOUNT, chat=str(n), user=str(n), user_name=f"Person {n}")


def target(n: int) -> Target:
    return Target(PLATFORM, ACCOUNT, str(n))


async def lanes_with_sessions(database: Database, count: int) -> list[Filled]:
    """People with a lane, a session and one message each, and the inbox that remembers the messages."""
    found: list[Filled] = []
    key = lanes.build_address(source(_NUMBER)).key

    def marks(tx: Transaction) -> Mapping[str, Value]:
        made = lane(tx, _NUMBER)
        return {**_numbered(_NUMBER), "session": made.session, "owner": made.owner}

    def copy(n: int) -> tuple[Value, ...]:
        made = Filled(
            LaneKey(key.replace(str(_NUMBER), str(n))), SessionId(ids.new(at(n))), PrincipalId(ids.new(at(n)))
        )
        found.append(made)
        return *_numbered(n).values(), made.session, made.owner

    await _in_units(database, await copies.sampled(marks), range(count), copy)
    return found


async def filtered_sessions(database: Database, count: int) -> None:
    """Sessions of several surfaces and people, with projects, tags, dates and turns in each state. Of each kind there are
    many, one in five, and few, which are the oldest."""
    await sessions_with_turns(database, count)

    def mark(tx: Transaction) -> None:
        now = datetime.now(UTC)
        for name in ("many", "few"):
            project = projects.add(at_time(tx, now), _OPERATORS, name=name, colour="")
            tag = projects.add_tag(at_time(tx, now), _OPERATORS, name)
            person = people.resolve(
                at_time(tx, now), profile=DEFAULT_PROFILE, platform=PLATFORM, person=name, name=name
            )
            of = {"few": "n <= 40", "many": "n % 5 = 0"}[name]
            chosen = f"id in (select id from numbered where {of})"
            numbered = (
                "with numbered as (select id, row_number() over (order by active_at) as n from sessions)"
            )
            surface = {"few": "acp", "many": "web"}[name]
            tx.run(
                f"""
                {numbered}
                update sessions set project = :project, surface = :surface, owner = :person where {chosen}
                """,
                {"project": project.id, "surface": surface, "person": person},
            )
            tx.run(
                f"{numbered} insert into session_tags (session, tag) select id, :tag from numbered where {of}",
                {"tag": tag.id},
            )
        tx.run("update turns set state = 'done', ready_at = null where position % 10 > 0")
        oldest = "select min(position) from turns"
        tx.run(
            f"""
            update turns set state = 'running', lease = id, lease_until = 0, ready_at = null
            where position < ({oldest}) + 20
            """
        )
        tx.run(
            f"update turns set state = 'failed' where position between ({oldest}) + 20 and ({oldest}) + 60"
        )
        tx.run(
            "update sessions set pinned = 1 where id in (select id from sessions order by active_at desc limit 20)"
        )
        old = {"old": to_micros(now - timedelta(days=90))}
        tx.run(
            """
            update sessions set active_at = active_at - 7776000000000
            where id in (select id from sessions order by active_at limit 1000)
            """
        )
        tx.run(
            "update sessions set archived = 1 where surface = :bench and active_at < :old",
            {**old, "bench": PLATFORM},
        )
        tx.run(
            """
            update sessions set deleted_at = :old, erase_at = :old
            where id in (select id from sessions where archived = 1 limit 200)
            """,
            old,
        )
        tx.run("analyze")

    await database.write("fill", mark)


async def session_with_messages(database: Database, count: int) -> SessionId:
    """One session of many messages, question and answer in turns."""
    made = await database.write("fill", lambda tx: session(tx, 0))

    def marks(tx: Transaction) -> Mapping[str, Value]:
        said(tx, made, _NUMBER)
        return {**_numbered(_NUMBER), "seq": _SEQ, "role": _role(_NUMBER), "turn": _NUMBER // 2}

    def copy(n: int) -> tuple[Value, ...]:
        return *_numbered(n).values(), n + 1, _role(n), n // 2

    samples = await copies.sampled(marks, after=lambda tx: _long(tx, made), without=("sessions",))
    await _in_units(database, samples, range(count), copy)
    await database.write("fill", lambda tx: _grown(tx, made, count))
    return made


async def sessions_with_turns(database: Database, count: int) -> None:
    """One waiting turn in each of many sessions of many people."""

    def marks(tx: Transaction) -> Mapping[str, Value]:
        made = session(tx, _NUMBER)
        return {**_numbered(_NUMBER), "session": made, "turn": turn(tx, made, _NUMBER)}

    def copy(n: int) -> tuple[Value, ...]:
        return *_numbered(n).values(), ids.new(at(n)), ids.new(at(n))

    await _in_units(database, await copies.sampled(marks), range(count), copy)


async def turns_in_one_session(database: Database, count: int) -> SessionId:
    """Many waiting turns of one session, asked by different people."""
    made = await database.write("fill", lambda tx: session(tx, 0))
    await database.write("fill", lambda tx: turn(tx, made, 0))

    def before(tx: Transaction) -> None:
        _long(tx, made, waiting=True)

    def marks(tx: Transaction) -> Mapping[str, Value]:
        return {"turn": turn(tx, made, _NUMBER), **_numbered(_NUMBER), "seq": _SEQ}

    def copy(n: int) -> tuple[Value, ...]:
        return ids.new(at(n)), *_numbered(n).values(), n + 1

    samples = await copies.sampled(marks, after=before, without=("sessions",))
    await _in_units(database, samples, range(1, count), copy)
    await database.write("fill", lambda tx: _grown(tx, made, count))
    return made


async def ready_deliveries(database: Database, count: int, *, targets: range) -> None:
    """Deliveries that wait, spread over the chats in turns."""

    def marks(tx: Transaction) -> Mapping[str, Value]:
        return {"id": delivery(tx, _NUMBER), **_numbered(_NUMBER)}

    def copy(n: int) -> tuple[Value, ...]:
        return ids.new(at(n)), targets[n % len(targets)], to_micros(at(n))

    await _in_units(database, await copies.sampled(marks), range(count), copy)


def at(n: int) -> datetime:
    """When the thing with this number was made; the one that is copied is made with the first."""
    return _START + (n if n < _NUMBER else 0) * _STEP


def lane(tx: Transaction, n: int) -> Filled:
    """One lane with its session and message, as the product makes them."""
    now = at(n)
    place = source(n)
    owner = people.resolve(
        at_time(tx, now), profile=place.profile, platform=PLATFORM, person=str(n), name=f"Person {n}"
    )
    found = lane_store.ensure(at_time(tx, now), lanes.build_address(place), place, owner=owner)
    made = sessions.create(
        at_time(tx, now), profile=place.profile, owner=owner, surface=PLATFORM, origin=place
    )
    lane_store.move(at_time(tx, now), found, made, why="first message")
    seq = messages.append(at_time(tx, now), made, Role.USER, text_parts(_SAID), surface=PLATFORM)
    receipt = Receipt(duplicate=False, session=made, seq=seq)
    inbox.record(at_time(tx, now), receipt, platform=PLATFORM, account=ACCOUNT, event=f"fill-{n}")
    return Filled(found.key, made, owner)


def session(tx: Transaction, n: int, id: SessionId | None = None) -> SessionId:
    """A session without messages."""
    return sessions.create(
        at_time(tx, at(n)), id=id, profile=DEFAULT_PROFILE, owner=PrincipalId(f"person-{n}"), surface=PLATFORM
    )


def said(tx: Transaction, session: SessionId, n: int) -> None:
    """One message of a session; questions and answers take turns."""
    messages.append(
        at_time(tx, at(n)),
        session,
        _role(n),
        text_parts(f"{n}: {_SAID}"),
        turn=TurnId(f"turn-{n // 2}"),
        surface=PLATFORM,
    )


def turn(tx: Transaction, session: SessionId, n: int) -> TurnId:
    """One turn that waits in a session."""
    now = at(n)
    made = TurnId(ids.new(now))
    seq = messages.append(
        at_time(tx, now), session, Role.USER, text_parts(_SAID), turn=made, surface=PLATFORM
    )
    turns.enqueue(
        at_time(tx, now),
        sessions.get(tx, session),
        id=made,
        asker=f"person-{n}",
        surface=PLATFORM,
        input_seq=seq,
        mode=BusyMode.QUEUE,
        reply=target(n),
    )
    return made


def delivery(tx: Transaction, n: int) -> DeliveryId:
    """One delivery that waits for a chat."""
    return deliveries.enqueue(at_time(tx, at(n)), target(n), _SAID, of=Viewer(DEFAULT_PROFILE, OPERATOR))


async def _in_units(
    database: Database, samples: list[Sample], numbers: range, copy: Callable[[int], tuple[Value, ...]]
) -> None:
    for first in range(0, len(numbers), _UNIT):
        unit = [copy(n) for n in numbers[first : first + _UNIT]]
        await database.write("fill", lambda tx, unit=unit: copies.write(tx, samples, unit))


def _numbered(n: int) -> dict[str, Value]:
    """What differs between things that were made for different people, at different times."""
    return {"n": n, "at": to_micros(at(n))}


def _role(n: int) -> Role:
    return Role.ASSISTANT if n % 2 else Role.USER


def _long(tx: Transaction, id: SessionId, *, waiting: bool = False) -> None:
    """The same session, so long that the number of its next message is like no other."""
    session(tx, 0, id)
    if waiting:
        turn(tx, id, 0)
    tx.run("update sessions set last_seq = :last", {"last": _SEQ - 1})


def _grown(tx: Transaction, id: SessionId, count: int) -> None:
    tx.run(
        "update sessions set last_seq = :count, messages = :count, active_at = :at where id = :id",
        {"id": id, "count": count, "at": to_micros(at(count - 1))},
    )
