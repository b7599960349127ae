"""Files are kept once, shown to whoever may see them, and go when nobody needs them."""

import asyncio
from datetime import timedelta

import msgspec
import pytest
from tests.builders import ANN, ANNS, BOBS, OPERATORS, Store, a_session, at_time
from tests.engine.conftest import Begin
from tests.engine.world import FAKE, World, inbound, viewer

from keryx.core import media
from keryx.core.errors import Invalid, NotFound, Unavailable
from keryx.core.ids import PrincipalId, SessionId
from keryx.core.media import Attachment
from keryx.core.messages import File, Image, Part, Role, Text, ToolCall
from keryx.core.ports.agent import FileEvent, TextDelta, ToolCallEvent
from keryx.engine.loops.sweeps import RetentionSweep
from keryx.engine.media import MediaStorage, build_adapter_viewer
from keryx.engine.policy import Policy
from keryx.engine.units import revisions
from keryx.store import media as store_media
from keryx.store import messages, sessions
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Transaction
from keryx.testing import START_TIME, CrashingDatabase, DatabaseFault, FakeClock, FaultTiming, ScriptedAgent

PNG = b"\x89PNG\r\n\x1a\n" + b"picture"
LARGE = b"%PDF-" + bytes(range(256)) * 3000
CAT = Attachment(name="cat.png", mime="image/png", body=PNG)
BOOK = Attachment(name="book.pdf", mime="", body=LARGE)


@pytest.fixture
def files(database: Database, clock: FakeClock) -> MediaStorage:
    return MediaStorage(database, limit=1_000_000)


def shows(tx: Transaction, part: Part, *, owner: PrincipalId = ANN) -> SessionId:
    session = a_session(tx, owner=owner)
    messages.append(at_time(tx, START_TIME), session.id, Role.USER, (Text("look"), part))
    return session.id


async def count(store: Store, table: str) -> int:
    row = await store.read(lambda tx: tx.row(f"select count(*) from {table}"))
    assert row is not None
    return int(row[0])


async def test_a_file_comes_back_as_it_was(files: MediaStorage, store: Store) -> None:
    cat, book = await files.save(ANNS, CAT), await files.save(ANNS, BOOK)
    assert cat == Image(media.hash_body(PNG), "image/png", "cat.png")
    assert book == File(media.hash_body(LARGE), "application/pdf", "book.pdf")
    assert await files.fetch(ANNS, cat.media) == CAT
    assert (await files.fetch(ANNS, book.media)).body == LARGE
    assert await count(store, "media_chunks") == 1 + 3
    assert await verify(store.database) == []


async def test_the_same_file_is_there_once(files: MediaStorage, store: Store) -> None:
    await files.save(ANNS, CAT)
    await files.save(ANNS, CAT)
    await files.save(BOBS, msgspec.structs.replace(CAT, name="other.png"))
    assert await count(store, "media") == 1
    assert (await files.fetch(ANNS, media.hash_body(PNG))).name == "cat.png"
    assert (await files.fetch(BOBS, media.hash_body(PNG))).name == "other.png"


async def test_only_who_brought_a_file_or_sees_its_session_sees_it(files: MediaStorage, store: Store) -> None:
    part = await files.save(ANNS, CAT)
    for nobody in (BOBS, msgspec.structs.replace(ANNS, profile="work")):
        with pytest.raises(NotFound, match="not yours"):
            await files.fetch(nobody, part.media)
    await store.write(shows, part)
    with pytest.raises(NotFound):
        await files.fetch(BOBS, part.media)
    assert (await files.fetch(OPERATORS, part.media)).body == PNG


async def test_naming_the_file_of_somebody_else_does_not_show_it(files: MediaStorage, store: Store) -> None:
    part = await files.save(ANNS, CAT)
    await store.write(shows, part, owner=BOBS.principal)
    with pytest.raises(NotFound):
        await files.fetch(BOBS, part.media)


async def test_a_file_that_is_too_large_or_empty_is_refused(files: MediaStorage) -> None:
    with pytest.raises(Invalid, match=r"big has 1\.0 MB, and at most 1\.0 MB are kept"):
        await files.save(ANNS, Attachment(name="big", mime="", body=bytes(1_000_001)))
    with pytest.raises(Invalid, match="empty"):
        await files.save(ANNS, Attachment(name="e", mime="", body=b""))


