"""Recent: what happened lately, by name. The oldest is forgotten, so that it never grows without end."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

_LIMIT = 512


class Recent(dict[K, V]):
    def note(self, key: K, value: V) -> None:
        self[key] = value
        if len(self) > _LIMIT:
            del self[next(iter(self))]
