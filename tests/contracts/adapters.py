"""The adapters that the contract is run over. A new adapter adds one `Case`: how it is made with a platform around it,
how to read what a person sees there, and how a person writes there, if the platform has a way in."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from keryx.core.deliveries import LOCAL, Idempotency
from keryx.core.ports import Adapter, Capabilities
from keryx.surfaces.gateway.local import LocalAdapter
from keryx.testing import RecordingAdapter
from keryx.testing.platform import Platform, PlatformAdapter


@dataclass(frozen=True, kw_only=True)
class Setting:
    """An adapter with its platform. `seen` gives the texts that a person sees in a chat, in order."""

    adapter: Adapter
    seen: Callable[[str], list[str]]
    say: Callable[[str, str], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    make: Callable[[Path], AbstractAsyncContextManager[Setting]]

    def __str__(self) -> str:
        return self.name


@asynccontextmanager
async def _local(folder: Path) -> AsyncGenerator[Setting]:
    def seen(chat: str) -> list[str]:
        files = sorted((folder / chat).glob("*.md"))
        return [f.read_bytes().decode("utf-8", "surrogatepass") for f in files]

    yield Setting(adapter=LocalAdapter(folder), seen=seen)


@asynccontextmanager
async def _recording(folder: Path) -> AsyncGenerator[Setting]:
    adapter = RecordingAdapter(capabilities=Capabilities(idempotency=Idempotency.NATIVE), limit=50)
    yield Setting(
        adapter=adapter, seen=lambda chat: [p.text for p in adapter.arrived if p.target.chat == chat]
    )


@asynccontextmanager
async def _platform(folder: Path, *, native: bool) -> AsyncGenerator[Setting]:
    with Platform(idempotent=native) as platform:
        adapter = PlatformAdapter(platform.url, native=native)
        try:
            yield Setting(adapter=adapter, seen=platform.texts, say=platform.say)
        finally:
            await adapter.close()


CASES = (
    Case(name=LOCAL, make=_local),
    Case(name="recording", make=_recording),
    Case(name="platform", make=lambda folder: _platform(folder, native=False)),
    Case(name="native", make=lambda folder: _platform(folder, native=True)),
)
