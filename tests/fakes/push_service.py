"""A push service on loopback with its browsers: it checks the signature of each request, decrypts what it is sent as a browser does, and answers with the statuses that a test gives it."""

import json
import secrets
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from keryx.core.codec import decode_base64url, encode_base64url

CURVE = ec.SECP256R1()


@dataclass
class PushBrowser:
    """A browser with its keys."""

    endpoint: str
    private: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(CURVE))
    auth: bytes = field(default_factory=lambda: secrets.token_bytes(16))

    @property
    def point(self) -> bytes:
        return self.private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

    @property
    def fields(self) -> dict[str, str]:
        """What the page tells the server of it."""
        return {
            "endpoint": self.endpoint,
            "public_key": encode_base64url(self.point),
            "secret": encode_base64url(self.auth),
        }

    def decrypt(self, body: bytes) -> bytes:
        """Read a body as RFC 8188 and RFC 8291 say."""
        salt, size, length = body[:16], int.from_bytes(body[16:20], "big"), body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert len(sealed) <= size == 4096
        shared = self.private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(CURVE, sender))
        material = HKDF(hashes.SHA256(), 32, self.auth, b"WebPush: info\0" + self.point + sender)
        secret = material.derive(shared)
        key = HKDF(hashes.SHA256(), 16, salt, b"Content-Encoding: aes128gcm\0").derive(secret)
        nonce = HKDF(hashes.SHA256(), 12, salt, b"Content-Encoding: nonce\0").derive(secret)
        text = AESGCM(key).decrypt(nonce, sealed, None).rstrip(b"\0")
        assert text.endswith(b"\x02")
        return text[:-1]


@dataclass(frozen=True)
class ReceivedPush:
    path: str
    headers: dict[str, str]
    claims: dict[str, Any]
    # The public key of the sender.
    key: str
    told: dict[str, Any]


class PushService:
    def __init__(self) -> None:
        self.received: list[ReceivedPush] = []
        # What was wrong with a request.
        self.wrong: list[str] = []
        # Statuses and headers of the next answers; then it takes everything.
        self.answers: list[tuple[int, dict[str, str]]] = []
        self._browsers: dict[str, PushBrowser] = {}
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, headers = service.answers.pop(0) if service.answers else (201, {})
                try:
                    service.take(self.path, dict(self.headers.items()), body)
                except Exception as exc:
                    service.wrong.append(repr(exc))
                    raise
                self.send_response(status)
                for name, value in {**headers, "Content-Length": "0"}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        assert not self.wrong, self.wrong

    def add_browser(self, name: str) -> PushBrowser:
        browser = self._browsers[f"/{name}"] = PushBrowser(f"{self.origin}/{name}")
        return browser

    def take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """Check a request as RFC 8030 and RFC 8292 say, and keep what it says."""
        scheme, _, given = headers["Authorization"].partition(" ")
        assert scheme == "vapid"
        parts = dict(part.strip().split("=", 1) for part in given.split(","))
        signed, _, signature = parts["t"].rpartition(".")
        raw = decode_base64url(signature)
        assert len(raw) == 64
        ec.EllipticCurvePublicKey.from_encoded_point(CURVE, decode_base64url(parts["k"])).verify(
            encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big")),
            signed.encode(),
            ec.ECDSA(hashes.SHA256()),
        )
        head, claims = (json.loads(decode_base64url(part)) for part in signed.split("."))
        assert head == {"typ": "JWT", "alg": "ES256"} and claims["aud"] == self.origin
        assert headers["Content-Encoding"] == "aes128gcm" and int(headers["TTL"]) > 0
        assert len(headers["Topic"]) <= 32 and len(body) <= 4096
        told = cast(dict[str, Any], json.loads(self._browsers[path].decrypt(body)))
        self.received.append(ReceivedPush(path, headers, claims, parts["k"], told))
