"""Every command, through the door that every message takes."""

from datetime import timedelta

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, OPERATORS, Pause, World, inbound

from keryx.core.access import CommandAudience
from keryx.core.deliveries import Target
from keryx.core.errors import NotFound
from keryx.core.ids import PrincipalId
from keryx.core.messages import Text, text_parts
from keryx.core.ports.adapter import InboundMessage
from keryx.core.ports.agent import TextDelta, UsageEvent
from keryx.core.resets import ResetMode, ResetPolicies, ResetPolicy
from keryx.core.sessions import (
    Binding,
    SessionChange,
    SessionFilter,
    SessionSettings,
    SettingsChange,
    TitleBy,
)
from keryx.core.source import ChatType, Source
from keryx.core.texts import LANGUAGES, NO_CHANGES
from keryx.core.turns import BusyMode, TurnState
from keryx.core.usage import Usage
from keryx.engine import commands
from keryx.engine.commands import COMMANDS
from keryx.engine.policy import Policy
from keryx.store import sessions
from keryx.store.db import Engine
from keryx.testing import ScriptedAgent

pytestmark = pytest.mark.engines(Engine.SQLITE)


async def test_a_person_sets_the_zone_of_their_times_and_jobs(world: World) -> None:
    assert await world.command("/zone") == (
        "Your time zone is UTC (default): it is 2026-03-01 12:00 there. /zone Europe/Berlin sets another."
    )
    assert "not a known time zone" in await world.command("/zone Mars/Olympus")
    assert await world.command("/zone Asia/Tokyo") == (
        "Your time zone is Asia/Tokyo: it is 2026-03-01 21:00 there."
    )
    assert "2026-03-02 09:00 Asia/Tokyo" in await world.command("/jobs add tomorrow at nine call mum")
    assert "UTC" in await world.command("/zone", user="bob")
    assert "UTC (default)" in await world.command("/zone default")


async def count_sessions(world: World) -> int:
    return len((await world.hub.list_sessions(OPERATORS, SessionFilter()))[0])


async def test_every_command_answers_in_a_conversation_and_outside_one(world: World) -> None:
    for command in COMMANDS:
        # This one begins a conversation without an argument.
        chat = "begun" if command.name == "temp" else "empty"
        outside = await world.say(f"/{command.name}", chat=chat, user=command.name)
        assert outside.reply, command.name
        if command.session and not command.begins:
            assert outside.reply == "There is no conversation here yet: say something first."
        await world.ask("hello", chat=command.name, user=command.name)
        inside = await world.say(f"/{command.name}", chat=command.name, user=command.name)
        assert inside.reply or inside.turn, command.name


@pytest.mark.parametrize(
    ("text", "reply", "settings"),
    [
        ("/model large", "Model: large.", SessionSettings(model="large")),
        ("/effort high", "Effort: high.", SessionSettings(effort="high")),
        ("/personality a pirate", "Personality: a pirate", SessionSettings(personality="a pirate")),
        ("/busy steer", "While a turn runs, messages: steer.", SessionSettings(busy="steer")),
        ("/title Oslo", "Now called “Oslo”.", SessionSettings()),
        ("/project none", "In no project now.", SessionSettings()),
    ],
)
async def test_a_setting_begins_the_conversation_that_the_next_message_goes_on_with(
    world: World, text: str, reply: str, settings: SessionSettings
) -> None:
    receipt = await world.say(text)
    assert receipt.reply == reply and receipt.session
    turn = await world.ask("hello")
    assert turn.session == receipt.session
    session = await world.read(sessions.get, turn.session)
    assert session.settings == settings
    assert session.title == ("Oslo" if "Oslo" in text else "hello")
    assert await world.transcript(turn.session) == [f"notice: {reply}", "user: hello", "assistant: hello"]
    assert await world.sent(2) == [reply, "hello"]


@pytest.mark.parametrize("text", ["/queue hello", "/steer hello"])
async def test_what_is_to_be_queued_or_considered_may_come_first(world: World, text: str) -> None:
    receipt = await world.say(text)
    assert (await world.settle(receipt)).state is TurnState.DONE
    assert await world.transcript(receipt.session) == ["user: hello", "assistant: hello"]


