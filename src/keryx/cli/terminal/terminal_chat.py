"""A chat in a terminal: sends what is typed to the hub and prints the changes of its session."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio
import msgspec
from anyio.abc import TaskGroup

from keryx.app import App
from keryx.cli import shutdown, terminal
from keryx.cli.terminal.stream_printer import StreamPrinter
from keryx.core import ids, lanes
from keryx.core.changes import Change, ChangeKind
from keryx.core.errors import CursorExpired, NotFound
from keryx.core.ids import OPERATOR, Cursor, QuestionId, SessionId, TurnId
from keryx.core.messages import text_parts
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.questions import format_question
from keryx.core.source import Source
from keryx.core.texts import Texts, find_language
from keryx.core.turns import TurnState
from keryx.engine.hub.views import MessageRange
from keryx.engine.service import Service

SHOWN_MESSAGES = 10


class TerminalChat:
    """A chat with a lane of its own, the current session of the lane, and the printer that shows it."""

    def __init__(self, app: App, service: Service, stream: StreamPrinter, group: TaskGroup) -> None:
        self.hub = service.hub
        self.viewer = app.viewer
        self.stream = stream
        self.session: SessionId | None = None
        self._policy = app.settings.policy
        self._runner = service.runner
        self._group = group
        self._source = build_source(app)
        self.texts = find_texts(app)
        self._print_lock = anyio.Lock()
        self._follow_scope = anyio.CancelScope()
        self._end_events: dict[TurnId, anyio.Event] = {}
        self._states: dict[TurnId, TurnState] = {}
        self._unfinished: list[TurnId] = []
        self._printed_questions: set[QuestionId] = set()
        self._question_open = anyio.Event()
        # The turn whose agent waits for an answer.
        self.asking_turn: TurnId | None = None

    async def resume(self, session: SessionId) -> None:
        """Switch the lane to a session: print its last messages, and follow its changes."""
        await self.hub.lanes.switch(self.viewer, self._build_inbound(""), session)
        await self._open_session(session)

    async def send(self, text: str) -> Receipt:
        """Send a line to the hub. If a command switches the lane to another session, follow that one."""
        async with self._print_lock:
            cursor = await self.hub.head_cursor()
            receipt = await self.hub.receive(self._build_inbound(text))
            if receipt.session and receipt.session == self.session and receipt.seq:
                self.stream.skip_message(receipt.seq)
        if receipt.reply:
            self.stream.print_reply(receipt.reply)
        if self.asking_turn:
            await self._print_questions()
        if receipt.seq is None or receipt.session is None:
            await self._follow_lane()
        elif receipt.session != self.session:
            self._close_session()
            if receipt.seq:
                self.stream.skip_message(receipt.seq)
            self._follow(receipt.session, cursor)
        return receipt

    async def wait_for_end(self, turn: TurnId) -> TurnState:
        """Wait for the end of a turn, or of the turn that it was merged into."""
        await self._end_event(turn).wait()
        state = self._states[turn]
        if state is TurnState.MERGED:
            into = (await self.hub.turn(self.viewer, turn)).merged_into
            return await self.wait_for_end(into) if into else state
        return state

    async def wait_for_end_or_question(self, turn: TurnId) -> TurnState | None:
        """Wait for the end of a turn. Return `None` if an agent asks a question before that."""
        state: TurnState | None = None
        async with anyio.create_task_group() as group:

            async def cancel_when_asked() -> None:
                await self._question_open.wait()
                group.cancel_scope.cancel()

            group.start_soon(cancel_when_asked)
            state = await self.wait_for_end(turn)
            group.cancel_scope.cancel()
        return state

    async def wait_for_unfinished(self) -> None:
        """Wait for the turns that were unfinished when the session was opened, or until a question is asked."""
        while self._unfinished:
            if await self.wait_for_end_or_question(self._unfinished[0]) is None:
                return
            self._unfinished.pop(0)

    async def stop(self) -> None:
        if self.session:
            await self.hub.stop(self.viewer, self.session)

    async def _follow_lane(self) -> None:
        address = lanes.build_address(self._source, sharing=self._policy.sharing)
        try:
            lane, _ = await self.hub.lanes.get(self.viewer, address.key)
        except NotFound:
            return
        if lane.session != self.session:
            before = self.session
            self._close_session()
            if lane.session:
                await self._open_session(lane.session, known=before)

    async def _open_session(self, session: SessionId, *, known: SessionId | None = None) -> None:
        snapshot = await self.hub.open(self.viewer, session, MessageRange(limit=SHOWN_MESSAGES))
        if known and snapshot.session.parent == known:
            # The messages of a fork are on the screen already.
            snapshot = msgspec.structs.replace(snapshot, messages=[])
        self.stream.print_snapshot(snapshot)
        self._unfinished = [t.id for t in (snapshot.running, *snapshot.queue) if t]
        self._follow(session, snapshot.cursor)
        if snapshot.questions:
            await self._print_questions()

    def _close_session(self) -> None:
        self._follow_scope.cancel()
        self.session = None
        self._unfinished = []
        self.stream.reset()

    def _follow(self, session: SessionId, cursor: Cursor) -> None:
        self.session = session
        self._follow_scope = anyio.CancelScope()
        self._runner.serve(session)
        self._group.start_soon(self._print_changes, session, cursor, self._follow_scope)

    async def _print_changes(self, session: SessionId, cursor: Cursor, scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                try:
                    await self._print_changes_after(session, cursor)
                except CursorExpired:
                    cursor = await self._reload(session)

    async def _print_changes_after(self, session: SessionId, cursor: Cursor) -> None:
        async for change in self.hub.follow(self.viewer, cursor, session=session):
            async with self._print_lock:
                self._handle_change(change)
            if change.kind is ChangeKind.QUESTION:
                await self._print_questions()

    async def _reload(self, session: SessionId) -> Cursor:
        """Print the current state of the session, after the feed was trimmed beyond our cursor."""
        snapshot = await self.hub.open(self.viewer, session, MessageRange(limit=SHOWN_MESSAGES))
        async with self._print_lock:
            self.stream.reset()
            self.stream.print_snapshot(snapshot)
        for turn in self._end_events.keys() - self._states.keys():
            self._record_end(turn, (await self.hub.turn(self.viewer, turn)).state)
        await self._print_questions()
        return snapshot.cursor

    async def _print_questions(self) -> None:
        """Print the open questions of this session that were not printed yet."""
        found = [a for a in await self.hub.questions.list_open(self.viewer) if a.session == self.session]
        for asked in found:
            if asked.id not in self._printed_questions:
                self._printed_questions.add(asked.id)
                lines = (format_question(asked.question, self.texts), self.texts.render(asked.note))
                self.stream.print_notice("\n\n".join(filter(None, lines)))
        awaited = [a for a in found if not a.left]
        self.asking_turn = awaited[0].turn if awaited else None
        if not awaited and self._question_open.is_set():
            self._question_open = anyio.Event()
        elif awaited:
            self._question_open.set()

    def _handle_change(self, change: Change) -> None:
        self.stream.print_change(change)
        if change.kind is ChangeKind.TURN and change.turn:
            self._record_end(change.turn, TurnState(change.note))
        elif change.kind is ChangeKind.SESSION_GONE:
            self.stream.print_notice(self.texts.say("terminal.session_deleted"))
            self._close_session()

    def _record_end(self, turn: TurnId, state: TurnState) -> None:
        """Wake up those who wait for the turn, if it has ended."""
        if state.finished:
            self._states[turn] = state
            self._end_event(turn).set()

    def _end_event(self, turn: TurnId) -> anyio.Event:
        return self._end_events.setdefault(turn, anyio.Event())

    def _build_inbound(self, text: str) -> InboundMessage:
        return InboundMessage(
            event=new_id(),
            source=self._source,
            parts=text_parts(text),
            surface="cli",
            principal=OPERATOR,
            cwd=os.getcwd(),
        )


@asynccontextmanager
async def open_chat(app: App, stream: StreamPrinter, *, kind: str) -> AsyncGenerator[TerminalChat]:
    """Open a chat with the engine: its turns run in this process unless a node claims them first."""
    async with shutdown.open_service(app, kind) as service, anyio.create_task_group() as group:
        yield TerminalChat(app, service, stream, group)
        group.cancel_scope.cancel()


def new_id() -> str:
    return ids.new(datetime.now(UTC))


def find_texts(app: App) -> Texts:
    """Return the texts in the language of the settings, or else in that of the terminal."""
    return app.settings.policy.texts.speak(_find_language())


def _find_language() -> str | None:
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    return find_language(next((value for name in names if (value := os.environ.get(name))), ""))


def build_source(app: App) -> Source:
    """Build a source with a chat of its own for each run of a command."""
    return Source(
        platform="cli",
        chat=new_id(),
        user="operator",
        user_name=terminal.login_name(),
        profile=app.viewer.profile,
        language=_find_language(),
    )
