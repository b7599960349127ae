"""The adapter that writes deliveries as files in a folder. Writing the same part twice leaves one file."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from keryx.core import ids
from keryx.core.deliveries import LOCAL, Idempotency, Target
from keryx.core.errors import NotSent
from keryx.core.ports.adapter import (
    AdapterContext,
    AttachmentLimits,
    Capabilities,
    LinkState,
    OutgoingPart,
    RenderedPart,
)
from keryx.core.texts import Phrase


class LocalAdapter:
    platform = LOCAL
    account = ""
    hook = None
    capabilities = Capabilities(
        idempotency=Idempotency.NATIVE,
        attachments=AttachmentLimits(),
        shared_listening=True,
        limit=10_000_000,
    )

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def listen(self, context: AdapterContext) -> None:
        """Wait: no events come from files."""
        context.report(LinkState.CONNECTED)
        await asyncio.Event().wait()

    async def typing(self, target: Target) -> None:
        """Do nothing."""

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return [RenderedPart(text)]

    async def send(self, part: OutgoingPart) -> str:
        """Write `<folder>/<chat>/<delivery>.md`, or the attachment beside it, atomically; return the path within the
        folder."""
        return await asyncio.to_thread(self._write, part)

    def _write(self, part: OutgoingPart) -> str:
        file = part.attachment
        if file is None:
            name = f"{part.delivery}.md"
            content = (part.mark + part.text).encode("utf-8", "surrogatepass")
        else:
            name = f"{part.delivery}.{part.number}.{_safe_name(file.name, 'file')[-100:]}"
            content = file.body
        path = self._folder / _safe_name(part.target.chat, "answers") / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_name(f"{path.name}.part")
            with draft.open("wb") as output:
                output.write(content)
                output.flush()
                os.fsync(output.fileno())
            draft.replace(path)
        except OSError as exc:
            raise NotSent(Phrase("delivery.file_not_written", name=path, reason=exc.strerror)) from exc
        return str(path.relative_to(self._folder))


def _safe_name(text: str, default: str) -> str:
    """Return foreign text as the name of one file: never a path, never hidden, never empty."""
    return ids.escape(text).replace("/", "%2F").replace("\\", "%5C").strip(".") or default
