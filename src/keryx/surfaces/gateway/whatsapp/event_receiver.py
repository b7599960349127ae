"""Receives what the payloads of WhatsApp say: learns the ids of people, fetches files, and hands events to the engine one by one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from weakref import WeakValueDictionary

import msgspec

from keryx.core.errors import Invalid, SendError
from keryx.core.media import Attachment
from keryx.core.messages import Part, Text
from keryx.core.ports.adapter import AdapterContext, InboundEvent, InboundFailure, InboundMessage
from keryx.core.source import Source
from keryx.surfaces.gateway.whatsapp.graph_api import (
    WhatsAppApi,
    WhatsAppApiError,
    WhatsAppNoResponse,
    WhatsAppUnreachable,
)
from keryx.surfaces.gateway.whatsapp.payload_parser import MediaFile, ParsedEvent, ParsedPayload

log = logging.getLogger(__name__)

_MAX_FETCHES = 4
_FETCH_TIMEOUT_SECONDS = 120.0
_MAX_CHATS = 10_000

# Answers a press; and asks a person to write, because messages to them are held.
AnswerPress: TypeAlias = Callable[[Source, str], Awaitable[None]]
InvitePerson: TypeAlias = Callable[[AdapterContext, Source], Awaitable[dict[str, str]]]


class WhatsAppReceiver:
    def __init__(
        self,
        api: WhatsAppApi,
        context: AdapterContext,
        *,
        media_path: str,
        newest_messages: dict[str, str],
        usernames: bool = False,
        answer_press: AnswerPress,
        invite: InvitePerson,
    ) -> None:
        self._api = api
        self._context = context
        self._media_path = media_path
        self._usernames = usernames
        self._answer_press = answer_press
        self._invite = invite
        self._fetches = asyncio.Semaphore(_MAX_FETCHES)
        # By chat, so that posts that arrive at the same time do not overtake each other while files are fetched.
        self._chats: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._reported_numbers: set[str] = set()
        self._newest_messages = newest_messages
        # The number of items that could not be read or were refused as invalid.
        self.skipped = 0

    async def receive_payload(self, payload: ParsedPayload, cursors: Sequence[str | None] = ()) -> None:
        """Receive what a payload says, in order. Return only after everything is stored. Each event moves the stored
        position to its cursor."""
        for problem in payload.problems:
            self.skip(problem)
        for number in payload.other_numbers:
            self._report_number(number)
        for index, event in enumerate(payload.events):
            chat = event.source.chat or ""
            lock = self._chats.setdefault(chat, asyncio.Lock())
            async with lock:
                await self._receive(event, cursors[index] if cursors else None)

    async def _receive(self, event: ParsedEvent, cursor: str | None) -> None:
        try:
            await self._learn_ids(event)
            if event.inbound is None:
                return
            inbound = await self._complete(event.inbound, event.files)
            receipt = await self._context.receive(msgspec.structs.replace(inbound, cursor=cursor))
        except Invalid as exc:
            self.skip(str(exc))
            return
        if isinstance(inbound, InboundMessage) and inbound.reply is not None:
            self._remember(inbound.reply.chat, inbound.reply.reply_to)
        if event.pressed and receipt.reply and not receipt.duplicate:
            try:
                await self._answer_press(event.source, receipt.reply)
            except SendError as exc:
                log.info("a press could not be answered: %s", exc)

    async def _complete(self, inbound: InboundEvent, files: Sequence[MediaFile]) -> InboundEvent:
        """Return a message with its files, and a failure with what was done about it."""
        if isinstance(inbound, InboundFailure) and inbound.held:
            return msgspec.structs.replace(inbound, state=await self._invite(self._context, inbound.source))
        if isinstance(inbound, InboundMessage) and files:
            parts = [*inbound.parts, *await self._fetch_files(inbound.source, files)]
            return msgspec.structs.replace(inbound, parts=tuple(parts))
        return inbound

    async def _fetch_files(self, source: Source, files: Sequence[MediaFile]) -> list[Part]:
        """Return the parts of files. Those of a user without access are named and not fetched."""
        if not await self._context.is_allowed(source):
            return [Text(f"[{file.name}]") for file in files]
        return [await self._fetch_part(file) for file in files]

    async def _fetch_part(self, file: MediaFile) -> Part:
        """Return the file as a part of the message, or a sentence that says why it is missing."""
        try:
            async with self._fetches, asyncio.timeout(_FETCH_TIMEOUT_SECONDS):
                body = await self._api.fetch_file(f"{self._media_path}{file.id}", file.sha256)
                return await self._context.store_attachment(
                    Attachment(name=file.name, mime=file.mime, body=body)
                )
        except (WhatsAppApiError, WhatsAppUnreachable, WhatsAppNoResponse, Invalid) as exc:
            return Text(f"[{file.name} could not be fetched: {exc}]")
        except TimeoutError:
            return Text(f"[{file.name} could not be fetched: it took too long]")

    async def _learn_ids(self, event: ParsedEvent) -> None:
        """Learn the other ids of an author, each once.

        A number or username may pass to another person, who then has another id. It is an alias of the person who had it
        first, and of nobody else."""
        for successor in event.successors:
            await self._context.add_alias(event.source, successor)
        person = event.source.user or ""
        usernames = [event.username] if event.username and self._usernames else []
        for alias in (*event.aliases, *usernames):
            scope = f"alias {alias}"
            owner = await self._context.load_state(scope)
            if owner is None:
                await self._context.add_alias(event.source, alias)
                await self._context.save_state(scope, person)
            elif owner != person:
                log.warning(
                    "an id of WhatsApp has passed to another person: their conversations stay separate"
                )

    def _remember(self, chat: str, message: str) -> None:
        """Note the newest message of a chat, for as many chats as are likely to be typed in."""
        self._newest_messages.pop(chat, None)
        self._newest_messages[chat] = message
        if len(self._newest_messages) > _MAX_CHATS:
            del self._newest_messages[next(iter(self._newest_messages))]

    def _report_number(self, number: str) -> None:
        if number not in self._reported_numbers:
            self._reported_numbers.add(number)
            log.warning(
                "a post of WhatsApp is about the number %s, which is not that of this account", number[:40]
            )

    def skip(self, why: str) -> None:
        """Count what cannot be read, and say so in the log."""
        self.skipped += 1
        log.warning("an item of WhatsApp is left out, %d so far: %s", self.skipped, why)
