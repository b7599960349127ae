"""Renders answers as bubbles of plain text, sends them through `imsg` or BlueBubbles, and finds those that may have been sent in the history of the chat."""

import re
import secrets
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from keryx.core.deliveries import LONGEST_REPEAT_MARK, Target
from keryx.core.errors import (
    CredentialsRefused,
    NotSent,
    Refused,
    SendError,
    TargetGone,
    Throttled,
    Uncertain,
)
from keryx.core.media import Attachment, clean_name
from keryx.core.ports.adapter import LengthUnit, OutgoingPart, RenderedPart
from keryx.core.texts import Phrase
from keryx.jsonrpc import Json, as_text
from keryx.markdown import parse, plain, tree
from keryx.markdown.split import LengthLimit, has_visible_text, measure_length, split_document
from keryx.surfaces.gateway.imessage import bluebubbles_api, imsg_client
from keryx.surfaces.gateway.imessage.bluebubbles_api import (
    BlueBubblesApi,
    BlueBubblesError,
    BlueBubblesNoResponse,
    BlueBubblesUnreachable,
)
from keryx.surfaces.gateway.imessage.event_parser import (
    DIRECT_MARK,
    GROUP_MARK,
    MessageRow,
    describe_error,
    normalize_handle,
    read_bluebubbles,
    read_imsg,
)
from keryx.surfaces.gateway.imessage.imsg_client import (
    ImsgClient,
    ImsgError,
    ImsgNoResponse,
    ImsgUnavailable,
)
from keryx.surfaces.gateway.imessage.payloads import BlueBubblesMessage, ImsgChat, ImsgMessage

# Messages has no limit that people meet. A longer bubble than this is tiresome, and AppleScript is slow with it.
LIMIT = LengthLimit(4000 - LONGEST_REPEAT_MARK, LengthUnit.CHARACTERS)
# Paragraphs share a bubble up to this length.
_BUBBLE_LENGTH = 600
# A very long answer has longer bubbles instead of more.
_MOST_BUBBLES = 20
_KEY = re.compile(r"(\d*)\.(\d+)\.\w+", re.ASCII)
# The clock of the Mac may differ from ours by this much.
_CLOCK_SKEW = timedelta(minutes=2)
# How many of the newest messages of a chat are searched.
_SEARCH_ROWS = 100
_SEARCH_CHATS = 1000
_THROTTLE_PAUSE = timedelta(seconds=15)
_TOO_MANY_REQUESTS = 429
_ALREADY_QUEUED = "already queued"
# What AppleScript says about a chat that does not exist.
_NO_CHAT = re.compile(r"can.t get (chat|buddy|participant)|does not exist|unknown chat|-1728", re.IGNORECASE)

T = TypeVar("T")


class SearchStart(msgspec.Struct, frozen=True, kw_only=True):
    """What a send key says: a message that was sent with it is a later row than this one."""

    # 0 if no row was known.
    row: int
    at: datetime

    def may_precede(self, row: MessageRow) -> bool:
        if self.row:
            return row.row > self.row
        return row.at is None or row.at >= self.at - _CLOCK_SKEW


