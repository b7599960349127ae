"""Gateway: how Keryx stands with the chat platforms."""

from cyclopts import App

from keryx.cli import output
from keryx.cli.access import Json, hub
from keryx.core.connections import ClosedGate, Connection
from keryx.core.ports import Link

app = App(name="gateway", help="The chat platforms: how they are connected.")
app.command("keryx.cli.gateway_setup:app", name="setup")

_HEADS = ("platform", "account", "state", "since", "received", "sent", "failed", "throttled", "detail")


@app.command
async def status(*, json: Json = False) -> None:
    """Show how each platform is connected, what went through it, and what is
    held back and until when.

    For example:

        keryx gateway status
        keryx gateway status --json
    """
    async with hub() as access:
        nodes = await access.hub.nodes()
        found = await access.hub.connections()
        gates = await access.hub.closed_gates()
    if json:
        output.json({"nodes": len(nodes), "connections": found, "gates": gates})
        return
    if not nodes:
        output.write("No node runs, so nothing is connected: start one with `keryx serve`.")
    elif not found:
        output.write("No platform has reported yet: ask again in a moment.")
    if found:
        output.table(_HEADS, map(_row, found), flexible=8, right=(4, 5, 6, 7))
    _print_hints(found)
    _print_gates(gates)


def _row(connection: Connection) -> tuple[str, ...]:
    counts = (connection.received, connection.sent, connection.failed, connection.throttled)
    return (
        connection.platform,
        connection.account,
        connection.link.value,
        output.when(connection.since),
        *map(str, counts),
        connection.detail,
    )


def _print_hints(found: list[Connection]) -> None:
    for platform in dict.fromkeys(c.platform for c in found if c.link is Link.REFUSED):
        output.write(
            f"{output.plain(platform, one_line=True)} refuses the credentials: "
            f"`keryx gateway setup {output.plain(platform, one_line=True)}` asks for new ones; then restart the node."
        )


def _print_gates(gates: list[ClosedGate]) -> None:
    for gate in gates:
        why = f" ({output.plain(gate.reason, one_line=True)})" if gate.reason else ""
        place, until = output.plain(gate.key.rstrip(":"), one_line=True), gate.until.astimezone()
        output.write(f"Nothing is sent to {place} until {until:%H:%M:%S}{why}.")
