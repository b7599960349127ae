"""Secrets by reference (`env:NAME`, `file:PATH`, `text:VALUE`), read when needed and never stored."""

import os
from collections.abc import Mapping
from pathlib import Path

from keryx.core.errors import Invalid
from keryx.core.texts import Phrase, explain_os_error

_PREFIXES = ("env:", "file:", "text:")


def check_reference(reference: str, what: str) -> None:
    """Raise `ValueError` for a text that is not a reference: it may be the secret itself."""
    if not reference.startswith(_PREFIXES):
        raise ValueError(f"{what}: write {' or '.join(f'{k}…' for k in _PREFIXES)}, not the value itself")


def read(reference: str, what: str, environ: Mapping[str, str] | None = None) -> str:
    """Return the value of `env:NAME`, `file:PATH` or `text:VALUE`. Blocks while a small file is read."""
    environ = os.environ if environ is None else environ
    kind, _, location = reference.partition(":")
    if kind == "text":
        return location
    if kind == "env":
        if not (value := environ.get(location, "").strip()):
            raise Invalid(Phrase("secret.unset", what=what, variable=location))
        return value
    try:
        value = Path(location).expanduser().read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as exc:
        reason = explain_os_error(exc) if isinstance(exc, OSError) else Phrase("secret.no_text")
        raise Invalid(Phrase("secret.unreadable", what=what, place=location, reason=reason)) from exc
    if not value:
        raise Invalid(Phrase("secret.empty", what=what, place=location))
    return value


class Secret:
    """A secret by reference: `env:NAME`, `file:PATH` or empty. Only `reveal` returns its value. `name` is that of its
    setting, for errors."""

    __slots__ = ("name", "reference")

    def __init__(self, reference: str = "", *, name: str = "", what: str = "secret") -> None:
        if reference and not reference.startswith(("env:", "file:")):
            raise ValueError(f"write env:NAME or file:PATH here, not the {what} itself")
        self.reference = reference
        self.name = name

    def __bool__(self) -> bool:
        return bool(self.reference)

    def __repr__(self) -> str:
        return f"Secret({self.reference!r})"

    def reveal(self, environ: Mapping[str, str] | None = None) -> str:
        """Return the value, stripped. Raise `Invalid`, with the name of the setting, if it is missing. Blocks while a small
        file is read."""
        name = self.name or "a secret"
        if not self.reference:
            raise Invalid(f"{name} is missing: no reference to it is given")
        return read(self.reference, name, environ)
