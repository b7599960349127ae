"""Conversations under every order of events: nothing is lost, doubled or reordered, and no stale lease writes.

A machine of people, workers and crashes drives the engine's units of work, each in a transaction of its own, against
a model made of plain lists."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests import builders
from tests.builders import at_time, work_at

from keryx.core import lanes, turns
from keryx.core import messages as core_messages
from keryx.core.errors import Conflict, KeryxError, LeaseLost, NotFound
from keryx.core.ids import DEFAULT_PROFILE, PrincipalId, SessionId, TurnId, WorkerId
from keryx.core.messages import Mark, Role, ToolCall, ToolResult, text_parts
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.ports.agent import AgentEvent, TextDelta, ToolCallEvent, ToolResultEvent
from keryx.core.sessions import Viewer
from keryx.core.source import Source
from keryx.core.turns import BusyMode, Turn, TurnState
from keryx.engine.policy import Policy
from keryx.engine.units import control, receive, revisions, turn_writes
from keryx.store import lanes as lanes_store
from keryx.store import messages, sessions
from keryx.store import turns as turns_store
from keryx.store.db import SESSION_NAME, Transaction
from keryx.store.db.postgres import PostgresTransaction
from keryx.store.db.sqlite import SqliteTransaction, open_store
from keryx.testing import START_TIME

T = TypeVar("T")
Transact = Callable[[], AbstractContextManager[Transaction]]

POLICY = Policy()
LEASE = timedelta(seconds=15)
FRESH = timedelta(hours=1)
ANN = PrincipalId("ann")
ANNS = Viewer(DEFAULT_PROFILE, ANN)
CHATS = (0, 1)
WORKERS = (WorkerId("one"), WorkerId("two"))
chats = st.sampled_from(CHATS)
texts = st.text("abc \x00\ud800é", min_size=1, max_size=4)
_names = count()


@dataclass
class Entry:
    role: Role
    text: str
    turn: TurnId | None
    mark: str | None = None
    undone: int = 0


@dataclass
class Waiting:
    id: TurnId
    mode: BusyMode
    input_seq: int


@dataclass
class Talk:
    """What the model knows of a session."""

    id: SessionId
    log: list[Entry] = field(default_factory=list[Entry])
    queue: list[Waiting] = field(default_factory=list[Waiting])
    running: Turn | None = None
    input: Waiting | None = None
    cancelling: bool = False
    draft: str = ""
    undos: int = 0

    @property
    def busy(self) -> bool:
        return self.running is not None or bool(self.queue)

    def say(self, role: Role, text: str, turn: TurnId | None, mark: str | None = None) -> None:
        self.log.append(Entry(role, text, turn, mark))

    def keep_draft(self, turn: TurnId, mark: str | None) -> None:
        if self.draft:
            self.say(Role.ASSISTANT, self.draft, turn, mark)
        self.draft = ""

    def end(self) -> None:
        self.running, self.input, self.cancelling = None, None, False

    def merge(self, waiting: Waiting, into: TurnId) -> None:
        self.queue.remove(waiting)
        for entry in self.log:
            if entry.turn == waiting.id:
                entry.turn = into

    def set_aside(self, turn: TurnId, *, refused: bool) -> str:
        """Mark the questions of a turn without an answer; gives what the person is told."""
        own = [entry for entry in self.log if entry.turn == turn]
        if not refused and any(
            e.role is Role.TOOL or (e.role is Role.ASSISTANT and (e.text.strip() or not e.mark)) for e in own
        ):
            return ""
        asked = [e for e in own if e.role is Role.USER and e.mark is None]
        for entry in asked:
            entry.mark = Mark.FAILED
        hint = " Your message is left out of the conversation from here on; /retry sends it again."
        return hint if asked else ""

    def mark_stopped(self, turn: TurnId) -> None:
        """Mark the questions of a turn that was stopped before its first word."""
        own = [entry for entry in self.log if entry.turn == turn]
        if not any(e.role in (Role.ASSISTANT, Role.TOOL) and e.mark != Mark.LATE for e in own):
            for entry in own:
                if entry.role is Role.USER and entry.mark is None:
                    entry.mark = Mark.CANCELLED

    def withdraw(self) -> None:
        queued = {waiting.id for waiting in self.queue}
        for entry in self.log:
            if entry.turn in queued and entry.role is Role.USER:
                entry.mark = Mark.WITHDRAWN
        self.queue.clear()

    def last_turns(self, wanted: int) -> list[TurnId]:
        """The last turns that stand, newest first, by their first question."""
        first: dict[TurnId, int] = {}
        for n, entry in enumerate(self.log):
            withdrawn = entry.undone or entry.mark == Mark.WITHDRAWN
            if entry.role is Role.USER and entry.turn and not withdrawn:
                first.setdefault(entry.turn, n)
        return sorted(first, key=lambda turn: -first[turn])[:wanted]


@dataclass
class Place:
    """What the model knows of a lane."""

    session: SessionId | None = None
    suspended: bool = False
    had: list[SessionId] = field(default_factory=list[SessionId])


class Conversations(RuleBasedStateMachine):
    def __init__(self, transact: Transact) -> None:
        super().__init__()
        self._transact = transact
        self._name = f"m{next(_names)}"
        self._now = START_TIME
        self._events: list[tuple[InboundMessage, Receipt]] = []
        self._talks: dict[SessionId, Talk] = {}
        self._places = {chat: Place() for chat in CHATS}
        self._stale: list[Turn] = []
        self._calls = count()

    def do(self, work: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """One unit of work; one that raises changes nothing."""
        now, self._now = self._now, self._now + timedelta(milliseconds=1)
        with self._transact() as tx:
            return work(at_time(tx, now), *args, **kwargs)

    def now(self) -> datetime:
        return self._now

    def inbound(self, chat: int, text: str, mode: BusyMode | None = None) -> InboundMessage:
        number = f"{self._name}-{len(self._events)}"
        source = Source(platform="fake", chat=f"{self._name}-{chat}", user="ann", message=number)
        return InboundMessage(
            event=number,
            source=source,
            parts=text_parts(text),
            surface="test",
            principal=ANN,
            busy=mode,
            commands=False,
        )

    def talk(self, chat: int) -> Talk | None:
        session = self._places[chat].session
        return self._talks[session] if session else None

    def at_work(self, chat: int) -> tuple[Talk, Turn] | None:
        talk = self.talk(chat)
        return (talk, talk.running) if talk and talk.running else None

    @rule(chat=chats, said=st.lists(st.tuples(texts, st.sampled_from(BusyMode)), min_size=1, max_size=3))
    def receive(self, chat: int, said: list[tuple[str, BusyMode]]) -> None:
        for text, mode in said:
            self.take_in(chat, text, mode)

    @rule(
        chat=chats, mode=st.sampled_from([BusyMode.COLLECT, BusyMode.STEER]), worker=st.sampled_from(WORKERS)
    )
    def join(self, chat: int, mode: BusyMode, worker: WorkerId) -> None:
        """Several messages that are meant for one turn, and the turn."""
        for text in ("one", "two"):
            self.take_in(chat, text, mode)
        self.claim(chat, worker)
        self.steer(chat)

    @rule(chat=chats, text=texts, worker=st.sampled_from(WORKERS), ends=st.integers(1, 3))
    def exchange(self, chat: int, text: str, worker: WorkerId, ends: int) -> None:
        """A question and the ends of as many turns as there is time for."""
        self.take_in(chat, text, BusyMode.QUEUE)
        for _ in range(ends):
            self.claim(chat, worker)
            self.progress(chat, [TextDelta(text)])
            self.finish(chat)

    @rule(chat=chats, wanted=st.lists(st.integers(1, 2), min_size=1, max_size=2))
    def change_the_mind(self, chat: int, wanted: list[int]) -> None:
        for number in wanted:
            self.undo(chat, number)
        for _ in wanted:
            self.redo(chat)

    def take_in(self, chat: int, text: str, mode: BusyMode) -> None:
        message = self.inbound(chat, text, mode)
        receipt = self.do(receive.receive, message, policy=POLICY)
        self._events.append((message, receipt))
        place = self._places[chat]
        if place.suspended and place.session and not self._talks[place.session].busy:
            place.session, place.suspended = None, False
        assert receipt.session and receipt.turn and receipt.seq
        if place.session is None:
            assert receipt.session not in self._talks
            self._talks[receipt.session] = Talk(receipt.session)
            place.session = receipt.session
            place.had.append(receipt.session)
        assert receipt.session == place.session
        talk = self._talks[receipt.session]
        talk.say(Role.USER, text, receipt.turn)
        talk.queue.append(Waiting(receipt.turn, mode, receipt.seq))
        if mode is BusyMode.INTERRUPT and talk.running:
            talk.cancelling = True

    @precondition(lambda self: self._events)
    @rule(data=st.data())
    def receive_again(self, data: st.DataObject) -> None:
        message, first = data.draw(st.sampled_from(self._events))
        again = self.do(receive.receive, message, policy=POLICY)
        assert again.duplicate and msgspec.structs.replace(again, duplicate=False) == first

    @rule(chat=chats, worker=st.sampled_from(WORKERS))
    def work(self, chat: int, worker: WorkerId) -> None:
        self.claim(chat, worker)

    def claim(self, chat: int, name: WorkerId) -> None:
        # What an earlier example left running in the same store is none of this one's.
        worker = WorkerId(f"{self._name}-{name}")
        talk = self.talk(chat)
        if talk is None:
            return
        waits = talk.running or not talk.queue or self.must_wait(talk.queue[0], worker)
        turn = self.do(builders.claim, worker=worker, at=self.now(), per_principal=10_000, session=talk.id)
        if waits:
            assert turn is None
            return
        first = talk.queue.pop(0)
        assert turn is not None and turn.id == first.id
        talk.running, talk.input = turn, first
        while first.mode is BusyMode.COLLECT and talk.queue and talk.queue[0].mode is BusyMode.COLLECT:
            talk.merge(talk.queue[0], into=turn.id)

    def must_wait(self, waiting: Waiting, worker: WorkerId) -> bool:
        """A worker runs one suspect at a time."""
        running = [t.running for t in self._talks.values() if t.running and t.running.worker == worker]
        suspect = self.do(turns_store.get, waiting.id).attempts >= turns.SUSPECT_ATTEMPTS - 1
        return suspect and any(t.attempts >= turns.SUSPECT_ATTEMPTS for t in running)

    @rule(chat=chats, text=texts)
    def draft(self, chat: int, text: str) -> None:
        self.progress(chat, [TextDelta(text)])

    @rule(chat=chats, text=texts, returned=st.booleans())
    def step(self, chat: int, text: str, returned: bool) -> None:
        call = ToolCall(f"c{next(self._calls)}", "tool", text)
        result = [ToolResultEvent(ToolResult(call.id, "tool", text))] if returned else []
        self.progress(chat, [ToolCallEvent((call,)), *result])

    def progress(self, chat: int, events: list[AgentEvent]) -> None:
        found = self.at_work(chat)
        if found is None:
            return
        talk, turn = found
        self.do(turn_writes.append_events, turn, events)
        for event in events:
            match event:
                case TextDelta(text):
                    talk.draft += text
                case ToolCallEvent():
                    talk.say(Role.ASSISTANT, talk.draft, turn.id)
                    talk.draft = ""
                case ToolResultEvent():
                    talk.say(Role.TOOL, "", turn.id)
                case _:
                    pass

    @rule(chat=chats)
    def look_for_more(self, chat: int) -> None:
        self.steer(chat)

    def steer(self, chat: int) -> None:
        found = self.at_work(chat)
        if found is None:
            return
        talk, turn = found
        expected: list[str] = []
        while talk.queue and talk.queue[0].mode is BusyMode.STEER:
            waiting = talk.queue[0]
            expected.append(talk.log[waiting.input_seq - 1].text)
            talk.merge(waiting, into=turn.id)
        given = self.do(turn_writes.steer, turn)
        assert [m.text for m in given] == expected

    @rule(chat=chats)
    def answer(self, chat: int) -> None:
        self.finish(chat)

    def finish(self, chat: int) -> None:
        found = self.at_work(chat)
        if found is None:
            return
        talk, turn = found
        self.do(turn_writes.finish, turn)
        talk.keep_draft(turn.id, None)
        own = [e for e in talk.log if e.turn == turn.id and e.role is Role.ASSISTANT and e.mark is None]
        if not any(e.text for e in own):
            talk.say(Role.NOTICE, turn_writes.NO_ANSWER, turn.id)
        self.leave(talk, turn)

    @rule(chat=chats, refused=st.booleans())
    def fail(self, chat: int, refused: bool) -> None:
        found = self.at_work(chat)
        if found is None:
            return
        talk, turn = found
        self.do(turn_writes.fail, turn, "no luck", refused=refused)
        talk.keep_draft(turn.id, "failed")
        talk.say(Role.NOTICE, "no luck" + talk.set_aside(turn.id, refused=refused), turn.id)
        self.leave(talk, turn)

    @rule(chat=chats)
    def stop(self, chat: int) -> None:
        talk = self.talk(chat)
        if talk is None:
            return
        stopped = self.do(control.stop, talk.id)
        assert (stopped is None) == (talk.running is None)
        talk.cancelling = talk.running is not None

    @rule(chat=chats)
    def cancel(self, chat: int) -> None:
        found = self.at_work(chat)
        if found is None or not found[0].cancelling:
            return
        talk, turn = found
        self.do(turn_writes.cancel, turn)
        talk.keep_draft(turn.id, "cancelled")
        talk.mark_stopped(turn.id)
        self.leave(talk, turn)

    @rule(chat=chats)
    def hand_back(self, chat: int) -> None:
        found = self.at_work(chat)
        if found is None:
            return
        talk, turn = found
        self.do(turn_writes.hand_back, turn)
        talk.keep_draft(turn.id, "interrupted")
        assert talk.input
        talk.queue.insert(0, talk.input)
        self.leave(talk, turn)

    @rule(chat=chats)
    def crash(self, chat: int) -> None:
        """The worker of a running turn dies, and somebody finds it."""
        found = self.at_work(chat)
        if found is None:
            return
        talk, held = found
        turn = self.do(turns_store.get, held.id)
        assert (turn.lease, turn.attempts, turn.cancelling) == (held.lease, held.attempts, talk.cancelling)
        ((_, state),) = self.do(turn_writes.recover, [turn], fresh=FRESH, lease=LEASE)
        talk.keep_draft(turn.id, "interrupted")
        if talk.cancelling:
            assert state is TurnState.CANCELLED
            talk.mark_stopped(turn.id)
        elif turns.is_poisonous(turn.attempts, turn.blame + 1):
            assert state is TurnState.PARKED
            talk.say(Role.NOTICE, "parked", turn.id)
            for place in self._places.values():
                place.suspended = place.suspended or place.session == talk.id
        else:
            assert state is TurnState.QUEUED and talk.input
            talk.queue.insert(0, talk.input)
        self.leave(talk, turn)

    def leave(self, talk: Talk, turn: Turn) -> None:
        talk.end()
        self._stale.append(turn)

    @precondition(lambda self: self._stale)
    @rule(data=st.data())
    def a_stale_worker_can_write_nothing(self, data: st.DataObject) -> None:
        turn = data.draw(st.sampled_from(self._stale))
        now = self.now()
        units: list[Callable[[Transaction], object]] = [
            work_at(now, partial(turn_writes.append_events, turn=turn, events=[TextDelta("stale")])),
            work_at(now, partial(turn_writes.steer, turn=turn)),
            work_at(now, partial(turn_writes.finish, turn=turn)),
            work_at(now, partial(turn_writes.fail, turn=turn, error="stale")),
            work_at(now, partial(turn_writes.cancel, turn=turn)),
            work_at(now, partial(turn_writes.hand_back, turn=turn)),
        ]
        assert self.do(turn_writes.recover, [turn], fresh=FRESH, lease=LEASE) == []
        for unit in units:
            with pytest.raises(LeaseLost):
                self.do(unit)

    @rule(chat=chats, wanted=st.integers(1, 3))
    def take_turns_back(self, chat: int, wanted: int) -> None:
        self.undo(chat, wanted)

    def undo(self, chat: int, wanted: int) -> None:
        talk = self.talk(chat)
        if talk is None:
            return
        session = self.do(sessions.get, talk.id)
        undone = talk.last_turns(wanted)
        if talk.busy or not undone:
            with pytest.raises(Conflict if talk.busy else NotFound):
                self.do(revisions.undo, session, wanted)
            return
        told = self.do(revisions.undo, session, wanted)
        question = next(e for e in talk.log if e.turn == undone[0] and e.role is Role.USER and not e.undone)
        assert (told.turns, told.text) == (len(undone), question.text)
        self.take_back(talk, undone)

    def take_back(self, talk: Talk, undone: list[TurnId]) -> None:
        talk.undos += 1
        for entry in talk.log:
            if entry.turn in undone and not entry.undone:
                entry.undone = talk.undos

    @rule(chat=chats)
    def bring_turns_back(self, chat: int) -> None:
        self.redo(chat)

    def redo(self, chat: int) -> None:
        talk = self.talk(chat)
        if talk is None:
            return
        session = self.do(sessions.get, talk.id)
        group = max((e.undone for e in talk.log), default=0)
        first = next((n for n, e in enumerate(talk.log) if group and e.undone == group), 0)
        said_since = any(e.role is Role.USER and not e.undone for e in talk.log[first + 1 :])
        if talk.busy or not group or said_since:
            with pytest.raises(Conflict if talk.busy else NotFound):
                self.do(revisions.redo, session)
            return
        brought = [e for e in talk.log if e.undone == group]
        assert self.do(revisions.redo, session) == len(brought)
        for entry in brought:
            entry.undone = 0

    @rule(chat=chats)
    def retry(self, chat: int) -> None:
        talk = self.talk(chat)
        if talk is None or talk.busy:
            return
        session = self.do(sessions.get, talk.id)
        last = talk.last_turns(1)
        if not last:
            with pytest.raises(NotFound):
                self.do(revisions.retry, session, asker=ANN, surface="test")
            return
        questions = [e for e in talk.log if e.turn == last[0] and e.role is Role.USER and not e.undone]
        receipt = self.do(revisions.retry, session, asker=ANN, surface="test")
        self.take_back(talk, last)
        assert receipt.turn and receipt.seq
        for question in questions:
            talk.say(Role.USER, question.text, receipt.turn)
        talk.queue.append(Waiting(receipt.turn, BusyMode.QUEUE, receipt.seq))

    @rule(chat=chats)
    def fork(self, chat: int) -> None:
        talk = self.talk(chat)
        if talk is None:
            return
        session = self.do(sessions.get, talk.id)
        open_turns = {w.id for w in (*talk.queue, *([talk.input] if talk.input else []))}
        closed = [e for e in talk.log if e.turn not in open_turns]
        if not closed:
            with pytest.raises(KeryxError):
                self.do(revisions.fork, session, surface="test")
            return
        child = self.do(revisions.fork, session, surface="test")
        assert (child.parent, child.parent_seq) == (talk.id, len(talk.log))
        copied = [Entry(e.role, e.text, e.turn, e.mark, e.undone) for e in closed]
        self._talks[child.id] = Talk(child.id, log=copied, undos=talk.undos)
        self._places[chat].had.append(child.id)

    @rule(chat=chats)
    def begin_anew(self, chat: int) -> None:
        lane = self.lane(chat)
        talk = self.talk(chat)
        if lane is None or talk is None:
            return
        old = self.do(control.start_new_session, lane)
        assert old and old.id == talk.id
        talk.withdraw()
        talk.cancelling = talk.running is not None
        self._places[chat].session, self._places[chat].suspended = None, False

    @rule(chat=chats, data=st.data())
    def resume(self, chat: int, data: st.DataObject) -> None:
        lane = self.lane(chat)
        place = self._places[chat]
        if lane is None or not place.had:
            return
        wanted = data.draw(st.sampled_from(place.had))
        session = self.do(sessions.get, wanted)
        self.do(control.switch, lane, session, why="resume")
        place.session, place.suspended = wanted, False

    def lane(self, chat: int) -> lanes.Lane | None:
        source = self.inbound(chat, "").source
        found = self.do(lanes_store.list_recent, ANNS, limit=10_000)
        return next((lane for lane in found if lane.source.chat == source.chat), None)

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        with self._transact() as tx:
            for talk in self._talks.values():
                self.check(tx, talk)
            for place in self._places.values():
                if place.session:
                    found = lanes_store.list_for_session(tx, place.session)
                    assert any(lane.suspended == place.suspended for lane in found)

    def check(self, tx: Transaction, talk: Talk) -> None:
        stored = messages.list_after(tx, talk.id, after=0)
        assert [m.seq for m in stored] == list(range(1, len(stored) + 1))
        assert [(m.role, m.turn, m.mark, m.undone) for m in stored] == [
            (e.role, e.turn, e.mark, e.undone) for e in talk.log
        ]
        for message, entry in zip(stored, talk.log, strict=True):
            assert message.text == entry.text or entry.text == "parked"
        assert [t.id for t in turns_store.list_queued(tx, talk.id)] == [w.id for w in talk.queue]
        running = tx.rows("select id from turns where session = :s and state = 'running'", {"s": talk.id})
        assert [r[0] for r in running] == ([talk.running.id] if talk.running else [])
        waiting = frozenset(w.id for w in talk.queue)
        assert_paired(core_messages.build_model_view(stored, aside=waiting))


def assert_paired(view: list[core_messages.Message]) -> None:
    """Every call is followed by its results, and no result stands without its call."""
    open_calls: set[str] = set()
    for message in view:
        if message.role is not Role.TOOL:
            assert not open_calls
            open_calls = {c.id for c in message.calls}
        else:
            results = [p.id for p in message.parts if isinstance(p, ToolResult)]
            assert results and set(results) <= open_calls
            open_calls -= set(results)
    assert not open_calls


def run(transact: Transact, *, examples: int, steps: int) -> None:
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        deadline=None,
    )

    class Machine(Conversations):
        def __init__(self) -> None:
            super().__init__(transact)

    run_state_machine_as_test(Machine, settings=chosen)


def test_no_order_of_events_loses_doubles_or_reorders_anything(tmp_path: Path) -> None:
    connection = open_store(tmp_path / "keryx.db")
    connection.execute("pragma synchronous = off")  # pyright: ignore[reportUnknownMemberType]

    @contextmanager
    def transact() -> Generator[Transaction]:
        with connection:
            yield SqliteTransaction(connection, START_TIME)

    try:
        run(transact, examples=settings().max_examples, steps=60)
    finally:
        connection.close()


def test_no_order_of_events_loses_doubles_or_reorders_anything_on_postgres(
    postgres: str, schema: str
) -> None:
    with psycopg.connect(
        postgres, options=f"-c search_path={schema}", application_name=SESSION_NAME, autocommit=True
    ) as connection:

        @contextmanager
        def transact() -> Generator[Transaction]:
            with connection.transaction():
                tx = PostgresTransaction(connection, START_TIME)
                yield tx
                tx.row("select 1")  # what was put off goes with it

        run(transact, examples=settings().max_examples // 5, steps=40)
