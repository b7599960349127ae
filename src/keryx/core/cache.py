"""A cache of bounded size that drops what was not used for the longest time."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Mapping[K, V]):
    """A mapping whose reads count as uses. Not safe for several threads at once."""

    def __init__(self, size: int, *, measure: Callable[[V], int] = lambda _: 1) -> None:
        """`size` limits the sum of what `measure` returns for each value: without it, how many values there are."""
        self._size = size
        self._measure = measure
        self._taken = 0
        self._values: OrderedDict[K, V] = OrderedDict()

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys, the one that was used least recently first."""
        # A copy, because whoever reads the values on the way changes their order.
        return iter(list(self._values))

    def __getitem__(self, key: K) -> V:
        value = self._values[key]
        self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Store the value as the one used last. Drops the values that were used least recently while the cache is too
        large, so a value that is larger than the cache is not kept."""
        self.remove(key)
        self._values[key] = value
        self._taken += self._measure(value)
        while self._taken > self._size:
            _, dropped = self._values.popitem(last=False)
            self._taken -= self._measure(dropped)

    def remove(self, key: K) -> None:
        if key in self._values:
            self._taken -= self._measure(self._values.pop(key))

    def clear(self) -> None:
        self._values.clear()
        self._taken = 0
