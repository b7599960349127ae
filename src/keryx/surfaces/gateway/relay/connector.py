"""The connector's end of the relay: lets instances in, hands them their events, and does on the platforms what they ask for."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

import anyio
import msgspec
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from keryx import logs
from keryx.client_address import group_address
from keryx.core import codec
from keryx.core.changes import ChangeKind
from keryx.core.clock import Clock
from keryx.core.deliveries import LOCAL, Idempotency, Target
from keryx.core.errors import (
    Forbidden,
    Invalid,
    KeryxError,
    NotFound,
    NotSent,
    Refused,
    SendError,
    Unavailable,
    Uncertain,
)
from keryx.core.ids import Cursor
from keryx.core.media import Attachment
from keryx.core.ports import relay
from keryx.core.ports.adapter import (
    Adapter,
    OutgoingPart,
    RelayTransport,
    SupportsDownloads,
    SupportsReactions,
    SupportsReconciliation,
    SupportsRemoval,
    SupportsRoles,
    SupportsSendKeys,
    SupportsThreads,
)
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.engine import media, plugins
from keryx.engine.hub import Hub
from keryx.engine.units.relay import HELD_NOTE, RelayLogin
from keryx.plugin_thread import guard_plugin, name_error
from keryx.surfaces.gateway.relay import (
    CLOSE_SECONDS,
    EVICTED_CODE,
    HELLO_SECONDS,
    MAX_FRAME_BYTES,
    MAX_TEXT_BYTES,
    PING_SECONDS,
    PROTOCOL_CODE,
    REFUSED_CODE,
    VERSION,
    VERSION_CODE,
    WINDOW,
    FileAssembly,
    FileRequest,
    RelayAck,
    RelayCall,
    RelayChallenge,
    RelayedAccount,
    RelayedPart,
    RelayEvent,
    RelayHello,
    RelayResult,
    RelayServe,
    RelayWelcome,
    RenderRequest,
    TargetRequest,
    ThreadRequest,
    decode_from_instance,
    describe_failure,
    describe_files,
    encode_chunks,
)
from keryx.timing import WakeSignal

log = logging.getLogger(__name__)

_SWEEP_SECONDS = 5.0
_HINT_SECONDS = 10.0
_DOWNLOAD_TIMEOUT = timedelta(minutes=2)
# Connections that have not proved who they are: in all, of one address, and the bytes that one of them may send.
_MAX_UNKNOWN = 128
_MAX_UNKNOWN_PER_ADDRESS = 32
_MAX_UNKNOWN_BYTES = 32_768
# Calls of one instance at once.
_MAX_CALLS = 256
_SUPPORTS = {
    "downloads": SupportsDownloads,
    "reactions": SupportsReactions,
    "removal": SupportsRemoval,
    "roles": SupportsRoles,
    "threads": SupportsThreads,
}

Answer = TypeVar("Answer")
Outcome = tuple[object, Sequence[Attachment]]


class UnknownConnections:
    """The connections that have not proved who they are. One too many takes the place of the oldest of its address, or of
    the address that has the most, so that one address cannot keep the others out."""

    def __init__(self) -> None:
        # By address, in the order of acceptance, each with the bytes that it has sent.
        self._received: dict[str, dict[asyncio.Transport, int]] = {}

    def add(self, transport: asyncio.Transport) -> None:
        own = self._received.setdefault(_group_peer(transport), {})
        own[transport] = 0
        if len(own) > _MAX_UNKNOWN_PER_ADDRESS:
            self._abort_oldest(own)
        elif sum(map(len, self._received.values())) > _MAX_UNKNOWN:
            self._abort_oldest(max(self._received.values(), key=len))

    def receive(self, transport: asyncio.Transport, size: int) -> bool:
        """Return whether a connection may send so many bytes more."""
        own = self._received.get(_group_peer(transport), {})
        if transport in own:
            own[transport] += size
        return own.get(transport, 0) <= _MAX_UNKNOWN_BYTES

    def remove(self, transport: asyncio.Transport) -> None:
        """Forget a connection that has proved who it is, or has ended."""
        group = _group_peer(transport)
        own = self._received.get(group, {})
        own.pop(transport, None)
        if not own:
            self._received.pop(group, None)

    def _abort_oldest(self, connections: dict[asyncio.Transport, int]) -> None:
        oldest = next(iter(connections))
        log.warning("there are too many connections to the relay that say nothing: the oldest is closed")
        self.remove(oldest)
        oldest.abort()


def _group_peer(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return group_address(str(peer[0])) if peer else ""


class RelaySession:
    """One connection of one instance."""

    def __init__(self, connection: ServerConnection, login: RelayLogin) -> None:
        self.connection = connection
        self.login = login
        self.accounts: list[tuple[str, str]] = []
        # Events that were sent and not confirmed, with their accounts.
        self.in_flight: dict[int, tuple[str, str]] = {}
        # Those that were confirmed last: a list of what waits may be older.
        self.settled: deque[int] = deque(maxlen=4 * WINDOW)
        self.calls = 0
        self.wake = WakeSignal()
        self.files = FileAssembly()

    async def send(self, frame: msgspec.Struct) -> None:
        await self.connection.send(codec.dumps(frame))

    async def close(self, code: int, reason: str) -> None:
        await self.connection.close(code, reason)


class RelayServer:
    """Serves the instances of the relay over the accounts of this process."""

    def __init__(
        self, hub: Hub, clock: Clock, adapters: Sequence[Adapter], *, hello_within: float = HELLO_SECONDS
    ) -> None:
        """`hello_within` is how many seconds a connection may take to prove who it is."""
        self._hub = hub
        self._hello_within = hello_within
        self._clock = clock
        self._adapters = {
            (a.platform, a.account): a
            for a in adapters
            if a.platform != LOCAL and not isinstance(a, RelayTransport)
        }
        self._sessions: dict[str, RelaySession] = {}
        self._unknown = UnknownConnections()
        # What is being sent, by instance and key: a second request for it waits for the first.
        self._sends: dict[tuple[str, str], asyncio.Task[str]] = {}
        # A call goes on when its connection is lost, so that its outcome is recorded.
        self._calls: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self, host: str, port: int) -> AsyncGenerator[int]:
        """Accept instances while the block runs. Yield the port."""
        await self._hub.relay.record_end()
        cursor = await self._hub.head_cursor()
        unknown = self._unknown

        class BoundedConnection(ServerConnection):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                unknown.add(self.transport)

            def data_received(self, data: bytes) -> None:
                if unknown.receive(self.transport, len(data)):
                    super().data_received(data)
                else:
                    self.transport.abort()

            def connection_lost(self, exc: Exception | None) -> None:
                unknown.remove(self.transport)
                super().connection_lost(exc)

        try:
            server = await serve(
                self._handle,
                host,
                port,
                max_size=MAX_FRAME_BYTES,
                max_queue=4,
                compression=None,
                open_timeout=HELLO_SECONDS,
                ping_interval=PING_SECONDS,
                ping_timeout=PING_SECONDS,
                close_timeout=CLOSE_SECONDS,
                server_header=None,
                create_connection=BoundedConnection,
            )
        except OSError as exc:
            raise Unavailable(
                f"the relay cannot listen on {host}:{port} ({exc.strerror}): set another relay.listen"
            ) from exc
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow, cursor)
            group.start_soon(self._sweep_forever)
            try:
                yield server.sockets[0].getsockname()[1]
            finally:
                with anyio.CancelScope(shield=True):
                    server.close()
                    with anyio.move_on_after(CLOSE_SECONDS):
                        await server.wait_closed()
                    if self._calls:
                        await asyncio.wait(self._calls, timeout=CLOSE_SECONDS)
                group.cancel_scope.cancel()

    async def _follow(self, cursor: Cursor) -> None:
        """Wake the sessions that have something to take, and end those whose key was revoked."""
        async for changes in self._hub.follow_all(cursor):
            for name in {c.subject for c in changes if c.kind is ChangeKind.RELAY}:
                session = self._sessions.get(name)
                if session is None:
                    continue
                known = await self._hub.relay.find_by_key(session.login.key_id)
                if known is None or known.name != name:
                    await session.close(REFUSED_CODE, "the key was revoked")
                else:
                    session.wake.signal()

    async def _sweep_forever(self) -> None:
        while True:
            try:
                await self._hub.relay.sweep()
            except KeryxError as exc:
                log.warning("the queues of the relay cannot be swept now: %s", exc, extra=logs.REPEATS)
            await self._clock.sleep(_SWEEP_SECONDS)

    async def _handle(self, connection: ServerConnection) -> None:
        """Serve one connection. Errors of the other side end it and nothing else."""
        session = None
        try:
            session = await self._let_in(connection)
            await self._serve(session)
        except ConnectionClosed:
            pass
        except Forbidden as exc:
            await connection.close(REFUSED_CODE, str(exc)[:120])
        except (Invalid, TimeoutError) as exc:
            log.info("a connection to the relay is ended: %s", exc or "it says nothing")
            await connection.close(PROTOCOL_CODE, "this is not the protocol of the relay")
        except Unavailable as exc:
            log.warning("a connection to the relay is ended: %s", exc)
            await connection.close(1013, "try again")
        except Exception:
            log.exception("a connection to the relay failed")
            await connection.close(1011, "an error of the connector")
        finally:
            if session is not None:
                await self._leave(session)

    async def _let_in(self, connection: ServerConnection) -> RelaySession:
        """Return the session of an instance that has proved to have its key. Raise `Forbidden` for any other."""
        challenge = relay.generate_nonce()
        await connection.send(codec.dumps(RelayChallenge(version=VERSION, nonce=challenge)))
        with anyio.fail_after(self._hello_within):
            frame = await connection.recv()
        hello = decode_from_instance(frame) if isinstance(frame, str) else None
        if not isinstance(hello, RelayHello):
            raise Invalid("the first frame is no hello")
        if hello.version != VERSION:
            await connection.close(VERSION_CODE, f"this connector speaks version {VERSION}")
            raise ConnectionClosed(None, None)
        instance = await self._hub.relay.find_by_key(hello.key_id[:64])
        if instance is None or not relay.check_proof(instance.digest, hello.proof, challenge, hello.nonce):
            raise Forbidden("the key is wrong or was revoked")
        self._unknown.remove(connection.transport)
        session = RelaySession(connection, RelayLogin(instance.name, instance.key_id))
        earlier = self._sessions.get(instance.name)
        self._sessions[instance.name] = session
        if earlier is not None:
            await earlier.close(EVICTED_CODE, "another connection with the same key")
        address = str(connection.remote_address[0]) if connection.remote_address else ""
        await self._hub.relay.connect(session.login, address=address, evicted=earlier is not None)
        await session.send(
            RelayWelcome(
                proof=relay.prove_digest(instance.digest, challenge, hello.nonce),
                name=instance.name,
                accounts=tuple(
                    RelayedAccount(
                        platform=a.platform,
                        account=a.account,
                        capabilities=a.capabilities,
                        supports=tuple(n for n, kind in _SUPPORTS.items() if isinstance(a, kind)),
                    )
                    for a in self._adapters.values()
                ),
            )
        )
        log.info("the instance %s is connected", instance.name)
        return session

    async def _leave(self, session: RelaySession) -> None:
        name = session.login.name
        if self._sessions.get(name) is not session:
            return
        del self._sessions[name]
        try:
            await self._hub.relay.record_end(name)
        except KeryxError as exc:
            log.warning("cannot record that the instance %s is away: %s", name, exc)

    async def _serve(self, session: RelaySession) -> None:
        """Read frames and send events until the connection ends."""
        sending = asyncio.create_task(self._send_events(session))
        try:
            async for frame in session.connection:
                if sending.done():
                    break
                await self._take_frame(session, frame)
        finally:
            sending.cancel()
            await asyncio.wait([sending])
        if not sending.cancelled() and (error := sending.exception()):
            raise error

    async def _send_events(self, session: RelaySession) -> None:
        try:
            while True:
                seen = session.wake.count
                if session.accounts and len(session.in_flight) < WINDOW:
                    for event in await self._hub.relay.list_waiting(
                        session.login, session.accounts, limit=WINDOW
                    ):
                        if event.position in session.in_flight or event.position in session.settled:
                            continue
                        if len(session.in_flight) >= WINDOW:
                            break
                        session.in_flight[event.position] = event.platform, event.account
                        await session.send(
                            RelayEvent(
                                position=event.position,
                                platform=event.platform,
                                account=event.account,
                                kind=event.kind,
                                body=event.body,
                            )
                        )
                await session.wake.wait(seen)
        except Exception:
            # The reader waits for the next frame, which may never come.
            session.connection.transport.abort()
            raise

    async def _take_frame(self, session: RelaySession, frame: str | bytes) -> None:
        if isinstance(frame, bytes):
            session.files.add(frame)
            return
        match decode_from_instance(frame):
            case RelayServe(accounts=accounts):
                session.accounts = [account for account in accounts if account in self._adapters]
                # What was sent for others comes again when they are served.
                session.in_flight = {n: key for n, key in session.in_flight.items() if key in accounts}
                session.wake.signal()
            case RelayAck(position=position, error=error):
                await self._hub.relay.settle_event(session.login, position, error[:500])
                session.settled.append(position)
                session.in_flight.pop(position, None)
                session.wake.signal()
                if error:
                    log.warning("the instance %s cannot take an event: %s", session.login.name, error[:500])
            case RelayCall() as call:
                if session.calls >= _MAX_CALLS:
                    raise Invalid("there are too many calls at once")
                session.calls += 1
                files = session.files.take(call.id, call.files)
                task = asyncio.create_task(self._answer(session, call, files))
                self._calls.add(task)
                task.add_done_callback(self._calls.discard)
            case RelayHello():
                raise Invalid("a second hello")

    async def _answer(self, session: RelaySession, call: RelayCall, files: Sequence[Attachment]) -> None:
        """Do what an instance asks for, and say what came of it."""
        try:
            value, sent = await self._call(session.login, call, files)
            frames: list[str | bytes] = [*encode_chunks(call.id, sent)]
            result = RelayResult(id=call.id, value=codec.dumps(value), files=describe_files(sent))
            frames.append(codec.dumps(result))
            if len(result.value) > MAX_TEXT_BYTES:
                raise Refused(Phrase("delivery.relay_result_long"))
        except KeryxError as exc:
            frames = [codec.dumps(describe_failure(call.id, exc))]
        except Exception as exc:
            log.exception("a call of the instance %s failed", session.login.name)
            failed = Uncertain(Phrase("delivery.relay_failed", kind=name_error(exc)))
            frames = [codec.dumps(describe_failure(call.id, failed))]
        finally:
            session.calls -= 1
        try:
            for frame in frames:
                await session.connection.send(frame)
        except ConnectionClosed:
            log.info("the instance %s is gone before it had its answer", session.login.name)

    async def _call(self, login: RelayLogin, call: RelayCall, files: Sequence[Attachment]) -> Outcome:
        adapter = self._adapters.get((call.platform, call.account))
        if adapter is None:
            raise NotSent(
                Phrase(
                    "delivery.relay_no_account",
                    account=repr(call.account[:80]),
                    platform=repr(call.platform[:80]),
                )
            )
        match call.method:
            case "render":
                text = codec.loads(call.params, RenderRequest).text
                parts = await plugins.render_parts(adapter, text)
                return [part.text for part in parts], ()
            case "send":
                part = codec.loads(call.params, RelayedPart)
                return await self._send(login, adapter, part, files), ()
            case "download":
                return None, [await self._download(login, adapter, codec.loads(call.params, FileRequest))]
            case "roles":
                source = codec.loads(call.params, Source)
                chat = Target(adapter.platform, adapter.account, source.chat or "")
                await self._check_target(login, adapter, chat)
                return list(await self._find_roles(adapter, source)), ()
            case "typing" | "react" | "remove":
                request = codec.loads(call.params, TargetRequest)
                await self._check_target(login, adapter, request.target)
                await self._hint(adapter, call.method, request)
                return None, ()
            case "thread":
                thread = codec.loads(call.params, ThreadRequest)
                await self._check_target(login, adapter, thread.target)
                if not isinstance(adapter, SupportsThreads):
                    raise Refused(Phrase("delivery.no_thread_names"))
                await plugins.update_thread(
                    adapter,
                    thread.target,
                    title=thread.title,
                    archive=thread.archive,
                    timeout=self._hub.relay.send_timeout,
                )
                return None, ()
            case _:
                raise Invalid(f"there is no call {call.method[:80]!r}")

    async def _hint(self, adapter: Adapter, method: str, request: TargetRequest) -> None:
        if method == "remove":
            if not isinstance(adapter, SupportsRemoval):
                raise Refused(Phrase("delivery.no_removal"))
            await plugins.remove_message(
                adapter, request.target, request.message, self._hub.relay.send_timeout
            )
            return
        react = adapter.react if isinstance(adapter, SupportsReactions) else adapter.typing
        show = adapter.typing if method == "typing" else react
        try:
            with anyio.fail_after(_HINT_SECONDS), guard_plugin():
                await show(request.target)
        except TimeoutError as exc:
            raise Unavailable(f"{adapter.platform} did not answer in time") from exc

    async def _check_target(self, login: RelayLogin, adapter: Adapter, target: Target) -> None:
        if (target.platform, target.account) != (adapter.platform, adapter.account):
            raise Refused(Phrase("delivery.relay_foreign_account"))
        await self._ask(self._hub.relay.check_target(login, target))

    async def _send(
        self, login: RelayLogin, adapter: Adapter, request: RelayedPart, files: Sequence[Attachment]
    ) -> str:
        """Send a part once, however often it is asked for."""
        if request.edits:
            # An edit may be repeated. The mark of a possible repetition stays.
            await self._check_target(login, adapter, request.target)
            marked = await self._ask(self._hub.relay.is_marked(login, request.target, request.edits))
            part = msgspec.structs.replace(await _build_part(adapter, request, files), again=marked)
            return await plugins.send_part(adapter, part, self._hub.relay.send_timeout)
        key = login.name, request.key
        running = self._sends.get(key)
        if running is None:
            running = asyncio.create_task(self._perform_send(login, adapter, request, files))
            self._sends[key] = running
            running.add_done_callback(lambda _: self._sends.pop(key, None))
        # Cancelling one request must not cancel a send that another one waits for.
        return await asyncio.shield(running)

    async def _perform_send(
        self, login: RelayLogin, adapter: Adapter, request: RelayedPart, files: Sequence[Attachment]
    ) -> str:
        await self._check_target(login, adapter, request.target)
        part = await _build_part(adapter, request, files)
        timeout = self._hub.relay.send_timeout
        able = adapter.capabilities
        key = (
            await plugins.create_send_key(adapter, part)
            if isinstance(adapter, SupportsSendKeys)
            else part.key
        )
        begun = await self._ask(
            self._hub.relay.begin_send(
                login,
                part.target,
                key=request.key,
                delivery=request.delivery,
                send_key=key,
                idempotency=able.idempotency,
            )
        )
        if begun.receipt:
            return begun.receipt
        if begun.held:
            raise Refused(HELD_NOTE)
        part = msgspec.structs.replace(part, key=begun.send_key)
        receipt, error = "", None
        marked = begun.doubt and able.idempotency is Idempotency.NONE
        try:
            if begun.doubt and isinstance(adapter, SupportsReconciliation):
                receipt = await plugins.find_sent(adapter, part, timeout) or ""
            receipt = receipt or await plugins.send_part(
                adapter, msgspec.structs.replace(part, again=marked), timeout
            )
        except SendError as exc:
            error = exc
        try:
            await self._hub.relay.end_send(
                login,
                part.target,
                key=request.key,
                receipt=receipt,
                error=error,
                doubt=begun.doubt,
                marked=marked,
            )
        except KeryxError as exc:
            # It stays recorded as being sent, which is unknown from now on.
            raise Uncertain(Phrase("delivery.relay_not_recorded", reason=exc)) from exc
        if error is not None:
            raise error
        return receipt

    async def _download(self, login: RelayLogin, adapter: Adapter, request: FileRequest) -> Attachment:
        platform, account, file = await self._hub.relay.find_file(login, request.position, request.number)
        if (platform, account) != (adapter.platform, adapter.account):
            raise Invalid(Phrase("file.elsewhere", platform=adapter.platform))
        if file.reference.startswith(relay.MEDIA_PREFIX):
            owner = media.build_adapter_viewer(platform, account)
            try:
                return await self._hub.media.fetch(owner, file.reference.removeprefix(relay.MEDIA_PREFIX))
            except NotFound as exc:
                raise Invalid(exc.text) from exc
        if not isinstance(adapter, SupportsDownloads):
            raise Invalid(Phrase("file.elsewhere", platform=adapter.platform))
        return await plugins.download(adapter, file, limit=request.limit, timeout=_DOWNLOAD_TIMEOUT)

    async def _find_roles(self, adapter: Adapter, source: Source) -> Sequence[str]:
        if not isinstance(adapter, SupportsRoles):
            raise Invalid(f"there are no roles on {adapter.platform}")
        with anyio.fail_after(_HINT_SECONDS), guard_plugin():
            return await adapter.roles(source)

    async def _ask(self, question: Awaitable[Answer]) -> Answer:
        """Ask the store before anything is sent: whatever fails, nothing was."""
        try:
            return await question
        except SendError:
            raise
        except KeryxError as exc:
            raise NotSent(str(exc)) from exc


async def _build_part(adapter: Adapter, request: RelayedPart, files: Sequence[Attachment]) -> OutgoingPart:
    """Return the part that an instance describes, with its text as the platform shows it."""
    part = OutgoingPart(
        delivery=request.delivery,
        number=request.number,
        key=request.key,
        target=request.target,
        attachment=files[0] if request.single and files else None,
        attachments=() if request.single else tuple(files),
        title=request.title,
        repeat_mark=request.repeat_mark,
        edits=request.edits,
        shown=request.shown,
        steps=request.steps,
        final=request.final,
        buttons=request.buttons,
    )
    if request.text is None:
        return part
    rendered = await plugins.render_parts(adapter, request.text)
    if not 0 <= request.index < len(rendered):
        raise Refused(Phrase("delivery.part_unknown", count=len(rendered), number=request.index))
    chosen = rendered[request.index]
    return msgspec.structs.replace(part, text=chosen.text, markup=chosen.markup)
