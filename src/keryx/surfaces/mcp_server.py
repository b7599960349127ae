"""An MCP server on standard streams that offers past conversations as read-only tools to other agents."""

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

from keryx.core.errors import KeryxError
from keryx.core.sessions import Viewer
from keryx.engine import builtin_tools
from keryx.engine.hub import Hub


async def serve(hub: Hub, viewer: Viewer, *, version: str) -> None:
    """Serve requests on stdin until it ends. All reads are those of `viewer`; nothing is written."""

    async def list_tools(_: object, __: PaginatedRequestParams | None) -> ListToolsResult:
        reads = ToolAnnotations(read_only_hint=True)
        return ListToolsResult(
            tools=[
                Tool(
                    name=s.name, description=s.description, input_schema=dict(s.parameters), annotations=reads
                )
                for s in builtin_tools.READ_SPECS
            ]
        )

    async def call_tool(_: object, params: CallToolRequestParams) -> CallToolResult:
        try:
            text = await builtin_tools.call_read_tool(hub, viewer, params.name, params.arguments or {})
            return CallToolResult(content=[TextContent(text=text)])
        except KeryxError as exc:
            return CallToolResult(content=[TextContent(text=str(exc))], is_error=True)

    server = Server("keryx", version=version, on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
