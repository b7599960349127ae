"""Secrets by reference (`env:NAME`, `file:PATH`, `text:VALUE`), read when needed and never stored."""

import os
from collections.abc import Mapping
from pathlib import Path

from keryx.core.errors import Invalid

_PREFIXES = ("env:", "file:", "text:")


def check_reference(reference: str, what: str) -> None:
    """Refuse what is no reference, so that nobody writes a secret where a reference belongs."""
    if not reference.startswith(_PREFIXES):
        raise ValueError(f"{what}: write {' or '.join(f'{k}…' for k in _PREFIXES)}, not the value itself")


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
        raise Invalid(f"{what} cannot be read from {place}: {_describe_error(exc)}.") from exc
    if not value:
        raise Invalid(f"{what} is missing: {place} is empty.")
    return value


def _describe_error(exc: OSError | ValueError) -> str:
    return (exc.strerror or type(exc).__name__).lower() if isinstance(exc, OSError) else "it is not text"


class Secret:
    """A secret by reference: `env:NAME` or `file:PATH`, or nothing. Only `reveal` gives its value."""

    __slots__ = ("reference",)

    def __init__(self, reference: str = "", *, what: str = "secret") -> None:
        if reference and not reference.startswith(("env:", "file:")):
            raise ValueError(f"write env:NAME or file:PATH here, not the {what} itself")
        self.reference = reference

    def __bool__(self) -> bool:
        return bool(self.reference)

    def __repr__(self) -> str:
        return f"Secret({self.reference!r})"

    def reveal(self, environ: Mapping[str, str] | None = None, *, what: str = "a secret") -> str:
        """The value, without blanks around it. `Invalid` when it is missing, in which it is called `what`. Blocks while
        a small file is read."""
        if not self.reference:
            raise Invalid(f"{what} is missing: no reference to it is given")
        return read(self.reference, what, environ)
