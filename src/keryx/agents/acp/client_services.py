"""What an agent may request from Keryx while its turn runs: permissions, forms, files within the allowed folders, and terminals."""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from keryx.agents.acp import child_process, questions
from keryx.agents.acp.child_process import ChildProcess
from keryx.agents.acp.connection import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    REQUEST_CANCELLED,
    RESOURCE_NOT_FOUND,
    AcpError,
    AgentConnection,
    AgentRequest,
    AgentUnavailable,
    build_unknown_method_error,
)
from keryx.core import sessions
from keryx.core.ports.agent import TurnContext
from keryx.core.sessions import PermissionMode
from keryx.jsonrpc.values import Json, as_count, as_objects, as_text

MAX_FILE_BYTES = 20_000_000
MAX_TERMINALS = 16
_MAX_OUTPUT_BYTES = 1_000_000
log = logging.getLogger(__name__)
MAX_PENDING_REQUESTS = 32
_BACKGROUND_METHODS = frozenset(
    {
        "session/request_permission",
        "elicitation/create",
        "terminal/wait_for_exit",
        "terminal/kill",
        "terminal/release",
    }
)


class AllowedFolders:
    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = [Path(folder).resolve() for folder in folders]

    def resolve(self, path: str) -> Path:
        """A path with all its links resolved. Raises `Fault` if it is not absolute or leads out of the folders."""
        if not path or "\0" in path or not Path(path).is_absolute():
            raise AcpError(INVALID_PARAMS, f"{path[:200]!r} is no absolute path")
        found = Path(path).resolve()
        if not any(found.is_relative_to(folder) for folder in self._folders):
            raise AcpError(INVALID_PARAMS, f"{path[:200]!r} is outside of the folders of this conversation")
        return found

    def read(self, path: str, *, line: int, limit: int | None) -> str:
        """The text of a file, from a line that is counted from 1. Blocks while it reads."""
        found = self.resolve(path)
        try:
            if not found.is_file():
                raise AcpError(INVALID_PARAMS, f"there is no file {path[:200]!r}")
            if found.stat().st_size > MAX_FILE_BYTES:
                raise AcpError(INVALID_PARAMS, f"{path[:200]!r} is larger than {MAX_FILE_BYTES} bytes")
            text = found.read_text(encoding="utf-8", errors="replace")
        except OSError as exc:
            raise AcpError(INVALID_PARAMS, f"{path[:200]!r} cannot be read: {exc.strerror}") from exc
        if line <= 1 and limit is None:
            return text
        rows = text.splitlines(keepends=True)[max(0, line - 1) :]
        return "".join(rows if limit is None else rows[:limit])

    def write(self, path: str, content: str) -> None:
        """Write the whole of a file. Blocks while it writes."""
        found = self.resolve(path)
        try:
            found.parent.mkdir(parents=True, exist_ok=True)
            found.write_text(content, encoding="utf-8", errors="replace")
        except OSError as exc:
            raise AcpError(INVALID_PARAMS, f"{path[:200]!r} cannot be written: {exc.strerror}") from exc


class _Terminal:
    def __init__(self, running: ChildProcess, limit: int) -> None:
        self._process = running
        self._limit = limit
        self._output = bytearray()
        self.truncated = False
        self.exit_code: int | None = None
        self._reader = asyncio.create_task(self._read())

    @property
    def output(self) -> str:
        return self._output.decode("utf-8", "replace")

    def status(self) -> Json | None:
        return None if self.exit_code is None else {"exitCode": self.exit_code, "signal": None}

    async def wait_for_exit(self) -> Json:
        await asyncio.wait({self._reader})
        return self.status() or {"exitCode": None, "signal": None}

    async def kill(self) -> None:
        await self._process.stop()
        self._reader.cancel()
        await asyncio.wait({self._reader})

    async def _read(self) -> None:
        async for chunk in self._process.chunks():
            self._output += chunk
            if len(self._output) > self._limit:
                self.truncated = True
                del self._output[: -self._limit]
        self.exit_code = await self._process.wait()


