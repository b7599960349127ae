"""Telegram through a real node, as a person sees it."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.cli.driver import Cli
from tests.fakes.endpoint import EARS, KEY, MODEL, Endpoint, Refusal, Stall, answer
from tests.fakes.telegram import TOKEN, FakeTelegram

MENTION = [{"type": "mention", "offset": 0, "length": 10}]


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with FakeTelegram() as fake:
        yield fake


@pytest.fixture
def keryx(tmp_path: Path, telegram: FakeTelegram) -> Cli:
    return Cli(
        tmp_path,
        KERYX_TELEGRAM_TOKEN=TOKEN,
        KERYX_TELEGRAM_BASE_URL=telegram.url,
        KERYX_TELEGRAM_ALLOW="*",
    )


def reached(model: Endpoint) -> dict[str, str]:
    """The variables of a node that talks to this model."""
    return {
        "KERYX_AGENT": "llm",
        "KERYX_LLM_BASE_URL": model.base_url,
        "KERYX_LLM_MODEL": MODEL,
        "KERYX_LLM_API_KEY": KEY,
    }


def has_texts(telegram: FakeTelegram, *texts: str, chat: int = 7) -> bool:
    return telegram.wait_for(lambda: telegram.texts(chat) == list(texts), 60)


def sessions(keryx: Cli) -> list[dict[str, Any]]:
    return keryx.json("sessions", "list")["sessions"]


def test_a_person_talks_and_a_killed_node_forgets_nothing(keryx: Cli, telegram: FakeTelegram) -> None:
    with keryx.serving() as node:
        telegram.say("one")
        assert has_texts(telegram, "one"), telegram.texts()
        keryx.until("sent", "deliveries", "list", "--state", "sent")
        node.process.kill()
        node.process.wait()
    telegram.say("two")
    with keryx.serving():
        assert has_texts(telegram, "one", "two"), telegram.texts()
    assert len(sessions(keryx)) == 1


FLOODING = """
from keryx import TextDelta


async def agent(context):
    word = context.turn_messages[-1].text
    if word == "flood":
        for number in range(10_000_000):
            yield TextDelta(f"line {number} of an answer that does not end\\n\\n")
    yield TextDelta(word)
"""


def test_an_answer_without_an_end_is_a_few_messages_and_a_file(
    keryx: Cli, telegram: FakeTelegram, tmp_path: Path
) -> None:
    (tmp_path / "flooding.py").write_text(FLOODING)
    own = {"KERYX_AGENT": "flooding:agent", "PYTHONPATH": str(tmp_path), "KERYX_LIMITS_ANSWER": "200000"}
    with keryx.serving(**own):
        telegram.say("flood")
        telegram.say("hello", chat=8)
        assert has_texts(telegram, "hello", chat=8), telegram.texts(8)
        assert telegram.wait_for(lambda: bool(telegram.uploads), 120), telegram.texts()
    mine = [b for b in telegram.bubbles if b.chat == 7]
    assert [b.media for b in mine] == [""] * 9 + ["document"]
    [body] = telegram.uploads.values()
    whole = body.decode()
    assert whole.startswith("line 0 of an answer") and len(whole) > 200_000
    assert whole.endswith("The answer is longer than 200,000 characters and ends here. /retry asks again.")


def test_a_question_that_the_provider_refuses_does_not_spoil_the_next(
    keryx: Cli, telegram: FakeTelegram
) -> None:
    unreadable = Refusal(status=400, message="Could not process image", code="invalid_image")
    with Endpoint(unreadable, answer("Hello.")) as model:
        with keryx.serving(**reached(model)):
            telegram.say("look at this")
            assert telegram.wait_for(lambda: len(telegram.texts()) == 1, 60)
            telegram.say("hello")
            assert telegram.wait_for(lambda: "Hello." in telegram.texts(), 60)
        asked = [m["content"] for m in model.requests[1]["messages"] if m["role"] == "user"]
    assert "Could not process image" in telegram.texts()[0] and "/retry sends it again" in telegram.texts()[0]
    assert len(asked) == 1 and asked[0].endswith("\nhello") and "look at this" not in asked[0]


HOOKS = """
import os, signal
from pathlib import Path


