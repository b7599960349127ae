"""The adapter over BlueBubbles: lost posts, forged ones, refusals, and what needs the private API."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.builders import until
from tests.contracts.imessage import build_bluebubbles
from tests.fakes.imessage import ANN, GROUP, OWN, PASSWORD, SECRET, FakeBlueBubbles

from keryx.core.deliveries import Target
from keryx.core.errors import (
    Forbidden,
    NotSent,
    Refused,
    Retryable,
    TargetGone,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.ids import DeliveryId
from keryx.core.ports.adapter import (
    InboundEvent,
    InboundFailure,
    LinkState,
    OutgoingPart,
    Receipt,
    WebhookRequest,
)
from keryx.surfaces.gateway.imessage import BAD_PASSWORD, SECRET_HEADER, BlueBubblesAdapter
from keryx.testing import RecordingAdapterContext
from keryx.testing.fault_injection import PlatformFaults

NEW = b'{"type": "new-message", "data": {"text": "forged"}}'
NEVER = 3600.0


@pytest.fixture
def mac() -> Iterator[FakeBlueBubbles]:
    with FakeBlueBubbles() as fake:
        yield fake
    assert fake.problems == []


@pytest.fixture
async def adapter(mac: FakeBlueBubbles) -> AsyncIterator[BlueBubblesAdapter]:
    adapter = build_bluebubbles(mac.url)
    yield adapter
    await adapter.close()


async def sleep_for_long(seconds: float) -> None:
    """Sleep briefly after a failure, and for ever between two polls."""
    await asyncio.sleep(0.001 if seconds < NEVER else NEVER)


def build_with_hook(mac: FakeBlueBubbles, **settings: Any) -> BlueBubblesAdapter:
    """Return an adapter that asks for nothing unless it is told to."""
    return build_bluebubbles(mac.url, poll=timedelta(seconds=NEVER), sleep=sleep_for_long, **settings)


class ConnectedContext(RecordingAdapterContext):
    """A context that knows when the adapter is connected."""

    def __init__(self, cursor: str | None) -> None:
        super().__init__(cursor)
        self.connected = asyncio.Event()

    def report(self, link: LinkState, detail: str = "") -> None:
        super().report(link, detail)
        if link is LinkState.CONNECTED:
            self.connected.set()


@asynccontextmanager
async def listening(
    adapter: BlueBubblesAdapter, cursor: str | None = "0"
) -> AsyncGenerator[ConnectedContext]:
    context = ConnectedContext(cursor)
    task = asyncio.create_task(adapter.listen(context))
    try:
        yield context
    finally:
        task.cancel()
        await asyncio.wait({task})


async def wait_until_connected(context: ConnectedContext) -> None:
    async with asyncio.timeout(30):
        await context.connected.wait()


def build_part(text: str = "hello", **fields: object) -> OutgoingPart:
    part = OutgoingPart(delivery=DeliveryId("d1"), number=0, key="k", target=Target("imessage", chat=ANN))
    return msgspec.structs.replace(part, text=text, **fields)


async def post(adapter: BlueBubblesAdapter, *, path: str = SECRET, body: bytes = NEW, **headers: str) -> int:
    assert adapter.hook is not None
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await adapter.hook.handle(WebhookRequest(path=path, headers=named, body=body))).status


async def test_a_post_is_answered_when_what_it_is_about_is_stored(mac: FakeBlueBubbles) -> None:
    adapter = build_with_hook(mac)
    async with listening(adapter) as context:
        await wait_until_connected(context)
        mac.write(ANN, "one")
        assert await post(adapter) == 200 and len(context.events) == 1
        mac.write(ANN, "two")
        mac.write(ANN, "three")
        # Posts at the same time are answered together.
        before = sum("message/query" in request for request in mac.requests)
        assert await asyncio.gather(*(post(adapter) for _ in range(20))) == [200] * 20
        assert sum("message/query" in request for request in mac.requests) - before <= 4
        assert len(context.events) == 3
        assert await post(adapter, path="", x_keryx_secret=SECRET) == 200


async def test_a_message_that_is_not_delivered_after_all_is_told_once(mac: FakeBlueBubbles) -> None:
    adapter = build_with_hook(mac)
    async with listening(adapter) as context:
        await wait_until_connected(context)
        mac.write(ANN, "one")
        guid = await adapter.send(build_part())
        mac.fail(mac.sent_rows(ANN)[0])
        for _ in range(2):
            assert await post(adapter, body=b'{"type": "message-send-error", "data": {}}') == 200
    [failure] = context.failures
    assert (failure.message, failure.delivery, failure.source.chat) == (guid, None, ANN)
    assert failure.reason == "Messages could not send it: the person has no iMessage (error 22)"


async def test_without_posts_a_late_failure_is_found_by_asking(
    mac: FakeBlueBubbles, adapter: BlueBubblesAdapter
) -> None:
    async with listening(adapter) as context:
        await wait_until_connected(context)
        mac.write(ANN, "one")
        guid = await adapter.send(build_part())
        mac.fail(mac.sent_rows(ANN)[0], 5)
        await until(lambda: bool(context.failures))
    assert (context.failures[0].message, context.failures[0].reason) == (
        guid,
        "Messages could not send it: it is not delivered (error 5)",
    )


async def test_a_failure_waits_while_other_bubbles_are_being_sent(mac: FakeBlueBubbles) -> None:
    adapter = build_with_hook(mac)
    async with listening(adapter) as context:
        await wait_until_connected(context)
        mac.write(ANN, "one")
        await adapter.send(build_part())
        mac.fail(mac.sent_rows(ANN)[0])
        busy = True

        async def receive(inbound: InboundEvent) -> Receipt:
            if isinstance(inbound, InboundFailure) and busy:
                raise Retryable("it is being sent")
            return Receipt(duplicate=False)

        context.set_receive(receive)
        assert await post(adapter, body=b'{"type": "message-send-error", "data": {}}') == 200
        busy = False
        assert not context.failures
        assert await post(adapter) == 200 and len(context.failures) == 1


async def test_a_lost_post_loses_nothing(mac: FakeBlueBubbles) -> None:
    adapter = build_with_hook(mac)
    async with listening(adapter) as context:
        await wait_until_connected(context)
        mac.write(ANN, "its post is lost")
        mac.write(ANN, "its post arrives")
        assert await post(adapter) == 200
    assert [event.event for event in context.events] == [row.guid for row in mac.rows]


async def test_without_posts_it_asks_at_intervals(mac: FakeBlueBubbles, adapter: BlueBubblesAdapter) -> None:
    async with listening(adapter) as context:
        await wait_until_connected(context)
        mac.write(ANN, "hello")
        await context.wait_for(1)
    assert "at intervals" in context.link_states[-1][1]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("", {}, 401),
        ("wrong", {}, 401),
        (f"{SECRET}x", {}, 401),
        ("wrong", {SECRET_HEADER: SECRET}, 401),
        ("", {SECRET_HEADER: "wrong"}, 401),
        ("\ud800", {}, 401),
    ],
)
async def test_a_post_without_the_secret_is_refused(
    mac: FakeBlueBubbles, path: str, headers: dict[str, Any], status: int
) -> None:
    adapter = build_with_hook(mac)
    async with listening(adapter) as context:
        await wait_until_connected(context)
        mac.write(ANN, "hello")
        assert await post(adapter, path=path, **headers) == status
        assert context.events == []


async def test_nothing_in_a_post_is_believed(mac: FakeBlueBubbles) -> None:
    adapter = build_with_hook(mac)
    async with listening(adapter) as context:
        await wait_until_connected(context)
        assert await post(adapter) == 200
        assert await post(adapter, body=b"{") == 400
        assert await post(adapter, body=b"[" * 100_000) == 400
        assert await post(adapter, body=b'{"type": "typing-indicator"}') == 200
    assert context.events == []


async def test_a_post_gets_503_while_nobody_listens_or_the_store_is_away(mac: FakeBlueBubbles) -> None:
    adapter = build_with_hook(mac)
    assert await post(adapter) == 503

    async def refuse(inbound: InboundEvent) -> Receipt:
        raise Unavailable("the store is not available")

    async with listening(adapter) as context:
        await wait_until_connected(context)
        context.set_receive(refuse)
        mac.write(ANN, "hello")
        assert await post(adapter) == 503
        context.set_receive(lambda inbound: asyncio.sleep(0, Receipt(duplicate=False)))
        assert await post(adapter) == 200 and len(context.events) == 1


async def test_a_message_of_a_row_that_becomes_visible_later_is_not_missed(mac: FakeBlueBubbles) -> None:
    adapter = build_with_hook(mac)
    async with listening(adapter) as context:
        await wait_until_connected(context)
        mac.write(ANN, "one")
        hidden = mac.rows.pop()
        mac.write(ANN, "two")
        assert await post(adapter) == 200
        mac.rows.append(hidden)
        assert await post(adapter) == 200
    assert [event.event for event in context.events] == [mac.rows[0].guid, hidden.guid]
    # The position never moves back.
    assert [event.cursor for event in context.events] == [f"2.{mac.rows[0].date}"] * 2


async def test_more_rows_than_one_answer_holds_are_read_in_order(mac: FakeBlueBubbles) -> None:
    for number in range(2300):
        mac.rows.append(build_late_row(mac, number))
    adapter = build_with_hook(mac)
    async with listening(adapter) as context:
        await context.wait_for(2300, seconds=60)
    assert [event.event for event in context.events] == [f"G{number:04}" for number in range(2300)]


def build_late_row(mac: FakeBlueBubbles, number: int) -> Any:
    """Return a row whose date is not in the order of its number."""
    row = mac.write(ANN, "x", guid=f"G{number:04}")
    mac.rows.pop()
    row.date -= (number % 7) * 100
    return row


async def test_an_edit_and_a_deletion_that_were_missed_are_read_after_a_restart(mac: FakeBlueBubbles) -> None:
    async with listening(build_bluebubbles(mac.url)) as first:
        for text in ("helo", "never mind"):
            mac.write(ANN, text)
        cursor = (await first.wait_for(2))[-1].cursor
    mac.edit(mac.rows[0], "hello")
    mac.retract(mac.rows[1])
    async with listening(build_bluebubbles(mac.url), cursor) as second:
        [event] = await second.wait_for(1)
        await wait_until_connected(second)
    assert (event.edits, event.cursor) == (mac.rows[0].guid, cursor)
    assert [deletion.message_event for deletion in second.deletions] == [mac.rows[1].guid]


async def test_keryx_registers_its_hook_once_and_removes_one_with_an_older_secret(
    mac: FakeBlueBubbles,
) -> None:
    old = {"id": 90, "url": "http://keryx.test:1/hooks/imessage/old", "events": ["*"]}
    other = {"id": 91, "url": "http://elsewhere.test/hook", "events": ["*"]}
    earlier = {"id": 92, "url": f"http://keryx.test:1/hooks/imessage/{SECRET}", "events": ["new-message"]}
    mac.hooks = [old, other, earlier]
    for _ in range(2):
        adapter = build_with_hook(mac, url="http://keryx.test:1/")
        async with listening(adapter) as context:
            await wait_until_connected(context)
    wanted = {
        "url": f"http://keryx.test:1/hooks/imessage/{SECRET}",
        "events": ["new-message", "updated-message", "message-send-error"],
    }
    assert mac.hooks == [other, {"id": 1, **wanted}]


async def test_names_come_from_the_contacts(mac: FakeBlueBubbles, adapter: BlueBubblesAdapter) -> None:
    mac.contacts = [
        {
            "firstName": "Ann",
            "lastName": "Lee",
            "phoneNumbers": [{"address": "+1 (555) 000-0001"}],
            "emails": [],
        },
        "odd",
    ]
    mac.write(ANN, "hello")
    async with listening(adapter) as context:
        [event] = await context.wait_for(1)
    assert event.source.user_name == "Ann Lee"


async def test_a_server_that_may_not_read_the_contacts_is_used_without_names(
    mac: FakeBlueBubbles, adapter: BlueBubblesAdapter
) -> None:
    mac.may_read_contacts = False
    mac.write(ANN, "hello")
    async with listening(adapter) as context:
        [event] = await context.wait_for(1)
    assert (event.source.user, event.source.user_name) == (ANN, None)


async def test_a_wrong_password_is_refused_and_in_no_text(
    mac: FakeBlueBubbles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    adapter = build_bluebubbles(mac.url, password="wrong-pass-1")
    with pytest.raises(Forbidden) as refused:
        await adapter.listen(RecordingAdapterContext("0"))
    assert str(refused.value) == BAD_PASSWORD
    with pytest.raises(NotSent) as caught:
        await adapter.send(build_part())
    assert "wrong-pass-1" not in f"{caught.value!r}{refused.value!r}{caplog.text}"
    await adapter.close()


async def test_a_server_that_is_busy_with_the_same_message_is_asked_again_later(
    mac: FakeBlueBubbles, adapter: BlueBubblesAdapter
) -> None:
    mac.in_flight.add("k")
    with pytest.raises(Uncertain, match="still sending"):
        await adapter.send(build_part())
    mac.in_flight.clear()
    assert await adapter.send(build_part()) and mac.temp_guids == ["k"]


async def test_refusals_are_told_apart(mac: FakeBlueBubbles, adapter: BlueBubblesAdapter) -> None:
    with pytest.raises(TargetGone):
        await adapter.send(build_part(target=Target("imessage", chat="iMessage;+;gone")))
    with pytest.raises(Refused, match="message"):
        await adapter.send(build_part(""))
    mac.send_error = 22
    with pytest.raises(Refused, match="no iMessage"):
        await adapter.send(build_part())
    # A message that Messages could not send does not count as sent.
    assert await adapter.find_sent(build_part(again=True)) is None
    mac.send_error = 0
    mac.set_faults(PlatformFaults(throttle=1))
    with pytest.raises(Throttled):
        await adapter.send(build_part())
    mac.set_faults(PlatformFaults(broken=1))
    with pytest.raises(Uncertain):
        await adapter.send(build_part())
    assert mac.texts(ANN) == []


@pytest.mark.parametrize("private", [False, True])
async def test_what_needs_the_private_api_is_left_out_without_it(mac: FakeBlueBubbles, private: bool) -> None:
    mac.private_api = private
    adapter = build_bluebubbles(mac.url, quote=True)
    target = Target("imessage", chat=GROUP, reply_to="Q")
    await adapter.typing(target)
    await adapter.send(build_part(target=target))
    assert mac.typed == mac.read == ([GROUP] if private else [])
    [sent] = mac.sends
    assert sent["method"] == ("private-api" if private else "apple-script")
    assert sent.get("selectedMessageGuid") == ("Q" if private else None)
    await adapter.close()


async def test_a_person_is_written_to_where_they_wrote_last(
    mac: FakeBlueBubbles, adapter: BlueBubblesAdapter
) -> None:
    await adapter.send(build_part("first"))
    mac.write(ANN, "hello", service="SMS")
    async with listening(adapter) as context:
        await context.wait_for(1)
    await adapter.send(build_part("second"))
    assert [row.chat for row in mac.sent_rows(ANN)] == [f"iMessage;-;{ANN}", f"SMS;-;{ANN}"]


async def test_a_mention_of_the_own_address_is_for_the_agent(
    mac: FakeBlueBubbles, adapter: BlueBubblesAdapter
) -> None:
    row = mac.write(GROUP, "Bot, hi", sender=ANN)
    runs = [{"range": [0, 3], "attributes": {"__kIMMentionConfirmedMention": OWN}}]
    row.raw = {**mac.build_message(row), "attributedBody": [{"string": "Bot, hi", "runs": runs}]}
    async with listening(adapter) as context:
        [event] = await context.wait_for(1)
    assert event.addressed


async def test_a_broken_server_is_asked_again_and_the_password_stays_out_of_the_state(
    mac: FakeBlueBubbles, adapter: BlueBubblesAdapter
) -> None:
    mac.set_faults(PlatformFaults(torn=0.6))
    mac.write(ANN, "hello")
    async with listening(adapter) as context:
        await context.wait_for(1)
        mac.set_faults(PlatformFaults())
        await wait_until_connected(context)
    assert PASSWORD not in str(context.link_states)