class Terminals:
    """All of them end with `close`; their output can be read until then."""

    def __init__(self, roots: AllowedFolders, env: Mapping[str, str], cwd: str) -> None:
        self._folders = roots
        self._env = env
        self._cwd = cwd
        self._terminals: dict[str, _Terminal] = {}
        self._released_output: dict[str, str] = {}
        self._created_count = 0

    async def create(self, params: Json) -> Json:
        if len(self._terminals) >= MAX_TERMINALS:
            raise AcpError(INVALID_PARAMS, f"{MAX_TERMINALS} terminals are open: release some first")
        cwd = self._folders.resolve(as_text(params.get("cwd")) or self._cwd)
        given = {as_text(e.get("name")): as_text(e.get("value")) for e in as_objects(params.get("env"))}
        limit = min(as_count(params.get("outputByteLimit")) or _MAX_OUTPUT_BYTES, _MAX_OUTPUT_BYTES)
        try:
            running = await child_process.start(
                _build_command(params), env={**self._env, **given}, cwd=str(cwd), merged=True
            )
        except (OSError, ValueError) as exc:
            raise AcpError(INVALID_PARAMS, f"the command cannot be run: {exc}") from exc
        self._created_count += 1
        name = f"terminal-{self._created_count}"
        self._terminals[name] = _Terminal(running, limit)
        return {"terminalId": name}

    def output(self, params: Json) -> Json:
        found = self._find(params)
        return {"output": found.output, "truncated": found.truncated, "exitStatus": found.status()}

    async def wait_for_exit(self, params: Json) -> Json:
        return await self._find(params).wait_for_exit()

    async def kill(self, params: Json) -> Json:
        await self._find(params).kill()
        return {}

    async def release(self, params: Json) -> Json:
        found = self._find(params)
        name = as_text(params.get("terminalId"))
        self._released_output[name] = found.output
        del self._terminals[name]
        await found.kill()
        return {}

    def get_output(self, name: str) -> str:
        """The output of a terminal of this turn, open or released; empty for any other."""
        found = self._terminals.get(name)
        return found.output if found else self._released_output.get(name, "")

    async def close(self) -> None:
        await asyncio.gather(*(terminal.kill() for terminal in self._terminals.values()))
        self._terminals.clear()

    def _find(self, params: Json) -> _Terminal:
        name = as_text(params.get("terminalId"))
        found = self._terminals.get(name)
        if found is None:
            raise AcpError(RESOURCE_NOT_FOUND, f"there is no terminal {name[:80]!r}")
        return found


