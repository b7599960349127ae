"""Programs whose conversations can be watched while they run: where their files are, which of them have changed, and which
processes of them run."""

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from keryx.importers import PROGRAMS, claude_code, codex, gemini, goose, opencode, qwen
from keryx.importers.conversation import ForeignSession, ImportLog

_PROC = Path("/proc")
_OWN_NAME = "keryx"
_MAX_COMMAND_BYTES = 4096


class SourceFile(msgspec.Struct, frozen=True):
    """A file of conversations, as it is now."""

    path: Path
    # Changes whenever the file is written.
    stamp: str
    # Seconds since 1970.
    changed_at: float


class WatchedProgram(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    find_places: Callable[[Path, dict[str, str]], list[Path]]
    # The files below a place, as a pattern for each part of the path.
    patterns: tuple[tuple[str, ...], ...]
    # Yields the sessions of one file, and those that they come from.
    read: Callable[[Path, ImportLog], Iterator[ForeignSession]]
    # The names of its processes.
    processes: tuple[str, ...]
    # One file has all conversations.
    database: bool = False
    # How a question begins that says that a person has stopped the answer.
    stop_texts: tuple[str, ...] = ()

    def list_files(self, place: Path, report: Callable[[str, str], None]) -> list[SourceFile]:
        """Return the files below a place, which may be a link itself. Links in it are not followed; a folder that cannot be
        read is reported."""
        found: dict[Path, SourceFile] = {}
        place = Path(os.path.realpath(place))
        for pattern in self.patterns:
            for path in _match(place, pattern, report):
                if file := stat_file(path, database=self.database):
                    found[path] = file
        return list(found.values())


def stat_file(path: Path, *, database: bool) -> SourceFile | None:
    """Return a regular file as it is now, `None` if there is none. What is new in a database may be in its log only."""
    try:
        infos = [path.lstat()]
        if database:
            log_file = path.with_name(f"{path.name}-wal")
            infos += [log_file.lstat()] if log_file.exists() else []
    except (OSError, ValueError):
        return None
    if not all(stat.S_ISREG(info.st_mode) for info in infos):
        return None
    stamp = " ".join(f"{info.st_ino}-{info.st_size}-{info.st_mtime_ns}" for info in infos)
    return SourceFile(path, stamp, max(info.st_mtime for info in infos))


def _match(folder: Path, pattern: Sequence[str], report: Callable[[str, str], None]) -> Iterator[Path]:
    first, rest = pattern[0], pattern[1:]
    if rest and not {"*", "?", "["} & set(first):
        if not (folder / first).is_symlink():
            yield from _match(folder / first, rest, report)
        return
    try:
        with os.scandir(folder) as entries:
            names = [e.name for e in entries if e.is_dir(follow_symlinks=False) is bool(rest)]
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as exc:
        report(str(folder), f"it cannot be read: {exc.strerror}")
        return
    for name in names:
        if fnmatchcase(name, first):
            if rest:
                yield from _match(folder / name, rest, report)
            else:
                yield folder / name


def _define(
    name: str,
    *patterns: tuple[str, ...],
    processes: tuple[str, ...],
    read: Callable[[Path, ImportLog], Iterator[ForeignSession]] | None = None,
    database: bool = False,
    stop_texts: tuple[str, ...] = (),
) -> WatchedProgram:
    program = PROGRAMS[name]
    return WatchedProgram(
        name=name,
        title=program.title,
        find_places=program.find_places,
        patterns=patterns,
        read=read or program.read,
        processes=processes,
        database=database,
        stop_texts=stop_texts,
    )


WATCHED_PROGRAMS: Mapping[str, WatchedProgram] = {
    program.name: program
    for program in (
        _define(
            claude_code.NAME,
            ("*", "*.jsonl"),
            processes=("claude",),
            read=claude_code.read_family,
            stop_texts=("[Request interrupted by user",),
        ),
        _define(
            codex.NAME,
            ("sessions", "*", "*", "*", "rollout-*.jsonl"),
            ("archived_sessions", "rollout-*.jsonl"),
            processes=("codex",),
            read=codex.read_rollout,
            stop_texts=("<turn_aborted>",),
        ),
        _define(opencode.NAME, ("opencode*.db",), processes=("opencode",), database=True),
        _define(goose.NAME, ("sessions.db",), processes=("goose",), database=True),
        _define(
            gemini.NAME,
            ("*", "chats", "session-*.jsonl"),
            ("*", "chats", "session-*.json"),
            processes=("gemini",),
        ),
        _define(qwen.NAME, ("*", "chats", "*.jsonl"), processes=("qwen",)),
    )
}


class ProgramProcess(msgspec.Struct, frozen=True):
    """A running process of a program."""

    program: str
    pid: int
    cwd: str
    # Seconds since 1970.
    started_at: float


class _ProcessEntry(msgspec.Struct, frozen=True):
    parent: int
    started_at: float
    command: tuple[str, ...]


def list_processes(programs: Sequence[WatchedProgram]) -> list[ProgramProcess] | None:
    """Return the processes of programs that people run, without those that Keryx has started; `None` if this system does
    not tell."""
    entries = _read_processes()
    if not entries:
        return None
    wanted = {name: program.name for program in programs for name in program.processes}
    found: list[ProgramProcess] = []
    for pid, entry in entries.items():
        name = next((wanted[word] for word in _list_names(entry.command) if word in wanted), None)
        if name is None or _is_descendant(pid, entries):
            continue
        try:
            cwd = os.readlink(_PROC / str(pid) / "cwd")
        except OSError:
            continue
        found.append(ProgramProcess(name, pid, cwd, entry.started_at))
    return found


def _read_processes() -> dict[int, _ProcessEntry]:
    try:
        started = next(
            int(line.split()[1])
            for line in (_PROC / "stat").read_text().splitlines()
            if line.startswith("btime")
        )
        ticks = os.sysconf("SC_CLK_TCK")
        pids = [int(name) for name in os.listdir(_PROC) if name.isdecimal()]
    except (OSError, StopIteration, ValueError):
        return {}
    entries: dict[int, _ProcessEntry] = {}
    for pid in pids:
        try:
            # The name of the program is in brackets and may have any character.
            fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
            with (_PROC / str(pid) / "cmdline").open("rb") as file:
                command = file.read(_MAX_COMMAND_BYTES).decode("utf-8", "replace").split("\0")
            entries[pid] = _ProcessEntry(
                int(fields[1]), started + int(fields[19]) / ticks, tuple(filter(None, command))
            )
        except (OSError, ValueError, IndexError):
            continue
    return entries


def _list_names(command: tuple[str, ...]) -> list[str]:
    """Return the names that a process may be known by: its program, and a script that an interpreter runs."""
    scripts = [word for word in command[1:3] if not word.startswith("-")][:1]
    names = (os.path.basename(word) for word in (*command[:1], *scripts))
    return [name.removeprefix(".").removesuffix(".exe").removesuffix(".js") for name in names]


def _is_descendant(pid: int, entries: Mapping[int, _ProcessEntry]) -> bool:
    """Whether Keryx started a process, itself or through others."""
    seen: set[int] = set()
    while pid in entries and pid not in seen:
        seen.add(pid)
        if pid == os.getpid() or _OWN_NAME in _list_names(entries[pid].command):
            return True
        pid = entries[pid].parent
    return False
