"""Settings of the web surface, and the hashing of its password. Imported by every command, so it loads neither starlette nor the engine."""

import hashlib
import hmac
import os
import re
import secrets
import unicodedata
from collections.abc import Mapping

import msgspec

from keryx.core.errors import Invalid
from keryx.secrets import Secret

MIN_PASSWORD_CHARS = 8
_PASSWORD_HASH = re.compile(r"scrypt:([0-9a-f]{32}):([0-9a-f]{64})\Z")
TOKEN_VARIABLE = "KERYX_WEB_TOKEN"
PASSWORD_VARIABLE = "KERYX_WEB_PASSWORD"
_MIN_TOKEN_CHARS = 16
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")


def hash_password(password: str) -> str:
    """What is kept of a password. Raises `Invalid` for a short one. Takes tens of milliseconds, as `fits` does."""
    if len(password) < MIN_PASSWORD_CHARS:
        raise Invalid(f"this password is too short: use at least {MIN_PASSWORD_CHARS} characters")
    salt = secrets.token_bytes(16)
    return f"scrypt:{salt.hex()}:{_derive_key(password, salt).hex()}"


def ensure_hash(text: str) -> str:
    """The hash of a password, from the password itself or from its hash."""
    return text if _PASSWORD_HASH.match(text) else hash_password(text)


def verify_password(given: str, kept: str) -> bool:
    """Whether somebody gave the password that a hash was made of."""
    found = _PASSWORD_HASH.match(kept)
    assert found is not None
    return hmac.compare_digest(_derive_key(given, bytes.fromhex(found[1])), bytes.fromhex(found[2]))


def _derive_key(password: str, salt: bytes) -> bytes:
    # Keyboards differ in how they compose a letter; a person does not see that.
    text = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=1 << 14, r=8, p=1, dklen=32)


class WebSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
            if not _HOST_NAME.match(host):
                raise ValueError(
                    f"hosts: {host[:80]!r} is not a name: write it in lower case, without https:// and port"
                )


def read_token(web: WebSettings, environ: Mapping[str, str] | None = None) -> str:
    """The token that callers must show, empty if none is set. Raises `Invalid` if it cannot be read or is too short."""
    found = _read_secret(TOKEN_VARIABLE, web.secret, environ, what="the token of the web")
    if found and len(found) < _MIN_TOKEN_CHARS:
        raise Invalid(
            f"the token of the web is too short: use at least {_MIN_TOKEN_CHARS} characters, as `openssl rand -hex 24` makes"
        )
    return found


def read_password_hash(web: WebSettings, environ: Mapping[str, str] | None = None) -> str:
    """The hash of the password that people sign in with, empty if none is set. Raises `Invalid` as `token` does."""
    found = _read_secret(PASSWORD_VARIABLE, web.password_from, environ, what="the password of the web")
    return ensure_hash(found) if found else ""


def _read_secret(variable: str, reference: str, environ: Mapping[str, str] | None, *, what: str) -> str:
    environ = os.environ if environ is None else environ
    found = environ.get(variable, "").strip()
    return found or (Secret(reference).reveal(environ, what=what) if reference else "")
