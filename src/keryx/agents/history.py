"""History: a conversation as the messages of a chat-completions request. Pure: the same conversation gives the
same bytes, and a longer one begins with the bytes of the shorter, so that prompt caches hold.

Whatever crashed before, the result keeps the rules of the strictest providers: the system prompt first, then a
person, then roles that alternate; nothing empty; every tool call answered once, directly after it, and nothing
else answered; ids that never repeat.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from keryx.agents import media
from keryx.agents.media import Json
from keryx.agents.models import Model
from keryx.core import prompt
from keryx.core.ids import TurnId
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
    Text,
    ToolCall,
    ToolResult,
)

NOTHING_SAID = "(empty message)"
NO_OUTPUT = "(no output)"
NO_ANSWER = "(no answer)"
GO_ON = "(please go on)"
SUMMARY = "What was said before, in short (the messages themselves are no longer shown):"
LONGEST_ID = 40

_ODD_NAME = re.compile(r"[^A-Za-z0-9_-]")
_UNSENDABLE = re.compile(r"[\x00\ud800-\udfff]")


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt is made of besides the messages. `shared`: several people speak, so each is named.
    `tools`: tools are offered; without them, past calls are told in words, since providers then refuse them."""

    model: Model
    system: str = ""
    summary: str = ""
    shared: bool = False
    tools: bool = True
    turn: TurnId | None = None
    data: Mapping[str, bytes] = {}


def build(history: Sequence[Message], scene: Scene) -> list[Json]:
    """The messages of a request that asks for the next answer of this conversation."""
    out: list[Json] = []
    if scene.summary.strip():
        _add(out, {"role": "user", "content": _clean(f"{SUMMARY}\n\n{scene.summary}")})
    taken: set[str] = set()
    for message, results in _steps(_without_begun(history, scene.turn)):
        if message.role is Role.USER:
            _add(out, _asked(message, scene))
        elif scene.tools:
            for entry in _answered(message, results, scene, taken):
                _add(out, entry)
        else:
            _add(out, _told(message, results))
    _close(out)
    system: list[Json] = [{"role": "system", "content": _clean(scene.system)}] if scene.system.strip() else []
    return system + out


def _without_begun(history: Sequence[Message], turn: TurnId | None) -> Sequence[Message]:
    """The history without the words that an interrupted attempt at this turn had begun: they are said anew."""
    end = len(history)
    while end and turn and _begun(history[end - 1], turn):
        end -= 1
    return history[:end]


def _begun(message: Message, turn: TurnId) -> bool:
    interrupted = message.mark is Mark.INTERRUPTED and message.turn == turn
    return interrupted and message.role is Role.ASSISTANT and not message.calls


def _steps(history: Sequence[Message]) -> Iterator[tuple[Message, list[ToolResult]]]:
    """Each message of a person or of the model, with the results that directly follow it."""
    at = 0
    while at < len(history):
        message, at = history[at], at + 1
        results: list[ToolResult] = []
        while at < len(history) and history[at].role is Role.TOOL:
            results += [p for p in history[at].parts if isinstance(p, ToolResult)]
            at += 1
        if message.role in (Role.USER, Role.ASSISTANT):
            yield message, results


def _asked(message: Message, scene: Scene) -> Json:
    text = message.exact
    if text is None:
        name = prompt.speaker(message.author) if scene.shared else ""
        text = name + _text(message.parts)
    parts: list[Json] = [_text_part(text)] if text.strip() else []
    for part in message.parts:
        if isinstance(part, Image | File | Audio):
            made = media.render(part, scene.model, scene.data)
            parts.append(_text_part(made) if isinstance(made, str) else made)
    return {"role": "user", "content": _content(parts) or NOTHING_SAID}


def _answered(message: Message, results: list[ToolResult], scene: Scene, taken: set[str]) -> list[Json]:
    """An assistant message and the results of its calls, or nothing for one that says nothing."""
    text = _words(message)
    calls = message.calls
    if not calls:
        return [{"role": "assistant", "content": text}] if text else []
    ids = [_unique(call, message, taken) for call in calls]
    entry: Json = {"role": "assistant", "content": text or None}
    entry["tool_calls"] = [_call(c, i) for c, i in zip(calls, ids, strict=True)]
    entry |= _reasoning(message.parts, scene.model)
    outputs = [output or NO_OUTPUT for output in _outputs(calls, results)]
    tools = [{"role": "tool", "tool_call_id": i, "content": o} for i, o in zip(ids, outputs, strict=True)]
    return [entry, *tools]


