"""End-to-end encryption of Matrix. The modules of this package need the extra `matrix-encryption`; its errors and names do not."""

import importlib.util
from enum import StrEnum

from keryx.core.errors import Forbidden, Invalid, NotFound, Unavailable
from keryx.surfaces.gateway.matrix.event_types import MatrixEvent

MEGOLM = "m.megolm.v1.aes-sha2"
OLM = "m.olm.v1.curve25519-aes-sha2"
EXTRA = "matrix-encryption"


def is_installed() -> bool:
    """Whether the extra is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("vodozemac", "cryptography"))


class EncryptionUnavailable(Unavailable):
    """Encrypted rooms cannot be used in this process; the message says why and what to do."""


class RoomKeyMissing(NotFound):
    """The key of a message has not arrived. The message can be read when it comes."""


class UntrustedDevice(Forbidden):
    """The message is readable, but its device is not trusted, so it may be forged."""

    # What was read.
    event: MatrixEvent | None = None


class UndecryptableMessage(Invalid):
    """The message cannot be read, now or later."""


class DeviceTrust(StrEnum):
    """Which devices of other people are trusted: they get keys, and their messages are received."""

    # Those that the cross-signing identity that a person had first has signed; all devices of a person without one.
    FIRST_USE = "first_use"
    # Those that were verified, and those that a verified identity has signed.
    VERIFIED = "verified"
