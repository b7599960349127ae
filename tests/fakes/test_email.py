"""The clients of the standard library speak with the fake as with any provider, so it is not made up."""

import imaplib
import smtplib
from email.message import EmailMessage

import pytest
from tests.fakes.email import ADDRESS, PASSWORD, FakeMail


def split(url: str) -> tuple[str, int]:
    host, _, port = url.partition("://")[2].partition(":")
    return host, int(port)


def build_mail() -> EmailMessage:
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = ADDRESS, "ann@people.test", "Hi"
    message["Date"], message["Message-ID"] = "Sun, 01 Mar 2026 12:00:00 +0000", "<a@hub.test>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content("hello\n.\n")
    message.add_alternative("<p>hello</p>", subtype="html")
    return message


def test_smtplib_sends_a_mail() -> None:
    with FakeMail() as fake:
        with smtplib.SMTP(*split(fake.smtp)) as smtp:
            smtp.login(ADDRESS, PASSWORD)
            smtp.send_message(build_mail())
        assert fake.texts("ann@people.test") == ["hello\n."] and fake.errors == []
        with smtplib.SMTP(*split(fake.smtp)) as smtp, pytest.raises(smtplib.SMTPAuthenticationError):
            smtp.login(ADDRESS, "wrong")


def test_imaplib_reads_stores_and_finds_mails() -> None:
    with FakeMail() as fake:
        fake.write("ann@people.test", "hello", message_id="<m@people.test>")
        with imaplib.IMAP4(*split(fake.imap)) as imap:
            imap.authenticate("PLAIN", lambda _: f"\0{ADDRESS}\0{PASSWORD}".encode())
            assert {"IDLE", "UIDPLUS"} <= set(imap.capabilities)
            assert imap.select("INBOX", readonly=True)[1] == [b"1"]
            assert imap.uid("SEARCH", "UID 1:*") == ("OK", [b"1"])
            assert imap.uid("SEARCH", 'HEADER Message-ID "<m@people.test>"') == ("OK", [b"1"])
            _, found = imap.uid("FETCH", "1", "(UID INTERNALDATE BODY.PEEK[]<0.9999>)")
            assert isinstance(found[0], tuple) and b"hello" in found[0][1]
            assert imap.append('"Gesendet &AOQ-"', "(\\Seen \\Draft)", "", build_mail().as_bytes())[0] == "OK"
            imap.select('"Gesendet &AOQ-"')
            imap.uid("STORE", "2", "-FLAGS", "(\\Draft)")
        assert fake.sent[0].flags == {b"\\SEEN"} and fake.errors == []


def test_what_no_server_takes_is_noted() -> None:
    with FakeMail() as fake, imaplib.IMAP4(*split(fake.imap)) as imap:
        with pytest.raises(imaplib.IMAP4.error):
            imap.xatom("XNONSENSE")
        assert fake.errors
