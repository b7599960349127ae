"""Sends parts as messages, streams and files of Slack, finds what has arrived by the key in its metadata, and translates refusals to send errors."""

import logging
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from keryx.core.cache import LruCache
from keryx.core.deliveries import LONGEST_REPEAT_MARK, Target
from keryx.core.errors import (
    CredentialsRefused,
    MessageGone,
    NotSent,
    Refused,
    SendError,
    TargetGone,
    Throttled,
    Uncertain,
)
from keryx.core.media import Attachment
from keryx.core.ports.adapter import LengthUnit, OutgoingPart, RenderedPart, StepState, ToolStep
from keryx.core.questions import Button
from keryx.core.texts import NO_CHANGES, Phrase
from keryx.markdown import parse as parse_markdown
from keryx.markdown import plain, slack_markdown
from keryx.markdown.split import LengthLimit
from keryx.surfaces.gateway.slack.directory import ThreadIndex
from keryx.surfaces.gateway.slack.event_parser import is_own
from keryx.surfaces.gateway.slack.payloads import SlackFile, SlackIdentity, SlackMessage
from keryx.surfaces.gateway.slack.web_api import (
    AUTH_ERRORS,
    METHOD_BUDGETS,
    MethodBudget,
    SlackApi,
    SlackApiError,
    SlackNoResponse,
    SlackUnreachable,
    describe_scope,
)

log = logging.getLogger(__name__)


# Slack advises 4,000 characters for one message. Leaves room for the mark of a repetition.
LIMIT = LengthLimit(4000 - LONGEST_REPEAT_MARK, LengthUnit.UTF16)
MAX_LABEL_LENGTH = 75
# The metadata of each message of Keryx, which people do not see.
METADATA_TYPE = "keryx_part"
_MAX_FALLBACK_LENGTH = 3000
_MAX_VALUE_LENGTH = 2000
_MAX_BUTTONS = 25
_PAGE_SIZE = 200
_MAX_PAGES = 50
_MAX_REMEMBERED = 10_000
_BLOCK_START = re.compile(r"\s*(#|>|```|~~~|\||[-*+] |\d+[.)] )")
_GONE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed"})
# The stream has ended: its time is over, a person has stopped it, or the message never was one.
_STREAM_OVER = frozenset({"message_not_in_streaming_state", "stopped_by_user", "streaming_state_conflict"})
# Slack offers no streams in the channel at all.
_NO_STREAMS = frozenset(
    {
        "channel_type_not_supported",
        "method_not_supported_for_channel_type",
        "feature_not_enabled",
        "unknown_method",
    }
)
_GONE_TARGETS = {
    "channel_not_found": "gone.no_channel",
    "not_in_channel": "gone.not_invited",
    "is_archived": "gone.archived",
    "user_not_found": "gone.no_person",
    "user_disabled": "gone.deactivated",
    "cannot_dm_bot": "gone.is_bot",
    "messages_tab_disabled": "gone.no_messages_tab",
    "thread_not_found": "gone.no_thread",
    "thread_locked": "gone.thread_locked",
    "restricted_action": "gone.workspace_rule",
    "restricted_action_read_only_channel": "gone.read_only",
    "restricted_action_thread_only_channel": "gone.threads_only",
    "restricted_action_non_threadable_channel": "gone.threadless",
    "no_permission": "gone.forbidden",
    "access_denied": "gone.forbidden",
}
_TOO_LONG = frozenset({"msg_too_long", "msg_blocks_too_long", "text_too_long"})
_BAD_BLOCKS = frozenset({"invalid_blocks", "invalid_blocks_format", "block_mismatch"})
_TASK_STATES = {
    StepState.RUNNING: "in_progress",
    StepState.DONE: "complete",
    StepState.FAILED: "error",
}
_STEP_MARKS = {StepState.RUNNING: "⏳", StepState.DONE: "✅", StepState.FAILED: "⚠️"}
# What the history shows of a stream without text.
_TASK_BLOCKS = frozenset({"task_card", "plan"})


class OpenStream(msgspec.Struct, frozen=True):
    """What an open stream shows."""

    # `None` if that is not known.
    text: str | None = None
    steps: tuple[ToolStep, ...] = ()

    def build_chunks(self, text: str, steps: Sequence[ToolStep]) -> list[dict[str, object]]:
        """Return what to append so that the stream shows these steps and this text, which begins with its own. Slack
        replaces a task of the same id. A stream takes either chunks or plain text, so everything is a chunk."""
        tasks: list[dict[str, object]] = [
            {"type": "task_update", "id": step.id, "title": step.title, "status": _TASK_STATES[step.state]}
            for step in steps
            if step not in self.steps
        ]
        rest = text[len(self.text or "") :]
        return [*tasks, *([{"type": "markdown_text", "text": rest}] if rest else [])]


