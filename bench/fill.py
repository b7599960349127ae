"""Fill: many lanes, sessions, messages, turns and deliveries, written in big units of work."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from keryx.core import ids, lanes
from keryx.core.deliveries import Target
from keryx.core.ids import DEFAULT_PROFILE, LaneKey, PrincipalId, SessionId, TurnId
from keryx.core.messages import Role, words
from keryx.core.ports import Receipt
from keryx.core.source import Source
from keryx.core.turns import BusyMode
from keryx.store import deliveries, inbox, messages, principals, sessions, turns
from keryx.store import lanes as lane_store
from keryx.store.database import Database, Transaction

PLATFORM, ACCOUNT = "bench", "bot"
_UNIT = 2000
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
    await _in_units(database, count, lambda tx, n: found.append(_lane(tx, n)))
    return found


async def session_with_messages(database: Database, count: int) -> SessionId:
    """One session of many messages, question and answer in turns."""
    made = await database.write("fill", lambda tx: _session(tx, 0))
    await _in_units(database, count, lambda tx, n: _said(tx, made, n))
    return made


async def sessions_with_turns(database: Database, count: int) -> None:
    """One waiting turn in each of many sessions of many people."""
    await _in_units(database, count, lambda tx, n: _turn(tx, _session(tx, n), n))


async def turns_in_one_session(database: Database, count: int) -> SessionId:
    """Many waiting turns of one session, asked by different people."""
    made = await database.write("fill", lambda tx: _session(tx, 0))
    await _in_units(database, count, lambda tx, n: _turn(tx, made, n))
    return made


async def ready_deliveries(database: Database, count: int, *, targets: range) -> None:
    """Deliveries that wait, spread over the chats in turns."""
    await _in_units(database, count, lambda tx, n: _delivery(tx, n, targets[n % len(targets)]))


async def _in_units(database: Database, count: int, one: Callable[[Transaction, int], object]) -> None:
    def work(tx: Transaction, first: int) -> None:
        for n in range(first, min(first + _UNIT, count)):
            one(tx, n)

    for first in range(0, count, _UNIT):
        await database.write("fill", lambda tx, first=first: work(tx, first))


def _at(n: int) -> datetime:
    return _START + n * _STEP


def _lane(tx: Transaction, n: int) -> Filled:
    at = _at(n)
    said = source(n)
    owner = principals.resolve(
        tx, profile=said.profile, platform=PLATFORM, person=str(n), name=f"Person {n}", now=at
    )
    lane = lane_store.ensure(tx, lanes.address(said), said, owner=owner, now=at)
    session = sessions.create(tx, profile=said.profile, owner=owner, surface=PLATFORM, origin=said, now=at)
    lane_store.move(tx, lane, session, why="first message", now=at)
    seq = messages.append(tx, session, Role.USER, words(_SAID), now=at, surface=PLATFORM)
    receipt = Receipt(duplicate=False, session=session, seq=seq)
    inbox.record(tx, receipt, platform=PLATFORM, account=ACCOUNT, event=f"fill-{n}", now=at)
    return Filled(lane.key, session, owner)


def _session(tx: Transaction, n: int) -> SessionId:
    return sessions.create(
        tx, profile=DEFAULT_PROFILE, owner=PrincipalId(f"person-{n}"), surface=PLATFORM, now=_at(n)
    )


def _said(tx: Transaction, session: SessionId, n: int) -> None:
    role = Role.ASSISTANT if n % 2 else Role.USER
    messages.append(
        tx, session, role, words(f"{n}: {_SAID}"), now=_at(n), turn=TurnId(f"turn-{n // 2}"), surface=PLATFORM
    )


def _turn(tx: Transaction, session: SessionId, n: int) -> None:
    at = _at(n)
    turn = TurnId(ids.new(at))
    seq = messages.append(tx, session, Role.USER, words(_SAID), now=at, turn=turn, surface=PLATFORM)
    person = f"person-{n}"
    turns.enqueue(
        tx,
        session,
        id=turn,
        profile=DEFAULT_PROFILE,
        owner=person,
        asker=person,
        surface=PLATFORM,
        input_seq=seq,
        mode=BusyMode.QUEUE,
        reply=target(n),
        now=at,
    )


def _delivery(tx: Transaction, n: int, chat: int) -> None:
    deliveries.enqueue(tx, target(chat), _SAID, profile=DEFAULT_PROFILE, owner="operator", now=_at(n))