def render_parts(markdown: str) -> Sequence[RenderedPart]:
    """Return plain text in bubbles, as people write in Messages: a short answer is one, a longer one has a bubble for each few
    paragraphs. There is none if the text shows nothing. No character is lost."""
    # Neither can be part of a message.
    clean = markdown.replace("\x00", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    document = parse(clean)
    length = min(max(_BUBBLE_LENGTH, len(clean) // _MOST_BUBBLES), LIMIT.size)
    return [
        RenderedPart(part)
        for group in _group_blocks(document.blocks, length)
        for part in split_document(tree.DocumentNode(group), plain.render, LIMIT.fill_ratio)
        if has_visible_text(part)
    ]


def _group_blocks(blocks: Sequence[tree.Block], length: int) -> Iterator[tuple[tree.Block, ...]]:
    """Yield the blocks of each bubble. A heading stays with the block after it, unless there are only headings."""
    group: list[tuple[tree.Block, int]] = []
    total = 0
    for block in blocks:
        # With the empty line before it.
        size = measure_length(plain.render(tree.DocumentNode((block,))), LIMIT.unit) + 2
        if group and total + size > length:
            end = len(group)
            while end and isinstance(group[end - 1][0], tree.HeadingNode):
                end -= 1
            if not end and isinstance(block, tree.HeadingNode):
                end = len(group)
            if end:
                yield tuple(block for block, _ in group[:end])
            group = group[end:]
            total = sum(size for _, size in group)
        group.append((block, size))
        total += size
    if group:
        yield tuple(block for block, _ in group)


def create_send_key(newest_row: int, now: datetime) -> str:
    """Return a key from which `find_sent` knows where to begin. Neither `imsg` nor BlueBubbles keeps it."""
    return f"{newest_row or ''}.{int(now.timestamp() * 1000)}.{secrets.token_hex(8)}"


def parse_send_key(key: str) -> SearchStart:
    """Return what `create_send_key` wrote; for any other key, a start before all messages."""
    found = _KEY.fullmatch(key)
    if found is None:
        return SearchStart(row=0, at=datetime.min.replace(tzinfo=UTC) + _CLOCK_SKEW)
    return SearchStart(row=int(found[1] or 0), at=datetime.fromtimestamp(int(found[2]) / 1000, UTC))


def find_part(part: OutgoingPart, rows: Iterable[MessageRow]) -> MessageRow | None:
    """Return the first row that shows this part. Letters and digits are compared: Messages may change the rest, such as
    quotation marks."""
    start = parse_send_key(part.key)
    name = clean_name(part.attachment.name) or "file" if part.attachment else ""
    for row in sorted(rows, key=lambda row: row.row):
        if not row.from_me or row.error or not start.may_precede(row):
            continue
        if name and any(file.name == name for file in row.files):
            return row
        if not name and not row.files and _reduce(row.text) == _reduce(part.text):
            return row
    return None


def choose_chat(target: Target, service: str, known_guids: dict[str, str]) -> str:
    """Return the GUID of the chat: that of the message that is answered, or the last one of the person, or one for the
    service."""
    chat = target.chat
    if not chat:
        raise Refused(Phrase("delivery.no_chat", example="imessage:<number or address>"))
    if target.reply_context is not None:
        return target.reply_context.token
    if GROUP_MARK in chat or DIRECT_MARK in chat:
        return chat
    handle = normalize_handle(chat)
    return known_guids.get(handle) or f"{service}{DIRECT_MARK}{handle}"


class ImsgSender:
    """Sends through `imsg`."""

    def __init__(self, client: ImsgClient, *, service: str) -> None:
        self._client = client
        # `auto`, `imessage` or `sms`.
        self._service = service
        # The newest row that is known.
        self.newest_row = 0

    async def send(self, part: OutgoingPart) -> str:
        """Send one part and return the GUID of the message. Raise the errors that an adapter may."""
        try:
            params = self._build_address(part.target)
            if part.attachment is None:
                return await self._send(part, {**params, "text": part.mark + part.text})
            async with self._client.put_file(part.attachment) as path:
                mark = {"text": part.mark.strip()} if part.mark else {}
                return await self._send(part, {**params, "file": path, **mark})
        except ImsgError as exc:
            text = str(exc)
            if _NO_CHAT.search(text):
                raise TargetGone(text) from None
            if "Invalid params" in text:
                raise Refused(text) from None
            # Messages did not confirm it in time, or wrote something else than was asked for.
            raise Uncertain(text) from None
        except ImsgUnavailable as exc:
            raise NotSent(str(exc)) from None
        except ImsgNoResponse as exc:
            raise Uncertain(str(exc)) from None

    async def find_sent(self, part: OutgoingPart) -> str | None:
        try:
            found = find_part(part, await self._read_chat(part.target))
        except (ImsgError, ImsgUnavailable, ImsgNoResponse) as exc:
            raise NotSent(str(exc)) from None
        return found.guid if found else None

    async def send_typing(self, target: Target) -> None:
        """Show typing and mark the chat as read. `imsg` can do so only while its bridge into Messages runs."""
        try:
            address = self._build_address(target)
            await self._client.request("typing", {**address, "typing": True})
            await self._client.request("read", address)
        except (ImsgError, ImsgUnavailable, ImsgNoResponse) as exc:
            raise NotSent(str(exc)) from None

    async def _send(self, part: OutgoingPart, params: Json) -> str:
        result = await self._client.request("send", params, seconds=imsg_client.SEND_SECONDS)
        row = result.get("id")
        self.newest_row = max(self.newest_row, row if isinstance(row, int) else 0)
        guid = as_text(result.get("guid"))
        # `imsg` does not always find the row of what it has sent. Tapbacks at such a message are not recognised.
        return guid or part.key

    def _build_address(self, target: Target) -> Json:
        if target.reply_context is not None:
            return {"chat_guid": target.reply_context.token}
        if GROUP_MARK in target.chat:
            return {"chat_guid": target.chat}
        if not target.chat:
            raise Refused(Phrase("delivery.no_chat", example="imessage:<number or address>"))
        return {"to": normalize_handle(target.chat), "service": self._service}

    async def _read_chat(self, target: Target) -> list[MessageRow]:
        """Return the newest rows of a chat. A person may have one for iMessage and one for SMS."""
        listed = await self._client.request("chats.list", {"limit": _SEARCH_CHATS})
        chats = [convert_or_none(chat, ImsgChat) for chat in imsg_client.read_list(listed, "chats")]
        wanted = target.chat if GROUP_MARK in target.chat else normalize_handle(target.chat)
        rows: list[MessageRow] = []
        for chat in chats:
            if chat is None or wanted not in (chat.guid, normalize_handle(chat.identifier)):
                continue
            found = await self._client.request(
                "messages.history", {"chat_id": chat.id, "limit": _SEARCH_ROWS, "attachments": True}
            )
            messages = (
                convert_or_none(message, ImsgMessage) for message in imsg_client.read_list(found, "messages")
            )
            rows += [read_imsg(message) for message in messages if message is not None]
        return rows


class BlueBubblesSender:
    """Sends through a BlueBubbles server."""

    def __init__(self, api: BlueBubblesApi, *, service: str, quote: bool) -> None:
        self._api = api
        self._service = service
        self._quote = quote
        # The newest row that is known.
        self.newest_row = 0
        # The last chat of each person who has written.
        self.known_guids: dict[str, str] = {}
        # Whether the private API can be used; `None` before the server was asked.
        self.private_api: bool | None = None

    async def send(self, part: OutgoingPart) -> str:
        """Send one part and return the GUID of the message. Raise the errors that an adapter may."""
        try:
            fields = await self._build_fields(part)
            if part.attachment is not None:
                found = await self._send_file(part, part.attachment, fields)
            else:
                found = await self._api.post(
                    "message/text",
                    {**fields, "message": part.mark + part.text},
                    seconds=bluebubbles_api.SEND_SECONDS,
                )
            sent = bluebubbles_api.convert(found, BlueBubblesMessage)
        except BlueBubblesError as exc:
            raise translate_error(exc) from None
        except BlueBubblesUnreachable as exc:
            raise NotSent(str(exc)) from None
        except BlueBubblesNoResponse as exc:
            raise Uncertain(str(exc)) from None
        self.newest_row = max(self.newest_row, sent.row)
        return sent.guid

    async def find_sent(self, part: OutgoingPart) -> str | None:
        start = parse_send_key(part.key)
        after = 0 if start.row else max(1, int((start.at - _CLOCK_SKEW).timestamp() * 1000))
        conditions = {"message.is_from_me =": 1, **({"message.ROWID >": start.row} if start.row else {})}
        try:
            found = await self._api.query_rows(
                conditions,
                newest=True,
                limit=_SEARCH_ROWS,
                after=after,
                chat=choose_chat(part.target, self._service, self.known_guids),
            )
        except (BlueBubblesError, BlueBubblesUnreachable, BlueBubblesNoResponse) as exc:
            raise NotSent(str(exc)) from None
        messages = (convert_or_none(message, BlueBubblesMessage) for message in found)
        row = find_part(part, (read_bluebubbles(message, {}) for message in messages if message is not None))
        return row.guid if row else None

    async def send_typing(self, target: Target) -> None:
        """Show typing and mark the chat as read, if the private API can be used."""
        try:
            if not await self._has_private_api():
                return
            chat = quote(choose_chat(target, self._service, self.known_guids), safe="")
            await self._api.post(f"chat/{chat}/typing", {})
            await self._api.post(f"chat/{chat}/read", {})
        except BlueBubblesError as exc:
            raise translate_error(exc) from None
        except (BlueBubblesUnreachable, BlueBubblesNoResponse) as exc:
            raise NotSent(str(exc)) from None

    async def _has_private_api(self) -> bool:
        if self.private_api is None:
            info = await self._api.get_info()
            self.private_api = info.private_api and info.helper_connected
        return self.private_api

    async def _build_fields(self, part: OutgoingPart) -> dict[str, Any]:
        try:
            private = await self._has_private_api()
        except BlueBubblesNoResponse as exc:
            # Nothing was sent yet.
            raise BlueBubblesUnreachable(str(exc)) from None
        target = part.target
        quoted = self._quote and private and part.number == 0 and GROUP_MARK in target.chat
        return {
            "chatGuid": choose_chat(target, self._service, self.known_guids),
            # The server refuses a second message with the same one as long as it is sending the first.
            "tempGuid": part.key,
            "method": "private-api" if private else "apple-script",
            **({"selectedMessageGuid": target.reply_to} if quoted and target.reply_to else {}),
        }

    async def _send_file(self, part: OutgoingPart, attachment: Attachment, fields: dict[str, Any]) -> Any:
        """Send a file. What may be a repetition has its mark in its name, because a file has no text."""
        name = clean_name(attachment.name) or "file"
        return await self._api.upload({**fields, "name": f"{part.mark}{name}"}, attachment, name)


def translate_error(error: BlueBubblesError) -> SendError:
    """Return the send error of a refusal. After an unknown 5xx, the message may have been sent."""
    text = error.description
    if error.status in (401, 403):
        return CredentialsRefused(Phrase("delivery.wrong_password", platform="BlueBubbles"))
    if error.status == _TOO_MANY_REQUESTS:
        return Throttled(
            Phrase("delivery.pause", platform="BlueBubbles"), after=_THROTTLE_PAUSE, account=True
        )
    if error.code:
        return Refused(describe_error(error.code, text))
    if _ALREADY_QUEUED in text:
        return Uncertain(Phrase("delivery.still_sending", platform="BlueBubbles"))
    if error.status == 404 or _NO_CHAT.search(text):
        return TargetGone(Phrase("delivery.no_such_chat", platform="BlueBubbles", reason=text))
    if error.status < 500:
        return Refused(
            Phrase("delivery.refused_status", platform="BlueBubbles", reason=text, status=error.status)
        )
    return Uncertain(
        Phrase("delivery.broke_down_because", platform="BlueBubbles", reason=text, status=error.status)
    )


def convert_or_none(value: Any, kind: type[T]) -> T | None:
    """Return a value of this kind, or `None` if it has another form."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _reduce(text: str) -> str:
    letters = "".join(char for char in unicodedata.normalize("NFKC", text).casefold() if char.isalnum())
    return letters or "".join(text.split())
