"""Secrets: read by reference when they are needed, from a variable or a file, and never kept."""

import os
from collections.abc import Mapping
from pathlib import Path

from keryx.core.errors import Invalid

_KINDS = ("env:", "file:", "text:")


def check(reference: str, what: str) -> None:
    """Refuse what is no reference, so that nobody writes a secret where a reference belongs."""
    if not reference.startswith(_KINDS):
        raise ValueError(f"{what}: write {' or '.join(f'{k}…' for k in _KINDS)}, not the value itself")


def read(reference: str, what: str, environ: Mapping[str, str] | None = None) -> str:
    """The value of `env:NAME`, `file:PATH` or `text:VALUE`. Blocks for as long as it takes to read a small file."""
    environ = os.environ if environ is None else environ
    kind, _, place = reference.partition(":")
    if kind == "text":
        return place
    if kind == "env":
        if not (value := environ.get(place, "").strip()):
            raise Invalid(f"{what} is missing: set the variable {place}.")
        return value
    try:
        value = Path(place).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as exc:
        raise Invalid(f"{what} cannot be read from {place}: {_why(exc)}.") from exc
    if not value:
        raise Invalid(f"{what} is missing: {place} is empty.")
    return value


def _why(exc: OSError | ValueError) -> str:
    return (exc.strerror or type(exc).__name__).lower() if isinstance(exc, OSError) else "it is not text"
