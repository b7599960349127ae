"""The adapter for Signal against a strict fake of signal-cli: receiving, the spool, sending, and what goes wrong."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.builders import until
from tests.contracts.signal import build_adapter
from tests.fakes.signal import ANN, BEN, GROUP, NUMBER, UUID, FakeSignalCli, RpcRefusal

from keryx.core.deliveries import REPEAT_MARK, Target
from keryx.core.errors import (
    Forbidden,
    Invalid,
    MessageGone,
    NotSent,
    Refused,
    SendError,
    TargetGone,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment, RemoteFile
from keryx.core.messages import Text
from keryx.core.ports.adapter import InboundEvent, InboundMessage, LinkState, OutgoingPart, Receipt
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.signal import NO_ACCOUNT, RECEIVES_ITSELF, SignalAdapter, check_number, make
from keryx.surfaces.gateway.signal.event_receiver import NO_SPOOL, OTHER_ACCOUNT, EditHistory
from keryx.surfaces.gateway.signal.message_sender import MAX_FILE_BYTES
from keryx.testing import RecordingAdapterContext
from keryx.testing.fault_injection import PlatformFaults
from keryx.testing.wire import UNREACHABLE_URL

SECONDS = 30


class Account:
    """An adapter, its signal-cli with a spool, and a context."""

    def __init__(self, signal: FakeSignalCli, folder: Path, **settings: Any) -> None:
        self.signal = signal
        self.folder = folder
        self.spool = folder / "received.jsonl"
        self._settings = settings
        self.context = RecordingAdapterContext()
        self.adapters: list[SignalAdapter] = []
        self.adapter = self.restart()

    def restart(self) -> SignalAdapter:
        """A new adapter, as after a restart of the process."""
        self.adapter = build_adapter(self.signal.url, self.folder, spool=self.signal.stdout, **self._settings)
        self.adapters.append(self.adapter)
        return self.adapter

    async def hear(self, count: int = 1) -> list[str]:
        """Listen until there are this many messages in all; gives their texts."""
        task = asyncio.create_task(self.adapter.listen(self.context))
        try:
            await self.context.wait_for(count, seconds=SECONDS)
            # Everything is handled when signal-cli is asked again.
            asked = len(self.signal.calls)
            await until(lambda: len(self.signal.calls) > asked or task.done())
        finally:
            task.cancel()
            await asyncio.wait({task})
        return get_texts(self.context.events)

    async def fail(self) -> Exception:
        """Listen until that fails."""
        with pytest.raises(Exception) as caught:
            async with asyncio.timeout(SECONDS):
                await self.adapter.listen(self.context)
        return caught.value

    async def send(self, text: str = "hello", *, chat: str = ANN, reply_to: str = "", **fields: Any) -> str:
        [rendered] = self.adapter.parts(text) if text else [None]
        shown = {"text": rendered.text, "markup": rendered.markup} if rendered else {}
        target = Target("signal", NUMBER, chat, reply_to=reply_to)
        given: dict[str, Any] = {"number": 0, **shown, **fields}
        return await self.adapter.send(
            OutgoingPart(delivery=DeliveryId("d"), key="k", target=target, **given)
        )


def get_texts(messages: list[InboundMessage]) -> list[str]:
    return ["".join(p.text for p in m.parts if isinstance(p, Text)) for m in messages]


@pytest.fixture
async def account(tmp_path: Path) -> AsyncIterator[Account]:
    (tmp_path / "received.jsonl").touch()
    with FakeSignalCli(stdout=tmp_path / "received.jsonl") as signal:
        account = Account(signal, tmp_path)
        yield account
        for adapter in account.adapters:
            await adapter.close()
        assert signal.problems == []


@pytest.fixture
async def unspooled(tmp_path: Path) -> AsyncIterator[Account]:
    """An account whose signal-cli writes its output nowhere."""
    with FakeSignalCli() as signal:
        account = Account(signal, tmp_path)
        yield account
        for adapter in account.adapters:
            await adapter.close()
        assert signal.problems == []


def test_settings_name_what_is_missing(tmp_path: Path) -> None:
    assert make(AdapterSetup(platform="signal", home=tmp_path)) is None
    with pytest.raises(Invalid, match="account is missing"):
        make(AdapterSetup(platform="signal", home=tmp_path, table={"url": "http://127.0.0.1:8080"}))
    with pytest.raises(Invalid, match="address of the signal-cli daemon"):
        make(AdapterSetup(platform="signal", home=tmp_path, table={"account": NUMBER, "url": "unix:/x"}))
    adapter = make(AdapterSetup(platform="signal", home=tmp_path, table={"account": "+1 (555) 078-3881"}))
    assert adapter is not None and adapter.account == NUMBER
    for wrong in ("", "555", "0155500022", "+1555x", "ann"):
        with pytest.raises(Invalid, match="country code"):
            check_number(wrong)


async def test_what_is_taken_is_stored_and_then_removed_from_the_spool(account: Account) -> None:
    for number in range(3):
        account.signal.write(ANN, f"m{number}")
    assert await account.hear(3) == ["m0", "m1", "m2"]
    assert account.spool.read_bytes() == b""
    assert account.context.link_states == [(LinkState.CONNECTED, "")]


async def test_what_nobody_waited_for_comes_from_the_spool(account: Account) -> None:
    """signal-cli finishes the call of a process that was killed, and Signal does not hand over the message again."""
    account.signal.write(ANN, "while Keryx was dead")
    account.signal.take_all()
    assert account.signal.queue == []
    account.signal.write(ANN, "after that")
    assert await account.hear(2) == ["while Keryx was dead", "after that"]
    assert account.spool.read_bytes() == b""


async def test_nothing_is_taken_while_the_store_fails_and_nothing_is_lost(account: Account) -> None:
    async def refuse(inbound: InboundEvent) -> Receipt:
        raise Unavailable("the store is not available")

    account.signal.write(ANN, "one")
    account.signal.write(ANN, "two")
    account.context.set_receive(refuse)
    assert isinstance(await account.fail(), Unavailable)
    assert len(account.signal.pulled) == 1 and account.context.events == []
    account.context = RecordingAdapterContext()
    account.restart()
    assert await account.hear(2) == ["one", "two"]


async def test_what_is_stored_is_not_received_again_after_a_crash(account: Account) -> None:
    account.signal.write(ANN, "one")
    account.signal.write(ANN, "two")
    account.signal.take_all()
    lines = account.spool.read_bytes()
    assert await account.hear(2) == ["one", "two"]
    # The process ended after the commit and before it cleared the spool.
    account.spool.write_bytes(lines)
    account.restart()
    account.signal.write(ANN, "three")
    assert await account.hear(3) == ["one", "two", "three"]


async def test_a_response_that_is_cut_off_loses_nothing(account: Account) -> None:
    account.signal.set_faults(PlatformFaults(torn=0.5, duplicate=0.3))
    for number in range(12):
        account.signal.write(ANN, f"m{number}")
    task = asyncio.create_task(account.adapter.listen(account.context))
    await until(lambda: len(set(get_texts(account.context.events))) == 12)
    task.cancel()
    await asyncio.wait({task})
    assert list(dict.fromkeys(get_texts(account.context.events))) == [f"m{n}" for n in range(12)]


async def test_a_line_that_signal_cli_could_not_finish_does_not_spoil_the_next(account: Account) -> None:
    account.signal.write(ANN, "one")
    account.signal.take_all()
    whole = account.spool.read_bytes()
    account.spool.write_bytes(b"\0\0" + whole[:50] + whole + b'{"envelope"')
    assert await account.hear(1) == ["one"]


async def test_the_call_of_a_killed_process_is_waited_for(account: Account) -> None:
    conflict = RpcRefusal(-1, "Receive command cannot be used if messages are already being received.")
    account.signal.refusals["receive"] = [conflict] * 3
    account.signal.write(ANN, "hello")
    assert await account.hear() == ["hello"]


async def test_a_signal_cli_that_receives_itself_is_named_and_its_messages_arrive(account: Account) -> None:
    account.signal.receives_itself = True
    account.signal.write(ANN, "hello")
    account.signal.take_all()
    error = await account.fail()
    assert isinstance(error, Forbidden) and str(error) == RECEIVES_ITSELF
    assert get_texts(account.context.events) == ["hello"]
    # signal-cli may be writing, so nothing is removed.
    assert account.spool.read_bytes() != b""


async def test_an_account_that_is_gone_is_one_sentence(account: Account) -> None:
    account.signal.accounts = ["+15550000000"]
    error = await account.fail()
    assert isinstance(error, Forbidden) and str(error) == NO_ACCOUNT
    account.signal.accounts = [NUMBER]
    for refusal in (
        RpcRefusal(-32602, "Specified account does not exist"),
        RpcRefusal(-3, "Error while receiving messages: [403] Authorization failed!"),
    ):
        account.signal.refusals["receive"] = [refusal]
        error = await account.fail()
        assert isinstance(error, Forbidden) and str(error) == NO_ACCOUNT
    account.signal.problems.clear()


async def test_a_daemon_for_one_account_is_not_told_which(account: Account) -> None:
    account.signal.single = True
    account.signal.write(ANN, "hello")
    assert await account.hear() == ["hello"]
    assert await account.send("hi") and account.signal.texts(ANN) == ["hi"]


async def test_a_signal_cli_that_is_down_is_waited_for(account: Account) -> None:
    account.signal.refusals["receive"] = [
        RpcRefusal(-3, "Error while receiving messages: Connection closed!"),
        RpcRefusal(-32603, "An internal server error has occurred."),
    ]
    account.signal.write(ANN, "hello")
    assert await account.hear() == ["hello"]
    links = [link for link, _ in account.context.link_states]
    assert links == [LinkState.CONNECTING, LinkState.CONNECTING, LinkState.CONNECTED]


async def test_a_missing_spool_says_how_to_start_signal_cli(account: Account) -> None:
    account.spool.unlink()
    error = await account.fail()
    assert isinstance(error, Unavailable) and f">> {account.spool}" in str(error)


async def test_a_spool_that_signal_cli_does_not_write_is_named(account: Account) -> None:
    account.signal.stdout = None
    account.signal.write(ANN, "hello")
    assert await account.hear() == ["hello"]
    assert (LinkState.CONNECTED, NO_SPOOL.format(path=account.spool)) in account.context.link_states


async def test_a_spool_that_is_not_written_is_named_again_after_signal_cli_was_away(account: Account) -> None:
    account.signal.stdout = None
    named = LinkState.CONNECTED, NO_SPOOL.format(path=account.spool)
    states = account.context.link_states
    task = asyncio.create_task(account.adapter.listen(account.context))
    account.signal.write(ANN, "hello")
    await until(lambda: named in states)
    account.signal.refusals["receive"] = [
        RpcRefusal(-3, "Error while receiving messages: Connection closed!")
    ]
    account.signal.write(ANN, "again")
    await until(lambda: states[-1][0] is LinkState.CONNECTING)
    account.signal.write(ANN, "and again")
    await until(lambda: states[-1] == named)
    task.cancel()
    await asyncio.wait({task})


async def test_a_spool_that_is_too_large_to_be_read_whole_is_not_cleared(account: Account) -> None:
    account.spool.write_bytes(b"{}\n")
    os.truncate(account.spool, 65_000_000)
    error = await account.fail()
    assert isinstance(error, Unavailable) and "more than" in str(error)
    assert account.spool.stat().st_size == 65_000_000


async def test_messages_of_another_account_are_neither_answered_nor_removed(account: Account) -> None:
    other = account.signal.build_envelope(1, BEN, dataMessage={"timestamp": 1, "message": "not for you"})
    account.signal.push({**other, "account": "+15550000000"})
    account.signal.write(ANN, "hello")
    assert await account.hear() == ["hello"]
    assert b"not for you" in account.spool.read_bytes()
    assert (LinkState.CONNECTED, OTHER_ACCOUNT) in account.context.link_states


async def test_without_a_shared_spool_keryx_keeps_one_and_takes_one_message_at_a_time(
    unspooled: Account,
) -> None:
    async def refuse(inbound: InboundEvent) -> Receipt:
        raise Unavailable("the store is not available")

    unspooled.signal.write(ANN, "one")
    unspooled.signal.write(ANN, "two")
    unspooled.context.set_receive(refuse)
    assert isinstance(await unspooled.fail(), Unavailable)
    own = unspooled.folder / "signal" / f"{NUMBER}.jsonl"
    assert b'"one"' in own.read_bytes() and own.stat().st_mode & 0o777 == 0o600
    unspooled.context = RecordingAdapterContext()
    unspooled.restart()
    assert await unspooled.hear(2) == ["one", "two"]
    assert own.read_bytes() == b""
    pulls = [params["maxMessages"] for method, params in unspooled.signal.calls if method == "receive"]
    assert set(pulls) == {1}


async def test_the_number_of_a_person_is_learned_once(account: Account) -> None:
    account.signal.write(ANN, "one", number="+16505551234")
    account.signal.write(ANN, "two", number="+16505551234")
    account.signal.write(BEN, "mine now", number="+16505551234")
    assert await account.hear(3) == ["one", "two", "mine now"]
    assert account.context.aliases == [(ANN, "+16505551234")]


async def test_an_edit_of_an_edit_changes_the_first_version(account: Account) -> None:
    first = account.signal.write(ANN, "helo")
    second = account.signal.edit(ANN, "hallo", first)
    third = account.signal.edit(ANN, "hello", second)
    account.signal.react(ANN, "👍", third)
    account.signal.delete(ANN, third)
    account.signal.write(ANN, "end")
    await account.hear(4)
    original = f"{ANN}.{first}"
    assert [event.edits for event in account.context.events] == [None, original, original, None]
    assert [event.message_event for event in account.context.reactions] == [original]
    assert [event.message_event for event in account.context.deletions] == [original]


async def test_a_reaction_to_an_edited_answer_names_the_answer(account: Account) -> None:
    task = asyncio.create_task(account.adapter.listen(account.context))
    account.signal.write(ANN, "hello")
    await account.context.wait_for(1, seconds=SECONDS)
    sent = await account.send("May I?")
    for text in ("May I please?", "May I, please?"):
        assert await account.send(text, edits=sent) == sent
    [bubble] = account.signal.bubbles
    edited = [call["editTimestamp"] for _, call in account.signal.calls if "editTimestamp" in call]
    assert bubble.text == "May I, please?" and edited == bubble.versions[:2]
    account.signal.react(ANN, "👍", bubble.versions[-1], author=NUMBER)
    account.signal.write(ANN, "end")
    await account.context.wait_for(2, seconds=SECONDS)
    task.cancel()
    await asyncio.wait({task})
    assert [reaction.message for reaction in account.context.reactions] == [sent]


def test_the_history_of_edits_is_bounded() -> None:
    history, text = EditHistory(None), ""
    for number in range(200):
        text = history.add(str(number + 1), "0")
    assert len(text.split()) == 50 and EditHistory(text).find_original("200") == "0"
    assert EditHistory(text).find_original("7") == "7" and EditHistory("junk =").find_original("x") == "x"


async def test_with_notes_only_nothing_but_notes_to_self_is_heard(tmp_path: Path) -> None:
    (tmp_path / "received.jsonl").touch()
    with FakeSignalCli(stdout=tmp_path / "received.jsonl") as signal:
        account = Account(signal, tmp_path, notes_only=True)
        signal.write(ANN, "hello friend")
        signal.write(GROUP, "hello all", user=ANN)
        signal.sync("to Ann", None, ANN)
        signal.note("remember the milk")
        assert await account.hear() == ["remember the milk"]
        assert await account.send("noted", chat=NUMBER)
        assert signal.texts(NUMBER) == ["noted"]
        await account.adapter.typing(Target("signal", NUMBER, NUMBER))
        assert signal.typing == []
        await account.adapter.close()


async def test_styles_are_ranges_of_the_text_and_move_behind_the_mark(account: Account) -> None:
    await account.send("👋 **bold** and `code`")
    await account.send("👋 **bold** and `code`", again=True)
    one, two = account.signal.bubbles
    assert one.text == "👋 bold and code" and two.text == REPEAT_MARK + one.text
    assert one.styles == two.styles == [("BOLD", "bold"), ("MONOSPACE", "code")]


async def test_an_answer_in_a_group_quotes_the_question_in_its_first_part(account: Account) -> None:
    question = f"{ANN}.1749416383784"
    await account.send("one", chat=GROUP, reply_to=question)
    await account.send("two", chat=GROUP, reply_to=question, number=1)
    await account.send("three", reply_to=question)
    assert [b.quotes for b in account.signal.bubbles] == [(ANN, 1749416383784), None, None]
    with pytest.raises(Refused):
        await account.send("four", chat=GROUP, reply_to="nonsense")


async def test_files_are_sent_with_their_names_and_types(account: Account) -> None:
    picture = Attachment(name="a+b ü.png", mime="image/png; charset=x", body=b"\x89PNG")
    await account.send("", attachment=picture)
    await account.send("", attachment=Attachment(name="", mime="", body=b"x"), again=True)
    one, two = account.signal.bubbles
    assert (one.names, one.mimes, one.files, one.text) == (["a+b ü.png"], ["image/png"], [b"\x89PNG"], "")
    assert (two.names, two.mimes, two.text) == (["file"], ["application/octet-stream"], REPEAT_MARK.strip())
    large = Attachment(name="x", mime="", body=bytes(MAX_FILE_BYTES + 1))
    with pytest.raises(Refused, match="larger than"):
        await account.send("", attachment=large)


async def test_a_file_that_signal_cli_does_not_have_cannot_be_fetched(account: Account) -> None:
    with pytest.raises(Invalid, match="Could not find attachment"):
        await account.adapter.download(RemoteFile(reference="gone", name="a"), limit=10)
    file = account.signal.add_file("a.bin", "x/y", b"0123456789")
    with pytest.raises(Invalid, match="larger than 9 bytes"):
        await account.adapter.download(RemoteFile(reference=file["id"], name="a"), limit=9)
    with pytest.raises(Invalid, match="larger than 9 bytes"):
        await account.adapter.download(RemoteFile(reference=file["id"], name="a", size=10), limit=9)
    found = await account.adapter.download(RemoteFile(reference=file["id"], name="a"), limit=10)
    assert found.body == b"0123456789"


def build_failure(kind: str, **more: Any) -> dict[str, Any]:
    return {"response": {"timestamp": 1, "results": [{"recipientAddress": {}, "type": kind, **more}]}}


@pytest.mark.parametrize(
    ("refusal", "error", "words"),
    [
        (RpcRefusal(-1, "Group not found: x"), TargetGone, "no such group"),
        (RpcRefusal(-1, "User is not a member in group: x (y)"), TargetGone, "no longer in this group"),
        (RpcRefusal(-1, "User is not allowed to send message to group: x"), TargetGone, "administrators"),
        (RpcRefusal(-1, "The user +1555 is not registered."), TargetGone, "not on Signal"),
        (
            RpcRefusal(-1, "Failed to send message", build_failure("UNREGISTERED_FAILURE")),
            TargetGone,
            "not on Signal any more",
        ),
        (RpcRefusal(-1, "Failed to send message", build_failure("NETWORK_FAILURE")), Uncertain, "network"),
        (RpcRefusal(-4, "Failed to send message due to untrusted identities"), Refused, "safety number"),
        (
            RpcRefusal(-32603, "Failed to send message: chat.signal.org (UnknownHostException) (X)"),
            NotSent,
            "cannot reach Signal",
        ),
        (RpcRefusal(-32603, "Failed to send message: reset (IOException) (X)"), Uncertain, "may have sent"),
        (RpcRefusal(-32603, "x (AttachmentInvalidException) (X)"), Refused, "refuses"),
        (RpcRefusal(-32602, "Specified account does not exist"), NotSent, "setup signal"),
        (RpcRefusal(-32601, "Method not implemented"), Refused, "not implemented"),
        (RpcRefusal(-1, "odd", {"response": {"results": [{"type": 5}]}}), Refused, "odd"),
    ],
    ids=str,
)
async def test_a_refusal_is_the_send_error_that_says_what_to_do(
    account: Account, refusal: RpcRefusal, error: type[SendError], words: str
) -> None:
    account.signal.refusals["send"] = [refusal]
    with pytest.raises(error, match=words):
        await account.send()
    account.signal.problems.clear()


async def test_a_rate_limit_says_how_long_to_wait_and_what_to_solve(account: Account) -> None:
    reason = "Failed to send message due to rate limiting"
    account.signal.refusals["send"] = [
        RpcRefusal(-5, reason),
        RpcRefusal(-5, reason, build_failure("RATE_LIMIT_FAILURE", retryAfterSeconds=90)),
        RpcRefusal(-5, reason, build_failure("RATE_LIMIT_FAILURE", token="t", retryAfterSeconds=86400)),
        RpcRefusal(-5, reason, build_failure("RATE_LIMIT_FAILURE", token="t")),
    ]
    found: list[Throttled] = []
    for _ in range(4):
        with pytest.raises(Throttled) as caught:
            await account.send()
        found.append(caught.value)
    assert all(error.account for error in found)
    assert [error.after for error in found] == [
        timedelta(minutes=1),
        timedelta(seconds=90),
        timedelta(days=1),
        timedelta(hours=1),
    ]
    assert "submitRateLimitChallenge" in str(found[-1])


async def test_only_own_messages_of_the_last_day_can_be_edited(account: Account) -> None:
    with pytest.raises(MessageGone, match="24 hours"):
        await account.send("new", edits="1749416383784")
    for wrong in (f"{ANN}.1749416383784", "nonsense"):
        with pytest.raises(Refused):
            await account.send("new", edits=wrong)


async def test_something_else_at_the_address_is_not_taken_for_signal_cli(account: Account) -> None:
    wrong = build_adapter(f"{account.signal.url}/elsewhere", account.folder)
    target = Target("signal", NUMBER, ANN)
    part = OutgoingPart(delivery=DeliveryId("d"), number=0, key="k", target=target, text="x")
    with pytest.raises(NotSent, match="not signal-cli"):
        await wrong.send(part)
    with pytest.raises(NotSent):
        await build_adapter(UNREACHABLE_URL, account.folder).typing(target)
    with pytest.raises(Refused, match="names no chat"):
        await account.send(chat="")
    await wrong.close()


async def test_the_uuid_of_the_account_is_learned_from_its_other_devices(account: Account) -> None:
    account.signal.note("hello")
    mention = {"name": UUID, "number": None, "uuid": UUID, "start": 0, "length": 1}
    account.signal.write(GROUP, "\ufffc help", user=ANN, mentions=[mention])
    assert await account.hear(2) == ["hello", "help"]
    assert account.context.events[1].addressed


async def test_the_spool_is_read_as_signal_cli_writes_it(account: Account) -> None:
    """The line of an untrusted sender, as the source of signal-cli has it: the envelope is there, its content is not."""
    envelope = account.signal.build_envelope(5, ANN)
    error = {"message": "untrusted", "type": "UntrustedIdentityException"}
    account.spool.write_text(json.dumps({**envelope, "exception": error}) + "\n")
    account.signal.write(ANN, "hello")
    assert await account.hear() == ["hello"]
