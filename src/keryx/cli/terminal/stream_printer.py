"""Prints what happens in one session while it happens, each character once."""

import sys
from collections.abc import Sequence

from keryx.cli import output, terminal
from keryx.core import compaction
from keryx.core.changes import Change, ChangeKind, DraftChunk
from keryx.core.ids import TurnId
from keryx.core.messages import Message, Notice, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.core.texts import Texts
from keryx.engine.hub.views import SessionSnapshot

_Segment = tuple[str, bool]


class StreamPrinter:
    """Prints answers while they grow, each character once, whether it comes first in a draft or in a message.

    While `live` is off, as at a prompt, drafts are held back and messages are printed when they are complete. With
    `piped`, stdout gets only the text of answers, and notices go to stderr."""

    def __init__(self, texts: Texts, *, piped: bool) -> None:
        self._texts = texts
        self._piped = piped
        self._live = True
        self._own_messages: set[int] = set()
        self._drafts: dict[TurnId, list[DraftChunk]] = {}
        self._written: dict[TurnId, int] = {}
        self._line_open = False
        self._thinking: bool = False

    @property
    def live(self) -> bool:
        return self._live

    @live.setter
    def live(self, live: bool) -> None:
        self._live = live
        if live:
            for turn in self._drafts:
                self._catch_up(turn)

    def reset(self) -> None:
        """Forget the session, before another one is shown."""
        self.close_line()
        self._own_messages.clear()
        self._drafts.clear()
        self._written.clear()

    def print_snapshot(self, snapshot: SessionSnapshot) -> None:
        """Print the current state of a session: its last messages, and the draft of its running turn."""
        if not self._piped:
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
        if change.kind is ChangeKind.DRAFT and change.turn and change.piece:
            self.print_draft(change.turn, [change.piece])
        elif change.kind is ChangeKind.MESSAGE and change.message and change.note == "added":
            self._print_message(change.message)

    def print_reply(self, text: str) -> None:
        """Print a line of Keryx itself."""
        self.close_line()
        output.write(output.wrap(output.sanitize(text)))
        sys.stdout.flush()

    def print_notice(self, text: str) -> None:
        """Print a notice that is not part of the conversation."""
        self.close_line()
        if self._piped:
            output.warn(text)
        else:
            output.write(output.style_text(output.wrap(f"! {output.sanitize(text)}"), "mark"))
            sys.stdout.flush()

    def close_line(self) -> None:
        if self._line_open:
            output.write("")
            self._line_open = False

    def _print_pending(self, snapshot: SessionSnapshot) -> None:
        turn = snapshot.running or next(iter(snapshot.queue), None)
        if turn:
            waiting = len(snapshot.queue) - (0 if snapshot.running else 1)
            state = "resumed" if turn.interrupted_at else "running" if snapshot.running else "queued"
            lines = [self._texts.say(f"terminal.turn_{state}")]
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
                self._print_lines(
                    [
                        terminal.format_result(p, self._texts)
                        for p in message.parts
                        if isinstance(p, ToolResult)
                    ]
                )
            case Role.NOTICE:
                self._print_notice_message(message)

    def _print_user_message(self, message: Message) -> None:
        if message.seq not in self._own_messages and not self._piped:
            self.close_line()
            terminal.print_message(message, self._texts)

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
        self._print_lines([terminal.format_call(p) for p in message.parts if isinstance(p, ToolCall)])
        for mark in terminal.format_marks(message, self._texts):
            self._print_mark(mark)
        sys.stdout.flush()

    def _catch_up(self, turn: TurnId) -> None:
        segments = [(piece.text, piece.thought) for piece in self._drafts[turn]]
        self._write_segments(segments, self._written.get(turn, 0))
        self._written[turn] = sum(len(text) for text, _ in segments)

    def _write_segments(self, segments: list[_Segment], done: int) -> None:
        """Write everything after the first `done` characters."""
        for text, thought in segments:
            fresh = text[done:]
            done = max(0, done - len(text))
            if fresh and not (thought and self._piped):
                self._write_text(fresh, thought)
        sys.stdout.flush()

    def _write_text(self, text: str, thought: bool) -> None:
        if thought is not self._thinking:
            self.close_line()
        self._thinking = thought
        shown = output.sanitize(text)
        output.write(output.style_text(shown, "thought") if thought else shown, end="")
        self._line_open = not text.endswith("\n")

    def _print_lines(self, lines: list[str]) -> None:
        if self._piped:
            return
        for line in lines:
            self.close_line()
            output.write(line)
        sys.stdout.flush()

    def _print_mark(self, mark: str) -> None:
        self.close_line()
        if self._piped:
            output.warn(mark)
        else:
            output.write(output.style_text(mark, "mark"))
