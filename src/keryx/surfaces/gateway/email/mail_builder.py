"""Builds the mails that Keryx sends: an answer with both alternatives, its files and a quoted tail, in its thread."""

import re
import secrets
from datetime import datetime
from email import policy
from email.message import EmailMessage
from email.utils import format_datetime, formataddr

import msgspec

from keryx.core.media import UNKNOWN_MIME, clean_name
from keryx.core.ports.adapter import OutgoingPart
from keryx.core.text import replace_unwritable, to_single_line, truncate
from keryx.markdown import email_html
from keryx.markdown.email_html import MailMarkup
from keryx.surfaces.gateway.email.event_parser import (
    ReplyDetails,
    hash_thread,
    strip_reply_prefix,
    trim_references,
)
from keryx.surfaces.gateway.email.mail_headers import HOP_HEADER, MailPerson

_MESSAGE_ID = re.compile(r"<[!-;=?-~]{1,250}>")
_LONGEST_SUBJECT = 250
_SHORT_SUBJECT = 70
# Eight-bit lines would need a server that takes them on every hop.
_POLICY = policy.SMTP.clone(cte_type="7bit")


def create_message_id(part: OutgoingPart, domain: str) -> str:
    """Return a new Message-ID, which names the thread of the part."""
    thread = hash_thread(part.target.thread) if part.target.thread else "new"
    return f"<keryx.{thread}.{secrets.token_hex(10)}@{domain}>"


def is_message_id(text: str) -> bool:
    return _MESSAGE_ID.fullmatch(text) is not None


def read_details(part: OutgoingPart) -> ReplyDetails:
    """Return what is known of the mail that a part answers. Without it, the part goes into its thread all the same."""
    context = part.target.reply_context
    if context is not None:
        try:
            return msgspec.json.decode(context.token, type=ReplyDetails)
        except msgspec.DecodeError:
            pass
    root = part.target.thread
    return ReplyDetails(references=(root,) if is_message_id(root) else ())


def choose_subject(part: OutgoingPart, details: ReplyDetails) -> str:
    """Return `Re:` and the subject of the mail that is answered, or else the title of the session or the first words."""
    subject = to_single_line(strip_reply_prefix(details.subject))
    if subject:
        return truncate(f"Re: {subject}", _LONGEST_SUBJECT)
    lines = [to_single_line(line) for line in (part.title, *part.text.split("\n", 50))]
    line = next((line for line in lines if line), "")
    unnamed = part.texts.say("mail.files" if part.attachments else "mail.message")
    words = truncate(line, _SHORT_SUBJECT) if line else unnamed
    return f"Re: {words}" if details.references and part.title else words


def build_mail(
    part: OutgoingPart, sender: MailPerson, *, message_id: str, now: datetime, quote: bool, mark: str
) -> bytes:
    """Return a mail as it is handed to the server. `mark` is put before its text."""
    details = read_details(part)
    ascii_only = (sender.address + part.target.chat).isascii()
    message = EmailMessage(policy=_POLICY if ascii_only else policy.SMTPUTF8)
    message["From"] = formataddr((replace_unwritable(to_single_line(sender.name)), sender.address))
    message["To"] = part.target.chat
    message["Subject"] = replace_unwritable(choose_subject(part, details))
    message["Date"] = format_datetime(now)
    message["Auto-Submitted"] = "auto-replied" if details.references else "auto-generated"
    message[HOP_HEADER] = "1"
    plain = replace_unwritable(part.text)
    html = part.markup.html if isinstance(part.markup, MailMarkup) else email_html.render_plain(plain)
    if mark:
        plain, html = mark + plain, f"<p>{email_html.render_plain(mark)}</p>\n{html}"
    if quote and details.quote and part.number == 0:
        key = "mail.quoted_at" if details.date else "mail.quoted"
        heading = to_single_line(part.texts.say(key, date=details.date, author=details.author))
        quoted = replace_unwritable(details.quote)
        plain += f"\n\n{heading}\n" + "\n".join(f"> {line}".rstrip() for line in quoted.split("\n"))
        html += f"\n<p>{email_html.render_plain(heading)}</p>\n{email_html.render_quote(quoted)}"
    message.set_content(plain)
    message.add_alternative(
        f'<!DOCTYPE html>\n<html><head><meta charset="utf-8"></head><body>\n{replace_unwritable(html)}\n</body></html>\n',
        subtype="html",
    )
    for file in (*part.attachments, *([part.attachment] if part.attachment else [])):
        kind, _, subtype = (file.mime or UNKNOWN_MIME).partition(";")[0].strip().lower().partition("/")
        if not subtype or not (kind + subtype).isascii() or kind in ("message", "multipart"):
            kind, subtype = UNKNOWN_MIME.split("/")
        name = replace_unwritable(clean_name(file.name)) or "file"
        message.add_attachment(file.body, maintype=kind, subtype=subtype, filename=name)
    # Written by hand: the standard library would encode an id that is longer than a line.
    fields = [f"Message-ID: {message_id}"]
    if details.references:
        answered = part.target.reply_to
        parent = answered if is_message_id(answered) else details.references[-1]
        references = trim_references([id_ for id_ in details.references if is_message_id(id_)])
        fields += [f"In-Reply-To: {parent}", "References: " + "\r\n ".join(references or (parent,))]
    return "".join(f"{field}\r\n" for field in fields).encode() + message.as_bytes()
