"""Intake: updates as they come over the wire, taken in one by one. What cannot be read is counted and left behind."""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from keryx.core.errors import Invalid
from keryx.core.messages import Part, Text
from keryx.core.ports import Attachment, Door, Inbound, Receipt
from keryx.surfaces.gateway.telegram.api import LARGEST_FILE, Api, ApiError, Unanswered, Unreached
from keryx.surfaces.gateway.telegram.parse import PLATFORM, Me, Moved, Parsed, Remote, parse, pressed
from keryx.surfaces.gateway.telegram.types import Update

log = logging.getLogger(__name__)

_FETCHES_AT_ONCE = 4
_FETCH_SECONDS = 120.0
_LONGEST_TOAST = 200
_TOAST_SECONDS = 5.0


class _Numbered(msgspec.Struct, frozen=True):
    update_id: int


class _Event(msgspec.Struct, frozen=True):
    """What an update says, if anything: words and files that are still to be fetched, a press that is to be
    acknowledged, or that a chat has moved."""

    inbound: Inbound | None = None
    press: str = ""
    files: tuple[Remote, ...] = ()
    moved: Moved | None = None


class Intake:
    """Hands updates to the door. `skipped` counts those that could not be read or were refused as wrong."""

    def __init__(self, api: Api, door: Door, me: Me) -> None:
        self._api = api
        self._door = door
        self._me = me
        self._fetches = asyncio.Semaphore(_FETCHES_AT_ONCE)
        self.skipped = 0

    async def take(self, batch: object) -> int | None:
        """Take a polled batch in, in the order of its numbers, each with the cursor behind it; gives the next offset.

        An update that is no message moves no cursor of its own: the next message moves it past both, and until
        then it is merely read again after a restart. `None` when nothing in the batch has a number."""
        updates = self._numbered(batch)
        ready = [self._read(update) for update in updates.values()]
        for number, event in zip(updates, await self._complete(ready), strict=True):
            await self._receive(event, cursor=(f"{PLATFORM}:{self._me.account}", str(number + 1)))
        return max(updates) + 1 if updates else None

    async def take_one(self, update: object) -> None:
        """Take in an update that was posted to us; its sender repeats it until we say that it is stored."""
        [event] = await self._complete([self._read(update)])
        await self._receive(event)

    def _numbered(self, batch: object) -> dict[int, object]:
        found: dict[int, object] = {}
        for update in _items(batch):
            try:
                found[msgspec.convert(update, _Numbered).update_id] = update
            except msgspec.ValidationError:
                self._skip("it has no number")
        return dict(sorted(found.items()))

    async def _complete(self, events: Sequence[_Event]) -> Sequence[_Event]:
        """The events with their files, which are fetched side by side."""
        if not any(event.files for event in events):
            return events
        return await asyncio.gather(*(self._with_files(event) for event in events))

    def _read(self, raw: object) -> _Event:
        try:
            update = msgspec.convert(raw, Update)
        except msgspec.ValidationError as exc:
            self._skip(str(exc))
            return _Event()
        if update.callback_query is not None:
            return _Event(pressed(update.callback_query, self._me), update.callback_query.id)
        match parse(update, self._me):
            case Moved() as moved:
                return _Event(moved=moved)
            case Parsed(inbound=inbound, files=files):
                return _Event(inbound, files=files)
            case None:
                return _Event()

    async def _with_files(self, event: _Event) -> _Event:
        """The event with its files. Those of a stranger are named and never fetched."""
        if event.inbound is None or not event.files:
            return event
        if not await self._door.allowed(event.inbound.source):
            kept: list[Part] = [Text(f"[{file.name}]") for file in event.files]
        else:
            kept = [await self._part(file) for file in event.files]
        return _Event(msgspec.structs.replace(event.inbound, parts=(*event.inbound.parts, *kept)))

    async def _part(self, file: Remote) -> Part:
        """The file as a part of the message, or a sentence that says why it is not there."""
        try:
            if file.size > LARGEST_FILE:
                raise Invalid("it is larger than the 20 MB that Telegram gives to a bot")
            async with self._fetches, asyncio.timeout(_FETCH_SECONDS):
                body = await self._api.fetch(file.file_id)
                return await self._door.keep(Attachment(name=file.name, mime=file.mime, body=body))
        except (ApiError, Unreached, Unanswered, Invalid) as exc:
            return Text(f"[{file.name} could not be fetched: {exc}]")
        except TimeoutError:
            return Text(f"[{file.name} could not be fetched: it took too long]")

    async def _receive(self, event: _Event, *, cursor: tuple[str, str] | None = None) -> None:
        receipt = None
        if event.moved is not None:
            await self._door.moved(event.moved.old, event.moved.new)
        if event.inbound is not None:
            try:
                receipt = await self._door.receive(msgspec.structs.replace(event.inbound, cursor=cursor))
            except Invalid as exc:
                self._skip(str(exc))
        if event.press:
            await self._acknowledge(event.press, receipt)

    async def _acknowledge(self, press: str, receipt: Receipt | None) -> None:
        """End the waiting of whoever pressed a button, and show them what it led to. Telegram refuses what is too old."""
        told = (receipt.reply or "")[:_LONGEST_TOAST] if receipt else ""
        try:
            await self._api.call(
                "answerCallbackQuery", seconds=_TOAST_SECONDS, callback_query_id=press, text=told or None
            )
        except (ApiError, Unreached, Unanswered) as exc:
            log.info("a press could not be acknowledged: %s", exc)

    def _skip(self, why: str) -> None:
        self.skipped += 1
        log.warning("an update of Telegram is left out, %d so far: %s", self.skipped, why)


def _items(batch: object) -> list[object]:
    return batch if isinstance(batch, list) else []  # pyright: ignore[reportUnknownVariableType]
