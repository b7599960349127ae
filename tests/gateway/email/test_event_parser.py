"""Mails as they are on the wire, and what Keryx makes of them."""

import base64
from collections.abc import Callable
from datetime import UTC, datetime

import msgspec
import pytest

from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundFailure, InboundMessage
from keryx.surfaces.gateway.email import bounces, event_parser
from keryx.surfaces.gateway.email.event_parser import MailAccount, MailSummary, ParsedMail, ReplyDetails
from keryx.surfaces.gateway.email.mail_headers import decode_bytes, decode_words
from keryx.surfaces.gateway.email.mime_parts import MAX_TEXT_CHARS

ACCOUNT = MailAccount(address="keryx@hub.test", trusted=frozenset({"mx.hub.test"}))
PASSED = "Authentication-Results: mx.hub.test; dmarc=pass header.from=people.test\r\n"
OWN = "<keryx.0123456789ab.0123456789abcdef0123@hub.test>"
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def mail(
    body: str | bytes = "Hello",
    *,
    header: str = "",
    checked: str = PASSED,
    author: str = "Ann <ann@people.test>",
) -> bytes:
    head = f"{checked}From: {author}\r\nTo: keryx@hub.test\r\nMessage-ID: <m1@people.test>\r\n{header}\r\n"
    return head.encode() + (body.encode() if isinstance(body, str) else body)


def read(raw: bytes) -> MailSummary:
    head, separator, _ = raw.partition(b"\r\n\r\n")
    return event_parser.read_summary(head + separator, ACCOUNT)


def parse(raw: bytes) -> ParsedMail:
    return event_parser.parse_content(raw, read(raw), ACCOUNT, truncated=False)


def build(raw: bytes) -> InboundMessage:
    summary = read(raw)
    return event_parser.build_inbound(
        parse(raw), summary, ACCOUNT, root=event_parser.find_root(summary, ACCOUNT), at=AT, files=(), notes=(), cursor="1.1.0.0"
    )  # fmt: skip


def test_a_mail_is_a_message_of_its_author_in_a_thread_of_its_own() -> None:
    event = build(
        mail("How are you?", header="Subject: A question\r\n", author='"Doe, Ann" <Ann@People.TEST>')
    )
    assert (event.source.chat, event.source.user, event.source.user_name) == (
        "ann@people.test",
        "ann@people.test",
        "Doe, Ann",
    )
    assert (event.source.thread, event.source.topic) == ("<m1@people.test>", "A question")
    assert event.parts == (Text("Subject: A question\n\nHow are you?"),)
    assert (event.event, event.cursor) == ("<m1@people.test> ann@people.test", "1.1.0.0")
    assert event.reply is not None and event.reply.reply_context is not None
    assert (event.reply.chat, event.reply.reply_to) == ("ann@people.test", "<m1@people.test>")
    details = msgspec.json.decode(event.reply.reply_context.token, type=ReplyDetails)
    assert details.subject == "A question" and details.references == ("<m1@people.test>",)


@pytest.mark.parametrize(
    ("header", "root"),
    [
        ("References: <a@x> <b@x>\r\nIn-Reply-To: <b@x>\r\n", "<a@x>"),
        ("In-Reply-To: <b@x>\r\n", "<b@x>"),
        ("In-Reply-To: Ann's mail of Monday <b@x> (fine)\r\n", "<b@x>"),
        ("References: not an id\r\n", "<m1@people.test>"),
        ("References: <m1@people.test>\r\n", "<m1@people.test>"),
        ("References:\r\n <a@x>\r\n\t<b@x>\r\n", "<a@x>"),
        (f"References: <keryx.new.{'0' * 20}@hub.test>\r\n", f"<keryx.new.{'0' * 20}@hub.test>"),
    ],
)
def test_a_thread_is_named_by_its_first_mail(header: str, root: str) -> None:
    assert event_parser.find_root(read(mail(header=header)), ACCOUNT) == root


def test_an_answer_of_ours_names_the_thread_even_if_it_is_the_only_reference() -> None:
    summary = read(mail(header=f"In-Reply-To: {OWN}\r\n"))
    assert event_parser.list_own_threads(summary, ACCOUNT) == ["0123456789ab"]
    foreign = OWN.replace("hub.test", "elsewhere.test")
    assert event_parser.list_own_threads(read(mail(header=f"References: {foreign}\r\n")), ACCOUNT) == []


