"""Gateway: how Keryx stands with the chat platforms."""

from cyclopts import App

app = App(name="gateway", help="The chat platforms: how they are connected.")
app.command("keryx.cli.gateway_setup:app", name="setup")
