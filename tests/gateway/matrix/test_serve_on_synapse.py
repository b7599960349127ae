"""Matrix as people live with it: `keryx serve` as a process, configured by variables, killed at bad moments."""

import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.driver import Cli, Node
from tests.gateway.matrix.person import Person
from tests.gateway.matrix.synapse import Synapse


@pytest.fixture
def keryx(synapse: Synapse, bot: Person, tmp_path: Path) -> Cli:
    return Cli(
        tmp_path,
        KERYX_MATRIX_HOMESERVER=synapse.url,
        KERYX_MATRIX_USER=bot.user,
        KERYX_MATRIX_TOKEN=bot.token,
        KERYX_MATRIX_ALLOW="*",
        KERYX_LIMITS_LEASE="2s",
    )


@contextmanager
def killed(keryx: Cli) -> Generator[Node]:
    """A node that is killed at the end of the block."""
    with keryx.serving() as node:
        yield node
        node.process.kill()
        node.process.wait(20)


def begun(keryx: Cli, ann: Person, bot: Person) -> str:
    """A direct room in which Keryx has answered once."""
    room = ann.room(bot, direct=True)
    with killed(keryx):
        ann.say(room, "hello")
        ann.wait_for(lambda: ann.answers(room, by=bot) == ["hello"])
    return room


@pytest.mark.faults
def test_killed_between_and_during_answers_each_message_is_answered_once_and_in_order(
    keryx: Cli, ann: Person, bot: Person
) -> None:
    room = begun(keryx, ann, bot)
    asked: list[str] = []

    def ask(pause: str = "") -> str:
        asked.append(f"question {len(asked)} of many")
        return ann.say(room, f"slow {pause} {asked[-1]}" if pause else asked[-1])

    for pause in ("0.5", "1.5", "4"):
        with killed(keryx):
            ask(pause)
            last = ask()
            ann.wait_for(lambda event=last: bot.has_read(room, event))
        ask()
        with killed(keryx):
            ann.wait_for(lambda: len(ann.answers(room, by=bot)) > len(asked))
    assert ann.answers(room, by=bot) == ["hello", *asked]


def test_killed_while_an_answer_is_being_shown_it_goes_on_in_the_same_message(
    keryx: Cli, ann: Person, bot: Person
) -> None:
    room = begun(keryx, ann, bot)
    with killed(keryx):
        ann.say(room, "slow 6 a long answer that comes word by word")
        ann.wait_for(lambda: len(ann.answers(room, by=bot)) == 2)
        ann.say(room, "and then?")
        shown = [seen for seen in ann.sees(room) if seen.sender == bot.user][-1]
    assert shown.text != "a long answer that comes word by word"
    with killed(keryx):
        ann.wait_for(lambda: len(ann.answers(room, by=bot)) == 3)
    assert ann.answers(room, by=bot) == ["hello", "a long answer that comes word by word", "and then?"]
    assert [seen.id for seen in ann.sees(room) if seen.sender == bot.user][1] == shown.id


# Fewer than the homeserver tells at once, and more.
@pytest.mark.parametrize("count", [8, pytest.param(70, marks=pytest.mark.faults)])
def test_what_was_written_while_keryx_was_away_is_answered_when_it_is_back(
    keryx: Cli, ann: Person, bot: Person, count: int
) -> None:
    room = begun(keryx, ann, bot)
    asked = [f"m{number}" for number in range(count)]
    for words in asked:
        ann.say(room, words)
    with killed(keryx):
        ann.wait_for(lambda: len(ann.answers(room, by=bot)) > len(asked), 90)
    assert ann.answers(room, by=bot) == ["hello", *asked]


def test_a_room_of_several_its_threads_and_a_direct_room_are_answered_each_in_its_place(
    keryx: Cli, ann: Person, bob: Person, bot: Person
) -> None:
    direct = begun(keryx, ann, bot)
    with killed(keryx):
        room = ann.room(bob, bot)
        bob.join(room)
        ann.wait_for(lambda: bot.user in ann.members(room))
        bob.say(room, "among ourselves")
        asked = bob.say(room, "to the bot", mention=bot.user)
        inner = bob.say(room, "inside", thread=asked, mention=bot.user)
        ann.say(direct, "in private")
        ann.wait_for(lambda: len(ann.answers(room, by=bot)) == 2 and len(ann.answers(direct, by=bot)) == 2)
        seen = {s.text: s for s in ann.sees(room) if s.sender == bot.user}
    assert ann.answers(direct, by=bot) == ["hello", "in private"]
    assert {t: (s.thread, s.reply_to) for t, s in seen.items()} == {
        "to the bot": ("", asked),
        "inside": (asked, inner),
    }


def test_a_thread_on_an_answer_knows_what_led_to_it_and_needs_no_mention(
    keryx: Cli, ann: Person, bob: Person, bot: Person
) -> None:
    with killed(keryx):
        room = ann.room(bob, bot)
        bob.join(room)
        ann.wait_for(lambda: bot.user in ann.members(room))
        ann.say(room, "the question", mention=bot.user)
        ann.wait_for(lambda: ann.answers(room, by=bot) == ["the question"])
        [answer] = [seen.id for seen in ann.sees(room) if seen.sender == bot.user]
        bob.say(room, "and why?", thread=answer)
        ann.wait_for(lambda: len(ann.answers(room, by=bot)) == 2)
        bob.say(room, "among ourselves")
        ann.say(room, "in the thread again", thread=answer)
        ann.wait_for(lambda: len(ann.answers(room, by=bot)) == 3)
        told = keryx.ok("why", answer).out
    assert ann.answers(room, by=bot) == ["the question", "and why?", "in the thread again"]
    sessions = [s["session"]["id"] for s in keryx.json("sessions", "list")["sessions"]]
    shown = [keryx.ok("sessions", "show", session).out for session in sessions]
    assert any("the question" in text and "in the thread again" in text for text in shown)
    assert "came by lane" in told and "allowed by `allow` of [access.matrix]" in told


