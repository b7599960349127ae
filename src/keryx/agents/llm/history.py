"""Converts a conversation to the messages of a chat-completion request. The output is deterministic, so prompt caches work."""

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from keryx.agents.llm import Model
from keryx.core import prompt
from keryx.core.ids import TurnId
from keryx.core.media import Media
from keryx.core.messages import (
    INTERRUPTED_OUTPUT,
    Audio,
    File,
    Image,
    Mark,
    Message,
    Part,
    Reasoning,
    Role,
    ToolCall,
    ToolResult,
    join_text,
)
from keryx.core.prompt import quote
from keryx.core.text import has_unwritable, replace_unwritable
from keryx.jsonrpc import Json

EMPTY_MESSAGE = "(empty message)"
NO_OUTPUT = "(no output)"
NO_ANSWER = "(no answer)"
CONTINUE_REQUEST = "(please go on)"
SUMMARY_HEADER = "What was said before, in short (the messages themselves are no longer shown):"
LONGEST_ID = 40
_INVALID_NAME = re.compile(r"[^A-Za-z0-9_-]")
# Characters of a text file in a prompt.
LONGEST_FILE = 200_000
_TEXT_MIMES = ("text/", "application/json", "application/xml", "application/yaml", "application/toml")
_AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class PromptContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt consists of besides the messages."""

    model: Model
    system: str = ""
    summary: str = ""
    # The zone of the times that messages begin with; empty for none.
    zone: str = ""
    # Messages begin with their ids on the platform.
    show_ids: bool = False
    # Several people take part, so each message names its author.
    shared: bool = False
    # Tools are offered. Without them past calls are written as text, because providers refuse them.
    tools: bool = True
    # The turn that is to be answered.
    turn: TurnId | None = None
    # The contents of media, by name.
    data: Mapping[str, bytes] = {}


def build(history: Sequence[Message], prompt_context: PromptContext) -> list[Json]:
    """Build the messages of a request for the next answer of this conversation."""
    out: list[Json] = []
    if prompt_context.summary.strip():
        _append_message(
            out,
            {"role": "user", "content": replace_unwritable(f"{SUMMARY_HEADER}\n\n{prompt_context.summary}")},
        )
    used_ids: set[str] = set()
    end = len(history)
    # The text of an interrupted attempt at this turn is written again, so leave it out.
    while end and prompt_context.turn:
        last = history[end - 1]
        interrupted = last.mark is Mark.INTERRUPTED and last.turn == prompt_context.turn
        if not interrupted or last.role is not Role.ASSISTANT or last.calls:
            break
        end -= 1
    for message, results in _group_steps(history[:end]):
        if message.role is Role.USER:
            _append_message(out, _build_user_message(message, prompt_context))
        elif prompt_context.tools:
            for entry in _build_assistant_messages(message, results, prompt_context, used_ids):
                _append_message(out, entry)
        else:
            # Write the tool calls as text.
            outputs = zip(message.calls, _match_outputs(message.calls, results), strict=True)
            steps = [f"[tool {c.name} {format_arguments(c)}: {o}]" for c, o in outputs]
            texts = [text for text in (_read_text(message), *map(replace_unwritable, steps)) if text]
            _append_message(out, {"role": "assistant", "content": "\n\n".join(texts)})
    if not out or out[-1]["role"] == "assistant":  # A request ends with something to answer.
        out.append({"role": "user", "content": CONTINUE_REQUEST})
    system: list[Json] = (
        [{"role": "system", "content": replace_unwritable(prompt_context.system)}]
        if prompt_context.system.strip()
        else []
    )
    return system + out


def _group_steps(history: Sequence[Message]) -> Iterator[tuple[Message, list[ToolResult]]]:
    """Yield each user and assistant message with the tool results that directly follow it."""
    at = 0
    while at < len(history):
        message, at = history[at], at + 1
        results: list[ToolResult] = []
        while at < len(history) and history[at].role is Role.TOOL:
            results += [p for p in history[at].parts if isinstance(p, ToolResult)]
            at += 1
        if message.role in (Role.USER, Role.ASSISTANT):
            yield message, results


def _build_user_message(message: Message, prompt_context: PromptContext) -> Json:
    text = message.exact
    if text is None:
        name = prompt.format_speaker(message.author) if prompt_context.shared else ""
        text = name + join_text(message.parts)
    message_id = message.platform_id if prompt_context.show_ids else ""
    stamp = prompt.format_stamp(message.at, zone=prompt_context.zone, message_id=message_id)
    text = stamp + text if text else stamp.rstrip()
    parts: list[Json] = [_build_text_part(text)] if text.strip() else []
    for part in message.parts:
        if isinstance(part, Image | File | Audio):
            media = render_media(part, prompt_context.model, prompt_context.data)
            parts.append(_build_text_part(media) if isinstance(media, str) else media)
    if all(p["type"] == "text" for p in parts):  # Every provider accepts plain text.
        return {"role": "user", "content": "\n\n".join(p["text"] for p in parts) or EMPTY_MESSAGE}
    return {"role": "user", "content": parts}


def _build_assistant_messages(
    message: Message, results: list[ToolResult], prompt_context: PromptContext, used_ids: set[str]
) -> list[Json]:
    """Build an assistant message and the results of its calls; nothing for an empty message."""
    text = _read_text(message)
    calls = message.calls
    if not calls:
        return [{"role": "assistant", "content": text}] if text else []
    ids: list[str] = []
    for call in calls:
        # The id is derived from the position of the call if the provider would refuse it.
        id_, tries = call.id, 0
        while not id_ or len(id_) > LONGEST_ID or id_ in used_ids or has_unwritable(id_):
            seed = f"{message.seq}/{tries}/{call.id}".encode("utf-8", "surrogatepass")
            id_, tries = f"call{hashlib.sha256(seed).hexdigest()[:12]}", tries + 1
        used_ids.add(id_)
        ids.append(id_)
    entry: Json = {"role": "assistant", "content": text or None}
    names = [_INVALID_NAME.sub("_", call.name)[:64] or "tool" for call in calls]
    entry["tool_calls"] = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": format_arguments(call)}}
        for call, id_, name in zip(calls, ids, names, strict=True)
    ]
    entry |= _build_reasoning(message.parts, prompt_context.model)
    outputs = [output or NO_OUTPUT for output in _match_outputs(calls, results)]
    tools = [{"role": "tool", "tool_call_id": i, "content": o} for i, o in zip(ids, outputs, strict=True)]
    return [entry, *tools]


def _read_text(message: Message) -> str:
    text = message.exact if message.exact is not None else join_text(message.parts)
    return replace_unwritable(text) if text.strip() else ""


def _match_outputs(calls: Sequence[ToolCall], results: Iterable[ToolResult]) -> list[str]:
    """Return the output of each call, in their order. The first result for an id counts."""
    outputs: dict[str, list[str]] = {}
    for result in results:
        outputs.setdefault(result.id, []).append(replace_unwritable(result.output).strip())
    return [outputs[c.id].pop(0) if outputs.get(c.id) else INTERRUPTED_OUTPUT for c in calls]


def format_arguments(call: ToolCall) -> str:
    """Return the input of a call as a JSON object, as providers require; any other input is wrapped in one."""
    if not call.input.strip():
        return "{}"
    text = replace_unwritable(call.input)
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return json.dumps({"input": text}, ensure_ascii=False)
    return text


def _build_reasoning(parts: Sequence[Part], model: Model) -> Json:
    """Return the reasoning that the provider wants to receive again beside its tool calls, in its own format."""
    thoughts = [p for p in parts if isinstance(p, Reasoning)]
    fields: Json = {}
    for thought in thoughts:
        try:
            stored = msgspec.json.decode(thought.opaque, type=_OpaqueReasoning)
        except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
            continue
        if stored.model == model.id:
            fields["reasoning_details"] = stored.reasoning_details
    text = "".join(t.text for t in thoughts)
    if model.replay and text:
        fields[model.replay] = replace_unwritable(text)
    return fields


class _OpaqueReasoning(msgspec.Struct, frozen=True):
    model: str
    reasoning_details: list[Json]


def encode_reasoning(details: list[Json], model: Model) -> str:
    """Encode opaque reasoning for storage, with the model that wrote it, because no other can read it."""
    return json.dumps({"model": model.id, "reasoning_details": details})


def _append_message(out: list[Json], entry: Json) -> None:
    """Append a message so that user and assistant alternate."""
    role = entry["role"]
    last = out[-1] if out else None
    if role == "assistant" and not entry["content"] and "tool_calls" not in entry:
        return
    if last is None and role == "assistant":
        out.append({"role": "user", "content": CONTINUE_REQUEST})
    elif last is not None and last["role"] == "tool" and role == "user":
        out.append({"role": "assistant", "content": NO_ANSWER})
    elif last is not None and last["role"] == role != "tool":
        content, added = last["content"], entry["content"]
        if isinstance(content, str) and isinstance(added, str):
            content = f"{content}\n\n{added}"
        elif added is not None:
            content = _to_parts(content) + _to_parts(added)
        out[-1] = entry | {"content": content}
        return
    out.append(entry)


def _to_parts(content: str | list[Json]) -> list[Json]:
    return [_build_text_part(content)] if isinstance(content, str) else content


def _build_text_part(text: str) -> Json:
    return {"type": "text", "text": replace_unwritable(text)}


def list_media(messages: Iterable[Message], model: Model) -> list[str]:
    """Return the names of the media that a prompt of these messages needs, each once."""
    parts = (p for m in messages if m.role is Role.USER for p in m.parts)
    return list(dict.fromkeys(p.media for p in parts if isinstance(p, Media) and _is_readable(p, model)))


def find_unread(messages: Iterable[Message], model: Model) -> list[Media]:
    """Return the media of a person that the model does not get, of each kind the first."""
    parts = (p for m in messages if m.role is Role.USER for p in m.parts if isinstance(p, Media))
    unread = (
        p for p in parts if not _is_readable(p, model) and not (isinstance(p, Audio) and p.transcript.strip())
    )
    return list({type(p): p for p in unread}.values())


def render_media(part: Media, model: Model, data: Mapping[str, bytes]) -> Json | str:
    """Return a part for the provider, or a text in its place if the model cannot read it."""
    if not _is_readable(part, model):
        transcript = part.transcript.strip() if isinstance(part, Audio) else ""
        return transcript or _describe_media(part, "this model cannot read it")
    content = data.get(part.media)
    if content is None:
        return _describe_media(part, "it is no longer there")
    match part:
        case Image(mime=mime):
            return {"type": "image_url", "image_url": {"url": _build_data_url(mime or "image/png", content)}}
        case Audio(mime=mime):
            sound = {"data": base64.b64encode(content).decode(), "format": _AUDIO_FORMATS[mime]}
            return {"type": "input_audio", "input_audio": sound}
        case File(mime=mime) if _is_text(mime):
            text = content.decode("utf-8", "replace")
            cut = "\n[The rest of the file is left out.]" if len(text) > LONGEST_FILE else ""
            return f"[file {quote(part.name or 'file')}]\n{text[:LONGEST_FILE]}{cut}\n[end of file]"
        case File(mime=mime, name=name):
            file = {
                "filename": name or "file",
                "file_data": _build_data_url(mime or "application/octet-stream", content),
            }
            return {"type": "file", "file": file}


def _is_readable(part: Media, model: Model) -> bool:
    match part:
        case Image(mime=mime):
            return bool(model.images) and (not mime or mime.startswith("image/"))
        case Audio(mime=mime, transcript=transcript):
            return bool(model.audio) and not transcript.strip() and mime in _AUDIO_FORMATS
        case File(mime=mime):
            return bool(model.files) or _is_text(mime)


def _is_text(mime: str) -> bool:
    return mime.startswith(_TEXT_MIMES)


def _describe_media(part: Media, reason: str) -> str:
    return f"[{type(part).__name__.lower()} {quote(part.name or part.mime or 'unnamed')}: {reason}]"


def _build_data_url(mime: str, content: bytes) -> str:
    return f"data:{mime};base64,{base64.b64encode(content).decode()}"
