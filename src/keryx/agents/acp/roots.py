"""Roots: the folders that a session may use. Nothing outside of them is read, written or worked in."""

from collections.abc import Sequence
from pathlib import Path

from keryx.agents.acp.rpc import PARAMS, Fault

LONGEST_FILE = 20_000_000


class Roots:
    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = [Path(folder).resolve() for folder in folders]

    def within(self, path: str) -> Path:
        """A path with all its links resolved. Raises `Fault` if it is not absolute or leads out of the folders."""
        if not path or "\0" in path or not Path(path).is_absolute():
            raise Fault(PARAMS, f"{path[:200]!r} is no absolute path")
        found = Path(path).resolve()
        if not any(found.is_relative_to(folder) for folder in self._folders):
            raise Fault(PARAMS, f"{path[:200]!r} is outside of the folders of this conversation")
        return found

    def read(self, path: str, *, line: int, limit: int | None) -> str:
        """The text of a file, from a line that is counted from 1. Blocks while it reads."""
        found = self.within(path)
        try:
            if not found.is_file():
                raise Fault(PARAMS, f"there is no file {path[:200]!r}")
            if found.stat().st_size > LONGEST_FILE:
                raise Fault(PARAMS, f"{path[:200]!r} is larger than {LONGEST_FILE} bytes")
            text = found.read_text(encoding="utf-8", errors="replace")
        except OSError as exc:
            raise Fault(PARAMS, f"{path[:200]!r} cannot be read: {exc.strerror}") from exc
        if line <= 1 and limit is None:
            return text
        rows = text.splitlines(keepends=True)[max(0, line - 1) :]
        return "".join(rows if limit is None else rows[:limit])

    def write(self, path: str, content: str) -> None:
        """Write the whole of a file. Blocks while it writes."""
        found = self.within(path)
        try:
            found.parent.mkdir(parents=True, exist_ok=True)
            found.write_text(content, encoding="utf-8", errors="replace")
        except OSError as exc:
            raise Fault(PARAMS, f"{path[:200]!r} cannot be written: {exc.strerror}") from exc