def render_parts(markdown: str) -> Sequence[RenderedPart]:
    return [RenderedPart(part) for part in slack_markdown.render_parts(markdown, LIMIT)]


def translate_error(error: SlackApiError) -> SendError:
    """Return the send error of a refusal."""
    if error.retry_after is not None:
        seconds = error.retry_after.total_seconds()
        return Throttled(
            Phrase("delivery.wait_for", platform="Slack", seconds=f"{seconds:g}", what=error.method),
            after=error.retry_after,
        )
    if error.unauthorized:
        return CredentialsRefused(AUTH_ERRORS[error.code])
    if error.code == "missing_scope":
        return NotSent(
            Phrase("delivery.scope", platform="Slack", what=f"{error.method}{describe_scope(error.needed)}")
        )
    if error.uncertain:
        return Uncertain(Phrase("delivery.broke_down", platform="Slack", status=error.code))
    if error.code in _GONE:
        return MessageGone(Phrase("delivery.message_gone"))
    if error.code in _GONE_TARGETS:
        reason = Phrase("reason.detailed", reason=Phrase(_GONE_TARGETS[error.code]), detail=error.code)
        return TargetGone(Phrase("target.refused", platform="Slack", reason=reason))
    if error.code in _TOO_LONG:
        return Refused(Phrase("delivery.too_long", platform="Slack", status=error.code))
    return Refused(Phrase("delivery.refused_because", platform="Slack", reason=error.code))


