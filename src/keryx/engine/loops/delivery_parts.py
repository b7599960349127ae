"""The parts of a delivery: its text as the adapter splits it, then its files. The same for every attempt."""

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from keryx.core.deliveries import Delivery
from keryx.core.errors import NotFound
from keryx.core.ids import SessionId
from keryx.core.media import Attachment, Media
from keryx.core.messages import Audio, Image
from keryx.core.ports.adapter import Adapter, RenderedPart
from keryx.core.texts import Phrase, Texts
from keryx.engine import plugins
from keryx.engine.media import MediaStorage

_WHOLE_ANSWER = "answer.md"


class TextWithFiles(msgspec.Struct, frozen=True):
    """A part on a platform with `Capabilities.files_with_text`."""

    rendered: RenderedPart
    files: tuple[Attachment, ...]


Content: TypeAlias = RenderedPart | Media | Attachment | TextWithFiles
"""A part of a delivery: rendered text, a stored file, a file that is made of the text, or a text with its files."""


async def split_delivery(
    adapter: Adapter, delivery: Delivery, *, max_parts: int, media: MediaStorage, texts: Texts
) -> list[Content]:
    """Return all parts in order; none if the delivery only ends a preview. `Refused` if the adapter cannot split the
    text."""
    if adapter.capabilities.files_with_text:
        # The last part has all files. The text names those that cannot be sent.
        limits, files, total = adapter.capabilities.attachments, list[Attachment](), 0
        lines = [delivery.text] if delivery.text else []
        for item in delivery.media:
            file = await load_attachment(media, delivery.session, item)
            reason = find_reason_unsent(adapter, file)
            size = len(file.body) if file else 0
            if not reason and limits and limits.max_bytes and total + size > limits.max_bytes:
                reason = Phrase("attachment.too_large_together", limit=limits.max_bytes)
            if reason or file is None:
                lines.append(_describe_unsent(item, reason, texts))
            else:
                files.append(file)
                total += size
        split = await _split_text(adapter, "\n\n".join(lines), max_parts, texts) if lines else ()
        files = [*(part for part in split if isinstance(part, Attachment)), *files]
        rendered = [part for part in split if isinstance(part, RenderedPart)]
        if not files:
            return [*rendered]
        return [*rendered[:-1], TextWithFiles(rendered[-1] if rendered else RenderedPart(""), tuple(files))]
    parts: list[Content] = []
    if delivery.text:
        parts += await _split_text(adapter, delivery.text, max_parts, texts)
    for file in delivery.media:
        if adapter.capabilities.attachments:
            parts.append(file)
        else:
            named = texts.say("attachment.named", kind=_describe_kind(file), name=_choose_file_name(file))
            parts += await plugins.render_parts(adapter, named)
    return parts


def get_head(adapter: Adapter, text: str, parts: int) -> str:
    """Return enough of a text to fill this many parts: rendering costs what is shown, not what there is."""
    # Markup may take as much space as what it shows.
    return text[: 2 * parts * adapter.capabilities.limit]


async def _split_text(
    adapter: Adapter, text: str, max_parts: int, texts: Texts
) -> Sequence[RenderedPart | Attachment]:
    """Return the parts of a text. One that needs more than `max_parts` ends with a file of the whole text, or with a
    notice where that cannot be sent."""
    head = get_head(adapter, text, max_parts)
    parts = await plugins.render_parts(adapter, head)
    if len(parts) <= max_parts and len(head) == len(text):
        return parts
    kept = parts[: max(1, max_parts - 1)]
    file = Attachment(name=_WHOLE_ANSWER, mime="text/markdown", body=text.encode(errors="replace"))
    limits = adapter.capabilities.attachments
    if limits is not None and not limits.find_reason(file.mime, len(file.body)):
        return [*kept, file]
    return [*kept, *await plugins.render_parts(adapter, texts.say("attachment.cut", count=len(text)))]


async def load_attachment(media: MediaStorage, session: SessionId | None, file: Media) -> Attachment | None:
    """Return the bytes of a file that a session shows, or `None` if they no longer exist."""
    if session is None:
        return None
    try:
        stored = await media.fetch_for_session(session, file.media)
    except NotFound:
        return None
    return msgspec.structs.replace(stored, name=_choose_file_name(file), mime=file.mime or stored.mime)


def find_reason_unsent(adapter: Adapter, file: Attachment | None) -> str:
    """Return why a file cannot be sent, as the end of a sentence about it; empty if it can."""
    if file is None:
        return Phrase("attachment.gone")
    limits = adapter.capabilities.attachments
    return limits.find_reason(file.mime, len(file.body)) if limits else ""


async def render_unsent_file(adapter: Adapter, file: Media, reason: str, texts: Texts) -> RenderedPart:
    """Return the text that is sent instead of a file that cannot be sent."""
    return (await plugins.render_parts(adapter, _describe_unsent(file, reason, texts)))[0]


def _describe_unsent(file: Media, reason: str, texts: Texts) -> str:
    return texts.say(
        "attachment.unsent", kind=_describe_kind(file), name=_choose_file_name(file), reason=reason
    )


def _describe_kind(file: Media) -> Phrase:
    match file:
        case Image():
            return Phrase("attachment.picture")
        case Audio():
            return Phrase("attachment.sound")
        case _:
            return Phrase("attachment.file")


def _choose_file_name(file: Media) -> str:
    return file.name or {"image/png": "picture.png", "image/jpeg": "picture.jpg"}.get(file.mime, "file")
