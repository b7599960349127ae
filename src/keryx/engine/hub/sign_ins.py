"""Browser sign-ins: create, check, list and end. Only digests of their secrets are stored."""

import hashlib
import hmac
import secrets
from datetime import timedelta

from keryx.core import ids
from keryx.core.clock import Clock
from keryx.core.sessions import Viewer
from keryx.store import access
from keryx.store.access import SignIn
from keryx.store.db.database import Database

SIGN_IN_LIFETIME = timedelta(days=30)
_SEEN_INTERVAL = timedelta(hours=1)


class HubSignIns:
    """The store keeps digests only: whoever reads it cannot sign in with what is there."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def create(self, viewer: Viewer, *, browser: str) -> tuple[str, str]:
        """A new sign-in: its id, and the secret that proves it, told this once."""
        now, secret = self._clock.now(), secrets.token_urlsafe(32)
        made = SignIn(
            id=ids.new(now),
            viewer=viewer,
            digest=_hash_secret(secret),
            browser=browser[:200],
            created_at=now,
            seen_at=now,
            expires_at=now + SIGN_IN_LIFETIME,
        )
        await self._database.write("sign_in.begin", lambda tx: access.add_sign_in(tx, made))
        return made.id, secret

    async def check(self, id_: str, secret: str) -> Viewer | None:
        """Who a sign-in stands for, `None` if it has ended or the secret is wrong."""
        now = self._clock.now()
        found = await self._database.read("sign_in.check", lambda tx: access.find_sign_in(tx, id_))
        if found is None or not hmac.compare_digest(found.digest, _hash_secret(secret)):
            return None
        if now - found.seen_at > _SEEN_INTERVAL:
            await self._database.write("sign_in.see", lambda tx: access.touch_sign_in(tx, id_))
        return found.viewer

    async def list_all(self, viewer: Viewer) -> list[SignIn]:
        return await self._database.read("sign_ins", lambda tx: access.list_sign_ins(tx, viewer))

    async def end(self, viewer: Viewer, id_: str) -> None:
        await self._database.write("sign_in.end", lambda tx: access.remove_sign_in(tx, viewer, id_))


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
