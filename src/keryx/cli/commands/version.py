"""`keryx version`: versions of Keryx, Python and SQLite."""

import platform
from importlib.metadata import version as installed

import apsw

from keryx.cli import output
from keryx.cli.options import Json


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
        output.write_json(found)
    else:
        output.write_fields(found.items())