async def remember(session, messages, reason):
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{session.id} {reason} {len(messages)}\\n")


async def die(session, messages, reason):
    if not Path(os.environ["NOTES"] + ".died").exists():
        Path(os.environ["NOTES"] + ".died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_end_of_a_conversation_runs_hooks_and_asks_the_agent_once_over_a_kill(
    keryx: Cli, telegram: FakeTelegram, tmp_path: Path
) -> None:
    (tmp_path / "at_end.py").write_text(HOOKS)
    (tmp_path / "keryx.toml").write_text(
        '[session_end]\nhooks = ["at_end:remember", "at_end:die"]\nprompt = "save what is worth remembering"\n'
    )
    notes = tmp_path / "notes"
    own = {"PYTHONPATH": str(tmp_path), "NOTES": str(notes)}
    with keryx.serving(**own):
        telegram.say("hello")
        assert has_texts(telegram, "hello"), telegram.texts()
        telegram.say("/new")
        assert telegram.wait_for(lambda: len(telegram.texts()) == 2, 60)
    (session,) = [s["session"]["id"] for s in sessions(keryx)]
    # The first sweep of this node is killed by the second hook.
    with keryx.serving(**own) as node:
        node.process.wait(60)
    with closing(apsw.Connection(str(tmp_path / "keryx.db"))) as store:
        store.execute("update finals set due_at = 0")  # pyright: ignore[reportUnknownMemberType]
    with keryx.serving(**own):
        keryx.until("save what is worth remembering", "sessions", "show", session)
    assert notes.read_text() == f"{session} reset 2\n"
    assert not [t for t in telegram.texts() if "worth remembering" in t], "the answer is sent to nobody"


def speak(telegram: FakeTelegram) -> None:
    telegram.files["said"] = b"OggS" + b"\0" * 60
    telegram.say(None, voice={"file_id": "said", "duration": 3, "mime_type": "audio/ogg"})


def contents(model: Endpoint, n: int = 0) -> str:
    return str([m["content"] for m in model.requests[n]["messages"] if m["role"] == "user"])


def test_a_voice_message_is_written_down_once_and_kept_beside_the_sound(
    keryx: Cli, telegram: FakeTelegram
) -> None:
    with Endpoint(answer("Hello."), answer("Bye.")) as model:
        model.transcripts = [Stall(), "what time is it"]
        with keryx.serving(**reached(model), KERYX_TRANSCRIPTION_MODEL=EARS) as node:
            speak(telegram)
            assert telegram.wait_for(lambda: len(model.sounds) == 1, 60)
            node.process.kill()
            node.process.wait()
        with keryx.serving(**reached(model), KERYX_TRANSCRIPTION_MODEL=EARS):
            assert has_texts(telegram, "Hello."), telegram.texts()
            telegram.say("bye")
            assert has_texts(telegram, "Hello.", "Bye."), telegram.texts()
    assert [name for name, _ in model.sounds] == ["sound.ogg", "sound.ogg"], "once by each process"
    assert "what time is it" in contents(model, 0) and "what time is it" in contents(model, -1)
    (found,) = keryx.json("sessions", "search", "what", "time")["hits"]
    assert found["session"]


def test_a_voice_message_that_cannot_be_written_down_is_told_and_answered(
    keryx: Cli, telegram: FakeTelegram
) -> None:
    with Endpoint(answer("Hello.")) as model:
        model.transcripts = [Refusal(status=400, message="The audio is too short", code="audio_too_short")]
        with keryx.serving(**reached(model), KERYX_TRANSCRIPTION_MODEL=EARS):
            speak(telegram)
            assert telegram.wait_for(lambda: "Hello." in telegram.texts(), 60), telegram.texts()
    assert any("could not be written down" in t and "too short" in t for t in telegram.texts())
    assert "this model cannot read it" in contents(model)