@pytest.mark.parametrize(
    "text",
    ["/model", "/effort", "/effort most", "/tools on nothing", "/agent x", "/project nowhere", "/title"],
)
async def test_what_is_only_asked_or_refused_begins_nothing(world: World, text: str) -> None:
    assert "say something first" not in await world.command(text) or text == "/title"
    assert await count_sessions(world) == 0


async def test_a_model_that_is_not_set_up_is_refused(begin: Begin) -> None:
    world = await begin(policy=Policy(models=("small", "large")))
    assert await world.command("/model") == "Model: small (default). Available: small, large."
    assert await world.command("/model larg") == "There is no model 'larg'; available: small, large."
    assert await count_sessions(world) == 0
    assert await world.command("/model large") == "Model: large."
    assert await world.command("/model default") == "Model: default."
    turn = await world.ask("hello")
    with pytest.raises(NotFound, match="there is no model 'larg'"):
        await world.hub.change(OPERATORS, turn.session, SessionChange(settings=SettingsChange(model="larg")))


async def test_the_models_of_an_agent_are_those_that_it_told(begin: Begin) -> None:
    world = await begin(policy=Policy(models=("small",), agents=("coder",)))
    turn = await world.ask("hello")
    assert await world.command("/model") == "Model: default."
    binding = Binding(agent="coder", id="1", cwd="/", model="opus", models=("haiku", "opus"))
    await world.database.write("bind", lambda tx: sessions.save_binding(tx, turn.session, binding))
    assert await world.command("/model") == "Model: opus (default). Available: opus, haiku."
    assert await world.command("/model small") == "There is no model 'small'; available: opus, haiku."
    assert await world.command("/model haiku") == "Model: haiku."


async def test_the_mode_says_what_tools_may_do(world: World) -> None:
    assert await world.command("/mode") == (
        "Mode: ask. The agent asks before a tool does what needs permission."
    )
    assert await world.command("/mode read") == "Mode: read. Whatever needs permission is denied."
    assert "choose ask, auto, read or default" in await world.command("/mode all")
    assert "only an operator" in (await world.command("/mode auto")).lower()
    assert (await world.command("/mode auto", user="operator", chat="9")).startswith("Mode: auto.")
    assert (await world.command("/mode default")).startswith("Mode: ask.")


async def test_in_a_shared_chat_the_owner_decides_for_all_unless_the_settings_say_otherwise(
    begin: Begin,
) -> None:
    world = await begin(
        policy=Policy(commands={"title": CommandAudience.EVERYONE, "undo": CommandAudience.OPERATOR})
    )
    thread = Source(platform=FAKE, chat="g", chat_type=ChatType.GROUP, thread="t", user="x")

    async def say(text: str, user: str) -> str:
        return (await world.hub.receive(inbound(text, user=user, source=thread))).reply or ""

    await world.settle(await world.hub.receive(inbound("hi", user="ann", source=thread)))
    for text in ("/new", "/resume x", "/undo-reset", "/fork", "/redo", "/compact", "/model x", "/mode read"):
        assert "person who began this conversation" in await say(text, "bob"), text
    assert "person who began this conversation" not in await say("/status", "bob")
    assert await say("/title Ours", "bob") == "Now called “Ours”."
    for user in ("ann", "bob"):
        assert "operator" in await say("/undo", user)
    assert await say("/model large", "ann") == "Model: large."


async def test_a_title_that_is_taken_begins_nothing(world: World) -> None:
    await world.command("/title Oslo")
    assert "already: choose another title" in await world.command("/title oslo", chat="2")
    assert await count_sessions(world) == 1


async def test_a_setting_after_a_long_silence_is_for_the_new_conversation(begin: Begin) -> None:
    idle = ResetPolicy(mode=ResetMode.IDLE, idle=timedelta(hours=1))
    world = await begin(policy=Policy(resets=ResetPolicies(default=idle)))
    old = await world.ask("hello")
    world.advance(timedelta(hours=2))
    reply = await world.command("/model large")
    assert "Started a new conversation after a long silence." in reply and reply.endswith("Model: large.")
    turn = await world.ask("good morning")
    assert turn.session != old.session
    assert (await world.read(sessions.get, turn.session)).settings.model == "large"


