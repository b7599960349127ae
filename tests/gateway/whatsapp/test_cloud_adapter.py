"""The adapter for the Cloud API against a strict fake: what is sent, what comes in, and what it says when it cannot."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.whatsapp import ANN, BEN, build_cloud
from tests.fakes.whatsapp import (
    GROUP,
    NUMBER,
    TEMPLATE,
    TOKEN,
    VERIFY_TOKEN,
    FakeWhatsAppCloud,
    sign,
)

from keryx.core.deliveries import REPEAT_MARK, Target
from keryx.core.errors import (
    CredentialsRefused,
    Forbidden,
    Held,
    Invalid,
    NotSent,
    Refused,
    SendError,
    TargetGone,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment
from keryx.core.ports.adapter import InboundEvent, LinkState, OutgoingPart, Receipt, WebhookRequest
from keryx.core.questions import Button
from keryx.engine.policy import Policy, map_reach
from keryx.setup_registry import find_missing
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.whatsapp import WhatsAppAgentAdapter, WhatsAppCloudAdapter, make
from keryx.surfaces.gateway.whatsapp.graph_api import WhatsAppApiError
from keryx.surfaces.gateway.whatsapp.message_sender import translate_error
from keryx.surfaces.gateway.whatsapp.setup import SETUP
from keryx.surfaces.gateway.whatsapp.whatsapp_settings import BAD_TOKEN
from keryx.testing import RecordingAdapterContext
from keryx.testing.wire import UNREACHABLE_URL

SECONDS = 30


class WatchedContext(RecordingAdapterContext):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.reported = asyncio.Event()

    def report(self, link: LinkState, detail: str = "") -> None:
        super().report(link, detail)
        self.reported.set()


class Number:
    """An adapter, its platform and a context."""

    def __init__(self, whatsapp: FakeWhatsAppCloud, **settings: Any) -> None:
        self.whatsapp = whatsapp
        self.adapter = build_cloud(whatsapp.url, **settings)
        self.context = WatchedContext()

    async def send(self, said: str = "hello", *, chat: str = ANN, reply_to: str = "", **fields: Any) -> str:
        [rendered] = self.adapter.parts(said) or [None]
        part = OutgoingPart(
            delivery=DeliveryId("01jd0"),
            number=fields.pop("number", 0),
            key="k",
            target=Target("whatsapp", NUMBER, chat, reply_to=reply_to),
            text=rendered.text if rendered else "",
            **fields,
        )
        return await self.adapter.send(part)

    async def post(self, body: bytes, headers: dict[str, str] | None = None) -> int:
        request = WebhookRequest(headers=sign(body) if headers is None else headers, body=body)
        return (await self.adapter.hook.handle(request)).status

    async def deliver(self) -> list[int]:
        """Post once what waits."""
        waiting, self.whatsapp.waiting = list(self.whatsapp.waiting.values()), {}
        return [await self.post(body) for body in waiting]

    async def listen(self, run: Callable[[], Awaitable[None]]) -> None:
        """Listen while something is done."""
        task = asyncio.create_task(self.adapter.listen(self.context))
        async with asyncio.timeout(SECONDS):
            await self.context.reported.wait()
            await run()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    async def hear(self) -> list[int]:
        """Listen, and post once what waits."""
        statuses: list[int] = []

        async def run() -> None:
            statuses.extend(await self.deliver())

        await self.listen(run)
        return statuses


@pytest.fixture
async def number() -> AsyncIterator[Number]:
    with FakeWhatsAppCloud() as whatsapp:
        one = Number(whatsapp)
        yield one
        await one.adapter.close()


Open = Callable[..., Number]


@pytest.fixture
async def open_number() -> AsyncIterator[Open]:
    with FakeWhatsAppCloud() as whatsapp:
        made: list[Number] = []

        def build(**settings: Any) -> Number:
            made.append(Number(whatsapp, **settings))
            return made[-1]

        yield build
        for one in made:
            await one.adapter.close()


async def test_people_are_addressed_by_id_or_number_and_groups_as_groups(number: Number) -> None:
    for chat in (ANN, "15551234567", GROUP):
        await number.send(chat=chat)
    await number.send(chat="+1 555 123-4567")
    assert [b.chat for b in number.whatsapp.bubbles] == [ANN, "15551234567", GROUP, "15551234567"]
    assert number.whatsapp.problems == []


async def test_a_part_brings_its_name_back_with_every_status(number: Number) -> None:
    await number.send(number=2)
    assert number.whatsapp.bubbles[0].callback == "01jd0.2"


async def test_an_answer_in_a_group_quotes_and_one_in_a_direct_chat_does_not(open_number: Open) -> None:
    number, quoting = open_number(), open_number(quote=True)
    await number.send(chat=GROUP, reply_to="wamid.A")
    await number.send(chat=GROUP, reply_to="wamid.A", number=1)
    await number.send(reply_to="wamid.A")
    await quoting.send(reply_to="wamid.A")
    assert [b.quotes for b in number.whatsapp.bubbles] == ["wamid.A", "", "", "wamid.A"]


async def test_a_quote_of_a_message_that_is_gone_is_left_out(number: Number) -> None:
    number.whatsapp.gone.add("wamid.A")
    await number.send(chat=GROUP, reply_to="wamid.A")
    assert [(b.text, b.quotes) for b in number.whatsapp.bubbles] == [("hello", "")]


BUTTONS = tuple(Button(f"Choice {n}", f"/answer 01jd0 {n}") for n in range(1, 5))


async def test_up_to_three_options_are_buttons_and_more_are_a_list(number: Number) -> None:
    await number.send("Which?", buttons=BUTTONS[:3])
    await number.send("Which?", buttons=BUTTONS)
    assert [list(b.buttons) for b in number.whatsapp.bubbles] == [
        ["Choice 1", "Choice 2", "Choice 3"],
        ["Choice 1", "Choice 2", "Choice 3", "Choice 4"],
    ]
    assert number.whatsapp.bubbles[1].buttons["Choice 4"] == "/answer 01jd0 4"


async def test_a_long_question_has_a_list_instead_of_buttons(number: Number) -> None:
    await number.send("x" * 1025, buttons=BUTTONS[:2])
    assert len(number.whatsapp.bubbles[0].buttons) == 2 and number.whatsapp.problems == []


@pytest.mark.parametrize(
    "buttons",
    [
        tuple(Button(f"Choice {n}", f"/answer 01jd0 {n}") for n in range(11)),
        (
            Button("the same twenty characters", "/answer 1 1"),
            Button("the same twenty characters!", "/answer 1 2"),
        ),
        (Button("A", "x" * 257),),
    ],
    ids=["too many", "alike", "too long"],
)
async def test_options_that_whatsapp_does_not_take_are_left_to_the_text(
    number: Number, buttons: tuple[Button, ...]
) -> None:
    await number.send("Which?", buttons=buttons)
    assert [(b.type, b.text) for b in number.whatsapp.bubbles] == [("text", "Which?")]
    assert number.whatsapp.problems == []


async def test_a_question_whose_buttons_are_refused_is_sent_without_them(number: Number) -> None:
    number.whatsapp.no_buttons = True
    await number.send("Which?", buttons=BUTTONS[:2])
    assert [(b.type, b.text) for b in number.whatsapp.bubbles] == [("text", "Which?")]


@pytest.mark.parametrize(
    ("mime", "size", "kind"),
    [
        ("image/png", 10, "image"),
        ("image/png", 5_000_001, "document"),
        ("image/webp", 10, "document"),
        ("audio/ogg; codecs=opus", 10, "audio"),
        ("video/mp4", 10, "video"),
        ("text/csv", 10, "document"),
        ("", 10, "document"),
    ],
)
async def test_a_file_is_sent_as_what_whatsapp_takes_it_for(
    number: Number, mime: str, size: int, kind: str
) -> None:
    await number.send("", attachment=Attachment(name="f", mime=mime, body=b"x" * size))
    [bubble] = number.whatsapp.bubbles
    assert (bubble.type, len(bubble.media), bubble.voice) == (kind, size, kind == "audio")


async def test_a_sound_that_may_be_a_repetition_is_a_document_with_the_mark(number: Number) -> None:
    for mime in ("audio/ogg", "image/png"):
        await number.send("", attachment=Attachment(name="f", mime=mime, body=b"x"), again=True)
    shown = [(b.type, b.text) for b in number.whatsapp.bubbles]
    assert shown == [("document", REPEAT_MARK.strip()), ("image", REPEAT_MARK.strip())]


async def test_typing_is_shown_once_while_it_lasts(number: Number) -> None:
    target = Target("whatsapp", NUMBER, ANN, reply_to="wamid.A")
    for _ in range(3):
        await number.adapter.typing(target)
    await number.adapter.typing(Target("whatsapp", NUMBER, BEN))
    assert [read["message_id"] for read in number.whatsapp.reads] == ["wamid.A"]


async def test_typing_without_a_message_is_shown_at_the_last_one(number: Number) -> None:
    written = number.whatsapp.write(ANN, "hello")
    await number.hear()
    await number.adapter.typing(Target("whatsapp", NUMBER, ANN))
    assert [read["message_id"] for read in number.whatsapp.reads] == [written]


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, 131047, Held),
        (400, 470, Held),
        (400, 131026, TargetGone),
        (429, 130429, Throttled),
        (400, 80007, Throttled),
        (400, 4, Throttled),
        (400, 131048, Throttled),
        (400, 131056, Throttled),
        (403, 368, Throttled),
        (503, 131016, NotSent),
        (401, 190, CredentialsRefused),
        (400, 190, CredentialsRefused),
        (500, 131000, Uncertain),
        (500, 2, Uncertain),
        (502, 0, Uncertain),
        (400, 131009, Refused),
        (400, 100, Refused),
        (400, 131053, Refused),
        (403, 131005, Refused),
        (403, 131031, Refused),
    ],
)
def test_each_refusal_has_its_meaning(status: int, code: int, kind: type[SendError]) -> None:
    error = translate_error(WhatsAppApiError(status, code, "a reason"))
    assert type(error) is kind


def test_limits_of_a_person_and_of_the_account_are_told_apart() -> None:
    pair = translate_error(WhatsAppApiError(400, 131056, "x"))
    account = translate_error(WhatsAppApiError(429, 130429, "x", retry_after=7))
    blocked = translate_error(WhatsAppApiError(403, 368, "x"))
    assert isinstance(pair, Throttled) and (pair.account, pair.after) == (False, timedelta(seconds=6))
    assert isinstance(account, Throttled) and (account.account, account.after) == (True, timedelta(seconds=7))
    assert isinstance(blocked, Throttled) and blocked.account and blocked.after == timedelta(hours=1)


async def test_a_file_whose_upload_breaks_is_certainly_not_sent() -> None:
    adapter = build_cloud(UNREACHABLE_URL)
    file = Attachment(name="f", mime="image/png", body=b"x")
    target = Target("whatsapp", NUMBER, ANN)
    with pytest.raises(NotSent):
        await adapter.send(
            OutgoingPart(delivery=DeliveryId("d"), number=0, key="k", target=target, attachment=file)
        )
    await adapter.close()


async def test_forged_and_unsigned_posts_are_refused_and_nothing_is_stored(number: Number) -> None:
    number.whatsapp.write(ANN, "hello")
    [body] = number.whatsapp.waiting.values()

    async def run() -> None:
        for headers in (
            {},
            sign(body, "another secret"),
            sign(body + b" "),
            {"x-hub-signature-256": "sha256="},
            {"x-hub-signature-256": "sha256=é" * 3},
            {"x-hub-signature": sign(body)["x-hub-signature-256"]},
        ):
            assert await number.post(body, headers) == 401
        assert number.context.events == []
        assert await number.post(body, sign(body)) == 200

    await number.listen(run)
    assert len(number.context.events) == 1


async def test_a_post_before_keryx_listens_comes_again(number: Number) -> None:
    number.whatsapp.write(ANN, "hello")
    assert await number.deliver() == [503]


async def test_a_post_that_cannot_be_stored_comes_again(number: Number) -> None:
    async def refuse(inbound: InboundEvent) -> Receipt:
        raise Unavailable("the disk is full")

    number.context.set_receive(refuse)
    number.whatsapp.write(ANN, "hello")
    assert await number.hear() == [503]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"entry": 3}', b"\xff", b"[" * 100_000])
async def test_a_signed_post_that_cannot_be_read_is_not_repeated(number: Number, body: bytes) -> None:
    number.whatsapp.push_raw("x", body)
    assert await number.hear() == [200] and number.context.events == []


async def test_posts_about_another_number_are_named_once_in_the_log(
    number: Number, caplog: pytest.LogCaptureFixture
) -> None:
    message = {"id": "wamid.X", "from": "1", "type": "text", "text": {"body": "x"}}
    for id_ in ("a", "b"):
        number.whatsapp.push({"messages": [message]}, id_, number="42")
    with caplog.at_level(logging.WARNING):
        assert await number.hear() == [200, 200]
    assert number.context.events == [] and caplog.text.count("number 42") == 1


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"hub.mode": "subscribe", "hub.verify_token": VERIFY_TOKEN, "hub.challenge": "77"}, 200),
        ({"hub.mode": "subscribe", "hub.verify_token": "guess", "hub.challenge": "77"}, 403),
        ({"hub.mode": "unsubscribe", "hub.verify_token": VERIFY_TOKEN, "hub.challenge": "77"}, 403),
        ({"hub.mode": "subscribe", "hub.verify_token": VERIFY_TOKEN}, 403),
        ({"hub.mode": "subscribe", "hub.verify_token": "\ud83d", "hub.challenge": "77"}, 403),
    ],
)
async def test_the_challenge_is_answered_to_whoever_knows_the_token(
    number: Number, query: dict[str, str], status: int
) -> None:
    response = await number.adapter.hook.handle(
        WebhookRequest(method="GET", query=query, headers={}, body=b"")
    )
    assert (response.status, response.body) == (status, b"77" if status == 200 else b"")


async def test_the_address_of_the_number_is_set_if_it_is_configured(open_number: Open) -> None:
    number = open_number(url="https://keryx.example/")
    await number.hear()
    assert number.whatsapp.override == {
        "override_callback_uri": "https://keryx.example/hooks/whatsapp",
        "verify_token": VERIFY_TOKEN,
    }
    assert number.context.link_states == [(LinkState.CONNECTED, "")]


async def test_a_revoked_token_is_one_sentence(number: Number) -> None:
    number.whatsapp.token = "another"
    async with asyncio.timeout(SECONDS):
        with pytest.raises(Forbidden) as caught:
            await number.adapter.listen(number.context)
    assert str(caught.value) == BAD_TOKEN and TOKEN not in repr(caught.value)
    with pytest.raises(NotSent):
        await number.send()


async def test_posts_are_taken_in_while_the_api_cannot_be_reached() -> None:
    with FakeWhatsAppCloud() as whatsapp:
        number = Number(whatsapp)
        number.adapter = build_cloud(UNREACHABLE_URL)
        whatsapp.write(ANN, "hello")
        assert await number.hear() == [200]
        assert number.context.link_states[0][0] is LinkState.CONNECTING
        await number.adapter.close()


async def test_a_number_is_learned_once_and_never_of_two_people(
    number: Number, caplog: pytest.LogCaptureFixture
) -> None:
    for chat in (ANN, ANN, BEN):
        number.whatsapp.write(chat, "hello", phone="15551234567")
    with caplog.at_level(logging.WARNING):
        await number.hear()
    assert number.context.aliases == [(ANN, "15551234567")]
    assert "passed to another person" in caplog.text and "1555" not in caplog.text


async def test_a_username_is_an_id_only_if_that_is_set(open_number: Open) -> None:
    for usernames in (False, True):
        number = open_number(usernames=usernames)
        number.whatsapp.write(ANN, "hello", username="ann.b")
        number.whatsapp.write(BEN, "hello", username="ann.b")
        await number.hear()
        assert number.context.aliases == ([(ANN, "@ann.b")] if usernames else [])


async def test_a_person_with_a_new_number_stays_the_same_person(number: Number) -> None:
    system = {"type": "user_changed_number", "wa_id": "15559999999", "user_id": BEN, "previous_user_id": ANN}
    number.whatsapp.push_message("15551234567", type="system", system=system)
    await number.hear()
    assert number.context.aliases == [(ANN, "15551234567"), (ANN, "15559999999"), (ANN, BEN)]
    assert number.context.events == []


async def fetch(number: Number, media: dict[str, Any], *, limit: int = 1000) -> bytes:
    """Send the file of a person, and fetch it by what its event names."""
    number.whatsapp.write(ANN, None, type="image", image=media)
    await number.hear()
    [file] = number.context.events[-1].files
    return (await number.adapter.download(file, limit=limit)).body


async def test_a_file_is_fetched_with_the_token_and_its_checksum_is_compared(number: Number) -> None:
    media = number.whatsapp.add_file("p", "image/png", b"\x89PNG")
    assert await fetch(number, media) == b"\x89PNG"
    number.whatsapp.files["p"] = ("image/png", b"something else")
    with pytest.raises(Unavailable, match="other bytes"):
        await fetch(number, media)


async def test_a_file_whose_address_no_longer_holds_gets_another_one(number: Number) -> None:
    media = number.whatsapp.add_file("p", "image/png", b"\x89PNG")
    number.whatsapp.expired_addresses = 1
    with pytest.raises(Unavailable, match="status 404"):
        await fetch(number, media)
    assert await fetch(number, media) == b"\x89PNG"


async def test_a_file_that_is_too_large_or_gone_cannot_be_fetched(number: Number) -> None:
    media = number.whatsapp.add_file("p", "image/png", b"\x89PNG")
    with pytest.raises(Invalid, match="it is larger than 3 bytes"):
        await fetch(number, media, limit=3)
    number.whatsapp.files.clear()
    with pytest.raises(Invalid, match="the media does not exist"):
        await fetch(number, media)


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [(500, 131000, Unavailable), (400, 4, Unavailable), (401, 190, Unavailable), (400, 100, Invalid)],
)
async def test_a_refusal_to_locate_a_file_says_whether_to_try_again(
    number: Number, status: int, code: int, error: type[Exception]
) -> None:
    media = number.whatsapp.add_file("p", "image/png", b"x")
    number.whatsapp.file_refusal = (status, code)
    with pytest.raises(error):
        await fetch(number, media)


@pytest.mark.parametrize(
    "host",
    [
        "http://127.0.0.1:9",
        "https://fbsbx.com.example.org",
        "http://lookaside.fbsbx.com",
        "file://",
        "https://[::",
    ],
)
async def test_the_token_is_not_sent_to_another_host(number: Number, host: str) -> None:
    media = number.whatsapp.add_file("p", "image/png", b"x")
    number.whatsapp.file_host = host
    with pytest.raises(Invalid, match="it is not on WhatsApp"):
        await fetch(number, media)


async def test_a_press_is_answered_in_the_chat_once(number: Number) -> None:
    receipts = iter([Receipt(duplicate=False, reply="Allowed."), Receipt(duplicate=True, reply="Allowed.")])

    async def receive(inbound: InboundEvent) -> Receipt:
        return next(receipts)

    number.context.set_receive(receive)
    await number.send("May I?", buttons=BUTTONS[:2])
    number.whatsapp.press(ANN, "Choice 1")
    [body] = number.whatsapp.waiting.values()

    async def run() -> None:
        assert [await number.post(body), await number.post(body)] == [200, 200]

    await number.listen(run)
    assert number.whatsapp.texts(ANN) == ["May I?", "Allowed."]


async def test_a_late_failure_is_an_event_of_its_own(number: Number) -> None:
    await number.send()
    [bubble] = number.whatsapp.bubbles
    number.whatsapp.push_status(bubble, "delivered")
    number.whatsapp.push_status(bubble, "failed", {"code": 131026, "title": "Message undeliverable"})
    assert await number.hear() == [200, 200]
    [failure] = number.context.failures
    assert (failure.delivery, failure.number, failure.message) == ("01jd0", 0, bubble.id)


async def test_a_template_opens_a_conversation_that_is_closed_once_a_day(open_number: Open) -> None:
    number = open_number(template=TEMPLATE, template_language="en_US")
    number.whatsapp.closed.add(ANN)

    async def run() -> None:
        for _ in range(2):
            with pytest.raises(Held):
                await number.send()

    await number.listen(run)
    assert [(b.type, b.template) for b in number.whatsapp.bubbles] == [("template", TEMPLATE)]
    # The next process knows it, too.
    restarted = open_number(template=TEMPLATE)
    restarted.context.state.update(number.context.state)

    async def run_again() -> None:
        with pytest.raises(Held):
            await restarted.send()

    await restarted.listen(run_again)
    assert len(number.whatsapp.bubbles) == 1


async def test_a_template_is_sent_when_a_status_says_that_the_window_is_closed(open_number: Open) -> None:
    number = open_number(template=TEMPLATE)
    number.whatsapp.late = True
    number.whatsapp.closed.add(ANN)
    await number.send()
    assert await number.hear() == [200]
    assert [b.type for b in number.whatsapp.bubbles] == ["lost", "template"]
    assert [f.held for f in number.context.failures] == [True]


async def test_a_template_that_does_not_exist_is_shown_in_the_status(open_number: Open) -> None:
    number = open_number(template="unknown")
    number.whatsapp.closed.add(ANN)

    async def run() -> None:
        with pytest.raises(Held):
            await number.send()

    await number.listen(run)
    assert "the template unknown is not sent" in number.context.link_states[-1][1]


def build_setup(name: str = "", **table: Any) -> AdapterSetup:
    environ = {"T": "token", "S": "secret", "V": "verify"}
    return AdapterSetup(platform="whatsapp", name=name, home=Path(), table=table, environ=environ)


CLOUD = {
    "mode": "cloud",
    "token": "env:T",
    "app_secret": "env:S",
    "verify_token": "env:V",
    "phone_number_id": NUMBER,
}


def test_settings_choose_the_platform_and_several_numbers_are_several_accounts() -> None:
    assert make(build_setup()) is None
    cloud, work = (
        make(build_setup(**CLOUD)),
        make(build_setup("work", **{**CLOUD, "phone_number_id": "4242424242"})),
    )
    assert isinstance(cloud, WhatsAppCloudAdapter) and isinstance(work, WhatsAppCloudAdapter)
    assert (cloud.account, cloud.hook.path) == (NUMBER, "whatsapp")
    assert (work.account, work.hook.path) == ("4242424242", "whatsapp/work")
    agent = make(build_setup("me", mode="agent", token="env:T"))
    assert isinstance(agent, WhatsAppAgentAdapter) and (agent.account, agent.hook) == ("me", None)


def test_without_a_mode_the_adapter_and_its_setup_mean_the_same() -> None:
    table: dict[str, Any] = {"token": "env:T"}
    assert isinstance(make(build_setup(**table)), WhatsAppAgentAdapter)
    assert find_missing(SETUP, table) == []
    cloud = {**table, "mode": "cloud"}
    assert [field.name for field in find_missing(SETUP, cloud)] == ["phone_number_id", "app_secret"]
    with pytest.raises(Invalid):
        make(build_setup(**cloud))


def test_one_account_that_holds_messages_is_enough() -> None:
    agent, cloud = make(build_setup("me", mode="agent", token="env:T")), make(build_setup("shop", **CLOUD))
    assert agent is not None and cloud is not None
    names = {"whatsapp.me": "me", "whatsapp.shop": NUMBER}
    assert Policy(reach=map_reach([agent, cloud], names)).holds("whatsapp")
    assert not Policy(reach=map_reach([agent], names)).holds("whatsapp")


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"mode": "agent"}, "token is missing"),
        ({"token": "env:T", "phone_number_id": NUMBER}, 'phone_number_id is for .* write mode = "cloud"'),
        ({"mode": "phone", "token": "env:T"}, "whatsapp.mode"),
        ({**CLOUD, "app_secret": ""}, "needs `app_secret`"),
        ({**CLOUD, "phone_number_id": "+1 555"}, "phone_number_id"),
        ({**CLOUD, "base_url": "graph"}, "whatsapp.base_url"),
        ({**CLOUD, "template": "x", "template_language": "English"}, "template_language"),
        ({**CLOUD, "colour": "green"}, "colour"),
    ],
)
def test_wrong_settings_are_named(table: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        make(build_setup(**table))
