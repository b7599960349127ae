"""One-time codes that people read out or type: how they are made, written, and kept as a salted hash alone."""

import hashlib
import hmac
import secrets

import msgspec

# Without what can be mistaken for another: 0 and O, 1, I and L, 5 and S, B (for 8), U and V.
ALPHABET = "2346789ACDEFGHJKMNPQRTWXYZ"
LENGTH = 8


class Sealed(msgspec.Struct, frozen=True):
    """A code that can be checked and not be read."""

    salt: str
    digest: str

    def fits(self, code: str) -> bool:
        return hmac.compare_digest(self.digest, _digest(self.salt, normal(code)))


def new() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def sealed(code: str) -> Sealed:
    salt = secrets.token_hex(16)
    return Sealed(salt, _digest(salt, code))


def normal(text: str) -> str:
    """A code as it was made, however a person wrote it."""
    return "".join(c for c in text.upper() if c not in " -–\t")


def _digest(salt: str, code: str) -> str:
    return hashlib.sha256(f"{salt}:{code}".encode("utf-8", "surrogatepass")).hexdigest()
