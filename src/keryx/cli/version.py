"""Version: which Keryx this is, and what it stands on."""

import platform
from importlib.metadata import version as installed

import apsw

from keryx.cli import output
from keryx.cli.access import Json


def version(*, json: Json = False) -> None:
    """Print the version, for a bug report.

    For example:

        keryx version
        keryx version --json
    """
    found = {
        "keryx": installed("keryx"),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": platform.platform(),
    }
    if json:
        output.json(found)
    else:
        output.fields(found.items())
