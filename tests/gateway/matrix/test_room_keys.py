"""The keys of rooms: which one is kept, what it reads, and when it is replaced."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vodozemac import GroupSession, InboundGroupSession

from keryx.core.errors import Invalid
from keryx.surfaces.gateway.matrix.encryption import RoomKeyMissing, UndecryptableMessage
from keryx.surfaces.gateway.matrix.encryption.device_list import Device
from keryx.surfaces.gateway.matrix.encryption.key_file import KeyFile
from keryx.surfaces.gateway.matrix.encryption.room_keys import RoomKeys, decrypt_file, encrypt_file
from keryx.surfaces.gateway.matrix.event_types import EncryptedFile

ROOM = "!r:x.test"
ANN = "@ann:x.test"
OWNER = Device(user="@bot:x.test", id="B", ed25519="e", curve25519="c")


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[RoomKeys]:
    keys = KeyFile.open(tmp_path / "keys")
    yield RoomKeys(keys)
    keys.close()


def encrypt(session: GroupSession, text: str, *, room: str = ROOM) -> dict[str, Any]:
    body = {"type": "m.room.message", "content": {"body": text}, "room_id": room}
    message = session.encrypt(msgspec.json.encode(body)).to_base64()
    return {"algorithm": "m.megolm.v1.aes-sha2", "session_id": session.session_id, "ciphertext": message}


def read(rooms: RoomKeys, content: dict[str, Any], *, event: str = "$1") -> str:
    payload, _ = rooms.decrypt(ROOM, event, content, replay_check=True)
    return str(msgspec.json.decode(payload.content)["body"])


def add(rooms: RoomKeys, session: GroupSession, *, sender_key: str = "k") -> None:
    rooms.add(ROOM, session.session_key.to_base64(), sender=ANN, sender_key=sender_key, ed25519="e")


def test_every_session_is_listed_for_the_backup_whatever_is_in_its_name(rooms: RoomKeys) -> None:
    sessions = [GroupSession() for _ in range(60)]
    assert any("/" in session.session_id for session in sessions)
    for session in sessions:
        add(rooms, session)
    found = rooms.list_unsaved(100)
    assert {(room, session) for room, session, _ in found} == {(ROOM, s.session_id) for s in sessions}
    rooms.mark_saved(found[:10])
    assert len(rooms.list_unsaved(100)) == 50
    rooms.mark_unsaved()
    assert len(rooms.list_unsaved(100)) == 60


def test_a_key_that_reads_less_does_not_replace_one_that_reads_more(rooms: RoomKeys) -> None:
    session = GroupSession()
    whole, first = session.session_key.to_base64(), encrypt(session, "first")
    add(rooms, session)
    with pytest.raises(RoomKeyMissing, match="later message"):
        read(rooms, first)
    rooms.add(ROOM, whole, sender=ANN, sender_key="k", ed25519="e")
    add(rooms, session)
    assert read(rooms, first) == "first"


def test_a_key_of_a_backup_or_of_another_device_does_not_replace_one_that_its_device_has_sent(
    rooms: RoomKeys,
) -> None:
    session = GroupSession()
    exported = InboundGroupSession(session.session_key).export_at(0)
    assert exported is not None
    encrypt(session, "first")
    add(rooms, session)
    rooms.add_export(ROOM, exported.to_base64(), sender_key="k", ed25519="e")
    rooms.add_export(ROOM, exported.to_base64(), sender="@eve:x.test", sender_key="other", ed25519="e")
    [(_, _, key)] = rooms.list_unsaved(10)
    assert (key.sender, key.sender_key) == (ANN, "k")


def test_a_message_of_another_room_is_refused(rooms: RoomKeys) -> None:
    session = GroupSession()
    add(rooms, session)
    with pytest.raises(UndecryptableMessage, match="another room"):
        read(rooms, encrypt(session, "x", room="!other:x.test"))


@pytest.mark.parametrize(
    "change",
    [
        {"algorithm": "m.new"},
        {"ciphertext": "AAAA"},
        {"ciphertext": 3},
        {"session_id": None},
        {"ciphertext": None},
    ],
)
def test_what_is_malformed_is_told_and_breaks_nothing(rooms: RoomKeys, change: dict[str, Any]) -> None:
    session = GroupSession()
    add(rooms, session)
    good = encrypt(session, "good")
    with pytest.raises((UndecryptableMessage, RoomKeyMissing)):
        read(rooms, {**good, **change})
    with pytest.raises(UndecryptableMessage):
        read(rooms, {})
    assert read(rooms, good) == "good"


def test_a_malformed_key_is_refused(rooms: RoomKeys) -> None:
    for key in ("", "AAAA", "not base64!"):
        with pytest.raises(UndecryptableMessage):
            rooms.add(ROOM, key, sender=ANN, sender_key="k", ed25519="e")
        with pytest.raises(UndecryptableMessage):
            rooms.add_export(ROOM, key, sender_key="k", ed25519="e")


def test_a_file_is_read_with_its_key_and_refused_if_a_byte_differs() -> None:
    body, description = encrypt_file(b"a picture")
    file = msgspec.convert({**description, "url": "mxc://x/y"}, EncryptedFile)
    assert body != b"a picture" and decrypt_file(file, body) == b"a picture"
    with pytest.raises(Invalid, match="changed on its way"):
        decrypt_file(file, body[:-1] + b"?")
    changes: list[dict[str, Any]] = [
        {"iv": "AAAA"},
        {"key": {"alg": "A256CTR", "k": "AA"}},
        {"hashes": {}},
        {"iv": "!"},
    ]
    for wrong in changes:
        with pytest.raises(Invalid):
            decrypt_file(msgspec.convert({**description, **wrong}, EncryptedFile), body)
    assert encrypt_file(b"a picture")[0] != body