async def test_the_reply_of_a_command_is_delivered_where_it_was_given(world: World) -> None:
    await world.command("/whoami")
    assert await world.sent() == ["unnamed · ann · profile default"]


async def test_an_unknown_command_says_so_and_makes_no_session(world: World) -> None:
    assert await world.command("/frobnicate now") == "There is no command /frobnicate. /help lists them."
    assert await count_sessions(world) == 0
    assert "Did you mean /title? " in await world.command("/titel large")


@pytest.mark.parametrize(
    "text", ["/etc/hosts", "/ new", "//new", "/", "/1", "a /new", "/new_thing x", "/" + "a" * 40]
)
async def test_what_only_looks_like_a_command_is_speech(world: World, text: str) -> None:
    assert (await world.ask(text)).state is TurnState.DONE
    assert await world.sent() == [text]


@pytest.mark.parametrize("text", ["/new", " /NEW ", "/new@keryx_bot", "/reset"])
def test_a_command_is_known_however_it_is_written(text: str) -> None:
    asked = commands.parse(text_parts(text))
    assert asked and asked.command and asked.command.name == "new"


def test_a_message_of_several_parts_is_speech() -> None:
    assert commands.parse((Text("/new"), Text("x"))) is None


async def test_a_surface_can_have_commands_taken_as_speech(world: World) -> None:
    await world.ask("/new", commands=False)
    assert await world.sent() == ["/new"]


async def test_new_ends_the_session_and_stops_its_work(world: World) -> None:
    said = await world.say("!silence")
    waiting = await world.say("later")
    await world.running(said)
    assert (await world.command("/new")).startswith("New conversation.")
    assert (await world.settle(said)).state is TurnState.CANCELLED
    assert (await world.settle(waiting)).state is TurnState.CANCELLED
    assert (await world.ask("fresh")).session != said.session
    assert await world.command("/new", chat="2") == "This is a new conversation already. Say something."


async def test_resume_finds_only_what_the_asker_owns(world: World) -> None:
    mine = await world.ask("Oslo hotels")
    await world.ask("hi", user="bob", chat="2")
    assert "no conversation" in await world.command("/resume Oslo hotels", user="bob", chat="2")
    assert "no conversation" in await world.command(f"/resume {mine.session}", user="bob", chat="2")
    assert "Oslo" not in await world.command("/sessions", user="bob", chat="2")
    assert "Oslo" in await world.command("/resume")


async def test_resume_takes_the_number_of_the_list(world: World) -> None:
    for text in ("first", "second", "third"):
        await world.ask(text)
        await world.command("/new")
        world.advance(1)
    assert "2. “second”" in await world.command("/resume")
    assert "Back in “second”" in await world.command("/resume 2")
    assert "no conversation" in await world.command("/resume 7")
    await world.command("/title 3")
    assert "Back in “3”" in await world.command("/resume 3")


async def test_resume_takes_a_part_of_a_title_or_a_title_in_quotes(world: World) -> None:
    for text in ("Trip to Rome", "Trip to Oslo"):
        await world.ask(text)
        await world.command("/new")
    assert "Back in “Trip to Rome”" in await world.command("/resume rome")
    assert "Back in “Trip to Oslo”" in await world.command('/resume "trip to oslo"')
    assert "matches several conversations: “Trip to" in await world.command("/resume trip")


async def test_a_chat_that_began_with_an_address_can_be_resumed(world: World) -> None:
    await world.ask("https://example.org//a\\b what is this?")
    told = await world.command("/new")
    name = told.partition("/resume ")[2].partition(" goes back")[0]
    assert "Back in" in await world.command(f"/resume {name}")


async def test_to_resume_where_one_is_already_moves_nothing(world: World) -> None:
    mine = await world.ask("Oslo hotels")
    (lane,) = await world.hub.lanes.page(OPERATORS)
    assert "Back in" in await world.command(f"/resume {mine.session}")
    _, moves = await world.hub.lanes.get(OPERATORS, lane.key)
    assert [move.session for move in moves] == [mine.session]