@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize("label", ["media.begin", "media.chunk", "media.finish"])
async def test_a_file_that_was_half_written_can_be_sent_again(
    database: Database, clock: FakeClock, store: Store, label: str, when: FaultTiming
) -> None:
    broken = MediaStorage(CrashingDatabase(database, DatabaseFault(label, when)), limit=1_000_000)
    with pytest.raises(Unavailable):
        await broken.save(ANNS, BOOK)
    if label != "media.finish":
        with pytest.raises(NotFound):
            await broken.fetch(ANNS, media.hash_body(LARGE))
    assert await verify(database) == []
    await broken.save(ANNS, BOOK)
    assert (await broken.fetch(ANNS, media.hash_body(LARGE))).body == LARGE


async def test_two_who_bring_the_same_file_at_once_both_have_it(files: MediaStorage) -> None:
    await asyncio.gather(*(files.save(v, BOOK) for v in (ANNS, BOBS, ANNS, OPERATORS)))
    for who in (ANNS, BOBS, OPERATORS):
        assert (await files.fetch(who, media.hash_body(LARGE))).body == LARGE


async def test_what_nobody_uses_goes_after_a_day(
    files: MediaStorage, store: Store, database: Database, clock: FakeClock
) -> None:
    used, unused = await files.save(ANNS, CAT), await files.save(ANNS, BOOK)
    half = media.hash_body(b"half")
    await store.at(START_TIME).write(store_media.begin_write, half, size=4)
    session = await store.write(shows, used)
    housekeeping = RetentionSweep(database, clock, policy=Policy())
    clock.advance(timedelta(hours=23))
    await housekeeping.sweep()
    assert await count(store, "media") == 3
    clock.advance(timedelta(hours=2))
    await housekeeping.sweep()
    assert await count(store, "media") == 1
    assert (await files.fetch(ANNS, used.media)).body == PNG
    with pytest.raises(NotFound):
        await files.fetch(ANNS, unused.media)
    await store.write(lambda tx: sessions.erase(at_time(tx, START_TIME), sessions.get(tx, session)))
    assert (await count(store, "media"), await count(store, "media_chunks")) == (0, 0)


async def test_erasing_a_session_removes_what_only_it_used(files: MediaStorage, store: Store) -> None:
    shared, own = await files.save(ANNS, CAT), await files.save(ANNS, BOOK)
    first = await store.write(shows, shared)
    await store.write(shows, shared)
    await store.write(lambda tx: messages.append(at_time(tx, START_TIME), first, Role.USER, (own,)))
    await store.write(lambda tx: sessions.erase(at_time(tx, START_TIME), sessions.get(tx, first)))
    assert (await files.fetch(ANNS, shared.media)).body == PNG
    with pytest.raises(NotFound):
        await files.fetch(ANNS, own.media)
    assert await count(store, "media") == 1


async def test_a_fork_shows_the_files_of_the_messages_it_has(files: MediaStorage, store: Store) -> None:
    early, late = await files.save(ANNS, CAT), await files.save(ANNS, BOOK)
    session = await store.write(shows, early)
    await store.write(lambda tx: messages.append(at_time(tx, START_TIME), session, Role.USER, (late,)))

    def fork(tx: Transaction) -> SessionId:
        found = sessions.get(tx, session)
        return revisions.fork(at_time(tx, START_TIME), found, surface="web", through=1).id

    child = await store.write(fork)
    assert [k.id for k in await store.read(store_media.list_for_session, child)] == [early.media]
    assert len(await store.read(store_media.list_for_session, session)) == 2


async def test_everything_that_a_person_brought_goes_with_them(files: MediaStorage, store: Store) -> None:
    held, sent = await files.save(ANNS, CAT), await files.save(build_adapter_viewer(FAKE, ""), BOOK)
    session = await store.write(shows, sent, owner=BOBS.principal)

    def erase(tx: Transaction) -> None:
        store_media.remove_for_owner(tx, profile=ANNS.profile, owner=ANNS.principal)
        message = messages.get(tx, session, 1)
        messages.redact(at_time(tx, START_TIME), message, (Text("(erased)"),))
        store_media.unlink(tx, session, message.parts, seq=1)

    await store.write(erase)
    for part in (held, sent):
        with pytest.raises(NotFound):
            await files.fetch(OPERATORS, part.media)
    assert await count(store, "media") == 0


