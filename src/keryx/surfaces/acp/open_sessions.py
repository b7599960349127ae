"""A session that an editor has open: replays it, follows its changes, runs its prompts and cancels them."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice

import anyio
import anyio.lowlevel
import msgspec

from keryx.core import compaction, ids
from keryx.core.changes import Change, ChangeKind
from keryx.core.errors import Conflict, CursorExpired, KeryxError, NotFound, Retryable
from keryx.core.ids import Cursor, QuestionId, SessionId, TurnId
from keryx.core.media import Attachment
from keryx.core.messages import Message, Notice, Parts
from keryx.core.questions import QuestionState
from keryx.core.sessions import Session, SessionSettings
from keryx.core.texts import Phrase, Reader
from keryx.core.turns import STOP_REASONS, TurnState
from keryx.engine.hub.views import MessageRange, SessionSnapshot
from keryx.jsonrpc import Json
from keryx.jsonrpc.peer import IncomingRequest
from keryx.surfaces.acp import session_options, session_updates
from keryx.surfaces.acp.context import EditorContext
from keryx.surfaces.acp.prompts import END_TURN, PendingPrompt, PendingPrompts
from keryx.surfaces.acp.questions import EditorQuestions
from keryx.surfaces.acp.session_updates import EditorSessionInfo, UpdateBuilder

log = logging.getLogger(__name__)

NO_MESSAGE_LIMIT = 1_000_000_000
RECENT_MESSAGES = 500
CANCEL_TIMEOUT_SECONDS = 1.5
EXPLAIN_DELAY_SECONDS = 3.0
_REPLAY_BATCH = 500
_RETRY_SECONDS = 0.5


class OpenSession:
    """A session that this editor has open. It is stored with its first message; until then its settings are kept here."""

    def __init__(
        self, context: EditorContext, id_: SessionId, *, settings: SessionSettings | None = None
    ) -> None:
        self.id = id_
        self.cwd = ""
        self._folder_missing = False
        self.stored = settings is None
        self._context = context
        self._info = EditorSessionInfo(settings=settings or SessionSettings())
        self._lock = anyio.Lock()
        self._prompts = PendingPrompts(context)
        self._updates = UpdateBuilder(context.capabilities, context.hub.texts.speak())
        self._questions = EditorQuestions(context, id_, self._updates)
        self._following = anyio.CancelScope()
        self._last_seq = 0

    @property
    def settings(self) -> SessionSettings:
        return self._info.settings

    async def load(self, *, replay: bool) -> SessionSnapshot:
        """Load the stored session; with `replay`, send it from the start. `start_following` continues from the returned
        snapshot."""
        async with self._lock:
            window = MessageRange(limit=NO_MESSAGE_LIMIT if replay else RECENT_MESSAGES)
            snapshot = await self._context.hub.open(self._context.viewer, self.id, window)
            self._stop_following()
            self._updates = UpdateBuilder(self._context.capabilities, self._context.hub.texts.speak())
            self._questions = EditorQuestions(self._context, self.id, self._updates)
            self._last_seq = snapshot.session.last_seq
            self._info = EditorSessionInfo(settings=snapshot.session.settings)
            await self._replay(snapshot, send=replay)
            return snapshot

    async def start_following(self, snapshot: SessionSnapshot) -> None:
        """Send the changes since the snapshot, and those to come."""
        self._follow(snapshot.cursor)
        await self._send_info(snapshot.session)
        await self._finish_ended_prompts(snapshot)
        for question in snapshot.questions:
            await self._questions.show(question)

    async def prompt(self, read: Callable[[], Awaitable[Parts]], request: IncomingRequest) -> None:
        """Store the message and answer the request when its turn has ended. It can be cancelled at any time."""
        prompt = self._prompts.add(request, ids.new(self._context.now()))
        request.on_cancel = partial(self._cancel_prompts, [prompt])
        try:
            await self._check_folder()
            async with self._lock:
                await self._receive(prompt, await read())
            await prompt.wait()
        finally:
            self._prompts.remove(prompt)

    async def cancel(self) -> None:
        """Cancel the prompts of this editor, or else the turn that runs, if any."""
        if pending := self._prompts.list_pending():
            await self._cancel_prompts(pending)
        elif self.stored:
            await self._retry_until_stored(partial(self._context.hub.stop, self._context.viewer, self.id))

    async def set_folder(self, folder: str) -> None:
        """Set the folder of this session. If it does not exist, the session is read-only."""
        self.cwd = folder
        self._folder_missing = not await anyio.Path(folder).is_dir()

    async def reserve(self) -> None:
        """Make a session without a message known to every process, with its folder and settings."""
        await self._context.hub.reserve_session(
            self._context.viewer, self.id, cwd=self.cwd, settings=self.settings
        )

    async def show_terminal(self, command: str, terminal: str) -> None:
        """Show a terminal of the editor in the tool call whose command it runs."""
        await self._send_updates(self._updates.show_terminal(command, terminal))

    async def warn_if_read_only(self) -> None:
        """Send a notice if this session is read-only."""
        if self._folder_missing:
            await self._send_notice(Phrase("editor.read_only", folder=self.cwd))

    async def _check_folder(self) -> None:
        if self._folder_missing:  # Check again: it may exist by now.
            await self.set_folder(self.cwd)
        if self._folder_missing:
            raise Conflict(Phrase("editor.read_only", folder=self.cwd))

    async def _send_notice(self, text: str) -> None:
        """Show the user a text that is not part of the conversation."""
        key, capabilities = ids.new(self._context.now()), self._context.capabilities
        said = self._context.hub.texts.speak(None, "", Reader.OPERATOR).render(text)
        await self._send_updates(
            [session_updates.build_person_notice(said, key, notices=capabilities.notices)]
        )

    async def close(self) -> None:
        """Cancel the prompts of this editor and stop following. The session stays in the store."""
        pending = self._prompts.list_pending()
        await self._cancel_prompts(pending)
        for prompt in pending:
            await prompt.wait()
        self._stop_following()

    async def set_option(self, option: str, value: object) -> SessionSettings:
        """Set one option and return all settings. Raise `Invalid` if the option or its value is not offered."""
        context = self._context
        async with self._lock:
            current = self.settings
            if self.stored:
                current = (await context.hub.session(context.viewer, self.id)).settings
            settings = session_options.set_option(current, context.choices, option, value)
            self._info = msgspec.structs.replace(self._info, settings=settings)
            if self.stored:
                await context.hub.configure(context.viewer, self.id, settings)
            else:
                await self.reserve()
        return settings

    async def _replay(self, snapshot: SessionSnapshot, *, send: bool) -> None:
        running = snapshot.running.id if snapshot.running else None
        draft = self._updates.build_draft(running, snapshot.draft) if running else iter(())
        updates = chain(self._updates.replay(snapshot.messages, running), draft)
        while batch := list(islice(updates, _REPLAY_BATCH)):
            if send:
                await self._send_updates(batch)
            await anyio.lowlevel.checkpoint()  # Other tasks run during a long replay.

    async def _finish_ended_prompts(self, snapshot: SessionSnapshot) -> None:
        """Answer the prompts whose turns ended while the session was not followed."""
        active = {t.id for t in (snapshot.running, *snapshot.queue) if t}
        for prompt in self._prompts.list_pending():
            if prompt.turn and prompt.turn not in active:
                turn = await self._context.hub.turn(self._context.viewer, prompt.turn)
                if turn.state.finished:
                    await self._finish_turn(turn.id, turn.state)

    async def _receive(self, prompt: PendingPrompt, parts: Parts) -> None:
        context = self._context
        cursor = None if self.stored else await context.hub.head_cursor()
        begin = None if self.stored else self.settings
        receipt = await context.hub.receive(
            context.build_inbound(self.id, parts, key=prompt.key, cwd=self.cwd, begin=begin)
        )
        if cursor and receipt.session:
            self.stored = True
            self._follow(cursor)
        if receipt.reply:
            reply = session_updates.build_chunk(
                "agent_message_chunk", receipt.reply, prompt.key, {"command": True}
            )
            await context.send_updates(self.id, reply)
        if receipt.turn is None:
            await prompt.finish(END_TURN)
            return
        await self._prompts.bind_turn(prompt, receipt.turn)
        if prompt.cancelled:
            await self._stop_turn(receipt.turn)
        elif prompt.pending:
            context.group.start_soon(self._explain_later, prompt)

    async def _explain_later(self, prompt: PendingPrompt) -> None:
        """After a delay, explain why a prompt does not start, if no worker can run the turn before it."""
        context = self._context
        await context.clock.sleep(EXPLAIN_DELAY_SECONDS)
        if prompt.pending:
            await self._retry_until_stored(partial(self._explain_wait, prompt))

    async def _explain_wait(self, prompt: PendingPrompt) -> None:
        context = self._context
        snapshot = await context.hub.open(context.viewer, self.id, MessageRange(limit=1))
        first = next(iter(snapshot.queue), None)
        stuck = not snapshot.running and first and first.id != prompt.turn and first.pin is None
        if stuck and not await context.hub.list_nodes():
            await self._send_notice(Phrase("editor.no_worker"))

    async def _cancel_prompts(self, prompts: Sequence[PendingPrompt]) -> None:
        self._context.group.start_soon(self._abandon_later, prompts)
        self._context.group.start_soon(self._stop_turns, prompts)

    async def _stop_turns(self, prompts: Sequence[PendingPrompt]) -> None:
        """Stop queued turns before the running one, or they would start. A prompt that is not stored yet is stopped later."""
        async with self._lock:
            for prompt in reversed(prompts):
                prompt.cancelled = True
                if prompt.turn:
                    await self._stop_turn(prompt.turn)

    async def _stop_turn(self, turn: TurnId) -> None:
        await self._retry_until_stored(partial(self._context.hub.cancel, self._context.viewer, turn))

    async def _abandon_later(self, prompts: Sequence[PendingPrompt]) -> None:
        """Answer cancelled prompts after a timeout, even if the store or the agent does not react."""
        await self._context.clock.sleep(CANCEL_TIMEOUT_SECONDS)
        for prompt in prompts:
            await self._prompts.abandon(prompt)

    def _follow(self, cursor: Cursor) -> None:
        self._following = anyio.CancelScope()
        self._context.group.start_soon(self._send_changes, cursor, self._following)

    def _stop_following(self) -> None:
        self._following.cancel()
        self._questions.close()

    async def _send_changes(self, cursor: Cursor, scope: anyio.CancelScope) -> None:
        context = self._context
        with scope:
            while True:
                try:
                    async for change in context.hub.follow(context.viewer, cursor, session=self.id):
                        await self._retry_until_stored(partial(self._handle_change, change))
                except CursorExpired:
                    cursor = await self._catch_up()

    async def _retry_until_stored(self, work: Callable[[], Awaitable[object]]) -> None:
        """Retry while the store is unavailable. Other errors are logged: the object may have been deleted meanwhile."""
        while True:
            try:
                await work()
                return
            except Retryable as exc:
                log.warning("session %s waits for the store: %s", self.id, exc)
                await self._context.clock.sleep(_RETRY_SECONDS)
            except KeryxError as exc:
                log.warning("session %s: %s", self.id, exc)
                return

    async def _catch_up(self) -> Cursor:
        """Send the messages that were missed, after the feed was not read for longer than it is kept."""
        snapshot = await self._context.hub.open(
            self._context.viewer, self.id, MessageRange(limit=RECENT_MESSAGES)
        )
        for message in snapshot.messages:
            if message.seq > self._last_seq:
                await self._send_message(message)
        await self._finish_ended_prompts(snapshot)
        return snapshot.cursor

    async def _handle_change(self, change: Change) -> None:
        match change.kind:
            case ChangeKind.MESSAGE if change.message and change.note == "added":
                await self._send_message(change.message)
            case ChangeKind.MESSAGE if change.message and not self._prompts.is_answered(change.turn):
                await self._send_updates(self._updates.build_call_updates(change.message))
            case ChangeKind.DRAFT if (
                change.turn and change.piece and not self._prompts.is_answered(change.turn)
            ):
                await self._send_updates(self._updates.build_draft(change.turn, [change.piece]))
            case ChangeKind.TURN if change.turn and TurnState(change.note).finished:
                await self._finish_turn(change.turn, TurnState(change.note))
            case ChangeKind.SESSION:
                await self._refresh_info()
            case ChangeKind.QUESTION:
                is_open = change.note == QuestionState.OPEN.value
                await self._questions.update(QuestionId(change.subject), is_open=is_open)
            case ChangeKind.SESSION_GONE:
                await self._prompts.fail_all(self.id)
                self._stop_following()
            case _:
                pass

    async def _send_message(self, message: Message) -> None:
        self._last_seq = message.seq
        for part in message.parts:
            if message.turn and isinstance(part, Notice) and part.kind in STOP_REASONS:
                self._prompts.record_stop_reason(message.turn, part.kind)
        if not await self._is_own(message) and not self._prompts.is_answered(message.turn):
            await self._send_updates(self._updates.build_message(message))

    async def _is_own(self, message: Message) -> bool:
        """Return whether this editor wrote a message, and so shows it already."""
        if self._prompts.has_key(message.platform_id):
            return True
        if not compaction.is_request(message.parts):
            return False
        async with self._lock:  # Held by `prompt` until it knows the turn of the command.
            return self._prompts.has_turn(message.turn)

    async def _finish_turn(self, turn: TurnId, state: TurnState) -> None:
        """Send the changes of the turn, then answer its prompt: no update may follow the answer."""
        self._prompts.record_end(turn, state)
        await self._refresh_info()
        await self._prompts.answer_turn(turn)

    async def _refresh_info(self) -> None:
        try:
            session = await self._context.hub.session(self._context.viewer, self.id)
        except NotFound:
            return  # It was deleted meanwhile; that change follows in the feed.
        await self._send_info(session)

    async def _send_info(self, session: Session) -> None:
        before, self._info = self._info, session_updates.read_info(session)
        await self._send_updates(
            session_updates.build_info_updates(
                before, self._info, session, self._context.choices, self._context.currency
            )
        )

    async def _send_updates(self, updates: Iterable[Json]) -> None:
        await self._context.send_updates(self.id, *[await self._embed_media(update) for update in updates])

    async def _embed_media(self, update: Json) -> Json:
        media = session_updates.find_media(update)
        if media is None:
            return update
        attachment: Attachment | None = None
        with suppress(NotFound):  # The update names the file instead.
            attachment = await self._context.hub.media.fetch_for_session(self.id, media)
        return session_updates.embed(update, attachment)
