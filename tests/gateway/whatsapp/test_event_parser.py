"""What the payloads of WhatsApp say, as the engine sees it. They are written as Meta documents them."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from keryx.core.deliveries import Target
from keryx.core.media import RemoteFile
from keryx.core.messages import join_text
from keryx.core.ports.adapter import (
    InboundDeletion,
    InboundFailure,
    InboundMessage,
    InboundReaction,
)
from keryx.core.source import ChatType
from keryx.surfaces.gateway.whatsapp.event_parser import (
    AGENT_IDS,
    CLOUD_IDS,
    ParsedEvent,
    ParsedPayload,
    WhatsAppIdentity,
    parse_payload,
    parse_reference,
)
from keryx.surfaces.gateway.whatsapp.payloads import WhatsAppPayload

NUMBER, DISPLAY = "106540352242922", "15550783881"
ME = WhatsAppIdentity(account=NUMBER, number=NUMBER)
ANN, PHONE = "US.13491208655302741918", "16505551234"
CONTACT: dict[str, Any] = {"profile": {"name": "Ann"}, "wa_id": PHONE, "user_id": ANN}
METADATA = {"display_phone_number": DISPLAY, "phone_number_id": NUMBER}
MEDIA = {"id": "1037543291543636", "mime_type": "image/jpeg", "sha256": "c2hh"}


def wrap(value: object, *, field: str = "messages") -> WhatsAppPayload:
    body = {
        "object": "whatsapp_business_account",
        "entry": [{"id": "1", "changes": [{"field": field, "value": value}]}],
    }
    return msgspec.convert(body, WhatsAppPayload)


def read_value(me: WhatsAppIdentity = ME, **value: Any) -> ParsedPayload:
    return parse_payload(wrap({"messaging_product": "whatsapp", "metadata": METADATA, **value}), me)


def read(contact: dict[str, Any] | None = CONTACT, **message: Any) -> ParsedEvent:
    body = {"from": PHONE, "from_user_id": ANN, "id": "wamid.A", "timestamp": "1749416383", **message}
    contacts = [] if contact is None else [contact]
    found = read_value(contacts=contacts, messages=[{k: v for k, v in body.items() if v is not None}])
    assert found.problems == ()
    [event] = found.events
    return event


def say(**message: Any) -> InboundMessage:
    inbound = read(**message).inbound
    assert isinstance(inbound, InboundMessage)
    return inbound


def text(message: InboundMessage) -> str:
    return join_text(message.parts)


def test_a_direct_message_is_keyed_by_the_id_within_the_business() -> None:
    event = read(type="text", text={"body": "hello"})
    message = event.inbound
    assert isinstance(message, InboundMessage)
    assert (message.event, text(message), message.addressed) == ("wamid.A", "hello", True)
    assert message.reply == Target("whatsapp", NUMBER, chat=ANN, reply_to="wamid.A")
    assert message.at == datetime(2025, 6, 8, 20, 59, 43, tzinfo=UTC)
    source = message.source
    assert (source.chat, source.chat_type, source.user, source.user_name) == (ANN, ChatType.DM, ANN, "Ann")
    assert (event.aliases, event.username) == ((PHONE,), "")


def test_a_message_with_a_number_only_is_keyed_by_the_number() -> None:
    contact = {"profile": {"name": "Ann"}, "wa_id": PHONE}
    event = read(contact, from_user_id=None, type="text", text={"body": "hello"})
    assert (event.source.chat, event.source.user, event.aliases) == (PHONE, PHONE, ())


def test_a_message_without_a_number_is_keyed_by_the_id() -> None:
    contact = {
        "profile": {"name": "Ann", "username": "@ann.b"},
        "user_id": ANN,
        "parent_user_id": "US.ENT.118",
    }
    event = read(contact, **{"from": None}, type="text", text={"body": "hello"})
    assert (event.source.user, event.aliases, event.username) == (ANN, ("US.ENT.118",), "@ann.b")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"type": "location", "location": {"latitude": 48.2, "longitude": 16.3}}, "[location: 48.2, 16.3]"),
        (
            {
                "type": "location",
                "location": {"latitude": 1, "longitude": 2, "name": "Café", "address": "Ring 1"},
            },
            "[place: Café, Ring 1 (1.0, 2.0)]",
        ),
        (
            {
                "type": "contacts",
                "contacts": [
                    {
                        "name": {"formatted_name": "Ben Lee"},
                        "phones": [{"phone": "+1 650 555 0000", "wa_id": "16505550000"}],
                        "emails": [{"email": "ben@example.org"}],
                    },
                    {"name": {"first_name": "Cleo"}},
                ],
            },
            "[contact: Ben Lee, +1 650 555 0000, ben@example.org]\n\n[contact: Cleo]",
        ),
        ({"type": "sticker", "sticker": {**MEDIA, "animated": True}}, "[sticker]"),
        ({"type": "button", "button": {"text": "Yes, go on", "payload": "p"}}, "Yes, go on"),
        (
            {
                "type": "interactive",
                "interactive": {"type": "button_reply", "button_reply": {"id": "x", "title": "Tea"}},
            },
            "Tea",
        ),
        (
            {"type": "interactive", "interactive": {"type": "nfm_reply", "nfm_reply": {}}},
            "[an answer to a form]",
        ),
        (
            {"type": "unsupported", "errors": [{"code": 131051}]},
            "[a message of a kind that WhatsApp does not pass on: unsupported]",
        ),
        ({"type": "image", "image": {**MEDIA, "caption": "look"}}, "look"),
    ],
)
def test_what_is_no_text_is_told_in_words(content: dict[str, Any], expected: str) -> None:
    assert text(say(**content)) == expected


@pytest.mark.parametrize(
    ("content", "name", "mime"),
    [
        ({"type": "image", "image": MEDIA}, "image.jpg", "image/jpeg"),
        (
            {"type": "audio", "audio": {"id": "1", "mime_type": "audio/ogg; codecs=opus", "voice": True}},
            "voice.ogg",
            "audio/ogg",
        ),
        ({"type": "audio", "audio": {"id": "1", "mime_type": "audio/mpeg"}}, "audio.mp3", "audio/mpeg"),
        ({"type": "video", "video": {"id": "1", "mime_type": "video/mp4"}}, "video.mp4", "video/mp4"),
        (
            {
                "type": "document",
                "document": {"id": "1", "filename": "a.pdf", "mime_type": "application/pdf"},
            },
            "a.pdf",
            "application/pdf",
        ),
        (
            {"type": "sticker", "sticker": {"id": "1", "mime_type": "image/webp"}},
            "sticker.webp",
            "image/webp",
        ),
    ],
)
def test_a_file_is_named_and_not_fetched(content: dict[str, Any], name: str, mime: str) -> None:
    [file] = say(**content).files
    assert (file.name, file.mime) == (name, mime)


def test_a_file_is_fetched_by_its_id_and_the_checksum_of_its_message() -> None:
    [file] = say(type="image", image=MEDIA).files
    assert file == RemoteFile(reference="1037543291543636 c2hh", name="image.jpg", mime="image/jpeg")
    assert parse_reference(file.reference) == ("1037543291543636", "c2hh")
    [file] = say(type="image", image={"id": "5", "mime_type": "image/jpeg"}).files
    assert parse_reference(file.reference) == ("5", "")


def test_a_reply_names_the_message_and_a_forward_says_so() -> None:
    quoted = say(type="text", text={"body": "why?"}, context={"from": DISPLAY, "id": "wamid.OUT"})
    assert (quoted.replies_to, text(quoted), quoted.continues) == ("wamid.OUT", "why?", False)
    forward = say(type="text", text={"body": "news"}, context={"forwarded": True})
    assert (forward.replies_to, text(forward), forward.continues, forward.more) == (
        "",
        "Forwarded:\n\nnews",
        True,
        True,
    )


def test_a_press_of_our_button_says_the_text_of_the_button() -> None:
    for kind in ("button_reply", "list_reply"):
        choice = {"id": "/answer 01jd0 2", "title": "No"}
        event = read(type="interactive", interactive={"type": kind, kind: choice})
        assert isinstance(event.inbound, InboundMessage) and event.pressed
        assert (text(event.inbound), event.inbound.reply) == ("/answer 01jd0 2", None)


def test_a_reaction_and_its_removal() -> None:
    added = read(type="reaction", reaction={"message_id": "wamid.B", "emoji": "👍"}).inbound
    assert isinstance(added, InboundReaction)
    assert (added.message, added.message_event, added.reaction, added.removed) == (
        "wamid.B",
        "wamid.B",
        "👍",
        False,
    )
    removed = read(type="reaction", reaction={"message_id": "wamid.B"}).inbound
    assert isinstance(removed, InboundReaction) and removed.removed


def test_an_edit_and_a_deletion_name_the_first_message() -> None:
    content = {"type": "image", "image": {**MEDIA, "caption": "new"}}
    event = read(type="edit", edit={"original_message_id": "wamid.B", "message": content})
    assert isinstance(event.inbound, InboundMessage)
    assert (event.inbound.edits, event.inbound.event, text(event.inbound)) == ("wamid.B", "wamid.A", "new")
    assert [file.name for file in event.inbound.files] == ["image.jpg"]
    gone = read(type="revoke", revoke={"original_message_id": "wamid.B"}).inbound
    assert isinstance(gone, InboundDeletion) and gone.message_event == "wamid.B"


@pytest.mark.parametrize(
    ("content", "addressed", "expected"),
    [
        ({"text": {"body": "hello all"}}, False, "hello all"),
        ({"text": {"body": f"@{DISPLAY} hello"}}, True, "hello"),
        ({"text": {"body": "/new"}}, True, "/new"),
        ({"text": {"body": "and?"}, "context": {"from": DISPLAY, "id": "wamid.OUT"}}, True, "and?"),
        ({"text": {"body": "and?"}, "context": {"from": "16505550000", "id": "wamid.B"}}, False, "and?"),
    ],
)
def test_in_a_group_a_mention_a_reply_and_a_command_are_meant_for_us(
    content: dict[str, Any], addressed: bool, expected: str
) -> None:
    message = say(type="text", group_id="Y2FwaV9ncm91cDox", **content)
    assert (message.addressed, text(message)) == (addressed, expected)
    assert (message.source.chat, message.source.chat_type, message.source.user) == (
        "Y2FwaV9ncm91cDox",
        ChatType.GROUP,
        ANN,
    )
    assert message.reply and message.reply.chat == "Y2FwaV9ncm91cDox"


def test_a_new_number_brings_the_ids_that_follow_the_old_ones() -> None:
    system = {
        "type": "user_changed_number",
        "body": "Ann changed",
        "wa_id": "16505559999",
        "user_id": "US.2",
        "previous_user_id": ANN,
    }
    event = read(None, from_user_id=None, type="system", system=system)
    assert event.inbound is None and event.source.user == ANN
    assert event.successors == (PHONE, "16505559999", "US.2")
    other = read_value(
        messages=[{"id": "wamid.A", "from": PHONE, "type": "system", "system": {"type": "other"}}]
    )
    assert other == ParsedPayload()


def read_status(**status: Any) -> ParsedPayload:
    body = {"id": "wamid.OUT", "timestamp": "1749416383", "recipient_id": PHONE, "recipient_user_id": ANN}
    return read_value(statuses=[{**body, "biz_opaque_callback_data": "01jd0.2", **status}])


def test_a_failure_of_a_message_names_its_part() -> None:
    errors = [
        {"code": 131026, "title": "Message undeliverable", "error_data": {"details": "Not on WhatsApp."}}
    ]
    [event] = read_status(status="failed", errors=errors).events
    failure = event.inbound
    assert isinstance(failure, InboundFailure)
    assert (failure.event, failure.delivery, failure.number) == ("status.wamid.OUT.failed", "01jd0", 2)
    assert (failure.message, failure.held, failure.gone) == ("wamid.OUT", False, True)
    assert failure.source.chat == ANN
    assert failure.reason == "WhatsApp did not deliver it: Not on WhatsApp (131026)"


def test_a_message_outside_the_window_is_held() -> None:
    [event] = read_status(status="failed", errors=[{"code": 131047, "title": "Re-engagement message"}]).events
    assert isinstance(event.inbound, InboundFailure)
    assert event.inbound.held and not event.inbound.gone


@pytest.mark.parametrize("status", ["sent", "delivered", "read", "played", "deleted", "warning"])
def test_other_statuses_say_nothing(status: str) -> None:
    assert read_status(status=status) == ParsedPayload()


def test_a_failure_of_a_message_of_another_program_says_nothing() -> None:
    assert read_status(status="failed", biz_opaque_callback_data="order:860198") == ParsedPayload()
    assert read_status(status="failed", biz_opaque_callback_data="") == ParsedPayload()


def test_messages_of_one_payload_are_in_the_order_of_their_time_and_each_comes_once() -> None:
    def build(id_: str, at: int) -> dict[str, Any]:
        return {"from": PHONE, "id": id_, "timestamp": str(at), "type": "text", "text": {"body": id_}}

    messages = [build("c", 3), build("a", 1), build("b", 2), build("a", 1), build("d", 3)]
    found = read_value(messages=messages)
    assert [event.inbound and event.inbound.event for event in found.events] == ["a", "b", "c", "d"]


def test_one_item_that_cannot_be_read_does_not_block_the_others() -> None:
    good = {"from": PHONE, "id": "wamid.A", "timestamp": "1", "type": "text", "text": {"body": "x"}}
    found = read_value(
        contacts=[3],
        messages=[
            {"id": 5},
            good,
            None,
            {**good, "timestamp": "soon"},
            {**good, "id": "wamid.B", "from": ""},
        ],
        statuses=["x"],
    )
    assert [event.source.message for event in found.events] == ["wamid.A"] and len(found.problems) == 6


def test_other_numbers_and_other_fields_are_left_out() -> None:
    other = {**METADATA, "phone_number_id": "42"}
    assert read_value(metadata=other, messages=[{"id": "x"}]) == ParsedPayload(other_numbers=("42",))
    assert parse_payload(wrap({"event": "x"}, field="account_update"), ME) == ParsedPayload()


def test_the_agent_platform_has_ids_of_its_own() -> None:
    body = {
        "object": "whatsapp_agent_platform",
        "entry": [
            {
                "id": "123",
                "changes": [
                    {
                        "field": "messages",
                        "value": {
                            "messaging_product": "whatsapp",
                            "contacts": [{"wa_id": "user:509", "profile": {"name": "Alex"}}],
                            "messages": [
                                {
                                    "from": "user:509",
                                    "id": "wamid.A",
                                    "timestamp": "1790000000",
                                    "type": "text",
                                    "text": {"body": "hi"},
                                    "context": {"id": "wamid.Z", "from": "agent:123"},
                                }
                            ],
                            "statuses": [
                                {
                                    "id": "wamid.Q",
                                    "status": "read",
                                    "recipient_id": "user:509",
                                    "timestamp": "1",
                                }
                            ],
                        },
                    }
                ],
            }
        ],
        "next_offset": 9223372036854775806,
    }
    payload = msgspec.convert(body, WhatsAppPayload)
    assert payload.next_offset == 9223372036854775806
    [event] = parse_payload(payload, WhatsAppIdentity(account="")).events
    assert isinstance(event.inbound, InboundMessage)
    source = event.inbound.source
    assert (source.user, source.chat, source.user_name) == ("user:509", "user:509", "Alex")
    assert event.inbound.replies_to == "wamid.Z" and event.aliases == ()


@pytest.mark.parametrize(
    ("id_", "fits"),
    [(PHONE, True), (ANN, True), ("US.ENT.118", True), ("+1 650", False), ("ann", False), ("0123456", False)],
)
def test_ids_of_people_on_the_cloud_api(id_: str, fits: bool) -> None:
    assert CLOUD_IDS.person is not None and CLOUD_IDS.person.matches(id_) is fits


def test_ids_of_people_on_the_agent_platform() -> None:
    assert AGENT_IDS.person is not None
    assert [AGENT_IDS.person.matches(id_) for id_ in ("user:509", "509", "agent:1")] == [True, False, False]
