"""Browser sign-ins: create, check, list and end. Only digests of their secrets are stored."""

import hashlib
import hmac
import secrets
from datetime import timedelta

from keryx.core import ids
from keryx.core.sessions import Viewer
from keryx.engine.hub.verbs import HubPart, bind_read, bind_write, write_unit
from keryx.store import access
from keryx.store.access import SignIn
from keryx.store.db import Transaction

SIGN_IN_LIFETIME = timedelta(days=30)
_SEEN_INTERVAL = timedelta(hours=1)


class HubSignIns(HubPart):
    list_all = bind_read("sign_ins", access.list_sign_ins)
    end = bind_write("sign_in.end", access.remove_sign_in)

    @write_unit("sign_in.begin")
    def create(self, tx: Transaction, viewer: Viewer, *, browser: str) -> tuple[str, str]:
        """Return the id of a new sign-in and its secret, which cannot be read again."""
        secret = secrets.token_urlsafe(32)
        sign_in = SignIn(
            id=ids.new(tx.now),
            viewer=viewer,
            digest=_hash_secret(secret),
            browser=browser[:200],
            created_at=tx.now,
            seen_at=tx.now,
            expires_at=tx.now + SIGN_IN_LIFETIME,
        )
        access.add_sign_in(tx, sign_in)
        return sign_in.id, secret

    async def check(self, id_: str, secret: str) -> Viewer | None:
        """Return the viewer of a sign-in, `None` if it has ended or the secret is wrong."""
        sign_in = await self._database.read("sign_in.check", lambda tx: access.find_sign_in(tx, id_))
        if sign_in is None or not hmac.compare_digest(sign_in.digest, _hash_secret(secret)):
            return None
        if self._database.clock.now() - sign_in.seen_at > _SEEN_INTERVAL:
            await self._database.write("sign_in.see", lambda tx: access.touch_sign_in(tx, id_))
        return sign_in.viewer


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