def test_a_picture_reaches_a_model_that_can_read_it_and_else_the_person_is_told(
    keryx: Cli, telegram: FakeTelegram
) -> None:
    telegram.files["good"] = bytes.fromhex("89504e470d0a1a0a") + b"\0" * 60
    picture: dict[str, Any] = {"photo": [{"file_id": "good", "width": 9, "height": 9}]}
    with Endpoint(answer("Blind."), answer("Seen.")) as model:
        with keryx.serving(**reached(model)):
            telegram.say(None, caption="look", **picture)
            assert telegram.wait_for(lambda: "Blind." in telegram.texts(), 60), telegram.texts()
        told = [t for t in telegram.texts() if "does not read pictures" in t]
        assert len(told) == 1 and "the operator can turn it on" in told[0]
        with keryx.serving(**reached(model), KERYX_LLM_IMAGES="true"):
            telegram.say(None, caption="look again", **picture)
            assert telegram.wait_for(lambda: "Seen." in telegram.texts(), 60), telegram.texts()
    assert "image_url" not in contents(model, 0) and contents(model, -1).count("image_url") >= 2
    assert len([t for t in telegram.texts() if "does not read pictures" in t]) == 1


def test_the_model_is_told_ids_while_a_tool_needs_them(keryx: Cli, telegram: FakeTelegram) -> None:
    server = [
        sys.executable,
        str(Path(__file__).parents[1] / "agents" / "tool_server.py"),
        str(keryx.home / "runs"),
    ]
    (keryx.home / "keryx.toml").write_text(
        f'[[tools]]\nname = "chats"\ncommand = {json.dumps(server)}\nids = true\n'
    )
    scripts = [answer(text) for text in ("One.", "Greetings", "Two.", "Three.")]
    with Endpoint(*scripts) as model, keryx.serving(**reached(model)):
        first = telegram.say("hello")
        assert has_texts(telegram, "One."), telegram.texts()
        assert telegram.wait_for(lambda: len(model.requests) == 2, 60), "the model names the conversation"
        second = telegram.say("and again")
        assert has_texts(telegram, "One.", "Two."), telegram.texts()
        telegram.say("/tools off chats")
        assert telegram.wait_for(lambda: "chats: off" in telegram.texts(), 60)
        telegram.say("without")
        assert telegram.wait_for(lambda: "Three." in telegram.texts(), 60), telegram.texts()
    system = [request["messages"][0]["content"] for request in model.requests]
    assert '(id "7")' in system[0] and system[0] == system[2] and "(id" not in system[3]
    assert f'message id "{first}")' in contents(model, 0)
    assert f'message id "{first}")' in contents(model, 2) and f'message id "{second}")' in contents(model, 2)
    assert "message id" not in contents(model, 3)


def test_a_topic_is_one_conversation_and_answers_go_there(keryx: Cli, telegram: FakeTelegram) -> None:
    topic: dict[str, Any] = {"message_thread_id": 3, "is_topic_message": True, "entities": MENTION}
    with keryx.serving():
        first = telegram.say("@keryx_bot hello", chat=-50, user=7, **topic)
        telegram.say("@keryx_bot me too", chat=-50, user=8, **topic)
        telegram.say("not for the bot", chat=-50, user=8, message_thread_id=3, is_topic_message=True)
        assert telegram.wait_for(lambda: len(telegram.bubbles) == 2, 60)
    assert [(b.thread, b.text) for b in telegram.bubbles] == [(3, "hello"), (3, "me too")]
    assert telegram.bubbles[0].reply_to == first
    assert len(sessions(keryx)) == 1


