"""Config: the settings in force, where they come from, and a file to begin with."""

import getpass
import sys

from cyclopts import App

from keryx import config
from keryx.cli import output, settings
from keryx.cli.access import Json
from keryx.surfaces.web import passwords

app = App(name="config", help="The settings in force, and where each comes from.")


@app.command
@app.default
def show(*, json: Json = False) -> None:
    """Show every setting, its value, and where the value comes from. Passwords are left out.

    For example:

        keryx config
        KERYX_PORT=8000 keryx config show --json
    """
    found = settings.shown()
    if json:
        output.json({"settings": found})
        return
    rows = [(name, settings.config_json(origin.value), origin.source) for name, origin in found.items()]
    output.table(("setting", "value", "from"), rows, flexible=1)


@app.command
def path(*, json: Json = False) -> None:
    """Print where the settings file is looked for.

    For example:

        keryx config path
    """
    file = config.read().folder / "keryx.toml"
    output.answer(str(file), {"path": str(file), "exists": file.exists()}, json)


@app.command
def example(*, json: Json = False) -> None:
    """Print a settings file with every setting and its meaning, all commented out.

    For example:

        keryx config example > ~/.keryx/keryx.toml
    """
    output.answer(settings.example(), {"settings": settings.rows()}, json)


@app.command
def password(*, json: Json = False) -> None:
    """Print the hash of a password, to keep in a file that `[web] password_from` names.

    The password is asked for, or read from what is piped in.

    For example:

        keryx config password > ~/.keryx/web.password
    """
    typed = getpass.getpass("Password (not shown): ") if sys.stdin.isatty() else sys.stdin.readline()
    kept = passwords.hashed(typed.strip())
    output.answer(kept, {"password": kept}, json)
