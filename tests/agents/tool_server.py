"""A real MCP server for tests: `python tool_server.py FILE [PORT]`. Each run of a tool is a line in the file; with a
port it listens on loopback, else it speaks on its standard streams."""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Image, MCPServer
from mcp_types import ToolAnnotations

RUNS = Path(sys.argv[1])
server = MCPServer("test", log_level="CRITICAL")


def note(run: str) -> None:
    with RUNS.open("a") as file:
        file.write(f"{run}\n")


@server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def look(q: str = "nothing") -> str:
    """Look something up."""
    note(f"look {q}")
    if q.startswith("complain "):
        print(*("x" * 99 for _ in range(int(q.split()[1]))), sep="\n", file=sys.stderr, flush=True)
    return f"found {q}"


@server.tool(structured_output=False)
def write(text: str) -> str:
    """Write something down."""
    note(f"write {text}")
    return f"wrote {text}"


@server.tool(structured_output=False)
async def post(text: str) -> str:
    """Post something, and tell so a moment later."""
    note(f"post {text}")
    await asyncio.sleep(0.1)
    return f"posted {text}"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True), structured_output=False)
async def wait(path: str) -> str:
    """Wait until a file is there; may be run again."""
    note("wait")
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 the test makes the file
        await asyncio.sleep(0.02)
    return "it is there"


@server.tool(structured_output=False)
async def stuck(path: str) -> str:
    """The same, and may not be run again."""
    note("stuck")
    while not Path(path).exists():  # noqa: ASYNC110, ASYNC240 the test makes the file
        await asyncio.sleep(0.02)
    return "it is there"


@server.tool(structured_output=False)
def die() -> str:
    """End at once."""
    note("die")
    os._exit(3)


@server.tool(structured_output=False)
def big(size: int) -> str:
    """Give much."""
    return "x" * size


@server.tool(structured_output=False)
def picture() -> list[object]:
    """Give a picture and words."""
    return ["here it is", Image(data=b"not a picture", format="png")]


@server.tool(name="odd näme/" + "y" * 80, structured_output=False)
def odd() -> str:
    """Has a name that no provider accepts."""
    return "odd"


sys.stderr.write(f"started with {os.environ.get('TOOL_SECRET', 'no secret')}\n")
sys.stderr.flush()
if len(sys.argv) > 2:
    server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
else:
    server.run()
