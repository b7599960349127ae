"""Sign-ins: who may use a browser without showing the token again, until when, and how that is taken back."""

import hashlib
import hmac
import secrets
from datetime import timedelta

from keryx.core import ids
from keryx.core.ports import Clock
from keryx.core.sessions import Viewer
from keryx.store import signins
from keryx.store.database import Database
from keryx.store.signins import SignIn

LIFE = timedelta(days=30)
_SEEN = timedelta(hours=1)


class SignIns:
    """The store keeps digests only: whoever reads it cannot sign in with what is there."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def begin(self, viewer: Viewer, *, browser: str) -> tuple[str, str]:
        """A new sign-in: its id, and the secret that proves it, told this once."""
        now, secret = self._clock.now(), secrets.token_urlsafe(32)
        made = SignIn(
            id=ids.new(now),
            viewer=viewer,
            digest=_digest(secret),
            browser=browser[:200],
            created_at=now,
            seen_at=now,
            expires_at=now + LIFE,
        )
        await self._database.write("sign_in.begin", lambda tx: signins.add(tx, made))
        return made.id, secret

    async def check(self, id_: str, secret: str) -> Viewer | None:
        """Who a sign-in stands for, `None` if it has ended or the secret is wrong."""
        now = self._clock.now()
        found = await self._database.read("sign_in.check", lambda tx: signins.find(tx, id_, now=now))
        if found is None or not hmac.compare_digest(found.digest, _digest(secret)):
            return None
        if now - found.seen_at > _SEEN:
            await self._database.write("sign_in.see", lambda tx: signins.see(tx, id_, now=now))
        return found.viewer

    async def every(self, viewer: Viewer) -> list[SignIn]:
        now = self._clock.now()
        return await self._database.read("sign_ins", lambda tx: signins.every(tx, viewer, now=now))

    async def end(self, viewer: Viewer, id_: str) -> None:
        await self._database.write("sign_in.end", lambda tx: signins.remove(tx, viewer, id_))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
