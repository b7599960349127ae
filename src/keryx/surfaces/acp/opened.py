"""Opened: one session that an editor has open. What happens to it is sent as it is stored, whoever made it happen."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import chain, islice

import anyio
import anyio.lowlevel
import msgspec

from keryx.core import compaction, ids
from keryx.core.changes import Change, Kind
from keryx.core.errors import Conflict, CursorExpired, KeryxError, NotFound, Retryable
from keryx.core.ids import Cursor, QuestionId, SessionId, TurnId
from keryx.core.messages import Message, Notice, Parts
from keryx.core.questions import QuestionState
from keryx.core.sessions import Session, Settings
from keryx.core.turns import ENDINGS, TurnState
from keryx.engine.snapshot import Snapshot
from keryx.surfaces.acp import about, options
from keryx.surfaces.acp.about import About
from keryx.surfaces.acp.asking import Asking
from keryx.surfaces.acp.desk import Desk
from keryx.surfaces.acp.peer import Call, Json
from keryx.surfaces.acp.prompts import END, Prompt, Prompts
from keryx.surfaces.acp.shown import Shown
from keryx.surfaces.acp.toolcalls import text_block

log = logging.getLogger(__name__)

WHOLE = 1_000_000_000
RECENT = 500
GIVE_UP_SECONDS = 1.5
EXPLAIN_SECONDS = 3.0
ALONE = (
    "This waits behind a message from elsewhere that no process answers now: start `keryx serve`, or cancel."
)
READ_ONLY = (
    "The folder {} is not there, so this conversation can be read and not continued: make the folder again, or open"
    " the conversation in another one."
)
_BATCH = 500
_AWAY_SECONDS = 0.5


class Opened:
    """A session of this editor. It is stored with its first message; until then its `settings` are kept here."""

    def __init__(self, desk: Desk, id_: SessionId, *, settings: Settings | None = None) -> None:
        self.id = id_
        self.cwd = ""
        self._homeless = False
        self.stored = settings is None
        self._desk = desk
        self._about = About(settings=settings or Settings())
        self._order = anyio.Lock()
        self._prompts = Prompts(desk)
        self._shown = Shown(desk.client)
        self._asking = Asking(desk, id_, self._shown)
        self._following = anyio.CancelScope()
        self._seq = 0

    @property
    def settings(self) -> Settings:
        return self._about.settings

    async def load(self, *, replay: bool) -> Snapshot:
        """Take up a stored session as it is now; with `replay`, show it from its beginning. Changes nothing in the
        store. `live` goes on from the snapshot."""
        async with self._order:
            snapshot = await self._desk.hub.open(
                self._desk.viewer, self.id, limit=WHOLE if replay else RECENT
            )
            self._stop()
            self._shown = Shown(self._desk.client)
            self._asking = Asking(self._desk, self.id, self._shown)
            self._seq = snapshot.session.last_seq
            self._about = About(settings=snapshot.session.settings)
            await self._replay(snapshot, seen=replay)
            return snapshot

    async def live(self, snapshot: Snapshot) -> None:
        """Send what happened since the snapshot, and what happens from now on."""
        self._follow(snapshot.cursor)
        await self._tell(snapshot.session)
        await self._settle(snapshot)
        for asked in snapshot.questions:
            await self._asking.put(asked)

    async def prompt(self, read: Callable[[], Awaitable[Parts]], call: Call) -> None:
        """Store what was said and answer the call when its turn has ended. A cancel reaches it from the first moment."""
        prompt = self._prompts.begin(call, ids.new(self._desk.now()))
        call.on_cancel = partial(self._cancel, [prompt])
        try:
            await self._check_folder()
            async with self._order:
                await self._receive(prompt, await read())
            await prompt.done()
        finally:
            self._prompts.forget(prompt)

    async def cancel(self) -> None:
        """Stop the turns of this editor; if there are none, the one that runs. With nothing running, nothing happens."""
        waiting = self._prompts.waiting
        if waiting:
            await self._cancel(waiting)
        elif self.stored:
            await self._patiently(partial(self._desk.hub.stop, self._desk.viewer, self.id))

    async def work_in(self, folder: str) -> None:
        """Set the folder of this session. Without one that is there it can only be read."""
        self.cwd = folder
        self._homeless = not await anyio.Path(folder).is_dir()

    async def warn(self) -> None:
        """Tell the person if this session can only be read."""
        if self._homeless:
            await self._notice(READ_ONLY.format(self.cwd))

    async def _check_folder(self) -> None:
        """It may have come back since the session was opened."""
        if self._homeless:
            await self.work_in(self.cwd)
        if self._homeless:
            raise Conflict(READ_ONLY.format(self.cwd))

    async def _notice(self, text: str) -> None:
        """Tell the person at the editor something that is no part of the conversation."""
        key = ids.new(self._desk.now())
        await self._update([about.notice(text, key, notices=self._desk.client.notices)])

    async def close(self) -> None:
        """Stop the turns of this editor and let go of the session, which stays in the store."""
        waiting = self._prompts.waiting
        await self._cancel(waiting)
        for prompt in waiting:
            await prompt.done()
        self._stop()

    async def choose(self, option: str, value: object) -> Settings:
        """Set one option; gives all settings. `Invalid` for what is not offered."""
        desk = self._desk
        async with self._order:
            current = self.settings
            if self.stored:
                current = (await desk.hub.session(desk.viewer, self.id)).settings
            settings = options.chosen(current, desk.choices, option, value)
            self._about = msgspec.structs.replace(self._about, settings=settings)
            if self.stored:
                await desk.hub.configure(desk.viewer, self.id, settings)
        return settings

    async def _replay(self, snapshot: Snapshot, *, seen: bool) -> None:
        running = snapshot.running.id if snapshot.running else None
        drafted = self._shown.draft(running, snapshot.draft) if running else iter(())
        updates = chain(self._shown.replay(snapshot.messages, running), drafted)
        while batch := list(islice(updates, _BATCH)):
            if seen:
                await self._desk.update(self.id, *batch)
            await anyio.lowlevel.checkpoint()  # A long conversation holds up nobody else.

    async def _settle(self, snapshot: Snapshot) -> None:
        """Answer the prompts whose turns ended while nobody followed."""
        active = {t.id for t in (snapshot.running, *snapshot.queue) if t}
        for prompt in self._prompts.waiting:
            if prompt.turn and prompt.turn not in active:
                turn = await self._desk.hub.turn(self._desk.viewer, prompt.turn)
                if turn.state.finished:
                    await self._ended(turn.id, turn.state)

    async def _receive(self, prompt: Prompt, parts: Parts) -> None:
        desk = self._desk
        cursor = None if self.stored else await desk.hub.now()
        begin = None if self.stored else self.settings
        receipt = await desk.hub.receive(
            desk.inbound(self.id, parts, key=prompt.key, cwd=self.cwd, begin=begin)
        )
        if cursor and receipt.session:
            self.stored = True
            self._follow(cursor)
        if receipt.reply:
            await desk.update(self.id, _reply(receipt.reply, prompt.key))
        if receipt.turn is None:
            await prompt.stop(END)
            return
        await self._prompts.bind(prompt, receipt.turn)
        if prompt.cancelled:
            await self._stop_turn(receipt.turn)
        elif prompt.waits:
            desk.group.start_soon(self._explain, prompt)

    async def _explain(self, prompt: Prompt) -> None:
        """Say why a prompt does not begin, if nobody is there who could run the turn before it."""
        desk = self._desk
        await desk.clock.sleep(EXPLAIN_SECONDS)
        if prompt.waits:
            await self._patiently(partial(self._tell_why, prompt))

    async def _tell_why(self, prompt: Prompt) -> None:
        desk = self._desk
        snapshot = await desk.hub.open(desk.viewer, self.id, limit=1)
        first = next(iter(snapshot.queue), None)
        stuck = not snapshot.running and first and first.id != prompt.turn and first.pin is None
        if stuck and not await desk.hub.nodes():
            await self._notice(ALONE)

    async def _cancel(self, prompts: Sequence[Prompt]) -> None:
        self._desk.group.start_soon(self._give_up, prompts)
        self._desk.group.start_soon(self._stop_turns, prompts)

    async def _stop_turns(self, prompts: Sequence[Prompt]) -> None:
        """Stop what waits before what runs, or it would begin. A prompt that is not stored yet is stopped when it is."""
        async with self._order:
            for prompt in reversed(prompts):
                prompt.cancelled = True
                if prompt.turn:
                    await self._stop_turn(prompt.turn)

    async def _stop_turn(self, turn: TurnId) -> None:
        """Its prompt may have been answered by then, for an editor does not wait for the store."""
        await self._patiently(partial(self._desk.hub.cancel, self._desk.viewer, turn))

    async def _give_up(self, prompts: Sequence[Prompt]) -> None:
        """A cancel is answered in time, even if the store or the agent does not react."""
        await self._desk.clock.sleep(GIVE_UP_SECONDS)
        for prompt in prompts:
            await self._prompts.give_up(prompt)

    def _follow(self, cursor: Cursor) -> None:
        self._following = anyio.CancelScope()
        self._desk.group.start_soon(self._send_changes, cursor, self._following)

    def _stop(self) -> None:
        self._following.cancel()
        self._asking.close()

    async def _send_changes(self, cursor: Cursor, scope: anyio.CancelScope) -> None:
        desk = self._desk
        with scope:
            while True:
                try:
                    async for change in desk.hub.follow(desk.viewer, cursor, session=self.id):
                        await self._patiently(partial(self._take, change))
                except CursorExpired:
                    cursor = await self._catch_up()

    async def _patiently(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do what is asked for, however long the store is away; what it names may be gone by then."""
        while True:
            try:
                await work()
                return
            except Retryable as exc:
                log.warning("session %s waits for the store: %s", self.id, exc)
                await self._desk.clock.sleep(_AWAY_SECONDS)
            except KeryxError as exc:
                log.warning("session %s: %s", self.id, exc)
                return

    async def _catch_up(self) -> Cursor:
        """Send what was said while the feed was not read for longer than it is kept."""
        snapshot = await self._desk.hub.open(self._desk.viewer, self.id, limit=RECENT)
        for message in snapshot.messages:
            if message.seq > self._seq:
                await self._message(message)
        await self._settle(snapshot)
        return snapshot.cursor

    async def _take(self, change: Change) -> None:
        match change.kind:
            case Kind.MESSAGE if change.message and change.note == "added":
                await self._message(change.message)
            case Kind.DRAFT if change.turn and change.piece and not self._prompts.closed(change.turn):
                await self._update(self._shown.draft(change.turn, [change.piece]))
            case Kind.TURN if change.turn and TurnState(change.note).finished:
                await self._ended(change.turn, TurnState(change.note))
            case Kind.SESSION:
                await self._tell_news()
            case Kind.QUESTION:
                waits = change.note == QuestionState.OPEN.value
                await self._asking.changed(QuestionId(change.subject), waits=waits)
            case Kind.SESSION_GONE:
                await self._prompts.lose(self.id)
                self._stop()
            case _:
                pass

    async def _message(self, message: Message) -> None:
        self._seq = message.seq
        for part in message.parts:
            if message.turn and isinstance(part, Notice) and part.kind in ENDINGS:
                self._prompts.cut(message.turn, part.kind)
        if not await self._own(message) and not self._prompts.closed(message.turn):
            await self._update(self._shown.message(message))

    async def _own(self, message: Message) -> bool:
        """Whether this editor wrote a message, and shows it already."""
        if self._prompts.own(message.platform_id):
            return True
        if not compaction.asks(message.parts):
            return False
        async with self._order:  # Whoever asks holds it until the turn of the command is known.
            return self._prompts.asked(message.turn)

    async def _ended(self, turn: TurnId, state: TurnState) -> None:
        """Tell what the turn changed, then answer: nothing of it comes after its answer."""
        self._prompts.ended(turn, state)
        await self._tell_news()
        await self._prompts.answer(turn)

    async def _tell_news(self) -> None:
        try:
            session = await self._desk.hub.session(self._desk.viewer, self.id)
        except NotFound:
            return  # It was deleted meanwhile, which the feed tells next.
        await self._tell(session)

    async def _tell(self, session: Session) -> None:
        before, self._about = self._about, about.of(session)
        await self._update(about.news(before, self._about, session, self._desk.choices))

    async def _update(self, updates: Iterable[Json]) -> None:
        await self._desk.update(self.id, *updates)


def _reply(text: str, key: str) -> Json:
    """What a command answers: shown, and no part of the conversation."""
    return {
        "sessionUpdate": "agent_message_chunk",
        "content": text_block(text),
        "messageId": key,
        "_meta": {"keryx": {"command": True}},
    }
