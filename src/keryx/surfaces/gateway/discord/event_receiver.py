"""Receives dispatched events one after the other: parses them, opens threads, and hands them to the engine. Fetches what was written while no session could be resumed."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from keryx import logs
from keryx.core.errors import Invalid
from keryx.core.ports.adapter import AdapterContext, InboundEvent, InboundMessage, Receipt
from keryx.core.source import ChatType
from keryx.surfaces.gateway.discord import event_parser, interactions
from keryx.surfaces.gateway.discord.channels import ChannelCache, NameDirectory
from keryx.surfaces.gateway.discord.event_parser import ChannelPlace, DiscordIdentity, ParsedDiscordMessage
from keryx.surfaces.gateway.discord.gateway_position import GatewayPosition, PositionTracker
from keryx.surfaces.gateway.discord.gateway_session import Dispatch
from keryx.surfaces.gateway.discord.payloads import (
    ChannelKind,
    DeletedMessages,
    DiscordChannel,
    DiscordGuild,
    DiscordInteraction,
    DiscordMessage,
    DiscordReaction,
    InteractionKind,
    ReadyEvent,
    build_snowflake,
)
from keryx.surfaces.gateway.discord.rest_api import MAX_PAGE, DiscordApi, DiscordError
from keryx.surfaces.gateway.discord.route_limits import Route

log = logging.getLogger(__name__)

# Of one channel, after an interruption.
MAX_MISSED_MESSAGES = 10_000
# Discord does not list the direct chats of a bot, so the newest ones are kept, to ask them for missed messages.
MAX_DIRECT_CHANNELS = 2_000
_MAX_QUEUED = 1_000
# How far back a direct chat is read that was not known. The engine recognises what it received for longer than this.
_MAX_AGE = timedelta(days=7)
_DIRECT_SCOPE = "direct"
_THREAD_EXISTS = 160004


class _QueuedEvent(msgspec.Struct, frozen=True):
    dispatch: Dispatch
    # Whether an interaction may be answered. It is acknowledged while the event waits in the queue.
    answerable: "asyncio.Task[bool] | None" = None


class EventReceiver:
    def __init__(
        self,
        api: DiscordApi,
        context: AdapterContext,
        identity: DiscordIdentity,
        position: GatewayPosition,
        *,
        archive: int = 0,
        names: NameDirectory,
    ) -> None:
        self._api = api
        self._context = context
        self._identity = identity
        # After how many minutes of silence the thread of a conversation is archived; 0 for no threads.
        self._archive = archive
        self._names = names
        self._channels = ChannelCache(api, identity.id)
        self._queue: asyncio.Queue[_QueuedEvent] = asyncio.Queue(_MAX_QUEUED)
        self._tracker = PositionTracker(context, position)
        # The servers whose missed messages are not fetched yet.
        self._behind: set[str] = set()
        self._direct: list[str] | None = None
        self._acknowledging: set[asyncio.Task[bool]] = set()
        # The number of events that could not be read or were refused as invalid.
        self.skipped = 0

    async def put(self, dispatch: Dispatch) -> None:
        """Queue an event. Wait while the queue is full. The acknowledgement of an interaction begins at once."""
        answerable = None
        if dispatch.kind == "INTERACTION_CREATE":
            answerable = asyncio.create_task(interactions.acknowledge(self._api, dispatch.data))
            self._acknowledging.add(answerable)
            answerable.add_done_callback(self._acknowledging.discard)
        await self._queue.put(_QueuedEvent(dispatch, answerable))

    async def run(self) -> None:
        """Receive queued events until cancelled. An event that cannot be stored ends this with its error, and comes again."""
        try:
            while True:
                await self._handle_safely(await self._queue.get())
                await self._tracker.save_if_due()
        finally:
            for task in self._acknowledging:
                task.cancel()

    async def _handle_safely(self, queued: _QueuedEvent) -> None:
        try:
            await self._handle(queued)
        except msgspec.ValidationError as exc:
            self._skip(queued.dispatch.kind, str(exc))
        self._tracker.end_event()

    async def _handle(self, queued: _QueuedEvent) -> None:
        dispatch = queued.dispatch
        if dispatch.kind == "READY":
            await self._begin_session(dispatch)
            return
        self._tracker.begin_event(dispatch.seq)
        data = dispatch.data
        match dispatch.kind:
            case "MESSAGE_CREATE":
                message = msgspec.convert(data, DiscordMessage)
                place = await self._find_place(message.channel_id, message.guild_id)
                await self._fetch_first(message, place)
                await self._receive_message(message, place)
                self._tracker.note_message(message.id)
            case "MESSAGE_UPDATE":
                await self._receive_edit(msgspec.convert(data, DiscordMessage))
            case "MESSAGE_DELETE" | "MESSAGE_DELETE_BULK":
                deleted = msgspec.convert(data, DeletedMessages)
                place = await self._find_place(deleted.channel_id, deleted.guild_id)
                deletions = event_parser.parse_deletions(deleted, place, self._me)
                for left, deletion in zip(reversed(range(len(deletions))), deletions, strict=True):
                    await self._receive(deletion, complete=not left)
            case (
                "MESSAGE_REACTION_ADD"
                | "MESSAGE_REACTION_REMOVE"
                | "MESSAGE_REACTION_REMOVE_EMOJI"
                | "MESSAGE_REACTION_REMOVE_ALL"
            ):
                await self._receive_reaction(dispatch)
            case "INTERACTION_CREATE":
                await self._receive_interaction(msgspec.convert(data, DiscordInteraction), queued.answerable)
            case "GUILD_CREATE":
                await self._receive_guild(msgspec.convert(data, DiscordGuild))
            case "GUILD_DELETE":
                await self._forget_guild(msgspec.convert(data, DiscordGuild))
            case "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE":
                self._channels.add(msgspec.convert(data, DiscordChannel))
            case "CHANNEL_DELETE" | "THREAD_DELETE":
                self._channels.remove(msgspec.convert(data, DiscordChannel).id)
            case _:
                # Events of other kinds say nothing to the bot.
                return

    @property
    def _me(self) -> DiscordIdentity:
        return msgspec.structs.replace(self._identity, own_roles=self._channels.own_roles)

    async def _find_place(self, channel: str, guild: str | None) -> ChannelPlace:
        """Return where an event happened. Raise `Unavailable` if Discord does not tell it."""
        if guild is None:
            return ChannelPlace(DiscordChannel(id=channel, type=ChannelKind.DIRECT))
        found = await self._channels.find(channel, guild=guild)
        if not found.is_thread or found.parent_id is None:
            return ChannelPlace(found)
        return ChannelPlace(found, await self._channels.find(found.parent_id, guild=guild))

    async def _receive_message(
        self, message: DiscordMessage, place: ChannelPlace, *, complete: bool = True
    ) -> None:
        self._names.learn(message.channel_id, event_parser.list_names(message))
        threads = bool(self._archive)
        parsed = event_parser.parse_message(message, place, self._me, self._channels, threads=threads)
        await self._receive_parsed(parsed, complete=complete)

    async def _receive_edit(self, message: DiscordMessage) -> None:
        place = await self._find_place(message.channel_id, message.guild_id)
        threads = bool(self._archive)
        await self._receive_parsed(
            event_parser.parse_edit(message, place, self._me, self._channels, threads=threads)
        )

    async def _receive_parsed(self, parsed: ParsedDiscordMessage | None, *, complete: bool = True) -> None:
        if parsed is None:
            return
        inbound = parsed.inbound
        if parsed.opens_thread:
            allowed = await self._context.is_allowed(inbound.source)
            if not allowed or not await self._open_thread(inbound, parsed.opens_thread):
                # It stays a message of its channel.
                source = msgspec.structs.replace(inbound.source, chat_type=ChatType.GROUP, thread=None)
                reply = inbound.reply
                if reply is not None:
                    reply = msgspec.structs.replace(reply, thread="", reply_to=source.message or "")
                inbound = msgspec.structs.replace(inbound, source=source, reply=reply)
        await self._receive(inbound, complete=complete)

    async def _receive(self, inbound: InboundEvent, *, complete: bool = True) -> Receipt | None:
        """Store an event with the position after it: if the dispatched event is not `complete` with it, that before the
        dispatched event. Return `None` for one that the engine refuses as invalid."""
        state: dict[str, str] = {}
        if isinstance(inbound, InboundMessage):
            if inbound.source.message:
                self._tracker.note_message(inbound.source.message)
            if complete and inbound.source.chat_type is ChatType.DM and inbound.source.chat:
                state = await self._note_direct(inbound.source.chat)
        placed = msgspec.structs.replace(inbound, cursor=self._tracker.encode(complete=complete), state=state)
        try:
            receipt = await self._context.receive(placed)
        except Invalid as exc:
            self._skip(type(inbound).__name__, str(exc))
            self._direct = None
            return None
        self._tracker.note_stored()
        return receipt

    async def _receive_reaction(self, dispatch: Dispatch) -> None:
        reaction = msgspec.convert(dispatch.data, DiscordReaction)
        parsed = event_parser.parse_reaction(
            reaction,
            await self._find_place(reaction.channel_id, reaction.guild_id),
            self._me,
            event=f"reaction.{dispatch.session}.{dispatch.seq}",
            removed=dispatch.kind != "MESSAGE_REACTION_ADD",
        )
        if parsed is not None:
            await self._receive(parsed)

    async def _receive_interaction(
        self, interaction: DiscordInteraction, acknowledged: "asyncio.Task[bool] | None"
    ) -> None:
        answerable = acknowledged is not None and await acknowledged
        if not interactions.is_known(interaction):
            return
        place = await self._find_place(interaction.channel_id or "", interaction.guild_id)
        try:
            if interaction.type == InteractionKind.COMMAND:
                inbound = event_parser.parse_command(interaction, place, self._me, answerable=answerable)
            else:
                inbound = event_parser.parse_press(interaction, place, self._me)
        except Invalid as exc:
            self._skip("INTERACTION_CREATE", str(exc))
            return
        receipt = await self._receive(inbound) if inbound is not None else None
        pressed = interaction.type == InteractionKind.COMPONENT
        if pressed and answerable and receipt is not None and receipt.reply:
            await interactions.send_notice(self._api, interaction, receipt.reply)

    async def _open_thread(self, inbound: InboundMessage, name: str) -> bool:
        """Open the thread of a conversation at its first message. Return false if Discord refuses it. May be repeated."""
        source = inbound.source
        route = Route("POST", "/channels/{}/messages/{}/threads", (source.chat or "", source.thread or ""))
        try:
            await self._api.call(route, {"name": name, "auto_archive_duration": self._archive})
        except DiscordError as exc:
            if exc.code == _THREAD_EXISTS:
                return True
            log.warning("no thread can be opened in %s: %s", logs.hash_chat(source.chat or ""), exc)
            return False
        self._channels.add(
            DiscordChannel(
                id=source.thread or "",
                type=ChannelKind.PUBLIC_THREAD,
                name=name,
                guild_id=source.scope,
                parent_id=source.chat,
                owner_id=self._identity.id,
            )
        )
        return True

    async def _begin_session(self, dispatch: Dispatch) -> None:
        """A new session has begun: fetch what was written in direct chats since the last one. Servers follow one by one."""
        ready = msgspec.convert(dispatch.data, ReadyEvent)
        await self._tracker.begin(dispatch.session, dispatch.url, dispatch.seq, now=self._api.now())
        if not self._tracker.missed_after:
            return
        self._channels.forget_members()
        self._behind = {guild.id for guild in ready.guilds}
        for channel in await self._load_direct():
            place = ChannelPlace(DiscordChannel(id=channel, type=ChannelKind.DIRECT))
            await self._fetch_missed(place, self._tracker.missed_after)
        await self._finish_if_complete()

    async def _receive_guild(self, guild: DiscordGuild) -> None:
        if guild.unavailable:
            return
        self._channels.add_guild(guild)
        if guild.id not in self._behind:
            return
        after = self._tracker.missed_after
        for channel in (*guild.channels, *guild.threads):
            newer = channel.last_message_id is not None and int(channel.last_message_id) > int(after)
            # The last message of a forum is in one of its posts.
            if newer and not channel.is_forum:
                await self._fetch_missed(await self._find_place(channel.id, guild.id), after)
        self._behind.discard(guild.id)
        await self._finish_if_complete()

    async def _forget_guild(self, guild: DiscordGuild) -> None:
        """The bot was removed from a server, or the server is not available for some time."""
        if not guild.unavailable and guild.id in self._behind:
            self._behind.discard(guild.id)
            await self._finish_if_complete()

    async def _finish_if_complete(self) -> None:
        if not self._behind:
            await self._tracker.finish()

    async def _fetch_first(self, message: DiscordMessage, place: ChannelPlace) -> None:
        """Receive what was written in a direct chat before the first message that came as an event: a chat that is not known
        cannot be asked for missed messages."""
        known = not place.channel.is_direct or place.channel.id in await self._load_direct()
        if known or message.author.id == self._identity.id or not self._tracker.first:
            return
        oldest = build_snowflake(self._api.now() - _MAX_AGE)
        await self._fetch_missed(place, max(self._tracker.first, oldest, key=int), before=message.id)

    async def _fetch_missed(self, place: ChannelPlace, after: str, *, before: str = "") -> None:
        """Receive what was written in a channel after one message, and before another if that is given, oldest first. The
        engine recognises what it knows."""
        count = 0
        while count < MAX_MISSED_MESSAGES:
            page = await self._api.list_messages(place.channel.id, after=after)
            if not page:
                return
            messages = self._convert_page(page)
            for message in messages:
                if before and int(message.id) >= int(before):
                    return
                whole = await self._add_member(message, place.channel)
                await self._receive_message(whole, place, complete=False)
            if len(page) < MAX_PAGE or not messages:
                return
            after, count = messages[-1].id, count + len(page)
        log.warning("more than %d messages were missed in a channel: the newest are left out", count)

    def _convert_page(self, page: Sequence[object]) -> list[DiscordMessage]:
        messages: list[DiscordMessage] = []
        for found in page:
            try:
                messages.append(msgspec.convert(found, DiscordMessage))
            except msgspec.ValidationError as exc:
                self._skip("a missed message", str(exc))
        return sorted(messages, key=lambda message: int(message.id))

    async def _add_member(self, message: DiscordMessage, channel: DiscordChannel) -> DiscordMessage:
        """Return a fetched message with what only events carry: the server, and the roles of the author."""
        if channel.is_direct or channel.guild_id is None:
            return message
        member = None
        if not message.author.bot and message.webhook_id is None:
            member = await self._channels.find_member(channel.guild_id, message.author.id)
        return msgspec.structs.replace(message, guild_id=channel.guild_id, member=member)

    async def _load_direct(self) -> list[str]:
        """Return the direct chats that are known, the newest at the end."""
        if self._direct is None:
            self._direct = (await self._context.load_state(_DIRECT_SCOPE) or "").split()
        return list(self._direct)

    async def _note_direct(self, channel: str) -> dict[str, str]:
        """Return the state that adds a direct chat to the known ones; nothing if it is among them."""
        known = await self._load_direct()
        if channel in known:
            return {}
        self._direct = [*known, channel][-MAX_DIRECT_CHANNELS:]
        return {_DIRECT_SCOPE: " ".join(self._direct)}

    def _skip(self, kind: str, why: str) -> None:
        self.skipped += 1
        log.warning("an event of Discord (%s) is left out, %d so far: %s", kind, self.skipped, why)
