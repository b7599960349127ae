"""Local: deliveries as files in a folder. Writing the same part twice leaves one file."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from keryx.core import ids
from keryx.core.deliveries import LOCAL, Idempotency
from keryx.core.errors import NotSent
from keryx.core.ports import Capabilities, Inbound, Parcel, Receipt


class LocalAdapter:
    platform = LOCAL
    account = ""
    capabilities = Capabilities(idempotency=Idempotency.NATIVE, limit=10_000_000, pii_safe=False)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def listen(self, receive: Callable[[Inbound], Awaitable[Receipt]], cursor: str | None) -> None:
        """Nothing comes in from files."""
        await asyncio.Event().wait()

    def parts(self, text: str) -> Sequence[str]:
        return [text]

    async def send(self, parcel: Parcel) -> str:
        """Write `<folder>/<chat>/<delivery>.md`, whole or not at all; gives the path within the folder."""
        return await asyncio.to_thread(self._write, parcel)

    def _write(self, parcel: Parcel) -> str:
        name = ids.plain(parcel.target.chat).replace("/", "%2F").strip(".") or "answers"
        path = self._folder / name / f"{parcel.delivery}.md"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".part")
            with draft.open("w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(parcel.text)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except OSError as exc:
            raise NotSent(f"cannot write {path}: {exc.strerror}") from exc
        return str(path.relative_to(self._folder))
