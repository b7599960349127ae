"""The parts of a delivery: its text as the adapter splits it, then its files. The same for every attempt."""

import msgspec

from keryx.core.deliveries import Delivery
from keryx.core.errors import NotFound
from keryx.core.ids import SessionId
from keryx.core.media import Attachment, Media
from keryx.core.messages import Audio, Image
from keryx.core.ports.adapter import Adapter, RenderedPart
from keryx.engine import plugins
from keryx.engine.media import MediaStorage


async def split_delivery(adapter: Adapter, delivery: Delivery) -> list[RenderedPart | Media]:
    """Return all parts in order; none if the delivery only ends a preview. `Refused` if the adapter cannot split the
    text."""
    parts: list[RenderedPart | Media] = []
    if delivery.text:
        parts += await plugins.render_parts(adapter, delivery.text)
    for file in delivery.media:
        if adapter.capabilities.attachments:
            parts.append(file)
        else:
            parts += await plugins.render_parts(
                adapter, f"[{_describe_kind(file)}: {_choose_file_name(file)}]"
            )
    return parts


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
        return "is no longer there"
    limits = adapter.capabilities.attachments
    return limits.find_reason(file.mime, len(file.body)) if limits else ""


async def render_unsent_file(adapter: Adapter, file: Media, reason: str) -> RenderedPart:
    """Return the text that is sent instead of a file that cannot be sent."""
    parts = await plugins.render_parts(
        adapter, f"[{_describe_kind(file)}: {_choose_file_name(file)} {reason}]"
    )
    return parts[0]


def _describe_kind(file: Media) -> str:
    match file:
        case Image():
            return "picture"
        case Audio():
            return "sound"
        case _:
            return "file"


def _choose_file_name(file: Media) -> str:
    return file.name or {"image/png": "picture.png", "image/jpeg": "picture.jpg"}.get(file.mime, "file")