def test_a_mail_without_an_id_is_known_by_its_content_wherever_it_is_stored() -> None:
    raw = mail().replace(b"Message-ID: <m1@people.test>\r\n", b"Date: Sun, 01 Mar 2026 12:00:00 +0000\r\n")
    assert read(raw).event == ""
    moved = b"Received: from elsewhere\r\n" + raw + b"\r\n"
    assert event_parser.hash_mail(raw) == event_parser.hash_mail(moved)
    assert event_parser.hash_mail(raw) != event_parser.hash_mail(raw.replace(b"Hello", b"Hullo"))


def test_two_authors_may_use_one_message_id() -> None:
    other = mail(author="eve@people.test")
    assert read(mail()).event != read(other).event


@pytest.mark.parametrize(
    ("results", "believed"),
    [
        ("mx.hub.test; dmarc=pass header.from=people.test", True),
        ("mx.hub.test 1; spf=fail; dmarc=pass (p=none dis=none) header.from=people.test", True),
        ("MX.HUB.TEST; DMARC=PASS Header.From=People.Test", True),
        ("mx.hub.test; dkim=pass header.d=people.test", True),
        ("mx.hub.test; dkim=pass header.i=@people.test header.s=2026", True),
        ("mx.hub.test; dkim=fail header.d=people.test; spf=pass smtp.mailfrom=ann@people.test", True),
        ("mx.hub.test; dmarc=none header.from=people.test; spf=pass smtp.mailfrom=people.test", True),
        ("mx.hub.test; none", False),
        ("mx.hub.test", False),
        ("evil.test; dmarc=pass header.from=people.test", False),
        ("mx.hub.test.evil.test; dmarc=pass header.from=people.test", False),
        ("mx.hub.test; dmarc=fail header.from=people.test; dkim=pass header.d=people.test", False),
        ("mx.hub.test; dmarc=pass header.from=evil.test", False),
        ("mx.hub.test; dmarc=pass", False),
        ("mx.hub.test; dkim=pass header.d=evil.test; spf=pass smtp.mailfrom=bounces@evil.test", False),
        ("mx.hub.test; dkim=pass header.d=test", False),
        ("mx.hub.test; dkim=fail (dmarc=pass header.from=people.test) header.d=people.test", False),
        ('mx.hub.test; spf=softfail smtp.mailfrom="dmarc=pass header.from=people.test"', False),
    ],
)
def test_only_a_result_of_our_own_server_makes_an_author(results: str, believed: bool) -> None:
    assert (read(mail(checked=f"Authentication-Results: {results}\r\n")).reason == "") is believed


def test_results_without_a_name_count_if_that_is_allowed() -> None:
    checked = "Authentication-Results: spf=pass (sender IP is 1.2.3.4) smtp.mailfrom=people.test; dmarc=pass header.from=people.test\r\n"
    assert "authserv" in read(mail(checked=checked)).reason
    nameless = MailAccount(address="keryx@hub.test", trusted=frozenset({"-"}))
    head, _, _ = mail(checked=checked).partition(b"\r\n\r\n")
    assert event_parser.read_summary(head, nameless).reason == ""
    failed = head.replace(b"dmarc=pass", b"dmarc=fail")
    assert "DMARC" in event_parser.read_summary(failed, nameless).reason
    named, _, _ = mail().partition(b"\r\n\r\n")
    assert "mx.hub.test" in event_parser.read_summary(named, nameless).reason
    trusting = MailAccount(address="keryx@hub.test", trusted=frozenset({"*"}))
    assert event_parser.read_summary(failed, trusting).reason == ""


def test_a_result_below_the_topmost_one_counts_for_nothing() -> None:
    failed = "Authentication-Results: mx.hub.test; dmarc=fail header.from=people.test\r\n"
    assert "DMARC" in read(mail(checked=failed + PASSED)).reason
    foreign = "Authentication-Results: evil.test; dmarc=pass header.from=people.test\r\n"
    assert "evil.test" in read(mail(checked=foreign + PASSED)).reason
    assert "no result" in read(mail(checked="")).reason


@pytest.mark.parametrize(
    "author",
    [
        "ann@people.test, bob@people.test",
        "Ann <ann@people.test>, Bob <bob@people.test>",
        "",
        "undisclosed-recipients:;",
        "Ann <ann@people.test> <bob@people.test>",
        "<ann@people.test>\r\nFrom: bob@people.test",
        "Ann <@evil.test:ann@people.test>",
        '"ann@people.test" <>',
    ],
)
def test_a_mail_without_one_clear_author_is_ignored(author: str) -> None:
    assert "author" in read(mail(author=author)).reason


