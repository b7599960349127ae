"""What a person sees on a terminal: the characters after all moves of the cursor, with what has scrolled away."""

import re

from rich.cells import get_character_cell_size

_TOKENS = re.compile(
    r"\x1b\[(?P<private>[?>]?)(?P<numbers>[0-9;]*)(?P<command>[@-~])"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-Z]|\x1b[=>78]"
    r"|(?P<character>[\x00-\x1a\x1c-\U0010ffff])",
    re.DOTALL,
)


class Screen:
    """A small terminal. Lines above the window are kept, so nothing that was shown for good is lost."""

    def __init__(self, columns: int = 80, rows: int = 24) -> None:
        self._columns = columns
        self._rows = rows
        self._lines: list[list[str]] = [[]]
        self._row = 0
        self._column = 0
        self._wraps = True
        self._rest = ""
        # What the terminal answers to the program.
        self.replies = ""

    def feed(self, text: str) -> None:
        text, at = self._rest + text, 0
        while match := _TOKENS.match(text, at):
            at = match.end()
            if character := match["character"]:
                self._put(character)
            elif command := match["command"]:
                self._run(command, match["private"], [int(n or 0) for n in match["numbers"].split(";")])
        self._rest = text[at:]

    @property
    def text(self) -> str:
        lines = ("".join(line).rstrip() for line in self._lines)
        return "\n".join(lines).rstrip("\n")

    def _put(self, character: str) -> None:
        match character:
            case "\n":
                self._move(1)
            case "\r":
                self._column = 0
            case "\b":
                self._column = max(0, self._column - 1)
            case _ if character >= " ":
                self._write(character)
            case _:
                pass

    def _write(self, character: str) -> None:
        size = get_character_cell_size(character)
        if self._column + size > self._columns:
            if self._wraps:
                self._column = 0
                self._move(1)
            else:
                self._column = self._columns - size
        line = self._lines[self._row]
        line += [" "] * (self._column + size - len(line))
        line[self._column : self._column + size] = [character, *[""] * (size - 1)]
        self._column += size

    def _move(self, rows: int) -> None:
        top = max(0, len(self._lines) - self._rows)
        self._row = max(top, self._row + rows)
        self._lines += [[] for _ in range(self._row + 1 - len(self._lines))]

    def _run(self, command: str, private: str, numbers: list[int]) -> None:
        count = max(1, numbers[0])
        line = self._lines[self._row]
        match command:
            case "A":
                self._move(-count)
            case "B":
                self._row = min(len(self._lines) - 1, self._row + count)
            case "C":
                self._column = min(self._columns - 1, self._column + count)
            case "D":
                self._column = max(0, self._column - count)
            case "G":
                self._column = count - 1
            case "J":
                del line[self._column :]
                del self._lines[self._row + 1 :]
            case "K":
                del line[self._column :]
            case "n" if numbers == [6]:
                top = max(0, len(self._lines) - self._rows)
                self.replies += f"\x1b[{self._row - top + 1};{self._column + 1}R"
            case "h" | "l" if private and numbers == [7]:
                self._wraps = command == "h"
            case _:
                pass
