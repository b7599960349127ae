"""Watches the conversations that other programs keep on this machine, and passes on what they write."""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from keryx.core import ids
from keryx.core.clock import Clock
from keryx.core.errors import Invalid, KeryxError
from keryx.core.ids import OPERATOR
from keryx.core.messages import Role, ToolCall, join_text
from keryx.core.sessions import ProgramState, Viewer
from keryx.core.text import to_single_line
from keryx.engine import conversation_import, takeover
from keryx.engine.conversation_import import ConversationReport, WatchMark
from keryx.engine.takeover import ProgramStateChange
from keryx.importers import watched_programs
from keryx.importers.conversation import ForeignEntry, ForeignMessage, ForeignSession, ImportLog
from keryx.importers.watched_programs import ProgramProcess, SourceFile, WatchedProgram
from keryx.store import imports
from keryx.store.db import Database

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
# A file that changed lately is looked at in each poll; the others when their folders are listed.
_HOT_SECONDS = 600.0
_LIST_SECONDS = 2.0
# The share of the time that listing may take, and the share that reading one file may take.
_LIST_SHARE = 0.01
_READ_SHARE = 0.1
_STATE_SECONDS = 5.0
# How often a state that is not idle is confirmed.
_CONFIRM_SECONDS = 30.0
# Sessions that were written since then may be open in a terminal.
_RECENT_SECONDS = 12 * 3600.0
_MAX_RECENT_FILES = 50
# Where the processes of a system are not known, a program is taken to write for this long.
_WRITING_SECONDS = 120.0
_LONGEST_DELAY = 60.0
_MAX_PROBLEMS = 1_000

ListProcesses: TypeAlias = Callable[[Sequence[WatchedProgram]], list[ProgramProcess] | None]


class WatchTarget(Protocol):
    """Where the conversations go: the store of this machine, or a Keryx elsewhere."""

    async def load_files(self, program: str) -> dict[str, str]:
        """Return the files that were passed on as a whole, escaped, each with its stamp."""
        ...

    async def take(
        self, program: str, sessions: Iterator[ForeignSession], stamps: Mapping[str, str], log: ImportLog
    ) -> ConversationReport:
        """Add what is new in sessions. Safe to repeat."""
        ...

    async def set_states(self, states: Sequence[ProgramStateChange]) -> None: ...


class StoreTarget:
    """The store, as one person writes to it."""

    def __init__(self, database: Database, viewer: Viewer, *, machine: str, pushed: bool = False) -> None:
        self._database = database
        self._viewer = viewer
        self._machine = machine
        self._pushed = pushed

    @property
    def _owner(self) -> Viewer:
        return Viewer(self._viewer.profile, self._viewer.owner or OPERATOR)

    async def load_files(self, program: str) -> dict[str, str]:
        return await self._database.read(
            "watch.files",
            partial(
                imports.list_watched_files,
                profile=self._owner.profile,
                owner=self._owner.principal,
                program=program,
                machine=self._machine,
            ),
        )

    async def take(
        self, program: str, sessions: Iterator[ForeignSession], stamps: Mapping[str, str], log: ImportLog
    ) -> ConversationReport:
        mark = WatchMark(machine=self._machine, pushed=self._pushed, stamps=stamps)
        if self._pushed and self._viewer.owner is not None:
            # Only the operator chooses the folder in which an agent works.
            sessions = (msgspec.structs.replace(session, cwd="") for session in sessions)
        return await conversation_import.import_conversations(
            self._database, self._viewer, program, sessions, log, watched=mark
        )

    async def set_states(self, states: Sequence[ProgramStateChange]) -> None:
        await self._database.write(
            "watch.states", partial(takeover.set_states, owner=self._owner, states=states)
        )


class _RecentSession(msgspec.Struct, kw_only=True):
    """What is known of a session that was written lately."""

    program: WatchedProgram
    cwd: str
    changed_at: float
    # Its last message waits for an answer, or for the result of a tool.
    unanswered: bool = False
    # Its entries were read.
    known: bool = False
    state: ProgramState = ProgramState.IDLE
    told_at: float = 0.0


class _ProgramFiles(msgspec.Struct, kw_only=True):
    """What is known of the files of a program."""

    program: WatchedProgram
    places: list[Path]
    # The stamps of the files that were passed on, `None` before they were loaded.
    done: dict[str, str] | None = None
    hot: dict[Path, float] = {}
    # Monotonic times: when to list again, and when each file may be read again.
    list_at: float = 0.0
    read_at: dict[Path, float] = {}
    # The fingerprints of the sessions in databases.
    seen: dict[str, str] = {}


class PollReport(msgspec.Struct, kw_only=True):
    """What one poll did."""

    files: int = 0
    # Sessions that are new or longer now.
    sessions: int = 0
    messages: int = 0
    problems: list[str] = []


