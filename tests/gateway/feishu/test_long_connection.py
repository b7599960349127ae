"""The long connection against a Feishu that closes connections, breaks frames and refuses credentials."""

import asyncio
import json
from typing import Any

import pytest
from tests.fakes.feishu import (
    APP_ID,
    APP_SECRET,
    BOT,
    DIRECT,
    GROUP,
    PERSON,
    TENANT,
    UNION_ID,
    USER_ID,
    FakeFeishu,
)
from tests.gateway.feishu.tenant import SECONDS, Tenant, build, cancel, until

from keryx.core.errors import Invalid, Unavailable
from keryx.core.messages import Text, text_parts
from keryx.core.ports.adapter import (
    InboundDeletion,
    InboundEvent,
    InboundMessage,
    InboundReaction,
    LinkState,
    Receipt,
)
from keryx.core.questions import Button
from keryx.core.source import ChatType
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.feishu.connection_frame import ConnectionFrame, encode_frame
from keryx.surfaces.gateway.feishu.long_connection import TOO_MANY_CONNECTIONS
from keryx.surfaces.gateway.feishu.open_api import BAD_SECRET
from keryx.testing.wire import UNREACHABLE_URL


async def receive_all(tenant: Tenant, count: int) -> list[InboundEvent]:
    """Listen until this many events of any kind are stored."""
    found: list[InboundEvent] = []

    async def receive(inbound: InboundEvent) -> Receipt:
        found.append(inbound)
        return Receipt(duplicate=False, reply="Taken.")

    tenant.context.set_receive(receive)
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    try:
        await until(lambda: len(found) >= count and not tenant.feishu.waiting)
    finally:
        await cancel(task)
    return found


async def test_an_event_is_acknowledged_only_after_it_is_stored(tenant: Tenant) -> None:
    stored = asyncio.Event()

    async def receive(inbound: InboundEvent) -> Receipt:
        assert tenant.feishu.acks == []
        stored.set()
        return Receipt(duplicate=False)

    tenant.context.set_receive(receive)
    tenant.feishu.say("hello")
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    await asyncio.wait_for(stored.wait(), SECONDS)
    await until(lambda: tenant.feishu.acks)
    await cancel(task)
    assert tenant.feishu.acks == [{"code": 200}] and tenant.feishu.waiting == []


async def test_an_event_that_cannot_be_stored_is_answered_with_a_failure_and_comes_again(
    tenant: Tenant,
) -> None:
    failures = 2

    async def receive(inbound: InboundEvent) -> Receipt:
        nonlocal failures
        if failures:
            failures -= 1
            raise Unavailable("not now")
        return Receipt(duplicate=False)

    tenant.context.set_receive(receive)
    tenant.feishu.say("hello")
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    for count in (1, 2):
        await until(lambda count=count: len(tenant.feishu.acks) == count)
        assert tenant.feishu.acks[-1] == {"code": 500}
        # Feishu hands it over again some time later, here by another connection.
        tenant.feishu.disconnect()
    await until(lambda: not tenant.feishu.waiting)
    await cancel(task)
    assert [ack["code"] for ack in tenant.feishu.acks] == [500, 500, 200]


async def test_a_large_event_comes_in_several_frames_and_is_acknowledged_once(tenant: Tenant) -> None:
    tenant.feishu.fragment_bytes = 500
    text = "long " * 2000
    tenant.feishu.say(text)
    [message] = await tenant.hear(then=lambda: tenant.feishu.acks)
    assert message.parts == (Text(text.strip()),) and len(tenant.feishu.acks) == 1


async def test_the_connection_is_reported_and_kept_alive_by_pings(tenant: Tenant) -> None:
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    await until(lambda: tenant.feishu.pings == 1)
    await until(
        lambda: tenant.context.link_states and tenant.context.link_states[-1] == (LinkState.CONNECTED, "")
    )
    await cancel(task)
    assert 120 in tenant.pauses


async def test_the_interval_of_pings_can_be_changed_by_feishu(tenant: Tenant) -> None:
    tenant.feishu.pong_config = {**tenant.feishu.config, "PingInterval": 7}
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    await until(lambda: 7 in tenant.pauses)
    await cancel(task)


async def test_a_connection_that_is_silent_is_made_anew(tenant: Tenant) -> None:
    tenant.feishu.config["PingInterval"] = 1
    tenant.feishu.answer_pings = False
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    await until(lambda: tenant.feishu.connections_opened >= 2)
    await cancel(task)


