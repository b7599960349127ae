"""What the engine relies on in every adapter."""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.builders import ODD_TEXTS, until
from tests.contracts.adapters import CASES, Setting

from keryx.core.deliveries import REPEAT_MARK, Idempotency, Target
from keryx.core.errors import MessageGone, NotSent, SendError, Throttled, Unavailable, Uncertain
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment
from keryx.core.messages import Text
from keryx.core.ports.adapter import (
    InboundEvent,
    InboundMessage,
    OutgoingPart,
    PlatformReach,
    Receipt,
    RenderedPart,
    SupportsReactions,
    SupportsRoles,
    check_id,
    check_target,
)
from keryx.core.questions import Button
from keryx.testing import RecordingAdapterContext
from keryx.testing.fault_injection import PlatformFaults

SECONDS = 60


@pytest.fixture(params=CASES, ids=str)
async def setting(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Setting]:
    async with request.param.make(tmp_path) as made:
        yield made


def build_part(
    setting: Setting, text: str = "hello", *, delivery: str = "d1", chat: str = ""
) -> OutgoingPart:
    target = Target(setting.adapter.platform, setting.adapter.account, chat or setting.chats[0])
    rendered = setting.adapter.parts(text)[0] if text else RenderedPart("")
    return OutgoingPart(
        delivery=DeliveryId(delivery),
        number=0,
        key=f"{delivery}.0",
        target=target,
        text=rendered.text,
        markup=rendered.markup,
    )


def seen(setting: Setting) -> list[str]:
    return setting.seen(setting.chats[0])


async def test_what_is_sent_arrives_and_has_an_id(setting: Setting) -> None:
    receipt = await setting.adapter.send(build_part(setting))
    assert receipt and seen(setting) == ["hello"]


async def test_what_is_sent_one_after_the_other_arrives_in_order(setting: Setting) -> None:
    receipts = [await setting.adapter.send(build_part(setting, f"t{n}", delivery=f"d{n}")) for n in range(5)]
    assert seen(setting) == [f"t{n}" for n in range(5)]
    assert len(set(receipts)) == 5


async def test_chats_are_apart(setting: Setting) -> None:
    one, two = setting.chats
    await setting.adapter.send(build_part(setting, "one", chat=one))
    await setting.adapter.send(build_part(setting, "two", delivery="d2", chat=two))
    assert (setting.seen(one), setting.seen(two)) == (["one"], ["two"])


async def test_a_repetition_under_one_key_arrives_once_where_the_platform_says_so(setting: Setting) -> None:
    first = await setting.adapter.send(build_part(setting))
    again = await setting.adapter.send(build_part(setting))
    native = setting.adapter.capabilities.idempotency is Idempotency.NATIVE
    assert seen(setting) == ["hello"] * (1 if native else 2)
    assert (first == again) == native


async def test_a_repetition_that_may_be_one_is_marked(setting: Setting) -> None:
    if setting.adapter.capabilities.idempotency is Idempotency.NATIVE:
        pytest.skip("this platform recognises a repetition by its key")
    marked = msgspec.structs.replace(build_part(setting, "it is **bold**"), again=True)
    await setting.adapter.send(marked)
    assert seen(setting) == [REPEAT_MARK + marked.text]


@pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
async def test_any_text_arrives_or_is_refused_by_name(setting: Setting, text: str) -> None:
    for number, one in enumerate(setting.adapter.parts(text)):
        sent = msgspec.structs.replace(
            build_part(setting), number=number, key=f"d1.{number}", text=one.text, markup=one.markup
        )
        try:
            await setting.adapter.send(sent)
        except SendError:
            assert seen(setting) == []
        else:
            assert seen(setting)[number:] == [one.text]


@pytest.mark.parametrize("text", ["x", "word " * 3000, "👩‍👩‍👧‍👦" * 500])
async def test_the_parts_of_a_text_lose_nothing_and_are_never_none(setting: Setting, text: str) -> None:
    parts = setting.adapter.parts(text)
    shown = [one.text for one in parts]
    assert "".join("".join(shown).split()) == "".join(text.split()) and all(shown)
    assert list(setting.adapter.parts(text)) == list(parts)


async def test_a_platform_out_of_reach_took_nothing(setting: Setting) -> None:
    if setting.unreachable is None:
        pytest.skip("this platform is always there")
    with pytest.raises(NotSent) as caught:
        await setting.unreachable.send(build_part(setting))
    refuse_secrets(setting, caught.value)