class SessionWatcher:
    """Polls the files of programs. What was not passed on stays in the files, and is read again.

    Files that did not change for longer than `since` when they are seen for the first time are left alone until they
    change."""

    def __init__(
        self,
        programs: Sequence[WatchedProgram],
        target: WatchTarget,
        clock: Clock,
        *,
        home: Path,
        env: Mapping[str, str],
        since: timedelta,
        list_processes: ListProcesses = watched_programs.list_processes,
    ) -> None:
        self._target = target
        self._clock = clock
        self._since = since.total_seconds()
        self._list_processes = list_processes
        self._files = [
            _ProgramFiles(
                program=program,
                # Unlike `Path.resolve`, it takes a loop of links.
                places=[Path(os.path.realpath(place)) for place in program.find_places(home, dict(env))],
            )
            for program in programs
        ]
        self._recent: dict[tuple[str, str], _RecentSession] = {}
        self._states_at = 0.0
        self._first = True
        self._told: set[str] = set()

    async def run(self, report: Callable[[PollReport], None] = lambda done: None) -> None:
        """Watch until cancelled. After an error of the target, wait longer each time."""
        delay = POLL_SECONDS
        while True:
            try:
                done = await self.poll()
                delay = POLL_SECONDS
                if done.files:
                    report(done)
            except KeryxError as exc:
                delay = min(_LONGEST_DELAY, delay * 2)
                log.warning("what other programs wrote could not be passed on, trying again: %s", exc)
            await self._clock.sleep(delay)

    async def poll(self) -> PollReport:
        """Pass on what has changed since the last poll. Raise `KeryxError` if the target does not take it."""
        done = PollReport()
        for files in self._files:
            if files.done is None:
                files.done = await self._target.load_files(files.program.name)
            for file in await asyncio.to_thread(self._find_changed, files, done):
                await self._pass_on(files, file, done)
        self._first = False
        await self._tell_states()
        return done

    def _find_changed(self, files: _ProgramFiles, done: PollReport) -> list[SourceFile]:
        """Return the files that have changed and may be read now, the newest first."""
        assert files.done is not None
        began, now = self._clock.monotonic(), self._clock.now().timestamp()
        if began >= files.list_at:
            found = [
                file
                for place in files.places
                for file in files.program.list_files(place, partial(self._note_problem, done))
            ]
            cost = self._clock.monotonic() - began
            files.list_at = began + max(_LIST_SECONDS, cost / _LIST_SHARE)
            files.read_at = {path: at for path, at in files.read_at.items() if at > began}
        else:
            stats = (watched_programs.stat_file(p, database=files.program.database) for p in files.hot)
            found = [file for file in stats if file]
        files.hot = {f.path: f.changed_at for f in found if now - f.changed_at < _HOT_SECONDS}
        found.sort(key=lambda file: -file.changed_at)
        return [
            file
            for n, file in enumerate(found)
            if self._is_due(files, file, now, again=self._first and n < _MAX_RECENT_FILES)
            and began >= files.read_at.get(file.path, 0.0)
        ]

    def _is_due(self, files: _ProgramFiles, file: SourceFile, now: float, *, again: bool) -> bool:
        """Whether a file must be read. With `again`, also one that was passed on and may be open in a terminal."""
        assert files.done is not None
        known = files.done.get(ids.escape(str(file.path)))
        age = now - file.changed_at
        if known is None and age > self._since:
            # Not read now; it is as soon as it changes.
            files.done[ids.escape(str(file.path))] = file.stamp
            return False
        return known != file.stamp or (again and age < _RECENT_SECONDS)

    async def _pass_on(self, files: _ProgramFiles, file: SourceFile, done: PollReport) -> None:
        assert files.done is not None
        began, problems = self._clock.monotonic(), ImportLog()
        fresh: dict[str, str] = {}
        stamps = {} if files.program.database else {str(file.path): file.stamp}
        try:
            sessions = self._observe(files, file, files.program.read(file.path, problems), fresh)
            report = await self._target.take(files.program.name, sessions, stamps, problems)
        except Invalid as exc:
            self._note_problem(done, str(file.path), str(exc))
        except KeryxError:
            raise
        except Exception as exc:
            # A file that a reader does not expect must not end the node.
            log.exception("a reader of %s failed", files.program.name)
            self._note_problem(done, str(file.path), f"it cannot be read ({type(exc).__name__})")
        else:
            done.files += 1
            done.sessions += report.created + report.extended
            done.messages += report.messages
        files.seen.update(fresh)
        files.done[ids.escape(str(file.path))] = file.stamp
        cost = self._clock.monotonic() - began
        files.read_at[file.path] = self._clock.monotonic() + cost / _READ_SHARE
        for damage in problems.damages:
            if "half-written" not in damage.text:
                self._note_problem(done, damage.place, damage.text)

    def _observe(
        self,
        files: _ProgramFiles,
        file: SourceFile,
        sessions: Iterator[ForeignSession],
        fresh: dict[str, str],
    ) -> Iterator[ForeignSession]:
        """Yield the sessions that have changed, and note what their entries say about their state."""
        now = self._clock.now().timestamp()
        oldest, oldest_recent = now - self._since, now - _RECENT_SECONDS
        for session in sessions:
            if files.program.database:
                if files.seen.get(session.id) == session.fingerprint:
                    continue
                fresh[session.id] = session.fingerprint
                if session.active_at and session.active_at.timestamp() < oldest:
                    continue
            changed_at = session.active_at.timestamp() if session.active_at else file.changed_at
            if session.subagent or (session.place != str(file.path) and not files.program.database):
                yield session
                continue
            recent = _RecentSession(program=files.program, cwd=session.cwd, changed_at=changed_at)
            before = self._recent.get((files.program.name, session.id))
            if before:
                recent.state, recent.told_at = before.state, before.told_at
                recent.unanswered, recent.known = before.unanswered, before.known
            self._recent[files.program.name, session.id] = recent
            entries = partial(_read_last, session.entries, recent)
            yield msgspec.structs.replace(session, entries=entries)
            if before is None and not recent.known and changed_at > oldest_recent:
                # It was passed on before the start: read it to know what its program does.
                deque(entries(), maxlen=0)

    async def _tell_states(self) -> None:
        """Tell the target what programs do with recent sessions, if that has changed or must be confirmed."""
        now, monotonic = self._clock.now().timestamp(), self._clock.monotonic()
        self._recent = {
            key: recent
            for key, recent in self._recent.items()
            if now - recent.changed_at < _RECENT_SECONDS or recent.state is not ProgramState.IDLE
        }
        if not self._recent or monotonic < self._states_at:
            return
        # A person who ends a program in a terminal may continue elsewhere at once.
        busy = any(recent.state is not ProgramState.IDLE for recent in self._recent.values())
        self._states_at = monotonic + (POLL_SECONDS if busy else _STATE_SECONDS)
        programs = [files.program for files in self._files]
        running = await asyncio.to_thread(self._list_processes, programs)
        states = find_states(self._recent, running, now=now)
        due = {
            key: state
            for key, state in states.items()
            if state is not self._recent[key].state
            or (state is not ProgramState.IDLE and monotonic >= self._recent[key].told_at + _CONFIRM_SECONDS)
        }
        if due:
            await self._target.set_states([ProgramStateChange(*key, state) for key, state in due.items()])
        for key, state in due.items():
            self._recent[key].state, self._recent[key].told_at = state, monotonic

    def _note_problem(self, done: PollReport, place: str, text: str) -> None:
        """Report a problem once. Names of files may have any characters."""
        problem = to_single_line(f"{place}: {text}")
        if problem not in self._told and len(self._told) < _MAX_PROBLEMS:
            self._told.add(problem)
            done.problems.append(problem)
            log.warning("%s", problem)


