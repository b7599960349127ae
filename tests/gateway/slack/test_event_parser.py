"""What the parser makes of events as Slack documents them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.core.deliveries import ReplyContext, Target
from keryx.core.media import RemoteFile
from keryx.core.messages import join_text
from keryx.core.ports.adapter import InboundDeletion, InboundMessage
from keryx.core.source import ChatType
from keryx.surfaces.gateway.slack import event_parser
from keryx.surfaces.gateway.slack.event_parser import SlackContext
from keryx.surfaces.gateway.slack.payloads import ButtonPress, CommandInvocation, SlackEvent, SlackIdentity

ME = SlackIdentity(user_id="U0BOT", team_id="T1", bot_id="B1")
CONTEXT = SlackContext(
    account="work",
    me=ME,
    commands=frozenset({"new", "undo-reset"}),
    names={"U1": "Ann", "U2": "Ben", "C1": "general"},
    languages={"U1": "de-DE"},
)
MESSAGE = {
    "type": "message",
    "channel": "C1",
    "channel_type": "channel",
    "user": "U1",
    "ts": "1700000000.000100",
}
DIRECT = {**MESSAGE, "channel": "D1", "channel_type": "im"}


def parse(event: dict[str, Any], **context: Any) -> InboundMessage | InboundDeletion | None:
    known = msgspec.structs.replace(CONTEXT, **context)
    return event_parser.parse_message(msgspec.convert(event, SlackEvent), known)


def parse_message(event: dict[str, Any], **context: Any) -> InboundMessage:
    found = parse(event, **context)
    assert isinstance(found, InboundMessage)
    return found


def get_text(inbound: InboundMessage) -> str:
    return join_text(inbound.parts)


def test_a_direct_message_is_one_conversation_and_is_answered_there() -> None:
    inbound = parse_message({**DIRECT, "text": "hello", "client_msg_id": "x", "team": "T1", "blocks": []})
    source = inbound.source
    assert (source.chat, source.chat_type, source.user, source.user_name) == ("D1", ChatType.DM, "U1", "Ann")
    assert (source.thread, source.scope, source.account, source.language) == (None, "T1", "work", "de-DE")
    assert inbound.reply == Target("slack", "work", "D1", reply_to="1700000000.000100")
    assert inbound.addressed and inbound.event == "D1.1700000000.000100"
    assert inbound.at is not None and inbound.at.timestamp() == pytest.approx(1700000000.0001)


def test_a_mention_in_a_channel_begins_a_thread() -> None:
    inbound = parse_message({**MESSAGE, "text": "<@U0BOT> what is up?", "user_team": "T9"})
    assert get_text(inbound) == "what is up?" and inbound.addressed
    assert (inbound.source.chat_type, inbound.source.thread) == (ChatType.THREAD, "1700000000.000100")
    assert inbound.reply is not None and inbound.reply.thread == "1700000000.000100"
    # A person of another workspace in a shared channel.
    assert inbound.reply.reply_context == ReplyContext("U1 T9")


def test_a_mention_is_answered_in_the_channel_where_that_is_set() -> None:
    inbound = parse_message({**MESSAGE, "text": "<@U0BOT> hi"}, reply_in_threads=False)
    assert (inbound.source.chat_type, inbound.source.thread) == (ChatType.CHANNEL, None)
    assert inbound.reply is not None and inbound.reply.thread == ""


def test_the_two_events_of_a_mention_are_one_event() -> None:
    said = {"channel": "C1", "user": "U1", "ts": "1700000000.000100", "text": "<@U0BOT> hi"}
    one = parse_message({"type": "message", "channel_type": "group", **said})
    other = parse_message({"type": "app_mention", **said})
    assert (one.event, one.source, one.reply) == (other.event, other.source, other.reply)


def test_a_message_in_a_thread_names_the_message_on_which_the_thread_hangs() -> None:
    reply = {**MESSAGE, "text": "and then?", "thread_ts": "1690000000.000001", "parent_user_id": "U0BOT"}
    inbound = parse_message(reply)
    # The engine decides whether Keryx takes part there.
    assert not inbound.addressed
    assert inbound.source.thread == inbound.thread_root == "1690000000.000001"


def test_talk_that_is_not_meant_for_the_agent_stays_in_the_channel() -> None:
    inbound = parse_message({**MESSAGE, "text": "lunch?"})
    assert not inbound.addressed and inbound.source.thread is None


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("hi <@U2> and <@U9|carl>", "hi @Ben and @carl"),
        ("see <#C1|general> <#C1> <#C9>", "see #general #general #C9"),
        ("<!here> <!subteam^S1|@team> <!date^1392734382^{date}|Feb 18>", "@here @team Feb 18"),
        ("<https://x.org/a?b=1&amp;c=2>", "https://x.org/a?b=1&c=2"),
        ("<https://x.org|the site>", "[the site](https://x.org)"),
        ("<mailto:a@b.org|a@b.org>", "a@b.org"),
        ("1 &lt; 2 &amp;&amp; 3 &gt; 2", "1 < 2 && 3 > 2"),
        ("&lt;@U2&gt; is no mention", "<@U2> is no mention"),
        ("!new start", "/new start"),
        ("!important", "!important"),
        ("<@U0BOT> !undo-reset", "/undo-reset"),
    ],
)
def test_mentions_and_links_become_readable(written: str, read: str) -> None:
    assert get_text(parse_message({**DIRECT, "text": written})) == read


@given(
    st.lists(
        st.sampled_from(["<", ">", "|", "@", "#", "!", "^", "U2", "C1", "&lt;", "!new", "\n", " "])
        | st.text(max_size=3)
    )
)
def test_any_text_can_be_read(pieces: list[str]) -> None:
    written = "".join(pieces)
    found = parse({**MESSAGE, "text": f"x{written}", "attachments": [{"is_share": True, "text": written}]})
    assert isinstance(found, InboundMessage)


def test_an_edit_names_the_message_and_keeps_its_thread() -> None:
    before = {"type": "message", "user": "U1", "text": "helo", "ts": "1700000000.000100"}
    after = {**before, "text": "<@U0BOT> hello", "edited": {"user": "U1", "ts": "1700000009.000000"}}
    event = {
        "type": "message",
        "subtype": "message_changed",
        "channel": "C1",
        "ts": "1700000009.000200",
        "message": after,
        "previous_message": before,
    }
    inbound = parse_message(event)
    assert (inbound.edits, get_text(inbound)) == ("1700000000.000100", "hello")
    assert inbound.event == "C1.1700000000.000100.edit.1700000009.000200"
    assert inbound.source.thread == "1700000000.000100"


def test_the_edit_of_a_question_belongs_to_the_thread_that_it_began() -> None:
    before = {"type": "message", "user": "U1", "text": "<@U0BOT> hi", "ts": "1700000000.000100"}
    after = {
        **before,
        "text": "hi",
        "thread_ts": before["ts"],
        "edited": {"user": "U1", "ts": "1700000009.000000"},
    }
    event = {"type": "message", "subtype": "message_changed", "message": after, "previous_message": before}
    assert parse_message({**event, "channel": "C1"}, began_thread=True).source.thread == before["ts"]
    assert parse_message({**event, "channel": "C1"}).source.thread is None
    assert parse_message({**event, "channel": "D1"}).source.thread is None


def test_a_forwarded_message_is_told_with_its_author() -> None:
    share = {
        "is_share": True,
        "author_name": "Ben",
        "text": "see <#C1>",
        "files": [{"id": "F1", "name": "a"}],
    }
    link = {"from_url": "https://x.org", "title": "X", "text": "a page"}
    found = parse({**DIRECT, "text": "what is this?", "attachments": [share, link]})
    assert isinstance(found, InboundMessage)
    assert get_text(found) == "what is this?\n\nForwarded from Ben:\n\nsee #general"
    assert [file.name for file in found.files] == ["a"]
    assert get_text(parse_message({**DIRECT, "text": "", "attachments": [share]})).startswith(
        "Forwarded from Ben"
    )
    assert get_text(parse_message({**DIRECT, "text": "", "attachments": [link]})) == "a page"


def test_changes_that_are_no_edits_say_nothing() -> None:
    message = {"type": "message", "user": "U1", "text": "https://x.org", "ts": "1.000001"}
    changed = {"type": "message", "subtype": "message_changed", "channel": "D1", "ts": "2.000001"}
    assert parse({**changed, "message": {**message, "attachments": []}, "previous_message": message}) is None
    edited = {**message, "edited": {"user": "U1", "ts": "3.000001"}}
    assert parse({**changed, "message": edited, "previous_message": edited}) is None
    assert parse({**changed, "message": {**edited, "bot_id": "B1"}}) is None
    assert parse(changed) is None


def test_a_deletion_names_the_event_of_the_message() -> None:
    earlier = {
        "type": "message",
        "user": "U1",
        "text": "x",
        "ts": "1700000000.000100",
        "thread_ts": "1690000000.000001",
    }
    deleted = {"type": "message", "subtype": "message_deleted", "channel": "C1", "ts": "1700000009.000000"}
    found = parse({**deleted, "deleted_ts": "1700000000.000100", "previous_message": earlier})
    assert isinstance(found, InboundDeletion)
    assert found.message_event == "C1.1700000000.000100" and found.source.thread == "1690000000.000001"
    stub = {"subtype": "tombstone", "ts": "1700000000.000100"}
    changed = {"type": "message", "subtype": "message_changed", "channel": "C1", "message": stub}
    found = parse({**changed, "previous_message": earlier})
    assert isinstance(found, InboundDeletion) and found.message_event == "C1.1700000000.000100"
    assert parse({**deleted, "deleted_ts": "1.0", "previous_message": {**earlier, "user": "U0BOT"}}) is None


def test_a_reaction_has_its_emoji_and_names_the_message() -> None:
    item = {"type": "message", "channel": "C1", "ts": "1700000000.000100"}
    event = {
        "type": "reaction_added",
        "user": "U1",
        "reaction": "+1::skin-tone-3",
        "item": item,
        "event_ts": "2.0",
    }

    def react(**more: Any) -> Any:
        return event_parser.parse_reaction(
            msgspec.convert({**event, **more}, SlackEvent), CONTEXT, "9.000001"
        )

    found = react(item_user="U2")
    assert (found.reaction, found.removed, found.message) == ("👍", False, "1700000000.000100")
    assert (found.message_event, found.source.thread) == ("C1.1700000000.000100", "9.000001")
    ours = react(item_user="U0BOT", type="reaction_removed", reaction="party_parrot")
    assert (ours.reaction, ours.removed, ours.message_event) == (":party_parrot:", True, "")
    assert react(user="U0BOT") is None
    assert react(item={"type": "file", "file": "F1"}) is None


def test_own_messages_and_reports_about_channels_are_left_out() -> None:
    assert parse({**DIRECT, "text": "x", "user": "U0BOT"}) is None
    assert parse({**DIRECT, "text": "x", "user": None, "subtype": "bot_message", "bot_id": "B1"}) is None
    assert parse({**MESSAGE, "text": "Ann has joined", "subtype": "channel_join"}) is None
    assert parse({**MESSAGE, "subtype": "message_replied"}) is None
    assert parse({**DIRECT, "text": "  "}) is None


def test_another_bot_is_marked_as_one() -> None:
    said = {
        **MESSAGE,
        "text": "<@U0BOT> deploy done",
        "subtype": "bot_message",
        "bot_id": "B7",
        "username": "CI",
    }
    inbound = parse_message({**said, "user": None})
    source = inbound.source
    assert (source.bot, source.user, source.user_name) == (True, "B7", "CI")
    # Nothing can be streamed to a bot.
    assert inbound.reply is not None and inbound.reply.reply_context is None


def test_files_are_named_with_their_ids_and_without_addresses() -> None:
    file = {
        "id": "F1",
        "name": "a.png",
        "mimetype": "image/png",
        "size": 3,
        "url_private": "https://files.slack.com/a",
    }
    gone = {"id": "F2", "mode": "tombstone"}
    foreign = {"id": "F3", "name": "b", "file_access": "check_file_info", "url_private": "https://x"}
    found = parse_message({**DIRECT, "text": "", "subtype": "file_share", "files": [file, gone, foreign]})
    assert found.files == (
        RemoteFile(reference="F1", name="a.png", mime="image/png", size=3),
        RemoteFile(reference="F2", name="file", mime="application/octet-stream"),
        RemoteFile(reference="F3", name="b", mime="application/octet-stream"),
    )


def test_a_press_is_a_message_of_who_pressed_with_the_value_of_the_button() -> None:
    press: dict[str, Any] = {
        "type": "block_actions",
        "user": {"id": "U2", "username": "ben", "team_id": "T1"},
        "channel": {"id": "C1", "name": "general"},
        "message": {"ts": "1700000000.000200", "thread_ts": "1700000000.000100"},
        "actions": [{"value": "/answer 01jd0 2", "action_ts": "1700000003.000001", "type": "button"}],
    }
    inbound = event_parser.parse_press(msgspec.convert(press, ButtonPress), CONTEXT)
    assert inbound is not None and inbound.reply is None
    assert (get_text(inbound), inbound.source.user, inbound.source.user_name) == (
        "/answer 01jd0 2",
        "U2",
        "Ben",
    )
    assert inbound.source.thread == "1700000000.000100"
    foreign = {**press, "actions": [{"value": "approve", "action_ts": "1.0"}]}
    assert event_parser.parse_press(msgspec.convert(foreign, ButtonPress), CONTEXT) is None


@pytest.mark.parametrize(
    ("written", "read"),
    [("new", "/new"), ("/new now", "/new now"), ("", "/help"), ("what is up?", "what is up?")],
)
def test_a_slash_command_is_a_command_of_keryx_or_a_question(written: str, read: str) -> None:
    command = CommandInvocation(
        command="/keryx", user_id="U1", channel_id="C1", trigger_id="1.2", text=written
    )
    inbound = event_parser.parse_command(command, CONTEXT)
    assert get_text(inbound) == read and inbound.event == "command.1.2"
    assert inbound.reply is not None and (inbound.reply.chat, inbound.reply.thread) == ("C1", "")
