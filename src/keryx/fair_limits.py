"""Limits on what people share, so that one of them does not take all of it."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class FairQueue:
    """Lets a few in at once. Those who wait are let in by turns: one request of each person, then the next of each."""

    def __init__(self, places: int) -> None:
        self._free = places
        # By person, in the order of their turns.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def hold(self, person: str) -> AsyncGenerator[None]:
        """Hold a place during the block."""
        await self._enter(person)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, person: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(person, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The place came too late.
                self._leave()
            raise

    def _leave(self) -> None:
        while self._waiting:
            person = next(iter(self._waiting))
            turns = self._waiting.pop(person)
            turn = turns.popleft()
            if turns:
                self._waiting[person] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class SharedPlace:
    """One of the places that a person has."""

    def __init__(self, person: str) -> None:
        self.person = person
        # It was given to another person. Whoever has it should let go of it soon.
        self.revoked = False


class FairShares:
    """Places that are held for long. When all are taken, a person gets one of whoever has two more than they."""

    def __init__(self, places: int) -> None:
        self._places = places
        # By person, the oldest first.
        self._shares: dict[str, dict[SharedPlace, None]] = {}
        self._taken = 0

    def has_place(self, person: str) -> bool:
        """Whether `take` would return a place."""
        return self._taken < self._places or self._find_largest_holder(person) is not None

    def take(self, person: str) -> SharedPlace | None:
        """Return a place, which is to be released; `None` if there is none for this person."""
        if self._taken >= self._places:
            holder = self._find_largest_holder(person)
            if holder is None:
                return None
            oldest = next(iter(self._shares[holder]))
            oldest.revoked = True
            self.release(oldest)
        share = SharedPlace(person)
        self._shares.setdefault(person, {})[share] = None
        self._taken += 1
        return share

    def release(self, share: SharedPlace) -> None:
        """Give a place back. Does nothing for one that was revoked or released before."""
        own = self._shares.get(share.person, {})
        if share in own:
            del own[share]
            self._taken -= 1
            if not own:
                del self._shares[share.person]

    def _find_largest_holder(self, person: str) -> str | None:
        holder = max(self._shares, key=lambda name: len(self._shares[name]), default=None)
        if holder is None or len(self._shares[holder]) < len(self._shares.get(person, ())) + 2:
            return None
        return holder
