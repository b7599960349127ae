"""The adapter against a provider that fails as real ones do."""

import asyncio
import base64
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.builders import until
from tests.fakes.email import ADDRESS, PASSWORD, START, FakeMail, plain_text
from tests.gateway.email.certificates import create_certificate
from tests.gateway.email.conftest import Connect

from keryx.core.deliveries import REPEAT_MARK, ReplyContext, Target
from keryx.core.errors import Forbidden, Invalid, NotSent, Refused, TargetGone, Throttled, Uncertain
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment
from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundMessage, LinkState, OutgoingPart
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.email import EmailAdapter, make
from keryx.surfaces.gateway.email.event_parser import ReplyDetails, hash_thread
from keryx.surfaces.gateway.email.event_receiver import (
    LARGE_BYTES,
    POSITION_SCOPE,
    begin_again,
    choose_position,
    parse_position,
)
from keryx.testing import RecordingAdapterContext
from keryx.testing.fault_injection import PlatformFaults

ANN = "ann@people.test"
BOB = "bob@people.test"
FIRST = "1.0.0.0"


def build_part(adapter: EmailAdapter, text: str = "hello", **fields: Any) -> OutgoingPart:
    target = fields.pop("target", Target("email", ADDRESS, ANN))
    part = OutgoingPart(delivery=DeliveryId("d1"), number=0, key="", target=target, **fields)
    rendered = adapter.parts(text)[0] if text else None
    if rendered:
        part = msgspec.structs.replace(part, text=rendered.text, markup=rendered.markup)
    return msgspec.structs.replace(part, key=adapter.create_send_key(part))


@asynccontextmanager
async def listening(
    adapter: EmailAdapter, context: RecordingAdapterContext | None = None
) -> AsyncGenerator[RecordingAdapterContext]:
    context = context or RecordingAdapterContext(FIRST)
    task = asyncio.create_task(adapter.listen(context))
    try:
        yield context
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})


def get_text(event: InboundMessage) -> str:
    return "".join(part.text for part in event.parts if isinstance(part, Text))


async def test_an_answer_is_one_mail_in_its_thread_with_both_alternatives_and_its_files(
    fake: FakeMail, connect: Connect
) -> None:
    adapter = await connect()
    async with listening(adapter) as context:
        asked = fake.write(
            f"Ann <{ANN}>", "How?", subject="RE: Re: A plan", references=["<root@people.test>"]
        )
        [event] = await context.wait_for(1)
    part = build_part(
        adapter,
        "So: **bold** <b>",
        target=event.reply,
        attachments=(Attachment(name="plän.pdf", mime="application/pdf", body=b"%PDF"),),
    )
    assert await adapter.send(part) == part.key
    [mail] = fake.mails(ANN)
    assert (mail["Subject"], mail["In-Reply-To"]) == ("Re: A plan", asked)
    assert mail["References"].split() == ["<root@people.test>", asked]
    assert (mail["Message-ID"], mail["From"], mail["To"]) == (part.key, f"Keryx <{ADDRESS}>", ANN)
    assert (mail["Auto-Submitted"], mail["X-Keryx-Hop"]) == ("auto-replied", "1")
    plain, html = (str(body.get_content()) for kind in ("plain", "html") if (body := mail.get_body((kind,))))
    assert plain.replace("\r\n", "\n") == "So: bold <b>\n\nOn 2026-03-01 12:00 UTC, Ann wrote:\n> How?\n"
    assert "<strong>bold</strong> &lt;b&gt;" in html and '<blockquote type="cite"' in html
    assert [(a.get_filename(), a.get_content()) for a in mail.iter_attachments()] == [("plän.pdf", b"%PDF")]


