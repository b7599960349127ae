"""`keryx gateway`: the state of the connections to chat platforms."""

from cyclopts import App

from keryx.cli import output
from keryx.cli.options import Json, open_hub
from keryx.core.ports.adapter import LinkState

app = App(name="gateway", help="The chat platforms: how they are connected.")
app.command("keryx.cli.commands.gateway_setup:app", name="setup")

_HEADINGS = ("platform", "account", "state", "since", "received", "sent", "failed", "throttled", "detail")


@app.command
async def status(*, json: Json = False) -> None:
    """Show how each platform is connected, what went through it, and what is
    held back and until when.

    For example:

        keryx gateway status
        keryx gateway status --json
    """
    async with open_hub() as access:
        nodes = await access.hub.list_nodes()
        found = await access.hub.platform_statuses()
        gates = await access.hub.closed_gates()
    if json:
        output.write_json({"nodes": len(nodes), "connections": found, "gates": gates})
        return
    if not nodes:
        output.write(output.wrap("No node runs, so nothing is connected: start one with `keryx serve`."))
    elif not found:
        output.write(output.wrap("No platform has reported yet: ask again in a moment."))
    if found:
        rows = [
            (
                *(c.platform, c.account, c.link.value, output.format_time(c.since)),
                *map(str, (c.received, c.sent, c.failed, c.throttled)),
                c.detail,
            )
            for c in found
        ]
        output.write_table(_HEADINGS, rows, flexible=8, right=(4, 5, 6, 7))
    for platform in dict.fromkeys(c.platform for c in found if c.link is LinkState.REFUSED):
        name = output.sanitize(platform, one_line=True)
        output.write(
            f"{name} refuses the credentials: "
            f"`keryx gateway setup {name}` asks for new ones; then restart the node."
        )
    for gate in gates:
        why = f" ({output.sanitize(gate.reason, one_line=True)})" if gate.reason else ""
        target, until = output.sanitize(gate.key.rstrip(":"), one_line=True), gate.until.astimezone()
        output.write(f"Nothing is sent to {target} until {until:%H:%M:%S}{why}.")
