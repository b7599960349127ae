"""The objects of Feishu's events, callbacks and server API with the fields that Keryx reads. Other fields are ignored."""

from typing import Any

import msgspec


class FeishuPersonIds(msgspec.Struct, frozen=True, kw_only=True):
    """The ids of one person: within the app, within the organisation, and for all apps of a developer."""

    open_id: str | None = None
    user_id: str | None = None
    union_id: str | None = None


class FeishuMention(msgspec.Struct, frozen=True, kw_only=True):
    # What the text has instead of the name: `@_user_1`.
    key: str = ""
    id: FeishuPersonIds | None = None
    name: str = ""


class FeishuMessage(msgspec.Struct, frozen=True, kw_only=True):
    message_id: str
    chat_id: str
    message_type: str
    # JSON, of another form for each type.
    content: str = ""
    # `p2p` or `group`.
    chat_type: str = "group"
    # The message that this one replies to, and the first one of its replies.
    parent_id: str | None = None
    root_id: str | None = None
    thread_id: str | None = None
    # In milliseconds.
    create_time: str | int = ""
    mentions: tuple[FeishuMention, ...] | None = None

    @property
    def is_direct(self) -> bool:
        return self.chat_type == "p2p"


class FeishuSender(msgspec.Struct, frozen=True, kw_only=True):
    sender_id: FeishuPersonIds | None = None
    # `user`, or the kind of a program.
    sender_type: str = "user"
    tenant_key: str | None = None


class FeishuMessageEvent(msgspec.Struct, frozen=True, kw_only=True):
    sender: FeishuSender
    message: FeishuMessage


class FeishuRecallEvent(msgspec.Struct, frozen=True, kw_only=True):
    message_id: str
    chat_id: str
    recall_time: str | int = ""


class FeishuEmoji(msgspec.Struct, frozen=True, kw_only=True):
    emoji_type: str = ""


class FeishuReactionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A reaction that was added or removed. The event does not name the chat."""

    message_id: str
    reaction_type: FeishuEmoji
    operator_type: str = "user"
    user_id: FeishuPersonIds | None = None
    app_id: str | None = None
    action_time: str | int = ""


class CardAction(msgspec.Struct, frozen=True, kw_only=True):
    # What the button carries: an object of ours, or anything from the card of another program.
    value: Any = None
    tag: str = ""


class CardPlace(msgspec.Struct, frozen=True, kw_only=True):
    open_message_id: str = ""
    open_chat_id: str = ""


class CardOperator(FeishuPersonIds, frozen=True, kw_only=True):
    tenant_key: str | None = None


class CardActionEvent(msgspec.Struct, frozen=True, kw_only=True):
    operator: CardOperator
    action: CardAction
    context: CardPlace = CardPlace()


class FeishuEventHeader(msgspec.Struct, frozen=True, kw_only=True):
    event_id: str
    event_type: str
    # The verification token of the app.
    token: str = ""
    app_id: str = ""
    tenant_key: str = ""


class FeishuEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """What Feishu hands over: an event, or the challenge that checks an address."""

    header: FeishuEventHeader | None = None
    # Parsed later, because each type of event has its own form.
    event: msgspec.Raw = msgspec.Raw()
    # Of a challenge.
    type: str = ""
    challenge: str = ""
    token: str = ""


class EncryptedPost(msgspec.Struct, frozen=True):
    encrypt: str


class FeishuPostNode(msgspec.Struct, frozen=True, kw_only=True):
    """One element of a rich text."""

    tag: str
    text: str = ""
    href: str = ""
    style: tuple[str, ...] | None = None
    # The key of a mention, or `all`.
    user_id: str = ""
    user_name: str = ""
    image_key: str = ""
    file_key: str = ""
    file_name: str = ""
    emoji_type: str = ""
    language: str = ""


class FeishuPostContent(msgspec.Struct, frozen=True, kw_only=True):
    title: str = ""
    content: tuple[tuple[FeishuPostNode, ...], ...] = ()


class ConnectionConfig(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """How the platform wants a long connection to be kept, in seconds. How often it wants a lost one to be made again is not
    read: a program that stops to connect loses messages."""

    ping_interval: int = 120
    # The longest random time before a lost connection is made again.
    reconnect_nonce: int = 30
    # The time between two attempts that fail.
    reconnect_interval: int = 120


class ConnectionEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    url: str = msgspec.field(name="URL")
    config: ConnectionConfig | None = msgspec.field(name="ClientConfig", default=None)


class FeishuIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who the bot is."""

    open_id: str
    app_name: str = ""


class FeishuUser(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    nickname: str = ""


class FeishuChat(msgspec.Struct, frozen=True, kw_only=True):
    name: str = ""
    # `p2p`, `group` or `topic`.
    chat_mode: str = "group"


class FeishuAuthor(msgspec.Struct, frozen=True, kw_only=True):
    # The id of the app if a program has written the message.
    id: str = ""
    sender_type: str = ""


class StoredBody(msgspec.Struct, frozen=True, kw_only=True):
    content: str = ""


class StoredMention(msgspec.Struct, frozen=True, kw_only=True):
    key: str = ""
    name: str = ""


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as the server API tells it."""

    message_id: str
    chat_id: str = ""
    thread_id: str | None = None
    sender: FeishuAuthor = FeishuAuthor()
    deleted: bool = False
    msg_type: str = ""
    body: StoredBody = StoredBody()
    mentions: tuple[StoredMention, ...] | None = None
    # The forwarded messages that it belongs to.
    upper_message_id: str | None = None
