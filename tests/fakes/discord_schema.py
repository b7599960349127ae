"""What Discord accepts in a request, by the official OpenAPI description of version 10: the fields that a bot may send, their types and limits."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias, cast

Check: TypeAlias = Callable[[Any], bool]
Fields: TypeAlias = Mapping[str, Check]

# The documented limit of a bot's message; the description has 4000, which is that of people with a subscription.
LONGEST_TEXT = 2000
LARGEST_FILE = 10_485_760
_NAME = re.compile(r"[-_a-z0-9]{1,32}")
_SNOWFLAKE = re.compile(r"0|[1-9]\d{0,19}")


class Wrong(Exception):
    """A field that Discord refuses."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}")
        self.field = field


def check(body: object, fields: Fields, *, needed: Collection[str] = (), at: str = "") -> None:
    """Raise `Wrong` for a body with an unknown field, a wrong value, or without a field that is needed."""
    if not isinstance(body, dict):
        raise Wrong(at or "body", "only dictionaries may be used here")
    values = cast(dict[str, Any], body)
    for name in needed:
        if name not in values:
            raise Wrong(f"{at}{name}", "this field is required")
    for name, value in values.items():
        if name not in fields:
            raise Wrong(f"{at}{name}", "unknown field")
        if value is not None and not fields[name](value):
            raise Wrong(f"{at}{name}", f"invalid value {str(value)[:80]!r}")


def check_commands(body: object) -> None:
    """Raise `Wrong` for a list of commands that is refused."""
    if not isinstance(body, list) or len(cast(list[Any], body)) > 100:
        raise Wrong("commands", "must be 100 or fewer in length")
    commands = cast(list[dict[str, Any]], body)
    for command in commands:
        check(command, COMMAND, needed={"name", "description"})
        for option in command.get("options") or ():
            check(option, COMMAND_OPTION, needed={"type", "name", "description"}, at="options.")
    if len({command["name"] for command in commands}) != len(commands):
        raise Wrong("name", "application command names must be unique")


def check_attachments(body: Mapping[str, Any], files: Mapping[str, tuple[str, bytes]]) -> None:
    """Raise `Wrong` if the files of a form and the list of attachments do not match."""
    listed: list[dict[str, Any]] = body.get("attachments") or []
    if sorted(f"files[{entry['id']}]" for entry in listed) != sorted(files):
        raise Wrong("attachments", "must match the files")
    if any(len(data) > LARGEST_FILE for _, data in files.values()):
        raise Wrong("files", "request entity too large")


def text(longest: int, shortest: int = 0) -> Check:
    return lambda value: isinstance(value, str) and shortest <= len(value) <= longest and _is_encodable(value)


def number(*allowed: int) -> Check:
    return lambda value: type(value) is int and (not allowed or value in allowed)


def _is_encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_snowflake(value: Any) -> bool:
    """Discord takes ids as text, and small ones as numbers."""
    return _SNOWFLAKE.fullmatch(str(value)) is not None and not isinstance(value, bool | float)


def is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def is_texts(value: Any) -> bool:
    texts = cast(dict[str, Any], value)
    return isinstance(value, dict) and all(text(100, 1)(each) for each in texts.values())


def is_object(fields: Fields, *, needed: Collection[str] = ()) -> Check:
    def accepts(value: Any) -> bool:
        check(value, fields, needed=needed)
        return True

    return accepts


def is_list(accepts: Check, *, longest: int) -> Check:
    def accepts_all(value: Any) -> bool:
        values = cast(list[Any], value)
        return isinstance(value, list) and len(values) <= longest and all(map(accepts, values))

    return accepts_all


def are_rows(value: Any) -> bool:
    """Up to five rows of up to five buttons, whose ids differ."""
    is_list(is_object(ACTION_ROW, needed={"type", "components"}), longest=5)(value)
    rows = cast(list[dict[str, Any]], value)
    ids = [button.get("custom_id") for row in rows for button in row["components"]]
    return len(rows) <= 5 and len(set(ids)) == len(ids) and all(row["components"] for row in rows)


BUTTON: Fields = {
    "type": number(2),
    "style": number(1, 2, 3, 4),
    "label": text(80),
    "custom_id": text(100, 1),
    "disabled": is_flag,
}
ACTION_ROW: Fields = {
    "type": number(1),
    "components": is_list(is_object(BUTTON, needed={"type", "style", "custom_id"}), longest=5),
}
ALLOWED_MENTIONS: Fields = {
    "parse": is_list(lambda value: value in ("users", "roles", "everyone"), longest=3),
    "users": is_list(is_snowflake, longest=100),
    "roles": is_list(is_snowflake, longest=100),
    "replied_user": is_flag,
}
REFERENCE: Fields = {
    "type": number(0, 1),
    "message_id": is_snowflake,
    "channel_id": is_snowflake,
    "guild_id": is_snowflake,
    "fail_if_not_exists": is_flag,
}
ATTACHMENT: Fields = {"id": is_snowflake, "filename": text(1024, 1), "description": text(1024)}
WEBHOOK_EDIT: Fields = {
    "content": text(LONGEST_TEXT),
    "allowed_mentions": is_object(ALLOWED_MENTIONS),
    "components": are_rows,
    "attachments": is_list(is_object(ATTACHMENT, needed={"id"}), longest=10),
    "embeds": is_list(lambda value: isinstance(value, dict), longest=10),
    "flags": number(),
    # The description lacks it for edits; discord.py sends it.
    "tts": is_flag,
}
WEBHOOK_CREATE: Fields = WEBHOOK_EDIT
MESSAGE_EDIT: Fields = WEBHOOK_EDIT
MESSAGE_CREATE: Fields = {
    **WEBHOOK_CREATE,
    "nonce": lambda value: text(25)(value) or type(value) is int,
    "enforce_nonce": is_flag,
    "message_reference": is_object(REFERENCE, needed={"message_id"}),
}
THREAD_CREATE: Fields = {
    "name": text(100, 1),
    "auto_archive_duration": number(60, 1440, 4320, 10080),
    "rate_limit_per_user": number(),
}
THREAD_UPDATE: Fields = {**THREAD_CREATE, "archived": is_flag, "locked": is_flag}
CALLBACK: Fields = {"type": number(4, 5, 6, 7), "data": is_object(WEBHOOK_CREATE)}
COMMAND_OPTION: Fields = {
    "type": number(3),
    "name": is_name,
    "description": text(100, 1),
    "required": is_flag,
}
COMMAND: Fields = {
    "name": is_name,
    "name_localizations": is_texts,
    "nsfw": is_flag,
    "dm_permission": is_flag,
    "default_member_permissions": is_snowflake,
    "integration_types": is_list(number(0, 1), longest=2),
    "description": text(100, 1),
    "description_localizations": is_texts,
    "type": number(1),
    "contexts": is_list(number(0, 1, 2), longest=3),
    "options": is_list(lambda value: isinstance(value, dict), longest=25),
}
