"""Settings of the web: who may come in, and under which names this place is known."""

import os
import re
from collections.abc import Mapping

import msgspec

from keryx.core.errors import Invalid
from keryx.surfaces.secrets import Secret
from keryx.surfaces.web import passwords

TOKEN = "KERYX_WEB_TOKEN"
PASSWORD = "KERYX_WEB_PASSWORD"
_SHORTEST = 16
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")


class Web(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`secret` says where the token is, `password_from` where the password or its hash is: env:NAME or file:PATH; the
    variables KERYX_WEB_TOKEN and KERYX_WEB_PASSWORD go before them. `hosts` are the names by which browsers may reach
    this place beside localhost and plain addresses. `https`: browsers reach it by https, through a proxy."""

    secret: str = ""
    password_from: str = ""
    hosts: tuple[str, ...] = ()
    https: bool = False

    def __post_init__(self) -> None:
        Secret(self.secret, what="token")
        Secret(self.password_from, what="password")
        for host in self.hosts:
            if not _HOST.match(host):
                raise ValueError(
                    f"hosts: {host[:80]!r} is not a name: write it in lower case, without https:// and port"
                )


def token(web: Web, environ: Mapping[str, str] | None = None) -> str:
    """The token that callers must show, empty if none is set. Raises `Invalid` if it cannot be read or is too short."""
    found = _given(TOKEN, web.secret, environ, what="the token of the web")
    if found and len(found) < _SHORTEST:
        raise Invalid(
            f"the token of the web is too short: use at least {_SHORTEST} characters, as `openssl rand -hex 24` makes"
        )
    return found


def password(web: Web, environ: Mapping[str, str] | None = None) -> str:
    """The hash of the password that people sign in with, empty if none is set. Raises `Invalid` as `token` does."""
    found = _given(PASSWORD, web.password_from, environ, what="the password of the web")
    return passwords.kept(found) if found else ""


def _given(variable: str, reference: str, environ: Mapping[str, str] | None, *, what: str) -> str:
    environ = os.environ if environ is None else environ
    found = environ.get(variable, "").strip()
    return found or (Secret(reference).reveal(environ, what=what) if reference else "")
