"""The initialize handshake: the capabilities that Keryx offers, and those and the login methods that an agent reports."""

from importlib.metadata import version

import msgspec

from keryx.agents.acp.connection import AgentConnection, AgentUnavailable
from keryx.core.text import to_short_line
from keryx.core.texts import Phrase
from keryx.jsonrpc import PROTOCOL_VERSION, Json, as_count, as_object, as_objects, as_text


class LoginMethod(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    description: str = ""
    # Arguments to the program of the agent that start the login; empty for a login by `authenticate`.
    command: tuple[str, ...] = ()


class AgentCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    protocol: int
    name: str = ""
    version: str = ""
    # Continue a session with a replay of its messages.
    load: bool = False
    # Continue a session without a replay.
    resume: bool = False
    close: bool = False
    list: bool = False
    fork: bool = False
    folders: bool = False
    images: bool = False
    audio: bool = False
    embedded: bool = False
    logins: tuple[LoginMethod, ...] = ()


async def initialize(
    connection: AgentConnection, *, files: bool, terminal: bool, seconds: float
) -> AgentCapabilities:
    """Start the protocol. Raise `AgentUnavailable` for an agent that speaks another version."""
    offered: Json = {
        "fs": {"readTextFile": files, "writeTextFile": files},
        "terminal": terminal,
        "elicitation": {"form": {}, "url": {}},
        "auth": {"terminal": True},
    }
    about = {"name": "keryx", "title": "Keryx", "version": version("keryx")}
    answer = await connection.request(
        "initialize",
        {"protocolVersion": PROTOCOL_VERSION, "clientCapabilities": offered, "clientInfo": about},
        seconds=seconds,
    )
    protocol = answer.get("protocolVersion")
    if protocol != PROTOCOL_VERSION:
        raise AgentUnavailable(
            Phrase("agent.other_version", theirs=repr(protocol), ours=str(PROTOCOL_VERSION))
        )
    return _parse_capabilities(answer)


def _parse_capabilities(answer: Json) -> AgentCapabilities:
    logins: list[LoginMethod] = []
    for method in as_objects(answer.get("authMethods")):
        arguments = method.get("args")
        values: list[object] = arguments if isinstance(arguments, list) else []  # pyright: ignore[reportUnknownVariableType]
        login = LoginMethod(
            id=to_short_line(as_text(method.get("id")), 80),
            name=to_short_line(as_text(method.get("name")) or as_text(method.get("id")), 80),
            description=to_short_line(as_text(method.get("description")), 300),
            command=tuple(str(a) for a in values) if method.get("type") == "terminal" else (),
        )
        logins.append(login)
    can = as_object(answer.get("agentCapabilities"))
    session, prompt, info = (
        as_object(can.get("sessionCapabilities")),
        as_object(can.get("promptCapabilities")),
        as_object(answer.get("agentInfo")),
    )
    return AgentCapabilities(
        protocol=as_count(answer.get("protocolVersion")),
        name=to_short_line(as_text(info.get("title")) or as_text(info.get("name")), 80),
        version=to_short_line(as_text(info.get("version")), 40),
        load=can.get("loadSession") is True,
        resume=_has_capability(session, "resume"),
        close=_has_capability(session, "close"),
        list=_has_capability(session, "list"),
        fork=_has_capability(session, "fork"),
        folders=_has_capability(session, "additionalDirectories"),
        images=prompt.get("image") is True,
        audio=prompt.get("audio") is True,
        embedded=prompt.get("embeddedContext") is True,
        logins=tuple(logins),
    )


def _has_capability(flags: Json, name: str) -> bool:
    # An object means yes, even an empty one; null and a missing key mean no.
    return flags.get(name) is not None and flags.get(name) is not False
