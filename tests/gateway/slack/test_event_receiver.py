"""What the Slack adapter makes of what people do."""

import asyncio

from tests.fakes.slack import (
    BOT_ID,
    BOT_USER,
    PERSON,
    FakeSlack,
)
from tests.gateway.slack.workspace import (
    CHANNEL,
    SECONDS,
    THREAD,
    Workspace,
    cancel,
    until,
)

from keryx.core.errors import Invalid
from keryx.core.messages import Text
from keryx.core.ports.adapter import (
    InboundEvent,
    InboundMessage,
    Receipt,
)
from keryx.core.questions import Button
from keryx.surfaces.gateway.slack import (
    ReplyPlace,
)


async def test_the_two_events_of_a_mention_have_one_name(workspace: Workspace) -> None:
    workspace.slack.mention("hi")
    one, other = await workspace.hear(2)
    assert (one.event, one.source.user_name, one.source.chat_name) == (other.event, "Ann", "general")


async def test_a_message_names_its_thread_and_only_a_mention_is_addressed(workspace: Workspace) -> None:
    root = workspace.slack.mention("hi", both=False)
    workspace.slack.say("and then?", channel=CHANNEL, thread_ts=root)
    workspace.slack.say("lunch?", channel=CHANNEL)
    events = await workspace.hear(3)
    assert [e.addressed for e in events] == [True, False, False]
    assert [e.source.thread for e in events] == [root, root, None]
    assert [e.thread_root for e in events] == ["", root, ""]


async def test_an_edit_after_a_restart_is_still_in_the_thread_of_its_message(workspace: Workspace) -> None:
    root = workspace.slack.mention("hi", both=False)
    await workspace.hear()
    again = Workspace(workspace.slack)
    again.context.state.update(workspace.context.state)
    workspace.slack.rewrite("hello", ts=root, channel=CHANNEL)
    [edit] = await again.hear()
    assert (edit.edits, edit.source.thread, edit.addressed) == (root, root, True)
    await again.adapter.close()


async def test_an_edit_that_takes_the_mention_away_is_still_in_its_thread(workspace: Workspace) -> None:
    root = workspace.slack.mention("hi", both=False)
    workspace.slack.rewrite("hello", ts=root, channel=CHANNEL)
    first, edit = await workspace.hear(2)
    assert (edit.edits, edit.source.thread, edit.addressed) == (root, first.source.thread, True)


async def test_answers_go_to_the_channel_where_that_is_set() -> None:
    with FakeSlack() as slack:
        workspace = Workspace(slack, replies=ReplyPlace.CHANNEL)
        slack.mention("hi", both=False)
        [event] = await workspace.hear()
        assert event.reply is not None and event.reply.thread == ""
        await workspace.adapter.close()


async def test_names_that_cannot_be_had_are_ids(workspace: Workspace) -> None:
    workspace.slack.missing["users.info"] = "users:read"
    workspace.slack.say("hi <@U0000009>", user=PERSON)
    [event] = await workspace.hear()
    assert event.source.user_name is None and event.parts == (Text("hi @U0000009"),)


async def test_the_language_of_a_person_is_known(workspace: Workspace) -> None:
    workspace.slack.locales[PERSON] = "de-DE"
    workspace.slack.say("hallo")
    [event] = await workspace.hear()
    assert event.source.language == "de-DE"


async def test_an_assistant_thread_gets_prompts_and_a_title(workspace: Workspace) -> None:
    thread = workspace.slack.open_assistant()
    workspace.slack.say("plan my\n trip to Rome", thread_ts=thread)
    workspace.slack.say("by train", thread_ts=thread)
    events = await workspace.hear(2, then=lambda: workspace.slack.titles)
    assert [(p["thread_ts"], p["prompts"]) for p in workspace.slack.prompts] == [
        (thread, [{"title": "What can you do?", "message": "What can you do?"}])
    ]
    assert [(t["thread_ts"], t["title"]) for t in workspace.slack.titles] == [
        (thread, "plan my trip to Rome")
    ]
    assert {e.source.thread for e in events} == {thread} and all(e.addressed for e in events)


