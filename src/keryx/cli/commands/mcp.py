"""`keryx mcp`: let other agents search and read conversations over stdin and stdout."""

import sys

from keryx import __version__
from keryx.cli import options, output
from keryx.core.errors import Invalid


async def mcp() -> None:
    """Let another agent search and read your conversations, over MCP on stdin and stdout.

    The agent starts this by itself. It offers `search_conversations` and
    `read_conversation` over every surface, in the profile that is set, and
    changes nothing. It ends when the agent hangs up. docs/how-to/tools.md
    shows how agents are told of it.

        keryx mcp
    """
    try:
        from keryx.surfaces.mcp_server import serve  # noqa: PLC0415 an optional extra, and slow to import
    except ImportError as exc:
        raise Invalid(
            f"keryx mcp needs an extra ({exc.name} is missing): pip install 'keryx[tools]'"
        ) from exc
    if sys.stdin.isatty():
        output.warn("keryx: this speaks a protocol for agents; `keryx chat` is for people. Ctrl-D leaves.")
    async with options.open_hub() as found:
        await serve(found.hub, found.viewer, version=__version__)
