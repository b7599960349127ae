"""Secrets of surfaces: written as references, read when they are needed, and never shown."""

import os
from collections.abc import Mapping
from pathlib import Path

from keryx.core.errors import Invalid


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
        kind, _, place = self.reference.partition(":")
        if kind == "env":
            value = (os.environ if environ is None else environ).get(place, "")
            lack = f"set the variable {place}"
        elif kind == "file":
            value, lack = _text(Path(place).expanduser(), what), f"{place} is empty"
        else:
            raise Invalid(f"{what} is missing: no reference to it is given")
        if not value.strip():
            raise Invalid(f"{what} is missing: {lack}")
        return value.strip()


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as exc:
        why = (exc.strerror or type(exc).__name__).lower() if isinstance(exc, OSError) else "it is not text"
        raise Invalid(f"{what} cannot be read from {path}: {why}") from exc
