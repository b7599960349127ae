"""The adapter with Postfix and Dovecot, as Debian packages them, and `keryx serve` between them."""

import asyncio
import imaplib
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from itertools import count
from pathlib import Path

import msgspec
import pytest
from tests import left_out
from tests.builders import until
from tests.fakes.email import plain_text, read
from tests.faults.node import Node
from tests.gateway.email.mail_server import (
    AUTHSERV,
    DOMAIN,
    PASSWORD,
    PEOPLE,
    MailServer,
    find_reason_missing,
)

from keryx.core.deliveries import Target
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment
from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundMessage, LinkState, OutgoingPart
from keryx.secrets import Secret
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.email import EmailAdapter, EmailSettings, read_servers
from keryx.testing import RecordingAdapterContext

_numbers = count(1)


@pytest.fixture(scope="module")
def server() -> Iterator[MailServer]:
    if reason := find_reason_missing():
        left_out.skip("tests with mail servers", why=reason, command=left_out.MAIL)
    server = MailServer()
    try:
        yield server
    finally:
        server.remove()


class Mailbox:
    """A new account of Keryx and a person, on real servers."""

    def __init__(self, server: MailServer) -> None:
        number = next(_numbers)
        self.server = server
        self.address = f"keryx{number}@{DOMAIN}"
        self.person = f"ann{number}@{PEOPLE}"
        self.settings = EmailSettings(
            address=self.address,
            imap=server.imap,
            smtp=server.smtp,
            authserv=AUTHSERV,
            password=Secret("env:PASSWORD"),
        )
        setup = AdapterSetup(platform="email", home=Path(), environ={"PASSWORD": PASSWORD})
        self.adapter = EmailAdapter(self.settings, read_servers(self.settings, setup))

    def write(self, text: str, *, author: str = "", **headers: str) -> str:
        message = EmailMessage()
        fields = {
            "From": author or f"Ann <{self.person}>",
            "To": self.address,
            "Date": format_datetime(datetime.now(UTC)),
            "Message-ID": make_msgid(domain=PEOPLE),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        for name, value in fields.items():
            message[name] = value
        message.set_content(text)
        self.server.post(message)
        return fields["Message-ID"]

    def read(self, mailbox: str = "INBOX", *, user: str = "") -> list[EmailMessage]:
        """What is in a mailbox, by a client of the standard library: of the person, unless another user is named."""
        host, _, port = self.server.imap.removeprefix("imap://").partition(":")
        with imaplib.IMAP4(host, int(port)) as imap:
            imap.login(user or self.person, PASSWORD)
            imap.select(mailbox, readonly=True)
            _, found = imap.search(None, "ALL")
            mails = [imap.fetch(number, "(BODY.PEEK[])")[1][0] for number in found[0].split()]
        return [read(mail[1]) for mail in mails if isinstance(mail, tuple)]


@asynccontextmanager
async def listening(box: Mailbox, context: RecordingAdapterContext) -> AsyncGenerator[None]:
    task = asyncio.create_task(box.adapter.listen(context))
    try:
        await until(lambda: (LinkState.CONNECTED, "") in context.link_states)
        yield
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
        await box.adapter.close()


def get_text(event: InboundMessage) -> str:
    return "".join(part.text for part in event.parts if isinstance(part, Text))


def answer(box: Mailbox, event: InboundMessage, text: str, *files: Attachment) -> OutgoingPart:
    rendered = box.adapter.parts(text)[0]
    part = OutgoingPart(
        delivery=DeliveryId("d1"),
        number=0,
        key="",
        target=event.reply or Target("email"),
        text=rendered.text,
        markup=rendered.markup,
        attachments=files,
    )
    return msgspec.structs.replace(part, key=box.adapter.create_send_key(part))


async def test_mails_are_pushed_answered_in_their_thread_and_found_in_sent(server: MailServer) -> None:
    box, context = Mailbox(server), RecordingAdapterContext()
    async with listening(box, context):
        asked = await asyncio.to_thread(box.write, "Grüße, how are you?", Subject="Frage: ä")
        [event] = await context.wait_for(1, seconds=30)
        assert get_text(event) == "Subject: Frage: ä\n\nGrüße, how are you?"
        part = answer(
            box,
            event,
            "**Fine**, thank you. 😀",
            Attachment(name="a.pdf", mime="application/pdf", body=b"%PDF"),
        )
        assert await box.adapter.find_sent(part) is None
        assert await box.adapter.send(part) == part.key
        assert await box.adapter.find_sent(part) == part.key
        await until(lambda: bool(box.read()))
    [mail] = await asyncio.to_thread(box.read)
    assert plain_text(mail) == "Fine, thank you. 😀"
    assert (mail["Subject"], mail["In-Reply-To"], mail["Message-ID"]) == ("Re: Frage: ä", asked, part.key)
    assert [file.get_content() for file in mail.iter_attachments()] == [b"%PDF"]
    [copy] = await asyncio.to_thread(box.read, "Sent", user=box.address)
    assert copy["Message-ID"] == part.key


async def test_a_forged_result_counts_for_nothing_and_automatic_mail_is_ignored(server: MailServer) -> None:
    box, context = Mailbox(server), RecordingAdapterContext()
    async with listening(box, context):
        forged = f"{AUTHSERV}; dmarc=pass header.from=hub.test"
        await asyncio.to_thread(box.write, "let me in", author=f"eve@{DOMAIN}", Authentication_Results=forged)
        await asyncio.to_thread(box.write, "away", Auto_Submitted="auto-replied")
        await asyncio.to_thread(box.write, "hello")
        [event] = await context.wait_for(1, seconds=30)
    assert get_text(event) == "hello"


async def test_a_restart_of_dovecot_and_a_new_uidvalidity_lose_nothing(server: MailServer) -> None:
    box, context = Mailbox(server), RecordingAdapterContext()
    async with listening(box, context):
        await asyncio.to_thread(box.write, "one")
        await context.wait_for(1, seconds=30)
        await asyncio.to_thread(server.stop_dovecot)
        await asyncio.to_thread(server.renumber, box.address)
        await asyncio.to_thread(server.start_dovecot)
        await asyncio.to_thread(box.write, "two")
        await until(lambda: "two" in [get_text(event) for event in context.events])
    # What was handed over again has the same id, by which the engine recognises it.
    assert len({event.event for event in context.events}) == 2


async def test_serve_answers_by_mail(server: MailServer, tmp_path: Path) -> None:
    box = Mailbox(server)
    environ = {
        "KERYX_EMAIL_ADDRESS": box.address,
        "KERYX_EMAIL_PASSWORD": PASSWORD,
        "KERYX_EMAIL_IMAP": server.imap,
        "KERYX_EMAIL_SMTP": server.smtp,
        "KERYX_EMAIL_AUTHSERV": AUTHSERV,
        "KERYX_EMAIL_ALLOW": "*",
    }
    program = str(Path(sys.executable).with_name("keryx"))

    def read_status() -> str:
        command = [program, "gateway", "status", "--json"]
        environment = {**os.environ, "KERYX_HOME": str(tmp_path)}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60).stdout

    serve = [program, "serve", "--port", "0", "--json"]
    with Node("", tmp_path, command=serve, **environ) as node:
        node.start()
        await until(lambda: '"connected"' in read_status())
        await asyncio.to_thread(box.write, "hello by mail", author=f"eve@{DOMAIN}")
        await asyncio.to_thread(box.write, "hello by mail")
        await until(lambda: bool(box.read()))
        assert "1 mail was ignored" in read_status()
    [mail] = box.read()
    assert plain_text(mail) == "hello by mail"
