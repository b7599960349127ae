"""Web Push: the key of this installation, the encryption of a notification (RFC 8291), the signature of a request (RFC 8292), and the requests to the push services of browsers. Needs the optional cryptography package."""

import hashlib
import json
import os
import secrets
import socket
import ssl
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import anyio
import httpx
import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from keryx.client_address import is_public
from keryx.core.codec import decode_base64url, encode_base64url
from keryx.core.durations import parse_retry_after
from keryx.core.errors import StoreBroken

_RECORD_SIZE = 4_096
# What fits into one record beside its header, the tag and the delimiter. All push services take that.
MAX_PLAINTEXT = _RECORD_SIZE - 86 - 17
# Texts are filled up to a multiple of this, so that their length says little.
_BLOCK = 256
_TOKEN_LIFETIME = timedelta(hours=12)
_SECONDS = 20.0
_SENT = frozenset({200, 201, 202, 204})
# The subscription has ended.
_GONE = frozenset({404, 410})
_TRY_AGAIN = frozenset({408, 425, 429})


class PushOutcome(StrEnum):
    SENT = "sent"
    # The browser is not to be told anything any more.
    GONE = "gone"
    RETRY = "retry"
    REFUSED = "refused"


class PushResult(msgspec.Struct, frozen=True, kw_only=True):
    outcome: PushOutcome
    # How long the service asks to wait.
    after: timedelta = timedelta(0)
    detail: str = ""


class ServerKey:
    """The key by which push services recognise this installation."""

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        self._private = private
        self.public = encode_base64url(
            private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        )

    @classmethod
    def find(cls, path: Path) -> "ServerKey | None":
        """Read the key, `None` before there is one. Raise `StoreBroken` if the file is damaged. Blocks."""
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            private = load_pem_private_key(text, password=None)
        except ValueError as exc:
            raise StoreBroken(
                f"{path} is no key: bring it back from a backup, or remove it. Then browsers have to be connected again"
            ) from exc
        if not isinstance(private, ec.EllipticCurvePrivateKey) or not isinstance(private.curve, ec.SECP256R1):
            raise StoreBroken(f"{path} is another kind of key: bring it back from a backup, or remove it")
        return cls(private)

    @classmethod
    def ensure(cls, path: Path) -> "ServerKey":
        """Read the key. The first call creates it, readable only by the owner of the process. Blocks."""
        known = cls.find(path)
        if known is not None:
            return known
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        # The file appears whole or not at all, and the first of several processes makes it.
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, path)
            except FileExistsError:
                pass
        finally:
            draft.unlink(missing_ok=True)
        return cls.ensure(path)

    def authorize(self, endpoint: str, *, contact: str, now: datetime) -> str:
        """Return the header Authorization of a request to a push service."""
        address = urlsplit(endpoint)
        claims = {
            "aud": f"{address.scheme}://{address.netloc}",
            "exp": int((now + _TOKEN_LIFETIME).timestamp()),
        }
        if contact:
            claims["sub"] = contact
        head, body = (
            encode_base64url(json.dumps(part, separators=(",", ":")).encode())
            for part in ({"typ": "JWT", "alg": "ES256"}, claims)
        )
        signed = f"{head}.{body}"
        r, s = decode_dss_signature(self._private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = encode_base64url(r.to_bytes(32, "big") + s.to_bytes(32, "big"))
        return f"vapid t={signed}.{signature}, k={self.public}"


def encrypt(
    plaintext: bytes,
    *,
    public_key: str,
    secret: str,
    block: int = _BLOCK,
    salt: bytes | None = None,
    sender: ec.EllipticCurvePrivateKey | None = None,
) -> bytes:
    """Return a body that only the browser with this key can read. `salt` and `sender` are made for each; tests pass their own.
    Raise `ValueError` for a key that is none."""
    salt = salt or secrets.token_bytes(16)
    sender = sender or ec.generate_private_key(ec.SECP256R1())
    theirs = decode_base64url(public_key)
    ours = sender.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    shared = sender.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), theirs))
    keys = derive_keys(shared, secret=decode_base64url(secret), theirs=theirs, ours=ours, salt=salt)
    room = MAX_PLAINTEXT - len(plaintext)
    filled = plaintext + b"\x02" + b"\0" * min(room, -len(plaintext) % block)
    header = salt + _RECORD_SIZE.to_bytes(4, "big") + bytes([len(ours)]) + ours
    return header + AESGCM(keys[0]).encrypt(keys[1], filled, None)