async def test_nobody_brings_a_private_session_of_another_into_a_shared_thread(begin: Begin) -> None:
    """What a person asks for is looked up as that person, whoever the lane belongs to."""
    world = await begin(policy=Policy(commands={"resume": CommandAudience.EVERYONE}))
    await world.ask("my secret plan")
    thread = Source(platform=FAKE, chat="g", chat_type=ChatType.GROUP, thread="t", user="x")
    await world.hub.receive(inbound("hi", user="ann", source=thread))
    reply = (await world.hub.receive(inbound("/resume my secret plan", user="bob", source=thread))).reply
    assert reply and "there is no conversation" in reply.lower()


async def test_sessions_lists_the_newest_first(world: World) -> None:
    for text in ("first", "second"):
        await world.ask(text)
        await world.command("/new")
        world.advance(1)
    reply = await world.command("/sessions")
    assert reply.index("second") < reply.index("first")


async def test_title_shows_sets_and_refuses(world: World) -> None:
    turn = await world.ask("hello")
    assert await world.command("/title") == "This is “hello”."
    assert await world.command("/title  Oslo\u202e   trip ") == "Now called “Oslo trip”."
    await world.ask("other", chat="2")
    assert "already" in await world.command("/title oslo TRIP", chat="2")
    assert "character" in await world.command("/title \u200b")
    session = (await world.open(turn.session)).session
    assert (session.title, session.title_by) == ("Oslo trip", TitleBy.PERSON)
    assert await world.command("/title -") == "The title is removed."
    session = (await world.open(turn.session)).session
    assert (session.title, session.title_by) == ("", None)
    # The title is free for another conversation.
    assert await world.command("/title Oslo trip", chat="2") == "Now called “Oslo trip”."


async def test_fork_moves_the_chat_into_a_copy(world: World) -> None:
    first = await world.ask("base")
    assert await world.command("/fork") == "You are in a copy now: “base #2”."
    again = await world.ask("in the copy")
    assert again.session != first.session
    assert (await world.transcript(again.session))[:2] == ["user: base", "assistant: base"]
    assert len(await world.transcript(first.session)) == 2


async def test_where_a_surface_chooses_the_session_a_fork_does_not_say_that_one_is_in_it(
    world: World,
) -> None:
    first = await world.ask("base")
    assert await world.command("/fork", session=first.session) == "Made a copy: “base #2”."
    assert (await world.ask("still here", session=first.session)).session == first.session


def test_a_menu_lists_what_works_on_its_surface() -> None:
    editor = {c.name for c in commands.list_commands()}
    chat = {c.name for c in commands.list_commands(lane=True, chat=True)}
    assert not {"new", "resume", "undo-reset", "instructions", "mirror", "home"} & editor
    assert editor < chat and {"new", "mirror", "model", "mode"} <= chat
    group = {c.name for c in commands.list_commands(lane=True, chat=True, direct=False)}
    assert chat - group == {"sessions", "search", "link", "whoami"}
    assert {c.name for c in commands.list_commands(watched=True)} - editor == {"takeover"}


async def test_the_help_of_a_group_lists_what_works_there(world: World) -> None:
    def ask(kind: ChatType) -> InboundMessage:
        source = Source(platform=FAKE, chat=f"c-{kind}", chat_type=kind, user="ann", message="1")
        reply = Target(FAKE, chat=f"c-{kind}")
        return inbound("/help", event=f"help {kind}", source=source, reply=reply, principal=None)

    group = (await world.hub.receive(ask(ChatType.GROUP))).reply or ""
    direct = (await world.hub.receive(ask(ChatType.DM))).reply or ""
    assert "/new" in group and "/whoami" in direct
    assert not [name for name in ("sessions", "search", "link", "whoami", "takeover") if f"/{name} " in group]
    assert "/takeover" not in direct


