"""Receives Slack's events, button presses and slash commands one by one: looks up names and hands them to the engine."""

import asyncio
import logging
from collections.abc import Iterable, Sequence

import msgspec

from keryx.core.cache import LruCache
from keryx.core.errors import Invalid, KeryxError
from keryx.core.messages import Text
from keryx.core.ports.adapter import AdapterContext, InboundDeletion, InboundEvent, InboundMessage
from keryx.surfaces.gateway import EventDecoder
from keryx.surfaces.gateway.slack import event_parser
from keryx.surfaces.gateway.slack.directory import Directory, ThreadIndex
from keryx.surfaces.gateway.slack.event_parser import SlackContext
from keryx.surfaces.gateway.slack.payloads import (
    AssistantThread,
    ButtonPress,
    CommandInvocation,
    EventCallback,
    SlackEvent,
    SlackIdentity,
)
from keryx.surfaces.gateway.slack.web_api import SLACK_ERRORS, SlackApi

log = logging.getLogger(__name__)
# Within the three seconds after which Slack repeats an event.
_HINT_TIMEOUT_SECONDS = 2.0
_MAX_TITLE_LENGTH = 60
_FOLLOWED = "followed"
_UNTITLED = "untitled"
_MAX_KNOWN_THREADS = 10_000


class WorkspaceUnknown(KeryxError):
    """An event belongs to a workspace for which no account listens in this process, now or at all."""


class WorkspaceReceivers:
    """The receivers of this process by workspace. An app that is installed in several workspaces hands the events of all of
    them to each of its connections."""

    def __init__(self) -> None:
        self._receivers: dict[tuple[str, str], SlackReceiver] = {}

    def add(self, base_url: str, team: str, receiver: "SlackReceiver") -> None:
        self._receivers[base_url, team] = receiver

    def remove(self, base_url: str, team: str, receiver: "SlackReceiver") -> None:
        if self._receivers.get((base_url, team)) is receiver:
            del self._receivers[base_url, team]

    def find(self, base_url: str, teams: Iterable[str]) -> "SlackReceiver | None":
        return next((r for team in teams if (r := self._receivers.get((base_url, team)))), None)


RECEIVERS = WorkspaceReceivers()