@pytest.mark.parametrize(
    "header",
    [
        "Auto-Submitted: auto-replied\r\n",
        "Auto-Submitted: auto-generated; owner=x\r\n",
        "Precedence: bulk\r\n",
        "Precedence: LIST\r\n",
        "Precedence: junk\r\n",
        "List-Id: <all.people.test>\r\n",
        "List-Unsubscribe: <https://people.test/u>\r\n",
        "X-Auto-Response-Suppress: All\r\n",
        "X-Autoreply: yes\r\n",
        "Return-Path: <>\r\n",
        "Content-Type: multipart/report; report-type=delivery-status; boundary=x\r\n",
        "X-Keryx-Hop: 1\r\n",
    ],
)
def test_automatic_mail_is_never_answered(header: str) -> None:
    assert read(mail(header=header)).reason


@pytest.mark.parametrize("local", ["MAILER-DAEMON", "no-reply", "noreply", "postmaster", "bounces+17"])
def test_an_address_that_nobody_reads_is_never_answered(local: str) -> None:
    assert read(mail(author=f"{local}@people.test")).reason


def test_a_person_may_say_that_their_mail_is_not_automatic() -> None:
    assert read(mail(header="Auto-Submitted: no\r\nX-Auto-Response-Suppress: None\r\n")).reason == ""


STATUS = """Reporting-MTA: dns; mx.hub.test
Arrival-Date: Sun, 1 Mar 2026 12:00:00 +0000

Final-Recipient: rfc822; ann@elsewhere.test
Original-Recipient: rfc822;Ann@People.test
Action: failed
Status: 5.1.1
Diagnostic-Code: smtp; 550 5.1.1 <ann@elsewhere.test>: no such
 person here
"""


def report(status: str = STATUS, *, original: str = f"Message-ID: {OWN}\n", header: str = "") -> bytes:
    """A report of RFC 3464, as Postfix writes it."""
    parts = [
        "Content-Type: text/plain\n\nI'm sorry to have to inform you that your message could not be delivered.\n",
        f"Content-Type: message/delivery-status\n\n{status}",
        f"Content-Type: message/rfc822\n\nFrom: keryx@hub.test\n{original}Subject: Re: Hi\n\nThe answer\n",
    ]
    body = "".join(f"--x\n{part}\n" for part in parts) + "--x--\n"
    kind = "multipart/report; report-type=delivery-status; boundary=x"
    return mail(
        body,
        header=f"Auto-Submitted: auto-replied\r\nContent-Type: {kind}\r\n{header}",
        author="MAILER-DAEMON@hub.test (Mail Delivery System)",
        checked="Return-Path: <>\r\n",
    )


def read_bounce(raw: bytes) -> InboundFailure | None:
    summary = read(raw)
    assert summary.bounce and summary.reason
    return bounces.parse_bounce(raw, summary, ACCOUNT)


def test_a_report_says_which_mail_was_not_delivered_and_why() -> None:
    failure = read_bounce(report())
    assert failure is not None
    assert (failure.message, failure.source.chat, failure.delivery) == (OWN, "ann@people.test", None)
    assert failure.reason == (
        "the mail server of the person has not taken it: 550 5.1.1 <ann@elsewhere.test>: no such person here"
    )
    assert failure.event == "<m1@people.test> mailer-daemon@hub.test"
    assert failure.gone


def test_a_full_mailbox_is_not_gone() -> None:
    failure = read_bounce(report(STATUS.replace("Status: 5.1.1", "Status: 5.2.2")))
    assert failure is not None and not failure.gone


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (STATUS.partition("Diagnostic-Code")[0], "status 5.1.1"),
        (STATUS.partition("Status")[0], "no reason is given"),
        (
            STATUS.replace("Action: failed", "Action: delivered") + "\nAction: failed\nStatus: 5.2.2\n",
            "status 5.2.2",
        ),
    ],
)
def test_a_report_may_say_less(status: str, reason: str) -> None:
    failure = read_bounce(report(status))
    assert failure is not None and failure.reason.endswith(reason)


@pytest.mark.parametrize("action", ["delayed", "delivered", "relayed", "expanded", ""])
def test_a_report_of_anything_but_a_failure_changes_nothing(action: str) -> None:
    assert read_bounce(report(STATUS.replace("failed", action))) is None