class SlackSender:
    """With `streams`, an answer in a thread is shown by a stream while it is written. Elsewhere, and when Slack allows no
    more streams, a message is edited."""

    def __init__(
        self, api: SlackApi, threads: ThreadIndex, *, streams: bool, reaction: str, budget: MethodBudget
    ) -> None:
        self._api = api
        self._threads = threads
        self._may_stream = streams
        self._reaction = reaction
        self._budget = budget
        # What the sender itself says to people.
        self.texts = NO_CHANGES
        self._me: SlackIdentity | None = None
        # The open streams of this process, by channel and ts.
        self._streams = LruCache[tuple[str, str], OpenStream](_MAX_REMEMBERED)
        # Messages that are not streams.
        self._posts = LruCache[tuple[str, str], None](_MAX_REMEMBERED)
        self._unstreamable: set[str] = set()

    async def send(self, part: OutgoingPart) -> str:
        """Send one part and return the ts of its message. Raise the errors that an adapter may."""
        if not part.target.chat:
            raise Refused(Phrase("delivery.no_chat", example="slack:<channel id>"))
        try:
            if part.attachment is not None:
                return await self._send_file(part, part.attachment)
            if part.edits and part.final:
                await self._finish(part)
            elif part.edits:
                await self._extend(part)
            elif not part.final and self._can_stream(part.target):
                return await self._open_stream(part)
            else:
                return await self._post(part)
        except SlackApiError as exc:
            self._note_limit(exc)
            raise translate_error(exc) from None
        except SlackUnreachable as exc:
            raise NotSent(str(exc)) from None
        except SlackNoResponse as exc:
            raise Uncertain(str(exc)) from None
        return part.edits

    async def find_sent(self, part: OutgoingPart) -> str | None:
        """Return the ts of the message that was sent under the key of the part. Raise the errors that an adapter may.

        A stream gets its metadata when it is closed. One that was opened by a send of unknown outcome is the only message
        of Keryx without metadata in its thread, and shows the beginning of the part."""
        try:
            me = await self._identify()
            async for message in self._read_history(part.target):
                metadata = message.metadata
                if metadata is not None and metadata.event_type == METADATA_TYPE:
                    if metadata.event_payload.get("key") == part.key:
                        return message.ts
                elif part.target.thread and _is_open_stream(message, me, part.text):
                    self._note_stream(part.target.chat, message.ts, OpenStream())
                    return message.ts
        except SlackApiError as exc:
            raise translate_error(exc) from None
        except (SlackUnreachable, SlackNoResponse) as exc:
            raise NotSent(str(exc)) from None
        return None

    async def remove(self, target: Target, message: str) -> None:
        try:
            if (target.chat, message) in self._streams:
                await self._stop(target.chat, message)
            await self._api.call("chat.delete", channel=target.chat, ts=message)
        except SlackApiError as exc:
            if exc.code == "cant_delete_message":
                raise Refused(Phrase("delivery.not_deleted", platform="Slack")) from None
            raise translate_error(exc) from None
        except (SlackUnreachable, SlackNoResponse) as exc:
            raise NotSent(str(exc)) from None

    async def react(self, target: Target) -> None:
        """Show in a thread that an answer is being written; elsewhere, or if Slack refuses that, react to the message."""
        try:
            if target.thread and await self._show_status(target):
                return
            if target.reply_to and self._reaction:
                await self._api.call(
                    "reactions.add", channel=target.chat, timestamp=target.reply_to, name=self._reaction
                )
        except SlackApiError as exc:
            if exc.code != "already_reacted":
                raise translate_error(exc) from None
        except (SlackUnreachable, SlackNoResponse) as exc:
            raise NotSent(str(exc)) from None

    async def _show_status(self, target: Target) -> bool:
        try:
            status = self.texts.speak().say("platform.thinking")
            await self._api.call(
                "assistant.threads.setStatus", channel_id=target.chat, thread_ts=target.thread, status=status
            )
        except SlackApiError as exc:
            if exc.throttled or exc.unauthorized:
                raise
            return False
        return True

    def _can_stream(self, target: Target) -> bool:
        return (
            self._may_stream
            and bool(target.thread)
            and target.chat not in self._unstreamable
            and (target.chat.startswith("D") or target.reply_context is not None)
            and self._budget.has_room("chat.startStream", "chat.stopStream")
        )

    async def _open_stream(self, part: OutgoingPart) -> str:
        target = part.target
        recipient = target.reply_context.token.split(" ") if target.reply_context else [None, None]
        self._budget.count("chat.startStream")
        try:
            answer = await self._api.call(
                "chat.startStream",
                channel=target.chat,
                thread_ts=target.thread,
                chunks=OpenStream().build_chunks(part.text, part.steps),
                recipient_user_id=recipient[0],
                recipient_team_id=recipient[-1],
            )
        except SlackApiError as exc:
            if exc.uncertain or exc.unauthorized:
                raise
            self._note_limit(exc)
            if exc.code in _NO_STREAMS:
                self._unstreamable.add(target.chat)
            log.info("an answer is shown by edits: %s", exc)
            return await self._post(part)
        ts = _read_ts(answer)
        self._note_stream(target.chat, ts, OpenStream(part.text, part.steps))
        self._threads.add(target.chat, ts, target.thread)
        return ts

    async def _extend(self, part: OutgoingPart) -> None:
        """Show more of an answer: append to its stream, or edit the message."""
        place = part.target.chat, part.edits
        shown = self._streams.get(place)
        if shown is None:
            await self._update(part)
            return
        if shown.text is None or not part.text.startswith(shown.text):
            await self._stop(*place)
            await self._update(part)
        elif chunks := shown.build_chunks(part.text, part.steps):
            # If the outcome is unknown, so is the text that the stream shows. A task may be repeated.
            doubtful = shown if part.text == shown.text else OpenStream(None, shown.steps)
            self._streams.put(place, doubtful)
            try:
                self._budget.count("chat.appendStream")
                await self._api.call("chat.appendStream", channel=place[0], ts=place[1], chunks=chunks)
            except SlackApiError as exc:
                if exc.code in _STREAM_OVER:
                    self._note_post(*place)
                    await self._update(part)
                    return
                if not exc.uncertain:
                    self._streams.put(place, shown)
                raise
            except SlackUnreachable:
                self._streams.put(place, shown)
                raise
            self._streams.put(place, OpenStream(part.text, part.steps))

    async def _finish(self, part: OutgoingPart) -> None:
        """Show the final text, and close the stream if the message is one."""
        place = part.target.chat, part.edits
        shown = self._streams.get(place) or OpenStream()
        if shown.text is not None and part.text.startswith(shown.text):
            try:
                await self._stop(*place, part=part)
            except SlackApiError as exc:
                if exc.code not in _STREAM_OVER:
                    raise
                self._note_post(*place)
            else:
                return
        elif place in self._streams or (part.target.thread and place not in self._posts):
            # Perhaps a stream of a process that has ended.
            await self._stop(*place)
        await self._update(part)

    async def _stop(self, channel: str, ts: str, *, part: OutgoingPart | None = None) -> None:
        """Close a stream, with the rest of a part and its buttons. Without a part, one that is closed already, or a message
        that never was one, is left as it is."""
        self._budget.count("chat.stopStream")
        shown = self._streams.get((channel, ts))
        chunks: list[dict[str, object]] = []
        if shown is not None:
            self._streams.put((channel, ts), OpenStream(None, shown.steps))
            # What still runs when the answer is complete has ended without a result.
            ended = [
                ToolStep(step.id, step.title, StepState.DONE)
                for step in shown.steps
                if step.state is StepState.RUNNING
            ]
            chunks = shown.build_chunks(part.text if part else shown.text or "", ended)
        if part and (actions := _build_actions(part.buttons)):
            chunks.append({"type": "blocks", "blocks": actions})
        try:
            await self._api.call(
                "chat.stopStream",
                channel=channel,
                ts=ts,
                chunks=chunks or None,
                metadata=_build_metadata(part) if part else None,
            )
        except SlackApiError as exc:
            if not exc.uncertain and shown is not None:
                self._streams.put((channel, ts), shown)
            if part is not None or exc.code not in _STREAM_OVER:
                raise
        except SlackUnreachable:
            if shown is not None:
                self._streams.put((channel, ts), shown)
            raise
        self._note_post(channel, ts)

    async def _update(self, part: OutgoingPart) -> None:
        self._budget.count("chat.update")
        await self._call_with_text("chat.update", part, channel=part.target.chat, ts=part.edits)
        self._note_post(part.target.chat, part.edits)

    async def _post(self, part: OutgoingPart) -> str:
        target = part.target
        answer = await self._call_with_text(
            "chat.postMessage",
            part,
            channel=target.chat,
            thread_ts=target.thread or None,
            unfurl_links=False,
            unfurl_media=False,
        )
        ts = _read_ts(answer)
        self._note_post(target.chat, ts)
        if target.thread:
            self._threads.add(target.chat, ts, target.thread)
        return ts

    async def _call_with_text(self, method: str, part: OutgoingPart, **params: Any) -> dict[str, Any]:
        """Call a method with the text of a part. If Slack refuses its buttons, or then its markup, leave them out: the text
        itself says how to answer."""
        # Before a block, the mark is a paragraph of its own.
        apart = part.mark and _BLOCK_START.match(part.text)
        text = f"{part.mark.rstrip()}\n\n{part.text}" if apart else part.mark + part.text
        if part.steps:
            text = f"{_list_steps(part.steps)}\n\n{text}".rstrip()
        bare = plain.render(parse_markdown(text)) or text
        fallback = slack_markdown.escape_mrkdwn(bare)
        metadata = _build_metadata(part)
        markdown = [{"type": "markdown", "text": text}]
        bodies: list[dict[str, Any]] = [
            {"blocks": markdown, "text": fallback[:_MAX_FALLBACK_LENGTH]},
            {"blocks": list[object](), "text": fallback, "parse": "none"},
        ]
        if actions := _build_actions(part.buttons):
            bodies.insert(0, {"blocks": [*markdown, *actions], "text": fallback[:_MAX_FALLBACK_LENGTH]})
        for number, body in enumerate(bodies, 1):
            try:
                return await self._api.call(method, **params, **body, metadata=metadata)
            except SlackApiError as exc:
                if exc.code not in _BAD_BLOCKS or number == len(bodies):
                    raise
        raise AssertionError("the last body is tried")

    async def _send_file(self, part: OutgoingPart, attachment: Attachment) -> str:
        """Upload a file, and post a message that shows it. The upload alone is not visible, so it may be repeated."""
        try:
            link = await self._upload(attachment)
        except SlackNoResponse as exc:
            raise NotSent(Phrase("delivery.file_not_sent", name=attachment.name, reason=exc)) from None
        except SlackApiError as exc:
            if exc.uncertain:
                raise NotSent(Phrase("delivery.file_not_sent", name=attachment.name, reason=exc)) from None
            raise
        name = slack_markdown.escape_mrkdwn(attachment.name).replace("|", " ") or "file"
        answer = await self._api.call(
            "chat.postMessage",
            channel=part.target.chat,
            thread_ts=part.target.thread or None,
            text=f"{slack_markdown.escape_mrkdwn(part.mark)}<{link}|{name}>",
            metadata=_build_metadata(part),
        )
        ts = _read_ts(answer)
        self._note_post(part.target.chat, ts)
        if part.target.thread:
            self._threads.add(part.target.chat, ts, part.target.thread)
        return ts

    async def _upload(self, attachment: Attachment) -> str:
        """Return the address that a message shows the file with."""
        place = await self._api.call(
            "files.getUploadURLExternal", filename=attachment.name or "file", length=str(len(attachment.body))
        )
        await self._api.upload(str(place.get("upload_url")), attachment.body)
        done = await self._api.call(
            "files.completeUploadExternal", files=[{"id": place.get("file_id"), "title": attachment.name}]
        )
        try:
            [file] = msgspec.convert(done.get("files"), list[SlackFile])
        except (msgspec.ValidationError, ValueError):
            raise SlackNoResponse(Phrase("delivery.file_no_address", platform="Slack")) from None
        if not file.permalink:
            raise SlackNoResponse(Phrase("delivery.file_no_address", platform="Slack"))
        return file.permalink

    async def _identify(self) -> SlackIdentity:
        if self._me is None:
            try:
                self._me = msgspec.convert(await self._api.call("auth.test"), SlackIdentity)
            except msgspec.ValidationError:
                raise SlackNoResponse(Phrase("delivery.nobody", platform="Slack")) from None
        return self._me

    async def _read_history(self, target: Target) -> AsyncGenerator[SlackMessage]:
        """Yield the messages after the one that is answered, in the order of Slack."""
        method = "conversations.replies" if target.thread else "conversations.history"
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            answer = await self._api.call(
                method,
                channel=target.chat,
                ts=target.thread or None,
                oldest=target.reply_to or None,
                limit=str(_PAGE_SIZE),
                include_all_metadata="true",
                cursor=cursor,
            )
            try:
                messages = msgspec.convert(answer.get("messages"), list[SlackMessage])
            except msgspec.ValidationError:
                raise SlackNoResponse(Phrase("delivery.history_unreadable", platform="Slack")) from None
            for message in messages:
                yield message
            following: Any = answer.get("response_metadata") or {}
            cursor = str(following.get("next_cursor") or "") or None
            if cursor is None:
                return
        log.warning(
            "more than %d messages were searched for one that may have arrived", _MAX_PAGES * _PAGE_SIZE
        )

    def _note_limit(self, error: SlackApiError) -> None:
        if error.retry_after is not None and error.method in METHOD_BUDGETS:
            self._budget.close(error.method, error.retry_after)

    def _note_stream(self, channel: str, ts: str, stream: OpenStream) -> None:
        self._posts.remove((channel, ts))
        self._streams.put((channel, ts), stream)

    def _note_post(self, channel: str, ts: str) -> None:
        self._streams.remove((channel, ts))
        self._posts.put((channel, ts), None)


