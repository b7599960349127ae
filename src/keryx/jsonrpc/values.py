"""Tolerant readers for decoded JSON: a value of the wrong type reads as empty."""

from typing import Any, TypeAlias, cast

Json: TypeAlias = dict[str, Any]


def as_object(value: object) -> Json:
    """Return an object as it is, and an empty one for anything else: null results and missing fields are common."""
    return cast(Json, value) if isinstance(value, dict) else {}


def as_objects(value: object) -> list[Json]:
    """Return the objects in a list; other elements are skipped."""
    return (
        [as_object(cast(object, v)) for v in cast(list[object], value) if isinstance(v, dict)]
        if isinstance(value, list)
        else []
    )


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: object) -> int:
    """Return an integer, never negative; 0 for anything else."""
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0
