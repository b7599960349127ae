"""Receives the rows of Messages in their order: hands what people wrote to the engine, moves the position with it, and reads again what may have been missed."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from keryx.core.cache import LruCache
from keryx.core.errors import Invalid, Retryable
from keryx.core.ports.adapter import AdapterContext, InboundEvent
from keryx.core.source import Source
from keryx.jsonrpc import as_object
from keryx.surfaces.gateway.imessage.bluebubbles_api import (
    MAX_ROWS,
    BlueBubblesApi,
    BlueBubblesError,
    convert,
)
from keryx.surfaces.gateway.imessage.event_parser import (
    IMessageIdentity,
    MessageRow,
    normalize_handle,
    parse_failure,
    parse_row,
    parse_update,
    read_bluebubbles,
    read_imsg,
)
from keryx.surfaces.gateway.imessage.payloads import (
    BlueBubblesContact,
    BlueBubblesMessage,
    ImsgMessage,
)

log = logging.getLogger(__name__)

_MOST_GUIDS = 10_000
# A row may be visible only after one that follows it, because Messages puts it into its chat later.
_OVERLAP_ROWS = 20
# Apple lets people change a message for 15 minutes.
_EDIT_MS = 16 * 60 * 1000
_NEWEST_ROWS = 50

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RowPosition:
    """How far the table of messages was read."""

    row: int
    # When the row was written, in milliseconds since 1970, by the clock of the Mac; 0 if it is not known.
    at: int = 0

    def __str__(self) -> str:
        return f"{self.row}.{self.at}"

    def advance(self, row: MessageRow) -> "RowPosition":
        if row.row <= self.row:
            return self
        return RowPosition(row.row, int(row.at.timestamp() * 1000) if row.at else self.at)


def parse_position(cursor: str | None) -> RowPosition | None:
    """Return what `str(position)` wrote, or `None` for no cursor. Raise `Invalid` for anything else."""
    if cursor is None:
        return None
    row, _, at = cursor.partition(".")
    if not row.isdigit() or not (at or "0").isdigit():
        raise Invalid(f"the position {cursor[:40]!r} is not one of iMessage")
    return RowPosition(int(row), int(at or 0))


class RowReceiver:
    """Hands the rows of one account to the engine. What is called with rows awaits until they are stored."""

    def __init__(
        self,
        context: AdapterContext,
        me: IMessageIdentity,
        position: RowPosition,
        *,
        aliases: Sequence[Sequence[str]] = (),
        known_guids: dict[str, str],
    ) -> None:
        self._context = context
        self.me = me
        self.position = position
        self._aliases = {
            handle: tuple(other for other in person if other != handle)
            for person in ([normalize_handle(handle) for handle in group] for group in aliases)
            for handle in person
        }
        self._learned: set[str] = set()
        # The last chat of each person, for messages that answer nobody.
        self._known_guids = known_guids
        self._own_guids = LruCache[str, None](_MOST_GUIDS)
        self._seen = LruCache[str, None](_MOST_GUIDS)
        # The number of rows that could not be read or were refused as invalid.
        self.skipped = 0

    async def receive_imsg(self, payload: Any) -> None:
        """Receive a row as `imsg` hands it over. Skip one that was received before."""
        row = self.convert(payload, ImsgMessage)
        if row is not None and row.id > self.position.row:
            await self.receive_row(read_imsg(row))

    async def receive_row(self, row: MessageRow) -> None:
        """Receive what a row says for the first time, and that one of the agent was not delivered."""
        await self._receive_failure(row)
        if row.guid in self._seen:
            return
        if row.from_me:
            self._own_guids.put(row.guid, None)
        position = self.position.advance(row)
        await self._receive(row, parse_row(row, self.me, self._own_guids), position)
        self.position = position
        self._seen.put(row.guid, None)

    async def receive_update(self, row: MessageRow) -> None:
        """Receive the change of a row. The engine ignores the edit of a message that was read with its last text."""
        await self._receive_failure(row)
        event = parse_update(row, self.me, self._own_guids)
        if event is not None and event.event not in self._seen:
            await self._receive(row, event, self.position)
            self._seen.put(event.event, None)

    async def _receive_failure(self, row: MessageRow) -> None:
        failure = parse_failure(row, self.me)
        if failure is None or failure.event in self._seen:
            return
        try:
            await self._receive(row, failure, self.position)
        except Retryable as exc:
            # Other bubbles of the answer are being sent. The row is read again.
            log.info("that a message was not delivered is recorded later: %s", exc)
        else:
            self._seen.put(failure.event, None)

    def convert(self, payload: Any, kind: type[T]) -> T | None:
        """Return a row, or `None` for one that cannot be read. The same one is logged once."""
        try:
            return msgspec.convert(payload, kind)
        except msgspec.ValidationError as exc:
            name = f"{kind.__name__} {as_object(payload).get('guid')!s:.100}: {exc}"
            if name not in self._seen:
                self._seen.put(name, None)
                self._skip(name)
            return None

    async def _receive(self, row: MessageRow, event: InboundEvent | None, position: RowPosition) -> None:
        if event is None:
            return
        if not row.in_group:
            self._known_guids[row.sender] = row.chat_guid
        try:
            await self._learn_aliases(event.source)
            await self._context.receive(msgspec.structs.replace(event, cursor=str(position)))
        except Invalid as exc:
            self._skip(str(exc))

    async def _learn_aliases(self, source: Source) -> None:
        """Merge the author with their other handles, once in a process."""
        handle = source.user or ""
        if handle in self._aliases and handle not in self._learned:
            for other in self._aliases[handle]:
                await self._context.add_alias(source, other)
            self._learned.add(handle)

    def _skip(self, why: str) -> None:
        self.skipped += 1
        log.warning("a row of Messages is left out, %d so far: %s", self.skipped, why)


class BlueBubblesReader:
    """Reads from a BlueBubbles server what is new. A webhook only says that there is something: it is posted once, and one
    that is lost must lose nothing."""

    def __init__(self, api: BlueBubblesApi, receiver: RowReceiver) -> None:
        self._api = api
        self._receiver = receiver
        # Earlier rows are never read again.
        self._first_row = receiver.position.row
        self._lock = asyncio.Lock()
        # How often `catch_up` was called, and which call the last reading has answered.
        self._called = self._answered = 0
        self._check_updates = True
        self._names: Mapping[str, str] = {}

    async def load_names(self) -> None:
        """Read the names of the contacts. A server that may not read them has none."""
        names: dict[str, str] = {}
        try:
            contacts = convert(await self._api.get("contact") or [], list[Any])
        except BlueBubblesError as exc:
            log.warning("people have no names, because the contacts cannot be read: %s", exc)
            return
        for entry in contacts:
            contact = self._receiver.convert(entry, BlueBubblesContact)
            if contact is None:
                continue
            name = contact.display_name or " ".join(filter(None, (contact.first_name, contact.last_name)))
            for known in (*contact.phone_numbers, *contact.emails):
                names[normalize_handle(known.address)] = name
        self._names = names

    async def catch_up(self, *, updates: bool = False) -> None:
        """Receive all rows that are new now, and with `updates` what was changed. Return when they are stored. Calls that
        wait at the same time are answered together."""
        self._called += 1
        call = self._called
        self._check_updates |= updates
        async with self._lock:
            if self._answered >= call:
                return
            answers = self._called
            await self._read_new_rows()
            if self._check_updates:
                self._check_updates = False
                try:
                    await self._read_updates()
                except BaseException:
                    self._check_updates = True
                    raise
            self._answered = answers

    async def _read_new_rows(self) -> None:
        start = max(self._first_row, self._receiver.position.row - _OVERLAP_ROWS)
        while True:
            rows = await self._api.query_rows({"message.ROWID >": start})
            end = start + MAX_ROWS if len(rows) >= MAX_ROWS else 0
            if end:
                # Rows come in the order of their dates, so take those of a range of numbers instead.
                rows = await self._api.query_rows({"message.ROWID >": start, "message.ROWID <=": end})
            for row in sorted(self._read_rows(rows), key=lambda row: row.row):
                await self._receiver.receive_row(row)
            if not end:
                return
            start = end

    async def _read_updates(self) -> None:
        """Read what people may still have changed since the last row."""
        since = self._receiver.position.at - _EDIT_MS
        if since <= 0:
            return
        rows = self._read_rows(await self._api.query_rows({}, newest=True, after=since))
        for row in sorted(rows, key=lambda row: row.row):
            await self._receiver.receive_update(row)

    def _read_rows(self, payloads: Sequence[Any]) -> list[MessageRow]:
        rows: list[MessageRow] = []
        for payload in payloads:
            message = self._receiver.convert(payload, BlueBubblesMessage)
            if message is not None:
                rows.append(read_bluebubbles(message, self._names))
        return rows


async def find_newest_row(api: BlueBubblesApi) -> RowPosition:
    """Return the position behind all rows: what came before Keryx is not answered."""
    position = RowPosition(0)
    for payload in await api.query_rows({}, newest=True, limit=_NEWEST_ROWS):
        try:
            position = position.advance(read_bluebubbles(msgspec.convert(payload, BlueBubblesMessage), {}))
        except msgspec.ValidationError as exc:
            log.warning("a row of Messages is left out: %s", exc)
    return position