def _read_last(read: Callable[[], Iterator[ForeignEntry]], recent: _RecentSession) -> Iterator[ForeignEntry]:
    """Yield the entries, and note whether the last message waits for an answer."""
    unanswered = False
    for entry in read():
        if isinstance(entry, ForeignMessage) and not entry.undone:
            calls = any(isinstance(part, ToolCall) for part in entry.parts)
            stopped = entry.role is Role.USER and join_text(entry.parts).startswith(recent.program.stop_texts)
            unanswered = (entry.role in (Role.USER, Role.TOOL) or calls) and not stopped
        yield entry
    recent.unanswered, recent.known = unanswered, True


def find_states(
    recent: Mapping[tuple[str, str], _RecentSession], running: list[ProgramProcess] | None, *, now: float
) -> dict[tuple[str, str], ProgramState]:
    """Return what programs do with sessions. A process has the session of its folder that was written last since it
    started."""
    if running is None:
        return {
            key: ProgramState.WRITING
            if session.unanswered and now - session.changed_at < _WRITING_SECONDS
            else ProgramState.IDLE
            for key, session in recent.items()
        }
    states = dict.fromkeys(recent, ProgramState.IDLE)
    for process in running:
        mine = {
            key: session
            for key, session in recent.items()
            if session.program.name == process.program
            and session.cwd == process.cwd
            and session.changed_at >= process.started_at - 1
        }
        if mine:
            key = max(mine, key=lambda key: mine[key].changed_at)
            states[key] = ProgramState.WRITING if mine[key].unanswered else ProgramState.OPEN
    return states
