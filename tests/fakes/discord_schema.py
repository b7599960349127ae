"""What Discord accepts in a request and what it answers, by the official OpenAPI description of version 10: the fields that a bot may send, their types and limits, and an extract of the description in `discord_operations.json`."""

import json
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

Check: TypeAlias = Callable[[Any], bool]
Fields: TypeAlias = Mapping[str, Check]

# The documented limit of a bot's message; the description has 4000, which is that of people with a subscription.
LONGEST_TEXT = 2000
LARGEST_FILE = 10_485_760
_NAME = re.compile(r"[-_a-z0-9]{1,32}")
_SNOWFLAKE = re.compile(r"0|[1-9]\d{0,19}")


OPERATIONS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("discord_operations.json").read_text(encoding="utf-8")
)["operations"]
"""By method and path: the types of the query, the shapes of the body and of the answer, and the statuses."""

# The description lacks them; discord.py sends them: `tts` for edits, the others for commands.
_UNDESCRIBED = {"tts", "nsfw", "dm_permission"}
_QUERY_FORMS = {"string": r".+", "integer": r"-?\d+", "boolean": r"true|false|1|0"}
_EMPTY: dict[str, Any] = {
    "string": "",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "array": [],
    "object": {},
    "null": None,
}
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


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


def check_query(operation: str, query: Mapping[str, str]) -> None:
    """Raise `Wrong` for a parameter that the operation does not have, or of another type."""
    known = OPERATIONS[operation]["query"]
    for name, value in query.items():
        if name not in known:
            raise Wrong(name, "unknown parameter")
        if not any(re.fullmatch(_QUERY_FORMS[kind], value) for kind in known[name]):
            raise Wrong(name, f"not of the type {known[name]}")


def check_described_body(operation: str, body: object) -> None:
    """Raise `Wrong` for a body that is not as the description has it."""
    if problems := find_problems(body, OPERATIONS[operation].get("body")):
        raise Wrong("body", problems[0])


def find_problems(value: object, described: Mapping[str, Any] | None, *, answer: bool = False) -> list[str]:
    """Return what in a body or an answer is not as one of the shapes that are described. An answer may have more fields."""
    if described is None:
        return []
    if "list" in described:
        if not isinstance(value, list):
            return ["must be a list"]
        items = cast(list[object], value)
        return [each for item in items for each in _match_any(item, described["list"], answer=answer)]
    return _match_any(value, described["any"], answer=answer)


def complete_answer(value: Any, described: Mapping[str, Any] | None) -> Any:
    """Return an answer with every field that the description requires: those that the fake does not know are empty."""
    if described is None:
        return value
    if "list" in described:
        return [complete_answer(item, {"any": described["list"]}) for item in value]
    shapes: list[dict[str, Any]] = described["any"]
    return _complete(value, min(shapes, key=lambda shape: len(_match(value, shape, answer=True))))


def _complete(value: dict[str, Any], shape: Mapping[str, Any]) -> dict[str, Any]:
    whole = {name: _EMPTY[_choose_type(shape["fields"][name])] for name in shape["required"]} | value
    for name in (n for n in whole if n.endswith("_timestamp") and whole[n] == ""):
        whole[name] = "2026-01-01T00:00:00+00:00"
    for name, described in shape["fields"].items():
        inner = cast(dict[str, Any], described)["inner"] if isinstance(described, dict) else None
        if inner and isinstance(whole.get(name), dict):
            whole[name] = _complete(cast(dict[str, Any], whole[name]), inner)
        elif inner and isinstance(whole.get(name), list):
            whole[name] = [_complete(each, inner) for each in cast(list[dict[str, Any]], whole[name])]
    return whole


def _choose_type(described: Any) -> str:
    types = cast(list[str], described if isinstance(described, list) else described["types"])
    return "null" if "null" in types or not types else types[0]


def _match_any(value: object, shapes: list[dict[str, Any]], *, answer: bool) -> list[str]:
    """Return the problems with the shape that fits best."""
    found = [_match(value, shape, answer=answer) for shape in shapes]
    return min(found, key=len)


def _match(value: object, shape: Mapping[str, Any], *, answer: bool, at: str = "") -> list[str]:
    if not isinstance(value, dict):
        return [f"{at or 'it'} must be an object"]
    values = cast(dict[str, Any], value)
    problems = [f"{at}{name} is missing" for name in shape["required"] if name not in values]
    for name, each in values.items():
        described = shape["fields"].get(name)
        if described is None:
            if not answer and name not in _UNDESCRIBED:
                problems.append(f"{at}{name} is unknown")
            continue
        types = cast(list[str], described if isinstance(described, list) else described["types"])
        # An id may be a number, as in the examples of the documentation.
        numbered = name.endswith("id") and type(each) is int and not answer
        if types and not numbered and not _is_of(each, types):
            problems.append(f"{at}{name} must be {types}, not {type(each).__name__}")
        if isinstance(described, dict) and each is not None:
            inner = cast(dict[str, dict[str, Any]], described)["inner"]
            items = cast(list[object], each if isinstance(each, list) else [each])
            for item in items:
                problems += _match(item, inner, answer=answer, at=f"{at}{name}.")
    return problems


def _is_of(value: object, types: Collection[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in types
    return isinstance(value, tuple(kind for name in types for kind in _JSON_TYPES[name]))


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
