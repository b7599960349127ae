"""Secrets of surfaces: written as references, read when they are needed, and never shown."""

from collections.abc import Mapping

from keryx import secrets
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
        if not self.reference:
            raise Invalid(f"{what} is missing: no reference to it is given")
        return secrets.read(self.reference, what, environ)
