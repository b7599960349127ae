"""pywa, the usual client of the Cloud API in Python, against the fake, so that the fake does not drift from what clients of WhatsApp rely on."""

import importlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from tests import left_out
from tests.fakes.whatsapp import (
    APP_SECRET,
    NUMBER,
    TEMPLATE,
    TOKEN,
    VERIFY_TOKEN,
    FakeWhatsAppCloud,
    sign,
)

from keryx.testing.fault_injection import PlatformFaults

# Its types are not complete, and it may be absent.
try:
    sdk: Any = importlib.import_module("pywa")
    errors: Any = importlib.import_module("pywa.errors")
    types: Any = importlib.import_module("pywa.types")
except ImportError:
    left_out.skip_module("pywa", why="pywa is not installed", command="scripts/setup dev")

ANN = "US.13491208655302741918"
PHONE = "16505551234"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


@pytest.fixture
def cloud() -> Iterator[FakeWhatsAppCloud]:
    with FakeWhatsAppCloud() as fake:
        yield fake


@pytest.fixture
def client(cloud: FakeWhatsAppCloud) -> Iterator[Any]:
    with open_client(cloud, TOKEN) as client:
        yield client


@contextmanager
def open_client(cloud: FakeWhatsAppCloud, token: str) -> Generator[Any]:
    with httpx.Client() as session:
        client = sdk.WhatsApp(
            NUMBER, token, session=session, app_secret=APP_SECRET, verify_token=VERIFY_TOKEN
        )
        # It has written the address of Meta into the session.
        session.base_url = cloud.url
        yield client


def listen(client: Any) -> list[Any]:
    """Keep what the client makes of the posts."""
    heard: list[Any] = []

    def hear(_: Any, update: Any) -> None:
        heard.append(update)

    for decorator in (
        client.on_message,
        client.on_callback_button,
        client.on_callback_selection,
        client.on_message_status,
        client.on_edited_message,
        client.on_deleted_message,
    ):
        decorator(hear)
    return heard


def hand_over(cloud: FakeWhatsAppCloud, client: Any) -> None:
    """Give the client what the fake would post, each with its signature."""
    for body in cloud.waiting.values():
        header = sign(body)["x-hub-signature-256"]
        assert client.webhook_update_validator(body, header) is None
        assert client.webhook_update_handler(body) == ("ok", 200)
    cloud.waiting.clear()


def test_the_sdk_sends_quotes_and_reacts(cloud: FakeWhatsAppCloud, client: Any) -> None:
    asked = cloud.write(ANN, "hello")
    sent = client.send_message(ANN, "*hello*", reply_to_message_id=asked, tracker="part 1")
    [bubble] = cloud.bubbles
    assert (bubble.chat, bubble.id, bubble.text) == (ANN, sent.id, "*hello*")
    assert (bubble.quotes, bubble.callback) == (asked, "part 1")
    client.send_message(PHONE, "by number")
    assert cloud.texts(PHONE) == ["by number"]
    client.send_reaction(ANN, "👍", asked)
    assert (cloud.bubbles[-1].type, cloud.bubbles[-1].emoji) == ("reaction", "👍")
    assert client.mark_message_as_read(asked).success
    assert client.indicate_typing(asked).success
    assert [read.get("typing_indicator") for read in cloud.reads] == [None, {"type": "text"}]


def test_the_sdk_exchanges_files(cloud: FakeWhatsAppCloud, client: Any) -> None:
    client.send_image(ANN, PNG, caption="look", mime_type="image/png")
    client.send_document(ANN, b"a file", filename="a.txt", mime_type="text/plain")
    picture, document = cloud.bubbles
    assert (picture.type, picture.text, picture.media) == ("image", "look", PNG)
    assert (document.type, document.filename, document.media) == ("document", "a.txt", b"a file")
    heard = listen(client)
    cloud.write(ANN, None, type="image", image={**cloud.add_file("m1", "image/png", PNG), "caption": "mine"})
    hand_over(cloud, client)
    [message] = heard
    assert (message.caption, message.image.mime_type) == ("mine", "image/png")
    assert message.image.get_bytes() == PNG


