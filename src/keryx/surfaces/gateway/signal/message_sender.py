"""Sends parts as messages of Signal, and translates what signal-cli refuses to send errors."""

import base64
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from keryx.core.deliveries import LONGEST_REPEAT_MARK, Target
from keryx.core.errors import (
    CredentialsRefused,
    Invalid,
    MessageGone,
    NotSent,
    Refused,
    SendError,
    TargetGone,
    Throttled,
    Uncertain,
)
from keryx.core.media import UNKNOWN_MIME
from keryx.core.ports.adapter import LengthUnit, OutgoingPart, RenderedPart
from keryx.core.texts import Phrase
from keryx.jsonrpc import INTERNAL_ERROR, as_count, as_object
from keryx.markdown import signal_styles
from keryx.markdown.signal_styles import SignalText
from keryx.markdown.split import LengthLimit, measure_length
from keryx.surfaces.gateway.signal.daemon_api import (
    RATE_LIMIT,
    UNTRUSTED_KEY,
    SignalApi,
    SignalApiError,
    SignalNoResponse,
    SignalUnreachable,
)
from keryx.surfaces.gateway.signal.event_parser import GROUP_PATTERN, PLATFORM, parse_message

# Leaves room for the mark of a repetition.
LIMIT = LengthLimit(signal_styles.LIMIT.size - LONGEST_REPEAT_MARK, LengthUnit.BYTES)
# signal-cli refuses texts of more than 20 million characters, and a file is one, in base64.
MAX_FILE_BYTES = 14_000_000
MAX_EDITS = 10
# Apps ignore edits of older messages.
_EDIT_WINDOW = timedelta(hours=24)
_SEND_SECONDS = 120.0
_DEFAULT_PAUSE = timedelta(minutes=1)
_CHALLENGE_PAUSE = timedelta(hours=1)
_UNREGISTERED, _NETWORK = "UNREGISTERED_FAILURE", "NETWORK_FAILURE"
# What signal-cli says before anything was sent.
_NOT_SENT = ("UnknownHostException", "ConnectException", "NoRouteToHostException")
_GONE_TARGETS = (
    ("group not found", "gone.no_group"),
    ("not a member in group", "gone.left_group"),
    ("not allowed to send message to group", "gone.admins_only"),
    ("is not registered", "gone.not_registered"),
    ("invalid phone number", "gone.no_number"),
)


def render_parts(markdown: str) -> Sequence[RenderedPart]:
    return [RenderedPart(part.text, part) for part in signal_styles.render_parts(markdown, LIMIT)]


async def send(api: SignalApi, part: OutgoingPart, *, account: str, now: float, latest: str = "") -> str:
    """Send one part and return the id of the message, or of its new version. Raise the errors that an adapter may. Apps
    expect an edit to name the `latest` version."""
    params = {**build_address(part.target, account), **_build_quote(part)}
    if part.attachment is not None:
        attachment = part.attachment
        if len(attachment.body) > MAX_FILE_BYTES:
            raise Refused(
                Phrase(
                    "delivery.file_too_large",
                    name=attachment.name,
                    limit=f"{MAX_FILE_BYTES:,} bytes",
                    platform="signal-cli",
                )
            )
        mime = attachment.mime.partition(";")[0].strip().lower() or UNKNOWN_MIME
        name = quote(attachment.name or "file", safe="", errors="replace")
        params |= {
            "message": part.mark.strip(),
            "attachment": [
                f"data:{mime};filename={name};base64,{base64.b64encode(attachment.body).decode()}"
            ],
        }
    else:
        markup = part.markup if isinstance(part.markup, SignalText) else SignalText(part.text)
        shift = measure_length(part.mark, LengthUnit.UTF16)
        styles = [f"{one.start + shift}:{one.length}:{one.style.value}" for one in markup.styles]
        params |= {"message": part.mark + markup.text, "textStyle": styles or None}
    if part.edits:
        params["editTimestamp"] = _find_edited(part.edits, latest or part.edits, now)
    try:
        found = as_object(await api.call("send", seconds=_SEND_SECONDS, **params))
    except SignalApiError as exc:
        raise translate_error(exc) from None
    except SignalUnreachable as exc:
        raise NotSent(str(exc)) from None
    except SignalNoResponse as exc:
        raise Uncertain(str(exc)) from None
    sent_at = as_count(found.get("timestamp"))
    if not sent_at:
        raise Uncertain(Phrase("delivery.no_time", platform="signal-cli"))
    return str(sent_at)


