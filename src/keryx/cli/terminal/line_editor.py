"""The input line of a chat, with history and completion, and the list to choose a session from."""

import sys
import termios
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, VSplit, Window
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style
from rich.cells import set_cell_size

from keryx.cli import output
from keryx.cli.terminal import attachments
from keryx.core.errors import StoreBroken
from keryx.core.sessions import Session
from keryx.core.texts import Texts

PROMPT = "› "
_MENU_ROWS = 6
_LFLAG = 3
_PICKER_ROWS = 12


class LineHistory(FileHistory):
    """The lines of earlier chats. Those of a temporary one are kept in memory only."""

    def __init__(self, filename: str, private: Callable[[], bool]) -> None:
        super().__init__(filename)
        self._private = private

    def store_string(self, string: str) -> None:
        if not self._private():
            super().store_string(string)


class LineEditor:
    """Reads one line, or several with Alt-Enter. The history is kept between runs, readable by this user only."""

    def __init__(
        self,
        history: Path,
        texts: Texts,
        *,
        completer: Completer,
        status: Callable[[], str],
        attach: Callable[[Sequence[str] | None], Coroutine[Any, Any, None]],
        private: Callable[[], bool] = lambda: False,
    ) -> None:
        """`status` returns the line below the input. `attach` adds files to the next message, or with `None` the picture in
        the clipboard. While `private` returns true, the history is not written."""
        try:
            history.parent.mkdir(parents=True, exist_ok=True)
            history.touch(mode=0o600)
        except OSError as exc:
            raise StoreBroken(
                f"{history} cannot be written ({exc.strerror}): check its rights, or set KERYX_HOME"
            ) from exc
        self._hinted = False
        self._texts = texts
        self._status = status
        self._attach = attach
        self._session: PromptSession[str | None] = PromptSession(
            [("class:prompt", PROMPT)],
            history=LineHistory(str(history), private),
            completer=completer,
            # Room for the menu is kept free only where there is something to complete.
            complete_while_typing=Condition(lambda: self._session.default_buffer.text.startswith("/")),
            reserve_space_for_menu=_MENU_ROWS,
            key_bindings=self._build_keys(),
            bottom_toolbar=self._format_toolbar,
            style=Style.from_dict(
                {
                    "prompt": "bold ansicyan",
                    "bottom-toolbar": "noreverse",
                    "bottom-toolbar.text": "noreverse #888888",
                }
            ),
            enable_open_in_editor=True,
        )

    async def read(self) -> str | None:
        """Read a line; return `None` if the user leaves. Other output appears above the line."""
        self._hinted = False
        with patch_stdout(raw=True):
            try:
                return await self._session.prompt_async(handle_sigint=False)
            except EOFError:
                return None

    def redraw(self) -> None:
        """Show the status again, after it has changed."""
        self._session.app.invalidate()

    def _format_toolbar(self) -> str:
        return self._texts.say("terminal.leave_hint") if self._hinted else self._status()

    def _build_keys(self) -> KeyBindings:
        keys = KeyBindings()

        def interrupt(event: KeyPressEvent) -> None:
            buffer = event.app.current_buffer
            if not buffer.text and self._hinted:
                event.app.exit(result=None)
            self._hinted = not buffer.text
            buffer.reset()

        def newline(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        def paste(event: KeyPressEvent) -> None:
            if dropped := attachments.find_dropped(event.data):
                event.app.create_background_task(self._attach(dropped))
            else:
                event.current_buffer.insert_text(event.data.replace("\r\n", "\n").replace("\r", "\n"))

        def paste_picture(event: KeyPressEvent) -> None:
            event.app.create_background_task(self._attach(None))

        # While the history is searched, Ctrl-C ends the search.
        keys.add("c-c", filter=~is_searching)(interrupt)
        keys.add("escape", "enter")(newline)
        keys.add(Keys.BracketedPaste)(paste)
        keys.add("c-v")(paste_picture)
        return keys


@contextmanager
def disable_echo() -> Generator[None]:
    """Turn off echo during an answer; the next prompt gets what is typed. Ctrl-C stays a signal."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    quiet = termios.tcgetattr(keyboard)
    quiet[_LFLAG] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(keyboard, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


async def pick_session(sessions: Sequence[Session], texts: Texts) -> Session | None:
    """Show a list to pick a session from: typing filters, arrows or a number select, Enter accepts, Escape cancels."""
    return await _SessionPicker(sessions, texts).run()


class _SessionPicker:
    def __init__(self, sessions: Sequence[Session], texts: Texts) -> None:
        self._texts = texts
        self._all = list(sessions)
        self._selected = 0
        self._filter = Buffer(multiline=False, on_text_changed=self._select_first)

    async def run(self) -> Session | None:
        prompt = Window(
            FormattedTextControl(f"{self._texts.say('terminal.pick')} "), dont_extend_width=True, height=1
        )
        typed = Window(BufferControl(self._filter), height=1)
        found = Window(FormattedTextControl(self._format_lines), dont_extend_height=True, wrap_lines=True)
        application: Application[Session | None] = Application(
            layout=Layout(HSplit([VSplit([prompt, typed]), found])),
            key_bindings=self._build_keys(),
            erase_when_done=True,
        )
        return await application.run_async()

    @property
    def _matches(self) -> list[tuple[int, Session]]:
        """Return the sessions that match the filter: by number, or by all words in the title or id."""
        wanted = self._filter.text.casefold().split()
        numbered = list(enumerate(self._all, start=1))
        if len(wanted) == 1 and wanted[0].isdigit() and 1 <= int(wanted[0]) <= len(numbered):
            return [numbered[int(wanted[0]) - 1]]
        return [(n, s) for n, s in numbered if all(w in f"{s.title} {s.id}".casefold() for w in wanted)]

    def _select_first(self, _: Buffer) -> None:
        self._selected = 0

    def _format_lines(self) -> StyleAndTextTuples:
        found = self._matches
        first = max(0, min(self._selected - _PICKER_ROWS // 2, len(found) - _PICKER_ROWS))
        lines: StyleAndTextTuples = []
        for row, (number, session) in enumerate(found[first : first + _PICKER_ROWS], start=first):
            facts = f"{session.surface}  {output.format_time(session.active_at)}"
            room = output.terminal_width() - len(facts) - 8
            title = output.truncate(session.title or self._texts.say("session.untitled", id=session.id), room)
            line = f"{number:>3}  {set_cell_size(title, room)}  {facts}"
            lines.append(("reverse" if row == self._selected else "", f"{line}\n"))
        hint = self._texts.say("terminal.pick_hint") if found else self._texts.say("terminal.pick_none")
        return [*lines, ("italic", hint)]

    def _build_keys(self) -> KeyBindings:
        keys = KeyBindings()

        def up(event: KeyPressEvent) -> None:
            self._selected = max(0, self._selected - 1)

        def down(event: KeyPressEvent) -> None:
            self._selected = max(0, min(self._selected + 1, len(self._matches) - 1))

        def take(event: KeyPressEvent) -> None:
            if self._matches:
                event.app.exit(result=self._matches[self._selected][1])

        def leave(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

        keys.add("up")(up)
        keys.add("down")(down)
        keys.add("enter")(take)
        for key in ("escape", "c-c", "c-d"):
            keys.add(key, eager=True)(leave)
        return keys
