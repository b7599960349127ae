"""The wire types of Matrix events and sync responses with the fields that Keryx reads. Nothing in them is trusted."""

from typing import Any

import msgspec

MESSAGE = "m.room.message"
STICKER = "m.sticker"
REACTION = "m.reaction"
REDACTION = "m.room.redaction"
ENCRYPTED = "m.room.encrypted"
ENCRYPTION = "m.room.encryption"
ROOM_KEY = "m.room_key"
ROOM_KEY_REQUEST = "m.room_key_request"
ROOM_KEY_WITHHELD = "m.room_key.withheld"
DUMMY = "m.dummy"
# The beginning of the types of all verification events, and of the kind of the message that asks for one.
VERIFICATION = "m.key.verification."
MEMBER = "m.room.member"
NAME = "m.room.name"
TOPIC = "m.room.topic"
CREATE = "m.room.create"
POWER_LEVELS = "m.room.power_levels"

EMPTY_OBJECT = msgspec.Raw(b"{}")


class MatrixEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a room. `parse_content` and `parse_state` read its content."""

    type: str
    sender: str
    id: str = msgspec.field(name="event_id", default="")
    at: int = msgspec.field(name="origin_server_ts", default=0)
    state_key: str | None = None
    # In rooms before version 11 the event that a redaction removes; later it is in the content.
    redacts: str = ""
    content: msgspec.Raw = EMPTY_OBJECT
    unsigned: msgspec.Raw = EMPTY_OBJECT


class ReplyRelation(msgspec.Struct, frozen=True):
    event_id: str = ""


class EventRelation(msgspec.Struct, frozen=True, kw_only=True):
    rel_type: str = ""
    event_id: str = ""
    # The emoji of a reaction.
    key: str = ""
    falls_back: bool = msgspec.field(name="is_falling_back", default=False)
    reply: ReplyRelation = msgspec.field(name="m.in_reply_to", default=ReplyRelation())


class MatrixMentions(msgspec.Struct, frozen=True):
    user_ids: tuple[str, ...] = ()


class FileInfo(msgspec.Struct, frozen=True):
    mimetype: str = ""
    size: int = 0


class FileKey(msgspec.Struct, frozen=True, kw_only=True):
    alg: str = ""
    k: str = ""


class EncryptedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that lies encrypted on the homeserver, and its key."""

    url: str = ""
    iv: str = ""
    key: FileKey = FileKey()
    hashes: dict[str, str] = {}


