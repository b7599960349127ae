"""Line: calls that wait for Telegram to come back, and tell meanwhile how the connection stands."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from keryx.core.errors import Forbidden
from keryx.core.ports import Door, Link
from keryx.surfaces.gateway.telegram.api import Api, ApiError, Unanswered, Unreached

Sleep: TypeAlias = Callable[[float], Awaitable[None]]

BAD_TOKEN = "Telegram does not know this token: take the bot's token from @BotFather and run `keryx gateway setup telegram`"
TAKEN = "another program listens as this bot: stop it, or give each program a bot of its own"
HOOKED = (
    "a webhook is set for this bot, by another program: `keryx gateway setup telegram --take-over` removes it"
)

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0
_CONFLICTS = 5


class Line:
    """What cannot be mended by waiting is raised: `Forbidden` for a token that Telegram refuses and for a bot that
    somebody else listens to, `ApiError` for any other refusal."""

    def __init__(self, api: Api, door: Door, sleep: Sleep) -> None:
        self._api = api
        self._door = door
        self._sleep = sleep
        self._link = Link.CONNECTING

    async def call(self, method: str, *, seconds: float = 20.0, **params: object) -> Any:
        pause, conflicts = _FIRST_PAUSE, 0
        while True:
            try:
                found = await self._api.call(method, seconds=seconds, **params)
            except (Unreached, Unanswered) as exc:
                self._report(Link.CONNECTING, str(exc))
            except ApiError as exc:
                conflicts += exc.code == 409
                pause = max(pause, self._bear(exc, conflicts))
            else:
                self._report(Link.CONNECTED)
                return found
            await self._sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _bear(self, error: ApiError, conflicts: int) -> float:
        """How long to wait at least, or an error that waiting does not mend."""
        if error.code in (401, 404):
            raise Forbidden(BAD_TOKEN) from None
        if error.code == 429:
            self._report(Link.THROTTLED, f"Telegram asks to wait {error.retry_after:g} s")
            return error.retry_after
        if error.code == 409 and "webhook" in error.description.lower():
            raise Forbidden(HOOKED) from None
        if error.code == 409 and conflicts < _CONFLICTS:
            # The poll of a process that was just killed may still hang at Telegram.
            return _FIRST_PAUSE
        if error.code == 409:
            raise Forbidden(TAKEN) from None
        if error.code < 500:
            raise error
        self._report(Link.CONNECTING, str(error))
        return _FIRST_PAUSE

    def _report(self, link: Link, detail: str = "") -> None:
        if link is not self._link:
            self._link = link
            self._door.report(link, detail)
