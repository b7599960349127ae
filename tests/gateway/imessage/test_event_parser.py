"""Rows of Messages, as imsg and BlueBubbles write them, become events."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundDeletion, InboundMessage, InboundReaction
from keryx.core.source import ChatType
from keryx.surfaces.gateway.imessage.event_parser import (
    IDS,
    IMessageIdentity,
    normalize_handle,
    parse_row,
    parse_update,
    read_bluebubbles,
    read_imsg,
)
from keryx.surfaces.gateway.imessage.payloads import BlueBubblesMessage, ImsgMessage

ME = IMessageIdentity(account="home", handles=frozenset({"agent@keryx.test"}), names=("Keryx",))
ANN = "+15551234567"
GROUP = "iMessage;+;chat400"
# As imsg 0.9 writes it (docs/json.md, OutputModels.swift).
IMSG: dict[str, Any] = {
    "id": 1979,
    "chat_id": 42,
    "guid": "8DF0-A",
    "sender": "+1 (555) 123-4567",
    "sender_name": "Ann",
    "is_from_me": False,
    "text": "hello",
    "created_at": "2026-11-17T08:00:00.250Z",
    "attachments": [],
    "reactions": [],
    "chat_identifier": ANN,
    "chat_guid": f"iMessage;-;{ANN}",
    "chat_name": "",
    "participants": [ANN],
    "is_group": False,
}
# As BlueBubbles 1.9 writes it (MessageSerializer.ts).
BLUEBUBBLES: dict[str, Any] = {
    "originalROWID": 1979,
    "guid": "8DF0-A",
    "text": "hello",
    "attributedBody": None,
    "handle": {"originalROWID": 3, "address": ANN, "service": "iMessage", "country": "us"},
    "attachments": [],
    "subject": None,
    "error": 0,
    "dateCreated": 1_794_902_400_250,
    "dateRead": None,
    "isFromMe": False,
    "itemType": 0,
    "associatedMessageGuid": None,
    "associatedMessageType": None,
    "threadOriginatorGuid": None,
    "chats": [{"originalROWID": 42, "guid": f"iMessage;-;{ANN}", "style": 45, "displayName": ""}],
    "dateEdited": None,
    "dateRetracted": None,
}


def parse_imsg(**changes: Any) -> Any:
    return parse_row(read_imsg(msgspec.convert({**IMSG, **changes}, ImsgMessage)), ME, {"OWN"})


def parse_bluebubbles(*, update: bool = False, **changes: Any) -> Any:
    row = read_bluebubbles(msgspec.convert({**BLUEBUBBLES, **changes}, BlueBubblesMessage), {ANN: "Ann"})
    return (parse_update if update else parse_row)(row, ME, {"OWN"})


def get_text(event: InboundMessage) -> str:
    return "".join(part.text for part in event.parts if isinstance(part, Text))


@pytest.mark.parametrize(
    ("written", "handle"),
    [
        ("+15551234567", "+15551234567"),
        ("+1 (555) 123-4567", "+15551234567"),
        ("tel:+15551234567", "+15551234567"),
        ("iMessage;-;+15551234567", "+15551234567"),
        ("any;-;ANN@Example.org", "ann@example.org"),
        ("mailto:Ann@example.org", "ann@example.org"),
        ("12345", "12345"),
        ("555 1234", "5551234"),
        ("urn:biz:0b-1c", "urn:biz:0b-1c"),
        (" + ", "+"),
        ("Déjà Vu", "Déjà Vu"),
        ("", ""),
    ],
)
def test_a_handle_has_one_form(written: str, handle: str) -> None:
    assert normalize_handle(written) == handle
    assert normalize_handle(handle) == handle


@pytest.mark.parametrize("parse", [parse_imsg, parse_bluebubbles])
def test_a_direct_message(parse: Any) -> None:
    event = parse()
    assert isinstance(event, InboundMessage)
    assert (event.event, get_text(event), event.addressed) == ("8DF0-A", "hello", True)
    assert event.at == datetime(2026, 11, 17, 8, 0, 0, 250_000, tzinfo=UTC)
    source, reply = event.source, event.reply
    assert (source.platform, source.account, source.chat_type) == ("imessage", "home", ChatType.DM)
    assert (source.chat, source.user, source.user_name, source.message) == (ANN, ANN, "Ann", "8DF0-A")
    assert reply is not None and reply.reply_context is not None
    assert (reply.chat, reply.reply_to, reply.reply_context.token) == (ANN, "8DF0-A", f"iMessage;-;{ANN}")
    assert IDS.chat and IDS.chat.matches(ANN) and IDS.person and IDS.person.matches(ANN)


@pytest.mark.parametrize(
    "event",
    [
        parse_imsg(chat_guid=f"SMS;-;{ANN}"),
        parse_bluebubbles(chats=[{"guid": f"SMS;-;{ANN}", "style": 45}]),
    ],
)
def test_sms_and_imessage_are_one_chat_and_each_is_answered_as_it_came(event: InboundMessage) -> None:
    assert event.source.chat == ANN
    assert event.reply and event.reply.reply_context and event.reply.reply_context.token == f"SMS;-;{ANN}"


@pytest.mark.parametrize("parse", [parse_imsg, parse_bluebubbles])
def test_own_messages_are_no_events(parse: Any) -> None:
    own = {"is_from_me": True, "isFromMe": True}
    assert parse(**own) is None
    assert parse(**own, is_reaction=True, reaction_type="like", associatedMessageType="like") is None


@pytest.mark.parametrize(
    ("text", "more", "addressed"),
    [
        ("lunch?", {}, False),
        ("/status", {}, True),
        ("what do you think, keryx?", {}, True),
        ("keryxes", {}, False),
        ("yes", {"thread_originator_guid": "OWN", "threadOriginatorGuid": "OWN"}, True),
        ("yes", {"thread_originator_guid": "OTHER", "threadOriginatorGuid": "OTHER"}, False),
    ],
)
@pytest.mark.parametrize("parse", [parse_imsg, parse_bluebubbles])
def test_a_group_message_is_addressed_by_name_reply_or_command(
    parse: Any, text: str, more: dict[str, str], addressed: bool
) -> None:
    event = parse(
        text=text,
        chat_guid=GROUP,
        chat_name="Climbing",
        is_group=True,
        chats=[{"guid": GROUP, "style": 43, "displayName": "Climbing"}],
        **more,
    )
    assert (event.addressed, event.source.chat, event.source.chat_name) == (addressed, GROUP, "Climbing")
    assert (event.source.chat_type, event.source.user) == (ChatType.GROUP, ANN)
    assert event.replies_to == more.get("threadOriginatorGuid", "")


def test_a_mention_addresses_the_agent() -> None:
    runs: list[Any] = [
        {"range": [0, 4], "attributes": {"__kIMMentionConfirmedMention": "Agent@keryx.test"}},
        {"range": [4, 2], "attributes": {}},
    ]
    body: list[Any] = [{"string": "Bot hi", "runs": runs}, "odd", {"runs": 3}]
    group = [{"guid": GROUP, "style": 43}]
    assert parse_bluebubbles(chats=group, attributedBody=body).addressed
    assert not parse_bluebubbles(chats=group, attributedBody={"runs": runs}).addressed


def test_a_reply_brings_the_text_that_it_quotes_if_that_is_told() -> None:
    event = parse_imsg(thread_originator_guid="Q", reply_to_guid="Q", reply_to_text="\ufffcwhen?")
    assert (event.replies_to, event.quote) == ("Q", "when?")


@pytest.mark.parametrize(
    ("name", "emoji"),
    [("love", "❤️"), ("like", "👍"), ("dislike", "👎"), ("laugh", "😂"), ("question", "❓")],
)
@pytest.mark.parametrize("removed", [False, True])
def test_a_tapback_is_a_reaction(name: str, emoji: str, removed: bool) -> None:
    told = parse_imsg(
        is_reaction=True,
        reaction_type=name,
        reaction_emoji=emoji,
        is_reaction_add=not removed,
        reacted_to_guid="M",
        text="Liked “it”",
    )
    posted = parse_bluebubbles(
        associatedMessageType=f"-{name}" if removed else name,
        associatedMessageGuid="p:0/M",
        text="Liked “it”",
    )
    for event in (told, posted):
        assert isinstance(event, InboundReaction)
        assert (event.reaction, event.removed, event.message, event.message_event) == (
            emoji,
            removed,
            "M",
            "M",
        )
        assert (event.source.user, event.source.message) == (ANN, None)


def test_a_tapback_with_any_emoji_is_a_reaction() -> None:
    told = parse_imsg(
        is_reaction=True,
        reaction_type="custom",
        reaction_emoji="🎉",
        is_reaction_add=True,
        reacted_to_guid="M",
    )
    posted = parse_bluebubbles(
        associatedMessageType="2006", associatedMessageGuid="bp:M", text="Reacted 🎉 to “hello”"
    )
    assert [(event.reaction, event.message) for event in (told, posted)] == [("🎉", "M")] * 2


def test_files_are_named_and_previews_of_links_are_not() -> None:
    told = parse_imsg(
        text="\ufffclook",
        attachments=[
            {
                "transfer_name": "a.pdf",
                "mime_type": "application/pdf",
                "total_bytes": 9,
                "original_path": "/x/a",
            },
            {"transfer_name": "lost.pdf", "original_path": "", "missing": True},
        ],
    )
    posted = parse_bluebubbles(
        text="\ufffclook",
        attachments=[
            {"guid": "F1", "transferName": "a.pdf", "mimeType": "application/pdf", "totalBytes": 9},
            {"guid": "F2", "transferName": "preview.pluginPayloadAttachment", "hideAttachment": True},
        ],
    )
    assert [file.reference for event in (told, posted) for file in event.files] == ["/x/a", "F1"]
    assert {(file.name, file.mime, file.size) for event in (told, posted) for file in event.files} == {
        ("a.pdf", "application/pdf", 9)
    }
    assert get_text(told) == get_text(posted) == "look"


def test_an_edit_and_a_deletion_name_the_message() -> None:
    edit = parse_bluebubbles(update=True, text="hello!", dateEdited=1_794_902_410_000)
    assert isinstance(edit, InboundMessage)
    assert (edit.edits, edit.event, get_text(edit)) == ("8DF0-A", "8DF0-A.edited.1794902410000", "hello!")
    forms: list[dict[str, Any]] = [
        {"dateRetracted": 1_794_902_410_000},
        {"text": None, "dateEdited": 1_794_902_410_000},
    ]
    for gone in forms:
        deletion = parse_bluebubbles(update=True, **gone)
        assert isinstance(deletion, InboundDeletion)
        assert (deletion.message_event, deletion.event) == ("8DF0-A", "8DF0-A.retracted")
        assert parse_bluebubbles(**gone) is None
    assert parse_bluebubbles(update=True) is None
    assert parse_bluebubbles(update=True, isFromMe=True, dateEdited=5) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"text": "", "attachments": []},
        {"itemType": 2, "groupTitle": "New name", "text": "Ann named the conversation", "sender": ""},
        {"handle": None, "sender": "", "chats": [], "chat_guid": "", "chat_identifier": ""},
    ],
)
@pytest.mark.parametrize("parse", [parse_imsg, parse_bluebubbles])
def test_rows_that_say_nothing_are_no_events(parse: Any, changes: dict[str, Any]) -> None:
    if parse is parse_imsg and "itemType" in changes:
        changes = {**changes, "is_group": True, "chat_guid": GROUP}
    assert parse(**changes) is None


@pytest.mark.parametrize("payload", [{}, {"id": -1, "guid": "A"}, {"id": 1, "guid": None}, [], 7])
def test_a_row_of_another_form_is_refused(payload: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(payload, ImsgMessage)
