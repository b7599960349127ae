"""Stream: what happens in one session, written as it happens."""

import sys
from collections.abc import Sequence

from keryx.cli import output, transcript
from keryx.core import compaction
from keryx.core.changes import Change, Kind, Piece
from keryx.core.ids import TurnId
from keryx.core.messages import Message, Notice, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.engine.snapshot import Snapshot

_Segment = tuple[str, bool]


class Stream:
    """Writes answers while they grow, each character once, whether it is seen first in a draft or in a message.

    While `live` is off, as at a prompt, drafts are kept back and a message appears when it is whole. A `bare`
    stream is for pipes: stdout gets the words of answers and nothing else, notices go to stderr."""

    def __init__(self, *, bare: bool) -> None:
        self._bare = bare
        self._live = True
        self._own: set[int] = set()
        self._drafts: dict[TurnId, list[Piece]] = {}
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

    def forget(self) -> None:
        """Another session is shown from now on."""
        self.close_line()
        self._own.clear()
        self._drafts.clear()
        self._written.clear()

    def open(self, snapshot: Snapshot) -> None:
        """Begin with a session as it is: its last messages, and what its running turn has said so far."""
        if not self._bare:
            self.close_line()
            output.write(transcript.heading(snapshot.session))
            for message in snapshot.messages:
                transcript.show(message)
            self._going_on(snapshot)
        if snapshot.running:
            self.draft(snapshot.running.id, snapshot.draft)

    def own(self, seq: int) -> None:
        """The person typed this message here: it is on the screen already."""
        self._own.add(seq)

    def draft(self, turn: TurnId, pieces: Sequence[Piece]) -> None:
        """Text of a running turn that was there before the stream began."""
        self._drafts.setdefault(turn, []).extend(pieces)
        if self._live:
            self._catch_up(turn)

    def show(self, change: Change) -> None:
        if change.kind is Kind.DRAFT and change.turn and change.piece:
            self.draft(change.turn, [change.piece])
        elif change.kind is Kind.MESSAGE and change.message and change.note == "added":
            self._message(change.message)

    def say(self, text: str) -> None:
        """A line of Keryx itself."""
        self.close_line()
        output.write(output.folded(output.plain(text)))
        sys.stdout.flush()

    def notice(self, text: str) -> None:
        """Something that a person must know beside the conversation."""
        self.close_line()
        if self._bare:
            output.warn(text)
        else:
            output.write(output.styled(output.folded(f"! {output.plain(text)}"), "mark"))
            sys.stdout.flush()

    def close_line(self) -> None:
        if self._line_open:
            output.write("")
            self._line_open = False

    def _going_on(self, snapshot: Snapshot) -> None:
        turn = snapshot.running or next(iter(snapshot.queue), None)
        if turn:
            again = "is taken up again" if turn.interrupted_at else "runs" if snapshot.running else "waits"
            waiting = len(snapshot.queue) - (0 if snapshot.running else 1)
            more = f"; {waiting} more wait" if waiting > 0 else ""
            self.notice(f"A turn {again}{more}. Ctrl-C stops it.")

    def _message(self, message: Message) -> None:
        match message.role:
            case Role.USER:
                self._question(message)
            case Role.ASSISTANT:
                self._answer(message)
            case Role.TOOL:
                self._lines([transcript.result(p) for p in message.parts if isinstance(p, ToolResult)])
            case Role.NOTICE:
                self._notice(message)

    def _question(self, message: Message) -> None:
        if message.seq not in self._own and not self._bare:
            self.close_line()
            transcript.show(message)

    def _notice(self, message: Message) -> None:
        if message.seq not in self._own:
            told = (compaction.shown(p) if isinstance(p, Notice) else message.text for p in message.parts)
            self.notice("\n\n".join(told))

    def _answer(self, message: Message) -> None:
        segments = [
            (p.text, isinstance(p, Reasoning)) for p in message.parts if isinstance(p, Text | Reasoning)
        ]
        done = self._written.pop(message.turn, 0) if message.turn else 0
        if message.turn:
            self._drafts.pop(message.turn, None)
        self._write(segments, done)
        self.close_line()
        self._lines([transcript.call(p) for p in message.parts if isinstance(p, ToolCall)])
        for mark in transcript.marks(message):
            self._marked(mark)
        sys.stdout.flush()

    def _catch_up(self, turn: TurnId) -> None:
        segments = [(piece.text, piece.thought) for piece in self._drafts[turn]]
        self._write(segments, self._written.get(turn, 0))
        self._written[turn] = sum(len(text) for text, _ in segments)

    def _write(self, segments: list[_Segment], done: int) -> None:
        """Write what comes after the first `done` characters."""
        for text, thought in segments:
            fresh = text[done:]
            done = max(0, done - len(text))
            if fresh and not (thought and self._bare):
                self._put(fresh, thought)
        sys.stdout.flush()

    def _put(self, text: str, thought: bool) -> None:
        if thought is not self._thinking:
            self.close_line()
        self._thinking = thought
        shown = output.plain(text)
        output.write(output.styled(shown, "thought") if thought else shown, end="")
        self._line_open = not text.endswith("\n")

    def _lines(self, lines: list[str]) -> None:
        if self._bare:
            return
        for line in lines:
            self.close_line()
            output.write(line)
        sys.stdout.flush()

    def _marked(self, mark: str) -> None:
        self.close_line()
        if self._bare:
            output.warn(mark)
        else:
            output.write(output.styled(mark, "mark"))
