"""Events of Matrix as they come over the wire: only what Keryx reads of them, and nothing trusted."""

import msgspec

MESSAGE = "m.room.message"
STICKER = "m.sticker"
ENCRYPTED = "m.room.encrypted"
MEMBER = "m.room.member"
NAME = "m.room.name"
TOPIC = "m.room.topic"
CREATE = "m.room.create"
POWERS = "m.room.power_levels"

EMPTY = msgspec.Raw(b"{}")


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a room. `content` is read by type, with `content_of` or `state_of`."""

    type: str
    sender: str
    id: str = msgspec.field(name="event_id", default="")
    at: int = msgspec.field(name="origin_server_ts", default=0)
    state_key: str | None = None
    content: msgspec.Raw = EMPTY
    unsigned: msgspec.Raw = EMPTY


class Reply(msgspec.Struct, frozen=True):
    event_id: str = ""


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    rel_type: str = ""
    event_id: str = ""
    falls_back: bool = msgspec.field(name="is_falling_back", default=False)
    reply: Reply = msgspec.field(name="m.in_reply_to", default=Reply())


class Mentions(msgspec.Struct, frozen=True):
    user_ids: tuple[str, ...] = ()


class Info(msgspec.Struct, frozen=True):
    mimetype: str = ""
    size: int = 0


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What a message says. `new` is the whole of it after an edit."""

    msgtype: str = ""
    body: str = ""
    formatted_body: str = ""
    filename: str = ""
    url: str = ""
    geo_uri: str = ""
    info: Info = Info()
    relation: Relation = msgspec.field(name="m.relates_to", default=Relation())
    mentions: Mentions | None = msgspec.field(name="m.mentions", default=None)
    new: "Content | None" = msgspec.field(name="m.new_content", default=None)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What Keryx reads of the state of a room: a membership, a name or a topic."""

    membership: str = ""
    displayname: str | None = None
    is_direct: bool = False
    name: str = ""
    topic: str = ""


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """How a room began."""

    room_version: str = "1"
    additional_creators: tuple[str, ...] = ()


class Powers(msgspec.Struct, frozen=True, kw_only=True):
    """How much each person may do in a room."""

    users: dict[str, int] = {}
    users_default: int = 0


class Unsigned(msgspec.Struct, frozen=True):
    prev_content: State = State()
    replaces_state: str = ""
    redacted_because: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def redacted(self) -> bool:
        return bytes(self.redacted_because) != b"null"


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """`limited`: events are missing between the last sync and `prev_batch`."""

    events: tuple[msgspec.Raw, ...] = ()
    limited: bool = False
    prev_batch: str = ""


class Joined(msgspec.Struct, frozen=True):
    timeline: Timeline = Timeline()


class Stripped(msgspec.Struct, frozen=True):
    events: tuple[msgspec.Raw, ...] = ()


class Invited(msgspec.Struct, frozen=True):
    invite_state: Stripped = Stripped()


class Rooms(msgspec.Struct, frozen=True, kw_only=True):
    join: dict[str, Joined] = {}
    invite: dict[str, Invited] = {}
    leave: dict[str, msgspec.Raw] = {}


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one sync brings; `next_batch` is the position after it."""

    next_batch: str
    rooms: Rooms = Rooms()


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of a room's history; `end` is where the next one begins, if there is more."""

    chunk: tuple[msgspec.Raw, ...] = ()
    end: str | None = None


def event_of(raw: msgspec.Raw) -> Event | None:
    """One event; `None` if it is malformed."""
    try:
        return msgspec.json.decode(raw, type=Event)
    except (msgspec.DecodeError, UnicodeError):
        return None


def content_of(event: Event) -> Content | None:
    """What a message says; `None` if that is malformed."""
    try:
        return msgspec.json.decode(event.content, type=Content)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def state_of(event: Event) -> State:
    """What a state event says; nothing if it is malformed."""
    try:
        return msgspec.json.decode(event.content, type=State)
    except (msgspec.DecodeError, UnicodeError):
        return State()


def created_of(event: Event) -> Created:
    try:
        return msgspec.json.decode(event.content, type=Created)
    except (msgspec.DecodeError, UnicodeError):
        return Created()


def unsigned_of(event: Event) -> Unsigned:
    try:
        return msgspec.json.decode(event.unsigned, type=Unsigned)
    except (msgspec.DecodeError, UnicodeError):
        return Unsigned()
