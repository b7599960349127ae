"""Client: what the editor at the other end can do, as it said when it connected."""

from typing import Any, cast

import msgspec

from keryx.surfaces.acp.peer import Json


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is asked of an editor that it did not offer."""

    read_file: bool = False
    write_file: bool = False
    terminal: bool = False
    form: bool = False
    notices: bool = False
    compaction: bool = False


def offered(capabilities: object) -> Client:
    """The capabilities of an editor. Whatever is not understood is not offered."""
    given = _object(capabilities)
    fs, session, elicitation = (_object(given.get(key)) for key in ("fs", "session", "elicitation"))
    return Client(
        read_file=fs.get("readTextFile") is True,
        write_file=fs.get("writeTextFile") is True,
        terminal=given.get("terminal") is True,
        form=isinstance(elicitation.get("form"), dict),
        notices=isinstance(session.get("notices"), dict),
        compaction=isinstance(session.get("compaction"), dict),
    )


def _object(value: object) -> Json:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
