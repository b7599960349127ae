from typing import Any

import pytest

from keryx.core.errors import Invalid
from keryx.core.ids import ProfileId
from keryx.core.lanes import LaneSharing, build_address
from keryx.core.source import Aliases, ChatType, Source

TOGETHER = LaneSharing(groups_per_person=False)
THREADS_APART = LaneSharing(threads_shared=False)


def key(chat_type: ChatType = ChatType.DM, platform: str = "telegram", **fields: Any) -> str:
    return build_address(Source(platform=platform, chat_type=chat_type, **fields)).key


def test_ordinary_ids_look_as_written() -> None:
    assert key(chat="42") == "agent:main:telegram:dm:42"
    assert key(chat="42", thread="7") == "agent:main:telegram:dm:42:7"
    assert key(ChatType.GROUP, chat="-100", user="7") == "agent:main:telegram:group:-100::7"
    assert key(ChatType.GROUP, chat="-100", thread="3", user="7") == "agent:main:telegram:group:-100:3"
    assert key(ChatType.CHANNEL, "slack", chat="C01", user="U02") == "agent:main:slack:channel:C01::U02"


def test_a_profile_and_an_account_are_parts_of_the_key() -> None:
    assert key(chat="42", profile=ProfileId("work")) == "agent:work:telegram:dm:42"
    assert key(chat="42", account="bot2") == "agent:main:telegram@bot2:dm:42"


def test_odd_characters_become_plain_text() -> None:
    matrix = key(ChatType.GROUP, "matrix", chat="!a:b.org", thread="100%\n\x00\udcff é")
    assert matrix == "agent:main:matrix:group:!a%3Ab.org:100%25%0A%00%ED%B3%BF %C3%A9"


def test_a_thread_and_a_person_of_the_same_id_are_two_lanes() -> None:
    thread = key(ChatType.GROUP, chat="1", thread="2")
    assert thread != key(ChatType.GROUP, chat="1", user="2")
    assert thread != key(ChatType.GROUP, chat="1:2")


def test_an_account_cannot_pretend_to_be_a_platform() -> None:
    assert key(platform="a@b", chat="1") != key(platform="a", account="b", chat="1")


def test_an_empty_part_is_not_a_missing_part() -> None:
    assert key(chat="1", thread="") != key(chat="1")
    assert key(ChatType.GROUP, chat="1", thread="") != key(ChatType.GROUP, chat="1")


def test_a_direct_message_without_a_chat_goes_by_its_sender() -> None:
    assert key(user="7") == "agent:main:telegram:dm:::7"
    assert key(user="7", user_alt="uuid") == "agent:main:telegram:dm:::uuid"
    assert key(user="7", thread="3") == "agent:main:telegram:dm::3:7"


def test_a_direct_message_with_only_a_thread_goes_by_the_thread() -> None:
    assert key(thread="3") == "agent:main:telegram:dm::3"


def test_an_empty_chat_id_does_not_gather_strangers() -> None:
    assert key(chat="", user="7") != key(chat="", user="8")


@pytest.mark.parametrize("chat", [None, ""])
@pytest.mark.parametrize("user", [None, ""])
def test_a_source_that_names_no_place_is_refused(chat: str | None, user: str | None) -> None:
    with pytest.raises(Invalid, match="names no chat, sender or thread"):
        key(chat=chat, user=user)
    with pytest.raises(Invalid, match="names no chat or thread"):
        key(ChatType.GROUP, chat=chat, user="7")


def test_a_direct_message_is_never_shared() -> None:
    assert not build_address(Source(platform="x", chat="1", thread="2"), sharing=TOGETHER).shared


@pytest.mark.parametrize("chat_type", [ChatType.GROUP, ChatType.CHANNEL])
def test_people_in_a_group_have_lanes_of_their_own_unless_told_otherwise(chat_type: ChatType) -> None:
    ann = Source(platform="x", chat_type=chat_type, chat="1", user="ann")
    bob = Source(platform="x", chat_type=chat_type, chat="1", user="bob")
    assert build_address(ann).key != build_address(bob).key
    assert not build_address(ann).shared
    assert build_address(ann, sharing=TOGETHER) == build_address(bob, sharing=TOGETHER)
    assert build_address(ann, sharing=TOGETHER).shared


@pytest.mark.parametrize(
    "place",
    [
        {"chat_type": ChatType.GROUP, "chat": "1", "thread": "2"},
        {"chat_type": ChatType.THREAD, "chat": "2", "parent_chat": "1"},
        {"chat_type": ChatType.THREAD, "chat": "1", "thread": "2"},
    ],
)
def test_a_thread_is_shared_unless_told_otherwise(place: dict[str, Any]) -> None:
    ann, bob = (Source(platform="x", user=user, **place) for user in ("ann", "bob"))
    assert build_address(ann) == build_address(bob)
    assert build_address(ann).shared
    assert build_address(ann, sharing=THREADS_APART).key != build_address(bob, sharing=THREADS_APART).key
    assert not build_address(ann, sharing=THREADS_APART).shared


@pytest.mark.parametrize("user", [None, ""])
def test_a_group_message_of_nobody_goes_to_a_shared_lane(user: str | None) -> None:
    assert build_address(Source(platform="x", chat_type=ChatType.GROUP, chat="1", user=user)).shared


def test_a_whatsapp_chat_is_one_lane_however_the_number_is_written() -> None:
    assert key(platform="whatsapp", chat="+49170:2@s.whatsapp.net") == key(platform="whatsapp", chat="49170")


def test_a_whatsapp_group_keeps_its_id_and_knows_its_members() -> None:
    member = key(ChatType.GROUP, "whatsapp", chat="120@g.us", user="49170:2@s.whatsapp.net")
    assert member == "agent:main:whatsapp:group:120@g.us::49170"


@pytest.mark.parametrize("place", [{}, {"chat_type": ChatType.GROUP, "chat": "120@g.us"}])
def test_phone_and_lid_of_one_person_are_one_lane(place: dict[str, Any]) -> None:
    aliases = Aliases().learn("123456789012345", "49170")
    lid = Source(platform="whatsapp", user="123456789012345@lid", **place)
    phone = Source(platform="whatsapp", user="+49170", **place)
    assert build_address(lid, aliases=aliases) == build_address(phone, aliases=aliases)
    assert build_address(lid) != build_address(phone)
