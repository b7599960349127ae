"""Socket Mode against a Slack that closes connections, breaks frames and refuses tokens."""

import asyncio
import json

import pytest
from tests.gateway.slack.workspace import (
    SECONDS,
    Workspace,
    cancel,
    until,
)

from keryx.core.errors import (
    Forbidden,
    Unavailable,
)
from keryx.core.messages import Text
from keryx.core.ports.adapter import (
    InboundEvent,
    LinkState,
    Receipt,
)
from keryx.surfaces.gateway.slack.socket_mode import BAD_APP_TOKEN, SOCKET_MODE_OFF


async def test_an_event_is_acknowledged_only_after_it_is_stored(workspace: Workspace) -> None:
    stored = asyncio.Event()

    async def receive(inbound: InboundEvent) -> Receipt:
        assert workspace.slack.acks == []
        stored.set()
        return Receipt(duplicate=False)

    workspace.context.set_receive(receive)
    workspace.slack.say("hello")
    task = asyncio.create_task(workspace.adapter.listen(workspace.context))
    await asyncio.wait_for(stored.wait(), SECONDS)
    await until(lambda: workspace.slack.acks)
    await cancel(task)
    assert workspace.slack.waiting == []


async def test_while_nothing_can_be_stored_an_event_comes_again(workspace: Workspace) -> None:
    failures = 2

    async def receive(inbound: InboundEvent) -> Receipt:
        nonlocal failures
        if failures:
            failures -= 1
            raise Unavailable("not now")
        return Receipt(duplicate=False)

    workspace.context.set_receive(receive)
    workspace.slack.say("hello")
    [event] = await workspace.hear()
    assert event.source.message and workspace.slack.connections_opened >= 3


async def test_a_connection_is_replaced_before_slack_closes_it(workspace: Workspace) -> None:
    task = asyncio.create_task(workspace.adapter.listen(workspace.context))
    await until(lambda: len(workspace.slack.connections) == 1)
    first = workspace.slack.connections[0]
    workspace.slack.disconnect("warning", close=False)
    await until(lambda: len(workspace.slack.connections) == 2)
    # Both are read.
    first.send(
        json.dumps({"envelope_id": "late", "type": "events_api", "payload": {"type": "event_callback"}})
    )
    workspace.slack.say("hello")
    await workspace.context.wait_for(1, seconds=SECONDS)
    await until(lambda: "late" in [a["envelope_id"] for a in workspace.slack.acks])
    first.close()
    await until(lambda: len(workspace.slack.connections) == 1)
    workspace.slack.say("again")
    await workspace.context.wait_for(2, seconds=SECONDS)
    await cancel(task)
    assert workspace.slack.connections_opened == 2


async def test_a_lost_connection_is_made_anew(workspace: Workspace) -> None:
    task = asyncio.create_task(workspace.adapter.listen(workspace.context))
    for number in range(3):
        await until(lambda: workspace.slack.connections)
        workspace.slack.connections[-1].close(1011)
        workspace.slack.say(f"m{number}")
        await workspace.context.wait_for(number + 1, seconds=SECONDS)
    await cancel(task)
    assert [p.text for e in workspace.context.events for p in e.parts if isinstance(p, Text)] == [
        "m0",
        "m1",
        "m2",
    ]


async def test_broken_frames_end_nothing(workspace: Workspace) -> None:
    task = asyncio.create_task(workspace.adapter.listen(workspace.context))
    await until(lambda: workspace.slack.connections)
    for frame in (
        "{",
        "[]",
        '{"type": 5}',
        b"\xff",
        '{"type": "hologram", "envelope_id": "x", "payload": {}}',
        "[" * 5000,
    ):
        workspace.slack.connections[-1].send(frame)
    workspace.slack.say("hello")
    await workspace.context.wait_for(1, seconds=SECONDS)
    await cancel(task)
    assert workspace.slack.connections_opened == 1


async def test_socket_mode_that_is_switched_off_is_told(workspace: Workspace) -> None:
    task = asyncio.create_task(workspace.adapter.listen(workspace.context))
    await until(lambda: workspace.slack.connections)
    workspace.slack.disconnect("link_disabled")
    with pytest.raises(Forbidden) as caught:
        await asyncio.wait_for(task, SECONDS)
    assert str(caught.value) == SOCKET_MODE_OFF


async def test_too_many_connections_are_told_and_tried_again(workspace: Workspace) -> None:
    task = asyncio.create_task(workspace.adapter.listen(workspace.context))
    await until(lambda: workspace.slack.connections)
    workspace.slack.disconnect("too_many_websockets", close=False)
    await until(lambda: workspace.slack.connections_opened == 2)
    await cancel(task)


async def test_another_program_on_the_same_app_is_told(workspace: Workspace) -> None:
    workspace.slack.hello_connections = 3
    workspace.slack.say("hello")
    await workspace.hear()
    states = [detail for link, detail in workspace.context.link_states if link is LinkState.CONNECTED]
    assert states and "another program that uses the app gets some of its messages" in states[-1]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("invalid_auth", "does not accept the token"),
        ("token_revoked", "was revoked"),
        ("account_inactive", "was deactivated"),
    ],
)
async def test_a_refused_token_ends_listening_with_a_sentence(
    workspace: Workspace, code: str, words: str
) -> None:
    workspace.slack.refusals["auth.test"] = code
    assert words in await workspace.fail()


async def test_a_refused_app_token_ends_listening_with_a_sentence(workspace: Workspace) -> None:
    workspace.slack.refusals["apps.connections.open"] = "invalid_auth"
    assert await workspace.fail() == BAD_APP_TOKEN
    del workspace.slack.refusals["apps.connections.open"]
    workspace.slack.missing["apps.connections.open"] = "connections:write"
    assert "connections:write" in await workspace.fail()


async def test_a_throttled_start_waits_as_long_as_slack_asks(workspace: Workspace) -> None:
    workspace.slack.limited["auth.test"] = 7
    task = asyncio.create_task(workspace.adapter.listen(workspace.context))
    await until(lambda: 7 in workspace.pauses)
    workspace.slack.limited = {"apps.connections.open": 9}
    await until(lambda: 9 in workspace.pauses)
    workspace.slack.limited = {}
    await until(lambda: workspace.slack.connections)
    await cancel(task)
    assert LinkState.THROTTLED in [link for link, _ in workspace.context.link_states]
