"""Chat: talk to the agent in this terminal, or through a pipe."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable
from typing import Annotated

import anyio
from cyclopts import Parameter

from keryx.app import App
from keryx.cli import output
from keryx.cli.access import Access, settings
from keryx.cli.conversation import Conversation, conversation
from keryx.cli.errors import INTERRUPTED
from keryx.cli.lines import lines
from keryx.cli.prompt import Line, pick, type_ahead
from keryx.cli.stream import Stream
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import OPERATOR, SessionId, TurnId
from keryx.core.sessions import Listing, Session
from keryx.core.turns import TurnState

LEAVE = ("/quit", "/exit")
_CHOICES = 200
_FLAG = Parameter(negative="", show_default=False)


async def chat(
    *message: Annotated[str, Parameter(help="What to say first.")],
    new: Annotated[bool, _FLAG, Parameter(help="Start a new conversation, as without any option.")] = False,
    continue_: Annotated[
        bool, _FLAG, Parameter(name=["--continue", "-c"], help="Go on with the last one held in a terminal.")
    ] = False,
    resume: Annotated[
        list[str] | None,
        Parameter(
            name=["--resume", "-r"],
            consume_multiple=True,
            negative="",
            help="Go on with a session: id, beginning of an id, or title. Alone it lets you choose from a list.",
        ),
    ] = None,
) -> int:
    """Talk to the agent in this terminal.

    Ctrl-C stops the answer, or clears the line; Ctrl-D leaves. /help lists the
    commands. The conversation is kept: after a crash, `keryx chat --continue`
    takes it up where it was. Without a terminal each line of the input is one
    message, and the output is the answers.

        keryx chat
        keryx chat --continue
        keryx chat --resume "trip to oslo"
        echo "what is new?" | keryx chat --new
    """
    if new + continue_ + (resume is not None) > 1:
        raise Invalid("choose one of --new, --continue and --resume")
    ref, rest = (resume[0], resume[1:]) if resume else (None, [])
    first = " ".join([*rest, *message])
    app = App(settings())
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    async with conversation(app, Stream(bare=not terminal), kind="chat") as talk:
        access = Access(talk.hub, app.viewer)
        session = await _chosen(
            access, continue_=continue_, choose=resume is not None, ref=ref, terminal=terminal
        )
        if session:
            await talk.go_on(session)
        if terminal:
            return await _at_terminal(app, talk, first)
        return await _through_pipe(talk, first)


async def _chosen(
    access: Access, *, continue_: bool, choose: bool, ref: str | None, terminal: bool
) -> SessionId | None:
    """The session to go on with, `None` for a new one."""
    if continue_:
        found, _ = await access.hub.sessions(access.viewer, Listing(surface="cli", limit=1))
        if not found:
            raise NotFound("there is no conversation to go on with yet: `keryx chat` starts one")
        return found[0].session.id
    if ref is not None:
        return await access.id(ref)
    if not choose:
        return None
    if not terminal:
        raise Invalid("--resume needs the name of a session where there is no terminal to choose one in")
    chosen = await pick(await _own(access))
    if chosen is None:
        raise KeyboardInterrupt
    return chosen.id


async def _own(access: Access) -> list[Session]:
    found, _ = await access.hub.sessions(access.viewer, Listing(limit=_CHOICES))
    mine = [entry.session for entry in found if entry.session.owner == OPERATOR]
    if not mine:
        raise NotFound("there is no conversation to go on with yet: `keryx chat` starts one")
    return mine


async def _at_terminal(app: App, talk: Conversation, first: str) -> int:
    line = Line(app.settings.folder / "history")
    if not talk.session and not first:
        output.write(
            output.styled(
                output.folded(
                    f"New conversation with {app.settings.brain}. /help lists commands, Ctrl-D leaves."
                ),
                "dim",
            )
        )
    watch = _Interrupts(talk)
    with type_ahead(), watch:
        await watch.waiting(talk.settled())
        text: str | None = first or await _typed(line, talk)
        while text is not None and text.strip() not in LEAVE and not watch.leaving:
            if text.strip():
                await _exchange(talk, watch, text)
            text = None if watch.leaving else await _typed(line, talk)
    if talk.session:
        back = output.folded(f"keryx chat --resume {talk.session} comes back here.")
        output.write(output.styled(back, "dim"))
    return INTERRUPTED if watch.leaving else 0


async def _typed(line: Line, talk: Conversation) -> str | None:
    talk.stream.close_line()
    output.write("")
    talk.stream.live = False
    try:
        return await line.read()
    finally:
        talk.stream.live = True


async def _exchange(talk: Conversation, watch: "_Interrupts", text: str) -> None:
    answering = talk.asking
    receipt = await talk.say(text)
    if turn := receipt.turn or answering:
        await watch.waiting(talk.paused(turn))
    else:
        await watch.waiting(talk.settled())
    talk.stream.close_line()


async def _through_pipe(talk: Conversation, first: str) -> int:
    """Each line is a message, answered before the next is read. Gives 1 if any turn did not end well."""
    failed = False
    async for text in _lines(first):
        answering = talk.asking
        receipt = await talk.say(text)
        if turn := receipt.turn or answering:
            failed |= await _state(talk, turn) not in (TurnState.DONE, None)
    while talk.asking:
        failed |= await talk.ended(talk.asking) is not TurnState.DONE
    await talk.settled()
    return int(failed)


async def _state(talk: Conversation, turn: TurnId) -> TurnState | None:
    state = await talk.paused(turn)
    talk.stream.close_line()
    return state


async def _lines(first: str) -> AsyncIterator[str]:
    if first:
        yield first
    if first and sys.stdin.isatty():
        return
    async for line in lines():
        if line.strip() in LEAVE:
            return
        if line.strip():
            yield line


class _Interrupts:
    """Ctrl-C while an answer comes: once stops the turn, twice leaves."""

    def __init__(self, talk: Conversation) -> None:
        self.leaving = False
        self._talk = talk
        self._scope: anyio.CancelScope | None = None
        self._pressed = anyio.Event()

    def __enter__(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._press)

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    async def waiting(self, end: Awaitable[object]) -> None:
        """Wait for the end of a turn, which a person may bring about."""
        self._pressed = anyio.Event()
        with anyio.CancelScope() as self._scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self._stop_when_pressed)
                await end
                group.cancel_scope.cancel()
        self._scope = None

    def _press(self) -> None:
        if self._scope is None:
            return
        if self._pressed.is_set():
            self.leaving = True
            self._scope.cancel()
        self._pressed.set()

    async def _stop_when_pressed(self) -> None:
        await self._pressed.wait()
        await self._talk.stop()
