"""How mail servers are reached: their addresses, TLS, and the password or token of the account."""

import asyncio
import base64
import ipaddress
import shlex
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.secrets import Secret

CONNECT_SECONDS = 20.0
_TOKEN_SECONDS = 30.0
_LONGEST_TOKEN = 20_000
# The scheme, and its port. Those with an `s` begin with TLS, the others change to it by STARTTLS.
_PORTS = {"imap": 143, "imaps": 993, "smtp": 587, "smtps": 465}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server listens. A connection to another machine is always encrypted."""

    host: str
    port: int
    # TLS from the first byte on; otherwise STARTTLS.
    tls: bool

    @property
    def local(self) -> bool:
        """The server runs on this machine, so it may do without TLS."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(url: str, kind: str, label: str) -> ServerAddress:
    """Read `imaps://host[:port]` or `imap://host[:port]`, and the same for `smtp`. Raise `Invalid` with the name of the
    setting for anything else."""
    message = f"{label} must be an address such as {kind}s://{kind}.example.org"
    try:
        parts = urlsplit(url if "://" in url else f"{kind}s://{url}")
        port = parts.port
    except ValueError:
        raise Invalid(message) from None
    if parts.scheme not in (kind, f"{kind}s") or not parts.hostname or parts.path.strip("/"):
        raise Invalid(message)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise Invalid(f"{message}; user and password are settings of their own")
    return ServerAddress(parts.hostname, port or _PORTS[parts.scheme], parts.scheme.endswith("s"))


def create_tls_context(ca: str = "") -> ssl.SSLContext:
    """Return the context for connections. With `ca`, the certificates of that file are trusted instead of the system's."""
    try:
        return ssl.create_default_context(cafile=str(Path(ca).expanduser()) if ca else None)
    except (OSError, ssl.SSLError) as exc:
        raise Invalid(f"the certificates in {ca} cannot be read: {type(exc).__name__}") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class MailCredentials:
    """The account at both servers: a password, or a token for OAuth 2 (XOAUTH2) from a secret or a command."""

    user: str
    password: Secret = field(default_factory=Secret)
    token: Secret = field(default_factory=Secret)
    # Prints a token, which may be used for a while.
    token_command: str = ""
    environ: dict[str, str] = field(default_factory=dict[str, str], repr=False)

    @property
    def uses_token(self) -> bool:
        return bool(self.token or self.token_command)

    async def read_password(self) -> str:
        return await asyncio.to_thread(self.password.reveal, self.environ)

    async def read_token(self) -> str:
        """Return the current token. Raise `Forbidden` if there is none, `Unavailable` if the command takes too long."""
        if not self.token_command:
            return await asyncio.to_thread(self.token.reveal, self.environ)
        try:
            process = await asyncio.create_subprocess_exec(
                *shlex.split(self.token_command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except (OSError, ValueError) as exc:
            raise Forbidden(f"token_command cannot be run: {type(exc).__name__}") from None
        try:
            async with asyncio.timeout(_TOKEN_SECONDS):
                out, _ = await process.communicate()
        except TimeoutError:
            raise Unavailable(f"token_command took longer than {_TOKEN_SECONDS:.0f} seconds") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        token = out[:_LONGEST_TOKEN].decode("ascii", "ignore").strip()
        if process.returncode or not token:
            raise Forbidden(f"token_command printed no token (exit code {process.returncode})")
        return token

    async def build_plain(self) -> str:
        """Return the initial response of SASL PLAIN."""
        return _encode(f"\0{self.user}\0{await self.read_password()}")

    async def build_login(self) -> tuple[str, str]:
        """Return the two responses of AUTH LOGIN."""
        return _encode(self.user), _encode(await self.read_password())

    async def build_xoauth2(self) -> str:
        """Return the initial response of SASL XOAUTH2."""
        return _encode(f"user={self.user}\1auth=Bearer {await self.read_token()}\1\1")


def _encode(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
