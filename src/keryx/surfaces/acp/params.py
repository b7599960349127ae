"""Params: what the requests of an editor carry. Fields that nobody here knows are let be."""

import os
from typing import Any, TypeVar

import msgspec

from keryx.core.errors import Invalid
from keryx.core.ids import SessionId
from keryx.surfaces.acp.peer import Json

T = TypeVar("T", bound="Params")


class Params(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class Initialize(Params, frozen=True, kw_only=True):
    protocol_version: int | float | str
    client_capabilities: Any = None


class Authenticate(Params, frozen=True, kw_only=True):
    method_id: str


class Place(Params, frozen=True, kw_only=True):
    """Where a session works, and the tool servers that the editor gives it."""

    cwd: str
    mcp_servers: tuple[Json, ...] | None = ()

    @property
    def folder(self) -> str:
        return folder(self.cwd)


class Named(Params, frozen=True, kw_only=True):
    session_id: SessionId


class Take(Place, frozen=True, kw_only=True):
    """Load, resume or fork."""

    session_id: SessionId


class ListSessions(Params, frozen=True, kw_only=True):
    cwd: str | None = None
    cursor: str | None = None


class PromptTurn(Named, frozen=True, kw_only=True):
    prompt: tuple[Json, ...]


class SetMode(Named, frozen=True, kw_only=True):
    mode_id: str


class SetModel(Named, frozen=True, kw_only=True):
    model_id: str


class SetOption(Named, frozen=True, kw_only=True):
    config_id: str
    value: Any


def read(values: Json, kind: type[T]) -> T:
    """The parameters of a request; `Invalid` with the reason if they are not what it takes."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as exc:
        raise Invalid(f"the parameters are not right: {exc}") from exc


def folder(path: str) -> str:
    """A working directory as it is stored and compared: absolute, without dots and double slashes."""
    if not os.path.isabs(path) or "\0" in path:
        raise Invalid(f"cwd = {path[:200]!r} is not an absolute path")
    normal = os.path.normpath(path)
    return normal[1:] if normal.startswith("//") else normal