async def test_a_lost_connection_is_made_again_after_the_time_that_feishu_names(tenant: Tenant) -> None:
    tenant.feishu.config |= {"ReconnectNonce": 50, "ReconnectInterval": 61}
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    await until(lambda: tenant.feishu.connections)
    tenant.pauses.clear()
    tenant.feishu.endpoint_code = 1
    tenant.feishu.disconnect()
    await until(lambda: tenant.pauses.count(61) >= 2)
    tenant.feishu.endpoint_code = 0
    await until(lambda: tenant.feishu.connections_opened == 2)
    await cancel(task)
    # The back-off, a random time, and a fixed one after each failure; besides them the heartbeat waits.
    pauses = [pause for pause in tenant.pauses if pause != tenant.feishu.config["PingInterval"]]
    assert pauses[0] < 2 and 0 <= pauses[1] <= 50 and pauses[3] == 61


async def test_what_was_in_flight_when_the_connection_broke_comes_again(tenant: Tenant) -> None:
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    for number in range(5):
        tenant.feishu.say(f"m{number}")
        tenant.feishu.disconnect()
    await until(lambda: not tenant.feishu.waiting)
    await cancel(task)
    texts = ["".join(p.text for p in e.parts if isinstance(p, Text)) for e in tenant.context.events]
    assert list(dict.fromkeys(texts)) == [f"m{number}" for number in range(5)]


@pytest.mark.parametrize(
    "wire",
    [
        b"",
        b"\xff" * 50,
        b"no protobuf",
        encode_frame(ConnectionFrame(method=1, headers=(("sum", "x"),), payload=b"{}")),
        encode_frame(ConnectionFrame(method=1, headers=(("sum", "5"), ("seq", "9")), payload=b"{}")),
        encode_frame(ConnectionFrame(method=0, headers=(("type", "pong"),), payload=b"{no json")),
        encode_frame(ConnectionFrame(method=0, headers=(("type", "hologram"),))),
        encode_frame(ConnectionFrame(method=77, payload=b"{}")),
    ],
)
async def test_a_broken_frame_is_left_out_and_the_connection_stays(tenant: Tenant, wire: bytes) -> None:
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    await until(lambda: tenant.feishu.connections)
    tenant.feishu.send_frame(wire)
    tenant.feishu.say("after")
    await tenant.context.wait_for(1, seconds=SECONDS)
    await cancel(task)
    assert tenant.feishu.connections_opened == 1


async def test_a_frame_that_is_too_large_ends_the_connection_and_the_next_event_comes(
    tenant: Tenant,
) -> None:
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    await until(lambda: tenant.feishu.connections)
    tenant.feishu.send_frame(b"\0" * 5_000_000)
    tenant.feishu.say("after")
    await tenant.context.wait_for(1, seconds=SECONDS)
    await cancel(task)
    assert tenant.feishu.connections_opened >= 2


async def test_wrong_credentials_are_one_sentence() -> None:
    with FakeFeishu() as feishu:
        tenant = Tenant(feishu, secret="wrong")
        assert await tenant.fail() == BAD_SECRET
        await tenant.adapter.close()


async def test_credentials_that_are_revoked_later_end_the_connection(tenant: Tenant) -> None:
    task = asyncio.create_task(tenant.fail())
    await until(lambda: tenant.feishu.connections)
    tenant.feishu.secret = "another"
    tenant.feishu.disconnect()
    assert await task == BAD_SECRET


async def test_too_many_connections_are_told_and_tried_again(tenant: Tenant) -> None:
    tenant.feishu.endpoint_code = 1000040350
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    await until(lambda: (LinkState.CONNECTING, TOO_MANY_CONNECTIONS) in tenant.context.link_states)
    tenant.feishu.endpoint_code = 0
    await until(lambda: tenant.context.link_states[-1] == (LinkState.CONNECTED, ""))
    await cancel(task)
    assert len(tenant.context.link_states) == 3


async def test_another_connection_of_the_app_gets_events_and_ours_stays(tenant: Tenant) -> None:
    """Feishu hands an event to one of the connections of an app, and evicts none."""
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    await until(lambda: tenant.feishu.connections)
    other = Tenant(tenant.feishu)
    [theirs] = await asyncio.gather(other_hears(other, tenant.feishu))
    tenant.feishu.say("to us")
    await tenant.context.wait_for(1, seconds=SECONDS)
    await cancel(task)
    await other.adapter.close()
    assert theirs == ["to the other"] and len(tenant.context.events) == 1


async def other_hears(other: Tenant, feishu: FakeFeishu) -> list[str]:
    task = asyncio.create_task(other.adapter.listen(other.context))
    await until(lambda: len(feishu.connections) == 2)
    feishu.say("to the other")
    await other.context.wait_for(1, seconds=SECONDS)
    await until(lambda: not feishu.waiting)
    await cancel(task)
    await until(lambda: len(feishu.connections) == 1)
    return ["".join(p.text for p in e.parts if isinstance(p, Text)) for e in other.context.events]


