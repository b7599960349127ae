"""Events as Feishu documents them, parsed."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.fakes.feishu import APP_ID, BOT, DIRECT, GROUP, PERSON, TENANT, UNION_ID, USER_ID

from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundMessage
from keryx.core.source import ChatType
from keryx.surfaces.gateway.feishu import event_parser
from keryx.surfaces.gateway.feishu.event_parser import FeishuContext, FeishuPlace
from keryx.surfaces.gateway.feishu.payloads import (
    CardActionEvent,
    FeishuEventHeader,
    FeishuMessageEvent,
    FeishuPersonIds,
    FeishuReactionEvent,
    FeishuRecallEvent,
)

CONTEXT = FeishuContext(account=APP_ID, me=BOT, names={PERSON: "Ann", GROUP: "Team"})
HEADER = FeishuEventHeader(
    event_id="5e3702a84e847582be8db7fb73283c02", event_type="im.message.receive_v1", tenant_key=TENANT
)
KERYX = {"key": "@_user_1", "id": {"open_id": BOT, "union_id": "on_b"}, "name": "Keryx", "tenant_key": TENANT}
BEN = {"key": "@_user_2", "id": {"open_id": "ou_ben"}, "name": "Ben", "tenant_key": TENANT}


def build(content: object, *, kind: str = "text", group: bool = False, **more: Any) -> FeishuMessageEvent:
    sender = {
        "sender_id": {"union_id": UNION_ID, "user_id": USER_ID, "open_id": PERSON},
        "sender_type": "user",
        "tenant_key": TENANT,
    }
    message = {
        "message_id": "om_5ce6d572455d361153b7cb51da133945",
        "create_time": "1609073151345",
        "update_time": "1687343654666",
        "chat_id": GROUP if group else DIRECT,
        "chat_type": "group" if group else "p2p",
        "message_type": kind,
        "content": content if isinstance(content, str) else json.dumps(content),
        "user_agent": "Mozilla/5.0",
        **more,
    }
    return msgspec.convert({"sender": sender, "message": message}, FeishuMessageEvent)


def parse(content: object, *, context: FeishuContext = CONTEXT, **more: Any) -> InboundMessage:
    parsed = event_parser.parse_message(build(content, **more), HEADER, context)
    assert parsed is not None
    return parsed


def read(message: InboundMessage) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def test_a_direct_message() -> None:
    message = parse({"text": "hello"})
    source = message.source
    assert message.event == source.message == "om_5ce6d572455d361153b7cb51da133945"
    assert (source.platform, source.account, source.chat_type) == ("feishu", APP_ID, ChatType.DM)
    assert (source.chat, source.chat_name, source.user, source.user_name) == (DIRECT, None, PERSON, "Ann")
    assert (source.thread, source.scope, source.bot) == (None, TENANT, False)
    assert message.at == datetime(2020, 12, 27, 12, 45, 51, 345000, tzinfo=UTC)
    assert (read(message), message.addressed, message.files) == ("hello", True, ())
    assert message.reply is not None
    assert (message.reply.chat, message.reply.reply_to, message.reply.thread) == (DIRECT, message.event, "")
    assert message.reply.reply_context == event_parser.DIRECT_CONTEXT


def test_a_group_needs_a_mention_which_is_not_part_of_the_text() -> None:
    mentioned = parse({"text": "@_user_1 ask @_user_2 and @_all"}, group=True, mentions=[KERYX, BEN])
    assert (read(mentioned), mentioned.addressed) == ("ask @Ben and @all", True)
    assert (mentioned.source.chat_type, mentioned.source.chat_name) == (ChatType.GROUP, "Team")
    assert mentioned.reply is not None and mentioned.reply.reply_context is None
    other = parse({"text": "@_user_2 hi"}, group=True, mentions=[BEN])
    assert (read(other), other.addressed) == ("@Ben hi", False)
    assert not parse({"text": "@_all hi"}, group=True).addressed
    assert read(parse({"text": "hey @_user_1 there"}, group=True, mentions=[KERYX])) == "hey @Keryx there"


def test_keys_of_mentions_with_two_digits_are_not_confused() -> None:
    tenth = {**BEN, "key": "@_user_10", "name": "Ten"}
    text = read(parse({"text": "x @_user_10 @_user_2 @_user_3"}, mentions=[BEN, tenth]))
    assert text == "x @Ten @Ben @_user_3"


def test_a_mention_alone_is_kept() -> None:
    message = parse({"text": "@_user_1"}, group=True, mentions=[KERYX])
    assert (read(message), message.addressed) == ("@Keryx", True)


def test_a_command_behind_a_mention_is_a_command() -> None:
    assert read(parse({"text": "@_user_1 /new"}, group=True, mentions=[KERYX])) == "/new"


def test_a_message_in_a_thread_names_the_thread_and_its_root() -> None:
    root = "om_root"
    message = parse({"text": "hi"}, group=True, thread_id="omt_1", root_id=root, parent_id=root)
    assert (message.source.thread, message.source.chat_type) == ("omt_1", ChatType.THREAD)
    assert (message.thread_root, message.replies_to) == (root, "")
    assert message.reply is not None and message.reply.thread == "omt_1"
    quoting = parse({"text": "hi"}, group=True, thread_id="omt_1", root_id=root, parent_id="om_other")
    assert quoting.replies_to == "om_other"


def test_the_first_message_of_a_thread_has_no_root() -> None:
    message = parse({"text": "hi"}, group=True, thread_id="omt_1")
    assert (message.source.thread, message.thread_root) == ("omt_1", "")


def test_a_reply_names_what_it_replies_to_and_a_reply_to_keryx_is_addressed_to_it() -> None:
    fields: dict[str, Any] = {"root_id": "om_a", "parent_id": "om_b", "group": True}
    reply = parse({"text": "hi"}, **fields)
    assert (reply.replies_to, reply.thread_root, reply.addressed) == ("om_b", "", False)
    context = msgspec.structs.replace(CONTEXT, replies_to_me=True)
    assert parse({"text": "hi"}, context=context, **fields).addressed


@pytest.mark.parametrize(
    ("kind", "content", "name", "reference"),
    [
        ("image", {"image_key": "img_v2_1"}, "image", "image img_v2_1"),
        ("file", {"file_key": "file_v2_1", "file_name": "a b.pdf"}, "a b.pdf", "file file_v2_1"),
        ("audio", {"file_key": "file_v2_1", "duration": 2000}, "voice message", "file file_v2_1"),
        (
            "media",
            {"file_key": "file_v2_1", "image_key": "i", "file_name": "v.mp4", "duration": 1},
            "v.mp4",
            "file file_v2_1",
        ),
    ],
)
def test_files(kind: str, content: dict[str, Any], name: str, reference: str) -> None:
    message = parse(content, kind=kind)
    [file] = message.files
    assert (file.name, file.reference, message.parts) == (name, f"{message.event} {reference}", ())
    found = event_parser.parse_reference(file.reference)
    assert found == (message.event, reference.split()[1], reference.split()[0])


def test_a_rich_text_is_markdown_with_its_files() -> None:
    content: dict[str, Any] = {
        "title": "Plan",
        "content": [
            [
                {"tag": "at", "user_id": "@_user_1", "user_name": "Keryx"},
                {"tag": "text", "text": " see ", "style": []},
                {"tag": "a", "href": "https://x.org", "text": "this", "style": ["bold"]},
                {"tag": "text", "text": " now ", "style": ["bold", "italic"]},
                {"tag": "emotion", "emoji_type": "THUMBSUP"},
            ],
            [{"tag": "img", "image_key": "img_1"}],
            [{"tag": "media", "file_key": "file_1", "image_key": "img_2"}],
            [{"tag": "code_block", "language": "PYTHON", "text": "x = 1\n"}],
            [{"tag": "hr"}],
            [{"tag": "hologram", "text": "?"}],
        ],
    }
    message = parse(content, kind="post", group=True, mentions=[KERYX])
    assert read(message) == (
        "**Plan**\n@Keryx see [this](https://x.org) ***now*** 👍\n\n\n\n```python\nx = 1\n```\n\n\n---\n\n?"
    )
    assert message.addressed
    assert [file.reference.split(" ", 1)[1] for file in message.files] == ["image img_1", "file file_1"]
    untitled: dict[str, Any] = {"content": content["content"][:1]}
    assert read(parse(untitled, kind="post", mentions=[KERYX])).startswith("see [this]")
    wrapped = {"zh_cn": {"title": "", "content": [[{"tag": "text", "text": "hi"}]]}}
    assert read(parse(wrapped, kind="post")) == "hi"


@pytest.mark.parametrize(
    ("kind", "content", "text"),
    [
        ("sticker", {"file_key": "x"}, "[sticker]"),
        ("merge_forward", {"content": "Merged and Forwarded Message"}, "[several forwarded messages]"),
        ("interactive", {"elements": []}, "[a card]"),
        (
            "location",
            {"name": "Vienna", "latitude": "48.2", "longitude": "16.4"},
            "[place: Vienna, 48.2, 16.4]",
        ),
        ("location", {}, "[a place]"),
        ("hologram", {"depth": 3}, "[a message of the type hologram]"),
        ("image", {}, "[image, which cannot be fetched]"),
        ("post", "no json", "[a rich text that cannot be read]"),
        ("post", {"content": [[{"tag": 5}]]}, "[a rich text that cannot be read]"),
    ],
)
def test_what_cannot_be_shown_is_described(kind: str, content: object, text: str) -> None:
    assert read(parse(content, kind=kind)) == text


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"text": 5}', "[" * 2000, '{"text": ""}'])
def test_a_text_that_cannot_be_read_is_no_message(content: str) -> None:
    assert event_parser.parse_message(build(content), HEADER, CONTEXT) is None


def test_notices_of_the_platform_and_own_messages_are_no_messages() -> None:
    assert event_parser.parse_message(build({"text": "x"}, kind="system"), HEADER, CONTEXT) is None
    own = msgspec.structs.replace(CONTEXT, me=PERSON)
    assert event_parser.parse_message(build({"text": "x"}), HEADER, own) is None


def test_a_program_is_a_bot() -> None:
    event = build({"text": "x"})
    sender = msgspec.structs.replace(event.sender, sender_type="app")
    parsed = event_parser.parse_message(msgspec.structs.replace(event, sender=sender), HEADER, CONTEXT)
    assert parsed is not None and parsed.source.bot


def test_the_other_ids_of_a_person_are_aliases_and_a_user_id_has_its_organisation() -> None:
    ids = FeishuPersonIds(open_id=PERSON, user_id=USER_ID, union_id=UNION_ID)
    assert event_parser.list_aliases(ids, TENANT) == [UNION_ID, f"{USER_ID}@{TENANT}"]
    assert event_parser.list_aliases(ids, "") == [UNION_ID]
    assert event_parser.list_aliases(FeishuPersonIds(union_id=UNION_ID), TENANT) == []
    assert event_parser.list_aliases(None, TENANT) == []
    assert event_parser.IDS.person is not None
    assert all(map(event_parser.IDS.person.matches, (PERSON, UNION_ID, f"{USER_ID}@{TENANT}")))


def test_a_recalled_message_names_the_message() -> None:
    event = msgspec.convert(
        {"message_id": "om_1", "chat_id": GROUP, "recall_time": "1615381573", "recall_type": "group_owner"},
        FeishuRecallEvent,
    )
    place = FeishuPlace(chat=GROUP, direct=False)
    deletion = event_parser.parse_recall(event, HEADER, place, CONTEXT)
    assert (deletion.event, deletion.message_event) == ("om_1.recalled", "om_1")
    assert (deletion.source.chat, deletion.source.user) == (GROUP, None)


def react(name: str, *, kind: str = "created", own: bool = True, **more: Any) -> Any:
    event = msgspec.convert(
        {
            "message_id": "om_1",
            "reaction_type": {"emoji_type": name},
            "operator_type": "user",
            "user_id": {"open_id": PERSON},
            "action_time": "1627641418803",
            **more,
        },
        FeishuReactionEvent,
    )
    header = msgspec.structs.replace(HEADER, event_type=f"im.message.reaction.{kind}_v1")
    place = FeishuPlace(chat=DIRECT, direct=True, own=own)
    return event_parser.parse_reaction(event, header, place, CONTEXT)


def test_a_reaction_has_an_emoji_and_names_its_message() -> None:
    added = react("THUMBSUP")
    assert (added.reaction, added.removed, added.message, added.message_event) == ("👍", False, "om_1", "")
    assert (added.source.user, added.source.user_name, added.source.chat) == (PERSON, "Ann", DIRECT)
    assert react("ThumbsDown", own=False).message_event == "om_1"
    assert react("ThumbsDown", kind="deleted").removed
    assert react("SpeechlessCat").reaction == ":SpeechlessCat:"


def test_reactions_of_programs_are_left_out() -> None:
    assert react("OnIt", operator_type="app", user_id=None, app_id=APP_ID) is None
    assert react("OnIt", user_id={"open_id": BOT}) is None
    assert react("OnIt", user_id=None) is None


def press(value: object) -> InboundMessage | None:
    event = msgspec.convert(
        {
            "operator": {"open_id": PERSON, "tenant_key": TENANT, "user_id": USER_ID},
            "token": "c-1",
            "action": {"value": value, "tag": "button"},
            "host": "im_message",
            "context": {"open_message_id": "om_1", "open_chat_id": GROUP},
        },
        CardActionEvent,
    )
    place = FeishuPlace(chat=GROUP, direct=False, thread="omt_1", own=True)
    return event_parser.parse_press(event, HEADER, place, CONTEXT)


def test_a_press_is_a_message_of_the_person_without_a_reply() -> None:
    message = press(event_parser.build_press("/answer 01 2"))
    assert message is not None and (read(message), message.reply) == ("/answer 01 2", None)
    assert message.event == f"press.{HEADER.event_id}"
    assert (message.source.user, message.source.thread) == (PERSON, "omt_1")


@pytest.mark.parametrize(
    "value", [None, "x", {}, {"keryx": 5}, {"keryx": "/new"}, {"other": "/answer 1"}, []]
)
def test_a_button_of_another_program_is_left_out(value: object) -> None:
    assert press(value) is None