async def send_typing(api: SignalApi, target: Target) -> None:
    """Show typing for 15 seconds."""
    try:
        await api.call("sendTyping", **build_address(target))
    except SignalApiError as exc:
        raise translate_error(exc) from None
    except (SignalUnreachable, SignalNoResponse) as exc:
        raise NotSent(str(exc)) from None


def translate_error(error: SignalApiError) -> SendError:
    """Return the send error of a refusal. After a failure within signal-cli, the message may have been accepted."""
    text, kinds = error.description, {failure.type for failure in error.failures}
    if error.code == RATE_LIMIT or "RATE_LIMIT_FAILURE" in kinds:
        if any(failure.token for failure in error.failures):
            wait = error.wait or _CHALLENGE_PAUSE
            why = (
                "Signal wants a captcha to be solved: `signal-cli submitRateLimitChallenge` takes its answer"
            )
        else:
            wait = error.wait or _DEFAULT_PAUSE
            why = f"Signal asks to wait {wait.total_seconds():g} s"
        return Throttled(why, after=wait, account=True)
    if error.unknown_account:
        return CredentialsRefused(Phrase("delivery.no_account", platform="signal-cli"))
    if error.code == UNTRUSTED_KEY:
        return Refused(Phrase("delivery.safety_number"))
    if kinds and kinds <= {_UNREGISTERED}:
        return TargetGone(Phrase("target.refused", platform="Signal", reason=Phrase("gone.unregistered")))
    if _NETWORK in kinds:
        return Uncertain(Phrase("delivery.network_maybe", platform="signal-cli"))
    gone = next((sentence for words, sentence in _GONE_TARGETS if words in text.lower()), None)
    if gone is not None:
        return TargetGone(Phrase("target.refused", platform="Signal", reason=Phrase(gone)))
    if error.code == INTERNAL_ERROR and any(name in text for name in _NOT_SENT):
        return NotSent(Phrase("delivery.no_network", reason=text))
    if error.code == INTERNAL_ERROR and "AttachmentInvalid" not in text:
        return Uncertain(Phrase("delivery.failed_maybe", platform="signal-cli", reason=text))
    return Refused(Phrase("delivery.refused_status", platform="signal-cli", reason=text, status=error.code))


def build_address(target: Target, account: str = "") -> dict[str, Any]:
    """Return the parameters that name the recipient: a group, a person, or the own account for its notes to self."""
    if not target.chat:
        raise Refused(Phrase("delivery.no_chat", example=f"{PLATFORM}:<number>"))
    if GROUP_PATTERN.fullmatch(target.chat):
        return {"groupId": target.chat}
    return {"noteToSelf": True} if target.chat == account else {"recipient": [target.chat]}


def _build_quote(part: OutgoingPart) -> dict[str, Any]:
    """Return the parameters of a quotation for the first part in a group; none in a direct chat. The text is left out:
    apps show that of the message itself."""
    target = part.target
    if part.number or part.edits or not target.reply_to or not GROUP_PATTERN.fullmatch(target.chat):
        return {}
    try:
        author, sent_at = parse_message(target.reply_to)
    except Invalid as exc:
        raise Refused(str(exc)) from None
    return {"quoteTimestamp": sent_at, "quoteAuthor": author} if author else {}


def _find_edited(original: str, latest: str, now: float) -> int:
    """Return when the latest version of a message of this account was sent. Raise `MessageGone` if it cannot be edited any
    more."""
    try:
        author, sent_at = parse_message(original)
        _, edited_at = parse_message(latest)
    except Invalid as exc:
        raise Refused(str(exc)) from None
    if author:
        raise Refused(Phrase("delivery.edit_foreign"))
    if now - sent_at / 1000 > _EDIT_WINDOW.total_seconds():
        raise MessageGone(Phrase("delivery.edit_too_old", platform="Signal", hours="24"))
    return edited_at
