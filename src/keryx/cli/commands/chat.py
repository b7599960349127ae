"""`keryx chat`: talk to the agent in this terminal, or through a pipe."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Annotated

import anyio
from cyclopts import Parameter

from keryx.app import App
from keryx.cli import output
from keryx.cli.exit_codes import INTERRUPTED
from keryx.cli.options import FLAG, Attach, HubAccess, check_words, join_input, load_settings, log_to_file
from keryx.cli.terminal.completion import LOCAL_COMMANDS, ChatCompleter
from keryx.cli.terminal.line_editor import LineEditor, disable_echo, pick_session
from keryx.cli.terminal.stream_printer import StreamPrinter, join_facts
from keryx.cli.terminal.terminal_chat import TerminalChat, find_texts, open_chat
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import OPERATOR, SessionId, TurnId
from keryx.core.sessions import SessionFilter
from keryx.core.texts import Texts
from keryx.core.turns import TurnState

_CHUNK_BYTES = 65_536
LEAVE_COMMANDS = ("/quit", "/exit")
_MAX_CHOICES = 200
_TICK_SECONDS = 0.1
_NO_SESSION = "there is no conversation to go on with yet: `keryx chat` starts one"


async def read_stdin_lines() -> AsyncIterator[str]:
    """Yield each line of stdin as it arrives, without its end. Bytes that are not UTF-8 become surrogates."""
    rest = b""
    while chunk := await _read_chunk():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield _decode_line(line)
    if rest:
        yield _decode_line(rest)


async def _read_chunk() -> bytes:
    try:
        source = sys.stdin.fileno()
    except OSError:
        # Not an operating system file, as in a test or a notebook: it never blocks.
        return sys.stdin.buffer.read(_CHUNK_BYTES)
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    # The selector refuses a plain file, which can always be read.
    with suppress(PermissionError):
        loop.add_reader(source, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(source)
    return os.read(source, _CHUNK_BYTES)


def _decode_line(line: bytes) -> str:
    return line.decode("utf-8", "surrogateescape")


async def chat(
    *message: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True, help="What to say first; `-` at its end adds what comes on the input."
        ),
    ],
    new: Annotated[bool, FLAG, Parameter(help="Start a new conversation, as without any option.")] = False,
    continue_: Annotated[
        bool, FLAG, Parameter(name=["--continue", "-c"], help="Go on with the last one held in a terminal.")
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
    attach: Attach = None,
    model: Annotated[str | None, Parameter(help="The model of this conversation.")] = None,
    temporary: Annotated[
        bool,
        FLAG,
        Parameter(help="Start a conversation that is not searched, exported or kept, as with /temp."),
    ] = False,
) -> int:
    """Talk to the agent in this terminal.

    Ctrl-C stops the answer, or clears the line; Ctrl-D leaves. /help lists the
    commands and keys. The conversation is kept: after a crash, `keryx chat
    --continue` takes it up where it was. Without a terminal each line of the
    input is one message, and the output is the answers; `-` takes the whole
    input as one message.

        keryx chat
        keryx chat --continue
        keryx chat --resume "trip to oslo"
        keryx chat --attach photo.jpg --model large "what is this?"
        git diff | keryx chat "review this:" -
    """
    if new + continue_ + temporary + (resume is not None) > 1:
        raise Invalid("choose one of --new, --continue, --temporary and --resume")
    ref, rest = (resume[0], resume[1:]) if resume else (None, [])
    words = [*rest, *message]
    check_words(words, "chat")
    app = App(load_settings())
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    first = " ".join(words)
    literal = words[-1:] == [output.STDIO]
    if literal:
        given = "\n".join([line async for line in read_stdin_lines()])
        first = join_input(words[:-1], given)
        terminal = False
    stream = StreamPrinter(find_texts(app), piped=not terminal)
    with log_to_file(app.settings):
        async with open_chat(app, stream, kind="chat", model=model) as talk:
            access = HubAccess(talk.hub, app.viewer)
            session = await _choose_session(
                access, talk.texts, continue_=continue_, choose=resume is not None, ref=ref, terminal=terminal
            )
            await (talk.resume(session) if session else talk.begin())
            if temporary:
                await talk.begin_temporary()
            await talk.attach(attach or [])
            if terminal:
                return await _run_terminal(app, talk, first)
            return await _run_pipe(talk, first, literal=literal)


async def _choose_session(
    access: HubAccess, texts: Texts, *, continue_: bool, choose: bool, ref: str | None, terminal: bool
) -> SessionId | None:
    """Return the session to continue, `None` for a new one."""
    if continue_:
        found, _ = await access.hub.list_sessions(access.viewer, SessionFilter(surface="cli", limit=1))
        if not found:
            raise NotFound(_NO_SESSION)
        return found[0].session.id
    if ref is not None:
        return await access.find_id(ref)
    if not choose:
        return None
    if not terminal:
        raise Invalid("--resume needs the name of a session where there is no terminal to choose one in")
    found, _ = await access.hub.list_sessions(access.viewer, SessionFilter(limit=_MAX_CHOICES))
    own = [entry.session for entry in found if entry.session.owner == OPERATOR]
    if not own:
        raise NotFound(_NO_SESSION)
    chosen = await pick_session(own, texts)
    if chosen is None:
        raise KeyboardInterrupt
    return chosen.id


async def _run_terminal(app: App, talk: TerminalChat, first: str) -> int:
    line = LineEditor(
        app.settings.folder / "history",
        talk.texts,
        completer=ChatCompleter(talk.texts, talk.list_values),
        status=lambda: join_facts(talk.stream.status.list_facts(talk.texts), output.screen_width()),
        attach=talk.try_attach,
        private=lambda: talk.temporary,
    )
    talk.on_status = line.redraw
    if not talk.session and not first:
        output.write(
            output.style_text(
                output.wrap(talk.texts.say("terminal.welcome", agent=app.settings.active_agent)),
                "dim",
            )
        )
    watch = _InterruptHandler(talk)
    with disable_echo(), watch:
        if talk.has_unfinished:
            await watch.wait_for(talk.wait_for_unfinished())
        text: str | None = first or await _read_line(line, talk)
        while text is not None and text.strip() not in LEAVE_COMMANDS and not watch.leaving:
            if text.strip() or talk.has_attachments:
                turn = await _send(talk, text)
                if turn or talk.has_unfinished:
                    await watch.wait_for(
                        talk.wait_for_end_or_question(turn) if turn else talk.wait_for_unfinished()
                    )
            if text.strip() == "/help":
                # The commands of the terminal itself, and its keys.
                texts = talk.texts
                local = (
                    f"/{name} {texts.say(f'usage.{name}') if texts.has(f'usage.{name}') else ''}".rstrip()
                    + f" – {texts.say(f'help.{name}')}"
                    for name in LOCAL_COMMANDS
                )
                talk.stream.print_reply("\n".join([*local, "", texts.say("terminal.keys")]))
            text = None if watch.leaving else await _read_line(line, talk)
    if talk.session:
        back = output.wrap(talk.texts.say("terminal.resume_hint", session=talk.session))
        output.write(output.style_text(back, "dim"))
    return INTERRUPTED if watch.leaving else 0


async def _read_line(line: LineEditor, talk: TerminalChat) -> str | None:
    talk.stream.close_line()
    output.write("")
    talk.stream.live = False
    try:
        return await line.read()
    finally:
        talk.stream.live = True


async def _send(talk: TerminalChat, text: str, *, literal: bool = False) -> TurnId | None:
    """Send a message, or run a command of the terminal. Return the turn that it starts, or whose question it answers."""
    if not literal and await talk.run_local_command(text):
        return None
    asking = talk.asking_turn
    receipt = await talk.send(text, literal=literal)
    return receipt.turn or asking


async def _run_pipe(talk: TerminalChat, first: str, *, literal: bool) -> int:
    """Send each line as a message and wait for its answer before the next. Return 1 if any turn failed. With `literal` the
    first message is no command."""
    failed = False

    async def send(text: str, *, literal: bool = False) -> None:
        nonlocal failed
        if turn := await _send(talk, text, literal=literal):
            state = await talk.wait_for_end_or_question(turn)
            talk.stream.close_line()
            failed |= state not in (TurnState.DONE, None)

    if first or talk.has_attachments:
        await send(first, literal=literal)
    if not first or not sys.stdin.isatty():
        async for line in read_stdin_lines():
            if line.strip() in LEAVE_COMMANDS:
                break
            if line.strip():
                await send(line)
    while talk.asking_turn:
        failed |= await talk.wait_for_end(talk.asking_turn) is not TurnState.DONE
    await talk.wait_for_unfinished()
    return int(failed)


class _InterruptHandler:
    """Handles Ctrl-C during an answer: the first stops the turn, the second leaves the chat."""

    def __init__(self, talk: TerminalChat) -> None:
        self.leaving = False
        self._chat = talk
        self._scope: anyio.CancelScope | None = None
        self._pressed = anyio.Event()

    def __enter__(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._on_interrupt)

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    async def wait_for(self, end: Awaitable[object]) -> None:
        """Wait for the end of a turn, which Ctrl-C may stop."""
        self._pressed = anyio.Event()
        with self._chat.stream.working(), anyio.CancelScope() as self._scope:
            async with anyio.create_task_group() as group:
                group.start_soon(self._stop_when_pressed)
                group.start_soon(self._show_work)
                await end
                group.cancel_scope.cancel()
        self._scope = None

    async def _show_work(self) -> None:
        began = anyio.current_time()
        while True:
            await anyio.sleep(_TICK_SECONDS)
            self._chat.stream.tick(anyio.current_time() - began)

    def _on_interrupt(self) -> None:
        if self._scope is None:
            return
        if self._pressed.is_set():
            self.leaving = True
            self._scope.cancel()
        self._pressed.set()

    async def _stop_when_pressed(self) -> None:
        await self._pressed.wait()
        await self._chat.stop()
