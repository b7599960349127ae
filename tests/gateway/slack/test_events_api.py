"""The posts of the Events API: signatures, challenges, retries and forms."""

import asyncio
import json
import time

import msgspec
import pytest
from tests.fakes.slack import (
    build_post,
)
from tests.gateway.slack.workspace import (
    Workspace,
    cancel,
    until,
)

from keryx.core.errors import (
    Unavailable,
)
from keryx.core.messages import Text
from keryx.core.ports.adapter import (
    InboundEvent,
    LinkState,
    Receipt,
    WebhookRequest,
)
from keryx.core.questions import Button
from keryx.surfaces.gateway.slack import (
    MAX_CLOCK_SKEW_SECONDS,
)


def sign_again(request: WebhookRequest, **headers: str) -> WebhookRequest:
    return msgspec.structs.replace(request, headers={**request.headers, **headers})


async def test_a_post_that_slack_did_not_sign_is_refused(events: Workspace) -> None:
    hook = events.adapter.hook
    assert hook is not None
    task = asyncio.create_task(events.adapter.listen(events.context))
    await until(lambda: events.context.link_states)
    events.slack.say("hello")
    envelope = events.slack.waiting[0]
    good = build_post(envelope)
    now = int(time.time())
    forged = [
        sign_again(good, **{"x-slack-signature": "v0=" + "0" * 64}),
        sign_again(good, **{"x-slack-signature": "v0=\xff"}),
        sign_again(good, **{"x-slack-request-timestamp": str(now + 1)}),
        sign_again(good, **{"x-slack-request-timestamp": "soon"}),
        msgspec.structs.replace(good, body=good.body + b" "),
        msgspec.structs.replace(good, headers={}),
        build_post(envelope, at=now - MAX_CLOCK_SKEW_SECONDS - 5),
        build_post(envelope, at=now + MAX_CLOCK_SKEW_SECONDS + 60),
    ]
    assert [(await hook.handle(request)).status for request in forged] == [401] * len(forged)
    assert events.context.events == []
    assert (await hook.handle(good)).status == 200
    # A replay within five minutes is the same event.
    assert (await hook.handle(good)).status == 200
    await cancel(task)
    assert len({e.event for e in events.context.events}) == 1


@pytest.mark.parametrize(("minutes", "words"), [(42, "42 minutes ahead of"), (-42, "42 minutes behind")])
async def test_a_clock_that_is_wrong_is_told_until_a_post_is_timely(
    events: Workspace, minutes: int, words: str
) -> None:
    hook = events.adapter.hook
    assert hook is not None
    task = asyncio.create_task(events.adapter.listen(events.context))
    await until(lambda: events.context.link_states)
    events.slack.say("hello")
    [envelope] = events.slack.waiting
    untimely = build_post(envelope, at=int(time.time()) + 60 * minutes)
    forged = sign_again(untimely, **{"x-slack-signature": "v0=" + "0" * 64})
    assert (await hook.handle(forged)).status == 401
    assert events.context.link_states[-1][0] is LinkState.CONNECTED
    assert (await hook.handle(untimely)).status == 401
    link, detail = events.context.link_states[-1]
    assert link is LinkState.BROKEN and words in detail
    assert (await hook.handle(build_post(envelope))).status == 200
    assert events.context.link_states[-1][0] is LinkState.CONNECTED
    await cancel(task)


async def test_the_address_is_verified_by_a_signed_challenge(events: Workspace) -> None:
    hook = events.adapter.hook
    assert hook is not None
    payload = {"type": "url_verification", "token": "legacy", "challenge": "3eZbrw1aB"}
    request = build_post({"type": "events_api", "payload": payload})
    response = await hook.handle(request)
    assert (response.status, response.body) == (200, b"3eZbrw1aB")
    assert (await hook.handle(msgspec.structs.replace(request, headers={}))).status == 401


async def test_a_retry_has_the_same_event(events: Workspace) -> None:
    hook = events.adapter.hook
    assert hook is not None
    task = asyncio.create_task(events.adapter.listen(events.context))
    await until(lambda: events.context.link_states)
    events.slack.say("hello")
    for retry in range(4):
        assert (await hook.handle(build_post(events.slack.waiting[0], retry=retry))).status == 200
    await cancel(task)
    assert len({e.event for e in events.context.events}) == 1


async def test_an_event_that_cannot_be_stored_is_to_come_again(events: Workspace) -> None:
    hook = events.adapter.hook
    assert hook is not None
    events.slack.say("hello")
    request = build_post(events.slack.waiting[0])
    assert (await hook.handle(request)).status == 503

    async def refuse(inbound: InboundEvent) -> Receipt:
        raise Unavailable("not now")

    events.context.set_receive(refuse)
    task = asyncio.create_task(events.adapter.listen(events.context))
    await until(lambda: events.context.link_states)
    assert (await hook.handle(request)).status == 503
    await cancel(task)


async def test_commands_and_presses_are_posted_as_forms(events: Workspace) -> None:
    hook = events.adapter.hook
    assert hook is not None
    await events.send("May I?", buttons=(Button("Yes", "/answer 1 1"),))
    task = asyncio.create_task(events.adapter.listen(events.context))
    await until(lambda: events.context.link_states)
    events.slack.command("new")
    events.slack.press("Yes")
    responses = [await hook.handle(build_post(e)) for e in events.slack.waiting]
    check = {"type": "slash_commands", "payload": {"ssl_check": "1", "token": "legacy"}}
    responses.append(await hook.handle(build_post(check)))
    await cancel(task)
    assert [r.status for r in responses] == [200, 200, 200]
    assert json.loads(responses[0].body) == {"response_type": "in_channel"}
    assert [p.text for e in events.context.events for p in e.parts if isinstance(p, Text)] == [
        "/new",
        "/answer 1 1",
    ]


async def test_odd_posts_end_nothing(events: Workspace) -> None:
    hook = events.adapter.hook
    assert hook is not None
    task = asyncio.create_task(events.adapter.listen(events.context))
    await until(lambda: events.context.link_states)
    odd: list[object] = [
        list[str](),
        "words",
        None,
        {"type": "event_callback"},
        {"type": "app_rate_limited", "minute_rate_limited": 1},
    ]
    for payload in odd:
        assert (await hook.handle(build_post({"type": "events_api", "payload": payload}))).status == 200
    await cancel(task)
