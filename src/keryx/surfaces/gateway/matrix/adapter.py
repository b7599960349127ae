"""The Matrix adapter: listens by sync, sends under transaction ids, which the homeserver takes once only."""

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import msgspec

from keryx.core.deliveries import Idempotency, Target
from keryx.core.errors import Gone, Invalid, KeryxError, NotSent, Refused
from keryx.core.ports import Adapter, Capabilities, Door, Parcel, Unit
from keryx.core.source import Source
from keryx.surfaces.gateway.matrix import content
from keryx.surfaces.gateway.matrix.api import Homeserver
from keryx.surfaces.gateway.matrix.events import MEMBER, POWERS, Powers, State, unsigned_of
from keryx.surfaces.gateway.matrix.listening import Listener, Sleep
from keryx.surfaces.gateway.matrix.parse import IDS, PLATFORM, ROLES, roles
from keryx.surfaces.gateway.render import matrix as render
from keryx.surfaces.gateway.render import part
from keryx.surfaces.gateway.settings import Setup
from keryx.surfaces.secrets import Secret

log = logging.getLogger(__name__)

_TYPING_SECONDS = 8.0
_CLOSE_SECONDS = 2.0


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[matrix]` in keryx.toml. `user` is the full name of the account, such as @keryx:example.org; `download` is
    the most bytes of a file that are fetched."""

    homeserver: str = ""
    user: str = ""
    token: Secret = Secret()
    download: int = 20_000_000


def make(setup: Setup) -> Adapter | None:
    """The adapter of the account that the settings name; `None` when they name none."""
    settings = setup.read(Settings)
    if settings is None:
        return None
    if not settings.homeserver:
        raise Invalid(
            f"matrix.homeserver is missing: write its address, or set {setup.variable('homeserver')}"
        )
    if not settings.user.startswith("@") or ":" not in settings.user:
        raise Invalid(
            f"matrix.user must be the full name of the account, such as @keryx:example.org: write it, or set {setup.variable('user')}"
        )
    if not settings.token:
        raise Invalid(
            f"matrix.token is missing: write env:NAME or file:PATH, or set {setup.variable('token')}"
        )
    server = Homeserver(settings.homeserver, settings.token.reveal(setup.environ))
    return MatrixAdapter(server, settings.user, download=settings.download)


class MatrixAdapter:
    platform = PLATFORM
    hook = None
    capabilities = Capabilities(
        idempotency=Idempotency.NATIVE,
        edit=True,
        threads=True,
        typing=True,
        media=True,
        limit=render.BUDGET,
        unit=Unit.BYTES,
        ids=IDS,
        roles=ROLES,
        notes=("Each room is apart: nothing said in another room is known here.",),
    )

    def __init__(
        self,
        server: Homeserver,
        user: str,
        *,
        download: int = Settings().download,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.account = user
        self._server = server
        self._download = download
        self._typing: set[str] = set()
        self._sleep = sleep

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._server.close()

    async def listen(self, door: Door) -> None:
        listener = Listener(self._server, self.account, door, limit=self._download, sleep=self._sleep)
        try:
            await listener.run()
        except asyncio.CancelledError:
            await self.close()
            raise

    def parts(self, text: str) -> Sequence[str]:
        return [part.dumps(piece) for piece in render.parts(text)]

    async def typing(self, target: Target) -> None:
        await self._server.typing(target.chat, self.account, seconds=_TYPING_SECONDS)
        self._typing.add(target.chat)

    async def send(self, parcel: Parcel) -> str:
        """Send once per key; an edit once per key and text. Gives the id of the event, of an edit the id of the first."""
        message = await self._message(parcel)
        room = parcel.target.chat
        if parcel.edits:
            await self._still_there(room, parcel.edits)
            await self._server.send(room, _revision(parcel, message), content.edit(message, parcel.edits))
            return parcel.edits
        placed = content.placed(message, parcel.target, first=parcel.part == 0)
        try:
            sent = await self._server.send(room, parcel.key, placed)
        except Gone as exc:
            raise Refused("the thread to answer in is not there") from exc
        await self._stop_typing(room)
        return sent

    async def roles(self, source: Source) -> Sequence[str]:
        """By the powers that a person who is in the room has there."""
        room, user = source.chat or "", source.user or ""
        there = await self._server.state(room, MEMBER, State, key=user)
        if there is None or there.membership != "join":
            return ()
        powers = await self._server.state(room, POWERS, Powers)
        return roles(user, powers, await self._server.created(room))

    async def _message(self, parcel: Parcel) -> dict[str, Any]:
        if parcel.attachment is None:
            return content.text(part.loads(parcel.text, render.Rendered), again=parcel.again)
        given = parcel.attachment
        mxc = await self._server.upload(given.name, given.mime, given.body)
        return content.file(given, mxc, again=parcel.again)

    async def _still_there(self, room: str, event: str) -> None:
        """A homeserver takes edits of deleted messages, and shows them to nobody."""
        try:
            found = await self._server.event(room, event)
        except KeryxError as exc:
            raise NotSent(f"the message to edit cannot be looked up: {exc}") from exc
        if found is None or unsigned_of(found).redacted:
            raise Gone("the message to edit is not there")

    async def _stop_typing(self, room: str) -> None:
        """Homeservers show that somebody writes until its time is over, even when the message has come."""
        if room not in self._typing:
            return
        self._typing.discard(room)
        try:
            await self._server.typing(room, self.account, seconds=0)
        except KeryxError as exc:
            log.info("cannot stop typing in %s: %s", room, exc)


def _revision(parcel: Parcel, message: Mapping[str, Any]) -> str:
    """The transaction of an edit: the same for the same text under the same key."""
    digest = hashlib.sha256(msgspec.json.encode(message)).hexdigest()[:16]
    return f"{parcel.key}.edit.{digest}"