async def test_a_throttled_part_says_how_long_to_wait_and_did_not_arrive(setting: Setting) -> None:
    spoil(setting, PlatformFaults(throttle=1, retry_after=3))
    with pytest.raises(Throttled) as caught:
        await setting.adapter.send(build_part(setting))
    assert caught.value.after == timedelta(seconds=3) and seen(setting) == []
    refuse_secrets(setting, caught.value)


async def test_a_platform_that_breaks_is_tried_again(setting: Setting) -> None:
    spoil(setting, PlatformFaults(broken=1))
    with pytest.raises((NotSent, Uncertain)) as caught:
        await setting.adapter.send(build_part(setting))
    assert seen(setting) == []
    refuse_secrets(setting, caught.value)


async def test_a_reply_that_is_lost_after_acceptance_leaves_doubt(setting: Setting) -> None:
    spoil(setting, PlatformFaults(lost_reply=1))
    with pytest.raises(Uncertain) as caught:
        await setting.adapter.send(build_part(setting))
    assert seen(setting) == ["hello"]
    refuse_secrets(setting, caught.value)


async def test_an_edit_replaces_what_was_sent_and_may_be_repeated(setting: Setting) -> None:
    if not setting.adapter.capabilities.edit:
        pytest.skip("this platform has no edits")
    first = await setting.adapter.send(build_part(setting, "draft"))
    edit = msgspec.structs.replace(build_part(setting, "final"), edits=first)
    assert [await setting.adapter.send(edit), await setting.adapter.send(edit)] == [first, first]
    assert seen(setting) == ["final"]
    with pytest.raises(MessageGone):
        await setting.adapter.send(msgspec.structs.replace(edit, edits="99999999"))


async def test_a_press_says_what_its_button_says_and_an_edit_takes_the_buttons_away(setting: Setting) -> None:
    if setting.pressable is None or setting.press is None:
        assert not setting.adapter.capabilities.buttons
        pytest.skip("this platform has no buttons")
    offered = (Button("Yes", "/answer 01jd0 1"), Button("No", "/answer 01jd0 2"))
    chat = setting.chats[0]
    sent = await setting.adapter.send(msgspec.structs.replace(build_part(setting, "May I?"), buttons=offered))
    assert setting.pressable(chat) == ["Yes", "No"]
    setting.press(chat, "No")
    [event] = await heard(setting, 1)
    assert (texts([event]), event.reply, event.source.chat) == (["/answer 01jd0 2"], None, chat)
    check_ids(setting, event)
    await setting.adapter.send(msgspec.structs.replace(build_part(setting, "No."), edits=sent))
    assert (setting.pressable(chat), seen(setting)) == ([], ["No."])


async def test_a_file_arrives_with_its_bytes(setting: Setting) -> None:
    if setting.files is None:
        pytest.skip("this platform takes no files")
    assert setting.adapter.capabilities.attachments
    for number, mime in enumerate(("image/png", "application/pdf", "audio/ogg", "text/plain")):
        attachment = Attachment(name=f"f{number}.bin", mime=mime, body=b"\x00\xff bytes %d" % number)
        sent = msgspec.structs.replace(
            build_part(setting, ""), number=number, key=f"d1.{number}", attachment=attachment
        )
        assert await setting.adapter.send(sent)
    assert setting.files(setting.chats[0]) == [b"\x00\xff bytes %d" % n for n in range(4)]


async def test_typing_is_shown(setting: Setting) -> None:
    if setting.typed is None:
        pytest.skip("this platform shows nothing of the kind")
    await setting.adapter.typing(build_part(setting).target)
    assert setting.typed() == 1


async def test_reactions_that_are_declared_can_be_asked_for(setting: Setting) -> None:
    assert setting.adapter.capabilities.reactions == isinstance(setting.adapter, SupportsReactions)


async def test_listening_goes_on_until_it_is_cancelled(setting: Setting) -> None:
    task = asyncio.create_task(setting.adapter.listen(RecordingAdapterContext()))
    await asyncio.sleep(0.02)
    assert not task.done()
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=SECONDS)
    assert done and task.cancelled()


