"""What an agent may request from Keryx while its turn runs: permissions, forms, files within the allowed folders, and terminals."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from keryx import child_process
from keryx.agents.acp import questions
from keryx.agents.acp.connection import (
    AgentConnection,
    build_unknown_method_error,
)
from keryx.agents.acp.update_translator import merge_fields
from keryx.child_process import ChildProcess
from keryx.core import sessions
from keryx.core.ports.agent import TurnContext
from keryx.core.sessions import PermissionMode
from keryx.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    REQUEST_CANCELLED,
    RESOURCE_NOT_FOUND,
    Json,
    RpcError,
    as_count,
    as_object,
    as_objects,
    as_text,
)
from keryx.jsonrpc.peer import IncomingRequest

MAX_FILE_BYTES = 20_000_000
MAX_TERMINALS = 16
_MAX_OUTPUT_BYTES = 1_000_000
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
        """Resolve all links in a path. Raise `RpcError` if it is not absolute or leads out of the folders."""
        if not path or "\0" in path or not Path(path).is_absolute():
            raise RpcError(INVALID_PARAMS, f"{path[:200]!r} is no absolute path")
        resolved = Path(path).resolve()
        if not any(resolved.is_relative_to(folder) for folder in self._folders):
            raise RpcError(INVALID_PARAMS, f"{path[:200]!r} is outside of the folders of this conversation")
        return resolved

    def read(self, path: str, *, line: int, limit: int | None) -> str:
        """Return the text of a file from a line on, counted from 1. Blocking."""
        file = self.resolve(path)
        try:
            if not file.is_file():
                raise RpcError(INVALID_PARAMS, f"there is no file {path[:200]!r}")
            if file.stat().st_size > MAX_FILE_BYTES:
                raise RpcError(INVALID_PARAMS, f"{path[:200]!r} is larger than {MAX_FILE_BYTES} bytes")
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError as exc:
            raise RpcError(INVALID_PARAMS, f"{path[:200]!r} cannot be read: {exc.strerror}") from exc
        if line <= 1 and limit is None:
            return text
        lines = text.splitlines(keepends=True)[max(0, line - 1) :]
        return "".join(lines if limit is None else lines[:limit])

    def write(self, path: str, content: str) -> None:
        """Replace the content of a file. Blocking."""
        file = self.resolve(path)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8", errors="replace")
        except OSError as exc:
            raise RpcError(INVALID_PARAMS, f"{path[:200]!r} cannot be written: {exc.strerror}") from exc


class _Terminal:
    def __init__(self, process: ChildProcess, limit: int) -> None:
        self._process = process
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
    """The terminals of one turn. `close` ends them all; their output can be read until then, also of released ones."""

    def __init__(self, folders: AllowedFolders, env: Mapping[str, str], cwd: str) -> None:
        self._folders = folders
        self._env = env
        self._cwd = cwd
        self._terminals: dict[str, _Terminal] = {}
        self._released_output: dict[str, str] = {}
        self._created_count = 0

    async def create(self, params: Json) -> Json:
        """Run a program with its arguments, or a shell command if it has none."""
        if len(self._terminals) >= MAX_TERMINALS:
            raise RpcError(INVALID_PARAMS, f"{MAX_TERMINALS} terminals are open: release some first")
        cwd = self._folders.resolve(as_text(params.get("cwd")) or self._cwd)
        variables = {as_text(e.get("name")): as_text(e.get("value")) for e in as_objects(params.get("env"))}
        limit = min(as_count(params.get("outputByteLimit")) or _MAX_OUTPUT_BYTES, _MAX_OUTPUT_BYTES)
        program, values = as_text(params.get("command")), params.get("args")
        if not program:
            raise RpcError(INVALID_PARAMS, "a terminal needs a command")
        command = [program, *map(str, values if isinstance(values, list) else ())]  # pyright: ignore[reportUnknownArgumentType]
        if len(command) == 1 and shutil.which(program) is None:
            command = ["/bin/sh", "-c", program]
        try:
            process = await child_process.start(
                command, env={**self._env, **variables}, cwd=str(cwd), merged=True
            )
        except (OSError, ValueError) as exc:
            raise RpcError(INVALID_PARAMS, f"the command cannot be run: {exc}") from exc
        self._created_count += 1
        name = f"terminal-{self._created_count}"
        self._terminals[name] = _Terminal(process, limit)
        return {"terminalId": name}

    def output(self, params: Json) -> Json:
        terminal = self._find(params)
        return {"output": terminal.output, "truncated": terminal.truncated, "exitStatus": terminal.status()}

    async def wait_for_exit(self, params: Json) -> Json:
        return await self._find(params).wait_for_exit()

    async def kill(self, params: Json) -> Json:
        await self._find(params).kill()
        return {}

    async def release(self, params: Json) -> Json:
        terminal = self._find(params)
        name = as_text(params.get("terminalId"))
        self._released_output[name] = terminal.output
        del self._terminals[name]
        await terminal.kill()
        return {}

    def get_output(self, name: str) -> str:
        """Return the output of a terminal, open or released; empty if there is none."""
        terminal = self._terminals.get(name)
        return terminal.output if terminal else self._released_output.get(name, "")

    async def close(self) -> None:
        await asyncio.gather(*(terminal.kill() for terminal in self._terminals.values()))
        self._terminals.clear()

    def _find(self, params: Json) -> _Terminal:
        name = as_text(params.get("terminalId"))
        terminal = self._terminals.get(name)
        if terminal is None:
            raise RpcError(RESOURCE_NOT_FOUND, f"there is no terminal {name[:80]!r}")
        return terminal


ServiceMethod = Callable[[Json], Awaitable[Json]]


class ClientServices:
    """Serves the requests of an agent during one turn. The user is asked one question at a time."""

    def __init__(
        self,
        connection: AgentConnection,
        context: TurnContext,
        *,
        folders: AllowedFolders,
        terminals: Terminals,
        files: bool,
        terminal: bool,
        find_tool_call: Callable[[str], Json],
    ) -> None:
        self._connection = connection
        self._context = context
        self._folders = folders
        self._terminals = terminals
        self._find_tool_call = find_tool_call
        self._question_lock = asyncio.Lock()
        self._question_count = 0
        self._tasks: dict[asyncio.Task[None], IncomingRequest] = {}
        self._may_write = sessions.parse_mode(context.settings.mode) is not PermissionMode.READ
        self._methods = self._build_methods(files=files, terminal=terminal)

    @property
    def waiting_for_person(self) -> bool:
        return self._question_lock.locked()

    async def handle(self, request: IncomingRequest) -> None:
        """Serve a request. One that waits for a person or a program runs in the background, and is refused if too many
        do so already."""
        if request.method not in _BACKGROUND_METHODS:
            await self._run(request)
            return
        if len(self._tasks) >= MAX_PENDING_REQUESTS:
            reason = f"{MAX_PENDING_REQUESTS} requests wait already: ask again later"
            await self._connection.respond_error(request, RpcError(INTERNAL_ERROR, reason))
            return
        task = asyncio.create_task(self._run(request))
        self._tasks[task] = request
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def close(self) -> None:
        """End the turn: answer the requests in the background as cancelled, and end all terminals."""
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for request in left.values():
            await respond_cancelled(self._connection, request)
        await self._terminals.close()

    def _build_methods(self, *, files: bool, terminal: bool) -> Mapping[str, ServiceMethod]:
        methods: dict[str, ServiceMethod] = {
            "session/request_permission": self._request_permission,
            "elicitation/create": self._request_form,
        }
        if files:
            methods |= {"fs/read_text_file": self._read_file, "fs/write_text_file": self._write_file}
        if terminal:
            methods |= {
                "terminal/create": self._create_terminal,
                "terminal/output": self._read_terminal,
                "terminal/wait_for_exit": self._terminals.wait_for_exit,
                "terminal/kill": self._terminals.kill,
                "terminal/release": self._terminals.release,
            }
        return methods

    async def _run(self, request: IncomingRequest) -> None:
        with self._connection.ignore_unavailable():
            await request.run(self._call)

    async def _call(self, request: IncomingRequest) -> Json:
        method = self._methods.get(request.method)
        if method is None:
            raise build_unknown_method_error(request)
        return await method(request.params)

    async def _request_permission(self, params: Json) -> Json:
        update, options = as_object(params.get("toolCall")), as_objects(params.get("options"))
        call = merge_fields(self._find_tool_call(as_text(update.get("toolCallId"))), update)
        async with self._question_lock:
            self._question_count += 1
            question = questions.build_permission_question(
                self._connection.name, call, options, number=self._question_count
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
            raise RpcError(INVALID_PARAMS, "this conversation may read only")


async def respond_cancelled(connection: AgentConnection, request: IncomingRequest) -> None:
    """Answer a request of a turn that has ended, unless it was answered before."""
    with connection.ignore_unavailable():
        if request.method == "session/request_permission":
            await request.respond(questions.CANCELLED_OUTCOME)
        elif request.method == "elicitation/create":
            await request.respond({"action": "cancel"})
        else:
            await request.respond_error(RpcError(REQUEST_CANCELLED, "the turn is over"))