async def test_a_file_that_another_message_shows_stays(files: MediaStorage, store: Store) -> None:
    part = await files.save(BOBS, CAT)
    session = await store.write(shows, part, owner=BOBS.principal)
    await store.write(lambda tx: messages.append(at_time(tx, START_TIME), session, Role.USER, (part,)))
    await store.write(lambda tx: store_media.unlink(tx, session, (part,), seq=1))
    assert (await files.fetch(BOBS, part.media)).body == PNG
    assert len(await store.read(store_media.list_for_session, session)) == 1


async def test_a_damaged_file_is_found(files: MediaStorage, store: Store, database: Database) -> None:
    await files.save(ANNS, CAT)
    await store.write(lambda tx: tx.run("update media_chunks set body = :b", {"b": PNG[::-1]}))
    assert [p.text for p in await verify(database)] == ["holds other bytes than its id stands for"]
    await store.write(lambda tx: tx.run("delete from media_chunks"))
    assert [p.text for p in await verify(database)] == [f"has 0 bytes instead of {len(PNG)}"]


async def test_the_session_of_a_platform_shows_what_the_platform_brought(world: World) -> None:
    part = await world.hub.media.save(build_adapter_viewer(FAKE, ""), CAT)
    said = inbound("look")
    receipt = await world.hub.receive(msgspec.structs.replace(said, parts=(Text("look"), part)))
    await world.settle(receipt)
    assert (await world.hub.media.fetch(viewer("ann"), part.media)).body == PNG
    with pytest.raises(NotFound):
        await world.hub.media.fetch(viewer("bob"), part.media)


async def test_an_agent_reads_the_files_of_its_conversation(begin: Begin) -> None:
    agent = ScriptedAgent([TextDelta("seen")])
    world = await begin(agent=agent)
    part = await world.hub.media.save(build_adapter_viewer(FAKE, ""), CAT)
    await world.settle(await world.hub.receive(msgspec.structs.replace(inbound("x"), parts=(part,))))
    other = await world.hub.media.save(ANNS, BOOK)
    assert (await agent.contexts[0].fetch(part.media)).body == PNG
    with pytest.raises(NotFound):
        await agent.contexts[0].fetch(other.media)


async def test_a_file_of_an_answer_stands_in_its_place_and_is_sent_after_the_text(begin: Begin) -> None:
    script = [TextDelta("Here: "), FileEvent("cat.png", "image/png", PNG), TextDelta("a cat.")]
    world = await begin(agent=ScriptedAgent(script))
    receipt = await world.say("draw")
    await world.settle(receipt)
    answer = (await world.open(receipt.session)).messages[-1]
    picture = Image(media.hash_body(PNG), "image/png", "cat.png")
    assert answer.parts == (Text("Here: "), picture, Text("a cat."))
    (delivery,) = await world.delivered(1)
    assert (delivery.text, delivery.media) == ("Here: \n\na cat.", (picture,))
    assert (await world.hub.media.fetch(viewer("ann"), picture.media)).body == PNG


async def test_a_file_before_a_tool_call_stays_in_its_step(begin: Begin) -> None:
    script = [FileEvent("cat.png", "", PNG), ToolCallEvent((ToolCall("1", "grep", "{}"),)), TextDelta("done")]
    world = await begin(agent=ScriptedAgent(script))
    receipt = await world.say("draw")
    await world.settle(receipt)
    steps = [m for m in (await world.open(receipt.session)).messages if m.role is Role.ASSISTANT]
    assert [type(p).__name__ for m in steps for p in m.parts] == ["Image", "ToolCall", "Text"]


async def test_a_file_that_cannot_be_kept_is_told_of(begin: Begin) -> None:
    world = await begin(agent=ScriptedAgent([FileEvent("void", "", b""), TextDelta("sorry")]))
    receipt = await world.say("draw")
    await world.settle(receipt)
    assert "notice: A file of the answer is left out: void is empty" in "\n".join(
        await world.transcript(receipt.session)
    )
