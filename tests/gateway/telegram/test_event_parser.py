"""What a bot is told, as the engine sees it. The updates are as the Bot API writes them."""

from typing import Any

import msgspec
import pytest

from keryx.core.access import AccessRule, Verdict, judge
from keryx.core.deliveries import Target
from keryx.core.media import RemoteFile
from keryx.core.messages import join_text, text_parts
from keryx.core.ports.adapter import InboundMessage
from keryx.core.source import ChatType
from keryx.core.turns import BusyMode
from keryx.surfaces.gateway.telegram.event_parser import (
    BotIdentity,
    ChatMigration,
    parse_update,
)
from keryx.surfaces.gateway.telegram.payloads import TelegramUpdate

ME = BotIdentity(id=42, username="keryx_bot", commands=frozenset({"new", "undo-reset", "start"}))
ANN: dict[str, Any] = {"id": 7, "is_bot": False, "first_name": "Ann", "last_name": "Lee"}
BOT: dict[str, Any] = {"id": 42, "is_bot": True, "first_name": "Keryx", "username": "keryx_bot"}
DM: dict[str, Any] = {"id": 7, "type": "private", "first_name": "Ann"}
GROUP: dict[str, Any] = {"id": -100, "type": "supergroup", "title": "Friends"}


def read(kind: str = "message", *, sender: Any = ANN, **fields: Any) -> InboundMessage | ChatMigration | None:
    message = {"message_id": 5, "date": 1_700_000_000, "chat": DM, "from": sender, **fields}
    return parse_update(msgspec.convert({"update_id": 1, kind: message}, TelegramUpdate), ME)


def said(kind: str = "message", **fields: Any) -> InboundMessage:
    found = read(kind, **fields)
    assert isinstance(found, InboundMessage)
    return found


def text(parsed: InboundMessage) -> str:
    return join_text(parsed.parts)


def marks(kind: str, offset: int, length: int, **more: Any) -> list[dict[str, Any]]:
    return [{"type": kind, "offset": offset, "length": length, **more}]


def test_a_direct_message() -> None:
    event = said(text="hello")
    assert (event.event, event.parts, event.addressed) == ("7.5", text_parts("hello"), True)
    assert event.reply == Target("telegram", "42", chat="7", reply_to="5")
    source = event.source
    assert (source.chat, source.chat_type, source.user, source.user_name) == (
        "7",
        ChatType.DM,
        "7",
        "Ann Lee",
    )
    assert (source.account, source.message, source.thread) == ("42", "5", None)


@pytest.mark.parametrize(
    ("fields", "addressed"),
    [
        ({"text": "hello all"}, False),
        ({"text": "hi @keryx_bot", "entities": marks("mention", 3, 10)}, True),
        ({"text": "hi @Keryx_Bot", "entities": marks("mention", 3, 10)}, True),
        ({"text": "😀 @keryx_bot", "entities": marks("mention", 3, 10)}, True),
        ({"text": "hi @other_bot", "entities": marks("mention", 3, 10)}, False),
        ({"text": "hi @keryx_bot"}, False),
        ({"text": "hi Keryx", "entities": marks("text_mention", 3, 5, user=BOT)}, True),
        ({"text": "hi Ann", "entities": marks("text_mention", 3, 3, user=ANN)}, False),
        ({"caption": "@keryx_bot look", "caption_entities": marks("mention", 0, 10), "photo": []}, True),
        ({"text": "/new@keryx_bot"}, True),
        ({"text": "/new"}, True),
        ({"text": "/weather Paris"}, False),
        ({"text": "yes", "reply_to_message": {"message_id": 4, "chat": GROUP, "from": BOT}}, True),
        ({"text": "yes", "reply_to_message": {"message_id": 4, "chat": GROUP, "from": ANN}}, False),
    ],
)
def test_who_is_meant_in_a_group(fields: dict[str, Any], addressed: bool) -> None:
    event = said(chat=GROUP, **fields)
    assert event.addressed is addressed
    assert event.source.chat_type is ChatType.GROUP and event.source.chat_name == "Friends"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/undo_reset", "/undo-reset"),
        ("/undo-reset", "/undo-reset"),
        ("/title@keryx_bot My title", "/title My title"),
        ("/start deep-link", "/start"),
        ("/Stop", "/stop"),
        ("/etc/hosts is a file", "/etc/hosts is a file"),
        ("  /new", "/new"),
    ],
)
def test_commands_go_by_the_names_that_keryx_knows(written: str, meant: str) -> None:
    assert text(said(text=written)) == meant