async def test_a_platform_that_cannot_be_reached_is_reported() -> None:
    with FakeFeishu() as feishu:
        tenant = Tenant(feishu, base_url=UNREACHABLE_URL)
        task = asyncio.create_task(tenant.adapter.listen(tenant.context))
        await until(lambda: len(tenant.pauses) >= 3)
        await cancel(task)
    link, detail = tenant.context.link_states[-1]
    assert link is LinkState.CONNECTING and "cannot be reached" in detail


async def test_an_app_without_a_bot_is_told(tenant: Tenant) -> None:
    tenant.feishu.refusals["/bot/v3/info"] = 99991672
    assert "lacks a permission" in await tenant.fail()


async def test_the_token_is_fetched_once_and_renewed_when_it_is_refused(tenant: Tenant) -> None:
    await tenant.send("one")
    await tenant.send("two", key="d2.0")
    assert tenant.feishu.tokens_fetched == 1
    tenant.feishu.revoke_tokens()
    await tenant.send("three", key="d3.0")
    assert tenant.feishu.tokens_fetched == 2 and tenant.feishu.texts() == ["one", "two", "three"]


async def test_the_token_is_renewed_before_it_ends(tenant: Tenant) -> None:
    tenant.feishu.token_seconds = 0
    await tenant.send("one")
    await tenant.send("two", key="d2.0")
    assert tenant.feishu.tokens_fetched == 2


async def test_the_ids_of_a_person_are_learned_once(tenant: Tenant) -> None:
    ids: dict[str, str | None] = {"open_id": PERSON, "union_id": UNION_ID, "user_id": USER_ID}
    tenant.feishu.say("one", ids=ids)
    tenant.feishu.say("two", ids=ids)
    await tenant.hear(2)
    assert tenant.context.aliases == [(PERSON, f"{USER_ID}@{TENANT}"), (PERSON, UNION_ID)]
    again = Tenant(tenant.feishu)
    again.context.state.update(tenant.context.state)
    tenant.feishu.say("three", ids=ids)
    await again.hear()
    await again.adapter.close()
    assert again.context.aliases == []


async def test_the_kind_of_a_chat_is_stored_with_the_first_message_that_is_stored(tenant: Tenant) -> None:
    states: list[dict[str, str]] = []

    async def receive(inbound: InboundEvent) -> Receipt:
        states.append(dict(inbound.state))
        if len(states) == 1:
            raise Unavailable("not now")
        return Receipt(duplicate=False)

    tenant.context.set_receive(receive)
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    tenant.feishu.say("one", chat=GROUP, group=True)
    await until(lambda: {"code": 500} in tenant.feishu.acks)
    tenant.feishu.disconnect()
    tenant.feishu.say("two", chat=GROUP, group=True)
    await until(lambda: not tenant.feishu.waiting)
    await cancel(task)
    kind = {f"chat {GROUP}": "group"}
    assert states == [kind, kind, {}]


async def test_a_message_is_not_lost_for_an_id_that_cannot_be_an_alias(tenant: Tenant) -> None:
    async def refuse(source: object, other: str) -> None:
        raise Invalid("too long")

    tenant.context.add_alias = refuse
    tenant.feishu.say("hello", ids={"open_id": PERSON, "union_id": UNION_ID})
    await tenant.hear()


async def test_names_are_looked_up_and_kept(tenant: Tenant) -> None:
    for number in range(3):
        tenant.feishu.say(f"m{number}", chat=GROUP, group=True, mention=True)
    events = await tenant.hear(3)
    assert {(e.source.user_name, e.source.chat_name) for e in events} == {("Ann", "Team")}
    assert tenant.feishu.count_calls("/contact/v3/users/") == tenant.feishu.count_calls("/im/v1/chats/") == 1


async def test_without_the_permission_for_names_messages_come_with_ids(tenant: Tenant) -> None:
    tenant.feishu.refusals |= {"/contact/v3/users/": 99991672, "/im/v1/chats/": 99991672}
    tenant.feishu.say("hello", chat=GROUP, group=True, mention=True)
    [event] = await tenant.hear()
    assert (event.source.user, event.source.user_name, event.source.chat_name) == (PERSON, None, None)


async def test_a_reaction_after_a_restart_is_placed_by_asking_feishu(tenant: Tenant) -> None:
    sent = await tenant.send("May I?", chat=GROUP)
    tenant.feishu.react("THUMBSUP", sent)
    [reaction] = await receive_all(Tenant(tenant.feishu), 1)
    assert isinstance(reaction, InboundReaction)
    assert (reaction.reaction, reaction.message, reaction.message_event) == ("👍", sent, "")
    assert (reaction.source.chat, reaction.source.chat_type) == (GROUP, ChatType.GROUP)
    assert reaction.source.user_name == "Ann"


