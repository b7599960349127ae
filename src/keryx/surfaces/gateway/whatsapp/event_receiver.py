"""Receives what the payloads of WhatsApp say: learns the ids of people, and hands events to the engine one by one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias
from weakref import WeakValueDictionary

import msgspec

from keryx.core.cache import LruCache
from keryx.core.errors import Invalid, SendError
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import AdapterContext, InboundEvent, InboundFailure, InboundMessage
from keryx.core.source import Source
from keryx.surfaces.gateway.whatsapp.event_parser import ParsedEvent, ParsedPayload, parse_reference
from keryx.surfaces.gateway.whatsapp.graph_api import WhatsAppApi

log = logging.getLogger(__name__)


# Answers a press; and asks a person to write, because messages to them are held. An agent has no buttons, and may write at
# any time.
AnswerPress: TypeAlias = Callable[[Source, str], Awaitable[None]]
InvitePerson: TypeAlias = Callable[[AdapterContext, Source], Awaitable[dict[str, str]]]


class WhatsAppReceiver:
    def __init__(
        self,
        context: AdapterContext,
        *,
        newest_messages: LruCache[str, str],
        usernames: bool = False,
        answer_press: AnswerPress | None = None,
        invite: InvitePerson | None = None,
    ) -> None:
        self._context = context
        self._usernames = usernames
        self._answer_press = answer_press
        self._invite = invite
        # By chat, so that posts that arrive at the same time do not overtake each other while ids are looked up.
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
            inbound = await self._complete(event.inbound)
            receipt = await self._context.receive(msgspec.structs.replace(inbound, cursor=cursor))
        except Invalid as exc:
            self.skip(str(exc))
            return
        if isinstance(inbound, InboundMessage) and inbound.reply is not None:
            self._newest_messages.put(inbound.reply.chat, inbound.reply.reply_to)
        if self._answer_press and event.pressed and receipt.reply and not receipt.duplicate:
            try:
                await self._answer_press(event.source, receipt.reply)
            except SendError as exc:
                log.info("a press could not be answered: %s", exc)

    async def _complete(self, inbound: InboundEvent) -> InboundEvent:
        """Return a failure with what was done about it, and any other event as it is."""
        if self._invite and isinstance(inbound, InboundFailure) and inbound.held:
            return msgspec.structs.replace(inbound, state=await self._invite(self._context, inbound.source))
        return inbound

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


async def download_file(api: WhatsAppApi, folder: str, file: RemoteFile, limit: int) -> Attachment:
    """Fetch a file of a message from a folder of the API. Raise `Invalid` or `Unavailable` if that fails."""
    media, sha256 = parse_reference(file.reference)
    body = await api.download(f"{folder}{media}", sha256=sha256, limit=limit)
    return Attachment(name=file.name, mime=file.mime, body=body)
