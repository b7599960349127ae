"""Local: deliveries as files in a folder. Writing the same part twice leaves one file."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from keryx.core import ids
from keryx.core.deliveries import AGAIN, LOCAL, Idempotency, Target
from keryx.core.errors import NotSent
from keryx.core.ports import Capabilities, Door, Link, Parcel


class LocalAdapter:
    platform = LOCAL
    account = ""
    hook = None
    capabilities = Capabilities(idempotency=Idempotency.NATIVE, media=True, limit=10_000_000)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def listen(self, door: Door) -> None:
        """Nothing comes in from files."""
        door.report(Link.CONNECTED)
        await asyncio.Event().wait()

    async def typing(self, target: Target) -> None:
        """A folder shows nothing of the kind."""

    def parts(self, text: str) -> Sequence[str]:
        return [text]

    async def send(self, parcel: Parcel) -> str:
        """Write `<folder>/<chat>/<delivery>.md`, or the attachment beside it, whole or not at all; gives the path
        within the folder."""
        return await asyncio.to_thread(self._write, parcel)

    def _write(self, parcel: Parcel) -> str:
        path = self._folder / _name(parcel.target.chat, "answers") / _file(parcel)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.part")
            with draft.open("wb") as file:
                file.write(_body(parcel))
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as exc:
            raise NotSent(f"cannot write {path}: {exc.strerror}") from exc
        return str(path.relative_to(self._folder))


def _file(parcel: Parcel) -> str:
    if parcel.attachment is None:
        return f"{parcel.delivery}.md"
    return f"{parcel.delivery}.{parcel.part}.{_name(parcel.attachment.name, 'file')[-100:]}"


def _body(parcel: Parcel) -> bytes:
    if parcel.attachment is not None:
        return parcel.attachment.body
    return ((AGAIN if parcel.again else "") + parcel.text).encode("utf-8", "surrogatepass")


def _name(text: str, default: str) -> str:
    """Foreign text as the name of one file: never a path, never hidden, never empty."""
    return ids.plain(text).replace("/", "%2F").replace("\\", "%5C").strip(".") or default
