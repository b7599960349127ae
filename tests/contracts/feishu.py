"""The contract of adapters over Feishu: by the long connection with cards, and by encrypted posts with rich texts."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from tests.contracts.adapters import AdapterCase
from tests.fakes.feishu import (
    APP_ID,
    APP_SECRET,
    DIRECT,
    ENCRYPT_KEY,
    PERSON,
    SECOND,
    VERIFICATION_TOKEN,
    FakeFeishu,
)

from keryx.core.media import Attachment
from keryx.surfaces.gateway.feishu import FeishuAdapter, FeishuMode, FeishuSettings, build_decryptor
from keryx.testing.contracts import AdapterHarness, Trait
from keryx.testing.wire import UNREACHABLE_URL

_TRAITS = frozenset(
    {
        Trait.RECEIVES,
        Trait.REDELIVERS,
        Trait.ORDERS,
        Trait.NETWORK,
        Trait.THROTTLES,
        Trait.DELETES,
        Trait.REACTS,
        Trait.ATTACHES,
        Trait.OPENS_THREADS,
        Trait.ALIASES,
        Trait.MALFORMED,
    }
)
_EMOJI_NAMES = {"👍": "THUMBSUP"}


class _FeishuWriter:
    """What a person does on Feishu. Every message has a field that no version knows."""

    def __init__(self, feishu: FakeFeishu) -> None:
        self._feishu = feishu
        self._last = ""

    def write(self, chat: str, text: str) -> None:
        self._last = self._feishu.say(text, chat=chat, hologram={"depth": 3})

    def write_as_alias(self, chat: str, text: str, other: str) -> None:
        self._feishu.say(text, chat=chat, ids={"open_id": PERSON, "union_id": other, "user_id": None})

    def write_in_thread(self, chat: str, text: str, message: str) -> None:
        self._feishu.say_in_thread(text, message, chat=chat)

    def delete(self, chat: str) -> None:
        self._feishu.recall(self._last, chat=chat)

    def react(self, chat: str, emoji: str) -> None:
        self._feishu.react(_EMOJI_NAMES[emoji], self._last)

    def attach(self, chat: str, text: str, attachment: Attachment) -> None:
        self._feishu.attach(text, attachment.name, attachment.body, mime=attachment.mime, chat=chat)

    def send_malformed(self) -> None:
        feishu = self._feishu
        feishu.push("im.message.receive_v1", {"sender": 5, "message": ["1"]})
        feishu.push("im.message.receive_v1", {"message": {"message_id": "om_1"}})
        feishu.push("im.message.reaction.created_v1", {"message_id": "om_none", "reaction_type": {}})
        feishu.push("card.action.trigger", {"operator": {}, "action": {"value": "x"}})
        feishu.push("hologram.v1", {"depth": 3})
        feishu.push_payload(b"{no json")
        feishu.push_payload(b'{"schema": "2.0"}')


@asynccontextmanager
async def _open_feishu(folder: Path, *, mode: FeishuMode, cards: bool) -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        feishu = stack.enter_context(FakeFeishu())

        def build(url: str) -> FeishuAdapter:
            adapter = FeishuAdapter(
                APP_SECRET,
                FeishuSettings(app_id=APP_ID, base_url=url, mode=mode, cards=cards),
                decrypt=build_decryptor(ENCRYPT_KEY),
                encrypt_key=ENCRYPT_KEY,
                verification_token=VERIFICATION_TOKEN,
                sleep=_sleep_briefly,
            )
            stack.push_async_callback(adapter.close)
            return adapter

        adapter, person = build(feishu.url), _FeishuWriter(feishu)
        hook = adapter.hook
        yield AdapterHarness(
            adapter=adapter,
            traits=_TRAITS,
            chats=(DIRECT, SECOND),
            texts=feishu.texts,
            files=lambda chat: [p.file for p in feishu.posts if p.chat == chat and p.file is not None],
            count_reactions=lambda: len(feishu.reactions),
            write=person.write,
            write_as_alias=person.write_as_alias,
            write_in_thread=person.write_in_thread,
            delete=person.delete,
            react=person.react,
            attach=person.attach,
            buttons=(lambda chat: [b for p in feishu.posts if p.chat == chat for b in p.buttons])
            if cards
            else None,
            press=(lambda chat, label: feishu.press(label, chat=chat)) if cards else None,
            send_malformed=person.send_malformed,
            set_faults=feishu.set_faults,
            unreachable=build(UNREACHABLE_URL),
            post=partial(feishu.post_events, hook.handle) if hook else None,
            # Feishu posts to the hook of the first adapter.
            restart=None if hook else lambda: build(feishu.url),
            secret=APP_SECRET,
        )


async def _sleep_briefly(seconds: float) -> None:
    # A heartbeat of two minutes does not come while a test runs.
    await asyncio.sleep(0.001 if seconds < 100 else seconds)


CASES = (
    AdapterCase(name="feishu", open=partial(_open_feishu, mode=FeishuMode.CONNECTION, cards=True)),
    AdapterCase(name="feishu posts", open=partial(_open_feishu, mode=FeishuMode.WEBHOOK, cards=False)),
)