async def test_a_mail_that_answers_none_has_the_title_as_its_subject(
    fake: FakeMail, connect: Connect
) -> None:
    adapter = await connect(name="Kéryx, the hub")
    await adapter.send(build_part(adapter, "Good morning.", title="The weather"))
    await adapter.send(build_part(adapter, "Good evening.\nIt rains."))
    first, second = fake.mails(ANN)
    assert (first["Subject"], second["Subject"]) == ("The weather", "Good evening.")
    assert first["In-Reply-To"] is None and first["Auto-Submitted"] == "auto-generated"
    assert first["From"].addresses[0].display_name == "Kéryx, the hub"


async def test_a_thread_without_its_context_is_continued(fake: FakeMail, connect: Connect) -> None:
    adapter = await connect()
    target = Target("email", ADDRESS, ANN, "<root@people.test>")
    part = build_part(adapter, "News", target=target, title="The weather")
    await adapter.send(part)
    [mail] = fake.mails(ANN)
    assert (mail["Subject"], mail["In-Reply-To"], mail["References"]) == (
        "Re: The weather",
        "<root@people.test>",
        "<root@people.test>",
    )
    assert hash_thread("<root@people.test>") in part.key


async def test_what_a_stranger_wrote_cannot_add_fields_to_an_answer(fake: FakeMail, connect: Connect) -> None:
    adapter = await connect()
    details = ReplyDetails(
        subject="x\r\nBcc: all@people.test",
        references=("<a@b>\r\nBcc: all@people.test", "<c@d>"),
        author="Ann\r\n\r\nbody",
        quote="\r\n.\r\nQUIT",
    )
    token = ReplyContext(msgspec.json.encode(details).decode())
    target = Target("email", ADDRESS, ANN, "<c@d>", "<c@d>\r\nBcc: x", token)
    await adapter.send(build_part(adapter, ".\n.\n..dots", target=target))
    [mail] = fake.mails(ANN)
    assert mail["Bcc"] is None and mail["References"] == "<c@d>"
    assert mail["Subject"] == "Re: x Bcc: all@people.test"
    assert plain_text(mail).startswith(".\n.\n..dots")


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("550 5.1.1 no such user", TargetGone),
        ("550 no such user", TargetGone),
        ("550 5.7.1 blocked by policy", Refused),
        ("552 5.2.2 mailbox full", Refused),
        ("450 4.2.0 try later", NotSent),
        ("451 4.7.1 Greylisted, please try again in 5 minutes", Throttled),
        ("421 4.7.0 too many connections", Throttled),
    ],
)
async def test_a_refusal_says_what_follows(
    fake: FakeMail, connect: Connect, reply: str, error: type[Exception]
) -> None:
    adapter = await connect()
    fake.refusal = reply
    with pytest.raises(error) as caught:
        await adapter.send(build_part(adapter))
    assert type(caught.value) is error and fake.delivered == []
    if isinstance(caught.value, Throttled):
        assert caught.value.after == timedelta(minutes=5 if "5 minutes" in reply else 1)
    fake.refusal = ""
    await adapter.send(build_part(adapter))
    assert fake.texts(ANN) == ["hello"]


async def test_a_mail_that_is_too_large_for_the_server_is_refused_before_it_is_sent(
    fake: FakeMail, connect: Connect
) -> None:
    adapter = await connect()
    fake.max_bytes = 1000
    file = Attachment(name="a.bin", mime="", body=b"x" * 2000)
    with pytest.raises(Refused, match="takes 1,000"):
        await adapter.send(build_part(adapter, attachments=(file,)))


