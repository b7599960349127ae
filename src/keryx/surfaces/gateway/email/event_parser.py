"""A mail as an event: who wrote it, whether it may be answered, which thread it belongs to, and what it says. Pure functions over the bytes that the server stores."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from keryx.core.deliveries import ReplyContext, Target
from keryx.core.errors import Invalid
from keryx.core.media import Attachment
from keryx.core.messages import Part, Parts, Text
from keryx.core.ports.adapter import IdFormat, InboundMessage, PlatformIds
from keryx.core.source import ChatType, Source
from keryx.core.text import truncate
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.email import mail_text, mime_parts
from keryx.surfaces.gateway.email.authentication import find_doubt
from keryx.surfaces.gateway.email.mail_headers import (
    MailPerson,
    decode_words,
    find_author,
    find_automatic_reason,
    find_message_ids,
    is_bounce,
    parse_header,
)

PLATFORM = "email"
_ADDRESS_FORMAT = IdFormat(r"[^\s@<>\"(),:;]+@[^\s@<>\"(),:;]+", "an address, such as ada@example.org")
IDS = PlatformIds(
    chat=_ADDRESS_FORMAT,
    person=_ADDRESS_FORMAT,
    thread=IdFormat(r"<[!-;=?-~]{1,250}>", "the Message-ID of the first mail, in angle brackets"),
)
EMPTY_MAIL = "(The mail is empty.)"
_OWN_ID = re.compile(r"<keryx\.([0-9a-f]{12}|new)\.[0-9a-f]{20}@([^<>@]+)>")
_REPLY_PREFIX = re.compile(
    r"(?:(?:re|aw|antw|sv|vs|ref|res|rif|odp|atb|回复|答复|返信)(?:\[\d{1,3}\])?\s*[:：]\s*)+", re.IGNORECASE
)
_FORWARD_PREFIX = re.compile(r"(?:fwd?|wg|tr|rv|doorst|vb|enc|i|转发)\s*[:：]", re.IGNORECASE)
_LONGEST_SUBJECT = 250
_MOST_REFERENCES = 20
_QUOTE_LINES = 20
_QUOTE_CHARACTERS = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class MailAccount:
    """Whose mailbox it is."""

    address: str
    # The servers whose Authentication-Results are believed.
    trusted: frozenset[str]

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]


@dataclass(frozen=True, slots=True)
class MailSummary:
    """What the header of a mail says."""

    # Identifies the mail, also in another mailbox or under another UID.
    event: str
    # Its Message-ID; empty if it has none.
    message_id: str
    author: MailPerson | None
    subject: str
    # The Message-IDs that it refers to, from the first to the one that it answers.
    references: tuple[str, ...]
    # Why it is ignored, as the end of a sentence about it; empty if it is received.
    reason: str
    # Perhaps a report that a mail of ours was not delivered. It is never answered.
    bounce: bool = False


class ReplyDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an answer needs of the mail that it answers: the token of its `ReplyContext`."""

    subject: str = ""
    references: tuple[str, ...] = ()
    author: str = ""
    date: str = ""
    quote: str = ""


def read_summary(raw_header: bytes, account: MailAccount) -> MailSummary:
    """Return what the header of a mail says, and whether the mail is received."""
    headers = parse_header(raw_header)
    author = find_author(headers)
    own_ids = find_message_ids(headers.get("message-id"))
    message_id = own_ids[0] if len(own_ids) == 1 else ""
    references = find_message_ids(headers.get("references"))
    references += [id_ for id_ in find_message_ids(headers.get("in-reply-to"))[:1] if id_ not in references]
    if author is None:
        reason = "names no author, or several"
    elif author.address == account.address or is_own_id(message_id, account):
        reason = "is from Keryx itself"
    else:
        reason = find_automatic_reason(headers, author) or find_doubt(headers, author, account.trusted)
    return MailSummary(
        event=f"{message_id} {author.address if author else ''}".rstrip() if message_id else "",
        message_id=message_id,
        author=author,
        subject=truncate(decode_words(headers.get("subject")), _LONGEST_SUBJECT),
        references=tuple(id_ for id_ in references if id_ != message_id),
        reason=reason,
        bounce=is_bounce(headers),
    )


def hash_mail(raw: bytes) -> str:
    """Return the event of a mail without a Message-ID: a hash of what stays the same wherever the mail is stored."""
    headers, body = raw.partition(b"\r\n\r\n")[::2] if b"\r\n\r\n" in raw else raw.partition(b"\n\n")[::2]
    fields = parse_header(headers)
    stable = [fields.get(name) for name in ("from", "to", "date", "subject")]
    digest = hashlib.sha256("\0".join(stable).encode("utf-8", "surrogateescape"))
    digest.update(b"\0" + body.replace(b"\r\n", b"\n").rstrip())
    return f"sha256:{digest.hexdigest()[:40]}"


def hash_thread(root: str) -> str:
    """Return the short name of a thread, which is part of the Message-IDs of our answers in it."""
    return hashlib.sha256(root.encode()).hexdigest()[:12]


