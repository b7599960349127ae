"""Passkeys by WebAuthn: challenges, and the checks of what a browser sends when it makes or uses a passkey. Verifying signatures needs the optional cryptography package."""

import hashlib
import hmac
import importlib.util
import ipaddress
import secrets
import struct
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from keryx.core.cache import LruCache
from keryx.core.clock import Clock
from keryx.core.codec import decode_base64url, encode_base64url
from keryx.core.errors import Invalid, Unavailable, format_install_command
from keryx.core.texts import Phrase

_CHALLENGE_SECONDS = 300
_MAX_USED_CHALLENGES = 10_000
_USER_PRESENT, _USER_VERIFIED, _HAS_CREDENTIAL = 0x01, 0x04, 0x40
_CREATE, _GET = "webauthn.create", "webauthn.get"
# Of COSE keys.
_KEY_TYPE, _ALGORITHM, _CURVE, _X, _Y = 1, 3, -1, -2, -3
_EC2, _OKP, _RSA = 2, 1, 3
ES256, EDDSA, RS256 = -7, -8, -257
ALGORITHMS = (ES256, EDDSA, RS256)
_MAX_CBOR_DEPTH = 8
_WRONG = Phrase("passkey.wrong")


class NewPasskey(msgspec.Struct, frozen=True, kw_only=True):
    """A passkey that a browser has made. `id` and `public_key`, a COSE key, are in base64url."""

    id: str
    public_key: str
    uses: int


class ChallengeIssuer:
    """Makes challenges that are signed, so that nothing is stored until one is used. Each is good once, for some minutes."""

    def __init__(self, key: bytes, clock: Clock) -> None:
        self._key = hmac.new(key, b"webauthn", hashlib.sha256).digest()
        self._clock = clock
        self._used: LruCache[str, bool] = LruCache(_MAX_USED_CHALLENGES)

    def issue(self, purpose: str) -> str:
        """Return a challenge in base64url. The purpose names what it is for and whom."""
        stamp = struct.pack(">d", self._clock.now().timestamp()) + secrets.token_bytes(16)
        return encode_base64url(stamp + self._sign(stamp, purpose))

    def redeem(self, challenge: str, purpose: str) -> bytes:
        """Use up a challenge. Raise `Invalid` if it is forged, old, or was used before."""
        raw = decode(challenge)
        stamp, signature = raw[:24], raw[24:]
        if len(raw) != 56 or not hmac.compare_digest(signature, self._sign(stamp, purpose)):
            raise Invalid(_WRONG)
        age = self._clock.now().timestamp() - struct.unpack(">d", stamp[:8])[0]
        if not 0 <= age <= _CHALLENGE_SECONDS or self._used.get(challenge):
            raise Invalid(Phrase("passkey.too_late"))
        self._used.put(challenge, True)
        return raw

    def _sign(self, stamp: bytes, purpose: str) -> bytes:
        return hmac.new(self._key, stamp + purpose.encode(), hashlib.sha256).digest()


def is_available(host: str, *, secure: bool) -> bool:
    """Whether browsers make passkeys for a host: it has a name, and the connection is encrypted or stays on the machine."""
    name = find_name(host)
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        local = name == "localhost" or name.endswith(".localhost")
        return (secure or local) and importlib.util.find_spec("cryptography") is not None
    return False


def find_name(host: str) -> str:
    """Return the name of a host without its port."""
    return host.rpartition(":")[0].lower() if ":" in host and not host.endswith("]") else host.lower()


def check_new(*, client_data: str, attestation: str, challenge: bytes, host: str) -> NewPasskey:
    """Return the passkey that a browser has made. Its maker is not checked. Raise `Invalid` if it is not in order."""
    _check_client_data(decode(client_data), _CREATE, challenge, host)
    found: object = decode_cbor(decode(attestation))
    data: object = cast(dict[object, object], found).get("authData") if isinstance(found, dict) else None
    if not isinstance(data, bytes):
        raise Invalid(_WRONG)
    uses = _check_authenticator_data(data, host)
    if not data[32] & _HAS_CREDENTIAL or len(data) < 55:
        raise Invalid(_WRONG)
    length = int.from_bytes(data[53:55])
    id_, rest = data[55 : 55 + length], data[55 + length :]
    key, used = _decode_item(rest, 0)
    if len(id_) != length or not 16 <= length <= 1023:
        raise Invalid(_WRONG)
    _load_key(key)
    return NewPasskey(id=encode_base64url(id_), public_key=encode_base64url(rest[:used]), uses=uses)


def check_use(
    *,
    client_data: str,
    authenticator_data: str,
    signature: str,
    public_key: str,
    challenge: bytes,
    host: str,
) -> int:
    """Return the counter of a passkey that was used. Raise `Invalid` unless its signature is right."""
    raw, data = decode(client_data), decode(authenticator_data)
    _check_client_data(raw, _GET, challenge, host)
    uses = _check_authenticator_data(data, host)
    _verify(decode_cbor(decode(public_key)), decode(signature), data + hashlib.sha256(raw).digest())
    return uses


