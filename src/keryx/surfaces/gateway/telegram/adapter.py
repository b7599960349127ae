"""Adapter: one Telegram bot, by long polling or by a webhook."""

import asyncio
import hmac
import json
import logging
from collections.abc import Sequence
from datetime import timedelta
from urllib.parse import urlsplit

import anyio
import msgspec

from keryx.core.deliveries import Target
from keryx.core.errors import Forbidden, Invalid, Throttled, Unavailable
from keryx.core.ports import Capabilities, Door, Hook, Parcel, Request, Response, Unit
from keryx.core.source import Source
from keryx.surfaces.gateway.settings import Setup
from keryx.surfaces.gateway.telegram import sending
from keryx.surfaces.gateway.telegram.api import Api, ApiError, Unanswered, Unreached
from keryx.surfaces.gateway.telegram.flood import Flood
from keryx.surfaces.gateway.telegram.intake import Intake
from keryx.surfaces.gateway.telegram.line import BAD_TOKEN, HOOKED, Line, Sleep
from keryx.surfaces.gateway.telegram.parse import IDS, PLATFORM, ROLES, Me, roles
from keryx.surfaces.gateway.telegram.settings import (
    Mode,
    TelegramSettings,
    check_secret,
    check_token,
    check_url,
)
from keryx.surfaces.gateway.telegram.types import KINDS, User

log = logging.getLogger(__name__)

_POLL_SECONDS = 50
_LONGEST_HELP = 256
_MOST_COMMANDS = 100
_CLOSE_SECONDS = 2.0


def make(setup: Setup) -> "TelegramAdapter | None":
    """The bot that the settings speak of. `Invalid` says what they lack."""
    settings = setup.read(TelegramSettings)
    if settings is None:
        return None
    if not settings.token:
        raise Invalid(
            "telegram.token is missing: run `keryx gateway setup telegram`, or set KERYX_TELEGRAM_TOKEN"
        )
    secret = ""
    if settings.mode is Mode.WEBHOOK:
        if not settings.secret or not settings.url:
            raise Invalid("telegram.mode = webhook needs `url`, the public address of Keryx, and a `secret`")
        secret = check_secret(settings.secret.reveal(setup.environ))
    return TelegramAdapter(settings.token.reveal(setup.environ), settings, secret=secret)


class TelegramAdapter:
    platform = PLATFORM

    def __init__(
        self,
        token: str,
        settings: TelegramSettings = TelegramSettings(),
        *,
        secret: str = "",
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self.account = check_token(token)
        self._settings = settings
        self._secret = secret
        self._sleep = sleep
        self._api = Api(token, check_url("base_url", settings.base_url))
        self._flood = Flood()
        self._intake: Intake | None = None
        self.capabilities = Capabilities(
            edit=True,
            threads=True,
            typing=True,
            media=True,
            buttons=True,
            limit=sending.LIMIT.size,
            unit=Unit.UTF16,
            chat_interval=_interval(settings.per_chat),
            account_interval=_interval(settings.per_second),
            pii_safe=True,
            ids=IDS,
            roles=ROLES,
        )

    @property
    def hook(self) -> Hook | None:
        if self._settings.mode is not Mode.WEBHOOK:
            return None
        return Hook(path=PLATFORM, answer=self._posted)

    async def listen(self, door: Door) -> None:
        line = Line(self._api, door, self._sleep)
        try:
            me = await self._introduce(line, door)
            self._intake = Intake(self._api, door, me)
            if self._settings.mode is Mode.WEBHOOK:
                await self._await_posts(line)
            else:
                await self._poll(line, door, self._intake)
        except asyncio.CancelledError:
            await self.close()
            raise
        finally:
            self._intake = None

    async def close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._api.close()

    async def typing(self, target: Target) -> None:
        await sending.typing(self._api, target)

    def parts(self, text: str) -> Sequence[str]:
        return sending.parts(text)

    async def send(self, parcel: Parcel) -> str:
        try:
            return await sending.send(self._api, parcel)
        except Throttled as exc:
            raise self._flood.judged(exc, parcel.target.chat) from None

    async def roles(self, source: Source) -> Sequence[str]:
        """Who runs a group or channel. What speaks as the chat itself is one of its administrators."""
        if source.user == source.chat:
            return ROLES[1:]
        try:
            found = await self._api.call("getChatMember", chat_id=source.chat, user_id=source.user)
        except ApiError as exc:
            if exc.code in (400, 403):
                return ()
            raise Unavailable(str(exc)) from None
        except (Unreached, Unanswered) as exc:
            raise Unavailable(str(exc)) from None
        return roles(found)

    async def _introduce(self, line: Line, door: Door) -> Me:
        """Learn who we are, and show the commands in Telegram's menu."""
        try:
            bot = msgspec.convert(await line.call("getMe"), User)
        except (ApiError, msgspec.ValidationError):
            raise Forbidden(BAD_TOKEN) from None
        menu = [
            {"command": item.name.replace("-", "_"), "description": item.help[:_LONGEST_HELP]}
            for item in door.menu[:_MOST_COMMANDS]
        ]
        try:
            await line.call("setMyCommands", commands=menu)
        except ApiError as exc:
            log.warning("the menu of commands is not shown: %s", exc)
        names = frozenset(item.name for item in door.menu) | {"start"}
        return Me(id=bot.id, username=bot.username, commands=names)

    async def _poll(self, line: Line, door: Door, intake: Intake) -> None:
        await self._drop_own_webhook(line)
        offset = int(door.cursor) if door.cursor else None
        while True:
            batch = await line.call(
                "getUpdates",
                seconds=_POLL_SECONDS + 10,
                offset=offset,
                timeout=_POLL_SECONDS,
                allowed_updates=KINDS,
            )
            reached = await intake.take(batch)
            if batch and reached is None:
                await self._sleep(_POLL_SECONDS)
            offset = reached if reached is not None else offset

    async def _drop_own_webhook(self, line: Line) -> None:
        """Telegram gives nothing to a poller while a webhook is set. Ours is removed, another's is not ours to end."""
        found = await line.call("getWebhookInfo")
        url = str(found.get("url") or "") if isinstance(found, dict) else ""  # pyright: ignore
        if not url:
            return
        if urlsplit(url).path != f"/hooks/{PLATFORM}":
            raise Forbidden(HOOKED)
        await line.call("deleteWebhook", drop_pending_updates=False)

    async def _await_posts(self, line: Line) -> None:
        # One connection at a time, so that messages come in the order in which they were written.
        await line.call(
            "setWebhook",
            url=f"{check_url('url', self._settings.url)}/hooks/{PLATFORM}",
            secret_token=self._secret,
            max_connections=1,
            allowed_updates=KINDS,
            drop_pending_updates=False,
        )
        await asyncio.Event().wait()

    async def _posted(self, request: Request) -> Response:
        """Take one update in. 200 only once it is stored, so that Telegram repeats what was not."""
        given = request.headers.get("x-telegram-bot-api-secret-token", "")
        if not hmac.compare_digest(given.encode(), self._secret.encode()):
            return Response(status=401)
        if self._intake is None:
            return Response(status=503)
        try:
            update = json.loads(request.body)
        except (ValueError, RecursionError):
            return Response(status=400)
        if not isinstance(update, dict):
            return Response(status=400)
        try:
            await self._intake.take_one(update)  # pyright: ignore[reportUnknownArgumentType]
        except Unavailable:
            return Response(status=503)
        return Response()


def _interval(per_second: float) -> timedelta:
    return timedelta(seconds=1 / per_second) if per_second > 0 else timedelta(0)
