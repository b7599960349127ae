"""Abilities: what an agent says of itself when a connection begins."""

from importlib.metadata import version

import msgspec

from keryx.agents.acp.connection import Connection
from keryx.agents.acp.rpc import Gone, Json, count, table, tables, text
from keryx.core.titles import line

PROTOCOL = 1


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """A way to log in. `command` are the arguments with which the agent's own program is run for it, if it is so done."""

    id: str
    name: str
    description: str = ""
    command: tuple[str, ...] = ()


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """`load` and `resume` are the two ways to go on with a session: with a replay and without one."""

    protocol: int
    name: str = ""
    version: str = ""
    load: bool = False
    resume: bool = False
    close: bool = False
    list: bool = False
    fork: bool = False
    folders: bool = False
    images: bool = False
    audio: bool = False
    embedded: bool = False
    logins: tuple[Login, ...] = ()


async def learn(connection: Connection, *, files: bool, terminal: bool, seconds: float) -> Abilities:
    """Begin the protocol. Raises `Gone` for an agent that does not speak a version that Keryx speaks."""
    offered: Json = {
        "fs": {"readTextFile": files, "writeTextFile": files},
        "terminal": terminal,
        "elicitation": {"form": {}, "url": {}},
        "auth": {"terminal": True},
    }
    about = {"name": "keryx", "title": "Keryx", "version": version("keryx")}
    answer = await connection.request(
        "initialize",
        {"protocolVersion": PROTOCOL, "clientCapabilities": offered, "clientInfo": about},
        seconds=seconds,
    )
    protocol = answer.get("protocolVersion")
    if protocol != PROTOCOL:
        raise Gone(
            f"it speaks version {protocol!r} of the protocol, Keryx speaks {PROTOCOL}: update one of them"
        )
    return _read(answer)


def _read(answer: Json) -> Abilities:
    can = table(answer.get("agentCapabilities"))
    session, prompt, info = (
        table(can.get("sessionCapabilities")),
        table(can.get("promptCapabilities")),
        table(answer.get("agentInfo")),
    )
    return Abilities(
        protocol=count(answer.get("protocolVersion")),
        name=line(text(info.get("title")) or text(info.get("name")))[:80],
        version=line(text(info.get("version")))[:40],
        load=can.get("loadSession") is True,
        resume=_has(session, "resume"),
        close=_has(session, "close"),
        list=_has(session, "list"),
        fork=_has(session, "fork"),
        folders=_has(session, "additionalDirectories"),
        images=prompt.get("image") is True,
        audio=prompt.get("audio") is True,
        embedded=prompt.get("embeddedContext") is True,
        logins=tuple(_login(method) for method in tables(answer.get("authMethods"))),
    )


def _has(flags: Json, name: str) -> bool:
    """An object means yes, even an empty one; null and nothing mean no."""
    return flags.get(name) is not None and flags.get(name) is not False


def _login(method: Json) -> Login:
    arguments = method.get("args")
    given: list[object] = arguments if isinstance(arguments, list) else []  # pyright: ignore[reportUnknownVariableType]
    return Login(
        id=line(text(method.get("id")))[:80],
        name=line(text(method.get("name")) or text(method.get("id")))[:80],
        description=line(text(method.get("description")))[:300],
        command=tuple(str(a) for a in given) if method.get("type") == "terminal" else (),
    )
