"""What messages of the iLink bot API say, as the engine sees it. They are written after Tencent's protocol document."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from keryx.core.deliveries import ReplyContext, Target
from keryx.core.errors import Invalid
from keryx.core.media import RemoteFile
from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundDeletion, InboundEvent, InboundMessage
from keryx.core.source import ChatType
from keryx.surfaces.gateway.wechat.event_parser import (
    IDS,
    CdnReference,
    WeChatIdentity,
    parse_message,
    parse_reference,
    read_message,
)

ANN = "o9cq80ann@im.wechat"
ME = WeChatIdentity(account="work", bot="a1b2c3@im.bot")
KEY = bytes(range(16))
RAW_KEY = base64.b64encode(KEY).decode()
HEX_KEY = base64.b64encode(KEY.hex().encode()).decode()
AT = datetime(2026, 9, 17, 8, 30, tzinfo=UTC)


def parse(**message: Any) -> InboundEvent | None:
    body: dict[str, Any] = {
        "seq": 4,
        "message_id": 18446744073709551615,
        "from_user_id": ANN,
        "to_user_id": ME.bot,
        "create_time_ms": int(AT.timestamp() * 1000),
        "message_type": 1,
        "message_state": 2,
        "context_token": "AARzJW==",
        **message,
    }
    return parse_message(read_message(body), ME)


def say(*items: dict[str, Any], **message: Any) -> InboundMessage:
    event = parse(item_list=list(items), **message)
    assert isinstance(event, InboundMessage)
    return event


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"type": 1, "text_item": {"text": words}, **more}


def read_text(event: InboundMessage) -> str:
    return "".join(part.text for part in event.parts if isinstance(part, Text))


def open_file(file: RemoteFile) -> CdnReference:
    return parse_reference(file.reference)


def test_a_text_is_a_direct_message_with_a_token_for_its_answer() -> None:
    event = say(text("hello"))
    id_ = "18446744073709551615"
    assert event.event == id_ and read_text(event) == "hello" and event.at == AT
    source = event.source
    assert (source.platform, source.account, source.chat, source.user) == ("wechat", "work", ANN, ANN)
    assert (source.chat_type, source.message) == (ChatType.DM, id_)
    token = ReplyContext("AARzJW==", AT + timedelta(hours=24))
    assert event.reply == Target("wechat", "work", chat=ANN, reply_to=id_, reply_context=token)
    assert event.state == {f"context {ME.bot} {ANN}": "AARzJW=="}


def test_a_message_without_a_token_leaves_the_one_that_is_known() -> None:
    event = say(text("hello"), context_token=None)
    assert event.state == {} and event.reply is not None and event.reply.reply_context is None


def test_what_is_null_or_a_number_in_quotes_is_read() -> None:
    item = text("hello", image_item=None, ref_msg=None, msg_id=None)
    assert read_text(say(item, seq="7", group_id=None, client_id=None, delete_time_ms=None)) == "hello"


def test_several_texts_are_lines() -> None:
    assert read_text(say(text("one"), text("two"))) == "one\ntwo"


@pytest.mark.parametrize(
    ("message", "event"),
    [
        ({"message_id": "77"}, "77"),
        ({"message_id": 0, "item_list": [text("x", msg_id="88")]}, "88"),
        ({"message_id": None, "item_list": [text("x", msg_id=99)]}, "99"),
    ],
)
def test_an_id_may_be_a_number_a_text_or_that_of_an_item(message: dict[str, Any], event: str) -> None:
    found = parse(**{"item_list": [text("x")], **message})
    assert found is not None and found.event == event


def test_a_message_without_an_id_keeps_one_of_its_own() -> None:
    first, again = (say(text("x"), message_id=None) for _ in range(2))
    other = say(text("x"), message_id=None, seq=5)
    assert first.event == again.event != other.event and first.event.startswith("digest.")


def test_a_voice_message_is_what_wechat_has_understood() -> None:
    voice = {
        "text": "good morning",
        "encode_type": 6,
        "media": {"encrypt_query_param": "v", "aes_key": HEX_KEY},
    }
    event = say({"type": 3, "voice_item": voice})
    assert read_text(event) == "good morning" and event.files == ()


@pytest.mark.parametrize(
    ("encoding", "name", "mime"),
    [(5, "voice.amr", "audio/amr"), (6, "voice.silk", "audio/silk"), (7, "voice.mp3", "audio/mpeg")],
)
def test_a_voice_message_without_words_is_a_sound(encoding: int, name: str, mime: str) -> None:
    voice = {"encode_type": encoding, "media": {"encrypt_query_param": "v", "aes_key": HEX_KEY}}
    event = say({"type": 3, "voice_item": voice})
    [file] = event.files
    assert (file.name, file.mime, event.parts) == (name, mime, ())
    assert open_file(file) == CdnReference(param="v", key=KEY.hex())


@pytest.mark.parametrize(
    "image",
    [
        {"media": {"encrypt_query_param": "p", "aes_key": RAW_KEY}},
        {"media": {"encrypt_query_param": "p", "aes_key": HEX_KEY}},
        {"media": {"encrypt_query_param": "p", "aes_key": "bm90IHRoZSBrZXk="}, "aeskey": KEY.hex().upper()},
    ],
)
def test_the_key_of_a_picture_comes_in_three_forms(image: dict[str, Any]) -> None:
    [file] = say({"type": 2, "image_item": image}).files
    assert (file.name, file.mime) == ("picture.jpg", "image/jpeg")
    assert open_file(file) == CdnReference(param="p", key=KEY.hex())


def test_a_picture_without_a_key_is_not_encrypted() -> None:
    [file] = say({"type": 2, "image_item": {"media": {"full_url": "https://x.weixin.qq.com/p"}}}).files
    assert open_file(file) == CdnReference(url="https://x.weixin.qq.com/p")


def test_a_file_has_its_name_type_and_size() -> None:
    media = {"encrypt_query_param": "f", "aes_key": HEX_KEY}
    file = {"media": media, "file_name": "Bericht März.pdf", "len": "12345"}
    event = say(text("look"), {"type": 4, "file_item": file})
    [found] = event.files
    assert (found.name, found.mime, found.size) == ("Bericht März.pdf", "application/pdf", 12345)
    assert read_text(event) == "look"


def test_a_video_is_a_file() -> None:
    [file] = say({"type": 5, "video_item": {"media": {"encrypt_query_param": "v", "aes_key": RAW_KEY}}}).files
    assert (file.name, file.mime) == ("video.mp4", "video/mp4")


@pytest.mark.parametrize(
    "media",
    [
        {},
        {"encrypt_query_param": "v"},
        {"encrypt_query_param": "v", "aes_key": "short"},
        {"aes_key": RAW_KEY},
    ],
)
def test_a_file_that_cannot_be_fetched_is_told(media: dict[str, str]) -> None:
    event = say({"type": 5, "video_item": {"media": media}})
    assert event.files == ()
    assert read_text(event) == "[video.mp4, which cannot be fetched]"


def test_a_quoted_text_comes_with_the_message() -> None:
    quoted = {"title": "Keryx", "message_item": text("the answer"), "svr_id": "12"}
    event = say(text("why?", ref_msg=quoted))
    assert (event.quote, event.replies_to) == ("Keryx the answer", "")


def test_a_quote_by_id_alone_is_looked_up() -> None:
    event = say(text("why?", ref_msg={"svr_id": 7446744073709551001, "partial_text": {"start": "a"}}))
    assert (event.quote, event.replies_to) == ("", "7446744073709551001")


def test_a_quoted_picture_is_fetched_again() -> None:
    picture = {"type": 2, "image_item": {"media": {"encrypt_query_param": "p", "aes_key": RAW_KEY}}}
    event = say(text("what is this?", ref_msg={"message_item": picture}))
    assert event.quote == "[picture]" and [open_file(file).param for file in event.files] == ["p"]


def test_a_quoted_file_is_named() -> None:
    document = {"type": 4, "file_item": {"file_name": "a.pdf"}}
    assert say(text("and this?", ref_msg={"message_item": document})).quote == "[file a.pdf]"


@pytest.mark.parametrize(
    "items", [[], [{"type": 11, "tool_call_start_item": {}}], ["words"], [{"type": "x"}]]
)
def test_what_cannot_be_read_is_told_and_not_dropped(items: list[Any]) -> None:
    event = parse(item_list=items)
    assert isinstance(event, InboundMessage)
    assert read_text(event) == "[a message of a kind that is not passed on to bots]"


def test_an_item_of_another_form_costs_only_itself() -> None:
    assert read_text(say(text("hello"), {"type": 1, "text_item": {"text": 3}})) == "hello"


def test_a_deleted_message_is_a_deletion() -> None:
    event = parse(delete_time_ms=1_790_000_000_000)
    assert isinstance(event, InboundDeletion)
    assert (event.event, event.message_event) == ("18446744073709551615.deleted", "18446744073709551615")


def test_messages_of_the_bot_itself_are_left_out() -> None:
    assert parse(message_type=2, from_user_id=ME.bot) is None


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"group_id": "1@im.chatroom"}, "direct chats only"),
        ({"from_user_id": ""}, "who has written it"),
        ({"create_time_ms": -5}, "another form"),
        ({"item_list": 3}, "another form"),
    ],
)
def test_what_cannot_be_answered_says_why(message: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        parse(**message)


@pytest.mark.parametrize("raw", [None, 3, "words", []])
def test_anything_else_is_no_message(raw: object) -> None:
    with pytest.raises(Invalid):
        read_message(raw)


def test_the_ids_of_people_are_described() -> None:
    assert IDS.chat is not None and IDS.chat.matches(ANN)
    assert not IDS.chat.matches("ann") and not IDS.chat.matches("a b@im.wechat")


def test_a_message_that_is_nested_too_deeply_is_invalid() -> None:
    nested: Any = "x"
    for _ in range(2000):
        nested = [nested]
    with pytest.raises(Invalid):
        read_message({"from_user_id": ANN, "item_list": nested})
