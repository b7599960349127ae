"""Requests to the OpenAI-compatible API: their bodies and queries, and the messages and parameters in them.

Fields that Keryx does not know are accepted and ignored, because clients send new ones all the time."""

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, cast

import anyio.to_thread
import msgspec
from msgspec import Meta

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.media import Attachment
from keryx.core.messages import Notice, Part, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.core.ports.agent import ClientTool
from keryx.engine.hub.api_turns import ITEM_KIND, PastMessage
from keryx.surfaces.web.request_schema import MAX_TEXT_CHARS, RequestForm

Json: TypeAlias = dict[str, Any]
SaveFile: TypeAlias = Callable[[Attachment], Awaitable[Part]]
FindFile: TypeAlias = Callable[[str], Awaitable[Part]]
Model = Annotated[str, Meta(min_length=1, max_length=200)]
Metadata = dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]]
ItemLimit = Annotated[int, Meta(ge=1, le=100)]
ItemId = Annotated[str, Meta(max_length=200)]

MAX_BODY_BYTES = 32 << 20
# They are stored in one transaction, and other writes wait for it.
MAX_ITEMS = 5_000
_MAX_FILES = 100
_MAX_TOOLS = 512
_TEXT_TYPES = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text"})
_INSTRUCTION_ROLES = frozenset({"system", "developer"})
# Under the same name in the request to the model.
_CHAT_PARAMETERS = (
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "response_format",
    "reasoning_effort",
    "tool_choice",
    "parallel_tool_calls",
)


class StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool = False


class ChatCompletionForm(RequestForm, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """As in OpenAI's API. `model` is the name of a model or an agent, or `keryx` for the default. With `store: false` nothing
    is kept."""

    messages: Annotated[list[Json], Meta(min_length=1, max_length=MAX_ITEMS)]
    model: Model = "keryx"
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[Json], Meta(max_length=_MAX_TOOLS)] | None = None
    store: bool | None = None
    user: Annotated[str, Meta(max_length=500)] | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: Json | None = None
    response_format: Json | None = None
    reasoning_effort: str | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None