def test_a_mention_at_the_beginning_only_calls_the_bot() -> None:
    called = said(chat=GROUP, text="@keryx_bot, /status", entities=marks("mention", 0, 10))
    assert text(called) == "/status"
    alone = said(chat=GROUP, text="@keryx_bot", entities=marks("mention", 0, 10))
    assert text(alone) == "@keryx_bot"


def test_a_command_for_another_bot_is_not_ours() -> None:
    assert read(chat=GROUP, text="/new@other_bot") is None


def test_our_own_messages_are_not_heard() -> None:
    assert read(sender=BOT, text="hello") is None


def test_a_forum_topic_is_a_thread_and_its_first_message_is_no_reply() -> None:
    root = {"message_id": 3, "chat": GROUP, "from": BOT, "forum_topic_created": {"name": "Plans"}}
    event = said(chat=GROUP, text="hi", message_thread_id=3, is_topic_message=True, reply_to_message=root)
    source = event.source
    assert (source.thread, source.chat_type, source.topic) == ("3", ChatType.THREAD, "Plans")
    assert (event.addressed, event.quote) == (False, "")
    assert event.reply and event.reply.thread == "3"


def test_a_thread_of_replies_is_no_topic() -> None:
    assert said(chat=GROUP, text="hi", message_thread_id=3).source.thread is None


@pytest.mark.parametrize(
    ("fields", "quote"),
    [
        ({"reply_to_message": {"message_id": 4, "chat": DM, "text": "the whole"}}, "the whole"),
        (
            {"reply_to_message": {"message_id": 4, "chat": DM, "text": "x"}, "quote": {"text": "a bit"}},
            "a bit",
        ),
        ({"reply_to_message": {"message_id": 4, "chat": DM, "caption": "below a photo"}}, "below a photo"),
        (
            {"reply_to_message": {"message_id": 4, "chat": DM, "sticker": {"file_id": "s", "emoji": "🙂"}}},
            "[sticker 🙂]",
        ),
    ],
)
def test_a_reply_carries_what_it_replies_to(fields: dict[str, Any], quote: str) -> None:
    assert said(text="yes", **fields).quote == quote


def test_an_edit_is_an_event_of_its_own_and_names_the_message() -> None:
    edit = said("edited_message", text="hello", edit_date=1_700_000_009)
    assert (edit.event, edit.edits) == ("7.5.1700000009.1", "5")


def test_a_channel_speaks_for_itself() -> None:
    channel = {"id": -200, "type": "channel", "title": "News"}
    event = said("channel_post", chat=channel, sender=None, text="read this", sender_chat=channel)
    assert (event.source.chat_type, event.source.user, event.source.user_name) == (
        ChatType.CHANNEL,
        "-200",
        "News",
    )
    assert event.addressed is False


def test_an_anonymous_administrator_speaks_as_the_group() -> None:
    anonymous = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    source = said(
        chat=GROUP, sender=anonymous, sender_chat=GROUP, author_signature="the boss", text="hello"
    ).source
    assert (source.user, source.user_name, source.bot) == ("-100", "Friends", False)


@pytest.mark.parametrize(("account", "bot"), [(136817688, True), (777000, False)])
def test_who_posts_as_a_channel_is_a_person(account: int, bot: bool) -> None:
    fake = {"id": account, "is_bot": bot, "first_name": "Channel", "language_code": "en"}
    channel = {"id": -200, "type": "channel", "title": "News"}
    source = said(chat=GROUP, sender=fake, sender_chat=channel, text="hello").source
    assert (source.user, source.user_name, source.bot, source.language) == ("-200", "News", False, None)
    closed, listed = AccessRule(), AccessRule(allow=("-200",))
    assert judge(listed, source, granted=False) is Verdict.ALLOWED
    assert judge(AccessRule(groups=("-100",)), source, granted=False) is Verdict.ALLOWED
    # A channel in a group is not offered a code: everybody there would read it.
    assert judge(closed, source, granted=False) is Verdict.IGNORED


def test_a_bot_is_told_from_a_person() -> None:
    other = {"id": 99, "is_bot": True, "first_name": "Other"}
    assert said(chat=GROUP, sender=other, text="beep").source.bot


