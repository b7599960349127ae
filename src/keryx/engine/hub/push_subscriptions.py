"""Browsers that are told of what happens while the page is closed: connect one, and forget it."""

import importlib.util
import ipaddress
from urllib.parse import urlsplit

import anyio.to_thread

from keryx.client_address import is_loopback
from keryx.core import ids
from keryx.core.codec import decode_base64url
from keryx.core.errors import Invalid, Unavailable, format_install_command
from keryx.core.sessions import Viewer
from keryx.core.texts import Phrase
from keryx.engine.hub.verbs import HubPart, bind_write, write_unit
from keryx.engine.policy import Policy
from keryx.store import viewer_state
from keryx.store.db import Database, Transaction
from keryx.store.viewer_state import PushSubscription
from keryx.timing import WakeSignal

_MAX_ENDPOINT = 2_000
# Names of networks of one's own, which no push service has.
_LOCAL_NAMES = (".local", ".localhost", ".internal", ".lan", ".home.arpa")
_POINT_BYTES, _SECRET_BYTES = 65, 16
_WRONG = Phrase("push.wrong")


def check_endpoint(endpoint: str, *, loopback: bool = False) -> None:
    """Raise `Invalid` unless this can be the address of a browser at a push service: https, a public name, no port of its own.
    With `loopback` it may also be one of this machine."""
    try:
        address = urlsplit(endpoint)
        host, port = address.hostname or "", address.port
    except ValueError as exc:
        raise Invalid(_WRONG) from exc
    plain = (
        endpoint.isascii()
        and endpoint.isprintable()
        and " " not in endpoint
        and len(endpoint) <= _MAX_ENDPOINT
    )
    if not plain or "@" in address.netloc or address.fragment or "\\" in endpoint:
        raise Invalid(_WRONG)
    if loopback and address.scheme in ("http", "https") and is_loopback(host):
        return
    local = "." not in host or host.rstrip(".").endswith(_LOCAL_NAMES)
    if address.scheme != "https" or port not in (None, 443) or local or _is_number(host):
        raise Invalid(_WRONG)


def _is_number(host: str) -> bool:
    """Whether a host is an address in numbers, in any form that a resolver takes."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host.rstrip(".").rpartition(".")[2].removeprefix("0x").isdigit()
    return True


def load_notifications():
    """Return the module that sends notifications. It needs an optional extra, and is slow to import."""
    from keryx.engine.loops import push_notifications  # noqa: PLC0415

    return push_notifications


class HubPushSubscriptions(HubPart):
    remove_unsigned = bind_write("push.unsigned", viewer_state.remove_unsigned_subscriptions)

    def __init__(self, database: Database, *, policy: Policy) -> None:
        super().__init__(database)
        self._settings = policy.push
        self._key_file = policy.push_key
        # Signalled when the key of this installation is asked for: the first browser is about to be connected.
        self.key_wanted = WakeSignal()

    @property
    def available(self) -> bool:
        """Whether notifications are sent to browsers here."""
        return self._settings.enabled and self._key_file is not None and self.problem is None

    @property
    def problem(self) -> Phrase | None:
        """What has to be done before notifications can be sent, `None` if nothing."""
        if importlib.util.find_spec("cryptography") is None:
            return Phrase("push.extra", command=format_install_command("push"))
        return None if self._settings.enabled else Phrase("push.off")

    async def read_key(self) -> str:
        """Return the public key of this installation, which browsers ask for. The first call creates it. Raise `Unavailable`
        where nothing is sent."""
        if not self.available or self._key_file is None:
            raise Unavailable(self.problem or Phrase("push.off"))
        ensure = load_notifications().ServerKey.ensure
        key = await anyio.to_thread.run_sync(ensure, self._key_file)
        self.key_wanted.signal()
        return key.public

    async def save(
        self,
        viewer: Viewer,
        *,
        endpoint: str,
        public_key: str,
        secret: str,
        sign_in: str | None,
        prefix: str,
        language: str,
        with_text: bool | None,
    ) -> PushSubscription:
        """Connect a browser, or renew it; `with_text` stays as it was if it is `None`. Raise `Invalid` for an address or a key
        that cannot be that of a browser."""
        check_endpoint(endpoint, loopback=self._settings.loopback)
        try:
            lengths = len(decode_base64url(public_key)), len(decode_base64url(secret))
        except ValueError as exc:
            raise Invalid(_WRONG) from exc
        if lengths != (_POINT_BYTES, _SECRET_BYTES):
            raise Invalid(_WRONG)
        server_key = await self.read_key()

        def write(tx: Transaction) -> PushSubscription:
            known = viewer_state.find_subscription(tx, viewer, endpoint)
            chosen = known is not None and known.with_text if with_text is None else with_text
            return viewer_state.save_subscription(
                tx,
                PushSubscription(
                    id=ids.new(tx.now),
                    profile=viewer.profile,
                    principal=viewer.principal,
                    sign_in=sign_in,
                    prefix=prefix,
                    endpoint=endpoint,
                    public_key=public_key,
                    secret=secret,
                    server_key=server_key,
                    language=language,
                    with_text=chosen,
                    created_at=tx.now,
                ),
            )

        return await self._database.write("push.subscribe", write)

    @write_unit("push.unsubscribe")
    def remove(self, tx: Transaction, viewer: Viewer, id_: str) -> None:
        """Forget a browser of the viewer; one that is not known is no error."""
        viewer_state.remove_subscription(tx, id_, viewer=viewer)
