"""Encrypted rooms on a real homeserver, with people who use another client library."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.builders import until
from tests.gateway.matrix.encrypted_person import EncryptedPerson, correct_sas
from tests.gateway.matrix.person import Person
from tests.gateway.matrix.synapse import Synapse
from tests.gateway.matrix.test_adapter_on_synapse import SECONDS, build_part, heard, listening, text

from keryx.core.deliveries import Target
from keryx.core.errors import NotSent
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment
from keryx.core.messages import Text
from keryx.core.ports.adapter import OutgoingPart
from keryx.core.texts import Phrase
from keryx.surfaces.gateway.matrix import MatrixAdapter
from keryx.surfaces.gateway.matrix.encryption import DeviceTrust
from keryx.surfaces.gateway.matrix.encryption.control_files import (
    ConfirmRequest,
    EncryptionReport,
    RestoreRequest,
    add_request,
    read_report,
)
from keryx.surfaces.gateway.matrix.encryption.olm_machine import OlmMachine
from keryx.surfaces.gateway.matrix.homeserver import Homeserver
from keryx.surfaces.gateway.matrix.sync import ENCRYPTED_NOTICE, PLAIN_REASON, UNREAD_NOTICE
from keryx.testing import RecordingAdapterContext


@pytest.fixture
def ann(synapse: Synapse, tmp_path: Path) -> Iterator[EncryptedPerson]:
    person = EncryptedPerson(synapse.person("ann", display="Ann"), synapse.url, tmp_path / "ann")
    try:
        yield person
    finally:
        person.close()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def create_adapter(
    synapse: Synapse, bot: Person, keys: Path, trust: DeviceTrust = DeviceTrust.FIRST_USE
) -> MatrixAdapter:
    server = Homeserver(synapse.url, bot.token)
    return MatrixAdapter(server, bot.user, machine=OlmMachine(server, bot.user, keys, trust=trust))


@asynccontextmanager
async def connect(
    synapse: Synapse, bot: Person, keys: Path, context: RecordingAdapterContext, **more: Any
) -> AsyncGenerator[MatrixAdapter]:
    """An adapter that listens while the block runs."""
    adapter = create_adapter(synapse, bot, keys, **more)
    try:
        async with listening(adapter, context):
            yield adapter
    finally:
        await adapter.close()


async def wait(condition: Callable[[], bool]) -> None:
    await until(condition, seconds=SECONDS, every=0.02)


async def meet(ann: EncryptedPerson, bot: Person, **more: Any) -> str:
    """An encrypted room in which both are, and of which the client of the person knows all."""
    room = await asyncio.to_thread(ann.room, bot, direct=True, **more)
    await wait(lambda: bot.user in ann.plain.members(room))
    await asyncio.to_thread(ann.wait_for_room, room, bot.user)
    return room


async def test_messages_edits_replies_threads_reactions_and_redactions_pass_in_an_encrypted_room(
    synapse: Synapse, ann: EncryptedPerson, bot: Person, keys: Path
) -> None:
    context = RecordingAdapterContext()
    async with connect(synapse, bot, keys, context) as adapter:
        room = await meet(ann, bot)
        asked = await asyncio.to_thread(ann.say, room, "a question")
        [first] = await heard(context, 1)
        assert (text(first), first.source.user, first.event) == ("a question", ann.user, asked)
        answer = await adapter.send(build_part(adapter, room, "an **answer**"))
        await adapter.send(build_part(adapter, room, "a better answer", key="d2", edits=answer))
        inner = await adapter.send(
            build_part(adapter, room, "inside", key="d3", thread=asked, reply_to=asked)
        )
        await wait(lambda: ann.texts(room, by=bot.user) == ["a better answer", "inside"])
        relation = ann.events[inner]["content"]["m.relates_to"]
        assert (relation["rel_type"], relation["event_id"]) == ("m.thread", asked)
        assert ann.undecrypted == set() and all(e["encrypted"] for e in ann.messages(room, by=bot.user))

        reply = {"m.in_reply_to": {"event_id": answer}}
        edit = {"rel_type": "m.replace", "event_id": asked}
        new = {"msgtype": "m.text", "body": "another question"}
        await asyncio.to_thread(ann.say, room, "indeed?", **{"m.relates_to": reply})
        await asyncio.to_thread(
            ann.say, room, "* another question", **{"m.new_content": new, "m.relates_to": edit}
        )
        reaction = {"m.relates_to": {"rel_type": "m.annotation", "event_id": answer, "key": "👍"}}
        await asyncio.to_thread(ann.plain.send, room, reaction, "m.reaction")
        ann.plain.call("PUT", f"/client/v3/rooms/{room}/redact/{asked}/r1", {})
        await wait(lambda: len(context.events) >= 3 and bool(context.deletions) and bool(context.reactions))
        [_, replied, edited], [reacted], [deleted] = context.events, context.reactions, context.deletions
        assert (text(replied), replied.quote) == ("indeed?", "an answer")
        assert (text(edited), edited.edits) == ("another question", asked)
        assert (reacted.message, reacted.reaction, deleted.message_event) == (answer, "👍", asked)
    for event in bot.events(room):
        assert event["type"] != "m.room.message", "nothing was sent in the clear"
    assert "question" not in str(ann.plain.events(room))


async def test_files_are_encrypted_both_ways_and_their_keys_are_not_handed_to_the_store(
    synapse: Synapse, ann: EncryptedPerson, bot: Person, keys: Path
) -> None:
    context = RecordingAdapterContext()
    async with connect(synapse, bot, keys, context) as adapter:
        room = await meet(ann, bot)
        sent = await asyncio.to_thread(ann.send_file, room, b"a picture", name="p.png", mime="image/png")
        [event] = await heard(context, 1)
        [file] = event.files
        assert event.parts == (Text("look"),) and file.reference == f"encrypted {room} {sent}"
        fetched = await adapter.download(file, limit=1000)
        assert fetched == Attachment(name="p.png", mime="image/png", body=b"a picture")
        given = Attachment(name="out.txt", mime="text/plain", body=b"some words")
        target = Target("matrix", bot.user, room)
        part = OutgoingPart(delivery=DeliveryId("d"), number=0, key="d.0", target=target, attachment=given)
        assert await adapter.send(part) == await adapter.send(part)
        await wait(lambda: ann.texts(room, by=bot.user) == ["out.txt"])
        [message] = ann.messages(room, by=bot.user)
        encrypted = message["content"]["file"]
        assert "url" not in message["content"] and ann.download(encrypted) == b"some words"
        assert ann.plain.download(encrypted["url"]) != b"some words"


async def test_a_message_whose_key_comes_later_is_told_once_and_received_then(
    synapse: Synapse, ann: EncryptedPerson, bot: Person, keys: Path
) -> None:
    context = RecordingAdapterContext()
    async with connect(synapse, bot, keys, context):
        room = await meet(ann, bot)
        await asyncio.to_thread(ann.say, room, "first")
        await heard(context, 1)
    sent = await asyncio.to_thread(ann.send_without_key, room, "second")
    later = RecordingAdapterContext(context.events[-1].cursor)
    async with connect(synapse, bot, keys, later):
        await wait(lambda: UNREAD_NOTICE in ann.texts(room, by=bot.user))
        assert later.events == []
        await asyncio.to_thread(ann.forward_key, room, bot.user)
        [event] = await heard(later, 1)
        assert (text(event), event.event) == ("second", sent)
    assert ann.texts(room, by=bot.user).count(UNREAD_NOTICE) == 1


async def test_after_a_restart_old_and_new_messages_are_read_and_nothing_is_sent_in_the_clear(
    synapse: Synapse, ann: EncryptedPerson, bot: Person, keys: Path
) -> None:
    context = RecordingAdapterContext()
    async with connect(synapse, bot, keys, context) as adapter:
        room = await meet(ann, bot)
        await adapter.send(build_part(adapter, room, "one"))
        await asyncio.to_thread(ann.say, room, "before")
        await heard(context, 1)
    for number in range(3):
        await asyncio.to_thread(ann.say, room, f"away {number}")
    later = RecordingAdapterContext(context.events[-1].cursor)
    async with connect(synapse, bot, keys, later) as adapter:
        assert [text(e) for e in await heard(later, 3)] == [f"away {n}" for n in range(3)]
        await adapter.send(build_part(adapter, room, "two", key="d2"))
        await wait(lambda: ann.texts(room, by=bot.user) == ["one", "two"])
    # In a process that does not have the keys nothing is sent, and nothing leaks.
    other = MatrixAdapter(Homeserver(synapse.url, bot.token), bot.user, no_encryption="it is off")
    try:
        with pytest.raises(
            NotSent, match="this room is encrypted, and encryption is not available: it is off"
        ):
            await other.send(build_part(other, room, "in the clear", key="d3"))
    finally:
        await other.close()
    assert "in the clear" not in str(ann.plain.events(room))


async def test_a_message_in_the_clear_in_an_encrypted_room_is_not_taken_and_the_room_is_told_once(
    synapse: Synapse, ann: EncryptedPerson, bot: Person, keys: Path
) -> None:
    context = RecordingAdapterContext()
    async with connect(synapse, bot, keys, context):
        room = await meet(ann, bot)
        for words in ("forged", "forged again"):
            ann.plain.say(room, words)
        await asyncio.to_thread(ann.say, room, "mine")
        [event] = await heard(context, 1)
        notice = Phrase("matrix.untrusted", reason=PLAIN_REASON)
        await wait(lambda: ann.texts(room, by=bot.user) == [notice])
    assert (text(event), len(context.events)) == ("mine", 1)


async def test_without_the_extra_the_room_is_told_once_and_the_status_says_why(
    synapse: Synapse, ann: EncryptedPerson, bot: Person
) -> None:
    adapter = MatrixAdapter(Homeserver(synapse.url, bot.token), bot.user, no_encryption="an extra is missing")
    try:
        async with listening(adapter, RecordingAdapterContext()) as context:
            room = await asyncio.to_thread(ann.room, bot, direct=True)
            await wait(lambda: bot.user in ann.plain.members(room))
            for words in ("hello", "are you there?"):
                await asyncio.to_thread(ann.say, room, words)
            await wait(lambda: ann.texts(room, by=bot.user) == [ENCRYPTED_NOTICE])
            await wait(lambda: any("an extra is missing" in detail for _, detail in context.link_states))
    finally:
        await adapter.close()
    assert ann.texts(room, by=bot.user) == [ENCRYPTED_NOTICE]


async def wait_for_report(keys: Path, condition: Callable[[EncryptionReport], bool]) -> EncryptionReport:
    await wait(lambda: (keys / "state.json").exists() and condition(read_report(keys)))
    return read_report(keys)


async def test_a_person_is_verified_by_emoji_that_the_operator_confirms(
    synapse: Synapse, ann: EncryptedPerson, bot: Person, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    correct_sas(monkeypatch)
    context = RecordingAdapterContext()
    async with connect(synapse, bot, keys, context, trust=DeviceTrust.VERIFIED):
        room = await meet(ann, bot)
        await asyncio.to_thread(ann.say, room, "who are you?")
        reason = f"the device {ann.device} of {ann.user} is not verified"
        await wait(lambda: Phrase("matrix.untrusted", reason=reason) in ann.texts(room, by=bot.user))
        await asyncio.to_thread(ann.start_verification, bot.user)
        shown = await wait_for_report(keys, lambda r: bool(r.comparisons))
        [comparison] = shown.comparisons
        assert (comparison.user, comparison.emoji) == (ann.user, await asyncio.to_thread(ann.read_emoji))
        add_request(keys, ConfirmRequest(comparison.id, same=True))
        await asyncio.to_thread(ann.confirm_emoji)
        done = await wait_for_report(keys, lambda r: bool(r.verified))
        assert done.outcome == f"{ann.user} is verified."
        await wait(lambda: ann.has_verified(bot.user))
        await asyncio.to_thread(ann.say, room, "and now?")
        [event] = await heard(context, 1)
        assert text(event) == "and now?"


async def test_the_device_is_signed_by_the_identity_of_the_account_and_the_backup_can_be_restored(
    synapse: Synapse, ann: EncryptedPerson, bot: Person, keys: Path, tmp_path: Path
) -> None:
    context = RecordingAdapterContext()
    async with connect(synapse, bot, keys, context):
        room = await meet(ann, bot)
        await asyncio.to_thread(ann.say, room, "hello")
        await heard(context, 1)
        report = await wait_for_report(keys, lambda r: bool(r.recovery_key))
        found = bot.call("POST", "/client/v3/keys/query", {"device_keys": {bot.user: []}})
        [self_signing] = found["self_signing_keys"][bot.user]["keys"]
        assert self_signing in found["device_keys"][bot.user][report.device]["signatures"][bot.user]
        assert report.problems == []

        def saved() -> int:
            return int(bot.call("GET", "/client/v3/room_keys/version")["count"])

        await wait(lambda: saved() > 0)
    login = {"type": "m.login.password", "identifier": {"type": "m.id.user", "user": bot.user}}
    other = bot.call("POST", "/client/v3/login", {**login, "password": "a-long-password"})
    device = Person(synapse.url, bot.user, other["access_token"])
    try:
        async with connect(synapse, device, tmp_path / "other", RecordingAdapterContext()):
            new = await wait_for_report(tmp_path / "other", lambda r: len(r.problems) == 2)
            assert "held by another client" in new.problems[0] and "keryx matrix restore" in new.problems[1]
            add_request(tmp_path / "other", RestoreRequest(report.recovery_key))
            # Requests are looked for after each answer of the homeserver, and an answer without news comes late.
            await asyncio.to_thread(ann.say, room, "hello again")
            done = await wait_for_report(tmp_path / "other", lambda r: bool(r.outcome))
            told = "1 key was restored, and the encryption identity of the account."
            assert done.outcome == told and done.recovery_key == report.recovery_key
            await asyncio.to_thread(ann.say, room, "and again")
            await wait_for_report(tmp_path / "other", lambda r: not r.problems)
    finally:
        device.close()