def test_the_largest_photo_is_taken() -> None:
    sizes = [
        {"file_id": "small", "width": 90, "height": 90},
        {"file_id": "large", "width": 900, "height": 900, "file_size": 70_000},
        {"file_id": "middle", "width": 320, "height": 320},
    ]
    found = said(photo=sizes, caption="look")
    assert found.files == (RemoteFile(reference="large", name="photo.jpg", mime="image/jpeg", size=70_000),)
    assert text(found) == "look"


@pytest.mark.parametrize(
    ("kind", "name", "mime"),
    [
        ("voice", "voice.ogg", "audio/ogg"),
        ("audio", "audio.mp3", "audio/mpeg"),
        ("video", "video.mp4", "video/mp4"),
        ("video_note", "video.mp4", "video/mp4"),
        ("document", "file", "application/octet-stream"),
    ],
)
def test_files_have_a_name_and_a_kind(kind: str, name: str, mime: str) -> None:
    least: dict[str, Any] = {kind: {"file_id": "f"}}
    bare = said(**least)
    assert (bare.files, bare.parts) == ((RemoteFile(reference="f", name=name, mime=mime),), ())
    most: dict[str, Any] = {kind: {"file_id": "f", "file_name": "n.x", "mime_type": "a/b", "file_size": 3}}
    full = said(**most)
    assert full.files == (RemoteFile(reference="f", name="n.x", mime="a/b", size=3),)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"sticker": {"file_id": "s", "emoji": "👍"}}, "[sticker 👍]"),
        ({"sticker": {"file_id": "s"}}, "[sticker]"),
        ({"location": {"latitude": 48.2, "longitude": 16.4}}, "[location: 48.2, 16.4]"),
        ({"contact": {"phone_number": "+43", "first_name": "Bo"}}, "[contact: Bo, +43]"),
        ({"dice": {"emoji": "🎲", "value": 4}}, "[🎲 4]"),
        (
            {"poll": {"question": "When?", "options": [{"text": "now"}, {"text": "never"}]}},
            "[poll: When? now / never]",
        ),
        (
            {
                "venue": {
                    "location": {"latitude": 1.5, "longitude": 2.5},
                    "title": "Café",
                    "address": "Ring 1",
                },
                "location": {"latitude": 1.5, "longitude": 2.5},
            },
            "[place: Café, Ring 1 (1.5, 2.5)]",
        ),
    ],
)
def test_what_has_no_words_is_told_in_words(fields: dict[str, Any], shown: str) -> None:
    assert text(said(**fields)) == shown


@pytest.mark.parametrize(
    ("origin", "name"),
    [
        ({"type": "user", "sender_user": ANN}, "Ann Lee"),
        ({"type": "hidden_user", "sender_user_name": "Bo"}, "Bo"),
        ({"type": "channel", "chat": {"id": -1, "type": "channel", "title": "News"}}, "News"),
        ({"type": "chat", "sender_chat": GROUP}, "Friends"),
    ],
)
def test_a_forwarded_message_names_its_origin_and_gives_no_command(origin: dict[str, Any], name: str) -> None:
    assert text(said(text="/new", forward_origin=origin)) == f"Forwarded from {name}:\n\n/new"


def test_a_forward_belongs_to_the_comment_before_it_and_a_long_text_to_the_next_part() -> None:
    forwarded = said(text="x", forward_origin={"type": "hidden_user", "sender_user_name": "Bo"})
    assert (forwarded.more, forwarded.continues) == (True, True)
    long, short = said(text="x" * 4096), said(text="x" * 100)
    assert (long.more, long.continues, short.more) == (True, False, False)


def test_the_pictures_of_an_album_wait_for_one_another() -> None:
    one = said(photo=[{"file_id": "p"}], media_group_id="9")
    assert one.busy is BusyMode.COLLECT
    assert (one.group, one.continues) == ("album.9", False)


def test_a_group_that_moved() -> None:
    group = {"id": -5, "type": "group", "title": "Friends"}
    assert read(chat=group, migrate_to_chat_id=-100) == ChatMigration(old="-5", new="-100")


@pytest.mark.parametrize("fields", [{"new_chat_title": "x"}, {"pinned_message": {}}, {"text": ""}])
def test_what_says_nothing_is_nothing(fields: dict[str, Any]) -> None:
    assert read(**fields) is None


def test_an_update_of_another_kind_is_nothing() -> None:
    assert parse_update(msgspec.convert({"update_id": 1, "poll": {"id": "1"}}, TelegramUpdate), ME) is None
