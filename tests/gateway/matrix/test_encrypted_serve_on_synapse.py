"""Encrypted rooms as people live with them: `keryx serve` as a process, killed at bad moments, and `keryx matrix`."""

import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.driver import Cli, Node
from tests.gateway.matrix.encrypted_person import EncryptedPerson, correct_sas
from tests.gateway.matrix.person import Person
from tests.gateway.matrix.synapse import Synapse

from keryx.surfaces.gateway.matrix.encryption.control_files import list_account_folders, read_report


@pytest.fixture
def keryx(synapse: Synapse, bot: Person, tmp_path: Path) -> Cli:
    return Cli(
        tmp_path / "home",
        KERYX_MATRIX_HOMESERVER=synapse.url,
        KERYX_MATRIX_USER=bot.user,
        KERYX_MATRIX_TOKEN=bot.token,
        KERYX_MATRIX_ALLOW="*",
        KERYX_LIMITS_LEASE="2s",
    )


@pytest.fixture
def ann(synapse: Synapse, tmp_path: Path) -> Iterator[EncryptedPerson]:
    person = EncryptedPerson(synapse.person("ann", display="Ann"), synapse.url, tmp_path / "ann")
    try:
        yield person
    finally:
        person.close()


@contextmanager
def killed(keryx: Cli) -> Generator[Node]:
    """A node that is killed at the end of the block."""
    with keryx.serving() as node:
        yield node
        node.process.kill()
        node.process.wait(20)


def begin(keryx: Cli, ann: EncryptedPerson, bot: Person) -> str:
    """An encrypted direct room in which Keryx has answered once."""
    with killed(keryx):
        room = ann.room(bot, direct=True)
        ann.wait_for(lambda: bot.user in ann.plain.members(room))
        ann.wait_for_room(room, bot.user)
        ann.say(room, "hello")
        ann.wait_for(lambda: ann.texts(room, by=bot.user) == ["hello"])
    return room


def check_all_read(ann: EncryptedPerson, room: str, bot: Person) -> None:
    """Every event of Keryx was encrypted, and the client of the person could read it."""
    ann.wait_for(lambda: ann.undecrypted == set())
    for event in ann.plain.events(room):
        if event["sender"] == bot.user and "state_key" not in event:
            assert event["type"] == "m.room.encrypted"
            ann.wait_for(lambda found=event["event_id"]: found in ann.events)
            assert ann.events[event["event_id"]]["encrypted"]


def test_killed_in_the_middle_of_an_answer_it_goes_on_in_the_same_message_and_all_of_it_is_readable(
    keryx: Cli, ann: EncryptedPerson, bot: Person
) -> None:
    room = begin(keryx, ann, bot)
    with killed(keryx):
        ann.say(room, "slow 6 a long answer that comes word by word")
        ann.wait_for(lambda: len(ann.texts(room, by=bot.user)) == 2)
        ann.say(room, "and then?")
        shown = ann.messages(room, by=bot.user)[-1]
    assert shown["content"]["body"] != "a long answer that comes word by word"
    with killed(keryx):
        expected = ["hello", "a long answer that comes word by word", "and then?"]
        ann.wait_for(lambda: ann.texts(room, by=bot.user) == expected)
    # A later edit has its own id, so the order of the first events tells which message it is.
    firsts = [
        e["event_id"] for e in ann.plain.events(room) if e["sender"] == bot.user and "state_key" not in e
    ]
    assert len(firsts) > 3
    check_all_read(ann, room, bot)


@pytest.mark.faults
def test_killed_between_and_during_answers_each_encrypted_message_is_answered_once_and_in_order(
    keryx: Cli, ann: EncryptedPerson, bot: Person
) -> None:
    room = begin(keryx, ann, bot)
    asked: list[str] = []

    def ask(pause: str = "") -> str:
        asked.append(f"question {len(asked)} of many")
        return ann.say(room, f"slow {pause} {asked[-1]}" if pause else asked[-1])

    for pause in ("0.2", "0.5", "1", "1.5", "2", "3", "4"):
        with killed(keryx):
            ask(pause)
            last = ask()
            ann.wait_for(lambda event=last: bot.has_read(room, event))
        ask()
        with killed(keryx):
            ann.wait_for(lambda: len(ann.texts(room, by=bot.user)) > len(asked))
    ann.wait_for(lambda: ann.texts(room, by=bot.user) == ["hello", *asked])
    check_all_read(ann, room, bot)


def test_keys_are_in_files_that_only_their_owner_can_read_and_not_in_the_store(
    keryx: Cli, ann: EncryptedPerson, bot: Person
) -> None:
    begin(keryx, ann, bot)
    [folder] = list_account_folders(keryx.home)
    files = [path for path in folder.iterdir() if path.is_file()]
    assert sorted(path.suffix for path in files) == [".json", ".keys"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    [keys] = folder.glob("*.keys")
    sessions = [part for part in keys.read_text().split('"') if part.startswith("inbound/")]
    assert sessions
    store = b"".join(path.read_bytes() for path in keryx.home.glob("keryx.db*"))
    assert all(name.rpartition(" ")[2].encode() not in store for name in sessions)
    assert read_report(folder).recovery_key.encode() not in store


def test_the_operator_sees_the_device_verifies_a_person_and_gets_the_recovery_key(
    keryx: Cli, ann: EncryptedPerson, bot: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    correct_sas(monkeypatch)
    room = begin(keryx, ann, bot)
    with killed(keryx):
        shown = keryx.ok("matrix", "status").out
        assert bot.user in shown and "nobody" in shown
        assert len(keryx.json("matrix", "recovery-key")["recovery_key"].split()) == 12
        assert "recovery_key" not in keryx.json("matrix", "status")
        with keryx.terminal("matrix", "verify") as terminal:
            terminal.show("in your Matrix client now")
            ann.start_verification(bot.user)
            terminal.show("see the same?", *(name for _, name in ann.read_emoji()))
            ann.confirm_emoji()
            terminal.type("y\r")
            terminal.show(f"{ann.user} is verified.")
        assert ann.user in keryx.ok("matrix", "status").out
        ann.wait_for(lambda: ann.has_verified(bot.user))
        ann.say(room, "still here?")
        ann.wait_for(lambda: ann.texts(room, by=bot.user) == ["hello", "still here?"])
    refused = keryx("matrix", "accept", ann.user, "--yes")
    assert refused.code != 0 and "has not changed" in refused.err


def test_without_an_account_the_command_says_what_to_do(tmp_path: Path) -> None:
    refused = Cli(tmp_path)("matrix", "status")
    assert refused.code != 0 and "keryx gateway setup matrix" in refused.err