async def test_the_help_of_a_session_without_a_chat_lists_what_works_there(world: World) -> None:
    turn = await world.ask("hello", user="operator")
    told = await world.command("/help", user="operator", session=turn.session, reply=None)
    assert "/undo" in told and "/model" in told
    assert not [name for name in ("new", "resume", "home", "mirror") if f"/{name} " in told]


async def test_a_fork_whose_title_is_taken_is_made_and_says_so(world: World) -> None:
    await world.ask("base")
    reply = await world.command("/fork base")
    assert reply.startswith("You are in a copy now: “base #2”.") and "already" in reply
    assert await world.command("/fork Plan B") == "You are in a copy now: “Plan B”."
    assert await count_sessions(world) == 3


async def test_undo_redo_and_retry(world: World) -> None:
    turn = await world.ask("one")
    await world.ask("two")
    assert await world.command("/undo") == "Took back 1 turn; /redo restores it. Your message was: two"
    assert await world.command("/redo") == "Restored 2 messages."
    assert await world.command("/redo") != "Restored 2 messages."
    assert await world.command("/undo 2") == "Took back 2 turns; /redo restores them. Your message was: two"
    assert "nothing to undo" in await world.command("/undo")
    assert await world.command("/undo abc") == "Write a number of turns, as in /undo 2."
    assert await world.command("/redo") == "Restored 4 messages."
    receipt = await world.say("/retry")
    assert receipt.reply == "" and receipt.turn
    await world.settle(receipt)
    assert (await world.transcript(turn.session))[-1] == "assistant: two"


@pytest.mark.parametrize("command", [c.name for c in COMMANDS if not c.busy])
async def test_what_must_wait_for_the_answer_is_refused_while_a_turn_runs(world: World, command: str) -> None:
    said = await world.say("!silence")
    await world.running(said)
    assert f"/{command} does not work while a turn is running" in await world.command(f"/{command}")
    assert (await world.turn(said)).state is TurnState.RUNNING
    assert len(await world.transcript(said.session)) == 1


async def test_stop_stops_the_answer_and_keeps_the_queue(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([TextDelta("half "), Pause()], [TextDelta("next")]))
    said = await world.say("a")
    waiting = await world.say("b")
    await world.drafted(said, "half ")
    assert await world.command("/stop") == "Stopping. 1 message is still queued; /queue clear removes it."
    assert (await world.settle(said)).state is TurnState.CANCELLED
    assert (await world.settle(waiting)).state is TurnState.DONE
    assert await world.command("/stop") == "Nothing is running."


async def test_the_queue_is_shown_added_to_and_cleared(world: World) -> None:
    said = await world.say("!silence")
    await world.running(said)
    assert await world.command("/queue") == "No messages are queued."
    added = await world.say("/queue also this")
    assert added.turn and (await world.turn(added)).mode is BusyMode.QUEUE
    assert await world.command("/queue") == "1. also this"
    assert await world.command("/queue clear") == "Removed 1 queued message."
    assert await world.command("/queue clear") == "No messages are queued."
    assert (await world.turn(added)).state is TurnState.CANCELLED


async def test_an_album_in_the_queue_counts_each_message_and_a_hit_is_marked(begin: Begin) -> None:
    pause = Pause()
    world = await begin(agent=ScriptedAgent((TextDelta("one"), pause, TextDelta("two"))))
    said = await world.say("first")
    await pause.reached()
    for number in range(3):
        await world.say(f"zebra {number}", group="album")
    assert await world.command("/stop") == "Stopping. 3 messages are still queued; /queue clear removes them."
    assert await world.command("/queue clear") == "Removed 3 queued messages."
    pause.go_on()
    await world.settle(said)
    hits = await world.command("/search zebra")
    assert hits.count("(withdrawn before it was answered)") == 3


async def test_steer_gives_the_running_turn_a_hint(world: World) -> None:
    said = await world.say("!wait 5")
    await world.drafted(said, "Waiting. ")
    hint = await world.say("/steer in metres")
    assert "say what to consider" in (await world.command("/steer")).lower()
    await world.flow(world.settle(said))
    assert (await world.turn(hint)).state is TurnState.MERGED
    assert "Waiting. Steered: in metres" in await world.sent(2)


