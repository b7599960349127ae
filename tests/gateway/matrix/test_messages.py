"""Events of Matrix, as recorded, and what they mean."""

from typing import Any

import msgspec
import pytest

from keryx.core.deliveries import Target
from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundMessage
from keryx.core.source import ChatType
from keryx.surfaces.gateway.matrix import messages
from keryx.surfaces.gateway.matrix.event_types import (
    MatrixContent,
    MatrixEvent,
    PowerLevels,
    parse_content,
    parse_event,
)
from keryx.surfaces.gateway.matrix.messages import MatrixAccount, MatrixRoom, RelatedEvents

ME = MatrixAccount("@keryx:example.org", "Keryx")
ANN = "@ann:example.org"
MENU = frozenset({"status"})


def event(
    content: Any, *, id: str = "$1", sender: str = ANN, type: str = "m.room.message", **more: Any
) -> MatrixEvent:
    whole = {
        "event_id": id,
        "sender": sender,
        "type": type,
        "origin_server_ts": 1_700_000_000_123,
        "content": content,
        **more,
    }
    found = parse_event(msgspec.Raw(msgspec.json.encode(whole)))
    assert found is not None
    return found


def said(body: str, **more: Any) -> dict[str, Any]:
    return {"msgtype": "m.text", "body": body, **more}


def room(*, people: int = 3, **more: Any) -> MatrixRoom:
    names = {ME.user: "Keryx", ANN: "Ann", **{f"@p{n}:x": "" for n in range(people - 2)}}
    return MatrixRoom("!r:example.org", names=names, **more)


def parsed(
    content: Any,
    *,
    place: MatrixRoom | None = None,
    around: RelatedEvents = messages.NO_RELATED_EVENTS,
    **more: Any,
) -> InboundMessage:
    found = event(content, **more)
    return messages.build_inbound(
        found, parse_content(found) or MatrixContent(), room=place or room(), me=ME, menu=MENU, related=around
    )


def text(inbound: InboundMessage) -> str:
    return "".join(p.text for p in inbound.parts if isinstance(p, Text))


def test_a_message_of_two_is_a_direct_one_and_its_answer_is_no_reply() -> None:
    found = parsed(said("hello"), place=room(people=2))
    assert found.source.chat_type is ChatType.DM and found.addressed
    assert found.reply == Target("matrix", ME.user, "!r:example.org")
    assert found.at is not None and found.at.isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert (found.source.user_name, found.source.scope, found.source.message) == ("Ann", "example.org", "$1")


def test_a_room_that_the_account_calls_direct_is_direct() -> None:
    assert parsed(said("hello"), place=room(people=4, direct=True)).source.chat_type is ChatType.DM


@pytest.mark.parametrize(
    ("content", "addressed", "words"),
    [
        (said("hello all"), False, "hello all"),
        (said("Keryx: hello", **{"m.mentions": {"user_ids": [ME.user]}}), True, "hello"),
        (said("hello", **{"m.mentions": {"user_ids": ["@bob:x"]}}), False, "hello"),
        (said("@keryx:example.org, hello"), True, "hello"),
        (said("ask @keryx:example.org"), True, "ask @keryx:example.org"),
        (said("hi", formatted_body='<a href="https://matrix.to/#/@keryx:example.org">K</a> hi'), True, "hi"),
        (said("hi", formatted_body='<a href="https://matrix.to/#/%40keryx%3Aexample.org">K</a>'), True, "hi"),
        (said("!status"), True, "/status"),
        (said("/status now"), True, "/status now"),
        (said("!important news"), False, "!important news"),
        (said("/path/to/file"), False, "/path/to/file"),
        (said("Keryx: !status", **{"m.mentions": {"user_ids": [ME.user]}}), True, "/status"),
        (said("Keryx:", **{"m.mentions": {"user_ids": [ME.user]}}), True, "Keryx:"),
    ],
    ids=range(13),
)
def test_who_is_meant_in_a_room_of_several(content: dict[str, Any], addressed: bool, words: str) -> None:
    found = parsed(content)
    assert (found.addressed, text(found)) == (addressed, words)


def test_a_reply_quotes_and_one_to_keryx_is_addressed_to_it() -> None:
    relation = {"m.relates_to": {"m.in_reply_to": {"event_id": "$0"}}}
    content = said("> <@keryx:example.org> I said\n> so\n\nIndeed?", **relation)
    mine = event(said("I said\nso"), id="$0", sender=ME.user)
    found = parsed(content, around=RelatedEvents(replied=mine))
    assert (found.addressed, found.quote, text(found)) == (True, "I said\nso", "Indeed?")
    others = event(said("We said"), id="$0", sender="@bob:x")
    assert not parsed(said("Indeed?", **relation), around=RelatedEvents(replied=others)).addressed


def test_a_quote_that_cannot_be_fetched_is_taken_from_the_message() -> None:
    found = parsed(said("> <@bob:x> I said\n> so\n\nIndeed?"), place=room(people=2))
    assert (found.quote, text(found)) == ("I said\nso", "Indeed?")


def test_in_a_thread_the_reply_for_old_clients_is_none() -> None:
    relation = {
        "rel_type": "m.thread",
        "event_id": "$root",
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": "$9"},
    }
    found = event(said("inside", **{"m.relates_to": relation}))
    content = parse_content(found)
    assert content is not None and messages.find_replied_id(content) == ""
    inbound = messages.build_inbound(found, content, room=room(), me=ME)
    assert inbound.source.thread == "$root"
    assert inbound.reply == Target("matrix", ME.user, "!r:example.org", thread="$root", reply_to="$1")


