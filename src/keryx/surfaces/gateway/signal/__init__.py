"""The adapter for one account on Signal, by the signal-cli daemon, and its settings."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import anyio
import msgspec

from keryx.core.cache import LruCache
from keryx.core.deliveries import Target
from keryx.core.durations import Backoff
from keryx.core.errors import Forbidden, Invalid, NotSent, Unavailable
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import (
    AdapterContext,
    AttachmentLimits,
    Capabilities,
    LengthUnit,
    LinkState,
    OutgoingPart,
    RenderedPart,
    Streaming,
)
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.adapter_settings import AdapterSetup, build_interval
from keryx.surfaces.gateway.signal import message_sender
from keryx.surfaces.gateway.signal.daemon_api import (
    DEFAULT_URL,
    SignalApi,
    SignalApiError,
    SignalNoResponse,
    SignalUnreachable,
    check_url,
)
from keryx.surfaces.gateway.signal.event_parser import IDS, NUMBER_PATTERN, PLATFORM, SignalIdentity
from keryx.surfaces.gateway.signal.event_receiver import EditHistory, SignalReceiver, name_own_edits
from keryx.surfaces.gateway.signal.spool_file import SpoolFile
from keryx.timing import Sleep

log = logging.getLogger(__name__)

NO_ACCOUNT = "signal-cli does not have this account, or Signal has unlinked it: run `keryx gateway setup signal` to link it"
RECEIVES_ITSELF = "signal-cli receives messages without Keryx: start it with --receive-mode=manual, and let no other program receive"
# How long signal-cli waits for a message. The call outlives a Keryx that has ended; then the message is in the spool, or
# lost if there is none.
_PULL_SECONDS, _PULL_SECONDS_WITHOUT_SPOOL = 15, 5
# While messages arrive, several are taken at once. signal-cli returns after this pause.
_BATCH_SECONDS = 1
_BATCH_SIZE = 20
_EXTRA_SECONDS = 60.0
_CONFLICT_PAUSE_SECONDS = 1.0
# A call of a Keryx that was killed may still wait.
_MAX_CONFLICTS = 2 * _PULL_SECONDS
_BACKOFF = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))
_CLOSE_SECONDS = 2.0
_MAX_CHATS = 1000
_NOTES = (
    "People see the styles bold, italic, strikethrough and monospace. Links have no text of their own.",
)


class SignalSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table [signal]. A misspelt name is an error."""

    # The telephone number of the account, as +15550002222.
    account: str = ""
    # The signal-cli daemon.
    url: str = DEFAULT_URL
    # The file that the output of signal-cli is appended to. Without it, what signal-cli hands over while Keryx is killed is
    # lost.
    spool: str = ""
    # Only notes to self are heard: for the account of a person, whose other chats are not meant for Keryx.
    notes_only: bool = False
    # Answers are shown while they are written, by up to 10 edits.
    stream: bool = False
    # Messages per second, to one chat and in all. 0 means no limit but Signal's own.
    per_chat: float = 0
    per_second: float = 0


def check_number(text: str) -> str:
    """Return a telephone number as Signal has it. Raise `Invalid` for anything else."""
    number = "".join(char for char in text if char not in " -().\u00a0")
    if not NUMBER_PATTERN.fullmatch(number):
        raise Invalid("signal.account: write the number with its country code, such as +15550002222")
    return number


def make(setup: AdapterSetup) -> "SignalAdapter | None":
    """Build the adapter, or return None without settings. `Invalid` says what is missing."""
    settings = setup.read(SignalSettings)
    if settings is None:
        return None
    setup.require(account=settings.account)
    return SignalAdapter(settings, folder=setup.home / PLATFORM)


