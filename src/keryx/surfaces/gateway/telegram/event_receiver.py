"""Receives Bot API updates one by one: parses them and hands them to the engine. Unreadable updates are counted and skipped."""

import logging
from itertools import pairwise

import msgspec

from keryx.core.errors import Invalid
from keryx.core.ports.adapter import AdapterContext, InboundMessage, InboundReaction, Receipt
from keryx.surfaces.gateway.telegram.bot_api import (
    TelegramApi,
    TelegramApiError,
    TelegramNoResponse,
    TelegramUnreachable,
)
from keryx.surfaces.gateway.telegram.event_parser import (
    BotIdentity,
    ChatMigration,
    parse_callback,
    parse_reactions,
    parse_update,
)
from keryx.surfaces.gateway.telegram.payloads import TelegramUpdate

log = logging.getLogger(__name__)

_MAX_TOAST_LENGTH = 200
_TOAST_TIMEOUT_SECONDS = 5.0


class _UpdateNumber(msgspec.Struct, frozen=True):
    update_id: int


class _PendingUpdate(msgspec.Struct, frozen=True):
    """An update that is not stored yet. Empty if it says nothing to this bot."""

    inbound: InboundMessage | None = None
    # The press of a button, to be acknowledged.
    callback_id: str = ""
    migration: ChatMigration | None = None
    reactions: tuple[InboundReaction, ...] = ()


class UpdateReceiver:
    def __init__(self, api: TelegramApi, context: AdapterContext, bot: BotIdentity) -> None:
        self._api = api
        self._context = context
        self._bot = bot
        # The number of updates that could not be read or were refused as invalid.
        self.skipped = 0

    async def receive_batch(self, batch: object) -> int | None:
        """Receive a polled batch in the order of its update ids and return the next offset, or `None` if no update has an id.

        An update without a message does not move the stored cursor; the next message does. Until then it is read
        again after a restart."""
        updates = self._sort_batch(batch)
        # Mark each message of a batch that a forward by the same person follows, so that its turn waits
        # for the forward.
        parsed = [self._parse(update) for update in updates.values()]
        ready = list(parsed)
        for index, (update, following) in enumerate(pairwise(parsed)):
            one, next_one = update.inbound, following.inbound
            if one is None or next_one is None or not next_one.continues:
                continue
            author, other = one.source, next_one.source
            if (author.chat, author.thread, author.user) == (other.chat, other.thread, other.user):
                inbound = msgspec.structs.replace(one, more=True)
                ready[index] = msgspec.structs.replace(update, inbound=inbound)
        for number, event in zip(updates, ready, strict=True):
            await self._receive(event, cursor=str(number + 1))
        return max(updates) + 1 if updates else None

    async def receive_one(self, update: object) -> None:
        """Receive an update that was posted to us. Return only after it is stored."""
        await self._receive(self._parse(update))

    def _sort_batch(self, batch: object) -> dict[int, object]:
        updates: list[object] = batch if isinstance(batch, list) else []  # pyright: ignore[reportUnknownVariableType]
        by_number: dict[int, object] = {}
        for update in updates:
            try:
                by_number[msgspec.convert(update, _UpdateNumber).update_id] = update
            except msgspec.ValidationError:
                self._skip("it has no number")
        return dict(sorted(by_number.items()))

    def _parse(self, raw: object) -> _PendingUpdate:
        try:
            update = msgspec.convert(raw, TelegramUpdate)
        except msgspec.ValidationError as exc:
            self._skip(str(exc))
            return _PendingUpdate()
        if update.callback_query is not None:
            return _PendingUpdate(parse_callback(update.callback_query, self._bot), update.callback_query.id)
        if update.message_reaction is not None:
            return _PendingUpdate(
                reactions=parse_reactions(update.message_reaction, update.update_id, self._bot)
            )
        match parse_update(update, self._bot):
            case ChatMigration() as moved:
                return _PendingUpdate(migration=moved)
            case InboundMessage() as inbound:
                return _PendingUpdate(inbound)
            case None:
                return _PendingUpdate()

    async def _receive(self, event: _PendingUpdate, *, cursor: str | None = None) -> None:
        receipt = None
        if event.migration is not None:
            await self._context.move_chat(event.migration.old, event.migration.new)
        for reaction in event.reactions:
            await self._context.receive(msgspec.structs.replace(reaction, cursor=cursor))
        if event.inbound is not None:
            try:
                receipt = await self._context.receive(msgspec.structs.replace(event.inbound, cursor=cursor))
            except Invalid as exc:
                self._skip(str(exc))
        if event.callback_id:
            await self._acknowledge(event.callback_id, receipt)

    async def _acknowledge(self, press: str, receipt: Receipt | None) -> None:
        """Answer the press of a button with the reply of its receipt. Telegram refuses answers that come too late."""
        text = (receipt.reply or "")[:_MAX_TOAST_LENGTH] if receipt else ""
        try:
            await self._api.call(
                "answerCallbackQuery",
                seconds=_TOAST_TIMEOUT_SECONDS,
                callback_query_id=press,
                text=text or None,
            )
        except (TelegramApiError, TelegramUnreachable, TelegramNoResponse) as exc:
            log.info("a press could not be acknowledged: %s", exc)

    def _skip(self, why: str) -> None:
        self.skipped += 1
        log.warning("an update of Telegram is left out, %d so far: %s", self.skipped, why)
