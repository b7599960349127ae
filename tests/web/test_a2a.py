"""A2A 1.0, called by the real client of the protocol for Python in this process, by both bindings."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from google.protobuf.json_format import MessageToDict
from tests.engine.conftest import Begin
from tests.engine.world import OPERATORS, Pause, Scenes, World, viewer
from tests.web.site import ORIGIN, Site, open_site, post_until

from keryx.core.errors import AgentFailed
from keryx.core.ids import SessionId, TurnId
from keryx.core.ports.agent import TextDelta, TurnContext
from keryx.core.questions import Question
from keryx.core.sessions import SessionFilter
from keryx.store.db import Engine
from keryx.testing import ScriptedAgent

ONE_ENGINE = pytest.mark.engines(Engine.SQLITE)
BINDINGS = ("JSONRPC", "HTTP+JSON")
VERSION = {"A2A-Version": "1.0"}


@asynccontextmanager
async def connect(
    site: Site, binding: str = "JSONRPC", *, streaming: bool = False, key: str = ""
) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    transport = httpx.ASGITransport(app=site.app)
    async with httpx.AsyncClient(transport=transport, base_url=ORIGIN, headers=headers) as http:
        card = await A2ACardResolver(http, ORIGIN).get_agent_card()
        config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], streaming=streaming)
        yield ClientFactory(config).create(card)


@pytest.fixture(params=BINDINGS)
async def client(site: Site, request: pytest.FixtureRequest) -> AsyncIterator[Client]:
    async with connect(site, request.param) as made:
        yield made


def build_message(text: str, **fields: Any) -> pb.Message:
    id_ = fields.pop("message_id", None) or uuid4().hex
    return pb.Message(message_id=id_, role=pb.ROLE_USER, parts=[pb.Part(text=text)], **fields)


async def send(client: Client, message: pb.Message, **options: Any) -> pb.Task:
    """Send a message and return the last state of its task, put together from the events."""
    configuration = pb.SendMessageConfiguration(**options)
    task = pb.Task()
    request = pb.SendMessageRequest(message=message, configuration=configuration)
    async for event in client.send_message(request):
        apply(task, event)
    return task


def apply(task: pb.Task, event: pb.StreamResponse) -> None:
    if event.HasField("task"):
        task.CopyFrom(event.task)
    elif event.HasField("status_update"):
        task.status.CopyFrom(event.status_update.status)
    else:
        update = event.artifact_update
        known = [a for a in task.artifacts if a.artifact_id == update.artifact.artifact_id]
        assert bool(known) == update.append
        (known[0] if known else task.artifacts.add(artifact_id=update.artifact.artifact_id)).parts.extend(
            update.artifact.parts
        )


def read(task: pb.Task) -> str:
    return "".join(part.text for artifact in task.artifacts for part in artifact.parts)


def state(task: pb.Task) -> str:
    return pb.TaskState.Name(task.status.state).removeprefix("TASK_STATE_").lower()


async def ask_permission(context: TurnContext) -> None:
    answer = await context.ask(Question(key="k", title="May I?", detail="rm -r"))
    if answer != "allow":
        raise AgentFailed(f"they said {answer}")


async def test_a_task_is_a_turn_and_a_context_a_conversation_that_other_surfaces_see(
    client: Client, world: World, site: Site
) -> None:
    first = await send(client, build_message("hello"))
    assert (state(first), read(first)) == ("completed", "hello")
    assert [part.text for m in first.history for part in m.parts] == ["hello"]
    second = await send(client, build_message("again", context_id=first.context_id))
    assert second.context_id == first.context_id
    assert second.id != first.id
    [found], _ = await world.hub.list_sessions(OPERATORS, SessionFilter())
    assert found.session.id == first.context_id
    assert await world.transcript(found.session.id) == [
        "user: hello",
        "assistant: hello",
        "user: again",
        "assistant: again",
    ]
    shown = await site.get(f"/api/sessions/{first.context_id}")
    assert [m["parts"][0]["text"] for m in shown["messages"]] == ["hello", "hello", "again", "again"]
    again = await client.get_task(pb.GetTaskRequest(id=first.id, history_length=0))
    assert read(again) == "hello"
    assert not again.history


async def test_a_repeated_message_returns_the_first_task(client: Client, world: World) -> None:
    message = build_message("only once", context_id="my-own-name")
    first, second = await send(client, message), await send(client, message)
    assert first.id == second.id
    assert first.context_id == "my-own-name"
    other = await send(client, build_message("another", context_id="my-own-name"))
    assert other.context_id == "my-own-name"
    assert other.id != first.id
    [found], _ = await world.hub.list_sessions(OPERATORS, SessionFilter())
    assert len(await world.transcript(found.session.id)) == 4
    with pytest.raises(InvalidParamsError, match="another message was sent"):
        await send(client, build_message("changed", message_id=message.message_id))


async def test_tasks_are_listed_by_their_last_change(client: Client, site: Site, world: World) -> None:
    made: list[pb.Task] = []
    for n in range(5):
        world.advance(1)
        made.append(await send(client, build_message(f"task {n}", context_id=f"c{n % 2}")))
    ids = [task.id for task in made]
    page = await client.list_tasks(pb.ListTasksRequest(page_size=2, history_length=0))
    assert [task.id for task in page.tasks] == [ids[4], ids[3]]
    assert (page.total_size, page.page_size) == (5, 2)
    assert not page.tasks[0].artifacts
    rest = await client.list_tasks(
        pb.ListTasksRequest(page_token=page.next_page_token, include_artifacts=True)
    )
    assert [read(task) for task in rest.tasks] == ["task 2", "task 1", "task 0"]
    assert rest.next_page_token == ""
    some = await client.list_tasks(
        pb.ListTasksRequest(context_id="c1", status=pb.TASK_STATE_COMPLETED, page_size=50)
    )
    assert [task.id for task in some.tasks] == [ids[3], ids[1]]
    late = pb.ListTasksRequest(status_timestamp_after=made[4].status.timestamp)
    assert [task.id for task in (await client.list_tasks(late)).tasks] == [ids[4]]
    for nothing in (
        pb.ListTasksRequest(status=pb.TASK_STATE_WORKING),
        pb.ListTasksRequest(status=pb.TASK_STATE_REJECTED),
        pb.ListTasksRequest(context_id="unknown"),
    ):
        assert not (await client.list_tasks(nothing)).tasks
    with pytest.raises(InvalidParamsError):
        await client.list_tasks(pb.ListTasksRequest(page_token="?"))


@ONE_ENGINE
@pytest.mark.parametrize("binding", BINDINGS)
async def test_a_stream_that_is_cut_is_continued_with_nothing_run_twice(begin: Begin, binding: str) -> None:
    pause = Pause()
    agent = ScriptedAgent([TextDelta("Hello "), pause, TextDelta("world")])
    world = await begin(agent=agent)
    async with open_site(world.hub, world.clock) as site, connect(site, binding, streaming=True) as client:
        message = MessageToDict(build_message("hi"))
        body: dict[str, Any] = {"message": message}
        path = "/a2a/message:stream"
        if binding == "JSONRPC":
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": body}
            path = "/a2a"
        events = await post_until(site, path, body, lambda e: "Hello" in str(e), a2a_version="1.0")
        first = events[0].get("result", events[0])["task"]
        task = pb.Task()
        follow = asyncio.create_task(_subscribe(client, first["id"], task))
        repeat = asyncio.create_task(send(client, build_message("hi", message_id=message["messageId"])))
        await pause.reached()
        pause.go_on()
        await follow
        assert (state(task), read(task)) == ("completed", "Hello world")
        assert read(await repeat) == "Hello world"
        assert read(await client.get_task(pb.GetTaskRequest(id=first["id"]))) == "Hello world"
        with pytest.raises(UnsupportedOperationError, match="has ended"):
            await _subscribe(client, first["id"], task)
    assert len(agent.contexts) == 1


async def _subscribe(client: Client, id_: str, task: pb.Task) -> None:
    async for event in client.subscribe(pb.SubscribeToTaskRequest(id=id_)):
        apply(task, event)


async def test_a_crash_in_mid_stream_loses_nothing(begin: Begin) -> None:
    pause = Pause()
    agent = ScriptedAgent([TextDelta("Hel"), pause], [TextDelta("Hello "), TextDelta("world")])
    world = await begin(agent=agent)
    params = {"message": MessageToDict(build_message("hi"))}
    async with open_site(world.hub, world.clock) as site:
        events = await post_until(
            site, "/a2a/message:stream", params, lambda e: "Hel" in str(e), a2a_version="1.0"
        )
    await world.restart()
    async with open_site(world.hub, world.clock) as site:
        again = await site.post("/a2a/message:send", params, headers=VERSION)
    assert again["task"]["id"] == events[0]["task"]["id"]
    assert [a["parts"][0]["text"] for a in again["task"]["artifacts"]] == ["Hello world"]
    assert len(agent.contexts) == 2


async def test_a_task_that_runs_is_cancelled_once(begin: Begin) -> None:
    pause = Pause()
    world = await begin(agent=Scenes({"wait": [TextDelta("a part"), pause]}))
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        running = await send(client, build_message("wait"), return_immediately=True)
        assert state(running) in ("submitted", "working")
        await pause.reached()
        gone = await client.cancel_task(pb.CancelTaskRequest(id=running.id))
        assert state(gone) == "canceled"
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(pb.CancelTaskRequest(id=running.id))
        with pytest.raises(UnsupportedOperationError, match="takes no message"):
            await send(client, build_message("more", task_id=running.id))
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task(pb.CancelTaskRequest(id="unknown"))


async def test_a_question_of_the_agent_is_answered_by_a_message_to_the_task(begin: Begin) -> None:
    script = [ask_permission, TextDelta("done"), ask_permission]
    world = await begin(agent=Scenes({"delete": script}))
    async with open_site(world.hub, world.clock) as site, connect(site, streaming=True) as client:
        waiting = await send(client, build_message("delete it"))
        assert state(waiting) == "input_required"
        assert "May I?" in waiting.status.message.parts[0].text
        options = MessageToDict(waiting.status.message.parts[1].data)["options"]
        assert [option["id"] for option in options] == ["allow", "always", "deny"]
        with pytest.raises(InvalidParamsError):
            await send(client, build_message("perhaps", task_id=waiting.id))
        with pytest.raises(InvalidParamsError, match="contextId"):
            await send(client, build_message("allow", task_id=waiting.id, context_id="another"))
        answer = build_message("allow", task_id=waiting.id)
        finished = await send(client, answer)
        assert (state(finished), read(finished)) == ("completed", "done")
        assert (await send(client, answer)).id == waiting.id


async def test_an_agent_that_fails_tells_why(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([AgentFailed("the model is away")]))
    async with open_site(world.hub, world.clock) as site, connect(site) as client:
        failed = await send(client, build_message("hello"))
    assert state(failed) == "failed"
    assert "the model is away" in failed.status.message.parts[0].text


@ONE_ENGINE
async def test_files_and_data_are_sent_and_kept(client: Client, world: World, site: Site) -> None:
    message = build_message("look")
    message.parts.add(raw=b"plain words", filename="note.txt", media_type="text/plain")
    message.parts.add().data.struct_value.update({"n": 1})
    task = await send(client, message)
    link = task.history[0].parts[1]
    assert (link.filename, link.url.startswith(f"{ORIGIN}/media/")) == ("note.txt", True)
    assert (await site.request("GET", link.url)).content == b"plain words"
    fetched = build_message("x")
    fetched.parts.add(url="http://169.254.169.254/secret")
    with pytest.raises(ContentTypeNotSupportedError):
        await send(client, fetched)


@ONE_ENGINE
async def test_wrong_requests_get_errors_of_the_protocol(client: Client, site: Site) -> None:
    wrong: list[tuple[type[A2AError], pb.Message, dict[str, Any]]] = [
        (InvalidParamsError, pb.Message(message_id="m", role=pb.ROLE_USER), {}),
        (InvalidParamsError, pb.Message(message_id="m", role=pb.ROLE_AGENT, parts=[pb.Part(text="x")]), {}),
        (InvalidParamsError, build_message("   "), {}),
        (TaskNotFoundError, build_message("x", task_id="unknown"), {}),
        (ContentTypeNotSupportedError, build_message("x"), {"accepted_output_modes": ["image/png"]}),
        (
            PushNotificationNotSupportedError,
            build_message("x"),
            {"task_push_notification_config": pb.TaskPushNotificationConfig(url="http://x")},
        ),
    ]
    for kind, message, options in wrong:
        with pytest.raises(kind):
            await send(client, message, **options)
    with pytest.raises(PushNotificationNotSupportedError):
        await client.create_task_push_notification_config(pb.TaskPushNotificationConfig(task_id="t"))
    with pytest.raises(TaskNotFoundError):
        await client.get_task(pb.GetTaskRequest(id="unknown"))


@ONE_ENGINE
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", -32700),
        (b"[]", -32600),
        (b'{"jsonrpc": "2.0", "id": true, "method": "GetTask"}', -32600),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "message/send"}', -32601),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": []}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": 1}}', -32602),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetExtendedAgentCard"}', -32004),
        (b"[" * 100_000, -32700),
    ],
)
async def test_what_is_no_call_is_told_so(site: Site, body: bytes, code: int) -> None:
    answer = await site.request("POST", "/a2a", content=body, headers=VERSION)
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == code


@ONE_ENGINE
async def test_other_versions_models_and_places_are_refused(site: Site) -> None:
    body = {"message": MessageToDict(build_message("hello")), "metadata": {"model": "none"}}
    unknown = await site.request("POST", "/a2a/message:send", json=body, headers=VERSION)
    assert unknown.status_code == 400
    assert "there is no model" in unknown.json()["error"]["message"]
    refused = await site.request("GET", "/a2a/tasks")
    assert refused.status_code == 400
    assert refused.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
    assert (await site.request("GET", "/a2a/tasks?A2A-Version=1.0.3")).status_code == 200
    foreign = await site.request("POST", "/a2a", json={}, headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 403
    elsewhere = await site.request("GET", "/.well-known/agent-card.json", headers={"Host": "evil.example"})
    assert elsewhere.status_code == 421
    large = {"Content-Length": str(1 << 40)}
    assert (await site.request("POST", "/a2a", content=b"{}", headers=large)).status_code == 413


async def test_a_key_has_the_rights_of_one_person(world: World) -> None:
    ann, bob = viewer("ann"), viewer("bob")
    async with open_site(world.hub, world.clock, token="a-token-of-some-length") as site:
        card = await site.get("/.well-known/agent-card.json")
        assert card["securityRequirements"] == [{"schemes": {"key": {"list": []}}}]
        assert (await site.request("GET", "/a2a/tasks", headers=VERSION)).status_code == 401
        _, key = await world.hub.api_keys.add(ann, "laptop")
        _, other_key = await world.hub.api_keys.add(bob, "phone")
        async with connect(site, key=key) as mine, connect(site, key=other_key) as other:
            task = await send(mine, build_message("hello"))
            assert len((await mine.list_tasks(pb.ListTasksRequest())).tasks) == 1
            assert not (await other.list_tasks(pb.ListTasksRequest())).tasks
            with pytest.raises(TaskNotFoundError):
                await other.get_task(pb.GetTaskRequest(id=task.id))
            stolen = await send(other, build_message("mine", context_id=task.context_id))
            assert len(await world.transcript(await _find_session(world, stolen))) == 2


async def _find_session(world: World, task: pb.Task) -> SessionId:
    return (await world.hub.api_turns.load(OPERATORS, TurnId(task.id))).turn.session
