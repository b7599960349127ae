"""An MCP server on standard streams that offers past conversations as read-only tools to other agents."""

from collections.abc import Mapping
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from keryx.core.errors import KeryxError, NotFound
from keryx.core.sessions import Viewer
from keryx.engine import builtin_tools
from keryx.engine.hub import Hub

_TOOLS = {
    "search_conversations": builtin_tools.search_conversations,
    "read_conversation": builtin_tools.read_conversation,
}


async def serve(hub: Hub, viewer: Viewer, *, version: str) -> None:
    """Serve requests on stdin until it ends. All reads are those of `viewer`; nothing is written."""

    async def list_tools(_: object, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=_list_tools())

    async def call_tool(_: object, params: CallToolRequestParams) -> CallToolResult:
        try:
            return _build_result(await _call_tool(hub, viewer, params.name, params.arguments or {}))
        except KeryxError as exc:
            return _build_result(str(exc), failed=True)

    server = Server("keryx", version=version, on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


async def _call_tool(hub: Hub, viewer: Viewer, name: str, arguments: Mapping[str, Any]) -> str:
    if name not in _TOOLS:
        raise NotFound(f"there is no tool {name[:80]!r}: the tools are {', '.join(_TOOLS)}")
    return await _TOOLS[name](hub, viewer, arguments)


def _list_tools() -> list[Tool]:
    reads = ToolAnnotations(read_only_hint=True)
    return [
        Tool(name=s.name, description=s.description, input_schema=dict(s.parameters), annotations=reads)
        for s in builtin_tools.SPECS
        if s.name in _TOOLS
    ]


def _build_result(text: str, *, failed: bool = False) -> CallToolResult:
    # Stored text may contain lone surrogates, which JSON cannot encode.
    clean = text.encode("utf-8", "replace").decode()
    return CallToolResult(content=[TextContent(text=clean)], is_error=failed)
