"""Settings of the web: who may come in, and under which names this place is known."""

import os
import re
from collections.abc import Mapping

import msgspec

from keryx.core.errors import Invalid
from keryx.surfaces.secrets import Secret

TOKEN = "KERYX_WEB_TOKEN"
_SHORTEST = 16
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")


class Web(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`secret` says where the token is: env:NAME or file:PATH; the variable KERYX_WEB_TOKEN goes before it. `hosts` are
    the names by which browsers may reach this place beside localhost and plain addresses. `https`: browsers
    reach it by https, through a proxy."""

    secret: str = ""
    hosts: tuple[str, ...] = ()
    https: bool = False

    def __post_init__(self) -> None:
        Secret(self.secret, what="token")
        for host in self.hosts:
            if not _HOST.match(host):
                raise ValueError(
                    f"hosts: {host[:80]!r} is not a name: write it in lower case, without https:// and port"
                )


def token(web: Web, environ: Mapping[str, str] | None = None) -> str:
    """The token that callers must show, empty if none is set. Raises `Invalid` if it cannot be read or is too short."""
    environ = os.environ if environ is None else environ
    found = environ.get(TOKEN, "").strip()
    if not found and web.secret:
        found = Secret(web.secret).reveal(environ, what="the token of the web")
    if found and len(found) < _SHORTEST:
        raise Invalid(
            f"the token of the web is too short: use at least {_SHORTEST} characters, as `openssl rand -hex 24` makes"
        )
    return found
