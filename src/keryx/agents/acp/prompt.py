"""Prompt: what an agent is asked in one turn, with what it has missed of the conversation and of its place."""

import base64
import hashlib
from collections.abc import Sequence

from keryx.agents.acp.abilities import Abilities
from keryx.agents.acp.rpc import Json
from keryx.core import prompt
from keryx.core.bindings import Binding
from keryx.core.errors import NotFound
from keryx.core.messages import Audio, File, Image, Message, Role, Text
from keryx.core.ports import Attachment, TurnContext
from keryx.core.titles import line

MISSED = "What was said in this conversation before, which you have not seen:"
AGAIN = (
    "You were interrupted while you worked on the message below, and may have seen it already. "
    "Go on where you stopped, and do not repeat what is done."
)
NOTHING_SAID = "(empty message)"
_LONGEST_PAST = 40_000


async def first(
    context: TurnContext,
    past: Sequence[Message],
    abilities: Abilities,
    binding: Binding | None,
    *,
    place: str,
) -> list[Json]:
    """The blocks that put a turn to an agent. `past` is the conversation, `binding` what the agent knows of it, `None`
    for nothing; `place` the digest of what it was told about its place."""
    told: list[str] = []
    if digest(context.place) != place and context.place.strip():
        told.append(context.place)
    if missed := _missed(context, past, binding):
        told.append(f"{MISSED}\n\n{missed}")
    if binding and binding.turn == context.turn:
        told.append(AGAIN)
    own = [m for m in context.asked if m.role is Role.USER]
    # Many agents join the blocks of a prompt as they are.
    return [*(_words(f"{part}\n\n") for part in told), *await asked(context, abilities, own)]


async def asked(context: TurnContext, abilities: Abilities, messages: Sequence[Message]) -> list[Json]:
    """What people said, with the pictures and files that the agent can take."""
    blocks: list[Json] = []
    for message in messages:
        text = message.exact
        if text is None:
            spoken = "\n\n".join(p.text for p in message.parts if isinstance(p, Text))
            text = (prompt.speaker(message.author) if context.shared else "") + spoken
        if text.strip():
            blocks.append(_words(text))
        for part in message.parts:
            if isinstance(part, Image | File | Audio):
                blocks.append(await _shown(context, abilities, part))
    return blocks or [_words(NOTHING_SAID)]


def digest(place: str) -> str:
    return hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _missed(context: TurnContext, past: Sequence[Message], binding: Binding | None) -> str:
    said = [m for m in past if m.turn != context.turn and m.role in (Role.USER, Role.ASSISTANT)]
    if binding:
        said = [m for m in said if m.seq > binding.seq and m.turn != binding.turn]
    lines = [context.summary] if context.summary and binding is None else []
    lines += [f"{_who(m)}: {text}" for m in said if (text := m.text.strip())]
    told = "\n\n".join(lines)
    return told if len(told) <= _LONGEST_PAST else f"… {told[-_LONGEST_PAST:]}"


def _who(message: Message) -> str:
    return "You" if message.role is Role.ASSISTANT else line(message.author) or "Person"


async def _shown(context: TurnContext, abilities: Abilities, part: Image | File | Audio) -> Json:
    if isinstance(part, Audio) and part.transcript:
        return _words(f"(spoken) {part.transcript}")
    name = line(part.name) or "file"
    try:
        found = await context.fetch(part.media)
    except NotFound:
        return _words(f"({name}: it is no longer there)")
    return _block(found, abilities, part) or _words(f"({name}, {found.mime}: you cannot take it)")


def _block(found: Attachment, abilities: Abilities, part: Image | File | Audio) -> Json | None:
    data = {"mimeType": found.mime, "data": base64.b64encode(found.body).decode()}
    match part:
        case Image() if abilities.images:
            return {"type": "image", **data}
        case Audio() if abilities.audio:
            return {"type": "audio", **data}
        case File() if abilities.embedded:
            uri = f"keryx://files/{part.media}"
            if found.mime.startswith("text/"):
                body = {"text": found.body.decode("utf-8", "replace"), "mimeType": found.mime}
            else:
                body = {"blob": data["data"], "mimeType": found.mime}
            return {"type": "resource", "resource": {"uri": uri, **body}}
        case _:
            return None


def _words(text: str) -> Json:
    return {"type": "text", "text": text}
