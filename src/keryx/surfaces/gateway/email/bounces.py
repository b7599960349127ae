"""Reports that a mail of ours was not delivered: those of RFC 3464, and the free text of older servers. Pure functions over the bytes that the server stores."""

import re
from dataclasses import dataclass

from keryx.core.ports.adapter import InboundFailure
from keryx.core.source import ChatType, Source
from keryx.core.text import to_short_line
from keryx.surfaces.gateway.email import mime_parts
from keryx.surfaces.gateway.email.event_parser import (
    PLATFORM,
    MailAccount,
    MailSummary,
    find_own_ids,
    hash_mail,
    is_own_id,
)
from keryx.surfaces.gateway.email.mail_headers import (
    MailHeaders,
    clean_address,
    find_message_ids,
    parse_header,
)
from keryx.surfaces.gateway.email.smtp_client import is_gone_status
from keryx.surfaces.gateway.http_clients import NO_REASON

# What is fetched of a report. The mail that it is about follows at its end, sometimes as a whole.
MAX_REPORT_BYTES = 262_144
_STATUS_KINDS = frozenset({"message/delivery-status", "message/global-delivery-status"})
_ORIGINAL_KINDS = frozenset(
    {"message/rfc822", "text/rfc822-headers", "message/global", "message/global-headers"}
)
_BLANK_LINE = re.compile(rb"\r?\n[ \t]*\r?\n")
# A reply of a mail server that refuses for good, as older reports quote it.
_REFUSAL = re.compile(r"\b5\d\d[ -]?#?(?:5\.\d{1,3}\.\d{1,3}\b)?[^\n]*|\b5\.\d{1,3}\.\d{1,3}\b[^\n]*")
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class _ReportedFailure:
    # As the server names it, perhaps after a redirection.
    recipient: str
    reason: str
    # There is no such address, or it takes no mail any more.
    gone: bool = False


def parse_bounce(raw: bytes, summary: MailSummary, account: MailAccount) -> InboundFailure | None:
    """Return which mail of ours was not delivered, and why. `None` for a report about another mail, and for one that says
    that a mail is late or has arrived.

    Such a report is easy to forge, but only the recipient and the servers on the way know the Message-ID."""
    bodies = mime_parts.list_bodies(raw)
    statuses = [body for kind, body in bodies if kind in _STATUS_KINDS]
    failure = _read_status(statuses[0]) if statuses else _read_text(bodies)
    message_id = _find_message_id(bodies, summary, account)
    if failure is None or not message_id:
        return None
    recipient = clean_address(failure.recipient)
    return InboundFailure(
        event=summary.event or hash_mail(raw),
        source=Source(
            platform=PLATFORM,
            account=account.address,
            chat=recipient,
            chat_type=ChatType.DM,
            user=recipient or None,
        ),
        message=message_id,
        reason=to_short_line(failure.reason, _LONGEST_REASON),
        gone=failure.gone,
    )


def _read_status(body: bytes) -> _ReportedFailure | None:
    """Return the first recipient that the mail was not delivered to, of a report of RFC 3464."""
    for block in _BLANK_LINE.split(body.strip()):
        fields = parse_header(block)
        if fields.get("action").strip().lower() != "failed":
            continue
        recipient = _read_value(fields, "original-recipient") or _read_value(fields, "final-recipient")
        diagnosis = _read_value(fields, "diagnostic-code")
        status = fields.get("status").strip()
        why = diagnosis or (f"status {status}" if status else NO_REASON)
        return _ReportedFailure(
            recipient, f"the mail server of the person has not taken it: {why}", is_gone_status(status)
        )
    return None


def _read_value(fields: MailHeaders, name: str) -> str:
    """Return the value of a field behind its type, as in `rfc822; ann@example.org`."""
    kind, separator, value = fields.get(name).partition(";")
    return (value if separator else kind).strip()


def _read_text(bodies: list[tuple[str, bytes]]) -> _ReportedFailure:
    text = next((body for kind, body in bodies if kind.startswith("text/")), b"").decode("utf-8", "replace")
    found = _REFUSAL.search(text)
    why = found[0] if found else "a mail server reports that it was not delivered"
    return _ReportedFailure("", f"the mail server of the person has not taken it: {why}" if found else why)


def _find_message_id(bodies: list[tuple[str, bytes]], summary: MailSummary, account: MailAccount) -> str:
    """Return the Message-ID of the mail of ours that a report is about: that of the mail at its end, or one that the report
    refers to, or one in its text. Empty if there is none."""
    for kind, body in bodies:
        if kind in _ORIGINAL_KINDS:
            own = [
                id_
                for id_ in find_message_ids(parse_header(body.lstrip()).get("message-id"))
                if is_own_id(id_, account)
            ]
            if own:
                return own[0]
    for id_ in reversed(summary.references):
        if is_own_id(id_, account):
            return id_
    texts = [body.decode("utf-8", "replace") for kind, body in bodies if kind.startswith("text/")]
    return next((id_ for text in texts for id_ in find_own_ids(text, account)), "")
