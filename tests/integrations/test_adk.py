# The kit may be missing: the types are those in `typings`.
# pyright: reportMissingModuleSource=false
"""Sessions of the Agent Development Kit on the store, and an agent of the kit behind a chat."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from tests import left_out
from tests.agents.conversation import Conversation, a_context, asked, collect, spoken
from tests.engine.conftest import Begin, begin
from tests.engine.support.fault_recorder import changed, rows

from keryx.agents import frameworks
from keryx.agents.python_process import ProcessAgent
from keryx.core.errors import Retryable
from keryx.core.messages import ToolCall, ToolResult
from keryx.core.ports.agent import TextDelta, ToolCallEvent, ToolResultEvent, UsageEvent
from keryx.core.turns import TurnState
from keryx.integrations import StoreThread
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Engine
from keryx.testing import CrashingDatabase, DatabaseFault, FaultTiming

# It is installed apart, since it asks for older packages than Keryx.
if find_spec("google") is None or find_spec("google.adk") is None:
    left_out.skip_module(
        "tests of the Agent Development Kit", why="google-adk is missing", command=left_out.ADK
    )

if TYPE_CHECKING:
    from google.adk.sessions import Session

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.sessions.base_session_service import GetSessionConfig

from keryx.integrations.adk import KeryxSessionService

__all__ = ["begin"]

types: Any = import_module("google.genai.types")
ANN: Any = {"app_name": "app", "user_id": "ann"}
BOB: Any = {"app_name": "app", "user_id": "bob"}


@pytest.fixture
def service(closed: Callable[[], Database]) -> Iterator[KeryxSessionService]:
    with StoreThread(database=closed()) as store:
        yield KeryxSessionService(store)


def say(text: str, at: float, **state: Any) -> Event:
    delta = {name.replace("__", ":"): value for name, value in state.items()}
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author="user", content=content, timestamp=at, actions=EventActions(state_delta=delta))


def texts(session: "Session | None") -> list[str]:
    assert session is not None
    return [event.content.parts[0].text for event in session.events]


async def test_events_and_states_come_back(service: KeryxSessionService) -> None:
    session = await service.create_session(
        **ANN, state={"app:motto": "go", "user:name": "Ann", "n": 1, "temp:x": 1}
    )
    begin = session.last_update_time
    assert await service.get_session(**ANN, session_id=session.id) == session
    for n in range(1, 5):
        await service.append_event(
            session, say(f"text {n}", begin + n, n=n, user__last=n, temp__x=n, app__count=n)
        )
    assert session.state["temp:x"] == 4
    found = await service.get_session(**ANN, session_id=session.id)
    assert found is not None
    assert found.events == session.events
    assert found.state == {"app:motto": "go", "app:count": 4, "user:name": "Ann", "user:last": 4, "n": 4}
    recent = await service.get_session(
        **ANN, session_id=session.id, config=GetSessionConfig(num_recent_events=2)
    )
    assert texts(recent) == ["text 3", "text 4"]
    since = GetSessionConfig(after_timestamp=begin + 4)
    assert texts(await service.get_session(**ANN, session_id=session.id, config=since)) == ["text 4"]
    # What an app shares reaches everybody, what a person has only that person.
    other = await service.create_session(**BOB)
    assert other.state == {"app:motto": "go", "app:count": 4}
    assert await service.get_user_state(**ANN) == {"name": "Ann", "last": 4}


async def test_sessions_are_listed_and_deleted(service: KeryxSessionService) -> None:
    for name in ("one", "two"):
        await service.create_session(**ANN, session_id=name)
    await service.create_session(**BOB, session_id="one")
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**ANN, session_id=" one ")
    assert {s.id for s in (await service.list_sessions(**ANN)).sessions} == {"one", "two"}
    assert len((await service.list_sessions(app_name="app")).sessions) == 3
    await service.delete_session(**ANN, session_id="one")
    assert await service.get_session(**ANN, session_id="one") is None
    assert (await service.get_session(**BOB, session_id="one")) is not None


async def test_an_event_is_appended_once_and_only_to_what_was_read_last(service: KeryxSessionService) -> None:
    session = await service.create_session(**ANN, session_id="one")
    stale = await service.get_session(**ANN, session_id="one")
    assert stale is not None
    event = say("hello", session.last_update_time + 1)
    await service.append_event(session, event)
    await service.append_event(session, event)
    await service.append_event(session, Event(author="model", partial=True))
    with pytest.raises(ValueError, match="changed since"):
        await service.append_event(stale, say("late", session.last_update_time + 1))
    assert texts(await service.get_session(**ANN, session_id="one")) == ["hello"]
    await service.delete_session(**ANN, session_id="one")
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, say("gone", session.last_update_time + 1))


models: Any = import_module("google.adk.models")
agents: Any = import_module("google.adk.agents")
requests: list[Any] = []


async def generate(model: Any, request: Any, stream: bool = False) -> AsyncGenerator[Any, None]:
    requests.append(request)
    used = types.GenerateContentResponseUsageMetadata(prompt_token_count=7, candidates_token_count=3)

    def respond(*parts: Any, **more: Any) -> Any:
        return models.LlmResponse(content=types.Content(role="model", parts=list(parts)), **more)

    if "Oslo" in (request.contents[-1].parts[-1].text or ""):
        called = types.FunctionCall(id="c1", name="weather", args={"city": "Oslo"})
        yield respond(types.Part(function_call=called), usage_metadata=used)
        return
    yield respond(types.Part(text="It is"), partial=True)
    yield respond(types.Part(text=" sunny."), partial=True)
    yield respond(types.Part(text="It is sunny."), usage_metadata=used)


def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


scripted = type("ScriptedModel", (models.BaseLlm,), {"generate_content_async": generate})(model="scripted")
guide = agents.LlmAgent(name="guide", model=scripted, tools=[weather])


# Its process takes long to import the kit.
@pytest.mark.slow
@pytest.mark.engines(Engine.SQLITE)
async def test_an_agent_of_the_kit_answers_a_chat_from_a_process_of_its_own(begin: Begin) -> None:
    agent = ProcessAgent(f"{__name__}:guide")
    await agent.load()
    try:
        # A busy machine takes long to import the kit.
        assert spoken(await collect(agent, a_context(asked("Hello?")))) == "It is sunny."
        world = await begin(agent=agent)
        first = await world.say("And Oslo?")
        assert (await world.settle(first)).state is TurnState.DONE
        assert (await world.ask("Still?")).state is TurnState.DONE
        assert first.session
        assert await world.sent(2) == ["It is sunny."] * 2
        parts = [part for m in (await world.open(first.session)).messages for part in m.parts]
        assert [part.output for part in parts if isinstance(part, ToolResult)] == ["sunny in Oslo"]
    finally:
        await agent.close()


@pytest.mark.engines(Engine.SQLITE)
async def test_an_agent_of_the_kit_streams_uses_tools_and_knows_the_history() -> None:
    requests.clear()
    run = frameworks.find_run(guide)
    assert run is not None
    history = (
        Conversation()
        .ask("And Rome?")
        .call(ToolCall("c0", "weather", '{"city": "Rome"}'))
        .result("c0", "rain", name="weather")
        .say("It rains.")
        .ask("And Oslo?", turn="t9")
        .messages
    )
    agent: Any = type("Loaded", (), {"run": staticmethod(run)})()
    events = await collect(agent, a_context(history))
    assert spoken(events) == "It is sunny."
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["It is", " sunny."]
    assert [e for e in events if isinstance(e, ToolCallEvent | ToolResultEvent)] == [
        ToolCallEvent((ToolCall("c1", "weather", '{"city": "Oslo"}'),)),
        ToolResultEvent(ToolResult("c1", "weather", "sunny in Oslo")),
    ]
    assert [e.usage.input for e in events if isinstance(e, UsageEvent)] == [7, 7]
    assert [content.role for content in requests[0].contents] == ["user", "model", "user", "model", "user"]


@pytest.mark.parametrize("label", ["adk.create", "adk.append", "adk.delete"])
async def test_a_write_that_is_struck_is_done_whole_or_not_at_all(
    closed: Callable[[], Database], label: str
) -> None:
    database = CrashingDatabase(closed())
    with StoreThread(database=database) as store:
        service = KeryxSessionService(store)
        for when in FaultTiming:
            name = f"of {when}"
            acts: dict[str, Callable[[], Awaitable[object]]] = {
                "adk.create": partial(service.create_session, **ANN, session_id=name)
            }
            if label != "adk.create":
                session = await service.create_session(**ANN, session_id=name, state={"user:name": "Ann"})
                event = say("text", session.last_update_time + 1, n=1)
                acts["adk.append"] = partial(service.append_event, session, event)
                acts["adk.delete"] = partial(service.delete_session, **ANN, session_id=name)
            act = acts[label]
            before = store.read("rows", rows)
            fault = DatabaseFault(label, when)
            database.faults = [fault]
            with pytest.raises(Retryable):
                await act()
            assert fault.hits == 1
            found = store.read("rows", rows)
            assert bool(changed(before, found)) is (when is FaultTiming.AFTER)
            with suppress(AlreadyExistsError):
                await act()
            done = store.read("rows", rows)
            assert changed(before, done)
            assert when is FaultTiming.BEFORE or not changed(found, done)
    async with closed() as reopened:
        assert await verify(reopened) == []
