"""Passwords: what a person types to sign in. Only a salted hash is kept, and comparing takes the same time for each."""

import hashlib
import hmac
import re
import secrets
import unicodedata

from keryx.core.errors import Invalid

SHORTEST = 8
_HASH = re.compile(r"scrypt:([0-9a-f]{32}):([0-9a-f]{64})\Z")


def hashed(password: str) -> str:
    """What is kept of a password. Raises `Invalid` for a short one. Takes tens of milliseconds, as `fits` does."""
    if len(password) < SHORTEST:
        raise Invalid(f"this password is too short: use at least {SHORTEST} characters")
    salt = secrets.token_bytes(16)
    return f"scrypt:{salt.hex()}:{_derived(password, salt).hex()}"


def kept(text: str) -> str:
    """The hash of a password, from the password itself or from its hash."""
    return text if _HASH.match(text) else hashed(text)


def fits(given: str, kept: str) -> bool:
    """Whether somebody gave the password that a hash was made of."""
    found = _HASH.match(kept)
    assert found is not None
    return hmac.compare_digest(_derived(given, bytes.fromhex(found[1])), bytes.fromhex(found[2]))


def _derived(password: str, salt: bytes) -> bytes:
    # Keyboards differ in how they compose a letter; a person does not see that.
    text = unicodedata.normalize("NFC", password).encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=1 << 14, r=8, p=1, dklen=32)
