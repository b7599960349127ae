"""A chat in a terminal: sends what is typed to the hub and prints the changes of its session."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from zoneinfo import available_timezones

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import TaskGroup

from keryx.app import App
from keryx.cli import output, shutdown, terminal
from keryx.cli.options import find_terminal_language
from keryx.cli.terminal import attachments
from keryx.cli.terminal.completion import CommandValue
from keryx.cli.terminal.stream_printer import ChatStatus, StreamPrinter
from keryx.core import ids, lanes
from keryx.core.changes import Change, ChangeKind
from keryx.core.errors import CursorExpired, Invalid, KeryxError, NotFound
from keryx.core.ids import OPERATOR, Cursor, QuestionId, SessionId, TurnId
from keryx.core.media import Media
from keryx.core.messages import Parts, text_parts
from keryx.core.ports.adapter import InboundMessage, Receipt
from keryx.core.questions import format_question
from keryx.core.sessions import (
    EFFORTS,
    PermissionMode,
    SessionChange,
    SessionFilter,
    SessionSettings,
    SettingsChange,
)
from keryx.core.source import Source
from keryx.core.text import to_sentence
from keryx.core.texts import Reader, Texts
from keryx.core.turns import BusyMode, TurnState
from keryx.engine import commands
from keryx.engine.hub.views import MessageRange
from keryx.engine.service import Service

SHOWN_MESSAGES = 10
TEMPORARY_COMMAND = "/temp"
_MAX_TITLES = 200
_JOB_VERBS = ("pause", "resume", "run", "runs", "continue", "remove")


class TerminalChat:
    """A chat with a lane of its own, the current session of the lane, and the printer that shows it."""

    def __init__(
        self, app: App, service: Service, stream: StreamPrinter, group: TaskGroup, *, model: str | None = None
    ) -> None:
        self.hub = service.hub
        self.viewer = app.viewer
        self.stream = stream
        self.session: SessionId | None = None
        # The model of sessions that are created here; `None` for the default.
        self._model = model
        self._attached: list[Media] = []
        # Called when the status has changed.
        self.on_status: Callable[[], None] = lambda: None
        self._policy = app.settings.policy
        self._runner = service.runner
        self._group = group
        self._source = build_source(app)
        self.texts = find_texts(app)
        self._print_lock = anyio.Lock()
        self._status_lock = anyio.Lock()
        self._follow_scope = anyio.CancelScope()
        self._end_events: dict[TurnId, anyio.Event] = {}
        self._states: dict[TurnId, TurnState] = {}
        self._unfinished: list[TurnId] = []
        self._printed_questions: set[QuestionId] = set()
        self._question_open = anyio.Event()
        # What is read later must not be overwritten by what was read before the person answered.
        self._question_lock = anyio.Lock()
        # The turn whose agent waits for an answer.
        self.asking_turn: TurnId | None = None

    async def begin(self) -> None:
        """Check the model of new sessions, and show the status. Raise `NotFound` for an unknown model."""
        if self._model:
            await self.hub.check_model(self.viewer, self._source, self._model)
        await self._refresh_status()

    async def begin_temporary(self) -> None:
        """Begin a temporary session. Raise `Invalid` if this store cannot have any."""
        receipt = await self.hub.receive(self._build_inbound(text_parts(TEMPORARY_COMMAND)))
        if receipt.session is None or not ids.is_temporary(receipt.session):
            raise Invalid(receipt.reply or "")
        await self._follow_lane()

    async def resume(self, session: SessionId) -> None:
        """Switch the lane to a session: print its last messages, and follow its changes."""
        if self._model:
            change = SessionChange(settings=SettingsChange(model=self._model))
            await self.hub.change(self.viewer, session, change)
        await self.hub.lanes.switch(self.viewer, self._build_inbound(text_parts("")), session)
        await self._open_session(session)

    async def attach(self, names: Sequence[str] | None) -> None:
        """Store files that go with the next message, or with `None` the picture in the clipboard."""
        limit = self.hub.media.limit
        if names is None:
            found = [await to_thread.run_sync(attachments.read_clipboard)]
        else:
            read = partial(attachments.read_attachment, limit=limit)
            found = [await to_thread.run_sync(read, name) for name in names]
        for attachment in found:
            self._attached.append(await self.hub.media.save(self.viewer, attachment, session=self.session))
        await self._refresh_status()

    @property
    def temporary(self) -> bool:
        """Whether what is said now is not kept."""
        return self.session is not None and ids.is_temporary(self.session)

    @property
    def has_attachments(self) -> bool:
        return bool(self._attached)

    async def run_local_command(self, text: str) -> bool:
        """Run a command of the terminal itself. Return `False` for any other text."""
        name, _, argument = text.strip().partition(" ")
        if name == "/attach":
            await self.try_attach([argument.strip().strip("'\"")] if argument.strip() else None)
        elif name == "/detach":
            count = len(self._attached)
            self._attached.clear()
            await self._refresh_status()
            self.stream.print_reply(self.texts.say("terminal.detached", count=count))
        else:
            return False
        return True

    async def try_attach(self, names: Sequence[str] | None) -> None:
        """Attach files, and print what was done or why not."""
        try:
            await self.attach(names)
        except KeryxError as exc:
            self.stream.print_reply(to_sentence(self.texts.render(exc.text)))
            return
        shown = ", ".join(part.name or part.mime for part in self._attached)
        self.stream.print_reply(self.texts.say("terminal.attached", names=shown))

    async def list_values(self, command: str) -> list[CommandValue]:
        """Return the values that a command takes."""
        match command:
            case "resume":
                found, _ = await self.hub.list_sessions(self.viewer, SessionFilter(limit=_MAX_TITLES))
                shown = [entry.session for entry in found if entry.session.id != self.session]
                return [
                    CommandValue(s.title or s.id, f"{s.surface}  {output.format_time(s.active_at)}")
                    for s in shown
                ]
            case "model":
                names = await self.hub.list_models(self.viewer, self._source, self.session)
            case "agent":
                names = self._policy.agents
            case "mode":
                names = tuple(mode.value for mode in PermissionMode)
            case "effort":
                names = EFFORTS
            case "busy":
                return [CommandValue(mode.value) for mode in BusyMode]
            case "tools":
                return [CommandValue(f"{to} {name}") for to in ("on", "off") for name in self._policy.tools]
            case "project":
                names = tuple(project.name for project in await self.hub.projects.list_all(self.viewer))
                return [*map(CommandValue, names), CommandValue("none")]
            case "zone":
                names = tuple(sorted(available_timezones()))
            case "queue":
                return [CommandValue("clear")]
            case "permissions":
                return [CommandValue("forget all")]
            case "jobs":
                jobs = await self.hub.jobs.list_with_last_run(self.viewer)
                return [CommandValue(f"{verb} {job.name}") for verb in _JOB_VERBS for job, _ in jobs]
            case _:
                return []
        return [*map(CommandValue, names), CommandValue("default")]

    async def send(self, text: str, *, literal: bool = False) -> Receipt:
        """Send a line to the hub. If a command switches the lane to another session, follow that one. A `literal` text is no
        command."""
        parts: Parts = text_parts(text)
        if self._attached and (literal or commands.parse(parts) is None):
            parts = (*(parts if text.strip() else ()), *self._attached)
            self._attached.clear()
        async with self._print_lock:
            cursor = await self.hub.head_cursor()
            receipt = await self.hub.receive(self._build_inbound(parts, literal=literal))
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
        await self._refresh_status()
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

    @property
    def has_unfinished(self) -> bool:
        return bool(self._unfinished)

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
        await self._refresh_status()
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
            elif change.kind in (ChangeKind.SESSION, ChangeKind.TURN):
                # The changes that follow, such as the notice of a failed turn, do not wait for it.
                self._group.start_soon(self._refresh_status)

    async def _refresh_status(self) -> None:
        """Read what the status line shows; nothing in a pipe, which has none."""
        if not self.stream.piped:
            async with self._status_lock:
                await self._read_status()

    async def _read_status(self) -> None:
        names = (*await self.hub.list_models(self.viewer, self._source), *self._policy.agents, "")
        status = ChatStatus(
            model=self._model or names[0], currency=self._policy.currency, attached=len(self._attached)
        )
        if self.session is None:
            self._set_status(status)
            return
        # A session that is deleted meanwhile has no status; the next change says so.
        with suppress(NotFound):
            models = await self.hub.list_models(self.viewer, self._source, self.session)
            snapshot = await self.hub.open(self.viewer, self.session, MessageRange(limit=1))
            session = snapshot.session
            status = msgspec.structs.replace(
                status,
                model=session.settings.model or next(iter(models), session.settings.agent) or names[0],
                context_used=session.context_used,
                context_limit=session.context_limit,
                cost=session.cost,
                # The first of the queue begins at once if nothing runs.
                queued=max(0, len(snapshot.queue) - (snapshot.running is None)),
            )
            self._set_status(status)

    def _set_status(self, status: ChatStatus) -> None:
        self.stream.status = status
        self.on_status()

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
        async with self._question_lock:
            await self._read_questions()

    async def _read_questions(self) -> None:
        found = [a for a in await self.hub.questions.list_open(self.viewer) if a.session == self.session]
        for asked in found:
            if asked.id not in self._printed_questions:
                self._printed_questions.add(asked.id)
                lines = (format_question(asked.question, self.texts), self.texts.render(asked.note))
                self.stream.print_question("\n\n".join(filter(None, lines)))
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

    def _build_inbound(self, parts: Parts, *, literal: bool = False) -> InboundMessage:
        return InboundMessage(
            event=new_id(),
            source=self._source,
            parts=parts,
            surface="cli",
            principal=OPERATOR,
            cwd=os.getcwd(),
            settings=SessionSettings(model=self._model) if self._model else None,
            commands=not literal,
        )


@asynccontextmanager
async def open_chat(
    app: App, stream: StreamPrinter, *, kind: str, model: str | None = None
) -> AsyncGenerator[TerminalChat]:
    """Open a chat with the engine: its turns run in this process unless a node claims them first."""
    async with shutdown.open_service(app, kind) as service, anyio.create_task_group() as group:
        yield TerminalChat(app, service, stream, group, model=model)
        group.cancel_scope.cancel()


def new_id() -> str:
    return ids.new(datetime.now(UTC))


def find_texts(app: App) -> Texts:
    """Return the texts in the language of the settings, or else in that of the terminal."""
    return app.settings.policy.texts.speak(find_terminal_language(), "", Reader.OPERATOR)


def build_source(app: App) -> Source:
    """Build a source with a chat of its own for each run of a command."""
    return Source(
        platform="cli",
        chat=new_id(),
        user="operator",
        user_name=terminal.login_name(),
        profile=app.viewer.profile,
        language=find_terminal_language(),
    )