class ResponseForm(RequestForm, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """As in OpenAI's API. `model` is the name of a model or an agent, or `keryx` for the default. With `store: false` nothing
    is kept."""

    input: Annotated[str, Meta(max_length=MAX_TEXT_CHARS)] | Annotated[list[Json], Meta(max_length=MAX_ITEMS)]
    model: Model = "keryx"
    instructions: Annotated[str, Meta(max_length=MAX_TEXT_CHARS)] | None = None
    previous_response_id: ItemId | None = None
    conversation: ItemId | Json | None = None
    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    metadata: Metadata | None = None
    tools: Annotated[list[Json], Meta(max_length=_MAX_TOOLS)] | None = None
    tool_choice: str | Json | None = None
    parallel_tool_calls: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    text: Json | None = None
    reasoning: Json | None = None
    user: Annotated[str, Meta(max_length=500)] | None = None


class ResponseQuery(RequestForm, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """`starting_after`: with `stream`, the number of the last event that the client has."""

    stream: bool = False
    starting_after: Annotated[int, Meta(ge=-1, le=1 << 53)] = -1


class ItemQuery(RequestForm, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """`after` is the id of the last item of the page before."""

    after: ItemId | None = None
    limit: ItemLimit = 20
    order: Literal["asc", "desc"] = "desc"


class LooseQuery(RequestForm, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Parameters that have no effect."""


class ConversationForm(RequestForm, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """The first items and the metadata of a conversation."""

    items: Annotated[list[Json], Meta(max_length=MAX_ITEMS)] | None = None
    metadata: Metadata | None = None


class ItemsForm(RequestForm, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Items to append to a conversation."""

    items: Annotated[list[Json], Meta(max_length=MAX_ITEMS)]


class InputReader:
    """Reads the messages of a request. Files in them are stored."""

    def __init__(self, save: SaveFile, find: FindFile, *, keep_instructions: bool = False) -> None:
        """With `keep_instructions`, those are items too."""
        self._save = save
        self._find = find
        self._keep_instructions = keep_instructions
        # What the request says as the system or the developer.
        self.instructions: list[str] = []
        self._files = 0
        self._tool_names: dict[str, str] = {}

    async def read(self, items: Sequence[Json]) -> list[PastMessage]:
        """Return the messages and items, without those for the prompt. Raise `Invalid` with the number of a wrong one."""
        found: list[PastMessage] = []
        for number, item in enumerate(items):
            try:
                message = await self._read_item(item)
            except Invalid as exc:
                raise Invalid(f"item {number} is wrong: {exc}") from exc
            if message is not None:
                found.append(message)
        return found

    async def _read_item(self, item: Json) -> PastMessage | None:
        kind = item.get("type") or "message"
        match kind:
            case "message":
                return await self._read_message(item)
            case "function_call":
                call = ToolCall(
                    _get_text(item, "call_id"), _get_text(item, "name"), _get_text(item, "arguments")
                )
                self._tool_names[call.id] = call.name
                return PastMessage(Role.ASSISTANT, (call,))
            case "function_call_output":
                return self._build_result(_get_text(item, "call_id"), item.get("output"))
            case "reasoning":
                entries = [*_list_entries(item, "summary"), *_list_entries(item, "content")]
                text = "\n\n".join(str(entry.get("text") or "") for entry in entries)
                return PastMessage(Role.ASSISTANT, (Reasoning(text),)) if text else None
            case "item_reference":
                # It names something that the session has.
                return None
            case _:
                return _keep_item(item)

    async def _read_message(self, item: Json) -> PastMessage | None:
        role, content = item.get("role"), item.get("content")
        if role in _INSTRUCTION_ROLES and self._keep_instructions:
            return _keep_item(item)
        if role in _INSTRUCTION_ROLES:
            text = _join_content(content)
            if text.strip():
                self.instructions.append(text)
            return None
        if role in ("tool", "function"):
            return self._build_result(_get_text(item, "tool_call_id"), content)
        parts = await self._read_content(content)
        if role == "user":
            if not parts:
                raise Invalid("it is empty: write something")
            return PastMessage(Role.USER, tuple(parts))
        if role != "assistant":
            raise Invalid("`role` is system, developer, user, assistant or tool")
        for call in _list_entries(item, "tool_calls"):
            function = call.get("function")
            if not isinstance(function, dict):
                raise Invalid("a call in `tool_calls` has no `function`")
            made = ToolCall(
                _get_text(call, "id"),
                _get_text(cast(Json, function), "name"),
                _get_text(cast(Json, function), "arguments"),
            )
            self._tool_names[made.id] = made.name
            parts.append(made)
        return PastMessage(Role.ASSISTANT, tuple(parts)) if parts else None

    def _build_result(self, call: str, content: object) -> PastMessage:
        output = _join_content(content)
        return PastMessage(Role.TOOL, (ToolResult(call, self._tool_names.get(call, ""), output),))

    async def _read_content(self, content: object) -> list[Part]:
        if isinstance(content, str):
            _check_length(content)
            return [Text(content)] if content.strip() else []
        if content is None:
            return []
        parts: list[Part] = []
        for entry in _as_entries(content):
            kind = entry.get("type")
            if kind in _TEXT_TYPES or kind == "refusal":
                text = _get_text(entry, "refusal" if kind == "refusal" else "text")
                _check_length(text)
                parts += [Text(text)] if text.strip() else []
            elif kind == "image_url":
                image = entry.get("image_url")
                url = cast(Json, image).get("url") if isinstance(image, dict) else image
                parts.append(await self._read_file(url, None, "image"))
            elif kind == "input_image":
                parts.append(await self._read_file(entry.get("image_url"), entry.get("file_id"), "image"))
            elif kind in ("file", "input_file"):
                nested = entry.get("file")
                file = cast(Json, nested) if isinstance(nested, dict) else entry
                parts.append(
                    await self._read_file(
                        file.get("file_data") or file.get("file_url"),
                        file.get("file_id"),
                        str(file.get("filename") or "file")[:200],
                    )
                )
            elif kind == "input_audio":
                audio = entry.get("input_audio")
                sound = cast(Json, audio) if isinstance(audio, dict) else entry
                mime = f"audio/{str(sound.get('format') or 'wav')[:20]}"
                parts.append(
                    await self._read_file(f"data:{mime};base64,{sound.get('data') or ''}", None, "sound")
                )
            else:
                raise Invalid(
                    f"content of the type {str(kind)[:80]!r} is not known: send text, images, sounds or files"
                )
        return parts

    async def _read_file(self, url: object, file_id: object, name: str) -> Part:
        """Store a file that a request contains, or find one that was uploaded before."""
        self._files += 1
        if self._files > _MAX_FILES:
            raise Invalid(
                f"a request may have at most {_MAX_FILES} files: upload them, or send fewer at once"
            )
        if isinstance(file_id, str) and file_id:
            return await self._find(file_id)
        if not isinstance(url, str) or not url:
            raise Invalid(f"{name!r} has no data: send it as a data URL")
        head, comma, data = url.partition(",")
        if not comma and not url.startswith(("http:", "https:")):
            # Some clients send the bytes alone.
            head, data = "data:application/octet-stream;base64", url
        elif not head.startswith("data:") or not head.endswith(";base64"):
            raise Invalid(f"{name!r} is not fetched from other places: send it as a data URL with base64")
        try:
            body = await anyio.to_thread.run_sync(lambda: base64.b64decode(data, validate=True))
        except (binascii.Error, ValueError) as exc:
            raise Invalid(f"{name!r} is not base64: {exc}") from exc
        return await self._save(Attachment(name=name, mime=head[5:-7] or "text/plain", body=body))


def split_question(said: Sequence[PastMessage]) -> tuple[tuple[PastMessage, ...], tuple[PastMessage, ...]]:
    """Return the messages up to the last answer, and the messages to answer now."""
    start = len(said)
    while start and said[start - 1].role in (Role.USER, Role.TOOL):
        start -= 1
    check_question(said[start:])
    return tuple(said[:start]), tuple(said[start:])


def check_question(inputs: Sequence[PastMessage]) -> None:
    """Raise `Invalid` if there is nothing to answer."""
    if not inputs or inputs[-1].role not in (Role.USER, Role.TOOL):
        raise Invalid("there is nothing to answer: the last message must be one of the user or of a tool")


def read_tools(tools: Sequence[Json] | None) -> tuple[tuple[ClientTool, ...], list[str]]:
    """Return the functions of the program, and the types of those tools that are not functions."""
    found: list[ClientTool] = []
    others: list[str] = []
    for tool in tools or ():
        if tool.get("type") != "function":
            others.append(str(tool.get("type"))[:40])
            continue
        nested = tool.get("function")
        function = cast(Json, nested) if isinstance(nested, dict) else tool
        parameters = function.get("parameters")
        found.append(
            ClientTool(
                name=_get_text(function, "name"),
                description=str(function.get("description") or ""),
                parameters=cast(Json, parameters)
                if isinstance(parameters, dict)
                else {"type": "object", "properties": {}},
            )
        )
    return tuple(found), others


def read_chat_parameters(form: ChatCompletionForm) -> Json:
    """Return the parameters for the model."""
    if form.n not in (None, 1):
        raise Invalid("`n` is 1: ask again for another answer")
    values = msgspec.structs.asdict(form)
    return {name: values[name] for name in _CHAT_PARAMETERS if values[name] is not None}


def read_response_parameters(form: ResponseForm) -> Json:
    """Return the parameters for the model, from the names of the chat completions API."""
    values: Json = {
        "temperature": form.temperature,
        "top_p": form.top_p,
        "max_completion_tokens": form.max_output_tokens,
        "parallel_tool_calls": form.parallel_tool_calls,
        "reasoning_effort": (form.reasoning or {}).get("effort"),
        "tool_choice": form.tool_choice,
    }
    choice = form.tool_choice
    if isinstance(choice, dict) and choice.get("type") == "function" and "function" not in choice:
        values["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    format_ = (form.text or {}).get("format")
    if isinstance(format_, dict):
        wanted = cast(Json, format_)
        if wanted.get("type") == "json_schema":
            schema = {
                name: wanted[name] for name in ("name", "schema", "strict", "description") if name in wanted
            }
            values["response_format"] = {"type": "json_schema", "json_schema": schema}
        elif wanted.get("type") == "json_object":
            values["response_format"] = {"type": "json_object"}
    return {name: value for name, value in values.items() if value is not None}


def _keep_item(item: Json) -> PastMessage:
    """Return an item that has no meaning here as it is."""
    raw = codec.dumps(item)
    _check_length(raw)
    return PastMessage(Role.NOTICE, (Notice(raw, ITEM_KIND),))


def _get_text(item: Mapping[str, Any], name: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise Invalid(f"`{name}` is missing, or is no text")
    return value


def _list_entries(item: Mapping[str, Any], name: str) -> list[Json]:
    value = item.get(name)
    return [] if value is None else _as_entries(value)


def _as_entries(value: object) -> list[Json]:
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in cast(list[object], value)):
        raise Invalid("`content` is a text or a list of objects with a `type`")
    return cast(list[Json], value)


def _join_content(content: object) -> str:
    """Return the text of a content. Other entries of it have no meaning here."""
    if content is None:
        return ""
    if not isinstance(content, str):
        content = "\n\n".join(str(entry.get("text") or "") for entry in _as_entries(content))
    _check_length(content)
    return content


def _check_length(text: str) -> None:
    if len(text) > MAX_TEXT_CHARS:
        raise Invalid(f"a text has {len(text):,} characters: at most {MAX_TEXT_CHARS:,} are taken")