class SlackReceiver:
    """`prompts` are suggested when a person opens the assistant."""

    def __init__(
        self,
        api: SlackApi,
        context: AdapterContext,
        me: SlackIdentity,
        *,
        account: str,
        base_url: str,
        threads: ThreadIndex,
        directory: Directory,
        prompts: tuple[str, ...],
        reply_in_threads: bool,
    ) -> None:
        self._api = api
        self._context = context
        self._directory = directory
        self._threads = threads
        self._base_url = base_url
        self._prompts = prompts
        self._parser_context = SlackContext(
            account=account,
            me=me,
            commands=frozenset(item.name for item in context.menu),
            reply_in_threads=reply_in_threads,
        )
        # Events are stored one at a time, in the order of arrival, over all connections and posts.
        self._lock = asyncio.Lock()
        # The threads that Keryx takes part in, by channel and ts; the state of the account has all of them.
        self._followed = LruCache[tuple[str, str], bool](_MAX_KNOWN_THREADS)
        self._decoder = EventDecoder("Slack", log)

    async def receive_event(self, payload: bytes) -> None:
        """Receive an event. It is stored when this returns. Raise `Unavailable` if it cannot be stored now, and
        `WorkspaceUnknown` if it is not for this account or another one here."""
        callback = self._decoder.decode(payload, EventCallback)
        if callback is None or callback.type != "event_callback":
            return
        event = self._decoder.decode(bytes(callback.event), SlackEvent)
        teams = [a.team_id for a in callback.authorizations if a.team_id] or [callback.team_id]
        if event is not None:
            await self._find_owner(teams)._dispatch(event)

    async def _dispatch(self, event: SlackEvent) -> None:
        async with self._lock:
            if event.type in event_parser.MESSAGE_TYPES:
                await self._receive_message(event)
            elif event.type in event_parser.REACTION_TYPES:
                await self._receive_reaction(event)
            elif event.type == "assistant_thread_started" and event.assistant_thread is not None:
                await self._greet(event.assistant_thread)

    async def receive_press(self, payload: bytes) -> None:
        """Receive an interaction, and show the result to the person who pressed the button."""
        press = self._decoder.decode(payload, ButtonPress)
        if press is None or press.type != "block_actions":
            return
        owner = self._find_owner([press.team.id if press.team else press.user.team_id])
        await owner._receive_press(press)

    async def _receive_press(self, press: ButtonPress) -> None:
        async with self._lock:
            context = await self._build_context({press.user.id})
            inbound = event_parser.parse_press(press, context)
            reply = await self._store(inbound) if inbound is not None else None
        if inbound is not None and reply:
            await self._hint(
                "chat.postEphemeral",
                channel=inbound.source.chat,
                user=inbound.source.user,
                thread_ts=inbound.source.thread,
                text=reply,
            )

    async def receive_command(self, payload: bytes) -> None:
        """Receive a slash command. Its reply is a message."""
        command = self._decoder.decode(payload, CommandInvocation)
        if command is not None:
            await self._find_owner([command.team_id])._receive_command(command)

    async def _receive_command(self, command: CommandInvocation) -> None:
        async with self._lock:
            context = await self._build_context({command.user_id, command.channel_id})
            await self._store(event_parser.parse_command(command, context))

    def _find_owner(self, teams: Sequence[str]) -> "SlackReceiver":
        """Return the receiver of the account that an event belongs to."""
        named = [team for team in teams if team]
        if not named or self._parser_context.me.team_id in named:
            return self
        owner = RECEIVERS.find(self._base_url, named)
        if owner is None:
            raise WorkspaceUnknown(f"no account for the workspace {named[0]} listens here")
        return owner

    async def _receive_message(self, event: SlackEvent) -> None:
        if event_parser.is_own(event.message or event.previous_message or event, self._parser_context.me):
            return
        # The edit of a question belongs to the thread that the question began.
        edited = event.message.ts if event.message and not event_parser.find_thread(event) else ""
        began = await self._is_followed(event.channel, edited)
        context = await self._build_context(event_parser.find_named_ids(event), began_thread=began)
        match event_parser.parse_message(event, context):
            case InboundDeletion() as deletion:
                await self._store(deletion)
            case InboundMessage() as inbound:
                await self._receive_parsed(inbound)
            case None:
                pass

    async def _receive_parsed(self, inbound: InboundMessage) -> None:
        source = inbound.source
        place = source.chat or "", source.thread or ""
        untitled = False
        if source.thread and inbound.addressed and inbound.edits is None and not self._followed.get(place):
            untitled = (await self._context.load_state(_name_scope(*place))) == _UNTITLED
            # Stored with the message: its edits belong to the thread.
            inbound = msgspec.structs.replace(inbound, state={_name_scope(*place): _FOLLOWED})
        if source.message and source.thread:
            self._threads.add(source.chat or "", source.message, source.thread)
        await self._store(inbound)
        if source.thread and inbound.addressed:
            self._followed.put(place, True)
        if untitled:
            text = "".join(part.text for part in inbound.parts if isinstance(part, Text))
            title = " ".join(text.split())[:_MAX_TITLE_LENGTH]
            if title and not title.startswith("/"):
                await self._hint(
                    "assistant.threads.setTitle", channel_id=place[0], thread_ts=place[1], title=title
                )

    async def _receive_reaction(self, event: SlackEvent) -> None:
        context = await self._build_context(event_parser.find_named_ids(event))
        item = event.item
        thread = await self._threads.find(item.channel, item.ts) if item else ""
        reaction = event_parser.parse_reaction(event, context, thread)
        if reaction is not None:
            await self._store(reaction)

    async def _greet(self, thread: AssistantThread) -> None:
        """A person has opened the assistant: suggest prompts, and name the conversation after its first message."""
        scope = _name_scope(thread.channel_id, thread.thread_ts)
        if await self._context.load_state(scope) is None:
            await self._context.save_state(scope, _UNTITLED)
        if self._prompts:
            await self._hint(
                "assistant.threads.setSuggestedPrompts",
                channel_id=thread.channel_id,
                thread_ts=thread.thread_ts,
                prompts=[{"title": prompt, "message": prompt} for prompt in self._prompts],
            )

    async def _is_followed(self, channel: str, thread: str) -> bool:
        if not thread:
            return False
        place = channel, thread
        followed = self._followed.get(place)
        if followed is None:
            followed = await self._context.load_state(_name_scope(channel, thread)) == _FOLLOWED
            self._followed.put(place, followed)
        return followed

    async def _store(self, inbound: InboundEvent) -> str | None:
        """Hand an event to the engine and return its reply. One that the engine refuses as invalid is skipped."""
        try:
            return (await self._context.receive(inbound)).reply
        except Invalid as exc:
            self._decoder.skip(str(exc))
            return None

    async def _build_context(self, ids: set[str], *, began_thread: bool = False) -> SlackContext:
        me = self._parser_context.me
        found = await self._directory.find(ids - {me.user_id})
        return msgspec.structs.replace(
            self._parser_context,
            names={me.user_id: me.user, **{id_: entry.name for id_, entry in found.items()}},
            languages={id_: entry.language for id_, entry in found.items() if entry.language},
            began_thread=began_thread,
        )

    async def _hint(self, method: str, **params: object) -> None:
        """Call a method whose failure affects nothing."""
        try:
            await self._api.call(method, seconds=_HINT_TIMEOUT_SECONDS, **params)
        except SLACK_ERRORS as exc:
            log.info("%s", exc)


def _name_scope(channel: str, thread: str) -> str:
    return f"thread {channel} {thread}"