def test_a_report_about_a_mail_of_others_changes_nothing() -> None:
    assert read_bounce(report(original="Message-ID: <other@people.test>\n")) is None
    foreign = OWN.replace("hub.test", "evil.test")
    assert read_bounce(report(original=f"Message-ID: {foreign}\n")) is None


def test_a_report_without_the_mail_refers_to_it() -> None:
    failure = read_bounce(report(original="", header=f"In-Reply-To: {OWN}\r\n"))
    assert failure is not None and failure.message == OWN


def test_the_text_of_an_older_server_is_a_report_too() -> None:
    body = f"Hi. This is the qmail-send program at hub.test.\n\n<ann@people.test>:\n550 no mailbox here\n\n--- Below this line\nMessage-ID: {OWN}\n"
    raw = mail(body, header="Subject: failure notice\r\n", author="MAILER-DAEMON@people.test")
    failure = read_bounce(raw)
    assert failure is not None and failure.message == OWN
    assert failure.reason == "the mail server of the person has not taken it: 550 no mailbox here"


def test_an_answer_of_a_person_about_a_failure_is_no_report() -> None:
    raw = mail("It says failure notice", header=f"Subject: Undelivered?\r\nIn-Reply-To: {OWN}\r\n")
    assert not read(raw).bounce and read(raw).reason == ""
    receipt = mail(header="Content-Type: multipart/report; report-type=disposition-notification\r\n")
    assert not read(receipt).bounce and read(receipt).reason


@pytest.mark.parametrize(
    "raw",
    [
        report()[:600],
        report(status="\n\n\n"),
        report(status="Action: failed\n" * 5000),
        report().replace(b"boundary=x", b"boundary="),
        report().replace(b"message/rfc822", b"application/octet-stream"),
    ],
    ids=["cut", "empty", "long", "boundary", "original"],
)
def test_a_broken_report_is_read_as_far_as_it_goes(raw: bytes) -> None:
    failure = read_bounce(raw)
    assert failure is None or failure.message == OWN


def test_keryx_does_not_answer_itself() -> None:
    own = "Authentication-Results: mx.hub.test; dmarc=pass header.from=hub.test\r\n"
    assert "itself" in read(mail(author="Keryx <KERYX@hub.test>", checked=own)).reason
    raw = mail().replace(b"<m1@people.test>", OWN.encode())
    assert "itself" in read(raw).reason


def test_what_is_quoted_and_signed_is_kept_for_people_and_left_out_for_the_model() -> None:
    body = "Yes, please.\n\nOn Sun, 1 Mar 2026 at 12:00, Keryx <keryx@hub.test>\nwrote:\n> Shall I?\n>\n> Yours\n-- \nAnn\nTel. 1"
    found = parse(mail(body, header=f"In-Reply-To: {OWN}\r\n"))
    assert found.text == body
    event = build(mail(body, header=f"In-Reply-To: {OWN}\r\n"))
    assert event.model_text == "Yes, please." and event.parts == (Text(body),)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("Top.\n\n> quoted\n> more", "Top."),
        ("Oben.\n\nAm 01.03.26 um 12:00 schrieb Keryx:\n> alt", "Oben."),
        ("Voilà.\n\nLe dim. 1 mars 2026 à 12:00, Keryx <k@h.test> a écrit :\n> vieux", "Voilà."),
        ("Top.\n\n-----Original Message-----\nFrom: Keryx\nold", "Top."),
        (
            "Top.\n\n________________________________\nFrom: Keryx <k@h>\nSent: Sunday\nTo: Ann\nSubject: x\n\nold",
            "Top.",
        ),
        ("Top.\n\nVon: Keryx\nGesendet: Sonntag\nAn: Ann\nBetreff: x\n\nalt", "Top."),
        ("> One?\nYes.\n> Two?\nNo.", "> One?\nYes.\n> Two?\nNo."),
        ("> only\n> a quotation", "> only\n> a quotation"),
        ("Hi\n-- \nAnn\nPhone", "Hi"),
        ("Hi\n\nSent from my iPhone", "Hi"),
        ("Hi\n\nVon meinem iPhone gesendet", "Hi"),
        ("a -- b\n--\nAnn", "a -- b"),
        ("From: the start, I knew\nit", "From: the start, I knew\nit"),
        ("On Monday he wrote:\nsomething else", "On Monday he wrote:\nsomething else"),
    ],
)
def test_the_model_gets_what_the_person_wrote(body: str, said: str) -> None:
    assert parse(mail(body, header=f"In-Reply-To: {OWN}\r\n")).model_text == said


