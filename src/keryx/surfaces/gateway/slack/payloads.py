"""The objects of Slack's events, interactions and Web API with the fields that Keryx reads. Other fields are ignored."""

import msgspec

from keryx.core.texts import Phrase


class SlackFile(msgspec.Struct, frozen=True, kw_only=True):
    id: str = ""
    name: str | None = None
    title: str | None = None
    mimetype: str | None = None
    size: int = 0
    # `tombstone` for a deleted file, `hidden_by_limit` for one that the plan of the workspace does not show.
    mode: str = ""
    url_private: str | None = None
    url_private_download: str | None = None
    permalink: str | None = None

    @property
    def url(self) -> str:
        return self.url_private_download or self.url_private or ""

    @property
    def problem(self) -> Phrase | None:
        """Why Slack does not hand out the file, `None` if it does."""
        match self.mode:
            case "tombstone":
                return Phrase("file.gone")
            case "hidden_by_limit":
                return Phrase("file.too_old")
            case _:
                return None


class SlackEdit(msgspec.Struct, frozen=True, kw_only=True):
    user: str = ""
    ts: str = ""


class SlackAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """What Slack shows below a message: a message that was forwarded, or a link."""

    is_share: bool = False
    is_msg_unfurl: bool = False
    author_name: str | None = None
    text: str | None = None
    fallback: str | None = None
    files: tuple[SlackFile, ...] = ()

    @property
    def forwarded(self) -> bool:
        return self.is_share or self.is_msg_unfurl


class SlackMetadata(msgspec.Struct, frozen=True, kw_only=True):
    event_type: str = ""
    event_payload: dict[str, object] = {}


class SlackBlock(msgspec.Struct, frozen=True, kw_only=True):
    type: str = ""


class SlackMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message, as `message` events, the changed message in them and the history have it."""

    ts: str = ""
    user: str | None = None
    bot_id: str | None = None
    username: str | None = None
    subtype: str | None = None
    text: str | None = None
    thread_ts: str | None = None
    # The author of the first message of the thread.
    parent_user_id: str | None = None
    # The workspace of the author, which is another one in a shared channel.
    user_team: str | None = None
    team: str | None = None
    edited: SlackEdit | None = None
    files: tuple[SlackFile, ...] = ()
    attachments: tuple[SlackAttachment, ...] = ()
    blocks: tuple[SlackBlock, ...] = ()
    metadata: SlackMetadata | None = None


class ReactionItem(msgspec.Struct, frozen=True, kw_only=True):
    type: str = ""
    channel: str = ""
    ts: str = ""


class AssistantThread(msgspec.Struct, frozen=True, kw_only=True):
    user_id: str
    channel_id: str
    thread_ts: str


class SlackEvent(SlackMessage, frozen=True, kw_only=True):
    """The inner event. A `message` is a message itself, or contains one that was changed or deleted."""

    type: str
    channel: str = ""
    event_ts: str = ""
    # `message_changed` and `message_deleted`.
    message: SlackMessage | None = None
    previous_message: SlackMessage | None = None
    deleted_ts: str = ""
    # Reactions.
    reaction: str = ""
    item: ReactionItem | None = None
    item_user: str | None = None
    assistant_thread: AssistantThread | None = None


class SlackAuthorization(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace that has installed the app and sees the event."""

    team_id: str | None = None


class EventCallback(msgspec.Struct, frozen=True, kw_only=True):
    """What Slack hands over for each event, by Socket Mode or by a post."""

    type: str
    team_id: str = ""
    authorizations: tuple[SlackAuthorization, ...] = ()
    # Parsed later, because other kinds of events use the same names for other types.
    event: msgspec.Raw = msgspec.Raw()
    challenge: str = ""


class SlackPerson(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    username: str = ""
    name: str = ""
    team_id: str = ""


class SlackChannel(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""


class PressedButton(msgspec.Struct, frozen=True, kw_only=True):
    value: str = ""
    action_ts: str = ""


class SlackTeam(msgspec.Struct, frozen=True, kw_only=True):
    id: str = ""


class ButtonPress(msgspec.Struct, frozen=True, kw_only=True):
    """A `block_actions` interaction. Other interactions have another type."""

    type: str
    user: SlackPerson
    team: SlackTeam | None = None
    channel: SlackChannel | None = None
    message: SlackMessage | None = None
    actions: tuple[PressedButton, ...] = ()


class CommandInvocation(msgspec.Struct, frozen=True, kw_only=True):
    command: str
    user_id: str
    channel_id: str
    trigger_id: str
    text: str = ""
    user_name: str = ""
    channel_name: str = ""
    team_id: str = ""


class EnvelopePayload(msgspec.Struct, frozen=True, kw_only=True):
    """A frame of Socket Mode: an event, an interaction, a slash command, or a word about the connection itself."""

    type: str
    envelope_id: str = ""
    payload: msgspec.Raw = msgspec.Raw()
    accepts_response_payload: bool = False
    # Of `hello`.
    num_connections: int = 1
    # Of `disconnect`.
    reason: str = ""


class SlackIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who Keryx is in a workspace, as `auth.test` says it."""

    user_id: str
    team_id: str
    bot_id: str = ""
    team: str = ""
    user: str = ""
    url: str = ""


class SlackProfile(msgspec.Struct, frozen=True, kw_only=True):
    display_name: str = ""
    real_name: str = ""


class SlackUser(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""
    real_name: str = ""
    locale: str = ""
    profile: SlackProfile = SlackProfile()

    @property
    def shown_name(self) -> str:
        return self.profile.display_name or self.profile.real_name or self.real_name or self.name
