"""Conversation: one person at one terminal. What is said goes to the hub, what happens comes from the feed."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx.app import App
from keryx.cli import ending, transcript
from keryx.cli.stream import Stream
from keryx.core import ids, lanes
from keryx.core.changes import Change, Kind
from keryx.core.errors import CursorExpired, NotFound
from keryx.core.ids import OPERATOR, Cursor, QuestionId, SessionId, TurnId
from keryx.core.messages import words
from keryx.core.ports import Inbound, Receipt
from keryx.core.questions import told
from keryx.core.source import Source
from keryx.core.turns import TurnState
from keryx.engine.service import Service

SHOWN = 10
GONE = "This conversation was deleted. The next message starts a new one."


class Conversation:
    """A lane of its own, the session that the lane is in, and a stream that shows it. `asking` is the turn whose agent
    waits for an answer."""

    def __init__(self, app: App, service: Service, stream: Stream, group: TaskGroup) -> None:
        self.hub = service.hub
        self.viewer = app.viewer
        self.stream = stream
        self.session: SessionId | None = None
        self._policy = app.settings.policy
        self._runner = service.runner
        self._group = group
        self._source = source(app)
        self._showing = anyio.Lock()
        self._following = anyio.CancelScope()
        self._ends: dict[TurnId, anyio.Event] = {}
        self._states: dict[TurnId, TurnState] = {}
        self._unfinished: list[TurnId] = []
        self._told: set[QuestionId] = set()
        self._asked = anyio.Event()
        self.asking: TurnId | None = None

    async def go_on(self, session: SessionId) -> None:
        """Take up a session in this lane: show its last messages, and what happens from there on."""
        await self.hub.lanes.switch(self.viewer, self._inbound(""), session)
        await self._enter(session)

    async def say(self, text: str) -> Receipt:
        """Give the hub what was typed. A command may lead the lane elsewhere; the stream goes along."""
        async with self._showing:
            cursor = await self.hub.now()
            receipt = await self.hub.receive(self._inbound(text))
            if receipt.session and receipt.session == self.session and receipt.seq:
                self.stream.own(receipt.seq)
        if receipt.reply:
            self.stream.say(receipt.reply)
        if self.asking:
            await self._look_for_questions()
        if receipt.seq is None or receipt.session is None:
            await self._go_where_the_lane_went()
        elif receipt.session != self.session:
            self._leave()
            if receipt.seq:
                self.stream.own(receipt.seq)
            self._follow(receipt.session, cursor)
        return receipt

    async def ended(self, turn: TurnId) -> TurnState:
        """Wait until a turn has ended, and for the one that it was merged into."""
        await self._end(turn).wait()
        state = self._states[turn]
        if state is TurnState.MERGED:
            into = (await self.hub.turn(self.viewer, turn)).merged_into
            return await self.ended(into) if into else state
        return state

    async def paused(self, turn: TurnId) -> TurnState | None:
        """Wait until a turn has ended, or until something is asked here: then `None`."""
        state: TurnState | None = None
        async with anyio.create_task_group() as group:

            async def asked() -> None:
                await self._asked.wait()
                group.cancel_scope.cancel()

            group.start_soon(asked)
            state = await self.ended(turn)
            group.cancel_scope.cancel()
        return state

    async def settled(self) -> None:
        """Wait for the turns that ran or waited when the session was entered, or until something is asked."""
        while self._unfinished:
            if await self.paused(self._unfinished[0]) is None:
                return
            self._unfinished.pop(0)

    async def stop(self) -> None:
        if self.session:
            await self.hub.stop(self.viewer, self.session)

    async def _go_where_the_lane_went(self) -> None:
        address = lanes.address(self._source, sharing=self._policy.sharing)
        try:
            lane, _ = await self.hub.lanes.show(self.viewer, address.key)
        except NotFound:
            return
        if lane.session != self.session:
            before = self.session
            self._leave()
            if lane.session:
                await self._enter(lane.session, known=before)

    async def _enter(self, session: SessionId, *, known: SessionId | None = None) -> None:
        snapshot = await self.hub.open(self.viewer, session, limit=SHOWN)
        if known and snapshot.session.parent == known:
            # The words of a copy are on the screen already.
            snapshot = msgspec.structs.replace(snapshot, messages=[])
        self.stream.open(snapshot)
        self._unfinished = [t.id for t in (snapshot.running, *snapshot.queue) if t]
        self._follow(session, snapshot.cursor)
        if snapshot.questions:
            await self._look_for_questions()

    def _leave(self) -> None:
        self._following.cancel()
        self.session = None
        self._unfinished = []
        self.stream.forget()

    def _follow(self, session: SessionId, cursor: Cursor) -> None:
        self.session = session
        self._following = anyio.CancelScope()
        self._runner.serve(session)
        self._group.start_soon(self._show_changes, session, cursor, self._following)

    async def _show_changes(self, session: SessionId, cursor: Cursor, scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                try:
                    await self._show_after(session, cursor)
                except CursorExpired:
                    cursor = await self._catch_up(session)

    async def _show_after(self, session: SessionId, cursor: Cursor) -> None:
        async for change in self.hub.follow(self.viewer, cursor, session=session):
            async with self._showing:
                self._show(change)
            if change.kind is Kind.QUESTION:
                await self._look_for_questions()

    async def _catch_up(self, session: SessionId) -> Cursor:
        """This process slept for so long that nobody tells any more what happened: show the session as it is now."""
        snapshot = await self.hub.open(self.viewer, session, limit=SHOWN)
        async with self._showing:
            self.stream.forget()
            self.stream.open(snapshot)
        for turn in self._ends.keys() - self._states.keys():
            self._over(turn, (await self.hub.turn(self.viewer, turn)).state)
        await self._look_for_questions()
        return snapshot.cursor

    async def _look_for_questions(self) -> None:
        """Show what is asked in this session and was not shown yet."""
        found = [a for a in await self.hub.questions.open(self.viewer) if a.session == self.session]
        for asked in found:
            if asked.id not in self._told:
                self._told.add(asked.id)
                self.stream.notice("\n\n".join(filter(None, (told(asked.question), asked.note))))
        awaited = [a for a in found if not a.left]
        self.asking = awaited[0].turn if awaited else None
        if not awaited and self._asked.is_set():
            self._asked = anyio.Event()
        elif awaited:
            self._asked.set()

    def _show(self, change: Change) -> None:
        self.stream.show(change)
        if change.kind is Kind.TURN and change.turn:
            self._over(change.turn, TurnState(change.note))
        elif change.kind is Kind.SESSION_GONE:
            self.stream.notice(GONE)
            self._leave()

    def _over(self, turn: TurnId, state: TurnState) -> None:
        """Tell whoever waits for a turn, if it has ended."""
        if state.finished:
            self._states[turn] = state
            self._end(turn).set()

    def _end(self, turn: TurnId) -> anyio.Event:
        return self._ends.setdefault(turn, anyio.Event())

    def _inbound(self, text: str) -> Inbound:
        return Inbound(
            event=fresh(),
            source=self._source,
            parts=words(text),
            surface="cli",
            principal=OPERATOR,
            cwd=os.getcwd(),
        )


@asynccontextmanager
async def conversation(app: App, stream: Stream, *, kind: str) -> AsyncGenerator[Conversation]:
    """A conversation with the engine at work for it: its turns are run here unless a node is faster."""
    async with ending.service(app, kind) as service, anyio.create_task_group() as group:
        yield Conversation(app, service, stream, group)
        group.cancel_scope.cancel()


def fresh() -> str:
    """An id that nothing else has."""
    return ids.new(datetime.now(UTC))


def source(app: App) -> Source:
    """A place of its own for each run of a command."""
    return Source(
        platform="cli",
        chat=fresh(),
        user="operator",
        user_name=transcript.login(),
        profile=app.viewer.profile,
    )
