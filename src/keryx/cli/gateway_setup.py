"""Setup of platforms: one command each, which asks for what is needed, checks it, and writes the settings."""

from cyclopts import App

app = App(name="setup", help="Connect a chat platform.")
app.command("keryx.cli.gateway_setup_telegram:telegram")
app.command("keryx.cli.gateway_setup_matrix:matrix")