def test_a_history_that_keryx_does_not_know_is_given_to_the_model() -> None:
    body = "What do you think?\n\nOn Monday, Bob wrote:\n> Let us sell it."
    assert "sell" in parse(mail(body, header="In-Reply-To: <b@x>\r\n")).model_text
    forwarded = f"In-Reply-To: {OWN}\r\nSubject: Fwd: Offer\r\n"
    assert "sell" in parse(mail(body, header=forwarded)).model_text


def test_a_command_in_a_new_mail_is_still_a_command() -> None:
    event = build(mail("/status\n-- \nAnn", header="Subject: hi\r\n"))
    assert event.said == (Text("/status"),)


def test_html_becomes_readable_text() -> None:
    html = (
        "<html><head><style>p{color:red}</style><title>x</title></head><body><p>Hello&nbsp;<b>you</b>,</p>"
        '<p>see <a href="https://example.org/a?b=1&amp;c=2">the page</a> &lt;now&gt;</p><ul><li>one<li>two</ul>'
        "<table><tr><td>a</td><td>b</td></tr></table><script>alert(1)</script><pre>x\n  y</pre>"
        '<img alt="a cat" src="cid:1"><blockquote>old<br>words</blockquote></body></html>'
    )
    found = parse(mail(html, header="Content-Type: text/html; charset=utf-8\r\n"))
    assert found.text == (
        "Hello you,\n\nsee the page (https://example.org/a?b=1&c=2) <now>\n\n• one\n• two\n\na | b\n\nx\n  y\n\n"
        "[a cat]\n\n> old\n> words"
    )


def test_flowed_lines_are_one_paragraph() -> None:
    body = "This is one \nparagraph.\n> quoted \n> too\n\n-- \nAnn"
    header = "Content-Type: text/plain; format=flowed\r\n"
    assert parse(mail(body, header=header)).text == "This is one paragraph.\n> quoted too\n\n-- \nAnn"
    header = "Content-Type: text/plain; format=flowed; delsp=yes\r\n"
    assert parse(mail("東京 \nタワー", header=header)).text == "東京タワー"


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        ("Grüße".encode("latin-1"), "iso-8859-1", "Grüße"),
        ("“quoted”".encode("cp1252"), "iso-8859-1", "“quoted”"),
        ("你好".encode("gb18030"), "gb2312", "你好"),
        ("こんにちは".encode("iso-2022-jp"), "iso-2022-jp", "こんにちは"),
        ("Grüße".encode(), "us-ascii", "Grüße"),
        ("Grüße".encode(), "x-unknown", "Grüße"),
        (b"\xff\xfe\x80", "utf-8", "ÿþ€"),
        (b"abc", "punycode", "abc"),
        (b"abc", "hex", "abc"),
        (b"abc", "\0", "abc"),
    ],
)
def test_any_charset_gives_a_text(data: bytes, charset: str, text: str) -> None:
    assert decode_bytes(data, charset) == text


def test_encoded_words_are_decoded_on_one_line() -> None:
    assert (
        decode_words(
            "=?utf-8?q?Gr=C3=BC=C3=9Fe?= =?iso-8859-1?b?" + base64.b64encode(b"f\xfcr").decode() + "?= you"
        )
        == "Grüßefür you"
    )
    assert decode_words("a\r\n b\x00\u202ec") == "a bc"
    assert (decode_words("=?nope?q?x?="), decode_words("=?utf-8?b?!!!?=")) == ("x", "")


def multipart(*parts: str, kind: str = "mixed") -> bytes:
    body = "".join(f"--x\r\n{part}\r\n" for part in parts)
    return mail(f"{body}--x--\r\n", header=f'Content-Type: multipart/{kind}; boundary="x"\r\n')


def test_the_plain_text_of_alternatives_is_read_and_files_beside_it_are_kept() -> None:
    ics = "Content-Type: text/calendar; method=REQUEST\r\n\r\nBEGIN:VCALENDAR"
    raw = multipart(
        "Content-Type: text/plain\r\n\r\nplain",
        "Content-Type: text/html\r\n\r\n<p>html</p>",
        ics,
        kind="alternative",
    )
    found = parse(raw)
    assert found.text == "plain"
    assert [(f.name, f.mime, f.body) for f in found.files] == [
        ("file-1.ics", "text/calendar", b"BEGIN:VCALENDAR")
    ]


