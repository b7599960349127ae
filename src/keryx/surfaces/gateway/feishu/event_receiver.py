"""Receives Feishu's events and the presses of buttons one by one: looks up names and places, learns the ids of people, and hands events to the engine."""

import asyncio
import logging
from typing import Any

import msgspec

from keryx.core.cache import LruCache
from keryx.core.errors import Invalid, Unavailable
from keryx.core.ports.adapter import AdapterContext, InboundEvent, Receipt
from keryx.core.source import Source
from keryx.surfaces.gateway import EventDecoder
from keryx.surfaces.gateway.feishu import event_parser
from keryx.surfaces.gateway.feishu.chat_directory import FeishuDirectory
from keryx.surfaces.gateway.feishu.event_parser import FeishuContext, FeishuPlace
from keryx.surfaces.gateway.feishu.open_api import FeishuApiError, encode_json
from keryx.surfaces.gateway.feishu.payloads import (
    CardActionEvent,
    FeishuEnvelope,
    FeishuEventHeader,
    FeishuIdentity,
    FeishuMessageEvent,
    FeishuPersonIds,
    FeishuReactionEvent,
    FeishuRecallEvent,
)

log = logging.getLogger(__name__)
_MAX_TOAST_LENGTH = 200
_MAX_KNOWN_PEOPLE = 10_000


