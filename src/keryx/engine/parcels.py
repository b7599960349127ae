"""Parcels: what a delivery is cut into. The pieces of its text come first, then its files, one by one."""

from collections.abc import Sequence

import msgspec

from keryx.core.deliveries import Delivery
from keryx.core.errors import NotFound, Refused
from keryx.core.ids import SessionId
from keryx.core.media import Media as Part
from keryx.core.messages import Audio, Image
from keryx.core.ports import Adapter, Attachment
from keryx.engine.foreign import contained
from keryx.engine.media import Media


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a delivery: text as the adapter cut it, or a file."""

    text: str = ""
    file: Part | None = None


def pieces(adapter: Adapter, delivery: Delivery) -> list[Piece]:
    """Everything that is sent, in order; the same for every attempt. `Refused` if the adapter cannot cut it."""
    found: list[Piece] = []
    if delivery.text or not delivery.media:
        found += [Piece(text=t) for t in cut(adapter, delivery.text)]
    for file in delivery.media:
        if adapter.capabilities.media:
            found.append(Piece(file=file))
        else:
            found += [Piece(text=t) for t in cut(adapter, f"[{_kind(file)}: {_name(file)}]")]
    return found


def cut(adapter: Adapter, text: str) -> Sequence[str]:
    """The parts of a text. `Refused` if the adapter fails: it would fail the same way every time."""
    try:
        with contained():
            return adapter.parts(text)
    except Exception as exc:
        raise Refused(
            f"the {adapter.platform} adapter cannot split this answer ({type(exc).__name__}: {exc})"
        ) from exc


async def attachment(media: Media, session: SessionId | None, file: Part) -> Attachment | None:
    """The bytes of a file that a session shows, or `None` if they are gone."""
    if session is None:
        return None
    try:
        found = await media.of_session(session, file.media)
    except NotFound:
        return None
    return msgspec.structs.replace(found, name=_name(file), mime=file.mime or found.mime)


def missing(adapter: Adapter, file: Part) -> str:
    """What is sent in the place of a file that is gone."""
    return next(iter(cut(adapter, f"[{_kind(file)}: {_name(file)} is no longer there]")))


def _kind(file: Part) -> str:
    match file:
        case Image():
            return "picture"
        case Audio():
            return "sound"
        case _:
            return "file"


def _name(file: Part) -> str:
    return file.name or {"image/png": "picture.png", "image/jpeg": "picture.jpg"}.get(file.mime, "file")