def test_a_picture_is_kept_and_a_lost_one_is_told_of(keryx: Cli, telegram: FakeTelegram) -> None:
    telegram.files["good"] = b"\x89PNG\r\n\x1a\n" + bytes(32)
    with keryx.serving():
        telegram.say(None, caption="look", photo=[{"file_id": "good", "width": 9, "height": 9}])
        telegram.say(None, caption="and this", document={"file_id": "gone", "file_name": "a.txt"})
        assert telegram.wait_for(lambda: len(telegram.bubbles) >= 2, 60)
    [session] = sessions(keryx)
    shown = keryx.ok("sessions", "show", session["session"]["id"]).out
    assert "look" in shown and "photo.jpg" in shown
    assert "a.txt could not be fetched" in shown


def test_an_album_that_is_cut_by_a_kill_gets_one_answer(keryx: Cli, telegram: FakeTelegram) -> None:
    telegram.files["good"] = b"\x89PNG\r\n\x1a\n" + bytes(32)
    picture: dict[str, Any] = {"photo": [{"file_id": "good", "width": 9, "height": 9}], "media_group_id": "9"}
    with keryx.serving(KERYX_LIMITS_GATHER="60s") as node:
        telegram.say(None, caption="look", **picture)
        keryx.until("queued", "turns", "--json")
        node.process.kill()
        node.process.wait()
    telegram.say(None, **picture)
    telegram.say(None, **picture)
    with keryx.serving(KERYX_LIMITS_GATHER="2s"):
        assert telegram.wait_for(lambda: bool(telegram.bubbles), 60)
        telegram.say("next")
        assert has_texts(telegram, "look", "next")


def test_a_group_that_becomes_a_supergroup_goes_on(keryx: Cli, telegram: FakeTelegram) -> None:
    with keryx.serving():
        telegram.say("@keryx_bot one", chat=-50, user=7, entities=MENTION)
        assert has_texts(telegram, "one", chat=-50)
        telegram.moved[-50] = -100500
        telegram.say(None, chat=-50, user=7, migrate_to_chat_id=-100500)
        telegram.say("@keryx_bot two", chat=-100500, user=7, entities=MENTION)
        assert has_texts(telegram, "two", chat=-100500)
    assert len(sessions(keryx)) == 1


def test_a_long_answer_is_shown_as_it_is_written(keryx: Cli, telegram: FakeTelegram) -> None:
    with keryx.serving():
        telegram.say("slow 6")
        assert telegram.wait_for(lambda: bool(telegram.bubbles and telegram.bubbles[0].edits), 60)
        assert telegram.wait_for(lambda: bool(telegram.actions), 60)
        keryx.until("sent", "deliveries", "list", "--state", "sent")
    assert len(telegram.bubbles) == 1


def test_a_question_is_answered_by_its_button_even_after_a_kill(keryx: Cli, telegram: FakeTelegram) -> None:
    def shows(*labels: str) -> bool:
        return telegram.wait_for(lambda: tuple(x for b in telegram.bubbles for x in b.buttons) == labels, 60)

    with keryx.serving() as node:
        telegram.say("!ask rm -rf /tmp/x")
        assert shows("Allow", "Always allow in this conversation", "Deny"), telegram.bubbles
        keryx.until("May the echo agent", "deliveries", "list", "--state", "sent")
        node.process.kill()
        node.process.wait()
    telegram.press("Deny", user=8)
    telegram.press("Deny", times=2)
    telegram.press("Allow")
    with keryx.serving():
        assert shows(), telegram.bubbles
        assert telegram.wait_for(lambda: len(telegram.toasts) == 3, 60)
        assert telegram.wait_for(lambda: "Answered: deny" in telegram.texts()[-1], 60)
    assert telegram.bubbles[0].text == "Asking."
    assert telegram.bubbles[1].text.endswith("→ Deny") and telegram.bubbles[1].edits == 1
    foreign, mine, late = telegram.toasts
    assert foreign.startswith("Only the person who asked") and mine.startswith("Denied")
    assert "is closed" in late
