"""A delivery is its text, then its files, each sent and recorded on its own."""

import pytest
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, World

from keryx.core.errors import Uncertain
from keryx.core.ports.adapter import (
    AttachmentLimits,
    Capabilities,
    OutgoingPart,
)
from keryx.core.ports.agent import FileEvent, TextDelta
from keryx.store.db import Engine
from keryx.testing import RecordingAdapter, ScriptedAgent

pytestmark = pytest.mark.engines(Engine.SQLITE)

PNG = b"\x89PNG\r\n\x1a\n"
SCRIPT = [
    TextDelta("Two files"),
    FileEvent("cat.png", "", PNG),
    FileEvent("notes.txt", "text/plain", b"notes"),
]


async def drawn(begin: Begin, adapter: RecordingAdapter) -> World:
    world = await begin(agent=ScriptedAgent(SCRIPT), adapters=[adapter])
    await world.ask("draw")
    await world.flow(world.delivered(1), step=1)
    return world


async def test_files_are_sent_after_the_text(begin: Begin) -> None:
    adapter = RecordingAdapter(FAKE, capabilities=Capabilities(attachments=AttachmentLimits()))
    await drawn(begin, adapter)
    text, *files = adapter.sent_parts
    assert (text.text, text.attachment) == ("Two files", None)
    found = [f.attachment for f in files if f.attachment]
    assert [(a.name, a.mime, a.body) for a in found] == [
        ("cat.png", "image/png", PNG),
        ("notes.txt", "text/plain", b"notes"),
    ]
    assert [p.number for p in adapter.sent_parts] == [0, 1, 2]


async def test_where_files_cannot_be_sent_their_names_are(begin: Begin) -> None:
    adapter = RecordingAdapter(FAKE)
    await drawn(begin, adapter)
    assert adapter.texts == ["Two files", "[picture: cat.png]", "[file: notes.txt]"]


async def test_a_file_in_doubt_is_repeated_alone(begin: Begin) -> None:
    class Doubtful(RecordingAdapter):
        async def send(self, part: OutgoingPart) -> str:
            receipt = await super().send(part)
            if part.number == 1 and not part.again:
                raise Uncertain("the line broke")
            return receipt

    adapter = Doubtful(FAKE, capabilities=Capabilities(attachments=AttachmentLimits()))
    world = await drawn(begin, adapter)
    assert [(p.number, p.again) for p in adapter.sent_parts] == [
        (0, False),
        (1, False),
        (1, True),
        (2, False),
    ]
    (delivery,) = await world.delivered(1)
    assert (delivery.parts_sent, len(delivery.receipts)) == (3, 3)