class SignalAdapter:
    platform = PLATFORM
    hook = None

    def __init__(
        self,
        settings: SignalSettings,
        *,
        folder: Path,
        sleep: Sleep = asyncio.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.account = check_number(settings.account)
        check_url(settings.url)
        self._settings = settings
        self._sleep = sleep
        self._now = now
        self._api = SignalApi(settings.url, self.account)
        path = Path(settings.spool).expanduser() if settings.spool else folder / f"{self.account}.jsonl"
        self._spool = SpoolFile(path, shared=bool(settings.spool))
        self._context: AdapterContext | None = None
        # By chat.
        self._edits = LruCache[str, EditHistory](_MAX_CHATS)
        self.capabilities = Capabilities(
            edit=True,
            max_edits=message_sender.MAX_EDITS,
            streaming=Streaming.EDIT if settings.stream else Streaming.NONE,
            typing=True,
            attachments=AttachmentLimits(max_bytes=message_sender.MAX_FILE_BYTES),
            markup="Markdown",
            limit=message_sender.LIMIT.size,
            unit=LengthUnit.BYTES,
            chat_interval=build_interval(settings.per_chat),
            account_interval=build_interval(settings.per_second),
            pii_safe=True,
            ids=IDS,
            notes=_NOTES,
        )

    async def listen(self, context: AdapterContext) -> None:
        """Take messages from signal-cli until cancelled. What was taken is stored before more is."""
        self._context = context
        me = SignalIdentity(number=self.account)
        receiver = SignalReceiver(context, me, self._spool, notes_only=self._settings.notes_only)
        try:
            await receiver.receive_spool()
            await self._find_account(context)
            await self._pull_messages(context, receiver)
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            self._context = None

    def convert_source(self, source: Source) -> Source:
        chat = (source.chat or "").removeprefix("group:")
        kind = ChatType.DM if source.chat_type is ChatType.DM else ChatType.GROUP
        return msgspec.structs.replace(source, chat=chat, chat_type=kind, parent_chat=None)

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._api.close()

    async def typing(self, target: Target) -> None:
        if target.chat != self.account:
            await message_sender.send_typing(self._api, target)

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return message_sender.render_parts(text)

    async def send(self, part: OutgoingPart) -> str:
        if not part.edits:
            return await message_sender.send(self._api, part, account=self.account, now=self._now())
        history = await self._load_edits(part.target.chat)
        revision = await message_sender.send(
            self._api,
            part,
            account=self.account,
            now=self._now(),
            latest=history.find_latest(part.edits),
        )
        await self._save_edits(part.target.chat, history.add(revision, part.edits))
        return part.edits

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        if file.size > limit:
            raise Invalid(Phrase("file.too_large", limit=limit))
        body = await self._api.download(file.reference, limit=limit)
        return Attachment(name=file.name, mime=file.mime, body=body)

    async def _load_edits(self, chat: str) -> EditHistory:
        """Return the versions of what was edited in a chat, which apps refer to."""
        if self._context is None:
            return EditHistory(None)
        history = self._edits.get(chat)
        if history is None:
            try:
                history = EditHistory(await self._context.load_state(name_own_edits(chat)))
            except Unavailable as exc:
                raise NotSent(str(exc)) from None
            self._edits.put(chat, history)
        return history

    async def _save_edits(self, chat: str, state: str) -> None:
        """Store the versions. Without them, a reaction to a later version is only noted."""
        try:
            if self._context is not None:
                await self._context.save_state(name_own_edits(chat), state)
        except Unavailable as exc:
            log.warning("an edit of Signal is not noted: %s", exc)

    async def _find_account(self, context: AdapterContext) -> None:
        """Ask signal-cli for its accounts until it answers. Raise `Forbidden` if this one is not among them."""
        failures = 0
        while True:
            try:
                accounts = await self._api.find_accounts()
            except (SignalUnreachable, SignalNoResponse, SignalApiError) as exc:
                context.report(LinkState.CONNECTING, str(exc))
            else:
                if accounts is None:
                    self._api.drop_account()
                elif self.account not in accounts:
                    raise Forbidden(NO_ACCOUNT)
                return
            failures += 1
            await self._sleep(_BACKOFF.seconds(failures))

    async def _pull_messages(self, context: AdapterContext, receiver: SignalReceiver) -> None:
        """Take messages, store them, and only then take more. One at a time; with a shared spool, which holds what this
        process does not get, several while they arrive."""
        busy = False
        while True:
            several = busy and self._spool.shared
            pulled = await self._pull(context, receiver, several=several)
            await receiver.receive_spool(pulled)
            await receiver.clear_spool()
            context.report(LinkState.CONNECTED, receiver.problem)
            busy = bool(pulled)

    async def _pull(
        self, context: AdapterContext, receiver: SignalReceiver, *, several: bool
    ) -> Sequence[object]:
        """Return the next messages. Retry until signal-cli answers. Raise `Forbidden` if the account is gone, and if
        another program receives."""
        failures = conflicts = 0
        wait = _PULL_SECONDS if self._spool.shared else _PULL_SECONDS_WITHOUT_SPOOL
        seconds, most = (_BATCH_SECONDS, _BATCH_SIZE) if several else (wait, 1)
        while True:
            try:
                found = await self._api.call(
                    "receive", seconds=seconds + _EXTRA_SECONDS, timeout=float(seconds), maxMessages=most
                )
            except (SignalUnreachable, SignalNoResponse) as exc:
                context.report(LinkState.CONNECTING, str(exc))
            except SignalApiError as exc:
                if exc.unknown_account:
                    raise Forbidden(NO_ACCOUNT) from None
                if exc.receiving:
                    conflicts += 1
                    if conflicts > _MAX_CONFLICTS:
                        raise Forbidden(RECEIVES_ITSELF) from None
                    await receiver.receive_spool()
                    await self._sleep(_CONFLICT_PAUSE_SECONDS)
                    continue
                context.report(LinkState.CONNECTING, str(exc))
            else:
                return found if isinstance(found, list) else []  # pyright: ignore[reportUnknownVariableType]
            # What signal-cli had written before it failed is in the spool.
            await receiver.receive_spool()
            failures += 1
            await self._sleep(_BACKOFF.seconds(failures))