def _is_open_stream(message: SlackMessage, me: SlackIdentity, text: str) -> bool:
    """Whether a message is a stream of ours that was never closed and shows the beginning of a text, or only tool calls."""
    shown = _keep_letters(message.text or "")
    only_tasks = bool(message.blocks) and all(block.type in _TASK_BLOCKS for block in message.blocks)
    open_stream = is_own(message, me) and not message.files and (bool(shown) or only_tasks)
    return open_stream and _keep_letters(text).startswith(shown)


def _keep_letters(text: str) -> str:
    """Return what Slack does not change when it converts Markdown."""
    return "".join(char for char in text if char.isalnum())


def _list_steps(steps: Sequence[ToolStep]) -> str:
    """Return the tool calls as lines of text, where there is no stream."""
    titles = (step.title.replace("`", "'") for step in steps)
    return "  \n".join(
        f"{_STEP_MARKS[step.state]} `{title}`" for step, title in zip(steps, titles, strict=True)
    )


def _build_metadata(part: OutgoingPart) -> dict[str, object]:
    return {"event_type": METADATA_TYPE, "event_payload": {"key": part.key}}


def _build_actions(buttons: Sequence[Button]) -> list[dict[str, object]]:
    """Return the block of the buttons; none if Slack would not take one of their values."""
    if not buttons or len(buttons) > _MAX_BUTTONS or any(len(b.says) > _MAX_VALUE_LENGTH for b in buttons):
        return []
    elements = [
        {
            "type": "button",
            "action_id": f"keryx_{number}",
            "text": {"type": "plain_text", "text": button.label[:MAX_LABEL_LENGTH]},
            "value": button.says,
        }
        for number, button in enumerate(buttons)
    ]
    return [{"type": "actions", "elements": elements}]


def _read_ts(answer: dict[str, Any]) -> str:
    ts = answer.get("ts")
    if not isinstance(ts, str) or not ts:
        raise SlackNoResponse(Phrase("delivery.no_id", platform="Slack"))
    return ts
