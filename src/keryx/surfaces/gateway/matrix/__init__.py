"""The adapter for one Matrix account: listens by sync, and sends under transaction ids, which a homeserver accepts once."""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from keryx import logs
from keryx.core.deliveries import Idempotency, Target
from keryx.core.errors import (
    Invalid,
    KeryxError,
    MessageGone,
    NotSent,
    Retryable,
    TargetGone,
    Throttled,
    format_install_command,
)
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import (
    Adapter,
    AdapterContext,
    AttachmentLimits,
    Capabilities,
    LengthUnit,
    OutgoingPart,
    RenderedPart,
    Streaming,
)
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.markdown import matrix_html
from keryx.markdown.matrix_html import MatrixText
from keryx.secrets import Secret
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.matrix import messages
from keryx.surfaces.gateway.matrix.encryption import (
    EXTRA,
    DeviceTrust,
    EncryptionUnavailable,
    RoomKeyMissing,
    UndecryptableMessage,
    UntrustedDevice,
)
from keryx.surfaces.gateway.matrix.encryption.control_files import build_account_folder
from keryx.surfaces.gateway.matrix.event_types import (
    ENCRYPTED,
    MEMBER,
    MESSAGE,
    POWER_LEVELS,
    EncryptionState,
    PowerLevels,
    RoomState,
    parse_content,
    parse_unsigned,
)
from keryx.surfaces.gateway.matrix.homeserver import Homeserver
from keryx.surfaces.gateway.matrix.messages import IDS, PLATFORM, ROLES, find_roles
from keryx.surfaces.gateway.matrix.rooms import EncryptedRooms
from keryx.surfaces.gateway.matrix.sync import SyncLoop
from keryx.timing import Sleep

if TYPE_CHECKING:
    # It needs an optional extra.
    from keryx.surfaces.gateway.matrix.encryption.olm_machine import OlmMachine

log = logging.getLogger(__name__)

_TYPING_SECONDS = 8.0
_CLOSE_SECONDS = 2.0


class MatrixSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[matrix]` in keryx.toml."""

    homeserver: str = ""
    # The full name of the account, such as @keryx:example.org.
    user: str = ""
    token: Secret = Secret()
    # The largest file that is fetched, in bytes.
    download: int = 20_000_000
    # Encrypted rooms are served, if the extra for it is installed.
    encryption: bool = True
    # Which devices are trusted in encrypted rooms: "first_use" or "verified".
    trust: DeviceTrust = DeviceTrust.FIRST_USE


def make(setup: AdapterSetup) -> Adapter | None:
    """The entry point. Return `None` if the platform is not configured; raise `Invalid` if a setting is missing."""
    settings = setup.read(MatrixSettings)
    if settings is None:
        return None
    setup.require(homeserver=settings.homeserver)
    if not settings.user.startswith("@") or ":" not in settings.user:
        raise Invalid(
            f"{setup.label}.user must be the full name of the account, such as @keryx:example.org: write it, or set {setup.variable_name('user')}"
        )
    setup.require(token=settings.token)
    server = Homeserver(settings.homeserver, settings.token.reveal(setup.environ))
    machine, reason = None, f"{setup.label}.encryption is off"
    if settings.encryption:
        try:
            from keryx.surfaces.gateway.matrix.encryption.olm_machine import OlmMachine  # noqa: PLC0415 an optional extra
        except ImportError as exc:
            reason = f"an extra is missing ({exc.name}): run `{format_install_command(EXTRA)}`"
        else:
            folder = build_account_folder(setup.home, settings.user)
            machine = OlmMachine(server, settings.user, folder, trust=settings.trust)
    return MatrixAdapter(
        server, settings.user, download=settings.download, machine=machine, no_encryption=reason
    )


class MatrixAdapter:
    platform = PLATFORM
    hook = None
    _capabilities = Capabilities(
        idempotency=Idempotency.NATIVE,
        edit=True,
        threads=True,
        typing=True,
        streaming=Streaming.EDIT,
        attachments=AttachmentLimits(),
        separate_files=True,
        limit=matrix_html.MAX_BODY_BYTES,
        unit=LengthUnit.BYTES,
        ids=IDS,
        roles=ROLES,
        notes=("Each room is apart: nothing said in another room is known here.",),
    )

    def __init__(
        self,
        server: Homeserver,
        user: str,
        *,
        download: int = MatrixSettings().download,
        sleep: Sleep = asyncio.sleep,
        machine: "OlmMachine | None" = None,
        no_encryption: str = "it is not configured",
    ) -> None:
        """`no_encryption` says why there is no machine."""
        self.account = user
        self._server = server
        self._max_download_bytes = download
        self._typing_rooms: set[str] = set()
        self._sleep = sleep
        self._machine = machine
        self._no_encryption = no_encryption if machine is None else ""
        self._encrypted_rooms = EncryptedRooms(server)
        # Without the keys, the rooms are open to every process.
        self.capabilities = msgspec.structs.replace(
            self._capabilities, sends_where_it_listens=machine is not None
        )

    def convert_source(self, source: Source) -> Source:
        kind = ChatType.DM if source.chat_type is ChatType.DM else ChatType.GROUP
        return msgspec.structs.replace(source, chat_type=kind, parent_chat=None)

    async def close(self) -> None:
        if self._machine is not None:
            self._machine.close()
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._server.close()

    async def listen(self, context: AdapterContext) -> None:
        listener = SyncLoop(
            self._server,
            self.account,
            context,
            sleep=self._sleep,
            encrypted_rooms=self._encrypted_rooms,
            machine=self._machine,
            no_encryption=self._no_encryption,
        )
        try:
            await listener.run()
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            listener.stop()

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return [RenderedPart(part.body, part) for part in matrix_html.render_parts(text)]

    async def typing(self, target: Target) -> None:
        await self._server.set_typing(target.chat, self.account, seconds=_TYPING_SECONDS)
        self._typing_rooms.add(target.chat)

    async def send(self, part: OutgoingPart) -> str:
        """Send once per key; an edit once per key and text. Return the id of the event; for an edit, of the event it edits."""
        room = part.target.chat
        state = await self._find_encryption(room)
        message = await self._build_message(part, encrypt=state is not None)
        if part.edits:
            await self._check_exists(room, part.edits)
            # The same edit must have the same transaction id, and another text of the same part another.
            digest = hashlib.sha256(msgspec.json.encode(message)).hexdigest()[:16]
            edit = messages.build_edit(message, part.edits)
            await self._send_content(room, f"{part.key}.edit.{digest}", edit, state)
            if part.final:
                await self._stop_typing(room)
            return part.edits
        placed = messages.add_relation(message, part.target, first=part.number == 0)
        try:
            sent = await self._send_content(room, part.key, placed, state)
        except MessageGone as exc:
            raise TargetGone(Phrase("gone.no_thread_here")) from exc
        if part.final:
            await self._stop_typing(room)
        return sent

    async def download(self, file: RemoteFile, *, limit: int) -> Attachment:
        most = min(limit, self._max_download_bytes)
        if file.size > most:
            raise Invalid(Phrase("file.too_large", limit=most))
        encrypted = messages.parse_encrypted_reference(file.reference)
        if encrypted is None:
            body = await self._server.download(file.reference, limit=most)
        else:
            body = await self._download_encrypted(*encrypted, limit=most)
        return Attachment(name=file.name, mime=file.mime, body=body)

    async def _download_encrypted(self, room: str, event: str, *, limit: int) -> bytes:
        """Fetch and decrypt the file of an event. Raise `Invalid` or `Unavailable`."""
        machine = await self._open_machine()
        found = await self._server.find_event(room, event)
        if found is None or parse_unsigned(found).redacted:
            raise Invalid(Phrase("file.gone"))
        try:
            content = parse_content(await machine.decrypt(room, found, replay_check=False))
        except (RoomKeyMissing, UntrustedDevice, UndecryptableMessage) as exc:
            raise Invalid(f"the message with it cannot be read: {exc}", Phrase("file.undecryptable")) from exc
        if content is None or content.file is None:
            raise Invalid(Phrase("file.nowhere"))
        body = await self._server.download(content.file.url, limit=limit)
        return await asyncio.to_thread(machine.decrypt_file, content.file, body)

    async def remove(self, target: Target, message: str) -> None:
        await self._check_exists(target.chat, message)
        await self._server.redact(target.chat, message, f"{message}.remove")

    async def roles(self, source: Source) -> Sequence[str]:
        """Return the roles by the power levels of the room; none for a user who is not in it."""
        room, user = source.chat or "", source.user or ""
        member = await self._server.find_state(room, MEMBER, RoomState, key=user)
        if member is None or member.membership != "join":
            return ()
        powers = await self._server.find_state(room, POWER_LEVELS, PowerLevels)
        return find_roles(user, powers, await self._server.find_creation(room))

    async def _find_encryption(self, room: str) -> EncryptionState | None:
        """Return how a room is encrypted, or `None`. Raise `NotSent` if that is not known: nothing may be sent then."""
        try:
            found = await self._encrypted_rooms.find(room)
        except Retryable as exc:
            raise Throttled(str(exc), after=exc.after, account=True) from exc
        except KeryxError as exc:
            raise NotSent(str(exc)) from exc
        return found or (self._machine.find_state(room) if self._machine is not None else None)

    async def _open_machine(self) -> "OlmMachine":
        """Return the machine with its keys. Raise `EncryptionUnavailable`."""
        if self._machine is None:
            raise EncryptionUnavailable(Phrase("delivery.encrypted", reason=self._no_encryption))
        await self._machine.wait_open()
        return self._machine

    async def _send_content(
        self, room: str, transaction: str, content: dict[str, Any], state: EncryptionState | None
    ) -> str:
        """Send a message, encrypted if the room is. Raise a `SendError`."""
        if state is None:
            return await self._server.send(room, transaction, content)
        try:
            machine = await self._open_machine()
            encrypted = await machine.encrypt(room, state, MESSAGE, content)
        except Retryable as exc:
            raise Throttled(str(exc), after=exc.after, account=True) from exc
        except KeryxError as exc:
            raise NotSent(str(exc)) from exc
        return await self._server.send(room, transaction, encrypted, kind=ENCRYPTED)

    async def _build_message(self, part: OutgoingPart, *, encrypt: bool) -> dict[str, Any]:
        if part.attachment is None:
            markup = part.markup if isinstance(part.markup, MatrixText) else None
            return messages.build_text(markup or matrix_html.render_plain(part.text), mark=part.mark)
        file = part.attachment
        if not encrypt:
            mxc = await self._server.upload(file.name, file.mime, file.body)
            return messages.build_file(file, mxc, mark=part.mark)
        try:
            machine = await self._open_machine()
        except KeryxError as exc:
            raise NotSent(str(exc)) from exc
        body, key = await asyncio.to_thread(machine.encrypt_file, file.body)
        # The homeserver sees neither the name nor the type.
        mxc = await self._server.upload("", "application/octet-stream", body)
        return messages.build_file(file, mxc, encrypted=key, mark=part.mark)

    async def _check_exists(self, room: str, event: str) -> None:
        """Raise `MessageGone` for a deleted message: a homeserver accepts edits of it, but clients do not show them."""
        try:
            found = await self._server.find_event(room, event)
        except KeryxError as exc:
            raise NotSent(Phrase("delivery.edit_unknown", reason=exc)) from exc
        if found is None or parse_unsigned(found).redacted:
            raise MessageGone(Phrase("delivery.edit_gone"))

    async def _stop_typing(self, room: str) -> None:
        """Stop the typing notification, which would outlast the message."""
        if room not in self._typing_rooms:
            return
        self._typing_rooms.discard(room)
        try:
            await self._server.set_typing(room, self.account, seconds=0)
        except KeryxError as exc:
            log.info("cannot stop typing in %s: %s", logs.hash_chat(room), exc)