def _build_command(params: Json) -> list[str]:
    """A program with its arguments; a line of a shell where no arguments are given apart."""
    program = as_text(params.get("command"))
    given = params.get("args")
    arguments = [str(a) for a in given] if isinstance(given, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not program:
        raise AcpError(INVALID_PARAMS, "a terminal needs a command")
    if not arguments and shutil.which(program) is None:
        return ["/bin/sh", "-c", program]
    return [program, *arguments]


ServiceMethod = Callable[[Json], Awaitable[Json]]


class ClientServices:
    """Serves one turn. `known` gives what was told of a tool call. People are asked one thing at a time."""

    def __init__(
        self,
        connection: AgentConnection,
        context: TurnContext,
        *,
        roots: AllowedFolders,
        terminals: Terminals,
        files: bool,
        terminal: bool,
        known: Callable[[str], Json],
    ) -> None:
        self._connection = connection
        self._context = context
        self._folders = roots
        self._terminals = terminals
        self._find_tool_call = known
        self._question_lock = asyncio.Lock()
        self._question_count = 0
        self._tasks: dict[asyncio.Task[None], AgentRequest] = {}
        self._may_write = sessions.parse_mode(context.settings.mode) is not PermissionMode.READ
        self._methods = self._build_methods(files=files, terminal=terminal)

    @property
    def waiting_for_person(self) -> bool:
        """Whether somebody is asked something now."""
        return self._question_lock.locked()

    async def handle(self, asked: AgentRequest) -> None:
        """Serve a request in its place; one that waits for a person or for a program is only begun, and refused when
        too many wait already."""
        if asked.method not in _BACKGROUND_METHODS:
            await self._handle(asked)
            return
        if len(self._tasks) >= MAX_PENDING_REQUESTS:
            await self._respond_error(
                asked,
                AcpError(INTERNAL_ERROR, f"{MAX_PENDING_REQUESTS} requests wait already: ask again later"),
            )
            return
        task = asyncio.create_task(self._handle(asked))
        self._tasks[task] = asked
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def close(self) -> None:
        """The turn is over: what still waits is answered as cancelled, and all terminals end."""
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for asked in left.values():
            await respond_cancelled(self._connection, asked)
        await self._terminals.close()

    def _build_methods(self, *, files: bool, terminal: bool) -> Mapping[str, ServiceMethod]:
        found: dict[str, ServiceMethod] = {
            "session/request_permission": self._request_permission,
            "elicitation/create": self._request_form,
        }
        if files:
            found |= {"fs/read_text_file": self._read_file, "fs/write_text_file": self._write_file}
        if terminal:
            found |= {
                "terminal/create": self._create_terminal,
                "terminal/output": self._read_terminal,
                "terminal/wait_for_exit": self._terminals.wait_for_exit,
                "terminal/kill": self._terminals.kill,
                "terminal/release": self._terminals.release,
            }
        return found

    async def _handle(self, asked: AgentRequest) -> None:
        method = self._methods.get(asked.method)
        if method is None:
            await self._respond_error(asked, build_unknown_method_error(asked))
            return
        try:
            await self._connection.respond(asked, await method(asked.params))
        except AcpError as exc:
            await self._respond_error(asked, exc)
        except AgentUnavailable as exc:
            log.info("%s is gone before it was answered: %s", self._connection.name, exc)
        except Exception as exc:
            log.exception("%s of the agent %s failed", asked.method[:80], self._connection.name)
            await self._respond_error(asked, AcpError(INTERNAL_ERROR, f"Keryx failed ({type(exc).__name__})"))

    async def _respond_error(self, asked: AgentRequest, fault: AcpError) -> None:
        try:
            await self._connection.respond_error(asked, fault)
        except AgentUnavailable as exc:
            log.info("%s is gone before it was refused: %s", self._connection.name, exc)

    async def _request_permission(self, params: Json) -> Json:
        call, options = questions.parse_permission_request(params)
        whole = {
            **self._find_tool_call(as_text(call.get("toolCallId"))),
            **{k: v for k, v in call.items() if v is not None},
        }
        async with self._question_lock:
            self._question_count += 1
            question = questions.build_permission_question(
                self._connection.name, whole, options, number=self._question_count
            )
            return (
                questions.CANCELLED_OUTCOME
                if question is None
                else await questions.ask_permission(self._context.ask, question)
            )

    async def _request_form(self, params: Json) -> Json:
        async with self._question_lock:
            self._question_count += 1
            return await questions.ask_form(
                self._context.ask, params, agent=self._connection.name, number=self._question_count
            )

    async def _read_file(self, params: Json) -> Json:
        limit = as_count(params.get("limit")) if params.get("limit") is not None else None
        read = partial(
            self._folders.read, as_text(params.get("path")), line=as_count(params.get("line")), limit=limit
        )
        return {"content": await asyncio.to_thread(read)}

    async def _write_file(self, params: Json) -> Json:
        self._check_may_write()
        await asyncio.to_thread(
            self._folders.write, as_text(params.get("path")), as_text(params.get("content"))
        )
        return {}

    async def _create_terminal(self, params: Json) -> Json:
        self._check_may_write()
        return await self._terminals.create(params)

    async def _read_terminal(self, params: Json) -> Json:
        return self._terminals.output(params)

    def _check_may_write(self) -> None:
        if not self._may_write:
            raise AcpError(INVALID_PARAMS, "this conversation may read only")


async def respond_cancelled(connection: AgentConnection, asked: AgentRequest) -> None:
    """Answer a request of a turn that is over."""
    try:
        if asked.method == "session/request_permission":
            await connection.respond(asked, questions.CANCELLED_OUTCOME)
        elif asked.method == "elicitation/create":
            await connection.respond(asked, {"action": "cancel"})
        else:
            await connection.respond_error(asked, AcpError(REQUEST_CANCELLED, "the turn is over"))
    except AgentUnavailable as exc:
        log.info("%s is gone before it was answered: %s", connection.name, exc)