def is_own_id(message_id: str, account: MailAccount) -> bool:
    found = _OWN_ID.fullmatch(message_id)
    return found is not None and found[2] == account.domain


def find_own_ids(text: str, account: MailAccount) -> list[str]:
    """Return the Message-IDs of Keryx in a text."""
    return [found[0] for found in _OWN_ID.finditer(text) if found[2] == account.domain]


def list_own_threads(summary: MailSummary, account: MailAccount) -> list[str]:
    """Return the names of the threads of those answers of ours that a mail refers to, the last one first. Mail programs cut
    the list of references, and some write only the last."""
    names: list[str] = []
    for reference in reversed(summary.references):
        found = _OWN_ID.fullmatch(reference)
        if found and found[2] == account.domain and found[1] != "new":
            names.append(found[1])
    return names


def find_root(summary: MailSummary, account: MailAccount) -> str:
    """Return the id of the thread of a mail if no answer of ours names it: that of its first mail."""
    for reference in summary.references:
        found = _OWN_ID.fullmatch(reference)
        if found and found[2] == account.domain and found[1] == "new":
            return reference
    if summary.references:
        return summary.references[0]
    return summary.message_id or f"<{summary.event.replace(':', '.')}@{account.domain}>"


@dataclass(frozen=True, slots=True)
class ParsedMail:
    """The content of a mail, ready but for the files, which are stored first."""

    # As a person reads it.
    text: str
    # As the model gets it.
    model_text: str
    files: Sequence[Attachment]
    # What is missing, one sentence each.
    notes: Sequence[Phrase]


def parse_content(raw: bytes, summary: MailSummary, account: MailAccount, *, truncated: bool) -> ParsedMail:
    """Return what a mail says. A history that Keryx knows is left out of the text for the model, and the signature too."""
    content = mime_parts.read_content(raw, truncated=truncated)
    text = content.text.replace("\0", "").strip()
    known = any(is_own_id(id_, account) for id_ in summary.references)
    forwarded = _FORWARD_PREFIX.match(_REPLY_PREFIX.sub("", summary.subject)) is not None
    said = text if forwarded else mail_text.strip_history(text, known=known)
    if summary.subject and not summary.references and not said.startswith("/"):
        heading = f"Subject: {summary.subject}"
        text, said = (f"{heading}\n\n{part}".strip() for part in (text, said))
    notes = [Phrase("file.lost", name=name) for name in content.lost]
    if not text and not content.files and not notes:
        text = said = EMPTY_MAIL
    return ParsedMail(text, said, content.files, notes)


def build_inbound(
    mail: ParsedMail,
    summary: MailSummary,
    account: MailAccount,
    *,
    root: str,
    at: datetime | None,
    files: Parts,
    notes: Sequence[str],
    cursor: str,
) -> InboundMessage:
    """Return the event of a mail, with the parts of its stored files, and sentences about those that could not be stored."""
    author = summary.author
    if author is None:
        raise Invalid("the mail names no author")
    shown, said = ("\n\n".join(filter(None, (text, *notes))) for text in (mail.text, mail.model_text))
    parts: list[Part] = [Text(shown)] if shown or not files else []
    details = ReplyDetails(
        subject=summary.subject,
        references=trim_references((*summary.references, summary.message_id)),
        author=author.name or author.address,
        date=at.strftime("%Y-%m-%d %H:%M UTC") if at else "",
        quote=mail_text.quote_beginning(mail.model_text, lines=_QUOTE_LINES, characters=_QUOTE_CHARACTERS),
    )
    return InboundMessage(
        event=summary.event,
        source=Source(
            platform=PLATFORM,
            account=account.address,
            chat=author.address,
            chat_type=ChatType.DM,
            user=author.address,
            user_name=author.name or author.address.partition("@")[0],
            thread=root,
            topic=strip_reply_prefix(summary.subject) or None,
            message=summary.message_id or None,
        ),
        at=at,
        parts=(*parts, *files),
        model_text=said if said != shown else None,
        surface="gateway",
        reply=Target(
            PLATFORM,
            account.address,
            author.address,
            root,
            reply_to=summary.message_id,
            reply_context=ReplyContext(msgspec.json.encode(details).decode()),
            whole=True,
        ),
        cursor=cursor,
        state={name_thread_scope(hash_thread(root)): root},
    )


def name_thread_scope(name: str) -> str:
    """Return the scope of the state that holds the root of a thread."""
    return f"thread:{name}"


def strip_reply_prefix(subject: str) -> str:
    return _REPLY_PREFIX.sub("", subject, count=1) if _REPLY_PREFIX.match(subject) else subject


def trim_references(ids: Sequence[str]) -> tuple[str, ...]:
    """Return the first and the last ones of many references."""
    found = tuple(filter(None, ids))
    return found if len(found) <= _MOST_REFERENCES else (found[0], *found[1 - _MOST_REFERENCES :])
