"""Sends parts as messages, edits and responses to interactions, and translates Discord's refusals to send errors."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from keryx.core.cache import LruCache
from keryx.core.deliveries import LONGEST_REPEAT_MARK, Target
from keryx.core.errors import (
    CredentialsRefused,
    KeryxError,
    MessageGone,
    NotSent,
    Refused,
    SendError,
    TargetGone,
    Throttled,
    Uncertain,
)
from keryx.core.ports.adapter import LengthUnit, OutgoingPart, RenderedPart
from keryx.core.questions import Button
from keryx.core.texts import Phrase
from keryx.markdown import discord_markdown
from keryx.markdown.split import LengthLimit
from keryx.surfaces.gateway.discord.channels import NameDirectory
from keryx.surfaces.gateway.discord.event_parser import build_thread_name, parse_reply_token
from keryx.surfaces.gateway.discord.payloads import (
    LOADING_FLAG,
    DiscordChannel,
    DiscordMessage,
    ThreadMetadata,
    build_snowflake,
)
from keryx.surfaces.gateway.discord.rest_api import (
    BAD_TOKEN,
    DiscordApi,
    DiscordError,
    DiscordNoResponse,
    DiscordRateLimit,
    DiscordUnreachable,
)
from keryx.surfaces.gateway.discord.route_limits import Route

# Leaves room for the mark of a repetition.
LIMIT = LengthLimit(discord_markdown.LIMIT.size - LONGEST_REPEAT_MARK, LengthUnit.CHARACTERS)
MAX_LABEL_LENGTH = 80

# Discord recognises a nonce for "a few minutes". After this time a search replaces it.
NONCE_LIFETIME = timedelta(minutes=2)
_MAX_NONCE_LENGTH = 25
_OWN_KEY = re.compile(r"k([0-9a-f]{11})-[0-9a-f]{12}\Z")
# How far the clocks of Discord and of this machine may differ.
_CLOCK_SKEW = timedelta(seconds=2)
_MAX_CUSTOM_ID = 100
_BUTTONS_PER_ROW, _MAX_ROWS = 5, 5
_MAX_TRACKED = 2_000
_ACTION_ROW, _BUTTON, _SECONDARY = 1, 2, 2
_UNKNOWN_MESSAGE, _UNKNOWN_WEBHOOK, _UNKNOWN_INTERACTION = 10008, 10015, 10062
_NO_TEXT_CHANNEL = 50008
_TOKEN_EXPIRED = 50027
# The bot cannot write in the channel itself.
_NO_ACCESS = frozenset({10003, 50001, 50013})
_GONE_TARGETS = {
    10003: "gone.channel_or_thread",
    50001: "gone.hidden_channel",
    50007: "gone.no_direct",
    _NO_TEXT_CHANNEL: "gone.no_text_channel",
    50013: "gone.forbidden_channel",
    50083: "gone.thread_archived",
    50278: "gone.no_server",
    160005: "gone.thread_locked",
}


def render_parts(markdown: str) -> Sequence[RenderedPart]:
    return [RenderedPart(text) for text in discord_markdown.render_parts(markdown, LIMIT)]


def translate_error(error: KeryxError) -> SendError:
    """Return the send error for an error of the API. After a 5xx, the message may have been accepted."""
    match error:
        case DiscordRateLimit(after=after, account=account):
            return Throttled(str(error), after=timedelta(seconds=after), account=account)
        case DiscordUnreachable():
            return NotSent(str(error))
        case DiscordError(status=401):
            return CredentialsRefused(BAD_TOKEN)
        case DiscordError(status=status) if status >= 500:
            return Uncertain(Phrase("delivery.broke_down", platform="Discord", status=status))
        case DiscordError(code=code) if code == _UNKNOWN_MESSAGE:
            return MessageGone(Phrase("delivery.message_gone"))
        case DiscordError(code=code):
            gone = _GONE_TARGETS.get(code)
            if gone is None:
                return Refused(str(error))
            return TargetGone(Phrase("target.refused", platform="Discord", reason=Phrase(gone)))
        case _:
            return Uncertain(str(error))


class MessageSender:
    def __init__(
        self,
        api: DiscordApi,
        bot: str,
        *,
        names: NameDirectory,
        notify: bool = True,
    ) -> None:
        self._api = api
        self._bot = bot
        self._names = names
        self._notify = notify
        # The part that a response to an interaction shows, by the token of the interaction.
        self._responses = LruCache[str, str](_MAX_TRACKED)
        # The keys of the parts that were sent as a follow-up, which Discord does not recognise when repeated.
        self._followed_up = LruCache[str, bool](_MAX_TRACKED)

    def create_send_key(self, part: OutgoingPart) -> str:
        """Return a nonce that tells when it was made."""
        digest = hashlib.sha256(part.key.encode()).hexdigest()[:12]
        return f"k{int(self._api.now().timestamp() * 1000):011x}-{digest}"

    async def send(self, part: OutgoingPart) -> str:
        """Send one part and return the id of the message. Raise the errors that an adapter may."""
        try:
            if part.edits:
                return await self._edit(part)
            context = part.target.reply_context
            if context is not None and part.number == 0:
                answered = await self._respond(part, context.token)
                if answered:
                    return answered
            return await self._send_message(part)
        except (DiscordError, DiscordRateLimit, DiscordUnreachable, DiscordNoResponse) as exc:
            raise translate_error(exc) from None

    async def show_typing(self, target: Target) -> None:
        await self._request_repeatable(Route("POST", "/channels/{}/typing", (find_channel(target),)))

    async def remove(self, target: Target, message: str) -> None:
        """Delete a message of the bot. Raise the errors that an adapter may."""
        await self._request_repeatable(
            Route("DELETE", "/channels/{}/messages/{}", (find_channel(target), check_id(message)))
        )

    async def rename_thread(self, target: Target, title: str) -> None:
        """Rename a thread of the bot. One that is archived is opened for it, and archived again."""
        thread = await self._find_own_thread(target)
        name = build_thread_name(title)
        if thread is None or not name or thread.name == name:
            return
        if (thread.thread_metadata or ThreadMetadata()).archived:
            await self._update_thread(target, {"name": name, "archived": False})
            await self._update_thread(target, {"archived": True})
        else:
            await self._update_thread(target, {"name": name})

    async def archive_thread(self, target: Target) -> None:
        thread = await self._find_own_thread(target)
        if thread is not None and not (thread.thread_metadata or ThreadMetadata()).archived:
            await self._update_thread(target, {"archived": True})

    async def _find_own_thread(self, target: Target) -> DiscordChannel | None:
        """Return a thread that the bot has opened, as it is now; `None` for any other channel."""
        found = await self._request_repeatable(Route("GET", "/channels/{}", (find_channel(target),)))
        try:
            channel = msgspec.convert(found, DiscordChannel)
        except msgspec.ValidationError:
            raise NotSent(Phrase("delivery.unreadable", platform="Discord")) from None
        return channel if channel.is_thread and channel.owner_id == self._bot else None

    async def _update_thread(self, target: Target, changes: Mapping[str, object]) -> None:
        await self._request_repeatable(Route("PATCH", "/channels/{}", (find_channel(target),)), changes)

    async def _request_repeatable(self, route: Route, body: object = None) -> Any:
        """Send a request that may be repeated, so that an unknown outcome counts as not sent."""
        try:
            return await self._api.request(route, body)
        except (DiscordUnreachable, DiscordNoResponse) as exc:
            raise NotSent(str(exc)) from None
        except (DiscordError, DiscordRateLimit) as exc:
            raise translate_error(exc) from None

    async def _edit(self, part: OutgoingPart) -> str:
        channel, message = find_channel(part.target), check_id(part.edits)
        body = {**self._build_content(part), "allowed_mentions": {"parse": list[str]()}}
        body["components"] = _build_components(part.buttons)
        await self._request_with_buttons(
            Route("PATCH", "/channels/{}/messages/{}", (channel, message)), body, part
        )
        return part.edits

    async def _send_message(self, part: OutgoingPart) -> str:
        channel = find_channel(part.target)
        earlier = await self._find_earlier(part, channel)
        if earlier is not None:
            return earlier
        body = {**self._build_content(part), "nonce": build_nonce(part.key), "enforce_nonce": True}
        body["allowed_mentions"] = {"parse": ["users"], "replied_user": self._notify}
        if part.number == 0 and part.target.reply_to:
            body["message_reference"] = {
                "message_id": check_id(part.target.reply_to),
                "fail_if_not_exists": False,
            }
        if components := _build_components(part.buttons):
            body["components"] = components
        route = Route("POST", "/channels/{}/messages", (channel,))
        try:
            return _read_id(await self._request_with_buttons(route, body, part))
        except DiscordError as exc:
            context = part.target.reply_context
            if context is None or exc.code not in _NO_ACCESS:
                raise
            return await self._follow_up(part, context.token, exc)

    async def _find_earlier(self, part: OutgoingPart, channel: str) -> str | None:
        """Return the id of the message that an earlier attempt has sent, if the attempt was too long ago for its nonce to be
        recognised. The message is the first of the bot with the same content since the key was made: nothing else was sent
        to the same target after it."""
        made = _read_key_time(part.key)
        if made is None or self._api.now() - made < NONCE_LIFETIME:
            return None
        found = await self._api.find_messages_after(channel, build_snowflake(made - _CLOCK_SKEW))
        same = [one for one in found if one.author.id == self._bot and self._shows(one, part)]
        return min(same, key=lambda one: int(one.id)).id if same else None

    def _shows(self, message: DiscordMessage, part: OutgoingPart) -> bool:
        file = part.attachment
        if file is None:
            # A name may have become known between two attempts.
            texts = (part.text, str(self._build_content(part)["content"]))
            return message.content.strip() in {text.strip() for text in texts}
        return any(one.size == len(file.body) for one in message.attachments)

    async def _respond(self, part: OutgoingPart, token: str) -> str:
        """Show a part as the response to an interaction. Return the id of the message, or an empty text if the response shows
        another part, or the token has expired: then an ordinary message is sent."""
        application, secret = parse_reply_token(token)
        params = (application, secret)
        key = build_nonce(part.key)
        try:
            if self._responses.get(token) not in (None, key):
                return ""
            shown = await self._api.request(
                Route("GET", "/webhooks/{}/{}/messages/@original", params), authorize=False
            )
            original = msgspec.convert(shown, DiscordMessage)
            if not original.flags & LOADING_FLAG:
                return original.id if self._shows(original, part) else ""
            self._responses.put(token, key)
            body = {**self._build_content(part), "allowed_mentions": {"parse": ["users"]}}
            if components := _build_components(part.buttons):
                body["components"] = components
            route = Route("PATCH", "/webhooks/{}/{}/messages/@original", params)
            return _read_id(await self._request_with_buttons(route, body, part, authorize=False))
        except msgspec.ValidationError:
            return ""
        except DiscordError as exc:
            if exc.code in (_UNKNOWN_WEBHOOK, _UNKNOWN_INTERACTION, _UNKNOWN_MESSAGE, _TOKEN_EXPIRED):
                return ""
            raise

    async def _follow_up(self, part: OutgoingPart, token: str, refusal: DiscordError) -> str:
        """Send a part by the token of an interaction, because the bot may not write in the channel itself. Discord takes a
        repeated follow-up twice, so one that may have arrived is marked."""
        repeated = part.key in self._followed_up or self._is_old(part.key)
        self._followed_up.put(part.key, True)
        mark = part.repeat_mark if repeated else ""
        body = {**self._build_content(part, mark), "allowed_mentions": {"parse": ["users"]}}
        if components := _build_components(part.buttons):
            body["components"] = components
        try:
            route = Route("POST", "/webhooks/{}/{}", parse_reply_token(token))
            return _read_id(await self._request_with_buttons(route, body, part, authorize=False))
        except DiscordError as exc:
            if exc.code in (_UNKNOWN_WEBHOOK, _UNKNOWN_INTERACTION, _TOKEN_EXPIRED):
                raise refusal from None
            raise

    def _is_old(self, key: str) -> bool:
        made = _read_key_time(key)
        return made is None or self._api.now() - made > timedelta(seconds=10)

    async def _request_with_buttons(
        self, route: Route, body: Mapping[str, Any], part: OutgoingPart, *, authorize: bool = True
    ) -> Any:
        """Send a request. If Discord refuses its buttons, send it without them: the text itself says how to answer."""
        files = (part.attachment,) if part.attachment is not None and not part.edits else ()
        try:
            return await self._api.request(route, body, files=files, authorize=authorize)
        except DiscordError as exc:
            if not body.get("components") or "components" not in exc.fields:
                raise
            plain = {**body, "components": list[object]()}
            return await self._api.request(route, plain, files=files, authorize=authorize)

    def _build_content(self, part: OutgoingPart, mark: str = "") -> dict[str, Any]:
        if part.attachment is not None:
            attachments = [{"id": 0, "filename": part.attachment.name or "file"}]
            return {"content": mark.strip(), "attachments": attachments}
        return {"content": mark + add_mentions(part.text, self._names.list_names(find_channel(part.target)))}


def find_channel(target: Target) -> str:
    """Return the channel of a target: a thread is a channel of its own."""
    channel = target.thread or target.chat
    if not channel:
        raise Refused(Phrase("delivery.no_channel", example="discord:<channel id>"))
    return check_id(channel)


def check_id(text: str) -> str:
    if not (text.isascii() and text.isdigit()):
        raise Refused(Phrase("delivery.no_number", text=repr(text[:40]), platform="Discord"))
    return text


def build_nonce(key: str) -> str:
    """Return a key in the form that Discord accepts as a nonce."""
    if len(key) <= _MAX_NONCE_LENGTH:
        return key
    return hashlib.sha256(key.encode()).hexdigest()[:_MAX_NONCE_LENGTH]


def add_mentions(text: str, names: Mapping[str, str]) -> str:
    """Return a rendered text whose `@name`s mention the people of these names. Code stays as it is, and so does a text that
    would become too long."""
    if "@" not in text or not names:
        return text
    by_markup = {discord_markdown.escape(name, line_start=False): id_ for name, id_ in names.items()}
    longest_first = sorted(by_markup, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w<@])@({'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)
    ids = {name.lower(): id_ for name, id_ in by_markup.items()}
    pieces = discord_markdown.split_code(text)
    pieces[::2] = [pattern.sub(lambda found: f"<@{ids[found[1].lower()]}>", piece) for piece in pieces[::2]]
    mentioned = "".join(pieces)
    return mentioned if len(mentioned) <= discord_markdown.LIMIT.size else text


def _read_key_time(key: str) -> datetime | None:
    """Return when a key of ours was made, or `None` for another key."""
    found = _OWN_KEY.match(key)
    return datetime.fromtimestamp(int(found[1], 16) / 1000, UTC) if found else None


def _build_components(buttons: Sequence[Button]) -> list[dict[str, Any]]:
    """Return rows of buttons; none if Discord would refuse one of them."""
    if len(buttons) > _BUTTONS_PER_ROW * _MAX_ROWS or any(len(b.says) > _MAX_CUSTOM_ID for b in buttons):
        return []
    components = [
        {"type": _BUTTON, "style": _SECONDARY, "label": b.label[:MAX_LABEL_LENGTH], "custom_id": b.says}
        for b in buttons
    ]
    rows = [components[at : at + _BUTTONS_PER_ROW] for at in range(0, len(components), _BUTTONS_PER_ROW)]
    return [{"type": _ACTION_ROW, "components": row} for row in rows]


def _read_id(found: Any) -> str:
    try:
        return str(found["id"])
    except (TypeError, KeyError):
        raise DiscordNoResponse(Phrase("delivery.no_id", platform="Discord")) from None
