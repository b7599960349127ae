"""Built-in tools: an agent finds, reads and sends no more than the person it works for could."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, World, viewer

from keryx.agents.tools import Permission, ToolFailed
from keryx.core.deliveries import Target
from keryx.core.ids import OPERATOR, PrincipalId
from keryx.core.jobs import JobState
from keryx.core.messages import Mark, Role
from keryx.core.ports.agent import TurnContext
from keryx.core.source import ChatType, Source
from keryx.engine.builtin_tools import SPECS, BuiltinTools
from keryx.store import platforms
from keryx.store.db import Engine
from keryx.testing import ScriptedAgent

pytestmark = pytest.mark.engines(Engine.SQLITE)


class Holder:
    """Keeps the context of the last turn, and its turn running until it is let go."""

    def __init__(self) -> None:
        self.context: TurnContext | None = None
        self.go_on = asyncio.Event()

    async def __call__(self, context: TurnContext) -> None:
        if any("hold" in m.text for m in context.turn_messages if m.role is Role.USER):
            self.context = context
            await self.go_on.wait()


async def held(begin: Begin, user: str = "ann", **fields: Any) -> tuple[World, TurnContext]:
    """A world with conversations of two people, and the context of a turn that runs."""
    holder = Holder()
    world = await begin(agent=ScriptedAgent([holder]))
    await world.ask("a hotel in oslo", chat="1", user="ann")
    await world.ask("a hotel in rome", chat="2", user="bob")
    await world.say("please hold", chat="3", user=user, **fields)
    await world.eventually(lambda: holder.context is not None)
    assert holder.context
    return world, holder.context


async def call(world: World, context: TurnContext, name: str, /, **arguments: Any) -> str:
    return (await BuiltinTools(world.hub).call(name, arguments, context)).text


async def refused(world: World, context: TurnContext, name: str, /, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as failure:
        await call(world, context, name, **arguments)
    return str(failure.value)


def test_reading_is_allowed_and_sending_asks() -> None:
    given = {s.name: (s.permission, s.repeatable) for s in SPECS}
    assert given == {
        "search_conversations": (Permission.ALLOW, True),
        "read_conversation": (Permission.ALLOW, True),
        "send_message": (Permission.ASK, False),
        "list_jobs": (Permission.ALLOW, True),
        "add_job": (Permission.ASK, False),
        "change_job": (Permission.ASK, False),
    }


async def test_a_search_finds_what_the_asker_may_see(begin: Begin) -> None:
    world, context = await held(begin)
    found = await call(world, context, "search_conversations", query="hotel")
    assert "oslo" in found and "rome" not in found and "message 1" in found
    assert await call(world, context, "search_conversations", query="zebra") == "Nothing was found."
    operator = msgspec.structs.replace(context, owner=OPERATOR, asker=OPERATOR)
    assert "rome" in await call(world, operator, "search_conversations", query="hotel", limit=5)


async def test_a_conversation_is_read_in_pages(begin: Begin) -> None:
    world, context = await held(begin)
    (session,) = [h.session.id for h in await world.hub.search(viewer("ann"), "oslo") if h.message]
    text = await call(world, context, "read_conversation", conversation=session, limit=1)
    assert "#1 ann" in text and "a hotel in oslo" in text and "read on with after=1" in text
    assert (await call(world, context, "read_conversation", conversation=session, after="1")).endswith(
        "That is the end."
    )
    (other,) = [h.session.id for h in await world.hub.search(OPERATORS, "rome") if h.message]
    assert "no session" in await refused(world, context, "read_conversation", conversation=other)


async def test_a_question_that_was_stopped_is_read_with_its_mark(begin: Begin) -> None:
    world, context = await held(begin)
    await world.hub.stop(OPERATORS, context.session)
    await world.settle(context.turn)
    text = await call(world, context, "read_conversation", conversation=context.session)
    assert "(stopped): please hold" in text


async def test_what_was_taken_from_the_queue_is_neither_found_nor_read(begin: Begin) -> None:
    world, context = await held(begin)
    waiting = await world.say("a secret zebra", chat="3", user="ann")
    assert waiting.turn
    await world.hub.drop(OPERATORS, waiting.turn)
    # A person finds it, with its mark.
    (hit,) = [h for h in await world.hub.search(viewer("ann"), "zebra") if h.message]
    assert hit.message and hit.message.mark is Mark.WITHDRAWN
    assert await call(world, context, "search_conversations", query="zebra") == "Nothing was found."
    assert "zebra" not in await call(world, context, "read_conversation", conversation=context.session)


async def test_where_others_listen_in_only_this_conversation_is_seen(begin: Begin) -> None:
    source = Source(platform=FAKE, chat="9", chat_type=ChatType.GROUP, thread="t", user="ann")
    world, context = await held(begin, source=source, reply=Target(FAKE, chat="9", thread="t"))
    assert context.shared
    assert await call(world, context, "search_conversations", query="hotel") == "Nothing was found."
    assert "please hold" in await call(world, context, "search_conversations", query="hold")
    (session,) = [h.session.id for h in await world.hub.search(viewer("ann"), "oslo") if h.message]
    assert "only this conversation" in await refused(
        world, context, "read_conversation", conversation=session
    )
    assert "choose origin" in await refused(world, context, "send_message", target=f"{FAKE}:1", text="x")
    assert await call(world, context, "send_message", target="origin", text="x")


async def test_somebody_who_asks_in_anothers_session_sees_only_that(begin: Begin) -> None:
    world, context = await held(begin)
    guest = msgspec.structs.replace(context, asker=PrincipalId("bob"))
    assert await call(world, guest, "search_conversations", query="hotel") == "Nothing was found."


async def test_a_message_goes_to_a_place_of_the_asker_and_nowhere_else(begin: Begin) -> None:
    world, context = await held(begin)
    assert await call(world, context, "send_message", target=f"{FAKE}:1", text="news") == (
        f"It is on its way to {FAKE}:1."
    )
    assert await call(world, context, "send_message", target="origin", text="here") == (
        f"It is on its way to {FAKE}:3."
    )
    await world.eventually(lambda: {"news", "here"} <= set(world.fake.texts))
    told = await refused(world, context, "send_message", target=f"{FAKE}:2", text="x")
    assert "is not a chat of this person" in told and f"{FAKE}:1" in told and f"{FAKE}:2," not in told
    assert "nothing to send" in await refused(world, context, "send_message", target="origin", text=" ")
    assert "local" in await refused(world, context, "send_message", target="local", text="x")


async def test_a_platform_alone_means_its_home_channel_and_is_no_way_to_others(begin: Begin) -> None:
    world, context = await held(begin)
    told = await refused(world, context, "send_message", target=FAKE, text="x")
    assert "fake has no home channel" in told

    async def move_home(chat: str) -> None:
        target, now = Target(FAKE, chat=chat), world.clock.now()
        await world.at(now).write(platforms.set_home, target, profile=OPERATORS.profile, name="", by=OPERATOR)

    await move_home("2")
    told = await refused(world, context, "send_message", target=FAKE, text="x")
    assert "is not a chat of this person" in told
    operator = msgspec.structs.replace(context, owner=OPERATOR, asker=OPERATOR)
    assert await call(world, operator, "send_message", target=FAKE, text="x") == (
        f"It is on its way to {FAKE}:2."
    )
    await move_home("1")
    assert (
        await call(world, context, "send_message", target=FAKE, text="x") == f"It is on its way to {FAKE}:1."
    )


@pytest.mark.parametrize("arguments", [{}, {"query": 1, "x": 2}, {"query": "a", "limit": "many"}])
async def test_wrong_arguments_are_told_to_the_model(begin: Begin, arguments: dict[str, Any]) -> None:
    world, context = await held(begin)
    assert "arguments are wrong" in await refused(world, context, "search_conversations", **arguments)


async def test_sets_of_tools_are_switched_in_a_session_and_stay_so(begin: Begin) -> None:
    agent = ScriptedAgent([])
    world = await begin(agent=agent, policy=msgspec.structs.replace(AT_ONCE, tools=("keryx", "files")))  # fmt: skip
    await world.ask("hello")
    assert await world.command("/tools") == "keryx: on\nfiles: on"
    assert await world.command("/tools off files") == "files: off"
    assert await world.command("/tools") == "keryx: on\nfiles: off"
    assert await world.command("/tools on mail") == "Write /tools on or /tools off and one of: keryx, files."
    await world.restart()
    await world.ask("hello")
    assert agent.contexts[-1].settings.tools == ("keryx",)
    assert await world.command("/tools on files") == "files: on"
    await world.ask("hello")
    assert agent.contexts[-1].settings.tools is None


async def test_an_agent_makes_and_manages_jobs_of_the_person_it_works_for(begin: Begin) -> None:
    world, context = await held(begin)
    assert await call(world, context, "list_jobs") == "There are no jobs."
    made = await call(world, context, "add_job", schedule="every 2h", prompt="Check the news", name="news")
    assert "news · every 2 hours · next 2026-03-01 14:00 UTC · to fake:3" in made
    assert "news · every 2 hours" in await call(world, context, "list_jobs")
    assert await call(world, context, "change_job", job="news", action="pause") == "Done: pause news."
    (job,) = await world.hub.jobs.list_all(viewer("ann"))
    assert (job.state, job.prompt) == (JobState.PAUSED, "Check the news")
    await call(world, context, "change_job", job="news", action="remove")
    assert await world.hub.jobs.list_all(viewer("ann")) == []


async def test_an_agent_may_name_a_time_as_people_do(begin: Begin) -> None:
    world, context = await held(begin)
    made = await call(world, context, "add_job", schedule="tomorrow at nine", prompt="Call mum")
    assert "once, 2026-03-02 09:00 UTC" in made
    await world.command("/zone Europe/Berlin", chat="1")
    made = await call(world, context, "add_job", schedule="on friday at 14:00", prompt="Leave early")
    assert "once, 2026-03-06 14:00 Europe/Berlin" in made
    assert "tomorrow at nine" in await refused(world, context, "add_job", schedule="soon", prompt="x")


async def test_a_job_that_cannot_be_is_refused_with_what_would_be_right(begin: Begin) -> None:
    world, context = await held(begin)
    assert "every 2h" in await refused(world, context, "add_job", schedule="often", prompt="x")
    assert "is not a chat" in await refused(
        world, context, "add_job", schedule="30m", prompt="x", to=f"{FAKE}:2"
    )
    assert "The arguments are wrong" in await refused(
        world, context, "change_job", job="news", action="explode"
    )
    assert "there is no job" in await refused(world, context, "change_job", job="news", action="run")


async def test_nobody_has_jobs_made_in_the_name_of_another(begin: Begin) -> None:
    world, context = await held(begin)
    strange = msgspec.structs.replace(context, asker=PrincipalId("bob"))
    for name, given in (
        ("add_job", {"schedule": "30m", "prompt": "x"}),
        ("list_jobs", {}),
        ("change_job", {"job": "x", "action": "run"}),
    ):
        assert "only whoever began" in await refused(world, strange, name, **given)
