"""Verification by emoji in a room, as clients of people begin it with another user."""

import hashlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.fakes.matrix_keys import FakeKeyServer
from tests.gateway.matrix.test_olm_machine import ANN, BOT, ROOM, Clock, Parties, Party
from vodozemac import Curve25519PublicKey, EstablishedSas, Sas

from keryx.surfaces.gateway.matrix.encryption import DeviceTrust, UntrustedDevice
from keryx.surfaces.gateway.matrix.encryption.control_files import (
    ConfirmRequest,
    add_request,
    read_report,
)
from keryx.surfaces.gateway.matrix.encryption.olm_account import encode_base64, encode_canonical
from keryx.surfaces.gateway.matrix.encryption.sas_verification import EMOJI
from keryx.surfaces.gateway.matrix.event_types import MatrixEvent

REQUEST = "$request"
MAC = "MATRIX_KEY_VERIFICATION_MAC"


class VerifyingClient:
    """The client of a person, up to what it shows and what the person presses."""

    def __init__(self, fake: FakeKeyServer, ann: Party, bot: Party) -> None:
        self._fake, self._ann, self._bot = fake, ann, bot
        self._sas = Sas()
        self.public_key = self._sas.public_key.to_base64()
        self._established: EstablishedSas | None = None

    async def send(self, step: str, content: dict[str, Any]) -> None:
        relation = {"rel_type": "m.reference", "event_id": REQUEST}
        body = {**content, "m.relates_to": relation} if step != "request" else content
        event = MatrixEvent(
            type=f"m.key.verification.{step}",
            sender=ANN,
            id=REQUEST if step == "request" else f"$ann-{step}",
            content=msgspec.Raw(msgspec.json.encode(body)),
        )
        await self._bot.machine.receive_verification(ROOM, event, event.type)

    async def read_reply(self) -> tuple[str, dict[str, Any]]:
        """The last event of the other side. It is encrypted if the device of the person is trusted already."""
        await self._ann.sync()
        found = await self.read(self._fake.events[ROOM][-1])
        assert found.sender == BOT
        content = msgspec.json.decode(found.content)
        assert content["m.relates_to"] == {"rel_type": "m.reference", "event_id": REQUEST}
        return found.type.removeprefix("m.key.verification."), content

    async def read(self, raw: dict[str, Any]) -> MatrixEvent:
        event = msgspec.json.decode(msgspec.json.encode(raw), type=MatrixEvent)
        return await self._ann.machine.decrypt(ROOM, event) if event.type == "m.room.encrypted" else event

    async def compare(self) -> list[str]:
        """Go on to the emoji, and return those that the person sees."""
        request = {"msgtype": "m.key.verification.request", "to": BOT, "from_device": "A", "body": "verify"}
        await self.send("request", {**request, "methods": ["m.sas.v1", "m.qr_code.show.v1"]})
        step, content = await self.read_reply()
        assert (step, content["methods"]) == ("ready", ["m.sas.v1"])
        start: dict[str, Any] = {
            "method": "m.sas.v1",
            "from_device": "A",
            "key_agreement_protocols": ["curve25519-hkdf-sha256"],
            "hashes": ["sha256"],
            "message_authentication_codes": ["hkdf-hmac-sha256.v2", "hkdf-hmac-sha256"],
            "short_authentication_string": ["decimal", "emoji"],
        }
        await self.send("start", start)
        step, accepted = await self.read_reply()
        assert step == "accept"
        await self.send("key", {"key": self.public_key})
        step, content = await self.read_reply()
        assert step == "key"
        whole = {**start, "m.relates_to": {"rel_type": "m.reference", "event_id": REQUEST}}
        digest = hashlib.sha256(content["key"].encode() + encode_canonical(whole)).digest()
        assert accepted["commitment"] == encode_base64(digest)
        self._established = self._sas.diffie_hellman(Curve25519PublicKey.from_base64(content["key"]))
        info = f"MATRIX_KEY_VERIFICATION_SAS|{ANN}|A|{self.public_key}|{BOT}|B|{content['key']}|{REQUEST}"
        return [EMOJI[index][0] for index in self._established.bytes(info).emoji_indices]

    async def confirm(self, keys: dict[str, str]) -> None:
        assert self._established is not None
        info = f"{MAC}{ANN}A{BOT}B{REQUEST}"
        macs = {name: self._established.calculate_mac(key, info + name) for name, key in keys.items()}
        names = ",".join(sorted(keys))
        await self.send(
            "mac", {"mac": macs, "keys": self._established.calculate_mac(names, f"{info}KEY_IDS")}
        )

    def check_mac(self, content: dict[str, Any], keys: dict[str, str]) -> None:
        assert self._established is not None and set(content["mac"]) == set(keys)
        info = f"{MAC}{BOT}B{ANN}A{REQUEST}"
        for name, key in keys.items():
            self._established.verify_mac(key, info + name, content["mac"][name])
        self._established.verify_mac(",".join(sorted(keys)), f"{info}KEY_IDS", content["keys"])