class ClientData(msgspec.Struct, frozen=True, kw_only=True):
    """What the browser says about the page that asked."""

    type: str
    challenge: str
    origin: str
    cross_origin: bool = msgspec.field(name="crossOrigin", default=False)


def _check_client_data(raw: bytes, kind: str, challenge: bytes, host: str) -> None:
    try:
        said = msgspec.json.decode(raw, type=ClientData)
        origin = urlsplit(said.origin)
    except (msgspec.MsgspecError, ValueError) as exc:
        raise Invalid(_WRONG) from exc
    right = said.type == kind and hmac.compare_digest(decode(said.challenge), challenge)
    if not right or said.cross_origin or origin.netloc.lower() != host.lower():
        raise Invalid(_WRONG)
    if (
        origin.scheme != "https"
        and find_name(host) != "localhost"
        and not find_name(host).endswith(".localhost")
    ):
        raise Invalid(_WRONG)


def _check_authenticator_data(data: bytes, host: str) -> int:
    """Return the counter. Raise `Invalid` unless it is for this host and the person has shown who they are."""
    expected = hashlib.sha256(find_name(host).encode()).digest()
    if len(data) < 37 or not hmac.compare_digest(data[:32], expected):
        raise Invalid(_WRONG)
    if not (data[32] & _USER_PRESENT and data[32] & _USER_VERIFIED):
        raise Invalid(Phrase("passkey.unverified"))
    return int.from_bytes(data[33:37])


def _load_key(key: object) -> Any:
    """Return the public key of a COSE key. Raise `Invalid` for one of another kind, `Unavailable` without the package."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa  # noqa: PLC0415 an optional extra
    except ImportError as exc:
        raise Unavailable(Phrase("passkey.extra", command=format_install_command("passkeys"))) from exc
    if not isinstance(key, dict):
        raise Invalid(_WRONG)
    fields = cast(dict[object, Any], key)
    try:
        match fields.get(_KEY_TYPE), fields.get(_ALGORITHM):
            case (2, -7) if fields.get(_CURVE) == 1:
                x, y = (int.from_bytes(fields[name]) for name in (_X, _Y))
                return ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
            case (1, -8) if fields.get(_CURVE) == 6:
                return ed25519.Ed25519PublicKey.from_public_bytes(fields[_X])
            case (3, -257):
                n, e = int.from_bytes(fields[-1]), int.from_bytes(fields[-2])
                return rsa.RSAPublicNumbers(e, n).public_key()
            case _:
                raise Invalid(Phrase("passkey.kind"))
    except (KeyError, TypeError, ValueError) as exc:
        raise Invalid(_WRONG) from exc


def _verify(key: object, signature: bytes, signed: bytes) -> None:
    public = _load_key(key)
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 an optional extra
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415 an optional extra
    from cryptography.hazmat.primitives.asymmetric import ec, padding  # noqa: PLC0415 an optional extra

    algorithm: object = cast(dict[object, object], key)[_ALGORITHM]
    try:
        if algorithm == ES256:
            public.verify(signature, signed, ec.ECDSA(hashes.SHA256()))
        elif algorithm == EDDSA:
            public.verify(signature, signed)
        else:
            public.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature as exc:
        raise Invalid(_WRONG) from exc


def decode(text: str) -> bytes:
    """Return the bytes of a base64url text. Raise `Invalid` for another one."""
    try:
        return decode_base64url(text)
    except ValueError as exc:
        raise Invalid(_WRONG) from exc


def decode_cbor(raw: bytes) -> object:
    """Return the value of a CBOR document of the kinds that WebAuthn uses. Raise `Invalid` for any other."""
    value, end = _decode_item(raw, 0)
    if end != len(raw):
        raise Invalid(_WRONG)
    return value


def _decode_item(raw: bytes, at: int, depth: int = 0) -> tuple[object, int]:
    """Return a value and where it ends."""
    if at >= len(raw) or depth > _MAX_CBOR_DEPTH:
        raise Invalid(_WRONG)
    kind, info = raw[at] >> 5, raw[at] & 31
    at += 1
    size = {24: 1, 25: 2, 26: 4, 27: 8}.get(info, 0)
    if info > 27 or at + size > len(raw):
        raise Invalid(_WRONG)
    number = int.from_bytes(raw[at : at + size]) if size else info
    at += size
    match kind:
        case 0:
            return number, at
        case 1:
            return -1 - number, at
        case 2 | 3:
            if at + number > len(raw):
                raise Invalid(_WRONG)
            body = raw[at : at + number]
            return (body if kind == 2 else body.decode("utf-8", "replace")), at + number
        case 4:
            items: list[object] = []
            for _ in range(min(number, len(raw))):
                item, at = _decode_item(raw, at, depth + 1)
                items.append(item)
            return items, at
        case 5:
            pairs: dict[object, object] = {}
            for _ in range(min(number, len(raw))):
                key, at = _decode_item(raw, at, depth + 1)
                if not isinstance(key, str | int):
                    raise Invalid(_WRONG)
                pairs[key], at = _decode_item(raw, at, depth + 1)
            return pairs, at
        case 7 if info in (20, 21, 22):
            return {20: False, 21: True, 22: None}[info], at
        case _:
            raise Invalid(_WRONG)
