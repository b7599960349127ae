"""The adapter against a real homeserver, with a context that records."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from tests.builders import until
from tests.gateway.matrix.person import Person
from tests.gateway.matrix.synapse import Synapse

from keryx.core.deliveries import REPEAT_MARK, Target
from keryx.core.errors import Forbidden, Invalid, MessageGone, NotSent, Refused
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment
from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundMessage, LinkState, MenuItem, OutgoingPart
from keryx.core.source import ChatType, Source
from keryx.surfaces.gateway.matrix import MatrixAdapter
from keryx.surfaces.gateway.matrix.homeserver import Homeserver
from keryx.surfaces.gateway.matrix.sync import ENCRYPTED_NOTICE
from keryx.testing import RecordingAdapterContext

SECONDS = 40


@pytest.fixture
async def adapter(synapse: Synapse, bot: Person) -> AsyncIterator[MatrixAdapter]:
    made = MatrixAdapter(Homeserver(synapse.url, bot.token), bot.user, download=100_000)
    yield made
    await made.close()


@asynccontextmanager
async def listening(
    adapter: MatrixAdapter, context: RecordingAdapterContext
) -> AsyncGenerator[RecordingAdapterContext]:
    """Listens while the block runs, and has connected before it."""
    task = asyncio.create_task(adapter.listen(context))
    try:
        await until(
            lambda: task.done() or LinkState.CONNECTED in [link for link, _ in context.link_states],
            seconds=SECONDS,
        )
        yield context
    finally:
        task.cancel()
        await asyncio.wait({task})
    if not task.cancelled() and task.exception():
        raise AssertionError("listening ended by itself") from task.exception()


async def heard(context: RecordingAdapterContext, count: int) -> list[InboundMessage]:
    return await context.wait_for(count, seconds=SECONDS)


def text(inbound: InboundMessage) -> str:
    return "".join(part.text for part in inbound.parts if isinstance(part, Text))


def build_part(
    adapter: MatrixAdapter, room: str, words: str, *, key: str = "d1", **more: str
) -> OutgoingPart:
    target = Target(
        "matrix", adapter.account, room, thread=more.get("thread", ""), reply_to=more.get("reply_to", "")
    )
    part = adapter.parts(words)[0]
    return OutgoingPart(
        delivery=DeliveryId(key),
        number=0,
        key=f"{key}.0",
        target=target,
        text=part.text,
        markup=part.markup,
        edits=more.get("edits", ""),
    )


async def test_an_invitation_is_accepted_and_what_was_said_since_is_heard(
    adapter: MatrixAdapter, ann: Person, bot: Person
) -> None:
    async with listening(adapter, RecordingAdapterContext()) as context:
        room = ann.room(bot, direct=True)
        ann.say(room, "hello")
        event = (await heard(context, 1))[0]
    assert text(event) == "hello" and event.addressed and event.source.chat_type is ChatType.DM
    assert (event.source.user, event.source.user_name, event.source.chat) == (ann.user, "Ann", room)
    assert event.reply == Target("matrix", bot.user, room)


async def test_an_invitation_by_a_stranger_is_left_alone(
    adapter: MatrixAdapter, ann: Person, bob: Person, bot: Person
) -> None:
    def stranger(source: Source) -> bool:
        return source.user == bob.user

    async with listening(adapter, RecordingAdapterContext(stranger=stranger)) as context:
        closed = bob.room(bot, direct=True)
        await until(lambda: any(bob.user in detail for _, detail in context.link_states), seconds=SECONDS)
        room = ann.room(bot, direct=True)
        ann.say(room, "hello")
        await heard(context, 1)
    assert bot.user not in ann.members(room) - {bot.user} and bot.user in ann.members(room)
    assert bob.members(closed) == {bob.user}


async def test_old_history_is_not_answered_and_an_invitation_that_waited_is(
    adapter: MatrixAdapter, ann: Person, bot: Person
) -> None:
    old = ann.room(bot, direct=True)
    bot.join(old)
    ann.say(old, "long ago")
    waiting = ann.room(bot, direct=True)
    ann.say(waiting, "are you there?")
    async with listening(adapter, RecordingAdapterContext()) as context:
        ann.say(old, "now")
        events = await heard(context, 2)
    assert sorted(text(e) for e in events) == ["are you there?", "now"]


async def test_in_a_room_of_several_a_mention_a_reply_or_a_command_is_meant_for_keryx(
    adapter: MatrixAdapter, ann: Person, bob: Person, bot: Person
) -> None:
    room = ann.room(bob, bot, name="Garden", topic="Roses")
    bob.join(room)
    bot.join(room)
    mine = bot.say(room, "I am here")
    pill = f'<a href="https://matrix.to/#/{bot.user}">Keryx</a>: hi'
    async with listening(adapter, RecordingAdapterContext(menu=[MenuItem("status", "")])) as context:
        ann.say(room, "among us")
        ann.say(room, "Keryx: what time is it", mention=bot.user)
        ann.send(room, {"msgtype": "m.text", "body": "Keryx: hi", "formatted_body": pill})
        bob.say(room, "I see", reply_to=mine)
        bob.say(room, "!status now")
        bob.send(room, {"msgtype": "m.notice", "body": "beep"})
        events = await heard(context, 6)
    assert [(text(e), e.addressed) for e in events] == [
        ("among us", False),
        ("what time is it", True),
        ("hi", True),
        ("I see", True),
        ("/status now", True),
        ("beep", False),
    ]
    assert events[3].quote == "I am here" and events[5].source.bot and not events[4].source.bot
    source = events[0].source
    assert (source.chat_name, source.topic, source.chat_type) == ("Garden", "Roses", ChatType.GROUP)
    assert events[1].reply and events[1].reply.reply_to == events[1].event


async def test_threads_are_places_of_their_own_and_edits_stay_in_theirs(
    adapter: MatrixAdapter, ann: Person, bot: Person
) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)
    async with listening(adapter, RecordingAdapterContext()) as context:
        root = ann.say(room, "a root")
        inner = ann.say(room, "within", thread=root)
        ann.edit(room, inner, "within, mended")
        events = await heard(context, 3)
        await adapter.send(build_part(adapter, room, "an answer", thread=root, reply_to=inner))
    assert [e.source.thread for e in events] == [None, root, root]
    assert (events[2].edits, text(events[2]), events[2].event != inner) == (inner, "within, mended", True)
    answer = ann.sees(room)[-1]
    assert (answer.text, answer.thread, answer.reply_to) == ("an answer", root, inner)


async def test_what_came_while_away_is_heard_in_order_however_much_it_is(
    adapter: MatrixAdapter, ann: Person, bot: Person
) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)
    async with listening(adapter, RecordingAdapterContext()) as context:
        ann.say(room, "first")
        await heard(context, 1)
    position = context.events[0].cursor
    assert position
    for number in range(130):
        ann.say(room, f"m{number}")
    async with listening(adapter, RecordingAdapterContext(position)) as later:
        events = await heard(later, 130)
        assert [text(e) for e in events] == [f"m{n}" for n in range(130)]
        moved = [e.cursor.partition(" ")[0] != position for e in events if e.cursor]
        assert moved == [False] * 129 + [True]


async def test_files_come_in_and_go_out(adapter: MatrixAdapter, ann: Person, bot: Person) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)
    picture = ann.upload(b"a picture", name="p.png", mime="image/png")
    large = ann.upload(b"x" * 200_000, name="large.bin", mime="application/octet-stream")
    async with listening(adapter, RecordingAdapterContext()) as context:
        info = {"mimetype": "image/png", "size": 9}
        ann.send(
            room, {"msgtype": "m.image", "body": "look", "filename": "p.png", "url": picture, "info": info}
        )
        ann.send(room, {"msgtype": "m.file", "body": "large.bin", "url": large})
        ann.send(room, {"msgtype": "m.file", "body": "gone.bin", "url": "mxc://hub.test/nothing"})
        events = await heard(context, 3)
        files = [file for event in events for file in event.files]
        fetched = await adapter.download(files[0], limit=100_000)
        for file in files[1:]:
            with pytest.raises(Invalid):
                await adapter.download(file, limit=100_000)
    assert events[0].parts == (Text("look"),)
    assert fetched == Attachment(name="p.png", mime="image/png", body=b"a picture")
    assert [file.name for file in files] == ["p.png", "large.bin", "gone.bin"]
    target = Target("matrix", bot.user, room)
    given = Attachment(name="out.txt", mime="text/plain", body=b"some words")
    sent = OutgoingPart(delivery=DeliveryId("d"), number=1, key="d.1", target=target, attachment=given)
    assert await adapter.send(sent) == await adapter.send(sent)
    seen = [s for s in ann.sees(room) if s.sender == bot.user]
    assert [(s.kind, s.text) for s in seen] == [("m.file", "out.txt")]
    assert ann.download(seen[0].content["url"]) == b"some words"


async def test_a_message_is_sent_once_per_key_and_edited_in_place(
    adapter: MatrixAdapter, ann: Person, bot: Person
) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)
    first = await adapter.send(build_part(adapter, room, "**one**"))
    assert first == await adapter.send(build_part(adapter, room, "**one**"))
    for key, words in (("e1", "two"), ("e2", "three"), ("e3", "two"), ("e3", "two")):
        assert first == await adapter.send(build_part(adapter, room, words, key=key, edits=first))
    assert ann.answers(room, by=bot) == ["two"]
    assert len(ann.events(room)) - len([e for e in ann.events(room) if "state_key" in e]) == 4


async def test_the_longest_part_fits_into_an_edit(adapter: MatrixAdapter, ann: Person, bot: Person) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)
    first = await adapter.send(build_part(adapter, room, "short"))
    words = "ä & ö, " * 20_000
    whole = adapter.parts(words)
    assert len(whole) > 2
    await adapter.send(build_part(adapter, room, words, key="d2"))
    await adapter.send(build_part(adapter, room, words, key="d3", edits=first))
    assert all(len(answer) > 10_000 for answer in ann.answers(room, by=bot))


async def test_an_edit_of_what_was_deleted_or_never_was_is_told(
    adapter: MatrixAdapter, ann: Person, bot: Person
) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)
    first = await adapter.send(build_part(adapter, room, "one"))
    bot.call("PUT", f"/client/v3/rooms/{room}/redact/{first}/r1", {})
    for event in (first, "$nothing"):
        with pytest.raises(MessageGone):
            await adapter.send(build_part(adapter, room, "two", key="d2", edits=event))


async def test_where_keryx_is_not_it_is_refused(adapter: MatrixAdapter, ann: Person) -> None:
    with pytest.raises(Refused, match="not in this room"):
        await adapter.send(build_part(adapter, ann.room(), "hello"))


async def test_a_thread_that_never_was_is_refused(adapter: MatrixAdapter, ann: Person, bot: Person) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)
    with pytest.raises(Refused, match="thread"):
        await adapter.send(build_part(adapter, room, "hello", thread="$nothing"))


async def test_a_repetition_carries_its_mark(adapter: MatrixAdapter, ann: Person, bot: Person) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)
    plain = build_part(adapter, room, "hello")
    await adapter.send(msgspec.structs.replace(plain, key="d9.0", again=True))
    seen = ann.sees(room)[-1]
    assert (
        seen.text == f"{REPEAT_MARK}hello" and seen.content["formatted_body"] == f"<p>{REPEAT_MARK}hello</p>"
    )


async def test_what_is_encrypted_is_answered_once_with_a_sentence(
    adapter: MatrixAdapter, ann: Person, bot: Person
) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)
    unread = {
        "algorithm": "m.megolm.v1.aes-sha2",
        "ciphertext": "AAAA",
        "device_id": "D",
        "session_id": "S",
        "sender_key": "K",
    }
    cursor = None
    for _ in range(2):
        async with listening(adapter, RecordingAdapterContext(cursor)) as context:
            ann.send(room, unread, "m.room.encrypted")
            ann.send(room, unread, "m.room.encrypted")
            ann.say(room, "in the open")
            await heard(context, 1)
            cursor = context.cursor
    assert ann.answers(room, by=bot) == [ENCRYPTED_NOTICE]


async def test_what_was_heard_is_marked_as_read(adapter: MatrixAdapter, ann: Person, bot: Person) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)
    async with listening(adapter, RecordingAdapterContext()) as context:
        said = ann.say(room, "hello")
        await heard(context, 1)
        await until(lambda: bot.has_read(room, said), seconds=SECONDS, every=0.05)


async def test_typing_shows_until_the_message_comes(adapter: MatrixAdapter, ann: Person, bot: Person) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)

    def typing() -> list[str]:
        events = ann.sync()["rooms"]["join"][room]["ephemeral"]["events"]
        return [user for e in events if e["type"] == "m.typing" for user in e["content"]["user_ids"]]

    await adapter.typing(Target("matrix", bot.user, room))
    assert typing() == [bot.user]
    await adapter.send(build_part(adapter, room, "done"))
    assert typing() == []


async def test_a_revoked_token_is_told_and_shown_nowhere(
    adapter: MatrixAdapter, ann: Person, bot: Person
) -> None:
    room = ann.room(bot, direct=True)
    bot.join(room)
    bot.call("POST", "/client/v3/logout", {})
    with pytest.raises(Forbidden, match="keryx gateway setup matrix") as refused:
        await adapter.listen(RecordingAdapterContext())
    with pytest.raises(NotSent, match="refuses the access token") as unsent:
        await adapter.send(build_part(adapter, room, "hello"))
    assert bot.token not in f"{refused.value!r}{unsent.value!r}"


async def test_a_token_of_somebody_else_is_refused(synapse: Synapse, ann: Person, bot: Person) -> None:
    adapter = MatrixAdapter(Homeserver(synapse.url, ann.token), bot.user)
    try:
        with pytest.raises(Forbidden, match=f"belongs to {ann.user}"):
            await adapter.listen(RecordingAdapterContext())
    finally:
        await adapter.close()


async def test_a_homeserver_that_is_away_is_told(bot: Person) -> None:
    adapter = MatrixAdapter(Homeserver("http://127.0.0.1:9", bot.token), bot.user)
    try:
        context = RecordingAdapterContext()
        listening = asyncio.create_task(adapter.listen(context))
        await until(lambda: bool(context.link_states), seconds=SECONDS)
        listening.cancel()
        await asyncio.wait({listening})
        assert (
            context.link_states[0][0] is LinkState.CONNECTING
            and "cannot be reached" in context.link_states[0][1]
        )
        with pytest.raises(NotSent, match="cannot be reached"):
            await adapter.send(build_part(adapter, "!r:hub.test", "hello"))
    finally:
        await adapter.close()


@pytest.mark.parametrize("version", ["11", "12"])
async def test_who_runs_a_room_has_a_role_there_while_they_are_in_it(
    adapter: MatrixAdapter, ann: Person, bob: Person, bot: Person, version: str
) -> None:
    room = ann.room(bot, bob, room_version=version)
    for person in (bot, bob):
        person.join(room)

    async def roles(person: Person) -> list[str]:
        source = Source(platform="matrix", chat=room, chat_type=ChatType.GROUP, user=person.user)
        return list(await adapter.roles(source))

    assert (await roles(ann), await roles(bob)) == (["admin", "moderator"], [])
    path = f"/client/v3/rooms/{room}/state/m.room.power_levels"
    powers = ann.call("GET", path)
    ann.call("PUT", path, {**powers, "users": {**powers["users"], bob.user: 50}})
    assert await roles(bob) == ["moderator"]
    ann.call("POST", f"/client/v3/rooms/{room}/kick", {"user_id": bob.user})
    assert await roles(bob) == []
