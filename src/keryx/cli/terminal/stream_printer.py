"""Prints what happens in one session while it happens, each character once. On a terminal, answers are shown as Markdown."""

import os
import re
import shutil
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import takewhile

import msgspec
from rich.cells import cell_len

from keryx.cli import output, terminal
from keryx.core import compaction
from keryx.core.changes import Change, ChangeKind, DraftChunk
from keryx.core.ids import TurnId
from keryx.core.messages import Mark, Message, Notice, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.core.texts import Texts
from keryx.core.usage import MILLION
from keryx.engine.hub.views import SessionSnapshot
from keryx.markdown import clean_text, parse_blocks

_Segment = tuple[str, bool]
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
# A longer open end of an answer is drawn at the next tick only.
_SHORT_CHARS = 2_000
# Of styles.
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class LiveRegion:
    """Lines above the cursor that can be replaced. Whatever else is printed needs `clear` before it."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    @property
    def supported(self) -> bool:
        """Whether the terminal can move its cursor."""
        return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines in the place of those before. If there are too many for the screen, the first are left out."""
        if not self.supported:
            return
        columns, rows = shutil.get_terminal_size((80, 24))
        shown = list(lines)
        while len(shown) > 1 and _count_rows(shown, columns) > rows - 1:
            del shown[0]
        kept = sum(
            1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._lines, shown, strict=False))
        )
        if kept == len(self._lines) == len(shown):
            return
        output.write(self._erase(kept, columns) + "".join(f"{line}\n" for line in shown[kept:]), end="")
        output.flush()
        self._lines = shown

    def clear(self) -> None:
        """Remove the lines from the screen."""
        if self._lines:
            output.write(self._erase(0, shutil.get_terminal_size((80, 24)).columns), end="")
            self._lines = []

    def _erase(self, kept: int, columns: int) -> str:
        """Return the sequence that erases all but the first lines. Lines that a narrower window has broken are counted."""
        rows = _count_rows(self._lines[kept:], columns)
        return f"\x1b[{rows}A\r\x1b[J" if rows else ""


class ChatStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the status line of a chat shows."""

    model: str = ""
    context_used: int | None = None
    context_limit: int | None = None
    # In millionths.
    cost: int | None = None
    currency: str = ""
    # Messages that wait.
    queued: int = 0
    # Files that go with the next message.
    attached: int = 0

    def list_facts(self, texts: Texts) -> list[str]:
        """Return the facts, the most important first."""
        facts = [self.model] if self.model else []
        if self.attached:
            facts.append(texts.say("terminal.status_attached", count=self.attached))
        if self.queued:
            facts.append(texts.say("terminal.status_queued", count=self.queued))
        if self.context_used is not None and self.context_limit:
            percent = round(100 * self.context_used / self.context_limit)
            facts.append(texts.say("terminal.status_context", percent=percent, limit=self.context_limit))
        if self.cost:
            facts.append(texts.say("terminal.status_cost", cost=self.cost / MILLION, currency=self.currency))
        return facts


def join_facts(facts: Sequence[str], room: int) -> str:
    """Join as many facts as fit into a line of `room` columns. At least the beginning of the first is shown."""
    line = output.truncate(facts[0], room) if facts else ""
    for fact in facts[1:]:
        if cell_len(f"{line} · {fact}") <= room:
            line = f"{line} · {fact}"
    return line


class StreamPrinter:
    """Prints answers while they grow, each character once, whether it comes first in a draft or in a message.

    While `live` is off, as at a prompt, drafts are held back and messages are printed when they are complete. With
    `piped`, stdout gets only the text of answers as it was written, and notices go to stderr."""

    def __init__(self, texts: Texts, *, piped: bool) -> None:
        self._texts = texts
        self.piped = piped
        self._live = True
        self.status = ChatStatus()
        self._own_messages: set[int] = set()
        self._drafts: dict[TurnId, list[DraftChunk]] = {}
        self._written: dict[TurnId, int] = {}
        # In a pipe: the last line of an answer has no end yet.
        self._line_open = False
        self._section: _OpenSection | None = None
        self._region = LiveRegion()
        self._thinking: bool = False
        self._working = False
        self._activity = ""
        self._ticks = 0
        self._seconds = 0.0

    @property
    def live(self) -> bool:
        return self._live

    @live.setter
    def live(self, live: bool) -> None:
        self._live = live
        if live:
            for turn in self._drafts:
                self._catch_up(turn)

    @contextmanager
    def working(self) -> Generator[None]:
        """Show on the last line, while the block runs, that something is being done."""
        self._working = not self.piped
        self._activity = self._texts.say("terminal.thinking")
        self.tick(0)
        try:
            yield
        finally:
            self._working = False
            self.close_line()

    def tick(self, seconds: float) -> None:
        """Draw the sign of work again, with the seconds since its beginning."""
        self._ticks += 1
        self._seconds = seconds
        self._draw()

    def reset(self) -> None:
        """Forget the session, before another one is shown."""
        self.close_line()
        self._own_messages.clear()
        self._drafts.clear()
        self._written.clear()

    def print_snapshot(self, snapshot: SessionSnapshot) -> None:
        """Print the current state of a session: its last messages, and the draft of its running turn."""
        if not self.piped:
            self.close_line()
            output.write(terminal.format_heading(snapshot.session, self._texts))
            for message in snapshot.messages:
                terminal.print_message(message, self._texts)
            self._print_pending(snapshot)
        if snapshot.running:
            self.print_draft(snapshot.running.id, snapshot.draft)

    def skip_message(self, seq: int) -> None:
        """Do not print this message: the user typed it here, so it is on the screen already."""
        self._own_messages.add(seq)

    def print_draft(self, turn: TurnId, pieces: Sequence[DraftChunk]) -> None:
        """Print text of a running turn."""
        self._drafts.setdefault(turn, []).extend(pieces)
        if self._live:
            self._catch_up(turn)

    def print_change(self, change: Change) -> None:
        message = change.message
        if change.kind is ChangeKind.DRAFT and change.turn and change.piece:
            self.print_draft(change.turn, [change.piece])
        elif change.kind is not ChangeKind.MESSAGE or message is None:
            return
        elif change.note == "added":
            self._print_message(message)
        elif message.role is Role.USER and message.mark is Mark.CANCELLED:
            # Stopped before the first word, so no answer can have the mark.
            for mark in terminal.format_marks(message, self._texts):
                self._print_mark(mark)
            self._draw()

    def print_reply(self, text: str) -> None:
        """Print a line of Keryx itself."""
        self.close_line()
        output.write(output.wrap(output.sanitize(text)))
        output.flush()

    def print_notice(self, text: str) -> None:
        """Print a notice that is not part of the conversation."""
        self.close_line()
        if self.piped:
            output.warn(text)
        else:
            output.write(output.style_text(output.wrap(f"! {output.sanitize(text)}"), "mark"))
            output.flush()
            self._draw()

    def print_question(self, text: str) -> None:
        """Print a question, whose exact command is a block of code."""
        if self.piped:
            self.print_notice(text)
            return
        self.close_line()
        title, *rest = terminal.build_renderer().render(clean_text(output.sanitize(f"! {text}")))
        self._write_lines([output.style_text(title, "mark"), *rest])
        output.flush()
        self._draw()

    def close_line(self) -> None:
        """End what is open, so that something else can be printed."""
        self._region.clear()
        if self._section:
            self._write_lines(self._section.take_rest())
            self._section = None
        if self._line_open:
            output.write("")
            self._line_open = False

    def _print_pending(self, snapshot: SessionSnapshot) -> None:
        turn = snapshot.running or next(iter(snapshot.queue), None)
        if turn:
            waiting = len(snapshot.queue) - (0 if snapshot.running else 1)
            state = "resumed" if turn.interrupted_at else "running" if snapshot.running else "queued"
            lines = [
                self._texts.say(
                    "terminal.turn_held", time=output.format_time(turn.hold.until), name=turn.hold.model
                )
                if turn.hold
                else self._texts.say(f"terminal.turn_{state}")
            ]
            if waiting > 0:
                lines.append(self._texts.say("status.queued", count=waiting))
            self.print_notice(" ".join([*lines, self._texts.say("terminal.stop_hint")]))

    def _print_message(self, message: Message) -> None:
        match message.role:
            case Role.USER:
                self._print_user_message(message)
            case Role.ASSISTANT:
                self._print_answer(message)
            case Role.TOOL:
                self._activity = self._texts.say("terminal.thinking")
                results = [p for p in message.parts if isinstance(p, ToolResult)]
                self._print_lines([terminal.format_result(p, self._texts) for p in results])
            case Role.NOTICE:
                self._print_notice_message(message)

    def _print_user_message(self, message: Message) -> None:
        if message.seq not in self._own_messages and not self.piped:
            self.close_line()
            terminal.print_message(message, self._texts)
            self._draw()

    def _print_notice_message(self, message: Message) -> None:
        if message.seq not in self._own_messages:
            notices = (
                compaction.describe_notice(p, self._texts) if isinstance(p, Notice) else message.text
                for p in message.parts
            )
            self.print_notice("\n\n".join(notices))

    def _print_answer(self, message: Message) -> None:
        segments = [
            (p.text, isinstance(p, Reasoning)) for p in message.parts if isinstance(p, Text | Reasoning)
        ]
        done = self._written.pop(message.turn, 0) if message.turn else 0
        if message.turn:
            self._drafts.pop(message.turn, None)
        self._write_segments(segments, done)
        self.close_line()
        calls = [p for p in message.parts if isinstance(p, ToolCall)]
        if calls:
            self._activity = self._texts.say("terminal.using", tool=calls[0].name)
        media = [p for p in message.parts if not isinstance(p, Text | Reasoning | ToolCall)]
        self._print_lines(
            [*map(terminal.format_call, calls), *terminal.format_parts(tuple(media), self._texts)]
        )
        for mark in terminal.format_marks(message, self._texts):
            self._print_mark(mark)
        output.flush()
        self._draw()

    def _catch_up(self, turn: TurnId) -> None:
        segments = [(piece.text, piece.thought) for piece in self._drafts[turn]]
        self._write_segments(segments, self._written.get(turn, 0))
        self._written[turn] = sum(len(text) for text, _ in segments)

    def _write_segments(self, segments: list[_Segment], done: int) -> None:
        """Write everything after the first `done` characters."""
        for text, thought in segments:
            fresh = text[done:]
            done = max(0, done - len(text))
            if not fresh:
                continue
            if not self.piped:
                self._append_to_section(fresh, thought)
            elif not thought:
                output.write(output.sanitize(fresh), end="")
                self._line_open = not fresh.endswith("\n")
        output.flush()

    def _append_to_section(self, text: str, thought: bool) -> None:
        if self._section is None or self._section.thought is not thought:
            self.close_line()
            self._section = _OpenSection(thought=thought)
        self._activity = self._texts.say("terminal.thinking" if thought else "terminal.writing")
        # The halves of a line end may come in two pieces, and the parser counts other line ends too.
        self._section.text += clean_text(output.sanitize(text.replace("\r", "")))
        if len(self._section.text) <= _SHORT_CHARS:
            self._draw()

    def _draw(self) -> None:
        """Print the blocks of the answer that are complete, and draw its open end and the status again."""
        if not self._live or self.piped:
            return
        lines: list[str] = []
        if self._section:
            if closed := self._section.take_closed():
                self._region.clear()
                self._write_lines(closed)
            lines = self._section.render_open()
        if self._working:
            lines += ["", self._format_work()] if lines else [self._format_work()]
        self._region.draw(lines)

    def _format_work(self) -> str:
        spinner = _SPINNER[self._ticks % len(_SPINNER)]
        facts = [
            f"{spinner} {output.sanitize(self._activity, one_line=True)} {self._seconds:.0f} s",
            self._texts.say("terminal.stop_key"),
            *self.status.list_facts(self._texts),
        ]
        return output.style_text(join_facts(facts, output.screen_width() - 1), "dim")

    def _print_lines(self, lines: list[str]) -> None:
        if self.piped:
            return
        self.close_line()
        self._write_lines(lines)
        output.flush()
        self._draw()

    def _write_lines(self, lines: Sequence[str]) -> None:
        for line in lines:
            output.write(line)

    def _print_mark(self, mark: str) -> None:
        self.close_line()
        if self.piped:
            output.warn(mark)
        else:
            output.write(output.style_text(output.wrap(mark), "mark"))


class _OpenSection:
    """The end of an answer, or of a thought, that is not printed for good yet because more text may change it."""

    def __init__(self, *, thought: bool) -> None:
        self.thought = thought
        self.text = ""

    def take_closed(self) -> list[str]:
        """Return the lines that cannot change any more, and forget them."""
        if self.thought:
            closed, end, self.text = self.text.rpartition("\n")
            return self._render(closed) if end else []
        blocks = list(parse_blocks(self.text))
        # A line that begins a block may turn out to belong to the one before, so two blocks stay open.
        if len(blocks) <= 2:
            return []
        lines = self.text.split("\n")
        at = blocks[-2][0]
        closed, self.text = "\n".join(lines[:at]), "\n".join(lines[at:])
        return [*self._render(closed), ""]

    def render_open(self) -> list[str]:
        return self._render(self.text)

    def take_rest(self) -> list[str]:
        rest, self.text = self.text, ""
        return self._render(rest)

    def _render(self, text: str) -> list[str]:
        if not text.strip():
            return []
        renderer = terminal.build_renderer()
        return renderer.wrap(text, output.STYLES["thought"]) if self.thought else renderer.render(text)


def _count_rows(lines: Sequence[str], columns: int) -> int:
    return sum(max(1, -(-cell_len(_ESCAPES.sub("", line)) // columns)) for line in lines)