class FeishuReceiver:
    def __init__(
        self, context: AdapterContext, directory: FeishuDirectory, me: FeishuIdentity, *, account: str
    ) -> None:
        self._context = context
        self._directory = directory
        self._parser_context = FeishuContext(account=account, me=me.open_id)
        # Events are stored one at a time, in the order of arrival, over all posts.
        self._lock = asyncio.Lock()
        # The aliases of people that are stored, by their id.
        self._aliases = LruCache[str, frozenset[str]](_MAX_KNOWN_PEOPLE)
        self._decoder = EventDecoder("Feishu", log)

    async def receive(self, payload: bytes) -> dict[str, Any] | None:
        """Receive what Feishu hands over. It is stored when this returns. Return what the person who pressed a button is
        shown. Raise `Unavailable` if it cannot be stored now."""
        envelope = self._decoder.decode(payload, FeishuEnvelope)
        return await self.receive_envelope(envelope) if envelope is not None else None

    async def receive_envelope(self, envelope: FeishuEnvelope) -> dict[str, Any] | None:
        header = envelope.header
        if header is None:
            self._decoder.skip("it has no header")
            return None
        if header.app_id and header.app_id != self._parser_context.account:
            self._decoder.skip("it is for another app")
            return None
        async with self._lock:
            try:
                return await self._dispatch(header, bytes(envelope.event))
            except Invalid as exc:
                self._decoder.skip(str(exc))
            except FeishuApiError as exc:
                # The message of a reaction may be gone, or the app may not read it.
                self._decoder.skip(f"its place is not known: {exc}")
        return None

    async def _dispatch(self, header: FeishuEventHeader, event: bytes) -> dict[str, Any] | None:
        match header.event_type:
            case event_parser.MESSAGE_RECEIVED:
                if (message := self._decoder.decode(event, FeishuMessageEvent)) is not None:
                    await self._receive_message(header, message)
            case event_parser.MESSAGE_RECALLED:
                if (recall := self._decoder.decode(event, FeishuRecallEvent)) is not None:
                    await self._receive_recall(header, recall)
            case event_parser.REACTION_ADDED | event_parser.REACTION_REMOVED:
                if (reaction := self._decoder.decode(event, FeishuReactionEvent)) is not None:
                    await self._receive_reaction(header, reaction)
            case event_parser.CARD_ACTION:
                if (action := self._decoder.decode(event, CardActionEvent)) is not None:
                    return await self._receive_press(header, action)
            case other:
                log.debug("an event of the type %s is not read", other[:80])
        return None

    async def _receive_message(self, header: FeishuEventHeader, event: FeishuMessageEvent) -> None:
        message = event.message
        if event_parser.find_person(event.sender.sender_id) == self._parser_context.me:
            return
        if message.message_type == "merge_forward":
            event = await self._open_forwarded(event)
        for mention in message.mentions or ():
            self._directory.note_name(event_parser.find_person(mention.id), mention.name)
        names = await self._directory.find_names(event_parser.list_named_ids(event))
        parsed = event_parser.parse_message(
            event,
            header,
            msgspec.structs.replace(
                self._parser_context, names=names, replies_to_me=await self._replies_to_me(event)
            ),
        )
        if parsed is None:
            return
        if message.message_type == "merge_forward":
            # The note that a person adds is the next message.
            parsed = msgspec.structs.replace(parsed, more=True)
        state = await self._directory.note_chat(self._context, message.chat_id, direct=message.is_direct)
        await self._learn_ids(parsed.source, event.sender.sender_id, header.tenant_key)
        self._directory.note_message(
            message.message_id,
            FeishuPlace(chat=message.chat_id, direct=message.is_direct, thread=message.thread_id or ""),
        )
        await self._store(msgspec.structs.replace(parsed, state=state))
        self._directory.remember_chat(message.chat_id, direct=message.is_direct)

    async def _open_forwarded(self, event: FeishuMessageEvent) -> FeishuMessageEvent:
        """Return forwarded messages as a text, or as they are if the platform does not tell what they say."""
        try:
            found = await self._directory.find_forwarded(event.message.message_id)
        except (FeishuApiError, Unavailable) as exc:
            log.info("forwarded messages cannot be read: %s", exc)
            return event
        if not found:
            return event
        names = await self._directory.find_names({one.sender.id for one in found} - {""})
        content = encode_json({"text": event_parser.describe_forwarded(found, names)})
        message = msgspec.structs.replace(event.message, content=content)
        return msgspec.structs.replace(event, message=message)

    async def _replies_to_me(self, event: FeishuMessageEvent) -> bool:
        """Whether a message of a group quotes one of ours. In a thread the engine knows who takes part."""
        message = event.message
        if message.is_direct or message.thread_id or not message.parent_id:
            return False
        try:
            return (await self._directory.find_message(self._context, message.parent_id)).own
        except FeishuApiError as exc:
            log.info("it is not known whether a message is a reply to Keryx: %s", exc)
            return False

    async def _receive_recall(self, header: FeishuEventHeader, event: FeishuRecallEvent) -> None:
        try:
            direct = await self._directory.find_chat(self._context, event.chat_id)
        except FeishuApiError as exc:
            log.info("the kind of a chat is not known: %s", exc)
            direct = False
        place = FeishuPlace(chat=event.chat_id, direct=direct)
        await self._store(event_parser.parse_recall(event, header, place, self._parser_context))

    async def _receive_reaction(self, header: FeishuEventHeader, event: FeishuReactionEvent) -> None:
        if event.operator_type != "user":
            return
        place = await self._directory.find_message(self._context, event.message_id)
        context = await self._name(event_parser.find_person(event.user_id), place)
        parsed = event_parser.parse_reaction(event, header, place, context)
        if parsed is not None:
            await self._store(parsed)

    async def _receive_press(
        self, header: FeishuEventHeader, event: CardActionEvent
    ) -> dict[str, Any] | None:
        if not event_parser.read_press(event):
            return None
        place = await self._find_pressed(event)
        context = await self._name(event_parser.find_person(event.operator), place)
        parsed = event_parser.parse_press(event, header, place, context)
        if parsed is None:
            return None
        receipt = await self._store(parsed)
        if receipt is None or not receipt.reply:
            return None
        text = receipt.reply
        content = text if len(text) <= _MAX_TOAST_LENGTH else f"{text[: _MAX_TOAST_LENGTH - 1]}…"
        return {"toast": {"type": "info", "content": content}}

    async def _find_pressed(self, event: CardActionEvent) -> FeishuPlace:
        """Return where the card with the button is. Its thread is told by the message alone."""
        place = event.context
        if not place.open_chat_id:
            raise Invalid("the press of a button names no chat")
        try:
            return await self._directory.find_message(self._context, place.open_message_id)
        except FeishuApiError as exc:
            log.info("the thread of a card is not known: %s", exc)
        direct = await self._directory.find_chat(self._context, place.open_chat_id)
        return FeishuPlace(chat=place.open_chat_id, direct=direct, own=True)

    async def _name(self, person: str, place: FeishuPlace) -> FeishuContext:
        names = await self._directory.find_names({person, *(() if place.direct else (place.chat,))} - {""})
        return msgspec.structs.replace(self._parser_context, names=names)

    async def _learn_ids(self, source: Source, ids: FeishuPersonIds | None, tenant: str) -> None:
        """Learn the other ids of an author, each once."""
        person, aliases = source.user or "", frozenset(event_parser.list_aliases(ids, tenant))
        if not person or not aliases or aliases == self._aliases.get(person):
            return
        scope = f"person {person}"
        known = frozenset((await self._context.load_state(scope) or "").split())
        for alias in sorted(aliases - known):
            try:
                await self._context.add_alias(source, alias)
            except Invalid as exc:
                log.warning("an id of a person on Feishu cannot be an alias: %s", exc)
        if aliases - known:
            await self._context.save_state(scope, " ".join(sorted(aliases | known)))
        self._aliases.put(person, aliases)

    async def _store(self, inbound: InboundEvent) -> Receipt | None:
        """Hand an event to the engine. One that the engine refuses as invalid is skipped."""
        try:
            return await self._context.receive(inbound)
        except Invalid as exc:
            self._decoder.skip(str(exc))
            return None