async def test_events_come_in_order_with_ids_of_their_own_and_go_on_from_the_cursor(setting: Setting) -> None:
    say(setting, *(f"m{n}" for n in range(4)))
    first = await heard(setting, 4)
    assert texts(first) == [f"m{n}" for n in range(4)]
    assert len({m.event for m in first}) == 4
    assert all(
        m.reply and m.reply.chat == setting.chats[0] and m.source.platform == setting.adapter.platform
        for m in first
    )
    for message in first:
        check_ids(setting, message)
    cursor = first[1].cursor
    if cursor is None:
        pytest.skip("this platform posts, and has no cursor")
    assert [m.event for m in await heard(setting, 2, cursor)] == [m.event for m in first[2:]]


async def test_an_event_that_could_not_be_taken_in_comes_again(setting: Setting) -> None:
    say(setting, "hello")
    refused: list[InboundEvent] = []

    async def refuse(inbound: InboundEvent) -> Receipt:
        refused.append(inbound)
        raise Unavailable("the store is away")

    listening = asyncio.create_task(listened(setting, RecordingAdapterContext(setting.start, receive=refuse)))
    await until(lambda: bool(refused), seconds=SECONDS)
    listening.cancel()
    await asyncio.wait({listening})
    assert [m.event for m in await heard(setting, 1)] == [refused[0].event]


async def test_a_repeated_event_keeps_its_id(setting: Setting) -> None:
    say(setting, "m0", "m1", "m2")
    spoil(setting, PlatformFaults(duplicate=1))
    events = await heard(setting, 3, distinct=True)
    assert len({(m.event, *texts([m])) for m in events}) == 3
    again = await heard(setting, 1)
    assert again[0].event in {m.event for m in events}


async def test_events_out_of_order_and_torn_answers_lose_nothing(setting: Setting) -> None:
    say(setting, *(f"m{n}" for n in range(12)))
    spoil(setting, PlatformFaults(reorder=1, torn=0.5, duplicate=0.3))
    events = await heard(setting, 12, distinct=True)
    assert set(texts(events)) == {f"m{n}" for n in range(12)}


async def test_a_restart_after_any_event_goes_on_with_the_next(setting: Setting) -> None:
    if setting.post:
        pytest.skip("this platform posts, and has no cursor")
    say(setting, *(f"m{n}" for n in range(6)))
    spoil(setting, PlatformFaults(reorder=1, duplicate=0.3))
    found: list[str] = []
    cursor: str | None = None
    for _ in range(6):
        [event] = await heard(setting, 1, cursor)
        assert event.cursor
        found, cursor = [*found, *texts([event])], event.cursor
    assert found == [f"m{n}" for n in range(6)]


async def test_what_cannot_be_read_is_left_behind_and_blocks_nothing(setting: Setting) -> None:
    if setting.junk is None:
        pytest.skip("nothing broken can come from this platform")
    say(setting, "before")
    setting.junk()
    say(setting, "after")
    setting.junk()
    assert texts(await heard(setting, 2)) == ["before", "after"]


async def test_an_edit_by_a_person_names_what_it_edits(setting: Setting) -> None:
    if setting.edit is None:
        pytest.skip("people cannot edit on this platform")
    say(setting, "helo")
    setting.edit(setting.chats[0], "hello")
    first, second = await heard(setting, 2)
    assert (first.edits, second.edits) == (None, first.source.message)
    assert texts([second]) == ["hello"] and first.event != second.event


async def test_another_id_of_a_person_is_told_before_what_they_say(setting: Setting) -> None:
    if setting.alias is None:
        pytest.skip("people have one id on this platform")
    setting.alias(setting.chats[0], "hello", "another")
    context = Brink(1, setting.start)
    [event] = await heard(setting, 1, context=context)
    assert context.aliases == [(event.source.user, "another")] and texts([event]) == ["hello"]


async def test_a_file_of_a_person_is_kept_with_its_bytes(setting: Setting) -> None:
    if setting.attach is None:
        pytest.skip("people cannot send files on this platform")
    attachment = Attachment(name="report.pdf", mime="application/pdf", body=b"%PDF \x00\xff")
    setting.attach(setting.chats[0], "look", attachment)
    context = Brink(1, setting.start)
    [event] = await heard(setting, 1, context=context)
    assert texts([event]) == ["look"] and len(event.parts) == 2
    assert [(a.mime, a.body) for a in context.attachments] == [("application/pdf", b"%PDF \x00\xff")]