async def test_a_reaction_to_an_answer_in_a_thread_names_the_thread(workspace: Workspace) -> None:
    ts = await workspace.send("answer", chat=CHANNEL, thread=THREAD)
    other = Workspace(workspace.slack)
    for one in (workspace, other):
        workspace.slack.react("-1", ts=ts, channel=CHANNEL, item_user=BOT_USER)
        task = asyncio.create_task(one.adapter.listen(one.context))
        await until(lambda one=one: one.context.reactions)
        await cancel(task)
        [reaction] = one.context.reactions
        assert (reaction.reaction, reaction.source.thread, reaction.message_event) == ("👎", THREAD, "")
    await other.adapter.close()


async def test_who_presses_a_button_is_told_what_came_of_it(workspace: Workspace) -> None:
    async def receive(inbound: InboundEvent) -> Receipt:
        return Receipt(duplicate=False, reply="Only Ben may answer this.")

    workspace.context.set_receive(receive)
    await workspace.send("May I?", buttons=(Button("Yes", "/answer 1 1"),))
    workspace.slack.press("Yes")
    await workspace.hear(then=lambda: workspace.slack.whispers)
    assert [(w["user"], w["text"]) for w in workspace.slack.whispers] == [
        (PERSON, "Only Ben may answer this.")
    ]


async def test_a_slash_command_is_shown_with_its_reply(workspace: Workspace) -> None:
    workspace.slack.command("new")
    [event] = await workspace.hear(then=lambda: workspace.slack.acks)
    assert event.parts == (Text("/new"),)
    assert workspace.slack.acks[0]["payload"] == {"response_type": "in_channel"}


async def test_an_event_that_the_engine_refuses_blocks_nothing(workspace: Workspace) -> None:
    async def receive(inbound: InboundEvent) -> Receipt:
        if not isinstance(inbound, InboundMessage):
            raise Invalid("this cannot be")
        return Receipt(duplicate=False)

    workspace.context.set_receive(receive)
    said = workspace.slack.say("hello")
    workspace.slack.react("+1", ts=said)
    workspace.slack.unsay(ts=said)
    workspace.slack.say("again")
    await workspace.hear(2, then=lambda: not workspace.slack.waiting)
    assert workspace.slack.connections_opened == 1


async def test_own_messages_start_nothing(workspace: Workspace) -> None:
    workspace.slack.say("mine", user=BOT_USER, bot_id=BOT_ID)
    workspace.slack.say("hello")
    [event] = await workspace.hear()
    assert event.parts == (Text("hello"),)


async def test_events_go_to_the_account_of_their_workspace() -> None:
    with FakeSlack() as slack:
        one = Workspace(slack)
        slack.valid_tokens.add("xoxb-other")
        tasks = [asyncio.create_task(one.adapter.listen(one.context))]
        await until(lambda: len(slack.connections) == 1)
        slack.team = "T0000002"
        two = Workspace(slack, token="xoxb-other")
        tasks.append(asyncio.create_task(two.adapter.listen(two.context)))
        await until(lambda: len(slack.connections) == 2)
        # The newest connection gets the events of both workspaces.
        slack.say("for two")
        await two.context.wait_for(1, seconds=SECONDS)
        slack.team = "T0000001"
        slack.say("for one")
        await one.context.wait_for(1, seconds=SECONDS)
        # What is for no account is not acknowledged, and holds up nothing.
        slack.team = "T0000003"
        slack.say("for nobody")
        slack.team = "T0000001"
        slack.say("for one again")
        await one.context.wait_for(2, seconds=SECONDS)
        await until(lambda: len(slack.waiting) == 1)
        for task in tasks:
            await cancel(task)
        assert [len(w.context.events) for w in (one, two)] == [2, 1]
        assert {e.source.scope for e in two.context.events} == {"T0000002"}
