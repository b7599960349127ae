"""What is known about channels, roles and names: learned from events, looked up where they do not tell it, and never trusted to be complete."""

from collections.abc import Iterable, Mapping

import msgspec

from keryx.core.cache import LruCache
from keryx.surfaces.gateway.discord.payloads import DiscordChannel, DiscordGuild, DiscordMember
from keryx.surfaces.gateway.discord.rest_api import DiscordApi

_MAX_CHANNELS = 20_000
_MAX_ROLES = 20_000
_MAX_MEMBERS = 2_000
_MAX_CHATS = 2_000
_MAX_NAMES = 200


class ChannelCache:
    def __init__(self, api: DiscordApi, bot: str) -> None:
        self._api = api
        self._bot = bot
        self._channels = LruCache[str, DiscordChannel](_MAX_CHANNELS)
        self._role_names = LruCache[str, str](_MAX_ROLES)
        self._own_roles: set[str] = set()
        self._members = LruCache[tuple[str, str], DiscordMember](_MAX_MEMBERS)

    def add_guild(self, guild: DiscordGuild) -> None:
        for channel in (*guild.channels, *guild.threads):
            self.add(msgspec.structs.replace(channel, guild_id=guild.id))
        for role in guild.roles:
            self._role_names.put(role.id, role.name)
            if role.tags.bot_id == self._bot:
                self._own_roles.add(role.id)

    def add(self, channel: DiscordChannel) -> None:
        self._channels.put(channel.id, channel)

    def remove(self, channel: str) -> None:
        self._channels.remove(channel)

    async def find(self, channel: str, *, guild: str | None = None) -> DiscordChannel:
        """Return a channel. One that the bot may not see is an ordinary channel without a name. Raise `Unavailable` if Discord
        does not answer: a thread must not be taken for a channel."""
        found = self._channels.get(channel)
        if found is None:
            found = await self._api.find_channel(channel) or DiscordChannel(id=channel, guild_id=guild)
            self._channels.put(channel, found)
        return found

    async def find_member(self, guild: str, user: str) -> DiscordMember:
        """Return the member for a message that does not carry it."""
        found = self._members.get((guild, user))
        if found is None:
            found = await self._api.find_member(guild, user) or DiscordMember()
            self._members.put((guild, user), found)
        return found

    def forget_members(self) -> None:
        """Look up members anew: their roles may have changed."""
        self._members = LruCache[tuple[str, str], DiscordMember](_MAX_MEMBERS)

    @property
    def own_roles(self) -> frozenset[str]:
        """The roles that Discord made for the bot itself; people mention them instead of the bot."""
        return frozenset(self._own_roles)

    def find_channel_name(self, channel: str) -> str:
        found = self._channels.get(channel)
        return found.name or "" if found else ""

    def find_role_name(self, role: str) -> str:
        return self._role_names.get(role) or ""


class NameDirectory:
    """The names of the people who wrote or were mentioned in a channel, so that an answer can mention them."""

    def __init__(self) -> None:
        self._channels = LruCache[str, dict[str, str]](_MAX_CHATS)

    def learn(self, channel: str, names: Iterable[tuple[str, str]]) -> None:
        """Remember pairs of names and ids of people in a channel. A name of two people means neither."""
        known = self._channels.get(channel) or {}
        for name, user in names:
            known[name] = user if known.pop(name, user) == user else ""
            if len(known) > _MAX_NAMES:
                del known[next(iter(known))]
        self._channels.put(channel, known)

    def list_names(self, channel: str) -> Mapping[str, str]:
        """Return the ids by name."""
        known = self._channels.get(channel) or {}
        return {name: user for name, user in known.items() if name and user}