class TestCopies:
    """A server that saves no copies: Keryx does, before it sends."""

    @pytest.fixture
    def fake(self) -> Iterator[FakeMail]:
        with FakeMail(saves_sent=False) as fake:
            yield fake
            assert fake.errors == []

    async def test_a_mail_that_went_out_has_a_copy_that_is_found(
        self, fake: FakeMail, connect: Connect
    ) -> None:
        adapter = await connect()
        part = build_part(adapter)
        assert await adapter.find_sent(part) is None
        assert await adapter.send(part) == part.key
        assert await adapter.find_sent(part) == part.key
        [copy] = fake.sent
        assert copy.flags == {b"\\SEEN"}

    @pytest.mark.parametrize("uid_plus", [True, False])
    async def test_a_mail_that_was_refused_leaves_no_copy_behind(
        self, fake: FakeMail, connect: Connect, uid_plus: bool
    ) -> None:
        fake.uid_plus = uid_plus
        adapter = await connect()
        fake.refusal = "550 5.1.1 no such user"
        with pytest.raises(TargetGone):
            await adapter.send(build_part(adapter))
        assert all(b"\\DELETED" in copy.flags for copy in fake.sent) and (not uid_plus or not fake.sent)

    async def test_a_mail_whose_outcome_is_unknown_is_repeated_with_a_mark_under_the_same_id(
        self, fake: FakeMail, connect: Connect
    ) -> None:
        adapter = await connect()
        part = build_part(adapter)
        fake.set_faults(PlatformFaults(lost_reply=1))
        with pytest.raises(Uncertain):
            await adapter.send(part)
        fake.set_faults(PlatformFaults())
        again = await connect()
        assert await again.find_sent(part) is None
        assert await again.send(part) == part.key
        assert fake.texts(ANN) == ["hello", f"{REPEAT_MARK}hello"]
        assert {mail["Message-ID"] for mail in fake.mails(ANN)} == {part.key}
        assert await again.find_sent(part) == part.key

    async def test_a_mail_that_never_reached_the_server_is_sent_without_a_mark(
        self, fake: FakeMail, connect: Connect
    ) -> None:
        adapter = await connect(smtp="smtp://127.0.0.1:9")
        part = build_part(adapter)
        with pytest.raises(NotSent):
            await adapter.send(part)
        again = await connect()
        assert await again.find_sent(part) is None
        await again.send(part)
        assert fake.texts(ANN) == ["hello"]

    async def test_the_mailbox_for_copies_is_created_if_there_is_none(
        self, fake: FakeMail, connect: Connect
    ) -> None:
        fake.mailboxes = {"INBOX": []}
        adapter = await connect()
        part = build_part(adapter)
        await adapter.send(part)
        assert len(fake.mailboxes["Sent"]) == 1 and await adapter.find_sent(part) == part.key


async def test_a_new_account_answers_nothing_that_came_before(fake: FakeMail, connect: Connect) -> None:
    fake.write(ANN, "old")
    async with listening(await connect(), RecordingAdapterContext()) as context:
        await until(lambda: fake.idlers == 1)
        fake.write(ANN, "new")
        [event] = await context.wait_for(1)
    assert get_text(event) == "new" and context.cursor == f"1.1.{int(START.timestamp())}.0"


async def test_no_flag_of_a_mail_is_changed(fake: FakeMail, connect: Connect) -> None:
    fake.write(ANN, "hello")
    async with listening(await connect()) as context:
        await context.wait_for(1)
    assert fake.mailboxes["INBOX"][0].flags == set()
    assert "SELECT" not in fake.commands and "UID_STORE" not in fake.commands


async def test_a_server_without_idle_is_asked_again(fake: FakeMail, connect: Connect) -> None:
    fake.idle = False
    async with listening(await connect(poll=timedelta(seconds=1))) as context:
        fake.write(ANN, "one")
        await context.wait_for(1)
        fake.write(ANN, "two")
        assert [get_text(event) for event in await context.wait_for(2)] == ["one", "two"]
    assert "IDLE" not in fake.commands


async def test_a_connection_that_breaks_is_opened_again_and_nothing_is_lost(
    fake: FakeMail, connect: Connect
) -> None:
    async with listening(await connect()) as context:
        for number in range(5):
            await until(lambda: fake.idlers == 1)
            fake.disconnect()
            await until(lambda: fake.idlers == 0)
            fake.write(ANN, f"m{number}")
        events = await context.wait_for(5)
    assert [get_text(event) for event in events] == [f"m{n}" for n in range(5)]
    assert LinkState.CONNECTING in [state for state, _ in context.link_states]


