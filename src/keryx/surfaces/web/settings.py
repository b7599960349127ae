"""Settings of the web surface, and the hashing of its password. Imported by every command, so it loads neither starlette nor the engine."""

import hashlib
import hmac
import os
import re
import secrets
import unicodedata
from collections.abc import Mapping
from datetime import timedelta

import msgspec

from keryx.client_address import parse_network
from keryx.core.errors import Invalid
from keryx.secrets import Secret

MIN_PASSWORD_CHARS = 8
_PASSWORD_HASH = re.compile(r"scrypt:([0-9a-f]{32}):([0-9a-f]{64})\Z")
TOKEN_VARIABLE = "KERYX_WEB_TOKEN"
PASSWORD_VARIABLE = "KERYX_WEB_PASSWORD"
_MIN_TOKEN_CHARS = 16
_PUBLIC_ADDRESS = re.compile(r"https?://[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:\d{1,5})?\Z")
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")


def hash_password(password: str) -> str:
    """Return the hash of a password. Raise `Invalid` if it is too short. Takes tens of milliseconds, as `verify_password` does."""
    if len(password) < MIN_PASSWORD_CHARS:
        raise Invalid(f"this password is too short: use at least {MIN_PASSWORD_CHARS} characters")
    salt = secrets.token_bytes(16)
    return f"scrypt:{salt.hex()}:{_derive_key(password, salt).hex()}"


def ensure_hash(text: str) -> str:
    """Return the hash of a password; a text that is a hash already is returned unchanged."""
    return text if _PASSWORD_HASH.match(text) else hash_password(text)


def verify_password(password: str, hashed: str) -> bool:
    match = _PASSWORD_HASH.match(hashed)
    assert match is not None
    return hmac.compare_digest(_derive_key(password, bytes.fromhex(match[1])), bytes.fromhex(match[2]))


def _derive_key(password: str, salt: bytes) -> bytes:
    # Keyboards compose accented letters differently, which users cannot see.
    text = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=1 << 14, r=8, p=1, dklen=32)


class WebSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Where the token is: env:NAME or file:PATH. The variable KERYX_WEB_TOKEN takes precedence.
    secret: str = ""
    # Where the password or its hash is, in the same form. The variable KERYX_WEB_PASSWORD takes precedence.
    password_from: str = ""
    # Host names that browsers may use, besides localhost and IP addresses.
    hosts: tuple[str, ...] = ()
    # The address under which others reach this Keryx, such as https://keryx.example. Without it, no conversation can be shared.
    public_address: str = ""
    # Whether browsers use https, through a proxy.
    https: bool = False
    # Addresses and networks of proxies whose X-Forwarded-For is believed.
    trusted_proxies: tuple[str, ...] = ()
    # How many connections there may be, in all and from one address, and how many of them may be event streams.
    connections: int = 1_200
    connections_per_address: int = 100
    streams: int = 500
    # How long a client may take to send the head of its first request, and to begin another one.
    head: timedelta = timedelta(seconds=10)
    idle: timedelta = timedelta(seconds=30)
    # How long a client may send nothing of a body, or read nothing of an answer.
    stall: timedelta = timedelta(seconds=20)

    def __post_init__(self) -> None:
        values = msgspec.structs.asdict(self)
        for name in ("connections", "connections_per_address", "streams"):
            if values[name] < 1:
                raise ValueError(f"{name}: give a number from 1 on")
        for name in ("head", "idle", "stall"):
            if values[name] < timedelta(seconds=1):
                raise ValueError(f"{name}: give at least 1s")
        if self.public_address and not _PUBLIC_ADDRESS.match(self.public_address):
            raise ValueError(
                f"public_address: {self.public_address[:80]!r} is not an address: write https://keryx.example, without a path"
            )
        for proxy in self.trusted_proxies:
            try:
                parse_network(proxy)
            except ValueError as exc:
                raise ValueError(
                    f"trusted_proxies: {proxy[:80]!r} is neither an address nor a network: write 10.0.0.5 or 10.0.0.0/8"
                ) from exc
        Secret(self.secret, what="token")
        Secret(self.password_from, what="password")
        for host in self.hosts:
            if not _HOST_NAME.match(host):
                raise ValueError(
                    f"hosts: {host[:80]!r} is not a name: write it in lower case, without https:// and port"
                )

    @property
    def secure_address(self) -> str:
        """The address that browsers use with encryption, empty if it is not known."""
        if self.public_address.startswith("https://"):
            return self.public_address
        return f"https://{self.hosts[0]}" if self.https and self.hosts else ""


def read_token(web: WebSettings, environ: Mapping[str, str] | None = None) -> str:
    """Return the API token, or an empty text if none is set. Raise `Invalid` if it cannot be read or is too short."""
    token = _read_secret(TOKEN_VARIABLE, web.secret, environ, name="web.secret")
    if token and len(token) < _MIN_TOKEN_CHARS:
        raise Invalid(
            f"the token of the web is too short: use at least {_MIN_TOKEN_CHARS} characters, as `openssl rand -hex 24` makes"
        )
    return token


def read_password_hash(web: WebSettings, environ: Mapping[str, str] | None = None) -> str:
    """Return the hash of the password, or an empty text if none is set. Raise `Invalid` as `read_token` does."""
    password = _read_secret(PASSWORD_VARIABLE, web.password_from, environ, name="web.password_from")
    return ensure_hash(password) if password else ""


def _read_secret(variable: str, reference: str, environ: Mapping[str, str] | None, *, name: str) -> str:
    environ = os.environ if environ is None else environ
    value = environ.get(variable, "").strip()
    return value or (Secret(reference, name=name).reveal(environ) if reference else "")