async def test_busy_is_kept_per_session_and_checked(world: World) -> None:
    turn = await world.ask("a")
    assert await world.command("/busy") == "While a turn runs, messages: queue."
    assert await world.command("/busy collect") == "While a turn runs, messages: collect."
    assert (await world.command("/busy sometimes")).startswith("Unknown mode 'sometimes'. Choose queue")
    assert (await world.open(turn.session)).session.settings.busy == "collect"


async def test_pin_archive_model_and_project_are_kept(world: World) -> None:
    turn = await world.ask("a")
    assert [await world.command(t) for t in ("/pin", "/pin")] == ["Pinned.", "Unpinned."]
    assert [await world.command(t) for t in ("/archive", "/archive")] == [
        "Archived.",
        "Back from the archive.",
    ]
    assert await world.command("/model gpt-x") == "Model: gpt-x."
    assert await world.command("/model default") == "Model: default."
    assert await world.command("/effort") == "Effort: default."
    assert await world.command("/effort high") == "Effort: high."
    assert "Choose minimal, low, medium, high or default" in await world.command("/effort most")
    assert (await world.read(sessions.get, turn.session)).settings.effort == "high"
    assert await world.command("/project") == "There are no projects yet. You can add one on the page."
    assert "nowhere" in await world.command("/project nowhere")
    assert await world.command("/project none") == "In no project now."
    assert (await world.read(sessions.get, turn.session)).project is None


async def test_delete_frees_every_chat_of_the_session(world: World) -> None:
    turn = await world.ask("Oslo")
    await world.command("/resume Oslo", chat="2")
    assert await world.command("/delete") == "Deleted “Oslo”. It is erased in 30 days."
    for chat in ("1", "2"):
        assert (await world.ask("hello", chat=chat)).session != turn.session


async def test_status_and_usage_tell_what_the_session_is(world: World) -> None:
    assert await world.command("/status") == "No conversation here yet. Say something."
    await world.ask("two words")
    assert "Idle. Model: default.\n2 messages in 1 turn" in await world.command("/status")
    assert await world.command("/usage") == ("2 input and 2 output tokens, about 0.0000 USD.")


async def test_the_status_is_one_line_of_state_model_and_context(begin: Begin) -> None:
    used = UsageEvent(Usage(model="fast", context_used=3_000, context_limit=100_000))
    agent = ScriptedAgent([used, TextDelta("said")])
    world = await begin(agent=agent, policy=Policy(models=("fast", "slow")))
    await world.ask("hello")
    lines = (await world.command("/status")).splitlines()
    assert lines[1] == "Idle. Model: fast (default). Context: 3 % of 100,000."


async def test_help_lists_every_command_that_may_be_given(world: World) -> None:
    reply = await world.command("/help")
    assert all(
        (f"/{c.name}" in reply) is (c.who is not CommandAudience.OPERATOR)
        for c in COMMANDS
        if c.listed and not c.watched
    )
    assert "/home" in await world.command("/help", user="operator")


@pytest.mark.parametrize(
    "text", ["\x00", "\ud800", "../../etc", "x" * 5000, "'; drop table sessions; --", "%"]
)
async def test_odd_arguments_are_answered_with_a_sentence(world: World, text: str) -> None:
    await world.ask("hello")
    for command in (
        "resume",
        "title",
        "fork",
        "undo",
        "queue",
        "project",
        "model",
        "personality",
        "search",
        "busy",
    ):
        receipt = await world.say(f"/{command} {text}", user="ann")
        assert receipt.reply or receipt.turn
    assert (await world.ask("still here", principal=PrincipalId("ann"))).state is TurnState.DONE


@pytest.mark.parametrize("language", sorted(LANGUAGES))
async def test_the_first_words_of_keryx_are_few(world: World, language: str) -> None:
    source = Source(platform=FAKE, chat="1", user="ann", user_name="ann", language=language)
    greeting = await world.command("/start", source=source)
    assert len(greeting.splitlines()) == 3
    code = NO_CHANGES.speak(language).say("person.pairing", platform=FAKE, code="AAAA", minutes=60)
    assert len(code.splitlines()) <= 12