@pytest.mark.parametrize(
    ("field", "name"),
    [
        ("Content-Disposition: attachment; filename=winmail.dat", "winmail.dat"),
        ("Content-Disposition: attachment; filename*=utf-8''%e2%82%ac%20rates.pdf", "€ rates.pdf"),
        ("Content-Disposition: attachment; filename*0=long; filename*1=name.txt", "longname.txt"),
        ('Content-Type: image/png; name="=?utf-8?q?K=C3=A4fer.png?="', "Käfer.png"),
        ('Content-Disposition: inline; filename="../../etc/passwd"', "passwd"),
        ("Content-Disposition: attachment", "file-1"),
    ],
)
def test_files_have_their_names(field: str, name: str) -> None:
    raw = multipart(
        "Content-Type: text/plain\r\n\r\nlook",
        f"{field}\r\nContent-Transfer-Encoding: base64\r\n\r\nAAE=\r\n",
    )
    [file] = parse(raw).files
    assert (file.name.removesuffix(".txt"), file.body) == (name.removesuffix(".txt"), b"\x00\x01")


def test_a_mail_within_a_mail_is_a_file() -> None:
    found = parse(
        multipart(
            "Content-Type: text/plain\r\n\r\nsee below",
            "Content-Type: message/rfc822\r\n\r\nSubject: x\r\n\r\ninner",
        )
    )
    assert found.text == "see below" and [f.name for f in found.files] == ["file-1.eml"]


def test_a_mail_that_was_fetched_in_part_names_the_file_that_is_cut() -> None:
    raw = multipart(
        "Content-Type: text/plain\r\n\r\nlook", "Content-Disposition: attachment; filename=a.bin\r\n\r\nabc"
    )
    cut = raw[: raw.rindex(b"abc") + 2]
    found = event_parser.parse_content(cut, read(raw), ACCOUNT, truncated=True)
    assert found.text == "look" and not found.files and "a.bin" in found.notes[0]


def test_an_empty_mail_says_so() -> None:
    assert parse(mail("")).text == event_parser.EMPTY_MAIL


def _nest(levels: int) -> bytes:
    body = "".join(
        f'--b{n}\r\nContent-Type: multipart/mixed; boundary="b{n + 1}"\r\n\r\n' for n in range(levels)
    )
    return mail(body + "deep" * 1000, header='Content-Type: multipart/mixed; boundary="b0"\r\n')


HOSTILE: dict[str, Callable[[], bytes]] = {
    "nested parts": lambda: _nest(20_000),
    "many parts": lambda: multipart(*(["Content-Type: text/plain\r\n\r\nx"] * 100_000)),
    "short lines": lambda: mail("\n" * 10_000_000),
    "open tags": lambda: mail("<a <!-- <b " * 200_000, header="Content-Type: text/html\r\n"),
    "open quotes": lambda: mail("<blockquote>" * 100_000 + "x", header="Content-Type: text/html\r\n"),
    "open brackets": lambda: mail(author="(" * 200_000 + "ann@people.test"),
    "many references": lambda: mail(header="References: " + "<a@b> " * 100_000 + "\r\n"),
    "encoded words": lambda: mail(header="Subject: " + "=?utf-8?q?=41?= " * 50_000 + "\r\n"),
    "parameters": lambda: mail(header="Content-Type: text/plain" + "; a*0*=b" * 50_000 + "\r\n"),
    "quotations": lambda: mail("> " * 1_000_000 + "\n" + "On wrote:" * 100_000),
    "one line": lambda: mail("On " + "a" * 5_000_000 + " wrote:\n> x", header=f"In-Reply-To: {OWN}\r\n"),
    "comments": lambda: mail(checked="Authentication-Results: " + "(" * 100_000 + "\r\n"),
    "bad base64": lambda: mail("=" * 1_000_000, header="Content-Transfer-Encoding: base64\r\n"),
    "fields": lambda: mail(header="X: y\r\n" * 200_000),
    "nothing but controls": lambda: mail(b"\x00\x1b\xff" * 100_000),
}


# What takes time in proportion to the square of the size would take minutes.
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_mail_is_parsed_within_bounds(name: str) -> None:
    found = parse(HOSTILE[name]())
    assert len(found.text) <= MAX_TEXT_CHARS + 300 and len(found.files) <= 50
