"""The end of the relay behind the firewall: the connection to the connector, and an adapter for each account that the connector has."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from keryx.core import codec
from keryx.core.cache import LruCache
from keryx.core.deliveries import Idempotency, Target
from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, Invalid, KeryxError, NotSent, Refused, Unavailable, Uncertain
from keryx.core.ids import DEFAULT_PROFILE
from keryx.core.media import Attachment, RemoteFile
from keryx.core.messages import Text
from keryx.core.ports import relay
from keryx.core.ports.adapter import (
    AdapterContext,
    Capabilities,
    InboundDeletion,
    InboundEvent,
    InboundFailure,
    InboundMessage,
    InboundReaction,
    LinkState,
    OutgoingPart,
    RenderedPart,
)
from keryx.core.ports.relay import RelayedAlias, RelayedMove, RelayEventKind, RelayKey
from keryx.core.source import Source
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.relay import (
    CLOSE_SECONDS,
    EVICTED_CODE,
    HELLO_SECONDS,
    MAX_FRAME_BYTES,
    MAX_TEXT_BYTES,
    PING_SECONDS,
    REFUSED_CODE,
    VERSION,
    VERSION_CODE,
    WINDOW,
    FileAssembly,
    FileRequest,
    FromConnector,
    RelayAck,
    RelayCall,
    RelayChallenge,
    RelayedAccount,
    RelayedPart,
    RelayEvent,
    RelayFailure,
    RelayHello,
    RelayResult,
    RelayServe,
    RelayWelcome,
    RenderRequest,
    TargetRequest,
    ThreadRequest,
    build_error,
    decode_from_connector,
    describe_files,
    encode_chunks,
)
from keryx.timing import WakeSignal

log = logging.getLogger(__name__)

ACCOUNTS_FILE = "relay-accounts.json"
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=1), jitter=0.2)
_REFUSED_BACKOFF = Backoff(first=timedelta(seconds=2), longest=timedelta(minutes=10), jitter=0.2)
_CONNECT_SECONDS = 20.0
_CALL_SECONDS = 150.0
_RENDER_SECONDS = 30.0
_KEPT_RENDERINGS = 256
_PATIENCE_SECONDS = 15.0
_QUEUE_SIZE = 8 * WINDOW
_EVENTS: dict[RelayEventKind, type[InboundEvent]] = {
    RelayEventKind.MESSAGE: InboundMessage,
    RelayEventKind.DELETION: InboundDeletion,
    RelayEventKind.REACTION: InboundReaction,
    RelayEventKind.FAILURE: InboundFailure,
}

AccountKey = tuple[str, str]


class RelayedMarkup(msgspec.Struct, frozen=True):
    """Names a part of a text that the connector renders."""

    text: str
    index: int


class RelayLink:
    """The connection to the connector. It is open while at least one adapter listens."""

    def __init__(
        self,
        url: str,
        key: RelayKey,
        home: Path,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.url = url
        self.host = urlsplit(url).netloc.rpartition("@")[2]
        self._key = key
        self._path = home / ACCOUNTS_FILE
        self._sleep = sleep
        self._contexts: dict[AccountKey, AdapterContext] = {}
        # Signalled when an adapter begins or ends to listen, and when there is a connection.
        self._changed = WakeSignal()
        self._running = False
        self._connection: ClientConnection | None = None
        self._calls: dict[int, asyncio.Future[tuple[str, tuple[Attachment, ...]]]] = {}
        self._numbers = count(1)
        # The event that is being stored, and for whom.
        self._storing: tuple[AdapterContext, asyncio.Task[None]] | None = None
        self._files = FileAssembly()
        self.accounts: Mapping[AccountKey, RelayedAccount] = self._read_accounts()

    @property
    def connected(self) -> bool:
        return self._connection is not None

    def build_adapters(self) -> "list[RelayedAdapter]":
        """Return an adapter for each account that is known."""
        return [RelayedAdapter(self, account) for account in self.accounts.values()]

    async def fetch_accounts(self) -> None:
        """Learn the accounts of the connector before the first start. Raise `Unavailable` if it cannot be reached."""
        if not self.accounts:
            connection = await self._open()
            await connection.close()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep the connection while the block runs."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._run)
            self._running = True
            try:
                yield
            finally:
                self._running = False
                group.cancel_scope.cancel()

    def register(self, account: AccountKey, context: AdapterContext) -> None:
        """Pass the events of an account to a context."""
        self._contexts[account] = context
        state = LinkState.CONNECTED if self.connected else LinkState.CONNECTING
        context.report(state, self._describe())
        self._changed.signal()

    def unregister(self, account: AccountKey, context: AdapterContext) -> None:
        if self._contexts.get(account) is context:
            del self._contexts[account]
            if self._storing is not None and self._storing[0] is context:
                self._storing[1].cancel()
            self._changed.signal()

    async def wait_connected(self, seconds: float) -> None:
        """Return when there is a connection, or after some seconds."""
        with anyio.move_on_after(seconds if self._running else 0):
            while self._connection is None:
                await self._changed.wait(self._changed.count)

    async def call(
        self,
        account: AccountKey,
        method: str,
        params: object,
        files: Sequence[Attachment] = (),
    ) -> tuple[str, tuple[Attachment, ...]]:
        """Let the connector do something. Raise `NotSent` if it is not connected, `Uncertain` if the connection is lost before
        the result, or the error of the connector."""
        connection, text = self._connection, codec.dumps(params)
        if len(text.encode()) > MAX_TEXT_BYTES:
            raise Refused(Phrase("delivery.relay_too_long", count=f"{len(text):,}"))
        if connection is None:
            raise NotSent(Phrase("delivery.relay_away", host=self.host))
        id_ = next(self._numbers)
        result = asyncio.get_running_loop().create_future()
        self._calls[id_] = result
        try:
            for chunk in encode_chunks(id_, files):
                await connection.send(chunk)
            platform, name = account
            await connection.send(
                codec.dumps(
                    RelayCall(
                        id=id_,
                        method=method,
                        platform=platform,
                        account=name,
                        params=text,
                        files=describe_files(files),
                    )
                )
            )
            with anyio.fail_after(_CALL_SECONDS):
                return await result
        except ConnectionClosed as exc:
            raise Uncertain(Phrase("delivery.relay_lost", host=self.host)) from exc
        except TimeoutError as exc:
            raise Uncertain(Phrase("delivery.relay_silent", host=self.host)) from exc
        finally:
            del self._calls[id_]

    async def _run(self) -> None:
        failures = 0
        while True:
            while not self._contexts:
                await self._changed.wait(self._changed.count)
            self._report(LinkState.CONNECTING)
            backoff, connected = _BACKOFF, False
            try:
                connection = await self._open()
                connected = True
                await self._serve(connection)
                detail = "the connection was closed"
            except Forbidden as exc:
                backoff, detail = _REFUSED_BACKOFF, str(exc)
                connected = False
            except KeryxError as exc:
                detail = str(exc)
            except Exception as exc:
                log.exception("the connection to the relay failed")
                detail = f"the connection failed ({type(exc).__name__}): the log has the details"
            # The platform itself refuses nothing.
            broken = backoff is _REFUSED_BACKOFF
            self._report(LinkState.BROKEN if broken else LinkState.CONNECTING, detail)
            failures = 1 if connected else failures + 1
            await self._sleep(backoff.seconds(failures))

    async def _open(self) -> ClientConnection:
        """Connect, prove who we are, and check that the other side knows the key. Raise `Forbidden` if it refuses,
        `Unavailable` if it cannot be reached."""
        try:
            with anyio.fail_after(_CONNECT_SECONDS):
                connection = await connect(
                    self.url,
                    max_size=MAX_FRAME_BYTES,
                    compression=None,
                    open_timeout=None,
                    ping_interval=PING_SECONDS,
                    ping_timeout=PING_SECONDS,
                    close_timeout=CLOSE_SECONDS,
                    user_agent_header=None,
                )
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI, EOFError) as exc:
            raise Unavailable(
                f"the relay at {self.host} cannot be reached ({exc or type(exc).__name__})"
            ) from exc
        try:
            with anyio.fail_after(HELLO_SECONDS):
                await self._greet(connection)
        except BaseException as exc:
            with anyio.CancelScope(shield=True):
                await connection.close()
            if isinstance(exc, ConnectionClosed):
                raise self._explain_close(connection) from exc
            if isinstance(exc, TimeoutError):
                raise Unavailable(f"the relay at {self.host} says nothing") from exc
            raise
        return connection

    async def _greet(self, connection: ClientConnection) -> None:
        challenge = self._decode(await connection.recv())
        if not isinstance(challenge, RelayChallenge):
            raise Invalid(f"{self.host} does not speak the protocol of the relay")
        if challenge.version != VERSION:
            raise Forbidden(self._describe_version())
        nonce = relay.generate_nonce()
        hello = RelayHello(
            version=VERSION,
            key_id=self._key.id,
            nonce=nonce,
            proof=relay.prove_key(self._key, challenge.nonce, nonce),
        )
        await connection.send(codec.dumps(hello))
        welcome = self._decode(await connection.recv())
        if not isinstance(welcome, RelayWelcome):
            raise Invalid(f"{self.host} does not speak the protocol of the relay")
        if welcome.proof != relay.prove_digest(self._key.digest, challenge.nonce, nonce):
            raise Forbidden(f"{self.host} does not know the key of this instance: it is not the connector")
        self._learn_accounts(welcome.accounts)

    async def _serve(self, connection: ClientConnection) -> None:
        """Take events and results until the connection ends, or nobody listens any more."""
        events: asyncio.Queue[RelayEvent] = asyncio.Queue(_QUEUE_SIZE)
        self._connection, self._files = connection, FileAssembly()
        self._changed.signal()
        self._report(LinkState.CONNECTED)
        tasks = [
            asyncio.create_task(work)
            for work in (
                self._read(connection, events),
                self._take_events(connection, events),
                self._declare_accounts(connection),
            )
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._connection = None
            for task in tasks:
                task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait(tasks)
                await connection.close()
            lost = Uncertain(Phrase("delivery.relay_lost", host=self.host))
            for call in self._calls.values():
                if not call.done():
                    call.set_exception(lost)
        for task in done:
            error = task.exception()
            if isinstance(error, ConnectionClosed):
                raise self._explain_close(connection) from error
            if error is not None:
                raise error

    async def _read(self, connection: ClientConnection, events: asyncio.Queue[RelayEvent]) -> None:
        while True:
            frame = await connection.recv()
            if isinstance(frame, bytes):
                self._files.add(frame)
                continue
            match decode_from_connector(frame):
                case RelayEvent() as event:
                    # The connector never has more on their way, even if some come again.
                    events.put_nowait(event)
                case RelayResult(id=id_, value=value, files=heads):
                    files = self._files.take(id_, heads)
                    call = self._calls.get(id_)
                    if call is not None and not call.done():
                        call.set_result((value, files))
                case RelayFailure() as failure:
                    call = self._calls.get(failure.id)
                    if call is not None and not call.done():
                        call.set_exception(build_error(failure))
                case RelayChallenge() | RelayWelcome():
                    raise Invalid(f"{self.host} does not keep to the protocol of the relay")

    async def _take_events(self, connection: ClientConnection, events: asyncio.Queue[RelayEvent]) -> None:
        """Store events in order, and confirm each when it is durable."""
        while True:
            event = await events.get()
            context = self._contexts.get((event.platform, event.account))
            if context is None:
                # It comes again when the adapter listens.
                continue
            error = ""
            storing = asyncio.create_task(_pass_on(context, event))
            self._storing = context, storing
            try:
                await asyncio.wait({storing})
                if storing.cancelled():
                    continue
                storing.result()
            except asyncio.CancelledError:
                storing.cancel()
                raise
            except Unavailable:
                # The connector hands the event over again in the next connection.
                raise
            except KeryxError as exc:
                log.warning("an event from the relay cannot be taken: %s", exc)
                error = str(exc) or type(exc).__name__
            await connection.send(codec.dumps(RelayAck(position=event.position, error=error[:500])))

    async def _declare_accounts(self, connection: ClientConnection) -> None:
        """Say whose events are taken, and again when that changes. Return when no adapter listens."""
        declared: dict[AccountKey, AdapterContext] = {}
        while self._contexts:
            seen, current = self._changed.count, dict(self._contexts)
            kept = tuple(key for key, context in declared.items() if current.get(key) is context)
            # Events that an adapter has not stored come again when it is declared anew.
            for accounts in (kept, tuple(current)) if len(kept) < len(declared) else (tuple(current),):
                await connection.send(codec.dumps(RelayServe(accounts=accounts)))
            declared = current
            await self._changed.wait(seen)

    def _decode(self, frame: str | bytes) -> FromConnector | None:
        return decode_from_connector(frame) if isinstance(frame, str) else None

    def _explain_close(self, connection: ClientConnection) -> KeryxError:
        match connection.close_code:
            case code if code == REFUSED_CODE:
                return Forbidden(
                    f"the relay at {self.host} refuses the key: `keryx relay renew` on the connector makes a new one"
                )
            case code if code == EVICTED_CODE:
                return Forbidden(
                    f"another process has connected to the relay at {self.host} with the same key: stop one of them"
                )
            case code if code == VERSION_CODE:
                return Forbidden(self._describe_version())
            case _:
                return Unavailable(f"the connection to the relay at {self.host} was lost")

    def _describe_version(self) -> str:
        return f"the relay at {self.host} speaks another version: use the same Keryx on both machines"

    def _describe(self) -> str:
        return f"through the relay at {self.host}"

    def _report(self, link: LinkState, detail: str = "") -> None:
        for context in self._contexts.values():
            context.report(link, detail or self._describe())

    def _read_accounts(self) -> dict[AccountKey, RelayedAccount]:
        try:
            found = codec.loads(self._path.read_bytes(), tuple[RelayedAccount, ...])
        except (FileNotFoundError, Invalid):
            # It is asked for again.
            return {}
        return {(a.platform, a.account): a for a in found}

    def _learn_accounts(self, accounts: Sequence[RelayedAccount]) -> None:
        """Keep what the connector has, for the next start. New accounts get an adapter then."""
        learned = {(a.platform, a.account): a for a in accounts}
        fresh = learned.keys() - self.accounts.keys()
        if self.accounts and fresh:
            names = ", ".join(sorted(f"{platform} {account}" for platform, account in fresh))
            log.warning("the relay at %s has new accounts (%s): restart Keryx to use them", self.host, names)
        if learned != self.accounts:
            self.accounts = learned
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fresh_file = self._path.with_suffix(".partial")
            fresh_file.write_text(codec.dumps(list(accounts)), encoding="utf-8")
            os.replace(fresh_file, self._path)


async def _pass_on(context: AdapterContext, event: RelayEvent) -> None:
    """Give an event to the hub. Raise `Invalid` for what no instance would take."""
    if event.kind is RelayEventKind.MOVE:
        moved = codec.loads(event.body, RelayedMove)
        await context.move_chat(moved.old, moved.new)
    elif event.kind is RelayEventKind.ALIAS:
        alias = codec.loads(event.body, RelayedAlias)
        await context.add_alias(_check_source(alias.source, event), alias.other)
    else:
        await context.receive(_read_event(event))


def _read_event(event: RelayEvent) -> InboundEvent:
    """Return the event of a frame without everything that only a local surface may say."""
    inbound = codec.loads(event.body, _EVENTS[event.kind])
    source = _check_source(inbound.source, event)
    if not isinstance(inbound, InboundMessage):
        return msgspec.structs.replace(inbound, source=source, cursor=None, state={})
    reply = inbound.reply
    if reply is not None and (reply.platform, reply.account) != (event.platform, event.account):
        raise Invalid("an event of the relay is to be answered on another account")
    return InboundMessage(
        event=inbound.event,
        source=source,
        at=inbound.at,
        parts=tuple(part for part in inbound.parts if isinstance(part, Text)),
        surface=inbound.surface,
        files=tuple(
            msgspec.structs.replace(file, reference=f"{event.position}/{number}")
            for number, file in enumerate(inbound.files)
        ),
        reply=reply,
        addressed=inbound.addressed,
        observed=inbound.observed,
        quote=inbound.quote,
        replies_to=inbound.replies_to,
        thread_root=inbound.thread_root,
        edits=inbound.edits,
        group=inbound.group,
        more=inbound.more,
        continues=inbound.continues,
        commands=inbound.commands,
        model_text=inbound.model_text,
    )


def _check_source(source: Source, event: RelayEvent) -> Source:
    if (source.platform, source.account) != (event.platform, event.account):
        raise Invalid("an event of the relay names another account")
    return msgspec.structs.replace(source, profile=DEFAULT_PROFILE, by_role=False)


class RelayedAdapter:
    """One account of the connector. Sources and targets name the real platform."""

    hook = None

    def __init__(self, link: RelayLink, account: RelayedAccount) -> None:
        self._link = link
        self._account = account
        self.platform = account.platform
        self.account = account.account
        self._rendered: LruCache[str, list[RenderedPart]] = LruCache(_KEPT_RENDERINGS)
        # What the account does not support must not be an attribute: the protocols are checked by that. Events may have
        # files of the connector's own store.
        if "reactions" in account.supports:
            self.react = self._react
        if "removal" in account.supports:
            self.remove = self._remove
        if "roles" in account.supports:
            self.roles = self._roles
        if "threads" in account.supports:
            self.rename_thread = self._rename_thread
            self.archive_thread = self._archive_thread

    @property
    def relay(self) -> str:
        return self._link.url

    @property
    def capabilities(self) -> Capabilities:
        """Those of the account. The connector recognises a repeated send by its key."""
        known = self._link.accounts.get(self._key, self._account)
        return msgspec.structs.replace(
            known.capabilities,
            idempotency=Idempotency.NATIVE,
            shared_listening=False,
            sends_where_it_listens=True,
        )

    async def listen(self, context: AdapterContext, /) -> None:
        self._link.register(self._key, context)
        try:
            await asyncio.Event().wait()
        finally:
            self._link.unregister(self._key, context)

    def parts(self, text: str) -> Sequence[RenderedPart]:
        """Return what `render` has returned for this text. Raise `NotSent` if it was not called."""
        found = self._rendered.get(text)
        if found is None:
            raise NotSent("a text is rendered by the connector of the relay")
        return found

    async def render(self, text: str) -> Sequence[RenderedPart]:
        found = self._rendered.get(text)
        if found is None:
            try:
                with anyio.fail_after(_RENDER_SECONDS):
                    value, _ = await self._link.call(self._key, "render", RenderRequest(text))
            except (Uncertain, TimeoutError) as exc:
                raise NotSent(Phrase("delivery.relay_render", reason=exc)) from exc
            texts = codec.loads(value, list[str])
            found = [RenderedPart(shown, RelayedMarkup(text, n)) for n, shown in enumerate(texts)]
            self._rendered.put(text, found)
        return found

    async def send(self, part: OutgoingPart, /) -> str:
        markup = part.markup if isinstance(part.markup, RelayedMarkup) else None
        # A text that was not rendered by the connector is sent as its first part.
        text = markup.text if markup else part.text or None
        request = RelayedPart(
            delivery=part.delivery,
            number=part.number,
            key=part.key,
            target=part.target,
            text=text,
            index=markup.index if markup else 0,
            single=part.attachment is not None,
            title=part.title,
            repeat_mark=part.repeat_mark,
            edits=part.edits,
            shown=part.shown,
            steps=part.steps,
            final=part.final,
            buttons=part.buttons,
        )
        files = (part.attachment,) if part.attachment else part.attachments
        if part.final:
            # A restart of the connector takes a moment. A preview does not wait: there is another one soon.
            await self._link.wait_connected(_PATIENCE_SECONDS)
        value, _ = await self._link.call(self._key, "send", request, files)
        return codec.loads(value, str)

    async def typing(self, target: Target) -> None:
        await self._link.call(self._key, "typing", TargetRequest(target))

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        position, _, number = file.reference.partition("/")
        if not position.isdecimal() or not number.isdecimal():
            raise Invalid(Phrase("file.elsewhere", platform=self.platform))
        request = FileRequest(int(position), int(number), limit)
        try:
            _, files = await self._link.call(self._key, "download", request)
        except (NotSent, Uncertain) as exc:
            raise Unavailable(str(exc)) from exc
        if len(files) != 1 or len(files[0].body) > limit:
            raise Invalid(Phrase("file.too_large", limit=limit))
        return files[0]

    async def _react(self, target: Target) -> None:
        await self._link.call(self._key, "react", TargetRequest(target))

    async def _remove(self, target: Target, message: str) -> None:
        await self._link.call(self._key, "remove", TargetRequest(target, message))

    async def _rename_thread(self, target: Target, title: str) -> None:
        await self._link.call(self._key, "thread", ThreadRequest(target, title))

    async def _archive_thread(self, target: Target) -> None:
        await self._link.call(self._key, "thread", ThreadRequest(target, archive=True))

    async def _roles(self, source: Source) -> Sequence[str]:
        try:
            value, _ = await self._link.call(self._key, "roles", source)
        except (NotSent, Uncertain) as exc:
            raise Unavailable(str(exc)) from exc
        return codec.loads(value, list[str])

    @property
    def _key(self) -> AccountKey:
        return self.platform, self.account