def test_an_edit_names_the_first_message_and_stays_in_its_thread() -> None:
    first = event(said("helo", **{"m.relates_to": {"rel_type": "m.thread", "event_id": "$root"}}), id="$0")
    content = said(
        "* hello",
        **{"m.new_content": said("hello"), "m.relates_to": {"rel_type": "m.replace", "event_id": "$0"}},
    )
    found = parsed(content, around=RelatedEvents(edited=first))
    assert (found.event, found.edits, found.source.message, found.source.thread) == (
        "$1",
        "$0",
        "$0",
        "$root",
    )
    assert text(found) == "hello"


@pytest.mark.parametrize(
    ("content", "type", "words"),
    [
        ({"msgtype": "m.emote", "body": "waves"}, "m.room.message", "* Ann waves"),
        ({"msgtype": "m.location", "body": "Here", "geo_uri": "geo:1,2"}, "m.room.message", "Here (geo:1,2)"),
        ({"body": "a cat", "url": "mxc://x/y"}, "m.sticker", "[sticker a cat]"),
        ({"msgtype": "org.example.odd", "body": "words"}, "m.room.message", "words"),
    ],
    ids=["emote", "location", "sticker", "unknown"],
)
def test_other_kinds_become_words(content: dict[str, Any], type: str, words: str) -> None:
    assert text(parsed(content, type=type)) == words


def test_a_notice_is_of_a_bot() -> None:
    assert parsed({"msgtype": "m.notice", "body": "beep"}).source.bot


@pytest.mark.parametrize(
    ("content", "sender"),
    [
        (said("mine"), ME.user),
        ({}, ANN),
        (said("  "), ANN),
        ({"msgtype": "m.key.verification.request", "body": "verify"}, ANN),
    ],
    ids=["own", "deleted", "empty", "verification"],
)
def test_what_says_nothing_to_keryx_is_not_heeded(content: dict[str, Any], sender: str) -> None:
    found = event(content, sender=sender)
    assert not messages.is_relevant(found, parse_content(found) or MatrixContent(), ME)


@pytest.mark.parametrize(
    "raw",
    [
        b"3",
        b"null",
        b"{}",
        b'{"type":3,"sender":"@a:b"}',
        b'{"type":"m.room.message","sender":"@a:b","content":"\\ud800"}',
    ],
)
def test_what_is_malformed_is_no_event_or_has_no_content(raw: bytes) -> None:
    found = parse_event(msgspec.Raw(raw))
    assert found is None or parse_content(found) is None


def test_a_moment_that_cannot_be_is_left_out() -> None:
    assert parsed(said("x"), origin_server_ts=10**17).at is None


def member(id: str, membership: str, before: str = "", *, who: str = ME.user) -> MatrixEvent:
    unsigned = {"prev_content": {"membership": before}, "replaces_state": "$p"} if before else {}
    return event({"membership": membership}, id=id, type="m.room.member", state_key=who, unsigned=unsigned)


@pytest.mark.parametrize(
    ("events", "start"),
    [
        ([event(said("a")), event(said("b"))], 0),
        ([event(said("old")), member("$i", "invite"), event(said("new")), member("$j", "join", "invite")], 2),
        ([event(said("since the invitation")), member("$j", "join", "invite"), event(said("new"))], 0),
        ([event(said("old")), member("$j", "join", "leave"), event(said("new"))], 2),
        ([event(said("a")), member("$n", "join", "join"), event(said("b"))], 0),
        ([event(said("a")), member("$n", "join", who=ANN), event(said("b"))], 0),
    ],
    ids=["always there", "invited", "joined by invitation", "came back", "new name", "somebody else"],
)
def test_what_was_said_before_keryx_was_there_is_left_out(events: list[MatrixEvent], start: int) -> None:
    assert messages.find_first_visible(events, ME) == start


@pytest.mark.parametrize(
    ("powers", "how", "user", "roles"),
    [
        (PowerLevels(users={ANN: 100}), {}, ANN, ("admin", "moderator")),
        (PowerLevels(users={ANN: 99}), {}, ANN, ("moderator",)),
        (PowerLevels(users={ANN: 0}, users_default=50), {}, ANN, ()),
        (PowerLevels(users_default=50), {}, "@bob:x", ("moderator",)),
        (PowerLevels(), {"room_version": "11"}, ANN, ()),
        (PowerLevels(), {"room_version": "12"}, ANN, ("admin", "moderator")),
        (
            PowerLevels(),
            {"room_version": "12", "additional_creators": ["@bob:x"]},
            "@bob:x",
            ("admin", "moderator"),
        ),
        (PowerLevels(), {"room_version": "11", "additional_creators": ["@bob:x"]}, "@bob:x", ()),
        (None, {}, ANN, ("admin", "moderator")),
        (None, {}, "@bob:x", ()),
        (PowerLevels(), {"room_version": 12}, ANN, ()),
    ],
)
def test_who_may_do_much_in_a_room_is_an_admin_or_a_moderator(
    powers: PowerLevels | None, how: dict[str, Any], user: str, roles: tuple[str, ...]
) -> None:
    assert messages.find_roles(user, powers, event(how, type="m.room.create")) == roles


def test_without_its_beginning_a_room_is_judged_by_its_powers() -> None:
    assert messages.find_roles(ANN, PowerLevels(users={ANN: 50}), None) == ("moderator",)