def derive_keys(
    shared: bytes, *, secret: bytes, theirs: bytes, ours: bytes, salt: bytes
) -> tuple[bytes, bytes]:
    """Return the key and the nonce of a record. `theirs` is the public key of the browser, `ours` that of the sender."""

    def derive(salt: bytes, material: bytes, info: bytes, length: int) -> bytes:
        return HKDF(hashes.SHA256(), length, salt, info).derive(material)

    material = derive(secret, shared, b"WebPush: info\0" + theirs + ours, 32)
    return (
        derive(salt, material, b"Content-Encoding: aes128gcm\0", 16),
        derive(salt, material, b"Content-Encoding: nonce\0", 12),
    )


def build_topic(name: str) -> str:
    """Return the name under which notifications replace each other at a push service, which learns nothing from it."""
    return encode_base64url(hashlib.sha256(name.encode()).digest())[:32]


class PushClient:
    """Sends to push services. The address of one is foreign input, so a request goes only to addresses of the public internet,
    each looked up once: the connection goes to what was checked. Redirects are not followed."""

    def __init__(self, key: ServerKey, *, contact: str, loopback: bool = False) -> None:
        self.key = key
        self._contact = contact
        self._loopback = loopback
        self._http = httpx.AsyncClient(
            verify=ssl.create_default_context(), timeout=_SECONDS, follow_redirects=False, trust_env=False
        )

    async def __aenter__(self) -> "PushClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def send(
        self,
        endpoint: str,
        body: bytes,
        *,
        topic: str,
        urgent: bool,
        seconds: int,
        now: datetime,
    ) -> PushResult:
        """Send an encrypted body, which the service keeps for some seconds."""
        address = urlsplit(endpoint)
        host, port = address.hostname or "", address.port or (443 if address.scheme == "https" else 80)
        try:
            with anyio.fail_after(_SECONDS):
                found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as exc:
            return PushResult(outcome=PushOutcome.RETRY, detail=f"{host} cannot be found: {exc}")
        numbers = [str(entry[4][0]) for entry in found]
        if not self._loopback and not (numbers and all(map(is_public, numbers))):
            return PushResult(outcome=PushOutcome.GONE, detail=f"{host} is in a network of its own")
        number = f"[{numbers[0]}]" if ":" in numbers[0] else numbers[0]
        headers = {
            "Authorization": self.key.authorize(endpoint, contact=self._contact, now=now),
            "Host": address.netloc,
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(seconds),
            "Urgency": "high" if urgent else "normal",
            "Topic": topic,
        }
        request = self._http.build_request(
            "POST",
            address._replace(netloc=f"{number}:{port}").geturl(),
            headers=headers,
            content=body,
            extensions={"sni_hostname": host},
        )
        try:
            with anyio.fail_after(_SECONDS):
                response = await self._http.send(request, stream=True)
                await response.aclose()
        except (httpx.HTTPError, TimeoutError, OSError) as exc:
            return PushResult(outcome=PushOutcome.RETRY, detail=f"{host} does not answer: {exc!r}")
        status = response.status_code
        if status in _SENT:
            return PushResult(outcome=PushOutcome.SENT)
        detail = f"{host} answered {status}"
        if status in _GONE:
            return PushResult(outcome=PushOutcome.GONE, detail=detail)
        if status in _TRY_AGAIN or status >= 500:
            after = parse_retry_after(response.headers, now=now)
            return PushResult(outcome=PushOutcome.RETRY, after=after or timedelta(0), detail=detail)
        return PushResult(outcome=PushOutcome.REFUSED, detail=detail)