async def test_a_file_that_cannot_be_kept_becomes_a_sentence(setting: Setting) -> None:
    if setting.attach is None:
        pytest.skip("people cannot send files on this platform")
    setting.attach(setting.chats[0], "look", Attachment(name="a.bin", mime="", body=b"far too long"))
    [event] = await heard(setting, 1, context=Brink(1, setting.start, limit=1))
    assert all(isinstance(p, Text) for p in event.parts)
    assert "look" in texts([event])[0] and "a.bin" in texts([event])[0]
    refuse_secrets(setting, ValueError(texts([event])[0]))


async def test_roles_that_are_declared_can_be_asked_for(setting: Setting) -> None:
    if setting.rank is None:
        assert not isinstance(setting.adapter, SupportsRoles)
        pytest.skip("this platform has no roles, or tells them with each event")
    able, adapter = setting.adapter.capabilities, setting.adapter
    assert isinstance(adapter, SupportsRoles)
    for role in able.roles:
        found = await adapter.roles(setting.rank(role))
        assert role in found and set(found) <= set(able.roles)
    assert list(await adapter.roles(setting.rank(""))) == []
    assert isinstance(setting.unreachable, SupportsRoles)
    with pytest.raises(Unavailable) as caught:
        await setting.unreachable.roles(setting.rank(""))
    refuse_secrets(setting, caught.value)


async def test_no_secret_is_logged(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    if not setting.secret:
        pytest.skip("this platform has no secret")
    caplog.set_level(logging.DEBUG)
    spoil(setting, PlatformFaults(lost_reply=1))
    with pytest.raises(SendError):
        await setting.adapter.send(build_part(setting))
    say(setting, "hello")
    await heard(setting, 1)
    assert setting.secret not in caplog.text


def say(setting: Setting, *said: str) -> None:
    if setting.say is None:
        pytest.skip("nothing comes in from this platform")
    for text in said:
        setting.say(setting.chats[0], text)


def check_ids(setting: Setting, message: InboundMessage) -> None:
    """What comes in looks as the adapter says that its ids look, so that a target can be checked by the same word."""
    able, source = setting.adapter.capabilities, message.source
    ids = able.ids
    if message.reply:
        check_target(message.reply, PlatformReach(ids=ids, threads=able.threads))
    check_id(source.platform, "chat", source.chat or "", ids.chat)
    check_id(source.platform, "thread", source.thread or "", ids.thread)
    check_id(source.platform, "person", source.user or "", ids.person)


def spoil(setting: Setting, faults: PlatformFaults) -> None:
    if setting.spoil is None:
        pytest.skip("this platform has no wire")
    setting.spoil(faults)


def texts(events: list[InboundMessage]) -> list[str]:
    return ["".join(p.text for p in m.parts if isinstance(p, Text)) for m in events]


def refuse_secrets(setting: Setting, error: BaseException) -> None:
    told = "".join(traceback.format_exception(error)) + repr(error)
    assert not setting.secret or setting.secret not in told


async def listened(setting: Setting, context: RecordingAdapterContext) -> None:
    """Listen until the adapter gives up, or for ever; the platform posts meanwhile, if it does."""
    posting = asyncio.ensure_future(setting.post()) if setting.post else None
    try:
        await setting.adapter.listen(context)
    finally:
        if posting:
            posting.cancel()
            await asyncio.wait({posting})


class Brink(RecordingAdapterContext):
    """A context behind which the process ends: it stores this many events, and never comes back from the last."""

    def __init__(
        self, count: int, cursor: str | None = None, *, distinct: bool = False, limit: int = 1_000_000
    ) -> None:
        super().__init__(cursor, limit=limit)
        self._count = count
        self._distinct = distinct
        self.reached = asyncio.Event()

    async def receive(self, inbound: InboundEvent) -> Receipt:
        receipt = await super().receive(inbound)
        if len({m.event for m in self.events} if self._distinct else self.events) >= self._count:
            self.reached.set()
            await asyncio.Event().wait()
        return receipt


async def heard(
    setting: Setting,
    count: int,
    cursor: str | None = None,
    *,
    context: Brink | None = None,
    distinct: bool = False,
) -> list[InboundMessage]:
    """What was stored when the process ends with this many events, `distinct` ones if asked for."""
    context = context or Brink(count, setting.start if cursor is None else cursor, distinct=distinct)
    task = asyncio.create_task(listened(setting, context))
    await until(lambda: task.done() or context.reached.is_set(), seconds=SECONDS)
    if task.done():
        task.result()
    task.cancel()
    await asyncio.wait({task})
    return context.events