def test_the_sdk_asks_with_buttons_and_reads_the_presses(cloud: FakeWhatsAppCloud, client: Any) -> None:
    heard = listen(client)
    client.send_message(
        ANN, "Go on?", buttons=[types.Button("Yes", "/answer 1"), types.Button("No", "/answer 2")]
    )
    cloud.press(ANN, "No")
    rows = [types.SectionRow(title=str(n), callback_data=f"/answer {n}") for n in range(4)]
    section = types.Section(title="Days", rows=rows)
    client.send_message(ANN, "Which?", buttons=types.SectionList("Choose", [section]))
    cloud.press(ANN, "3")
    hand_over(cloud, client)
    assert [(type(update).__name__, update.data) for update in heard] == [
        ("CallbackButton", "/answer 2"),
        ("CallbackSelection", "/answer 3"),
    ]
    assert heard[0].from_user.bsuid == ANN and heard[0].reply_to_message.id == cloud.bubbles[0].id


def test_the_sdk_reads_every_kind_of_post(cloud: FakeWhatsAppCloud, client: Any) -> None:
    heard = listen(client)
    first = cloud.write(ANN, "hello", phone=PHONE, username="ann")
    cloud.edit(ANN, "hello there", first)
    cloud.react(ANN, "👍", "wamid.OUT000001")
    cloud.revoke(ANN, first)
    sent = client.send_message(ANN, "hello", tracker="part 1")
    for status in ("sent", "delivered", "read"):
        cloud.push_status(cloud.bubbles[-1], status)
    cloud.late = True
    cloud.closed.add(ANN)
    client.send_message(ANN, "too late")
    hand_over(cloud, client)
    message, edited, reaction, deleted, *statuses, failed = heard
    person = message.from_user
    assert (message.id, message.text) == (first, "hello")
    assert (person.bsuid, person.wa_id, person.username, person.name) == (ANN, PHONE, "ann", "Ann")
    assert (edited.original_message_id, edited.message.text) == (first, "hello there")
    assert (reaction.reaction.emoji, reaction.reaction.message_id) == ("👍", "wamid.OUT000001")
    assert deleted.original_message_id == first
    assert [(each.id, each.status.value, each.tracker) for each in statuses] == [
        (sent.id, status, "part 1") for status in ("sent", "delivered", "read")
    ]
    assert isinstance(failed.error, errors.ReEngagementMessage)


def test_the_sdk_reads_the_errors(cloud: FakeWhatsAppCloud, client: Any) -> None:
    cloud.closed.add(ANN)
    with pytest.raises(errors.ReEngagementMessage, match="24 hours"):
        client.send_message(ANN, "hello")
    client.send_template(ANN, TEMPLATE, types.templates.TemplateLanguage.ENGLISH_US)
    assert cloud.bubbles[-1].template == TEMPLATE
    with open_client(cloud, "another") as other, pytest.raises(errors.ExpiredAccessToken):
        other.send_message(ANN, "hello")
    cloud.set_faults(PlatformFaults(throttle=1, retry_after=3))
    with pytest.raises(errors.RateLimitHit) as limited:
        client.send_message(PHONE, "hello")
    assert limited.value.status_code == 429
    cloud.set_faults(PlatformFaults(broken=1))
    with pytest.raises(errors.UnknownError):
        client.send_message(PHONE, "hello")


def test_the_sdk_verifies_the_address_and_the_signature(cloud: FakeWhatsAppCloud, client: Any) -> None:
    assert client.webhook_challenge_handler(VERIFY_TOKEN, "4711") == ("4711", 200)
    cloud.write(ANN, "hello")
    [body] = cloud.waiting.values()
    forged = sign(body, "another secret")["x-hub-signature-256"]
    assert client.webhook_update_validator(body, forged)[1] == 403
    client.override_phone_callback_url("https://keryx.example.org/hooks/whatsapp", VERIFY_TOKEN)
    assert cloud.override["override_callback_uri"] == "https://keryx.example.org/hooks/whatsapp"
