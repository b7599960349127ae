"""The parts of a delivery: its text as the adapter splits it, then its files. The same for every attempt."""

from collections.abc import Sequence

import msgspec

from keryx.core.deliveries import Delivery
from keryx.core.errors import NotFound, Refused
from keryx.core.ids import SessionId
from keryx.core.media import Attachment
from keryx.core.media import Media as Part
from keryx.core.messages import Audio, Image
from keryx.core.ports.adapter import Adapter
from keryx.engine.media import MediaStorage
from keryx.engine.plugins import guard_cancellation


class DeliveryPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a delivery: text as the adapter cut it, or a file."""

    text: str = ""
    file: Part | None = None


def split_delivery(adapter: Adapter, delivery: Delivery) -> list[DeliveryPart]:
    """Everything that is sent, in order; the same for every attempt. `Refused` if the adapter cannot cut it."""
    found: list[DeliveryPart] = []
    if delivery.text or not delivery.media:
        found += [DeliveryPart(text=t) for t in split_text(adapter, delivery.text)]
    for file in delivery.media:
        if adapter.capabilities.media:
            found.append(DeliveryPart(file=file))
        else:
            found += [
                DeliveryPart(text=t)
                for t in split_text(adapter, f"[{_describe_kind(file)}: {_choose_file_name(file)}]")
            ]
    return found


def split_text(adapter: Adapter, text: str) -> Sequence[str]:
    """The parts of a text. `Refused` if the adapter fails: it would fail the same way every time."""
    try:
        with guard_cancellation():
            return adapter.parts(text)
    except Exception as exc:
        raise Refused(
            f"the {adapter.platform} adapter cannot split this answer ({type(exc).__name__}: {exc})"
        ) from exc


async def load_attachment(media: MediaStorage, session: SessionId | None, file: Part) -> Attachment | None:
    """The bytes of a file that a session shows, or `None` if they are gone."""
    if session is None:
        return None
    try:
        found = await media.fetch_for_session(session, file.media)
    except NotFound:
        return None
    return msgspec.structs.replace(found, name=_choose_file_name(file), mime=file.mime or found.mime)


def render_missing_file(adapter: Adapter, file: Part) -> str:
    """What is sent in the place of a file that is gone."""
    return next(
        iter(split_text(adapter, f"[{_describe_kind(file)}: {_choose_file_name(file)} is no longer there]"))
    )


def _describe_kind(file: Part) -> str:
    match file:
        case Image():
            return "picture"
        case Audio():
            return "sound"
        case _:
            return "file"


def _choose_file_name(file: Part) -> str:
    return file.name or {"image/png": "picture.png", "image/jpeg": "picture.jpg"}.get(file.mime, "file")
