"""What the envelopes of signal-cli say, as the engine sees it. They are written as its source has them."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from keryx.core.deliveries import Target
from keryx.core.errors import Invalid
from keryx.core.media import RemoteFile
from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundDeletion, InboundMessage, InboundReaction
from keryx.core.source import ChatType
from keryx.surfaces.gateway.signal.event_parser import (
    IDS,
    ParsedEnvelope,
    SignalIdentity,
    format_message,
    parse_envelope,
    parse_message,
)
from keryx.surfaces.gateway.signal.payloads import ReceivedEnvelope

NUMBER, UUID = "+15550783881", "0f1e2d3c-4b5a-4697-8879-6a5b4c3d2e1f"
ME = SignalIdentity(number=NUMBER, uuid=UUID)
ANN, PHONE = "8a2f3c1e-5b7d-4e90-a1c2-d3e4f5061728", "+16505551234"
BEN = "1b2c3d4e-5f60-4718-92a3-b4c5d6e7f809"
GROUP = "Pmpi+EfPWmsxiomLe9Nx2XF9HOE483p6iKiFj65iMwI="
AT = 1749416383784
GROUP_INFO = {"groupId": GROUP, "groupName": "Family", "revision": 7, "type": "DELIVER"}
NAMES = {ANN: "Ann", BEN: "Ben"}
MENTION_OF_ME = {"name": NUMBER, "number": NUMBER, "uuid": UUID, "start": 0, "length": 1}
MENTION_OF_BEN = {"name": BEN, "number": None, "uuid": BEN, "start": 6, "length": 1}


def parse(me: SignalIdentity = ME, **envelope: Any) -> ParsedEnvelope | None:
    given = {
        "source": PHONE,
        "sourceNumber": PHONE,
        "sourceUuid": ANN.upper(),
        "sourceName": "Ann",
        "sourceDevice": 1,
        "timestamp": AT,
        "serverReceivedTimestamp": AT + 90,
        "serverDeliveredTimestamp": AT + 95,
        **envelope,
    }
    received = msgspec.convert({"account": NUMBER, "envelope": given}, ReceivedEnvelope)
    assert received.envelope is not None
    return parse_envelope(received.envelope, me, NAMES)


def build_data(message: str | None = "hello", **data: Any) -> dict[str, Any]:
    return {"timestamp": AT, "message": message, "expiresInSeconds": 0, "viewOnce": False, **data}


def say(message: str | None = "hello", *, me: SignalIdentity = ME, **data: Any) -> InboundMessage:
    found = parse(me, dataMessage=build_data(message, **data))
    assert found is not None and isinstance(found.inbound, InboundMessage)
    return found.inbound


def get_text(message: InboundMessage) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def test_a_direct_message_is_of_a_person_who_is_known_by_uuid() -> None:
    found = parse(dataMessage=build_data())
    assert found is not None and found.alias == PHONE
    message = found.inbound
    assert isinstance(message, InboundMessage)
    assert message.event == message.source.message == f"{ANN}.{AT}"
    assert (message.source.chat, message.source.user, message.source.user_name) == (ANN, ANN, "Ann")
    assert message.source.chat_type is ChatType.DM and message.addressed
    assert message.at == datetime(2025, 6, 8, 20, 59, 43, 784000, UTC)
    assert message.reply == Target("signal", NUMBER, chat=ANN, reply_to=f"{ANN}.{AT}")
    assert get_text(message) == "hello" and message.cursor is None


def test_a_person_without_a_uuid_is_known_by_number_and_one_with_a_hidden_number_by_uuid() -> None:
    by_number = parse(sourceUuid=None, dataMessage=build_data())
    hidden = parse(source=ANN, sourceNumber=None, dataMessage=build_data())
    assert by_number is not None and (by_number.inbound.source.user, by_number.alias) == (PHONE, "")
    assert hidden is not None and (hidden.inbound.source.user, hidden.alias) == (ANN, "")


@pytest.mark.parametrize(
    ("data", "addressed", "text"),
    [
        ({"message": "just talk"}, False, "just talk"),
        ({"message": "/status"}, True, "/status"),
        ({"message": "\ufffc: what is up?", "mentions": [MENTION_OF_ME]}, True, "what is up?"),
        ({"message": "hello \ufffc", "mentions": [MENTION_OF_BEN]}, False, "hello @Ben"),
        ({"message": "\ufffc", "mentions": [MENTION_OF_ME]}, True, "@me"),
        (
            {"message": "yes", "quote": {"id": 5, "authorNumber": NUMBER, "text": "May I?"}},
            True,
            "yes",
        ),
        ({"message": "yes", "quote": {"id": 5, "authorUuid": BEN, "text": "May I?"}}, False, "yes"),
    ],
)
def test_in_a_group_a_mention_a_reply_and_a_command_are_meant_for_keryx(
    data: dict[str, Any], addressed: bool, text: str
) -> None:
    given: dict[str, Any] = {**data, "groupInfo": GROUP_INFO}
    message = say(**given)
    assert (message.addressed, get_text(message)) == (addressed, text)
    assert (message.source.chat, message.source.chat_name, message.source.user) == (GROUP, "Family", ANN)
    assert message.source.chat_type is ChatType.GROUP
    assert message.reply is not None and message.reply.chat == GROUP


def test_a_mention_counts_utf_16_units_and_shows_no_number() -> None:
    mentions = [
        {"name": "x", "number": "+4917012345", "uuid": None, "start": 3, "length": 1},
        {"name": BEN, "number": None, "uuid": BEN, "start": 5, "length": 1},
        {"name": BEN, "number": None, "uuid": BEN, "start": 90, "length": 1},
        {"name": BEN, "number": None, "uuid": BEN, "start": 4, "length": 0},
    ]
    assert get_text(say("👋 \ufffc \ufffc!", mentions=mentions)) == "👋 @someone @Ben!"


def test_a_reply_brings_the_text_or_the_files_of_what_it_replies_to() -> None:
    quote = {"id": AT - 1, "authorNumber": NUMBER, "authorUuid": UUID, "text": "Tea or coffee?"}
    assert say("tea", quote=quote).quote == "Tea or coffee?"
    files = [{"contentType": "image/png", "filename": "map.png"}, {"contentType": "x/y", "filename": None}]
    assert say("?", quote={**quote, "text": None, "attachments": files}).quote == "[map.png] [file]"
    named = {**quote, "text": "\ufffc too", "mentions": [{**MENTION_OF_BEN, "start": 0}]}
    assert say("?", quote=named).quote == "@Ben too"


def test_an_edit_names_the_version_that_it_replaces() -> None:
    edited = {"targetSentTimestamp": AT - 500, "dataMessage": build_data("hello!")}
    found = parse(editMessage=edited)
    assert found is not None and isinstance(found.inbound, InboundMessage)
    assert found.inbound.edits == found.revises == f"{ANN}.{AT - 500}"
    assert found.revision == found.inbound.event == f"{ANN}.{AT}"
    assert get_text(found.inbound) == "hello!"


def test_a_deletion_names_the_event_of_the_message() -> None:
    found = parse(dataMessage=build_data(None, remoteDelete={"timestamp": AT - 500}))
    assert found is not None and isinstance(found.inbound, InboundDeletion)
    assert found.inbound.message_event == f"{ANN}.{AT - 500}"
    by_admin = {"targetAuthor": BEN, "targetAuthorUuid": BEN, "targetSentTimestamp": AT - 9}
    found = parse(dataMessage=build_data(None, adminDelete=by_admin, groupInfo=GROUP_INFO))
    assert found is not None and isinstance(found.inbound, InboundDeletion)
    assert (found.inbound.message_event, found.inbound.source.chat) == (f"{BEN}.{AT - 9}", GROUP)


@pytest.mark.parametrize(
    ("author", "message", "event"),
    [
        ({"targetAuthorNumber": NUMBER, "targetAuthorUuid": UUID}, str(AT - 5), ""),
        ({"targetAuthorNumber": None, "targetAuthorUuid": UUID.upper()}, str(AT - 5), ""),
        ({"targetAuthorNumber": PHONE, "targetAuthorUuid": ANN}, f"{ANN}.{AT - 5}", f"{ANN}.{AT - 5}"),
    ],
)
def test_a_reaction_names_the_message_of_its_author(author: dict[str, Any], message: str, event: str) -> None:
    reaction = {"emoji": "👍", **author, "targetSentTimestamp": AT - 5, "isRemove": False}
    found = parse(dataMessage=build_data(None, reaction=reaction))
    assert found is not None and isinstance(found.inbound, InboundReaction)
    assert (found.inbound.message, found.inbound.message_event) == (message, event)
    assert (found.inbound.reaction, found.inbound.removed, found.inbound.source.message) == (
        "👍",
        False,
        None,
    )
    taken_back = parse(dataMessage=build_data(None, reaction={**reaction, "isRemove": True}))
    assert taken_back is not None and isinstance(taken_back.inbound, InboundReaction)
    assert taken_back.inbound.removed


def sync(number: str | None, uuid: str | None, **data: Any) -> ParsedEnvelope | None:
    sent = {"destination": number, "destinationNumber": number, "destinationUuid": uuid, **build_data(**data)}
    return parse(sourceNumber=NUMBER, sourceUuid=UUID, sourceName="Me", syncMessage={"sentMessage": sent})


def test_a_note_to_self_is_a_message_of_the_account_itself() -> None:
    found = sync(NUMBER, UUID)
    assert found is not None and isinstance(found.inbound, InboundMessage)
    assert (found.inbound.source.chat, found.inbound.source.user, found.alias) == (NUMBER, NUMBER, "")
    assert found.inbound.reply == Target("signal", NUMBER, chat=NUMBER, reply_to=f"{NUMBER}.{AT}")
    assert get_text(found.inbound) == "hello" and found.inbound.addressed


def test_a_note_to_self_can_be_edited_deleted_and_reacted_to() -> None:
    edited = {"targetSentTimestamp": AT - 1, "dataMessage": build_data("new")}
    sent = {"destinationNumber": NUMBER, "destinationUuid": UUID, "editMessage": edited}
    found = parse(sourceNumber=NUMBER, sourceUuid=UUID, syncMessage={"sentMessage": sent})
    assert found is not None and isinstance(found.inbound, InboundMessage)
    assert (get_text(found.inbound), found.inbound.edits) == ("new", f"{NUMBER}.{AT - 1}")
    found = sync(NUMBER, UUID, message=None, remoteDelete={"timestamp": AT - 1})
    assert found is not None and isinstance(found.inbound, InboundDeletion)
    reaction = {"emoji": "👎", "targetAuthorNumber": NUMBER, "targetSentTimestamp": AT - 1}
    found = sync(NUMBER, UUID, message=None, reaction=reaction)
    assert found is not None and isinstance(found.inbound, InboundReaction)
    # It may be the note or its answer.
    assert (found.inbound.message, found.inbound.message_event) == (str(AT - 1), f"{NUMBER}.{AT - 1}")


def test_what_the_account_writes_to_others_is_never_answered() -> None:
    assert sync(PHONE, ANN) is None
    assert sync(None, None, groupInfo=GROUP_INFO) is None
    assert sync(NUMBER, UUID, groupInfo=GROUP_INFO) is None
    own = parse(sourceNumber=NUMBER, sourceUuid=UUID, dataMessage=build_data(groupInfo=GROUP_INFO))
    assert own is None
    assert parse(sourceNumber=None, sourceUuid=UUID, dataMessage=build_data()) is None


@pytest.mark.parametrize(
    "envelope",
    [
        {"receiptMessage": {"when": AT, "isDelivery": True, "timestamps": [AT]}},
        {"receiptMessage": {"when": AT, "isRead": True, "timestamps": [AT]}},
        {"receiptMessage": {"when": AT, "isViewed": True, "timestamps": [AT]}},
        {"typingMessage": {"action": "STARTED", "timestamp": AT}},
        {"callMessage": {"offerMessage": {"id": 1, "type": "AUDIO_CALL"}}},
        {"storyMessage": {"allowsReplies": True, "textAttachment": {"text": "look"}}},
        {"syncMessage": {"readMessages": [{"sender": PHONE, "timestamp": AT}]}},
        {"syncMessage": {"type": "CONTACTS_SYNC"}},
        {"syncMessage": {}},
        {"dataMessage": build_data(None, groupInfo={**GROUP_INFO, "type": "UPDATE"})},
        {"dataMessage": build_data(None, isExpirationUpdate=True)},
        {"dataMessage": build_data(None)},
        {"sourceNumber": None, "sourceUuid": None, "dataMessage": build_data()},
        {},
    ],
)
def test_what_says_nothing_is_no_event(envelope: dict[str, Any]) -> None:
    assert parse(**envelope) is None


FILE = {"contentType": "image/jpeg", "filename": None, "id": "Abc.jpg", "size": 12, "caption": None}


def test_files_are_named_with_what_they_are_fetched_by() -> None:
    message = say(
        None, attachments=[FILE, {**FILE, "id": "x", "filename": "a b.pdf", "contentType": "application/pdf"}]
    )
    assert message.parts == () and message.files == (
        RemoteFile(reference="Abc.jpg", name="image.jpg", mime="image/jpeg", size=12),
        RemoteFile(reference="x", name="a b.pdf", mime="application/pdf", size=12),
    )
    assert say("look", attachments=[{**FILE, "id": None}]).files == ()


def test_a_long_text_is_a_file_unless_the_message_has_all_of_it() -> None:
    rest = {"contentType": "text/x-signal-plain", "id": "long", "size": 5000, "filename": None}
    assert say("a" * 5000, attachments=[rest]).files == ()
    [file] = say("a" * 2000, attachments=[rest]).files
    assert (file.reference, file.name, file.mime) == ("long", "file.txt", "text/plain")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"sticker": {"packId": "ab", "stickerId": 3}}, "[sticker]"),
        ({"pollCreate": {"question": "When?", "options": ["now", "later"]}}, "[poll: When? now / later]"),
        (
            {
                "contacts": [
                    {"name": {"given": "Bo", "family": "Li"}, "phone": [{"value": "+1555"}], "email": None}
                ]
            },
            "[contact: Bo Li, +1555]",
        ),
        ({"contacts": [{"name": None, "organization": "ACME"}]}, "[contact: ACME]"),
        ({"viewOnce": True}, "[a message that can be seen once]"),
    ],
)
def test_other_content_is_told_in_words(data: dict[str, Any], words: str) -> None:
    assert get_text(say(None, **data)) == words


def test_ids_have_the_declared_formats() -> None:
    assert IDS.chat is not None and IDS.person is not None
    old_group = "AAAAAAAAAAAAAAAAAAAAAA=="
    assert all(map(IDS.chat.matches, (ANN, PHONE, GROUP, old_group)))
    assert all(map(IDS.person.matches, (ANN, PHONE)))
    wrong = ("", "15550002222", "+0155500", ANN.upper(), GROUP[:-1], "u:ann.01", "+1 555")
    assert not any(map(IDS.chat.matches, wrong)) and not IDS.person.matches(GROUP)


def test_the_id_of_a_message_is_its_author_and_its_time() -> None:
    for author in ("", ANN, PHONE):
        assert parse_message(format_message(author, AT)) == (author, AT)
    for wrong in ("", "x", f"{ANN}.", f"{ANN}.late", "1" * 16):
        with pytest.raises(Invalid):
            parse_message(wrong)
