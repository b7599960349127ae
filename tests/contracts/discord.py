"""The harness of the Discord adapter: direct chats with the bot on the fake, after a session that began earlier."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from tests.fakes.discord import TOKEN, FakeDiscord

from keryx.core.media import Attachment
from keryx.surfaces.gateway.discord import DiscordAdapter, DiscordSettings
from keryx.testing.contracts import AdapterHarness, Trait
from keryx.testing.wire import UNREACHABLE_URL

_CHATS = ("7001", "7002")


class DiscordPerson:
    """What a person does on Discord. Every message has a field that no version knows."""

    def __init__(self, discord: FakeDiscord) -> None:
        self._discord = discord
        self._last = ""

    def write(self, chat: str, text: str) -> None:
        self._last = self._discord.say(text, channel=chat, hologram={"depth": 3})

    def edit(self, chat: str, text: str) -> None:
        self._discord.edit(self._last, text)

    def delete(self, chat: str) -> None:
        self._discord.delete(self._last)

    def react(self, chat: str, emoji: str) -> None:
        self._discord.react(self._last, emoji)

    def attach(self, chat: str, text: str, attachment: Attachment) -> None:
        self._discord.attach(text, attachment.name, attachment.body, attachment.mime, channel=chat)

    def send_malformed(self) -> None:
        self._discord.dispatch("MESSAGE_CREATE", {"id": 3, "channel_id": None})
        self._discord.dispatch("MESSAGE_CREATE", {})
        self._discord.dispatch("MESSAGE_CREATE", "words")
        self._discord.dispatch(
            "MESSAGE_CREATE", {"id": "x", "channel_id": "7001", "author": {"id": "7"}, "content": "x"}
        )
        self._discord.dispatch("MESSAGE_REACTION_ADD", {"emoji": 3})
        self._discord.dispatch("MESSAGE_DELETE", {"ids": 3})
        self._discord.dispatch("INTERACTION_CREATE", {"type": "x"})
        self._discord.dispatch("HOLOGRAM_CREATE", {"depth": 3})


@asynccontextmanager
async def open_discord(folder: Path) -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        discord = stack.enter_context(FakeDiscord())
        for chat in _CHATS:
            discord.add_channel(chat, guild=None)

        def build(url: str) -> DiscordAdapter:
            adapter = DiscordAdapter(TOKEN, DiscordSettings(base_url=url), sleep=_sleep_briefly)
            stack.push_async_callback(adapter.close)
            return adapter

        person = DiscordPerson(discord)
        yield AdapterHarness(
            adapter=build(discord.api_url),
            traits=frozenset(
                {
                    Trait.RECEIVES,
                    Trait.REDELIVERS,
                    Trait.ORDERS,
                    Trait.RESUMES,
                    Trait.KEEPS_STATE,
                    Trait.NETWORK,
                    Trait.THROTTLES,
                    Trait.EDITS,
                    Trait.DELETES,
                    Trait.REACTS,
                    Trait.ATTACHES,
                    Trait.MALFORMED,
                }
            ),
            chats=_CHATS,
            texts=discord.texts,
            files=lambda chat: [
                discord.files[f"{f['id']}/{f['filename']}"] for p in discord.bot_posts(chat) for f in p.files
            ],
            count_typing=lambda: len(discord.typing),
            write=person.write,
            edit=person.edit,
            delete=person.delete,
            react=person.react,
            attach=person.attach,
            buttons=lambda chat: [label for p in discord.bot_posts(chat) for label in p.buttons],
            press=lambda chat, label: discord.press(label, channel=chat),
            send_malformed=person.send_malformed,
            set_faults=discord.set_faults,
            unreachable=build(UNREACHABLE_URL),
            restart=lambda: build(discord.api_url),
            secret=TOKEN.rpartition(".")[2],
            cursor=json.dumps(discord.open_session()),
        )


async def _sleep_briefly(seconds: float) -> None:
    """Shorten pauses. Heartbeats keep their interval, and would otherwise fill the connection."""
    await asyncio.sleep(min(seconds, 0.01) if seconds < 30 else seconds)