async def test_a_refused_password_ends_listening_and_is_named_nowhere(
    fake: FakeMail, connect: Connect
) -> None:
    fake.password = "another"
    adapter = await connect()
    with pytest.raises(Forbidden, match="refuses the user name or the password") as caught:
        await adapter.listen(RecordingAdapterContext(FIRST))
    with pytest.raises(NotSent) as unsent:
        await adapter.send(build_part(adapter))
    encoded = base64.b64encode(f"\0{ADDRESS}\0{PASSWORD}".encode()).decode()
    for error in (caught.value, unsent.value):
        assert PASSWORD not in str(error) and encoded not in str(error)


@pytest.mark.parametrize("auth", [("PLAIN",), ("LOGIN",)])
async def test_a_password_is_sent_as_the_server_offers(
    fake: FakeMail, connect: Connect, auth: tuple[str, ...]
) -> None:
    fake.auth = auth
    adapter = await connect()
    fake.write(ANN, "hello")
    async with listening(adapter) as context:
        await context.wait_for(1)
    await adapter.send(build_part(adapter))
    assert fake.texts(ANN) == ["hello"]


async def test_a_token_is_read_anew_for_every_connection(
    fake: FakeMail, connect: Connect, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(fake.token)
    adapter = await connect(password="", token_command=f"cat {file}")
    fake.write(ANN, "hello")
    async with listening(adapter) as context:
        await context.wait_for(1)
        fake.token = "the-next-token"
        file.write_text(fake.token)
        await until(lambda: fake.idlers == 1)
        fake.disconnect()
        fake.write(ANN, "again")
        await context.wait_for(2)
    file.write_text("revoked")
    with pytest.raises(Forbidden, match="token"):
        await adapter.listen(RecordingAdapterContext(FIRST))
    failing = await connect(password="", token_command="false")
    with pytest.raises(Forbidden, match="printed no token"):
        await failing.listen(RecordingAdapterContext(FIRST))
    from_secret = await connect(password="", token="env:MAIL_TOKEN")
    fake.token = "ya29.bearer-token-of-keryx"
    await from_secret.send(build_part(from_secret))


async def test_a_changed_uidvalidity_loses_nothing_and_repeats_nothing(
    fake: FakeMail, connect: Connect
) -> None:
    """The engine recognises what comes twice within 14 days; older mails are not handed over at all."""
    old = START - timedelta(days=30)
    fake.write(ANN, "ancient", at=old)
    fake.write(ANN, "recent", at=START - timedelta(hours=1))
    async with listening(await connect()) as context:
        first = await context.wait_for(2)
        await until(lambda: fake.idlers == 1)
        fake.write(ANN, "unread", at=START)
        fake.mailboxes["INBOX"][-1].uid = 99
        fake.rebuild()
        await until(lambda: "unread" in [get_text(event) for event in context.events])
        await until(lambda: fake.idlers == 1)
    texts = [get_text(event) for event in context.events]
    assert texts.count("ancient") == 1 and set(texts) == {"ancient", "recent", "unread"}
    events = {get_text(event): event.event for event in first}
    assert all(event.event == events.get(get_text(event), event.event) for event in context.events)
    after = parse_position(context.state["position"])
    assert after is not None and (after.uid_validity, after.since) == (2, 0)


async def test_a_restored_mailbox_whose_mails_all_arrived_now_is_judged_by_the_dates_of_the_authors(
    fake: FakeMail, connect: Connect
) -> None:
    fake.write(ANN, "ancient", at=START - timedelta(days=30))
    fake.write(ANN, "last", at=START)
    async with listening(await connect()) as context:
        await context.wait_for(2)
        await until(lambda: fake.idlers == 1)
        fake.rebuild(keep_dates=False)
        await until(lambda: bool(context.state.get("position", "").startswith("2.")) and fake.idlers == 1)
    assert [get_text(event) for event in context.events].count("ancient") == 1


def test_after_a_long_silence_nothing_before_the_last_mail_is_read_again() -> None:
    last = parse_position(f"1.7.{int(START.timestamp())}.0")
    assert last is not None
    recent, later = (begin_again(last, 2, START + timedelta(days=days)) for days in (1, 13))
    assert recent.since == last.at - 86_400 and later.since == last.at
    assert choose_position(last, recent, 2) == recent and choose_position(last, None, 3) == last
    assert parse_position("1.2") is None and parse_position("a.b.c.d") is None


async def test_ignored_mails_move_the_position_and_are_told(fake: FakeMail, connect: Connect) -> None:
    async with listening(await connect()) as context:
        fake.write("eve@evil.test", "let me in", result="dmarc=fail header.from=evil.test")
        fake.write(ANN, "on holiday", headers={"Auto-Submitted": "auto-replied"})
        await until(lambda: context.state.get("position", "").startswith("1.2."))
        await until(lambda: context.link_states[-1][1].startswith("2 mails"))
    state, detail = context.link_states[-1]
    assert state is LinkState.CONNECTED and not context.events
    assert detail == "2 mails were ignored; the last one, from ann@people.test, is automatic (Auto-Submitted)"


async def test_a_sender_who_writes_without_end_is_ignored_for_an_hour(
    fake: FakeMail, connect: Connect
) -> None:
    async with listening(await connect(per_hour=3)) as context:
        for number in range(6):
            fake.write(ANN, f"m{number}", at=START + timedelta(minutes=number))
        fake.write("bob@people.test", "hi", at=START)
        fake.write(ANN, "later", at=START + timedelta(minutes=61))
        events = await context.wait_for(5)
    assert [get_text(event) for event in events] == ["m0", "m1", "m2", "hi", "later"]


async def test_a_bounce_of_our_mail_is_told(fake: FakeMail, connect: Connect) -> None:
    async with listening(await connect()) as context:
        report = "multipart/report; report-type=delivery-status; boundary=x"
        fake.deliver(
            f"Return-Path: <>\r\nFrom: MAILER-DAEMON@hub.test\r\nContent-Type: {report}\r\n\r\n--x\r\n".encode()
        )
        await until(lambda: "not delivered" in context.link_states[-1][1] if context.link_states else False)
    assert not context.events


async def test_a_mail_that_is_too_large_is_read_as_far_as_the_limit(fake: FakeMail, connect: Connect) -> None:
    big = Attachment(name="big.bin", mime="application/octet-stream", body=b"x" * 200_000)
    fake.write(ANN, "look", files=[big])
    async with listening(await connect(download=100_000)) as context:
        [event] = await context.wait_for(1)
    assert get_text(event).startswith("look") and "big.bin" in get_text(event) and not context.attachments


async def test_a_large_mail_holds_up_its_author_only(fake: FakeMail, connect: Connect) -> None:
    big = Attachment(name="big.bin", mime="application/octet-stream", body=b"x" * 2 * LARGE_BYTES)
    fake.held = {1}
    async with listening(await connect()) as context:
        fake.write(ANN, "look", files=[big])
        fake.write(ANN, "at this")
        fake.write(BOB, "hello")
        [first] = await context.wait_for(1)
        assert get_text(first) == "hello"
        # After a crash, all three are read again.
        assert str(context.cursor).split(".")[1] == "0"
        fake.released.set()
        assert [get_text(event) for event in await context.wait_for(3)] == ["hello", "look", "at this"]
        await until(lambda: context.state[POSITION_SCOPE].split(".")[1] == "3")
    assert [file.body for file in context.attachments] == [big.body]


async def test_a_large_mail_whose_connection_breaks_is_fetched_again(
    fake: FakeMail, connect: Connect
) -> None:
    big = Attachment(name="big.bin", mime="application/octet-stream", body=b"x" * 2 * LARGE_BYTES)
    fake.held = {1}
    async with listening(await connect()) as context:
        fake.write(ANN, "look", files=[big])
        fake.write(BOB, "hello")
        await context.wait_for(1)
        fake.disconnect()
        fake.released.set()
        assert [get_text(event) for event in await context.wait_for(2)] == ["hello", "look"]


async def test_a_reply_to_an_answer_finds_its_thread_without_the_list_of_references(
    fake: FakeMail, connect: Connect
) -> None:
    adapter = await connect()
    async with listening(adapter) as context:
        root = fake.write(ANN, "one")
        [first] = await context.wait_for(1)
        answer = await adapter.send(build_part(adapter, target=first.reply))
        fake.write(ANN, "two", answers=answer)
        fake.write(ANN, "three", references=["<cut@people.test>", answer])
        events = await context.wait_for(3)
    assert [event.source.thread for event in events] == [root] * 3


async def test_inline_pictures_and_files_are_stored(fake: FakeMail, connect: Connect) -> None:
    png = Attachment(name="cat.png", mime="image/png", body=b"\x89PNG\r\n\x1a\n")
    fake.write(ANN, "look", html='<p>look <img src="cid:1"></p>', files=[png])
    async with listening(await connect()) as context:
        [event] = await context.wait_for(1)
    assert [file.body for file in context.attachments] == [png.body] and len(event.parts) == 2


class TestTls:
    @pytest.fixture
    def certificate(self, tmp_path: Path) -> Path:
        return create_certificate(tmp_path / "server.pem")

    @pytest.fixture
    def fake(self, certificate: Path) -> Iterator[FakeMail]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        with FakeMail(tls=context) as fake:
            yield fake
            assert fake.errors == []

    async def test_starttls_is_used_and_what_came_in_clear_text_before_it_is_dropped(
        self, fake: FakeMail, connect: Connect, certificate: Path
    ) -> None:
        adapter = await connect(ca=str(certificate))
        fake.write(ANN, "hello")
        async with listening(adapter) as context:
            await context.wait_for(1)
        await adapter.send(build_part(adapter))
        assert fake.texts(ANN) == ["hello"]

    async def test_a_certificate_that_nobody_signed_is_refused(
        self, fake: FakeMail, connect: Connect
    ) -> None:
        adapter = await connect()
        with pytest.raises(NotSent, match="no valid certificate"):
            await adapter.send(build_part(adapter))
        assert fake.sign_ins == 0


def setup(**table: object) -> AdapterSetup:
    return AdapterSetup(platform="email", home=Path(), table=table, environ={"P": "secret"})


GOOD = {
    "address": "keryx@hub.test",
    "imap": "imaps://mx.hub.test",
    "smtp": "smtps://mx.hub.test:4650",
    "authserv": "mx.hub.test",
    "password": "env:P",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"address": ""}, "email.address is missing"),
        ({"address": "keryx"}, "must be an address"),
        ({"imap": "http://x"}, "email.imap must be an address"),
        ({"imap": "imaps://user:pw@x"}, "user and password are settings"),
        ({"smtp": "smtps://x:99999999"}, "email.smtp must be"),
        ({"authserv": ""}, "email.authserv is missing"),
        ({"password": ""}, "none of them"),
        ({"token_command": "x"}, "password and token_command"),
        ({"token_command": "'", "password": ""}, "no command"),
        ({"poll": "0s"}, "email.poll: give at least 1s"),
        ({"ca": "/nowhere"}, "cannot be read"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_setting_is_named(change: dict[str, object], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        make(setup(**{**GOOD, **change}))


def test_an_account_that_is_not_configured_costs_nothing() -> None:
    assert make(setup()) is None
    assert make(setup(**GOOD)) is not None


async def test_a_password_goes_to_another_machine_only_over_tls(fake: FakeMail, connect: Connect) -> None:
    imap, smtp = (url.replace("127.0.0.1", "0.0.0.0") for url in (fake.imap, fake.smtp))
    adapter = await connect(imap=imap, smtp=smtp)
    with pytest.raises(Forbidden, match="offers no TLS"):
        await adapter.listen(RecordingAdapterContext(FIRST))
    with pytest.raises(NotSent, match="offers no TLS"):
        await adapter.send(build_part(adapter))
    assert fake.sign_ins == 0
