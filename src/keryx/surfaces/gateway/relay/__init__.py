"""The wire of the relay: frames as JSON, files as binary chunks, and errors by name. Both ends use it."""

import struct
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, TypeAlias, cast

import msgspec

from keryx.core import codec
from keryx.core.deliveries import REPEAT_MARK, Target
from keryx.core.errors import (
    CredentialsRefused,
    Held,
    Invalid,
    KeryxError,
    MessageGone,
    NotSent,
    Refused,
    TargetGone,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment
from keryx.core.ports.adapter import Capabilities, RenderedPart, ToolStep
from keryx.core.ports.relay import RelayEventKind
from keryx.core.questions import Button

VERSION = 1
# Events that an instance may have without having stored them.
WINDOW = 64
MAX_FRAME_BYTES = 8_000_000
# Of the JSON within a frame, which doubles what is escaped there.
MAX_TEXT_BYTES = 2_000_000
CHUNK_BYTES = 256 * 1024
# The files of one call together.
MAX_FILE_BYTES = 128_000_000
HELLO_SECONDS = 10.0
PING_SECONDS = 20.0
CLOSE_SECONDS = 5.0

REFUSED_CODE = 4401
EVICTED_CODE = 4409
VERSION_CODE = 4426
PROTOCOL_CODE = 4400
_CHUNK_HEAD = struct.Struct(">QI")
_LONGEST_ERROR = 1_000


class RelayedAccount(msgspec.Struct, frozen=True, kw_only=True):
    """An account of the connector, as its instances know it."""

    platform: str
    account: str
    capabilities: Capabilities
    # The optional methods of its adapter.
    supports: tuple[str, ...] = ()


class RelayChallenge(msgspec.Struct, frozen=True, kw_only=True, tag="challenge"):
    """The first frame, from the connector."""

    version: int
    nonce: str


class RelayHello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The first frame of an instance."""

    version: int
    key_id: str
    nonce: str
    proof: str


class RelayWelcome(msgspec.Struct, frozen=True, kw_only=True, tag="welcome"):
    # That the connector knows the key, too.
    proof: str
    # The name of the instance.
    name: str
    accounts: tuple[RelayedAccount, ...]


class RelayServe(msgspec.Struct, frozen=True, kw_only=True, tag="serve"):
    """The accounts whose events an instance takes now."""

    accounts: tuple[tuple[str, str], ...]


class RelayEvent(msgspec.Struct, frozen=True, kw_only=True, tag="event"):
    position: int
    platform: str
    account: str
    kind: RelayEventKind
    # JSON.
    body: str


class RelayAck(msgspec.Struct, frozen=True, kw_only=True, tag="ack"):
    """An instance has stored an event, or can never do so because of an error."""

    position: int
    error: str = ""


class FileHead(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose bytes came in chunks before."""

    name: str
    mime: str
    size: int


class RelayCall(msgspec.Struct, frozen=True, kw_only=True, tag="call"):
    """An instance asks the connector to do something on a platform."""

    id: int
    method: str
    platform: str
    account: str
    # JSON.
    params: str = "{}"
    files: tuple[FileHead, ...] = ()


class RelayResult(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    id: int
    # JSON.
    value: str = "null"
    files: tuple[FileHead, ...] = ()


class RelayFailure(msgspec.Struct, frozen=True, kw_only=True, tag="failure"):
    id: int
    kind: str
    text: str
    # Seconds, of `Throttled`, and whether it holds for the whole account.
    after: float = 0
    account: bool = False


FromConnector: TypeAlias = RelayChallenge | RelayWelcome | RelayEvent | RelayResult | RelayFailure
FromInstance: TypeAlias = RelayHello | RelayServe | RelayAck | RelayCall


class RelayedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part to send. Its text is rendered by the connector, which knows the platform: a part of it is named by its
    number."""

    delivery: DeliveryId
    number: int
    key: str
    target: Target
    # The Markdown and the number of the part of it; `None` for a part without text.
    text: str | None = None
    index: int = 0
    # The files of the call are one `attachment`, or else `attachments`.
    single: bool = False
    title: str = ""
    repeat_mark: str = REPEAT_MARK
    edits: str = ""
    shown: str = ""
    steps: tuple[ToolStep, ...] = ()
    final: bool = True
    buttons: tuple[Button, ...] = ()


class RenderRequest(msgspec.Struct, frozen=True):
    text: str


class TargetRequest(msgspec.Struct, frozen=True):
    target: Target
    # The platform's id of a message to remove.
    message: str = ""


class ThreadRequest(msgspec.Struct, frozen=True):
    target: Target
    # Empty if the name stays.
    title: str = ""
    archive: bool = False


class FileRequest(msgspec.Struct, frozen=True):
    position: int
    number: int
    limit: int


Rendered: TypeAlias = list[RenderedPart]

_FAILURES: dict[str, type[KeryxError]] = {
    "credentials_refused": CredentialsRefused,
    "not_sent": NotSent,
    "held": Held,
    "target_gone": TargetGone,
    "refused": Refused,
    "message_gone": MessageGone,
    "uncertain": Uncertain,
    "unavailable": Unavailable,
    "invalid": Invalid,
}


def describe_failure(id_: int, error: KeryxError) -> RelayFailure:
    """Return the frame of an error, the inverse of `build_error`."""
    text = str(error)[:_LONGEST_ERROR]
    if isinstance(error, Throttled):
        return RelayFailure(
            id=id_, kind="throttled", text=text, after=error.after.total_seconds(), account=error.account
        )
    # A subclass comes before its base.
    kind = next((name for name, kind in _FAILURES.items() if isinstance(error, kind)), "unavailable")
    return RelayFailure(id=id_, kind=kind, text=text)


def build_error(failure: RelayFailure) -> KeryxError:
    if failure.kind == "throttled":
        return Throttled(
            failure.text, after=timedelta(seconds=max(0.0, failure.after)), account=failure.account
        )
    return _FAILURES.get(failure.kind, Unavailable)(failure.text)


def encode_chunks(id_: int, files: Sequence[Attachment]) -> list[bytes]:
    """Return the bytes of files as binary frames, to be sent before the call or the result that names them."""
    return [
        _CHUNK_HEAD.pack(id_, number) + file.body[start : start + CHUNK_BYTES]
        for number, file in enumerate(files)
        for start in range(0, len(file.body), CHUNK_BYTES)
    ]


def describe_files(files: Sequence[Attachment]) -> tuple[FileHead, ...]:
    return tuple(FileHead(name=f.name, mime=f.mime, size=len(f.body)) for f in files)


class FileAssembly:
    """Puts the chunks of files together, within a limit for the connection."""

    def __init__(self, limit: int = MAX_FILE_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._bodies: dict[int, dict[int, bytearray]] = {}

    def add(self, frame: bytes) -> None:
        """Take a binary frame. Raise `Invalid` if it is malformed or too much."""
        if len(frame) < _CHUNK_HEAD.size:
            raise Invalid("a chunk of a file has no head")
        id_, number = _CHUNK_HEAD.unpack_from(frame)
        self._size += len(frame) - _CHUNK_HEAD.size
        if self._size > self._limit:
            raise Invalid(f"files of more than {self._limit:,} bytes are on their way at once")
        bodies = self._bodies.setdefault(id_, {})
        bodies.setdefault(number, bytearray()).extend(memoryview(frame)[_CHUNK_HEAD.size :])

    def take(self, id_: int, heads: Sequence[FileHead]) -> tuple[Attachment, ...]:
        """Return the files that a call or a result names. Raise `Invalid` if their bytes are not what it says."""
        bodies = self._bodies.pop(id_, {})
        self._size -= sum(map(len, bodies.values()))
        files = tuple(
            Attachment(name=head.name, mime=head.mime, body=bytes(bodies.pop(number, b"")))
            for number, head in enumerate(heads)
        )
        if bodies or any(len(file.body) != head.size for file, head in zip(files, heads, strict=True)):
            raise Invalid("the bytes of a file are not complete")
        return files


def decode_from_instance(frame: str) -> FromInstance:
    """Read a frame of an instance. Raise `Invalid` for anything else."""
    return cast(FromInstance, codec.loads_foreign(frame, cast(Any, FromInstance)))


def decode_from_connector(frame: str) -> FromConnector:
    """Read a frame of the connector. Raise `Invalid` for anything else."""
    return cast(FromConnector, codec.loads_foreign(frame, cast(Any, FromConnector)))