async def test_a_reaction_to_a_message_that_is_gone_is_left_out(tenant: Tenant) -> None:
    tenant.feishu.react("THUMBSUP", "om_none")
    tenant.feishu.say("after")
    [event] = await receive_all(tenant, 1)
    assert isinstance(event, InboundMessage)


async def test_a_reaction_whose_place_cannot_be_asked_now_comes_again(tenant: Tenant) -> None:
    sent = await tenant.send("hello")
    tenant.feishu.refusals["GET /open-apis/im/v1/messages"] = 99991400
    tenant.feishu.react("THUMBSUP", sent)
    task = asyncio.create_task(tenant.adapter.listen(tenant.context))
    await until(lambda: {"code": 500} in tenant.feishu.acks)
    tenant.feishu.refusals.clear()
    tenant.feishu.disconnect()
    await until(lambda: not tenant.feishu.waiting)
    await cancel(task)


async def test_a_recalled_message_is_a_deletion_in_its_chat(tenant: Tenant) -> None:
    message = tenant.feishu.say("oops", chat=GROUP, group=True, mention=True)
    tenant.feishu.recall(message, chat=GROUP)
    first, second = await receive_all(tenant, 2)
    assert isinstance(second, InboundDeletion) and second.message_event == first.event
    assert second.source.chat_type is ChatType.GROUP


async def test_a_press_is_answered_at_once_with_what_became_of_it(tenant: Tenant) -> None:
    await tenant.send("May I?", buttons=(Button("Yes", "/answer 1 1"), Button("No", "/answer 1 2")))
    tenant.feishu.press("No")
    [event] = await receive_all(tenant, 1)
    assert isinstance(event, InboundMessage) and event.parts == (Text("/answer 1 2"),)
    assert (event.source.chat, event.source.chat_type, event.source.user) == (DIRECT, ChatType.DM, PERSON)
    assert tenant.feishu.toasts == [{"toast": {"type": "info", "content": "Taken."}}]


async def test_a_press_in_a_thread_belongs_to_the_thread(tenant: Tenant) -> None:
    root = tenant.feishu.say("root", chat=GROUP, group=True)
    inside = tenant.feishu.say_in_thread("ask", root, chat=GROUP, group=True, mention=True)
    thread = tenant.feishu.messages[inside]["thread_id"]
    part = build(
        "May I?", chat=GROUP, thread=thread, reply_to=inside, buttons=(Button("Yes", "/answer 1 1"),)
    )
    await tenant.adapter.send(part)
    tenant.feishu.press("Yes", chat=GROUP)
    events = await receive_all(tenant, 3)
    assert [event.source.thread for event in events] == [None, thread, thread]
    assert {event.source.chat_type for event in events[1:]} == {ChatType.THREAD}


async def test_forwarded_messages_are_told_with_their_authors(tenant: Tenant) -> None:
    tenant.feishu.forward("ask @_user_1", "he is away")
    [message] = await tenant.hear()
    assert message.parts == text_parts(Phrase("content.forwarded_messages"), "Ann: ask @Ben\nAnn: he is away")


async def test_forwarded_messages_that_cannot_be_read_are_named(tenant: Tenant) -> None:
    tenant.feishu.refusals["GET /open-apis/im/v1/messages/"] = 230027
    tenant.feishu.forward("one")
    [message] = await tenant.hear()
    assert message.parts == text_parts(Phrase("content.merge_forward"))


async def test_an_event_of_another_app_is_left_out(tenant: Tenant) -> None:
    payload = {"sender": {"sender_id": {"open_id": PERSON}}, "message": {}}
    tenant.feishu.push("im.message.receive_v1", payload, app_id="cli_another")
    tenant.feishu.say("ours")
    events = await receive_all(tenant, 1)
    assert len(events) == 1 and events[0].source.account == APP_ID


async def test_a_reply_to_a_message_of_keryx_needs_no_mention(tenant: Tenant) -> None:
    sent = await tenant.send("hello", chat=GROUP)
    fields: dict[str, Any] = {"chat": GROUP, "group": True}
    other = tenant.feishu.say("what?", **fields)
    tenant.feishu.say("yes", parent_id=sent, root_id=sent, **fields)
    tenant.feishu.say("no", parent_id=other, root_id=other, **fields)
    events = await receive_all(tenant, 3)
    assert [e.addressed for e in events if isinstance(e, InboundMessage)] == [False, True, False]
    assert BOT not in json.dumps([e.source.user for e in events])


async def test_no_secret_and_no_ticket_is_logged(tenant: Tenant, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    tenant.feishu.say("hello")
    await tenant.hear(then=lambda: tenant.feishu.acks)
    assert APP_SECRET not in caplog.text and "access_key" not in caplog.text