def test_a_question_is_answered_by_a_reaction(keryx: Cli, ann: Person, bot: Person) -> None:
    room = begun(keryx, ann, bot)
    with killed(keryx):
        ann.say(room, "!ask delete it all")
        ann.wait_for(lambda: len(ann.answers(room, by=bot)) == 3)
        question = [seen.id for seen in ann.sees(room) if seen.sender == bot.user][-1]
        relation = {"rel_type": "m.annotation", "event_id": question, "key": "👍"}
        ann.send(room, {"m.relates_to": relation}, kind="m.reaction")
        ann.wait_for(lambda: len(ann.answers(room, by=bot)) == 5)
    assert ann.answers(room, by=bot)[3:] == ["Allowed once: May the echo agent go on?", "Answered: allow"]


def test_an_edit_of_a_question_that_waits_changes_it(keryx: Cli, ann: Person, bot: Person) -> None:
    room = begun(keryx, ann, bot)
    with killed(keryx):
        ann.say(room, "slow 3 the first")
        asked = ann.say(room, "the wrong words")
        ann.wait_for(lambda: bot.has_read(room, asked))
        ann.edit(room, asked, "the right words")
        ann.wait_for(lambda: len(ann.answers(room, by=bot)) == 3)
    assert ann.answers(room, by=bot)[1:] == ["the first", "the right words"]


def test_a_revoked_token_is_told_by_the_status_and_stops_nothing_else(
    keryx: Cli, ann: Person, bot: Person
) -> None:
    begun(keryx, ann, bot)
    bot.call("POST", "/client/v3/logout", {})
    with keryx.serving():
        assert keryx.json("send", "--wait", "still here")["session"]
        shown = keryx.until("refused", "gateway", "status")
    assert "keryx gateway setup matrix" in shown and bot.token not in shown


def test_only_who_may_talk_is_followed_into_a_room(keryx: Cli, ann: Person, bob: Person, bot: Person) -> None:
    keryx.variables["KERYX_MATRIX_ALLOW"] = ann.user
    closed = bob.room(bot, direct=True)
    with killed(keryx):
        room = ann.room(bot, direct=True)
        ann.say(room, "let me in")
        ann.wait_for(lambda: ann.answers(room, by=bot) == ["let me in"])
    assert bob.members(closed) == {bob.user}


def test_a_picture_is_kept_and_its_words_are_answered(keryx: Cli, ann: Person, bot: Person) -> None:
    room = begun(keryx, ann, bot)
    picture = ann.upload(b"\x89PNG\r\n\x1a\nnot much", name="p.png", mime="image/png")
    with killed(keryx):
        info = {"mimetype": "image/png", "size": 17}
        shown = {"msgtype": "m.image", "body": "what is this?", "filename": "p.png", "url": picture}
        ann.send(room, {**shown, "info": info})
        ann.wait_for(lambda: "what is this?" in ann.answers(room, by=bot))
    session = keryx.json("sessions", "list")["sessions"][0]["session"]["id"]
    assert "p.png" in keryx.ok("sessions", "show", session, "--json").out


PAINTER = """
from keryx.core.ports.agent import FileEvent, TextDelta

async def paint(context):
    yield TextDelta("here it is")
    yield FileEvent("red.png", "image/png", b"\\x89PNG\\r\\n\\x1a\\nred")
"""


def test_a_picture_of_the_agent_follows_its_words(
    keryx: Cli, ann: Person, bot: Person, tmp_path: Path
) -> None:
    (tmp_path / "painter.py").write_text(PAINTER)
    keryx.variables |= {"KERYX_AGENT": "painter:paint", "PYTHONPATH": str(tmp_path)}
    room = ann.room(bot, direct=True)
    with killed(keryx):
        ann.say(room, "paint")
        ann.wait_for(lambda: len(ann.answers(room, by=bot)) == 2)
    words, picture = [seen for seen in ann.sees(room) if seen.sender == bot.user]
    assert (words.text, picture.kind, picture.text) == ("here it is", "m.image", "red.png")
    assert ann.download(picture.content["url"]) == b"\x89PNG\r\n\x1a\nred"


# Other processes use the same homeserver.
@pytest.mark.faults
def test_a_homeserver_that_goes_away_for_a_while_loses_nothing(
    keryx: Cli, synapse: Synapse, ann: Person, bot: Person
) -> None:
    room = begun(keryx, ann, bot)
    with killed(keryx):
        ann.say(room, "slow 1 on its way")
        time.sleep(0.5)
        synapse.stop()
        time.sleep(1)
        synapse.start()
        ann.say(room, "and back")
        ann.wait_for(lambda: len(ann.answers(room, by=bot)) == 3, 90)
    assert ann.answers(room, by=bot) == ["hello", "on its way", "and back"]
