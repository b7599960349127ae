"""The tools of the configured MCP servers as toolboxes. Import it lazily: it loads the optional `mcp` package."""

import base64
import mimetypes
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import msgspec
from anyio.abc import TaskGroup

from keryx.agents.agent_config import ToolServerConfig
from keryx.agents.mcp.mcp_client import McpClient
from keryx.agents.tools import Permission, ToolFailed, ToolOutput, ToolSpec
from keryx.core.clock import Clock
from keryx.core.ports.agent import FileEvent, TurnContext
from keryx.core.texts import Phrase


class McpToolbox:
    """The tools of one server. Known tools are offered even while the server is down, so that the prompt does not
    change; a call then fails with the reason."""

    def __init__(self, client: McpClient) -> None:
        self.client = client
        self._specs: list[ToolSpec] = []
        self._tools: dict[str, str] = {}

    @property
    def server(self) -> ToolServerConfig:
        return self.client.server

    def close(self) -> None:
        """Stop the server. It is started again if it is needed."""
        self.client.close()

    async def specs(self, context: TurnContext) -> Sequence[ToolSpec]:
        if self.server.profiles and context.profile not in self.server.profiles:
            return ()
        try:
            return await self.refresh()
        except ToolFailed:
            return self._specs  # Reported by `warnings`.

    def warnings(self, context: TurnContext) -> Sequence[str]:
        if self._specs or not self.client.error:
            return ()
        return [Phrase("tools.missing", name=repr(self.server.name), reason=self.client.error)]

    async def call(self, name: str, arguments: Mapping[str, Any], context: TurnContext) -> ToolOutput:
        tool = self._tools.get(name)
        if tool is None:
            raise ToolFailed(f"There is no tool {name!r} any more.")
        result = await self.client.call(tool, arguments)
        output = convert_result(result, tool)
        if result.is_error:
            raise ToolFailed(output.text or "The tool failed and did not say why.")
        return output

    async def refresh(self) -> list[ToolSpec]:
        """Read the tools of the server. Raise `ToolFailed` while it does not work."""
        named: dict[str, types.Tool] = {}
        for tool in await self.client.tools():
            named[self.server.tool_name(tool.name, taken=frozenset(named))] = tool
        self._tools = {name: tool.name for name, tool in named.items()}
        self._specs = []
        for name, tool in named.items():
            hints = tool.annotations
            reads = bool(hints and hints.read_only_hint)
            repeats = reads or bool(hints and hints.idempotent_hint) or tool.name in self.server.repeatable
            spec = ToolSpec(
                name=name,
                description=tool.description or tool.title or "",
                parameters=tool.input_schema,
                repeatable=repeats,
                permission=self.server.policy or (Permission.ALLOW if reads else Permission.ASK),
            )
            self._specs.append(spec)
        return self._specs


@asynccontextmanager
async def open_toolboxes(
    servers: Sequence[ToolServerConfig], *, clock: Clock, logs: Path
) -> AsyncGenerator[dict[str, McpToolbox]]:
    """Yield the tools of every server by its name. The servers end with the block."""
    async with anyio.create_task_group() as group:
        yield {s.name: connect(s, group=group, clock=clock, logs=logs) for s in servers}
        group.cancel_scope.cancel()


def connect(server: ToolServerConfig, *, group: TaskGroup, clock: Clock, logs: Path) -> McpToolbox:
    """Return the tools of one server, which runs in the group once it is needed."""
    return McpToolbox(McpClient(server, group=group, clock=clock, log_file=logs / f"{server.name}.log"))


def convert_result(result: types.CallToolResult, tool: str) -> ToolOutput:
    """Convert a result to text for the model, which names the other contents, and images and audio for the user."""
    parts = [_format_block(block) for block in result.content]
    if not any(parts) and result.structured_content is not None:
        return ToolOutput(msgspec.json.encode(result.structured_content).decode())
    media = [b for b in result.content if isinstance(b, types.ImageContent | types.AudioContent)]
    files: list[FileEvent] = []
    for number, block in enumerate(media, start=1):
        ending = mimetypes.guess_extension(block.mime_type) or ""
        # A damaged file is left out.
        with suppress(ValueError):
            body = base64.b64decode(block.data, validate=True)
            files.append(FileEvent(f"{tool}-{number}{ending}", block.mime_type, body))
    return ToolOutput("\n".join(part for part in parts if part), tuple(files))


def _format_block(block: types.ContentBlock) -> str:
    match block:
        case types.TextContent():
            return block.text
        case types.ImageContent() | types.AudioContent():
            size = len(block.data) * 3 // 4
            return f"[{block.type} of type {block.mime_type}, about {size:,} bytes: shown to the person]"
        case types.ResourceLink():
            return f"[link to {block.name}: {block.uri}]"
        case types.EmbeddedResource(resource=types.TextResourceContents() as resource):
            return f"[{resource.uri}]\n{resource.text}"
        case types.EmbeddedResource(resource=resource):
            return f"[resource {resource.uri} of type {resource.mime_type or 'unknown'}: not shown]"