def list_keys(fake: FakeKeyServer, user: str, device: str) -> dict[str, str]:
    """The keys of a person that are verified: of the device, and of the identity."""
    master: dict[str, str] = fake.identities[user]["master_key"]["keys"]
    return {f"ed25519:{device}": fake.devices[user][device]["keys"][f"ed25519:{device}"], **master}


@pytest.fixture
def fake() -> Iterator[FakeKeyServer]:
    with FakeKeyServer() as server:
        server.members[ROOM] = [ANN, BOT]
        yield server


@asynccontextmanager
async def meet(
    fake: FakeKeyServer, folder: Path, trust: DeviceTrust = DeviceTrust.FIRST_USE
) -> AsyncGenerator[tuple[Party, Party, VerifyingClient]]:
    people = Parties(fake, folder, Clock())
    try:
        ann, bot = await people.add(ANN, "A"), await people.add(BOT, "B", trust)
        yield ann, bot, VerifyingClient(fake, ann, bot)
    finally:
        await people.close()


async def test_a_person_and_all_their_devices_are_verified_when_both_sides_confirm(
    fake: FakeKeyServer, tmp_path: Path
) -> None:
    async with meet(fake, tmp_path) as (_, bot, client):
        seen = await client.compare()
        await bot.sync()
        [comparison] = read_report(bot.folder).comparisons
        assert (comparison.user, [emoji for emoji, _ in comparison.emoji]) == (ANN, seen)
        await client.confirm(list_keys(fake, ANN, "A"))
        await bot.sync()
        assert read_report(bot.folder).verified == [], "the operator has not confirmed yet"
        add_request(bot.folder, ConfirmRequest(comparison.id, same=True))
        await bot.sync()
        step, _ = await client.read_reply()
        assert step == "done"
        report = read_report(bot.folder)
        assert (report.verified, report.outcome, report.comparisons) == ([ANN], f"{ANN} is verified.", [])
        mac = await client.read(fake.events[ROOM][-2])
        assert {event["type"] for event in fake.events[ROOM]} == {"m.room.encrypted"}
        client.check_mac(msgspec.json.decode(mac.content), list_keys(fake, BOT, "B"))


async def test_emoji_that_differ_end_the_verification(fake: FakeKeyServer, tmp_path: Path) -> None:
    async with meet(fake, tmp_path) as (_, bot, client):
        await client.compare()
        await bot.sync()
        [comparison] = read_report(bot.folder).comparisons
        add_request(bot.folder, ConfirmRequest(comparison.id, same=False))
        await bot.sync()
        step, content = await client.read_reply()
        assert (step, content["code"]) == ("cancel", "m.mismatched_sas")
        assert read_report(bot.folder).verified == []


async def test_a_key_that_is_not_that_of_the_person_ends_the_verification(
    fake: FakeKeyServer, tmp_path: Path
) -> None:
    async with meet(fake, tmp_path) as (_, bot, client):
        await client.compare()
        await bot.sync()
        [comparison] = read_report(bot.folder).comparisons
        wrong = {**list_keys(fake, ANN, "A"), "ed25519:A": "A" * 43}
        await client.confirm(wrong)
        add_request(bot.folder, ConfirmRequest(comparison.id, same=True))
        await bot.sync()
        step, content = await client.read_reply()
        assert (step, content["code"]) == ("cancel", "m.key_mismatch")
        assert read_report(bot.folder).verified == []


async def test_what_comes_at_the_wrong_time_ends_the_verification(
    fake: FakeKeyServer, tmp_path: Path
) -> None:
    async with meet(fake, tmp_path) as (_, bot, client):
        await client.compare()
        await client.send("accept", {})
        step, content = await client.read_reply()
        assert (step, content["code"]) == ("cancel", "m.unexpected_message")
        await bot.sync()
        assert read_report(bot.folder).comparisons == []


async def test_with_trust_verified_a_person_is_heard_only_after_the_verification(
    fake: FakeKeyServer, tmp_path: Path
) -> None:
    async with meet(fake, tmp_path, DeviceTrust.VERIFIED) as (ann, bot, client):
        await client.compare()
        await bot.sync()
        [comparison] = read_report(bot.folder).comparisons
        asked = await ann.say("hello")
        await bot.sync()
        with pytest.raises(UntrustedDevice):
            await bot.read(asked)
        await client.confirm(list_keys(fake, ANN, "A"))
        add_request(bot.folder, ConfirmRequest(comparison.id, same=True))
        await bot.sync()
        assert await bot.read(asked) == "hello"
