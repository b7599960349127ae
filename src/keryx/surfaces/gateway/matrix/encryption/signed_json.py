"""Canonical JSON, its signatures, and the base64 without padding that Matrix uses."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

import vodozemac


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode().rstrip("=")


def decode_base64(text: str) -> bytes:
    """Decode base64 with or without padding, of either alphabet. Raise `ValueError` for anything else."""
    try:
        padded = text.replace("-", "+").replace("_", "/").rstrip("=")
        return base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True)
    except (binascii.Error, UnicodeError, AttributeError) as exc:
        # Foreign JSON may have anything in the place of a text.
        raise ValueError("not base64") from exc


def encode_canonical(value: Any) -> bytes:
    """Encode a value as the canonical JSON that is signed: sorted, without spaces, in UTF-8."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def add_signature(
    value: Mapping[str, Any], user: str, key_id: str, sign: Callable[[bytes], str]
) -> dict[str, Any]:
    """Return the object with one more signature."""
    bare = {name: item for name, item in value.items() if name not in ("signatures", "unsigned")}
    signatures: dict[str, Any] = {**value.get("signatures", {})}
    signatures[user] = {**signatures.get(user, {}), key_id: sign(encode_canonical(bare))}
    return {**value, "signatures": signatures}


def has_signature(value: Mapping[str, Any], user: str, key_id: str, public_key: str) -> bool:
    """Whether the object has a valid signature of this user with this key."""
    try:
        signature = value["signatures"][user][key_id]
        bare = {name: item for name, item in value.items() if name not in ("signatures", "unsigned")}
        key = vodozemac.Ed25519PublicKey.from_base64(public_key)
        key.verify_signature(encode_canonical(bare), vodozemac.Ed25519Signature.from_base64(signature))
    except (KeyError, TypeError, ValueError):
        return False
    return True