class MatrixContent(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a message."""

    msgtype: str = ""
    body: str = ""
    formatted_body: str = ""
    filename: str = ""
    url: str = ""
    # Instead of `url` in encrypted rooms.
    file: EncryptedFile | None = None
    geo_uri: str = ""
    redacts: str = ""
    info: FileInfo = FileInfo()
    relation: EventRelation = msgspec.field(name="m.relates_to", default=EventRelation())
    mentions: MatrixMentions | None = msgspec.field(name="m.mentions", default=None)
    # The whole content after an edit.
    new: "MatrixContent | None" = msgspec.field(name="m.new_content", default=None)


class RoomState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a state event: a membership, a name or a topic."""

    membership: str = ""
    displayname: str | None = None
    is_direct: bool = False
    name: str = ""
    topic: str = ""


class EncryptionState(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `m.room.encryption`."""

    algorithm: str = ""
    # How long the key of a device encrypts at most, in time and in messages.
    rotation_period_ms: int = 7 * 24 * 3600 * 1000
    rotation_period_msgs: int = 100


class RoomCreation(msgspec.Struct, frozen=True, kw_only=True):
    room_version: str = "1"
    additional_creators: tuple[str, ...] = ()


class PowerLevels(msgspec.Struct, frozen=True, kw_only=True):
    users: dict[str, int] = {}
    users_default: int = 0


class UnsignedData(msgspec.Struct, frozen=True):
    prev_content: RoomState = RoomState()
    replaces_state: str = ""
    redacted_because: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def redacted(self) -> bool:
        return bytes(self.redacted_because) != b"null"


class RoomTimeline(msgspec.Struct, frozen=True, kw_only=True):
    events: tuple[msgspec.Raw, ...] = ()
    # Events are missing between the last sync and `prev_batch`.
    limited: bool = False
    prev_batch: str = ""


class JoinedRoom(msgspec.Struct, frozen=True):
    timeline: RoomTimeline = RoomTimeline()


class StrippedState(msgspec.Struct, frozen=True):
    events: tuple[msgspec.Raw, ...] = ()


class InvitedRoom(msgspec.Struct, frozen=True):
    invite_state: StrippedState = StrippedState()


class SyncRooms(msgspec.Struct, frozen=True, kw_only=True):
    join: dict[str, JoinedRoom] = {}
    invite: dict[str, InvitedRoom] = {}
    leave: dict[str, msgspec.Raw] = {}


class DeviceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event for this device alone."""

    type: str
    sender: str
    content: dict[str, Any] = {}


class DeviceEvents(msgspec.Struct, frozen=True):
    events: tuple[msgspec.Raw, ...] = ()


class DeviceChanges(msgspec.Struct, frozen=True, kw_only=True):
    # The users whose devices have changed, and those who share no encrypted room with the account any more.
    changed: tuple[str, ...] = ()
    left: tuple[str, ...] = ()


class SyncResponse(msgspec.Struct, frozen=True, kw_only=True):
    # The position after this sync.
    next_batch: str
    rooms: SyncRooms = SyncRooms()
    to_device: DeviceEvents = DeviceEvents()
    device_lists: DeviceChanges = DeviceChanges()
    # How many one-time keys of this device are left, by algorithm.
    one_time_keys: dict[str, int] | None = msgspec.field(name="device_one_time_keys_count", default=None)
    # The algorithms whose fallback key was not used yet.
    fallback_keys: tuple[str, ...] | None = msgspec.field(
        name="device_unused_fallback_key_types", default=None
    )


class KeyQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The devices and cross-signing keys of users."""

    # The innermost values come from other homeservers and may be anything.
    device_keys: dict[str, dict[str, Any]] = {}
    master_keys: dict[str, Any] = {}
    self_signing_keys: dict[str, Any] = {}
    # The homeservers that did not answer.
    failures: dict[str, Any] = {}


class KeyClaim(msgspec.Struct, frozen=True, kw_only=True):
    """One-time keys by user, device and key id."""

    one_time_keys: dict[str, dict[str, Any]] = {}


class BackupVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The key backup of the account."""

    version: str
    algorithm: str = ""
    auth_data: dict[str, Any] = {}


class HistoryPage(msgspec.Struct, frozen=True, kw_only=True):
    chunk: tuple[msgspec.Raw, ...] = ()
    # The beginning of the next page, if there is one.
    end: str | None = None


def parse_event(raw: msgspec.Raw) -> MatrixEvent | None:
    """Return the event, or `None` if it is malformed."""
    try:
        return msgspec.json.decode(raw, type=MatrixEvent)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def parse_device_event(raw: msgspec.Raw) -> DeviceEvent | None:
    """Return the event for this device, or `None` if it is malformed."""
    try:
        return msgspec.json.decode(raw, type=DeviceEvent)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def parse_content(event: MatrixEvent) -> MatrixContent | None:
    """Return the content of a message, or `None` if it is malformed."""
    try:
        return msgspec.json.decode(event.content, type=MatrixContent)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def parse_state(event: MatrixEvent) -> RoomState:
    """Return the content of a state event, empty if it is malformed."""
    try:
        return msgspec.json.decode(event.content, type=RoomState)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return RoomState()


def parse_creation(event: MatrixEvent) -> RoomCreation:
    try:
        return msgspec.json.decode(event.content, type=RoomCreation)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return RoomCreation()


def parse_unsigned(event: MatrixEvent) -> UnsignedData:
    try:
        return msgspec.json.decode(event.unsigned, type=UnsignedData)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return UnsignedData()
