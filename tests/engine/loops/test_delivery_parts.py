"""A delivery is its text, then its files, each sent and recorded on its own."""

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, World

from keryx.core.errors import Uncertain
from keryx.core.ports.adapter import (
    AttachmentLimits,
    Capabilities,
    OutgoingPart,
)
from keryx.core.ports.agent import FileEvent, TextDelta
from keryx.core.texts import Catalogue
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


async def test_a_text_and_its_files_are_one_message_where_that_is_declared(begin: Begin) -> None:
    able = Capabilities(attachments=AttachmentLimits(), files_with_text=True, titles=True)
    adapter = RecordingAdapter(FAKE, capabilities=able)
    world = await drawn(begin, adapter)
    [part] = adapter.sent_parts
    assert (part.text, part.attachment) == ("Two files", None)
    assert [(a.name, a.body) for a in part.attachments] == [("cat.png", PNG), ("notes.txt", b"notes")]
    (delivery,) = await world.delivered(1)
    assert (delivery.parts_sent, len(delivery.receipts)) == (1, 1)


async def test_the_text_names_the_files_that_do_not_fit_into_the_message(begin: Begin) -> None:
    able = Capabilities(attachments=AttachmentLimits(max_bytes=10), files_with_text=True)
    adapter = RecordingAdapter(FAKE, capabilities=able)
    await drawn(begin, adapter)
    [part] = adapter.sent_parts
    assert part.text == (
        "Two files\n\n[file: notes.txt is too large to be sent with the others: at most 10 bytes in all]"
    )
    assert [a.name for a in part.attachments] == ["cat.png"]


async def test_what_is_said_about_files_and_length_is_in_the_language_of_the_person(begin: Begin) -> None:
    policy = msgspec.structs.replace(
        AT_ONCE,
        texts=Catalogue(language="de"),
        limits=msgspec.structs.replace(AT_ONCE.limits, parts=2),
    )
    able = Capabilities(attachments=AttachmentLimits(max_bytes=5), limit=120)
    adapter = RecordingAdapter(FAKE, capabilities=able, limit=120)
    script = [TextDelta("word " * 80), FileEvent("cat.png", "", PNG)]
    world = await begin(agent=ScriptedAgent(script), adapters=[adapter], policy=policy)
    await world.ask("draw")
    await world.flow(world.delivered(1), step=1)
    told = "".join(adapter.texts)
    assert "[gekürzt: Diese Antwort hat 400 Zeichen." in told
    assert f"[Bild: cat.png ist zu groß, um hier gesendet zu werden: {len(PNG)} Byte, höchstens 5]" in told


async def test_the_whole_of_a_long_answer_goes_with_its_last_part(begin: Begin) -> None:
    able = Capabilities(limit=10, attachments=AttachmentLimits(), files_with_text=True)
    adapter = RecordingAdapter(FAKE, capabilities=able, limit=10)
    script = [TextDelta("long words " * 200), FileEvent("notes.txt", "text/plain", b"notes")]
    world = await begin(agent=ScriptedAgent(script), adapters=[adapter])
    await world.ask("tell")
    await world.flow(world.delivered(1), step=1)
    *others, last = adapter.sent_parts
    assert others and not any(part.attachments or part.attachment for part in others)
    assert [file.name for file in last.attachments] == ["answer.md", "notes.txt"] and last.text


async def test_a_part_has_the_title_of_its_session_where_messages_have_one(begin: Begin) -> None:
    adapter = RecordingAdapter(FAKE, capabilities=Capabilities(titles=True))
    world = await begin(agent=ScriptedAgent([TextDelta("Yes.")]), adapters=[adapter])
    await world.say("/title A day in Rome")
    await world.ask("really?")
    await world.flow(adapter.wait_for(2), step=1)
    assert adapter.sent_parts[-1].title == "A day in Rome"
