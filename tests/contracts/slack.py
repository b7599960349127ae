"""The contract of adapters over Slack: by Socket Mode with streams in a thread, and by the Events API with edits in a direct chat."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from tests.contracts.adapters import AdapterCase
from tests.fakes.slack import APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, FakeSlack

from keryx.core.media import Attachment
from keryx.core.ports.adapter import StepState
from keryx.surfaces.gateway.slack import SlackAdapter, SlackMode, SlackSettings, SlackStreaming
from keryx.surfaces.gateway.slack.web_api import FixedToken
from keryx.testing.contracts import AdapterHarness, Trait
from keryx.testing.wire import UNREACHABLE_URL

_TRAITS = frozenset(
    {
        Trait.RECEIVES,
        Trait.REDELIVERS,
        Trait.NETWORK,
        Trait.THROTTLES,
        Trait.ORDERS,
        Trait.EDITS,
        Trait.DELETES,
        Trait.REACTS,
        Trait.ATTACHES,
        Trait.MALFORMED,
        Trait.OPENS_THREADS,
    }
)
_CHATS = ("D0000001", "D0000002")
_STEP_STATES = {
    "in_progress": StepState.RUNNING,
    "complete": StepState.DONE,
    "error": StepState.FAILED,
    "⏳": StepState.RUNNING,
    "✅": StepState.DONE,
    "⚠️": StepState.FAILED,
}
_STEP_LINE = re.compile(r"(⏳|✅|⚠️) `(.*)`")
_EMOJI_NAMES = {"👍": "+1"}


class _SlackWriter:
    """What a person does on Slack. Every message has a field that no version knows."""

    def __init__(self, slack: FakeSlack) -> None:
        self._slack = slack
        self._last = ""

    def write(self, chat: str, text: str) -> None:
        self._last = self._slack.say(text, channel=chat, hologram={"depth": 3})

    def edit(self, chat: str, text: str) -> None:
        self._slack.rewrite(text, ts=self._last, channel=chat)

    def delete(self, chat: str) -> None:
        self._slack.unsay(ts=self._last, channel=chat)

    def react(self, chat: str, emoji: str) -> None:
        self._slack.react(_EMOJI_NAMES[emoji], ts=self._last, channel=chat)

    def attach(self, chat: str, text: str, attachment: Attachment) -> None:
        self._slack.attach(text, attachment.name, attachment.body, mime=attachment.mime, channel=chat)

    def send_malformed(self) -> None:
        self._slack.push_event({"type": "message", "channel": 5, "ts": ["1"]})
        self._slack.push_event({"type": "message"})
        self._slack.push_event({"type": "reaction_added", "item": "none"})
        self._slack.push_event({"type": "hologram", "depth": 3})
        self._slack.push("interactive", {"type": "block_actions", "user": 5})
        self._slack.push("slash_commands", {"command": "/keryx"})


@asynccontextmanager
async def _open_slack(
    folder: Path, *, mode: SlackMode, streaming: SlackStreaming, thread: str = ""
) -> AsyncGenerator[AdapterHarness]:
    async with AsyncExitStack() as stack:
        slack = stack.enter_context(FakeSlack())

        def build(url: str) -> SlackAdapter:
            adapter = SlackAdapter(
                SlackSettings(base_url=url, mode=mode, streaming=streaming),
                token=FixedToken(BOT_TOKEN),
                app_token=APP_TOKEN,
                signing_secret=SIGNING_SECRET,
                sleep=_sleep_briefly,
            )
            stack.push_async_callback(adapter.close)
            return adapter

        def list_steps(chat: str) -> list[tuple[str, StepState]]:
            posts = [post for post in slack.posts if post.channel == chat]
            tasks = [(title, state) for post in posts for title, state in post.tasks.items()]
            # Where there are no streams, they are lines of the text.
            lines = [(title, mark) for post in posts for mark, title in _STEP_LINE.findall(post.text)]
            return [(title, _STEP_STATES[state]) for title, state in tasks + lines]

        adapter, person = build(slack.api_url), _SlackWriter(slack)
        hook = adapter.hook
        yield AdapterHarness(
            adapter=adapter,
            traits=_TRAITS,
            chats=_CHATS,
            thread=thread,
            texts=slack.texts,
            files=lambda chat: [body for p in slack.posts if p.channel == chat for body in p.files],
            count_reactions=lambda: len(slack.reactions),
            steps=list_steps,
            count_open=slack.count_open if streaming is SlackStreaming.APPEND else None,
            write=person.write,
            edit=person.edit,
            delete=person.delete,
            react=person.react,
            attach=person.attach,
            write_in_thread=lambda chat, text, message: slack.say(text, channel=chat, thread_ts=message),
            buttons=lambda chat: [b for p in slack.posts if p.channel == chat for b in p.buttons],
            press=lambda chat, label: slack.press(label, channel=chat),
            send_malformed=person.send_malformed,
            set_faults=slack.set_faults,
            unreachable=build(UNREACHABLE_URL),
            post=partial(slack.post_events, hook.handle) if hook else None,
            secret=BOT_TOKEN,
        )


async def _sleep_briefly(seconds: float) -> None:
    await asyncio.sleep(0.001)


STREAMING_CASE = AdapterCase(
    name="slack",
    open=partial(
        _open_slack,
        mode=SlackMode.SOCKET,
        streaming=SlackStreaming.APPEND,
        thread="1690000000.000001",
    ),
)
CASES = (
    STREAMING_CASE,
    AdapterCase(
        name="slack events",
        open=partial(_open_slack, mode=SlackMode.EVENTS, streaming=SlackStreaming.EDIT),
    ),
)
