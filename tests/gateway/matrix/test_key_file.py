"""The file with the keys of a device: durable, whole, private, and for one process at a time."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from keryx.surfaces.gateway.matrix.encryption import EncryptionUnavailable
from keryx.surfaces.gateway.matrix.encryption import key_file as module
from keryx.surfaces.gateway.matrix.encryption.key_file import KeyFile


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "DEVICE.keys"


def size(path: Path) -> int:
    return path.stat().st_size


def content(path: Path) -> bytes:
    return path.read_bytes()


def replace(path: Path, body: bytes) -> None:
    path.write_bytes(body)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def read_all(keys: KeyFile) -> dict[str, object]:
    return dict(keys.items(""))


def read(path: Path) -> dict[str, object]:
    keys = KeyFile.open(path)
    try:
        return read_all(keys)
    finally:
        keys.close()


async def test_what_was_flushed_is_there_after_a_crash_and_the_rest_is_not(path: Path) -> None:
    keys = KeyFile.open(path)
    keys.set("a", {"n": 1})
    keys.set("b", "x")
    await keys.flush()
    keys.set("a", {"n": 2})
    keys.remove("b")
    await keys.flush()
    keys.set("c", 3)
    keys.close()
    assert read(path) == {"a": {"n": 2}}


async def test_a_group_of_names_is_listed_in_the_order_in_which_they_were_set(path: Path) -> None:
    keys = KeyFile.open(path)
    for name in ("g/b", "h/x", "g/a", "g"):
        keys.set(name, name)
    keys.set("g/b", "new")
    assert keys.items("g/") == [("b", "new"), ("a", "g/a")] and keys.count("g/") == 2
    await keys.flush()
    keys.close()
    again = KeyFile.open(path)
    assert again.items("g/") == [("b", "new"), ("a", "g/a")] and again.get("g") == "g"
    again.close()


async def test_only_its_owner_can_read_it(path: Path) -> None:
    keys = KeyFile.open(path)
    keys.set("a", 1)
    await keys.flush()
    keys.close()
    assert (mode(path), mode(path.parent)) == (0o600, 0o700)


async def test_a_last_change_that_was_cut_off_is_left_out_whole(path: Path) -> None:
    keys = KeyFile.open(path)
    keys.set("a", 1)
    await keys.flush()
    before = size(path)
    keys.set("a", 2)
    keys.set("b", 2)
    await keys.flush()
    keys.close()
    whole = content(path)
    for length in range(before, len(whole)):
        replace(path, whole[:length])
        keys = KeyFile.open(path)
        assert read_all(keys) == {"a": 1}
        keys.set("c", 3)
        await keys.flush()
        keys.close()
        assert read(path) == {"a": 1, "c": 3}


async def test_damage_in_the_middle_is_told_and_nothing_is_dropped(path: Path) -> None:
    keys = KeyFile.open(path)
    for number in range(3):
        keys.set("a", number)
        await keys.flush()
    keys.close()
    whole = content(path)
    replace(path, b"00000000" + whole[8:])
    with pytest.raises(EncryptionUnavailable, match="are damaged"):
        KeyFile.open(path)
    assert content(path) == b"00000000" + whole[8:]


def test_a_second_process_does_not_get_it(path: Path) -> None:
    keys = KeyFile.open(path)
    with pytest.raises(EncryptionUnavailable, match="another process"):
        KeyFile.open(path)
    keys.close()
    KeyFile.open(path).close()


async def test_a_log_that_has_grown_is_written_anew_and_stays_locked(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MIN_COMPACTION_BYTES", 1000)
    keys = KeyFile.open(path)
    for number in range(100):
        keys.set("a", f"{number:0100}")
        keys.set(f"b{number % 3}", number)
        await keys.flush()
    assert size(path) < 3000 and os.listdir(path.parent) == [path.name]
    with pytest.raises(EncryptionUnavailable, match="another process"):
        KeyFile.open(path)
    keys.close()
    assert read(path) == {"a": f"{99:0100}", "b0": 99, "b1": 97, "b2": 98}


async def test_changes_of_many_tasks_are_all_on_disk_when_their_flush_returns(path: Path) -> None:
    keys = KeyFile.open(path)

    async def change(number: int) -> None:
        keys.set(f"k{number}", number)
        await keys.flush()

    await asyncio.gather(*(change(number) for number in range(50)))
    keys.close()
    assert read(path) == {f"k{number}": number for number in range(50)}


async def test_a_full_disk_is_told_and_the_changes_are_written_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = KeyFile.open(path)
    keys.set("a", 1)
    await keys.flush()

    def refuse(file: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    keys.set("b", 2)
    with monkeypatch.context() as full:
        full.setattr(module.os, "write", refuse)
        with pytest.raises(EncryptionUnavailable, match="No space left"):
            await keys.flush()
    keys.set("c", 3)
    await keys.flush()
    keys.close()
    assert read(path) == {"a": 1, "b": 2, "c": 3}


async def test_a_log_that_cannot_be_written_anew_is_kept_and_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MIN_COMPACTION_BYTES", 1000)
    keys = KeyFile.open(path)
    draft = path.with_name(f"{path.name}.new")
    draft.mkdir()
    for number in range(20):
        keys.set("a", f"{number:0100}")
        await keys.flush()
    grown = size(path)
    draft.rmdir()
    for number in range(100):
        keys.set("a", f"{number:0100}")
        await keys.flush()
    keys.close()
    assert grown > 2000 and size(path) < grown and read(path) == {"a": f"{99:0100}"}


async def test_nothing_is_written_behind_a_part_of_a_change_that_cannot_be_removed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = KeyFile.open(path)
    keys.set("a", 1)
    await keys.flush()
    write = os.write

    def write_part(file: int, data: bytes) -> int:
        return write(file, data[:5])

    def refuse(file: int, length: int) -> None:
        raise OSError(5, "Input/output error")

    keys.set("b", 2)
    with monkeypatch.context() as broken:
        broken.setattr(module.os, "write", write_part)
        broken.setattr(module.os, "ftruncate", refuse)
        with pytest.raises(EncryptionUnavailable, match="restart Keryx"):
            await keys.flush()
    with pytest.raises(EncryptionUnavailable, match="restart Keryx"):
        await keys.flush()
    keys.close()
    assert read(path) == {"a": 1}