def _told(message: Message, results: list[ToolResult]) -> Json:
    """An assistant message whose tool steps are told in words."""
    calls = message.calls
    outputs = _outputs(calls, results)
    steps = [f"[tool {c.name} {arguments(c)}: {o}]" for c, o in zip(calls, outputs, strict=True)]
    said = [text for text in (_words(message), *map(_clean, steps)) if text]
    return {"role": "assistant", "content": "\n\n".join(said)}


def _words(message: Message) -> str:
    text = message.exact if message.exact is not None else _text(message.parts)
    return _clean(text) if text.strip() else ""


def _outputs(calls: Sequence[ToolCall], results: Iterable[ToolResult]) -> list[str]:
    """The output of each call, in the order of the calls. The first result for an id counts."""
    found: dict[str, list[str]] = {}
    for result in results:
        found.setdefault(result.id, []).append(_clean(result.output).strip())
    return [found[c.id].pop(0) if found.get(c.id) else INTERRUPTED_OUTPUT for c in calls]


def _call(call: ToolCall, id: str) -> Json:
    name = _ODD_NAME.sub("_", call.name)[:64] or "tool"
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments(call)}}


def arguments(call: ToolCall) -> str:
    """The input of a call as the JSON object that providers insist on; what is none is put into one."""
    if not call.input.strip():
        return "{}"
    text = _clean(call.input)
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return json.dumps({"input": text}, ensure_ascii=False)
    return text


def _unique(call: ToolCall, message: Message, taken: set[str]) -> str:
    """The id of the call, or one made from its place in the conversation where that cannot be sent."""
    sent, tries = call.id, 0
    while not sent or len(sent) > LONGEST_ID or sent in taken or _UNSENDABLE.search(sent):
        seed = f"{message.seq}/{tries}/{call.id}".encode("utf-8", "surrogatepass")
        sent, tries = f"call{hashlib.sha256(seed).hexdigest()[:12]}", tries + 1
    taken.add(sent)
    return sent


def _reasoning(parts: Sequence[Part], model: Model) -> Json:
    """The provider's own reasoning, given back beside its tool calls in the form it came in."""
    thoughts = [p for p in parts if isinstance(p, Reasoning)]
    fields: Json = {}
    for thought in thoughts:
        if thought.opaque:
            fields |= _opened(thought.opaque, model)
    text = "".join(t.text for t in thoughts)
    if model.replay and text:
        fields[model.replay] = _clean(text)
    return fields


class _Opaque(msgspec.Struct, frozen=True):
    model: str
    reasoning_details: list[Json]


def sealed(details: list[Json], model: Model) -> str:
    """Opaque reasoning as it is kept: with the model it came from, since no other can read it."""
    return json.dumps({"model": model.id, "reasoning_details": details})


def _opened(opaque: str, model: Model) -> Json:
    try:
        kept = msgspec.json.decode(opaque, type=_Opaque)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return {}
    return {"reasoning_details": kept.reasoning_details} if kept.model == model.id else {}


def _add(out: list[Json], entry: Json) -> None:
    """Append a message, in such a way that a person and the model take turns."""
    role = entry["role"]
    last = out[-1] if out else None
    if role == "assistant" and not entry["content"] and "tool_calls" not in entry:
        return
    if last is None and role == "assistant":
        out.append({"role": "user", "content": GO_ON})
    elif last is not None and last["role"] == "tool" and role == "user":
        out.append({"role": "assistant", "content": NO_ANSWER})
    elif last is not None and last["role"] == role != "tool":
        out[-1] = entry | {"content": _joined(last["content"], entry["content"])}
        return
    out.append(entry)


def _close(out: list[Json]) -> None:
    """A request ends with something to answer."""
    if not out or out[-1]["role"] == "assistant":
        out.append({"role": "user", "content": GO_ON})


def _joined(first: str | list[Json], second: str | list[Json] | None) -> str | list[Json]:
    if second is None:
        return first
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return _as_parts(first) + _as_parts(second)


def _as_parts(content: str | list[Json]) -> list[Json]:
    return [_text_part(content)] if isinstance(content, str) else content


def _content(parts: list[Json]) -> str | list[Json]:
    """Plain text where there is only text: every provider takes that."""
    if all(p["type"] == "text" for p in parts):
        return "\n\n".join(p["text"] for p in parts)
    return parts


def _text(parts: Sequence[Part]) -> str:
    return "\n\n".join(p.text for p in parts if isinstance(p, Text))


def _text_part(text: str) -> Json:
    return {"type": "text", "text": _clean(text)}


def _clean(text: str) -> str:
    """Text that every JSON reader takes: no NUL, and no half of a character."""
    if text.isascii() and "\x00" not in text:
        return text
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _UNSENDABLE.sub("\ufffd", whole)
