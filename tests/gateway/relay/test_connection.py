"""The connection between a connector and an instance: who is let in, what goes through, and what bad input does."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.builders import until
from tests.gateway.relay.pair import OPERATORS, Pair, open_pair, wait_connected
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from keryx.agents.echo import EchoAgent
from keryx.core import codec
from keryx.core.access import EVERYBODY, AccessRule
from keryx.core.deliveries import Target
from keryx.core.errors import (
    Forbidden,
    Invalid,
    MessageGone,
    NotSent,
    Refused,
    SendError,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment, RemoteFile
from keryx.core.messages import join_text, text_parts
from keryx.core.ports import relay
from keryx.core.ports.adapter import (
    AttachmentLimits,
    Capabilities,
    InboundMessage,
    LinkState,
    OutgoingPart,
    Receipt,
    StepState,
    SupportsThreads,
    ToolStep,
)
from keryx.core.ports.relay import RelayKey
from keryx.core.source import Source
from keryx.engine.policy import Policy
from keryx.engine.service import Service
from keryx.store.db.sqlite import SqliteDatabase
from keryx.surfaces.gateway.relay import MAX_FRAME_BYTES, PROTOCOL_CODE, REFUSED_CODE, VERSION, VERSION_CODE
from keryx.surfaces.gateway.relay.connector import RelayServer
from keryx.surfaces.gateway.relay.instance import RelayLink
from keryx.testing import RecordingAdapter, RecordingAdapterContext
from keryx.testing.fault_injection import DatabaseFault, FaultTiming
from keryx.testing.wire import serve_websocket
from keryx.timing import SystemClock

CHAT = Target("fake", "", "7")
_numbers = count(1)


class FileAdapter(RecordingAdapter):
    """A platform with files that are fetched later."""

    def __init__(self) -> None:
        super().__init__(
            capabilities=Capabilities(
                typing=True, edit=True, limit=50, attachments=AttachmentLimits(max_bytes=10_000_000)
            ),
            limit=50,
        )
        self.fetched: list[str] = []

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        self.fetched.append(file.reference)
        return Attachment(name=file.name, mime="application/octet-stream", body=b"\x00" * 700_000)


@pytest.fixture
def platform() -> FileAdapter:
    return FileAdapter()


@pytest.fixture
async def pair(tmp_path: Path, platform: FileAdapter, migrated: Path) -> AsyncIterator[Pair]:
    async with open_pair(tmp_path, [platform], store=migrated) as pair:
        yield pair


def say(text: str, *, chat: str = "7", **fields: Any) -> InboundMessage:
    number = str(next(_numbers))
    source = Source(platform="fake", chat=chat, user=chat, user_name="Ann", message=number)
    plain = InboundMessage(
        event=number,
        source=source,
        parts=text_parts(text),
        surface="gateway",
        reply=Target("fake", "", chat),
        cursor=number,
    )
    return msgspec.structs.replace(plain, **fields)


def build_part(text: str = "hello", *, key: str = "d1.0", **fields: Any) -> OutgoingPart:
    plain = OutgoingPart(delivery=DeliveryId("d1"), number=0, key=key, target=CHAT, text=text)
    return msgspec.structs.replace(plain, **fields)


@asynccontextmanager
async def listening(pair: Pair, context: RecordingAdapterContext) -> AsyncGenerator[None]:
    task = asyncio.create_task(pair.adapter.listen(context))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def count_waiting(pair: Pair) -> int:
    [overview] = await pair.service.hub.relay.list_all(OPERATORS)
    return overview.waiting


async def wait_empty(pair: Pair) -> None:
    async with asyncio.timeout(30):
        while await count_waiting(pair):  # noqa: ASYNC110 the store is asked, which signals nothing
            await asyncio.sleep(0.01)


def is_broken(context: RecordingAdapterContext) -> bool:
    return any(state is LinkState.BROKEN for state, _ in context.link_states)


async def greet(connection: ClientConnection, key: RelayKey, **changes: Any) -> dict[str, Any]:
    """Say hello as an instance does, and return the hello."""
    challenge = json.loads(await connection.recv())
    nonce = relay.generate_nonce()
    hello = {
        "type": "hello",
        "version": VERSION,
        "key_id": key.id,
        "nonce": nonce,
        "proof": relay.prove_key(key, challenge["nonce"], nonce),
        **changes,
    }
    await connection.send(json.dumps(hello))
    return hello


async def read_close_code(connection: ClientConnection) -> int:
    async with asyncio.timeout(30):
        await connection.wait_closed()
    assert connection.close_code is not None
    return connection.close_code


async def test_events_come_in_order_and_are_removed_when_they_are_stored(pair: Pair) -> None:
    for number in range(100):
        await pair.service.hub.receive(say(f"m{number}"))
    context = RecordingAdapterContext()
    async with listening(pair, context):
        events = await context.wait_for(100)
        await wait_empty(pair)
    assert [join_text(event.parts) for event in events] == [f"m{number}" for number in range(100)]
    assert {event.cursor for event in events} == {None}


async def test_an_event_that_is_not_stored_comes_again(pair: Pair) -> None:
    seen: list[str] = []

    async def receive(inbound: object) -> Receipt:
        assert isinstance(inbound, InboundMessage)
        seen.append(inbound.event)
        if len(seen) == 1:
            raise Unavailable("the store is locked")
        return Receipt(duplicate=False)

    event = say("hello")
    await pair.service.hub.receive(event)
    context = RecordingAdapterContext(receive=receive)
    async with listening(pair, context):
        await context.wait_for(1)
    assert seen == [event.event, event.event]


async def test_a_lost_connection_is_made_again_and_what_waits_comes(pair: Pair) -> None:
    context = RecordingAdapterContext()
    async with listening(pair, context):
        await pair.service.hub.receive(say("one"))
        await context.wait_for(1)
        # Another connection with the same key ends the one of the link, which comes back at once.
        with suppress(Forbidden):
            await pair.build_link(home=pair.home / "other").fetch_accounts()
        await pair.service.hub.receive(say("two"))
        assert [join_text(event.parts) for event in await context.wait_for(2)] == ["one", "two"]
    assert (LinkState.CONNECTED, f"through the relay at {pair.link.host}") in context.link_states


async def test_a_second_connection_with_the_same_key_ends_the_first_and_is_told(pair: Pair) -> None:
    key = await pair.service.hub.relay.add(OPERATORS, "ben", [])
    context, never = RecordingAdapterContext(), asyncio.Event()

    async def stay_away(seconds: float) -> None:
        await never.wait()

    first = RelayLink(pair.url, relay.parse_key(key), pair.home / "ben", sleep=stay_away)
    async with first.running():
        first.register(("nothing", ""), context)
        await wait_connected(first)
        async with connect(pair.url) as second:
            await greet(second, relay.parse_key(key))
            await second.recv()
            await until(lambda: is_broken(context))
    _, ben = await pair.service.hub.relay.list_all(OPERATORS)
    assert ben.evicted_at is not None
    assert "same key" in context.link_states[-1][1]


async def test_a_revoked_key_ends_the_live_connection(pair: Pair) -> None:
    context = RecordingAdapterContext()
    pair.link.register(("other", ""), context)
    await pair.service.hub.relay.revoke(OPERATORS, "ann")
    await until(lambda: is_broken(context))
    with pytest.raises(NotSent):
        await pair.adapter.send(build_part())


async def test_a_wrong_key_is_broken_and_nothing_is_learned(pair: Pair, tmp_path: Path) -> None:
    stranger = pair.build_link(key=str(relay.generate_key()), home=tmp_path / "stranger")
    with pytest.raises(Forbidden, match="refuses the key"):
        await stranger.fetch_accounts()
    known = relay.parse_key(pair.key)
    forged = pair.build_link(key=str(RelayKey(known.id, b"\x00" * 32)), home=tmp_path / "stranger")
    with pytest.raises(Forbidden):
        await forged.fetch_accounts()
    assert not stranger.accounts


async def test_a_recorded_hello_is_worth_nothing(pair: Pair) -> None:
    key = relay.parse_key(await pair.service.hub.relay.add(OPERATORS, "ben", []))
    async with connect(pair.url) as first:
        recorded = await greet(first, key)
        await first.recv()
    async with connect(pair.url) as second:
        await second.recv()
        await second.send(json.dumps(recorded))
        assert await read_close_code(second) == REFUSED_CODE


async def test_another_version_is_broken(pair: Pair) -> None:
    async with connect(pair.url) as connection:
        await greet(connection, relay.parse_key(pair.key), version=VERSION + 1)
        assert await read_close_code(connection) == VERSION_CODE


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "{",
        "[]",
        '{"type": "ack", "position": 1}',
        '{"type": "hello"}',
        '{"type": "unknown"}',
        b"\x00" * 40,
    ],
    ids=range(7),
)
async def test_anything_else_than_a_hello_ends_the_connection(pair: Pair, frame: str | bytes) -> None:
    async with connect(pair.url) as connection:
        await connection.recv()
        await connection.send(frame)
        assert await read_close_code(connection) == PROTOCOL_CODE
    assert pair.link.connected


@pytest.mark.parametrize(
    "frame",
    [
        "nonsense",
        b"\x00",
        '{"type": "call", "id": 1, "method": "send", "platform": "fake", "account": "", "files": [{"name": "a", "mime": "", "size": 9}]}',
        json.dumps({"type": "hello", "version": VERSION, "key_id": "", "nonce": "", "proof": ""}),
    ],
    ids=["no JSON", "no chunk", "a file without bytes", "a second hello"],
)
async def test_a_broken_frame_ends_the_connection_of_its_instance_only(
    pair: Pair, frame: str | bytes
) -> None:
    key = await pair.service.hub.relay.add(OPERATORS, "ben", [])
    async with connect(pair.url) as connection:
        await greet(connection, relay.parse_key(key))
        await connection.recv()
        await connection.send(frame)
        assert await read_close_code(connection) == PROTOCOL_CODE
    assert pair.link.connected
    assert await pair.adapter.render("hello")


async def test_an_oversized_frame_ends_the_connection(pair: Pair) -> None:
    connection = await connect(pair.url)
    await connection.recv()
    with suppress(ConnectionClosed):
        await connection.send("x" * (MAX_FRAME_BYTES + 1))
    await connection.wait_closed()
    assert pair.link.connected


async def test_a_stranger_cannot_send_a_long_frame(pair: Pair) -> None:
    """Without the end of the frame: it is not kept until it is whole."""
    connection = await connect(pair.url)
    await connection.recv()
    connection.transport.write(b"\x82\xff" + MAX_FRAME_BYTES.to_bytes(8, "big") + b"0000" + b"x" * 40_000)
    await connection.wait_closed()
    assert pair.link.connected


async def test_silent_connections_give_way_to_instances(pair: Pair) -> None:
    """They have not even sent the head of a request."""
    port = int(pair.url.rpartition(":")[2])
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
    try:
        key = relay.parse_key(await pair.service.hub.relay.add(OPERATORS, "ben", []))
        async with connect(pair.url) as connection:
            await greet(connection, key)
            await connection.recv()
            assert await silent[0][0].read() == b""
            # What has proved who it is does not count any more.
            silent += [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
            await connection.send("nonsense")
            assert await read_close_code(connection) == PROTOCOL_CODE
    finally:
        for _, writer in silent:
            writer.close()
    assert pair.link.connected


async def test_a_connection_that_says_nothing_is_ended(pair: Pair, platform: FileAdapter) -> None:
    server = RelayServer(pair.service.hub, SystemClock(), [platform], hello_within=0.01)
    async with server.serving("127.0.0.1", 0) as port, connect(f"ws://127.0.0.1:{port}") as connection:
        assert await read_close_code(connection) == PROTOCOL_CODE


async def test_a_machine_that_does_not_know_the_key_is_no_connector(tmp_path: Path) -> None:
    async def pretend(connection: Any) -> None:
        nonce = relay.generate_nonce()
        await connection.send(json.dumps({"type": "challenge", "version": VERSION, "nonce": nonce}))
        await connection.recv()
        await connection.send(json.dumps({"type": "welcome", "proof": nonce, "name": "ann", "accounts": []}))
        await connection.wait_closed()

    async with serve_websocket(pretend) as url:
        link = RelayLink(url, relay.generate_key(), tmp_path)
        with pytest.raises(Forbidden, match="not the connector"):
            await link.fetch_accounts()


async def test_an_unreachable_connector_is_told(tmp_path: Path) -> None:
    link = RelayLink("ws://127.0.0.1:9", relay.generate_key(), tmp_path)
    with pytest.raises(Unavailable, match="cannot be reached"):
        await link.fetch_accounts()


async def test_the_accounts_are_known_after_a_restart_without_the_connector(pair: Pair) -> None:
    again = pair.build_link(url="ws://127.0.0.1:9")
    await again.fetch_accounts()
    [adapter] = again.build_adapters()
    assert (adapter.platform, adapter.account) == ("fake", "")
    assert adapter.capabilities.limit == 50


async def test_a_text_is_rendered_by_the_connector(pair: Pair, platform: FileAdapter) -> None:
    parts = await pair.adapter.render("x" * 120)
    assert [len(part.text) for part in parts] == [50, 50, 20]
    for number, part in enumerate(parts):
        await pair.adapter.send(build_part(part.text, key=f"d1.{number}", number=number, markup=part.markup))
    assert platform.texts == [part.text for part in parts]


async def test_the_tool_calls_of_a_turn_go_through(pair: Pair, platform: FileAdapter) -> None:
    steps = (ToolStep("s1", "read a file", StepState.RUNNING), ToolStep("s2", "write it", StepState.FAILED))
    await pair.adapter.send(build_part("", key="p1", steps=steps, final=False))
    assert platform.sent_parts[0].steps == steps


class ThreadingAdapter(RecordingAdapter):
    """A platform with threads that are named and archived."""

    def __init__(self) -> None:
        super().__init__(capabilities=Capabilities(threads=True, thread_titles=True))
        self.titles: dict[str, str] = {}
        self.archived: list[str] = []

    async def rename_thread(self, target: Target, title: str) -> None:
        if title == "forbidden":
            raise Refused("the bot may not rename threads")
        self.titles[target.thread] = title

    async def archive_thread(self, target: Target) -> None:
        self.archived.append(target.thread)


async def test_threads_are_named_and_archived_through_the_relay(tmp_path: Path, migrated: Path) -> None:
    platform = ThreadingAdapter()
    async with open_pair(tmp_path, [platform], store=migrated) as pair:
        adapter, thread = pair.adapter, msgspec.structs.replace(CHAT, thread="t1")
        assert isinstance(adapter, SupportsThreads)
        with pytest.raises(Refused, match="another account"):
            await adapter.rename_thread(msgspec.structs.replace(thread, account="8"), "theirs")
        await adapter.rename_thread(thread, "A walk")
        await adapter.archive_thread(thread)
        with pytest.raises(Refused, match="may not rename"):
            await adapter.rename_thread(thread, "forbidden")
    assert (platform.titles, platform.archived) == ({"t1": "A walk"}, ["t1"])


async def test_an_account_without_threads_that_have_names_has_no_such_method(pair: Pair) -> None:
    assert not isinstance(pair.adapter, SupportsThreads)


async def test_a_repeated_send_is_sent_once(pair: Pair, platform: FileAdapter) -> None:
    first = await pair.adapter.send(build_part())
    assert await pair.adapter.send(build_part()) == first
    both = await asyncio.gather(*(pair.adapter.send(build_part("two", key="d2.0")) for _ in range(5)))
    assert len(set(both)) == 1
    assert platform.texts == ["hello", "two"]


async def test_a_send_with_an_unknown_outcome_is_repeated_with_a_mark(
    pair: Pair, platform: FileAdapter
) -> None:
    platform.errors_after.append(Uncertain("no answer"))
    with pytest.raises(Uncertain):
        await pair.adapter.send(build_part())
    sent = await pair.adapter.send(build_part())
    assert platform.texts == ["hello", "(possible repeat) hello"]
    # A preview that may be there twice: the answer that takes its place keeps the mark.
    await pair.adapter.send(build_part("hello you", edits=sent))
    assert platform.texts[int(sent.rpartition("-")[2])] == "(possible repeat) hello you"


@pytest.mark.parametrize(
    "error",
    [
        NotSent("no network"),
        Refused("too long"),
        MessageGone("gone"),
        Throttled("slow", after=timedelta(seconds=3), account=True),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_errors_of_the_platform_keep_their_types(
    pair: Pair, platform: FileAdapter, error: SendError
) -> None:
    platform.errors_before.append(error)
    with pytest.raises(type(error), match=str(error)) as caught:
        await pair.adapter.send(build_part())
    if isinstance(caught.value, Throttled):
        assert caught.value.after == timedelta(seconds=3) and caught.value.account


async def test_a_text_that_is_too_long_for_a_frame_is_refused(pair: Pair) -> None:
    with pytest.raises(Refused, match="too long"):
        await pair.adapter.render("x" * 3_000_000)
    assert pair.link.connected


async def test_files_go_both_ways_in_chunks(pair: Pair, platform: FileAdapter) -> None:
    body = bytes(range(256)) * 3_000
    sent = Attachment(name="a.bin", mime="application/octet-stream", body=body)
    await pair.adapter.send(build_part("", attachment=sent))
    assert platform.sent_parts[0].attachment == sent
    await pair.service.hub.receive(say("look", files=(RemoteFile(reference="secret", name="b.bin"),)))
    context = RecordingAdapterContext()
    async with listening(pair, context):
        [event] = await context.wait_for(1)
        fetched = await pair.adapter.download(event.files[0], limit=1_000_000)
    assert (fetched.name, len(fetched.body), platform.fetched) == ("b.bin", 700_000, ["secret"])
    assert "secret" not in event.files[0].reference


async def test_an_instance_reaches_no_chat_and_no_file_of_others(pair: Pair, platform: FileAdapter) -> None:
    hub = pair.service.hub
    await hub.receive(say("look", files=(RemoteFile(reference="secret", name="b.bin"),)))
    key = await hub.relay.add(OPERATORS, "ben", [])
    ben = pair.build_link(key=key, home=pair.home / "ben")
    await ben.fetch_accounts()
    async with ben.running():
        ben.register(("nothing", ""), RecordingAdapterContext())
        await wait_connected(ben)
        [adapter] = ben.build_adapters()
        with pytest.raises(Refused):
            await adapter.send(build_part())
        with pytest.raises(Refused):
            await adapter.typing(CHAT)
        file = RemoteFile(reference="1/0", name="b.bin")
        with pytest.raises(Invalid):
            await adapter.download(file, limit=1_000_000)
    assert not platform.texts and not platform.typing_targets and not platform.fetched


@pytest.mark.parametrize("mark", ["trusted", "relayed", "relay"])
async def test_a_mark_on_the_wire_is_ignored(pair: Pair, mark: str) -> None:
    """A frame with a mark of its own gives no trust: in the event it has no effect, in the source it is an error."""
    context = RecordingAdapterContext()
    body: dict[str, Any] = {**json.loads(codec.dumps(say("hello"))), mark: True}
    forged: dict[str, Any] = {**body, "event": "forged", "source": {**body["source"], mark: True}}
    hub = pair.service.hub

    def queue(tx: Any) -> None:
        for number, wire in enumerate((forged, body)):
            tx.run(
                "insert into relay_events (instance, platform, account, event, kind, chat, body, files, size, state, created_at)"
                " values ('ann', '\"fake\"', '\"\"', :event, 'message', '7', :body, '[]', 1, 'waiting', 1)",
                {"event": str(number), "body": json.dumps(wire)},
            )

    await hub._database.write("test", queue)  # pyright: ignore[reportPrivateUsage]
    async with listening(pair, context):
        [event] = await context.wait_for(1)
        await wait_empty(pair)
    assert event.event == body["event"]
    assert not hasattr(event, mark)
    [overview] = await hub.relay.list_all(OPERATORS)
    assert overview.dropped == 1


async def test_what_only_local_surfaces_may_say_is_not_taken_from_the_wire(pair: Pair) -> None:
    context = RecordingAdapterContext()
    event = say("hello")
    body = {
        **json.loads(codec.dumps(event)),
        "principal": "operator",
        "session": "s1",
        "begin": True,
        "pin": "w",
        "cwd": "/",
        "source": {**json.loads(codec.dumps(event.source)), "profile": "other", "by_role": True},
    }

    def queue(tx: Any) -> None:
        tx.run(
            "insert into relay_events (instance, platform, account, event, kind, chat, body, files, size, state, created_at)"
            " values ('ann', '\"fake\"', '\"\"', 'e', 'message', '7', :body, '[]', 1, 'waiting', 1)",
            {"body": json.dumps(body)},
        )

    await pair.service.hub._database.write("test", queue)  # pyright: ignore[reportPrivateUsage]
    async with listening(pair, context):
        [taken] = await context.wait_for(1)
    assert (taken.principal, taken.session, taken.begin, taken.pin, taken.cwd) == (
        None,
        None,
        False,
        None,
        "",
    )
    assert (taken.source.profile, taken.source.by_role) == ("default", False)


@asynccontextmanager
async def run_instance(pair: Pair, folder: Path, rule: AccessRule) -> AsyncGenerator[Service]:
    async with SqliteDatabase(str(folder / "instance.db"), clock=SystemClock()) as database:
        service = Service(
            database,
            SystemClock(),
            policy=Policy(access={"fake": rule}),
            choose=lambda reading: EchoAgent(),
            place=lambda reading, turn: "a test",
            adapters=[pair.adapter],
        )
        async with service.running():
            yield service


async def test_a_message_is_answered_through_the_relay(
    pair: Pair, platform: FileAdapter, tmp_path: Path
) -> None:
    rule = AccessRule(allow=(EVERYBODY,), relay=True)
    async with run_instance(pair, tmp_path, rule):
        await pair.service.hub.receive(say("hello"))
        await until(lambda: platform.texts == ["hello"])
        assert platform.sent_parts[0].target.chat == "7"
        await wait_empty(pair)


@pytest.mark.parametrize("when", FaultTiming)
async def test_an_event_whose_confirmation_is_lost_is_answered_once(
    tmp_path: Path, platform: FileAdapter, migrated: Path, when: FaultTiming
) -> None:
    """The instance has committed the event, and the connector does not know it."""
    fault = DatabaseFault("relay.settle", when)
    async with (
        open_pair(tmp_path, [platform], store=migrated, faults=[fault]) as pair,
        run_instance(pair, tmp_path, AccessRule(allow=(EVERYBODY,))),
    ):
        for text in ("one", "two"):
            await pair.service.hub.receive(say(text))
        await until(lambda: len(platform.texts) == 2)
        await wait_empty(pair)
    assert (fault.hits, platform.texts) == (1, ["one", "two"])


@pytest.mark.parametrize(
    ("label", "when", "texts"),
    [
        # Nothing was sent.
        ("relay.send", FaultTiming.BEFORE, ["hello"]),
        # It is recorded as being sent, so it may have arrived.
        ("relay.send", FaultTiming.AFTER, ["(possible repeat) hello"]),
        ("relay.sent", FaultTiming.BEFORE, ["hello", "(possible repeat) hello"]),
        ("relay.sent", FaultTiming.AFTER, ["hello"]),
    ],
)
async def test_a_connector_that_fails_while_it_sends_doubles_nothing_without_a_mark(
    tmp_path: Path,
    platform: FileAdapter,
    migrated: Path,
    label: str,
    when: FaultTiming,
    texts: list[str],
) -> None:
    fault = DatabaseFault(label, when)
    async with (
        open_pair(tmp_path, [platform], store=migrated, faults=[fault]) as pair,
        run_instance(pair, tmp_path, AccessRule(allow=(EVERYBODY,))),
    ):
        await pair.service.hub.receive(say("hello"))
        await until(lambda: len(platform.texts) == len(texts))
        # A second message is sent after everything that the first one needed.
        await pair.service.hub.receive(say("bye"))
        await until(lambda: platform.texts[-1] == "bye")
    assert (fault.hits, platform.texts) == (1, [*texts, "bye"])


async def test_a_rule_asks_for_the_relay_and_only_the_transport_gives_it(
    pair: Pair, platform: FileAdapter, tmp_path: Path
) -> None:
    rule = AccessRule(allow=(EVERYBODY,), relay=True)
    async with run_instance(pair, tmp_path, rule) as service:
        with pytest.raises(Forbidden, match="through the relay only"):
            await service.hub.receive(say("forged"))
        assert service.hub.relay.limits is None
        # What other nodes read in the store still asks for the relay.
        stored = await service.hub._database.read(  # pyright: ignore[reportPrivateUsage]
            "test", lambda tx: tx.rows("select rule from rules")
        )
    assert stored and all(json.loads(row[0]).get("relay") is True for row in stored)
    async with SqliteDatabase(str(tmp_path / "local.db"), clock=SystemClock()) as database:
        local = Service(
            database,
            SystemClock(),
            policy=Policy(access={"fake": rule}),
            choose=lambda reading: EchoAgent(),
            place=lambda reading, turn: "a test",
            adapters=[RecordingAdapter()],
        )
        async with local.running() as hub:
            assert (await hub.receive(say("hello"))).turn is None
