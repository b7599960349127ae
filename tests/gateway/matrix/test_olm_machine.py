"""The encryption of accounts with each other, over a homeserver that passes keys on, with crashes in between."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.matrix_keys import FakeKeyServer
from vodozemac import MegolmMessage

from keryx.core.errors import Invalid
from keryx.surfaces.gateway.matrix.encryption import (
    DeviceTrust,
    EncryptionUnavailable,
    RoomKeyMissing,
    UndecryptableMessage,
    UntrustedDevice,
)
from keryx.surfaces.gateway.matrix.encryption.control_files import (
    AcceptRequest,
    RestoreRequest,
    add_request,
    read_report,
)
from keryx.surfaces.gateway.matrix.encryption.cross_signing import IDENTITY_SECRETS
from keryx.surfaces.gateway.matrix.encryption.device_list import DeviceList
from keryx.surfaces.gateway.matrix.encryption.key_backup import format_recovery_key, parse_recovery_key
from keryx.surfaces.gateway.matrix.encryption.key_file import KeyFile
from keryx.surfaces.gateway.matrix.encryption.olm_machine import OlmMachine
from keryx.surfaces.gateway.matrix.encryption.secret_storage import (
    BACKUP_SECRET,
    SecretStorage,
    decrypt_secret,
    encrypt_secret,
)
from keryx.surfaces.gateway.matrix.event_types import EncryptionState, MatrixEvent, SyncResponse
from keryx.surfaces.gateway.matrix.homeserver import Homeserver

ROOM = "!r:x.test"
ANN, BOT, EVE = "@ann:x.test", "@bot:x.test", "@eve:x.test"
STATE = EncryptionState(algorithm="m.megolm.v1.aes-sha2")


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds


class Party:
    """One device of an account."""

    def __init__(
        self, fake: FakeKeyServer, user: str, device: str, folder: Path, trust: DeviceTrust, clock: Clock
    ) -> None:
        self.user, self.device, self.folder = user, device, folder
        self._fake = fake
        self._clock = clock
        self._trust = trust
        self._numbers = 0
        self.machine = self._create()

    def _create(self) -> OlmMachine:
        self.server = Homeserver(self._fake.url, f"{self.user} {self.device}")
        return OlmMachine(
            self.server, self.user, self.folder, trust=self._trust, now=self._clock, monotonic=self._clock
        )

    async def restart(self) -> None:
        """As after kill -9: what was not flushed is gone."""
        await self.close()
        self.machine = self._create()
        await self.machine.open()

    async def close(self) -> None:
        self.machine.close()
        await self.server.close()

    async def sync(self, *changed: str, keep: bool = False) -> SyncResponse:
        batch = self._fake.sync(self.user, self.device, changed=changed, keep=keep)
        await self.machine.receive_sync(batch)
        await self.machine.finish_sync()
        return batch

    async def say(self, text: str, **more: Any) -> MatrixEvent:
        content = {"msgtype": "m.text", "body": text, **more}
        encrypted = await self.machine.encrypt(ROOM, STATE, "m.room.message", content)
        self._numbers += 1
        return MatrixEvent(
            type="m.room.encrypted",
            sender=self.user,
            id=f"${self.user}{self.device}{self._numbers}",
            content=msgspec.Raw(msgspec.json.encode(encrypted)),
        )

    async def read(self, event: MatrixEvent, **more: Any) -> str:
        found = await self.machine.decrypt(ROOM, event, **more)
        return str(msgspec.json.decode(found.content)["body"])


class Parties:
    def __init__(self, fake: FakeKeyServer, folder: Path, clock: Clock) -> None:
        self._fake, self._folder, self._clock = fake, folder, clock
        self._all: list[Party] = []

    async def add(self, user: str, device: str, trust: DeviceTrust = DeviceTrust.FIRST_USE) -> Party:
        party = Party(self._fake, user, device, self._folder / user / device, trust, self._clock)
        self._all.append(party)
        await party.machine.open()
        await party.sync()
        return party

    async def close(self) -> None:
        for party in self._all:
            await party.close()


@pytest.fixture
def fake() -> Iterator[FakeKeyServer]:
    with FakeKeyServer() as server:
        server.members[ROOM] = [ANN, BOT]
        yield server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@asynccontextmanager
async def parties(fake: FakeKeyServer, folder: Path, clock: Clock) -> AsyncGenerator[Parties]:
    found = Parties(fake, folder, clock)
    try:
        yield found
    finally:
        await found.close()


def index(event: MatrixEvent) -> tuple[str, int]:
    content = msgspec.json.decode(event.content)
    return content["session_id"], MegolmMessage.from_base64(content["ciphertext"]).message_index()


async def test_messages_are_read_on_both_sides_and_by_their_own_author(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        asked = await ann.say("hello")
        await bot.sync()
        answered = await bot.say("hi", **{"m.relates_to": {"rel_type": "m.thread", "event_id": "$1"}})
        await ann.sync()
        assert (await bot.read(asked), await ann.read(answered)) == ("hello", "hi")
        assert await bot.read(answered) == "hi"
        outer = msgspec.json.decode(answered.content)
        assert (
            set(outer) >= {"ciphertext", "session_id"}
            and "body" not in outer
            and outer["m.relates_to"]["event_id"] == "$1"
        )


async def test_a_relation_within_the_message_counts_more_than_one_that_the_homeserver_sees(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        said = await ann.say("hello", **{"m.relates_to": {"rel_type": "m.thread", "event_id": "$1"}})
        bare = await ann.say("bare")
        await bot.sync()
        for event, expected in ((said, "$1"), (bare, "$forged")):
            forged = {**msgspec.json.decode(event.content), "m.relates_to": {"event_id": "$forged"}}
            changed = msgspec.structs.replace(event, content=msgspec.Raw(msgspec.json.encode(forged)))
            found = await bot.machine.decrypt(ROOM, changed)
            assert msgspec.json.decode(found.content)["m.relates_to"]["event_id"] == expected


async def test_killed_at_any_moment_no_message_index_is_used_twice_and_every_message_is_read(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        sent: list[MatrixEvent] = []
        for number in range(6):
            sent.append(await bot.say(f"m{number}"))
            # Encrypted and lost: the process was killed before the request.
            await bot.say("never sent")
            await bot.restart()
            await ann.sync()
        assert [await ann.read(event) for event in sent] == [f"m{n}" for n in range(6)]
        assert len({index(event) for event in sent}) == 6


async def test_killed_before_the_next_sync_the_keys_that_came_are_kept_and_their_repetition_is_harmless(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        asked = await ann.say("hello")
        await bot.machine.receive_sync(fake.sync(BOT, "B", keep=True))
        await bot.restart()
        # The sync is repeated, because it was not acknowledged.
        await bot.sync()
        assert await bot.read(asked) == "hello"
        again = await ann.say("again")
        await bot.sync()
        assert await bot.read(again) == "again"
        assert not [e for e in fake.queues[ANN, "A"] if e["type"] == "m.room.encrypted"], (
            "no repair was needed"
        )


async def test_one_time_keys_are_uploaded_once_even_if_the_upload_fails(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        bot = await people.add(BOT, "B")
        assert len(fake.one_time_keys[BOT, "B"]) == 50
        fake.one_time_keys[BOT, "B"].clear()
        fake.broken.add("/keys/upload")
        await bot.sync()
        await bot.restart()
        fake.broken.clear()
        await bot.sync()
        assert len(fake.one_time_keys[BOT, "B"]) == 50
        ann = await people.add(ANN, "A")
        asked = await ann.say("hello")
        await bot.sync()
        assert await bot.read(asked) == "hello"


async def test_without_one_time_keys_the_fallback_key_serves(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        bot, ann = await people.add(BOT, "B"), await people.add(ANN, "A")
        fake.one_time_keys[BOT, "B"].clear()
        asked = await ann.say("hello")
        await bot.sync()
        assert await bot.read(asked) == "hello"
        used = fake.fallback_keys.pop((BOT, "B"))
        await bot.sync()
        assert fake.fallback_keys[BOT, "B"] != used


async def test_an_old_copy_of_the_key_file_never_sends_with_used_keys(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        first = await bot.say("first")
        await bot.close()
        shutil.copytree(bot.folder, tmp_path / "copy")
        await bot.restart()
        second = await bot.say("second")
        await bot.close()
        shutil.rmtree(bot.folder)
        shutil.copytree(tmp_path / "copy", bot.folder)
        await bot.restart()
        third = await bot.say("third")
        await ann.sync()
        assert [await ann.read(e) for e in (first, second, third)] == ["first", "second", "third"]
        assert index(first)[0] == index(second)[0] != index(third)[0]


async def test_who_leaves_reads_nothing_more_and_who_joins_reads_from_then_on(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot, eve = await people.add(ANN, "A"), await people.add(BOT, "B"), await people.add(EVE, "E")
        before = await bot.say("before")
        fake.members[ROOM] = [ANN, BOT, EVE]
        during = await bot.say("during")
        fake.members[ROOM] = [ANN, BOT]
        after = await bot.say("after")
        for party in (ann, eve):
            await party.sync()
        assert [await ann.read(e) for e in (before, during, after)] == ["before", "during", "after"]
        assert await eve.read(during) == "during"
        for event in (before, after):
            with pytest.raises(RoomKeyMissing):
                await eve.read(event)


async def test_a_message_that_nobody_could_read_is_not_sent_until_somebody_can(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        kept = fake.one_time_keys.pop((ANN, "A")), fake.fallback_keys.pop((ANN, "A"))
        with pytest.raises(EncryptionUnavailable, match="can be given the key"):
            await bot.say("hello")
        fake.one_time_keys[ANN, "A"], fake.fallback_keys[ANN, "A"] = kept
        clock.seconds += 301
        sent = await bot.say("hello")
        await ann.sync()
        assert await ann.read(sent) == "hello"


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"type": 3},
        {"type": "m.room.encrypted", "sender": ANN, "content": {"ciphertext": 3}},
        {"type": "m.room.encrypted", "sender": ANN, "content": {"sender_key": "k", "ciphertext": {"OWN": 3}}},
        {
            "type": "m.room.encrypted",
            "sender": ANN,
            "content": {"sender_key": "k", "ciphertext": {"OWN": {"type": 10**30, "body": "AAAA"}}},
        },
        {
            "type": "m.room.encrypted",
            "sender": ANN,
            "content": {"sender_key": "k", "ciphertext": {"OWN": {"type": 0, "body": 3}}},
        },
        {"type": "m.room_key_request", "sender": ANN, "content": {"action": "request", "body": 3}},
        {"type": "m.key.verification.request", "sender": ANN, "content": {"methods": 3}},
        {"type": "m.key.verification.start", "sender": ANN, "content": {"transaction_id": {}, "method": 1}},
        {"type": "m.key.verification.start", "sender": ANN, "content": {"transaction_id": "t"}},
        {"type": "m.key.verification.mac", "sender": ANN, "content": {"transaction_id": "t", "mac": 3}},
    ],
)
async def test_malformed_messages_between_devices_are_left_out(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock, event: dict[str, Any]
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        own = fake.devices[BOT]["B"]["keys"]["curve25519:B"]
        fake.queues[BOT, "B"].append(
            msgspec.json.decode(msgspec.json.encode(event).replace(b"OWN", own.encode()))
        )
        asked = await ann.say("hello")
        await bot.sync()
        assert await bot.read(asked) == "hello"


async def test_malformed_devices_of_one_person_do_not_keep_others_from_reading(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        fake.members[ROOM] = [ANN, BOT, EVE]
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        good = fake.devices[ANN]["A"]
        bad: dict[str, Any] = {
            "X": 3,
            "A": good,
            "Y": {**good, "device_id": "Y"},
            "Z": {**good, "user_id": EVE, "device_id": "Z", "algorithms": 3},
            "W": {"user_id": EVE, "device_id": "W", "algorithms": [], "keys": {}, "signatures": []},
        }
        fake.devices[EVE] = bad
        fake.identities[EVE] = {"master_key": 3, "self_signing_key": {"keys": 3}}
        sent = await bot.say("hello")
        await ann.sync()
        assert await ann.read(sent) == "hello" and not fake.queues.get((EVE, "X"))


async def test_keys_are_replaced_after_so_many_messages_and_so_much_time(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        await people.add(ANN, "A")
        bot = await people.add(BOT, "B")
        sessions = [index(await bot.say("x"))[0] for _ in range(101)]
        assert len(set(sessions[:100])) == 1 and sessions[100] != sessions[99]
        clock.seconds += 7 * 24 * 3600
        assert index(await bot.say("x"))[0] != sessions[100]


async def test_a_message_without_its_key_is_kept_over_a_restart_and_read_when_the_key_comes(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        asked = await ann.say("hello")
        held, fake.queues[BOT, "B"] = fake.queues[BOT, "B"], []
        with pytest.raises(RoomKeyMissing):
            await bot.read(asked)
        await bot.machine.add_unread(ROOM, asked)
        assert [e["type"] for e in fake.queues[ANN, "A"]] == ["m.room_key_request"]
        await bot.restart()
        assert bot.machine.list_readable() == [] and bot.machine.list_overdue() == []
        clock.seconds += 6
        assert [u.room for u in bot.machine.list_overdue()] == [ROOM]
        fake.queues[BOT, "B"] = held
        await bot.sync()
        assert bot.machine.list_readable() == [(ROOM, asked)] and await bot.read(asked) == "hello"
        await bot.machine.remove_unread(asked.id)
        await bot.restart()
        assert bot.machine.list_readable() == []


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("m.unverified", "matrix.key_unverified"),
        ("m.blacklisted", "matrix.key_blocked"),
        ("m.unauthorised", "matrix.key_refused"),
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
async def test_why_a_key_is_withheld_is_told_at_once(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock, code: str, told: str, first: bool
) -> None:
    async with parties(fake, tmp_path, clock) as found:
        ann, bot = await found.add(ANN, "A"), await found.add(BOT, "B")
        asked = await ann.say("hello")
        session, _ = index(asked)
        key = fake.queues.pop((BOT, "B"))

        async def withhold(sender: str, reason: str) -> None:
            content = {"algorithm": STATE.algorithm, "room_id": ROOM, "session_id": session, "code": reason}
            event = {"type": "m.room_key.withheld", "sender": sender, "content": content}
            fake.queues.setdefault((BOT, "B"), []).append(event)
            await bot.sync()

        if first:
            await withhold(ANN, code)
        await bot.machine.add_unread(ROOM, asked)
        if not first:
            # Neither another person nor a code without a remedy says something about the message.
            await withhold(EVE, code)
            await withhold(ANN, "m.unavailable")
            assert bot.machine.list_overdue() == []
            await withhold(ANN, code)
        [unread] = bot.machine.list_overdue()
        assert bot.machine.explain_missing_key(unread).key == told
        assert bot.machine.list_overdue() == []
        # The key may come all the same.
        fake.queues[BOT, "B"] = key
        await bot.sync()
        [(_, event)] = bot.machine.list_readable()
        assert await bot.read(event) == "hello"


async def test_a_broken_session_is_replaced_and_the_key_is_sent_again(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        asked = await ann.say("hello")
        [event] = [e for e in fake.queues[BOT, "B"] if e["type"] == "m.room.encrypted"]
        event["content"] = msgspec.json.decode(msgspec.json.encode(event["content"]))
        [message] = event["content"]["ciphertext"].values()
        message["body"] = message["body"][:-8] + "AAAAAAAA"
        await bot.sync()
        with pytest.raises(RoomKeyMissing):
            await bot.read(asked)
        # Keryx has begun a new session, so the client sends its key again with the next message.
        await ann.sync()
        again = await ann.say("again")
        await bot.sync()
        assert await bot.read(again) == "again"


async def test_a_broken_session_is_replaced_when_the_homeserver_answers_again(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        await ann.say("hello")
        [event] = [e for e in fake.queues[BOT, "B"] if e["type"] == "m.room.encrypted"]
        event["content"] = msgspec.json.decode(msgspec.json.encode(event["content"]))
        [message] = event["content"]["ciphertext"].values()
        message["body"] = message["body"][:-8] + "AAAAAAAA"
        fake.broken.add("/keys/claim")
        await bot.sync()
        fake.broken.clear()
        await bot.sync()
        await ann.sync()
        again = await ann.say("again")
        await bot.sync()
        assert await bot.read(again) == "again"


async def test_who_needs_devices_waits_for_those_that_are_being_looked_up(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        await people.add(ANN, "A")
        keys, server = KeyFile.open(tmp_path / "keys"), Homeserver(fake.url, f"{BOT} B")
        devices = DeviceList(keys, server, BOT, DeviceTrust.FIRST_USE)
        fake.hold("/keys/query")
        first = asyncio.create_task(devices.refresh([ANN]))
        await asyncio.sleep(0)
        second = asyncio.create_task(devices.refresh([ANN]))
        await asyncio.sleep(0)
        assert not second.done()
        fake.release("/keys/query")
        await second
        assert list(devices.get(ANN).devices) == ["A"]
        await first
        keys.close()
        await server.close()


async def test_a_request_of_the_operator_that_the_homeserver_does_not_serve_is_answered(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        bot = await people.add(BOT, "B")
        before = read_report(bot.folder)
        fake.broken.add("/room_keys/version")
        add_request(bot.folder, RestoreRequest(before.recovery_key))
        await bot.sync()
        after = read_report(bot.folder)
        assert after.requests == before.requests + 1 and after.outcome.endswith(".")


async def test_a_repeated_message_is_refused_and_the_same_event_is_not(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        asked = await ann.say("hello")
        await bot.sync()
        assert await bot.read(asked) == await bot.read(asked) == "hello"
        with pytest.raises(UndecryptableMessage, match="repeats"):
            await bot.read(msgspec.structs.replace(asked, id="$other"))


async def test_a_message_is_taken_only_from_the_user_whose_device_sent_its_key(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        asked = await ann.say("hello")
        await bot.sync()
        with pytest.raises(UntrustedDevice, match=f"was sent by {ANN}"):
            await bot.read(msgspec.structs.replace(asked, sender=EVE))


async def test_a_device_that_the_homeserver_adds_to_a_person_gets_no_keys_and_is_not_heard(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        forged = await people.add(ANN, "FORGED")
        await bot.sync(ANN)
        said = await forged.say("open the door")
        await bot.sync()
        with pytest.raises(UntrustedDevice, match="has not verified the device FORGED"):
            await bot.read(said)
        secret = await bot.say("a secret")
        for party in (ann, forged):
            await party.sync(ANN, BOT)
        assert await ann.read(secret) == "a secret"
        with pytest.raises(RoomKeyMissing):
            await forged.read(secret)


async def test_a_new_identity_of_a_person_is_not_trusted_until_it_is_accepted(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        first = await ann.say("first")
        await bot.sync()
        assert await bot.read(first) == "first"
        del fake.identities[ANN]
        new = await people.add(ANN, "NEW")
        await bot.sync(ANN)
        second = await new.say("second")
        await bot.sync()
        with pytest.raises(UntrustedDevice, match="has changed"):
            await bot.read(second)
        await bot.sync()
        assert read_report(bot.folder).replaced == [ANN]
        add_request(bot.folder, AcceptRequest(ANN))
        await bot.sync()
        assert await bot.read(second) == "second"
        assert read_report(bot.folder).replaced == [] and "accepted" in read_report(bot.folder).outcome


async def test_with_trust_verified_strangers_are_neither_heard_nor_told(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B", DeviceTrust.VERIFIED)
        asked = await ann.say("hello")
        await bot.sync()
        with pytest.raises(UntrustedDevice, match="is not verified"):
            await bot.read(asked)
        with pytest.raises(EncryptionUnavailable, match="nobody could read the message"):
            await bot.say("secret")


async def test_the_backup_is_read_by_a_new_device_with_the_recovery_key(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        asked = await ann.say("hello")
        await bot.sync()
        mine = await bot.say("hi")
        await bot.sync()
        key = read_report(bot.folder).recovery_key
        assert len(fake.saved[BOT][ROOM]) == 2 and "hello" not in str(fake.saved)
        new = await people.add(BOT, "N")
        assert "recovery key" in " ".join(read_report(new.folder).problems)
        add_request(new.folder, RestoreRequest("EsTc wrong"))
        await new.sync()
        assert "not a recovery key" in read_report(new.folder).outcome
        add_request(new.folder, RestoreRequest(key))
        await new.sync()
        told = "2 keys were restored, and the encryption identity of the account."
        assert read_report(new.folder).outcome == told
        # The homeserver could have made a key of the backup, so what it reads is not answered.
        for event in (asked, mine):
            with pytest.raises(UntrustedDevice, match="came from a backup"):
                await new.read(event)
        await new.sync()
        assert read_report(new.folder).recovery_key == key and read_report(new.folder).problems == []


async def test_after_the_keys_are_lost_the_recovery_key_brings_back_the_identity_that_people_trust(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B")
        asked = await ann.say("hello")
        await bot.sync()
        assert await bot.read(asked) == "hello"
        key, identity = read_report(bot.folder).recovery_key, fake.identities[BOT]
        new = await people.add(BOT, "N")
        await ann.sync(BOT)
        asked = await ann.say("and now?")
        await new.sync(ANN)
        # The identity has not signed the new device, so nobody trusts it.
        with pytest.raises(RoomKeyMissing):
            await new.read(asked)
        assert "keryx matrix restore" in read_report(new.folder).problems[0]
        add_request(new.folder, RestoreRequest(key))
        await new.sync()
        await new.sync()
        await ann.sync(BOT)
        asked = await ann.say("and now?")
        await new.sync(ANN)
        assert await new.read(asked) == "and now?"
        assert fake.identities[BOT] == identity and read_report(new.folder).problems == []


async def test_a_secret_storage_of_another_client_is_read_with_its_key_and_left_as_it_is(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        bot = await people.add(BOT, "B")
        backup = parse_recovery_key(read_report(bot.folder).recovery_key)
        storage, other = SecretStorage(bot.server, BOT), bytes(range(32))
        found = await storage.read(backup, (*IDENTITY_SECRETS, BACKUP_SECRET))
        assert found is not None and len(found) == 4
        # As a client leaves it whose person has chosen another recovery key.
        fake.account_data = {path: value for path, value in fake.account_data.items() if "m." not in path}
        assert await storage.ensure(other, found)
        left = dict(fake.account_data)
        await bot.restart()
        await bot.sync()
        [problem] = read_report(bot.folder).problems
        assert "whose recovery key Keryx does not know" in problem
        assert {path: fake.account_data[path] for path in left if "m." in path} == {
            path: value for path, value in left.items() if "m." in path
        }
        new = await people.add(BOT, "N")
        add_request(new.folder, RestoreRequest(format_recovery_key(other)))
        await new.sync()
        await new.sync()
        report = read_report(new.folder)
        assert "the encryption identity" in report.outcome and report.problems == []
        assert report.recovery_key == format_recovery_key(other)


async def test_what_the_homeserver_puts_into_the_secret_storage_is_not_taken(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        bot = await people.add(BOT, "B")
        key = read_report(bot.folder).recovery_key
        [path] = [path for path in fake.account_data if "m.cross_signing.master" in path]
        for stored in fake.account_data[path]["encrypted"].values():
            stored["ciphertext"] = stored["ciphertext"][::-1]
        new = await people.add(BOT, "N")
        add_request(new.folder, RestoreRequest(key))
        await new.sync()
        assert read_report(new.folder).outcome == "0 keys were restored."
        fake.account_data[path] = {"encrypted": ["malformed"]}
        add_request(new.folder, RestoreRequest(key))
        await new.sync()
        assert read_report(new.folder).outcome == "0 keys were restored."
        assert "held by another client" in read_report(new.folder).problems[0]


def test_a_secret_is_read_with_its_key_under_its_name_only() -> None:
    key, name = bytes(range(32)), "m.cross_signing.master"
    stored = encrypt_secret(key, name, b"secret", iv=bytes(16))
    assert stored == {
        "iv": "AAAAAAAAAAAAAAAAAAAAAA",
        "ciphertext": "fMpSyXBe",
        "mac": "VZs49eiCyxxjA3ufMhnT0fVBNdgMfY9rfzLcP7zt3Zc",
    }
    assert decrypt_secret(key, name, stored) == b"secret"
    for wrong, other in ((bytes(32), name), (key, "m.cross_signing.user_signing")):
        with pytest.raises(ValueError, match="another key"):
            decrypt_secret(wrong, other, stored)
    with pytest.raises(ValueError, match="no encrypted secret"):
        decrypt_secret(key, name, {"iv": stored["iv"]})


def test_a_recovery_key_is_written_in_groups_and_read_with_any_spaces() -> None:
    key = bytes(range(32))
    text = format_recovery_key(key)
    assert text.startswith("Es") and {len(group) for group in text.split()} == {4}
    assert parse_recovery_key(text.replace(" ", "")) == parse_recovery_key(f" {text}\n") == key
    for wrong in (text[:-1], text[:-1] + ("2" if text[-1] != "2" else "3"), "", "0OIl"):
        with pytest.raises(Invalid):
            parse_recovery_key(wrong)


async def test_a_second_process_with_the_same_token_does_not_replace_the_keys(
    fake: FakeKeyServer, tmp_path: Path, clock: Clock
) -> None:
    async with parties(fake, tmp_path, clock) as people:
        await people.add(BOT, "B")
        other = Party(fake, BOT, "B", tmp_path / "elsewhere", DeviceTrust.FIRST_USE, clock)
        with pytest.raises(EncryptionUnavailable, match="the keys of this device are not in"):
            await other.machine.open()
        await other.close()
