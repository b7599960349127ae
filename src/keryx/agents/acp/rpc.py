"""The words of JSON-RPC between Keryx and an agent: what comes in, and what goes wrong."""

from typing import Any, TypeAlias, cast

import msgspec

Json: TypeAlias = dict[str, Any]
Id: TypeAlias = int | str | None

METHOD = -32601
PARAMS = -32602
INTERNAL = -32603
LOGIN = -32000
MISSING = -32002
CANCELLED = -32800


class Fault(Exception):
    """An error answer, of the agent or to it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Gone(Exception):
    """The agent has ended, or speaks no more; `str` says why, for a person."""


class Update(msgspec.Struct, frozen=True):
    """The agent tells something of a session."""

    body: Json


class Asked(msgspec.Struct, frozen=True):
    """The agent asks for something and waits for the answer."""

    id: Id
    method: str
    params: Json


class Answered(msgspec.Struct, frozen=True):
    """The answer to a request of ours that was to come in its place among the updates."""

    result: Json
    fault: Fault | None = None


class Ended(msgspec.Struct, frozen=True):
    """Nothing more comes."""

    why: str


class Stalled(msgspec.Struct, frozen=True):
    """Nothing has come for a while."""


Incoming: TypeAlias = Update | Asked | Answered | Ended | Stalled


def table(value: object) -> Json:
    """An object as it came, or an empty one in place of anything else: null answers and missing fields are common."""
    return cast(Json, value) if isinstance(value, dict) else {}


def tables(value: object) -> list[Json]:
    """The objects of a list; whatever else is in it is left out."""
    return (
        [table(cast(object, v)) for v in cast(list[object], value) if isinstance(v, dict)]
        if isinstance(value, list)
        else []
    )


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def count(value: object) -> int:
    """A number of things, never negative; 0 for anything else."""
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0
