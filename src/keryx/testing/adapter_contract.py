"""The contract of adapters: what the engine relies on, as a class of tests, and the harness that connects the tests to an adapter and a fake of its platform."""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar, TypeVar

import msgspec
import pytest

from keryx.core import codec
from keryx.core.deliveries import REPEAT_MARK, Idempotency, Target
from keryx.core.errors import (
    Held,
    Invalid,
    MessageGone,
    NotSent,
    SendError,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.ids import DeliveryId
from keryx.core.media import Attachment, RemoteFile
from keryx.core.messages import Text
from keryx.core.ports.adapter import (
    Adapter,
    Capabilities,
    InboundDeletion,
    InboundEvent,
    InboundMessage,
    InboundReaction,
    OutgoingPart,
    PlatformReach,
    Receipt,
    RenderedPart,
    StepState,
    Streaming,
    SupportsDownloads,
    SupportsReactions,
    SupportsReconciliation,
    SupportsRemoval,
    SupportsRoles,
    SupportsSendKeys,
    SupportsThreads,
    ToolStep,
    WebhookRequest,
    check_id,
    check_target,
)
from keryx.core.questions import Button
from keryx.core.source import Source
from keryx.markdown.split import measure_length
from keryx.testing import ODD_TEXTS, RecordingAdapterContext
from keryx.testing.fault_injection import PlatformFaults

T = TypeVar("T")
_LONGEST_TRIED = 100_000
_MOST_EDITS_TRIED = 100
_BUTTONS = (Button("Yes", "/answer 01jd0 1"), Button("No", "/answer 01jd0 2"))


class Trait(StrEnum):
    """What a platform does and `Capabilities` does not say. Each trait switches tests on and needs hooks of the harness."""

    # People write.
    RECEIVES = "receives"
    # The platform hands over an event again until it is acknowledged. Without this trait, the adapter must keep a spool.
    REDELIVERS = "redelivers"
    # Events of a chat are received in order.
    ORDERS = "orders"
    # Events have a cursor, and an adapter that starts again continues behind it.
    RESUMES = "resumes"
    # The adapter stores state by scope, with events or without.
    KEEPS_STATE = "keeps state"
    # The platform is reached over a network, which may fail.
    NETWORK = "network"
    # The platform limits the rate of sends.
    THROTTLES = "throttles"
    # People edit, delete and react to messages, and send files.
    EDITS = "edits"
    DELETES = "deletes"
    REACTS = "reacts"
    ATTACHES = "attaches"
    # People open threads on messages, those of the adapter too. Not for standing topics.
    OPENS_THREADS = "opens threads"
    # An event may name another id of its author.
    ALIASES = "aliases"
    # Something that cannot be parsed may arrive.
    MALFORMED = "malformed"
    # Messages to a person who has not written for some time are not accepted. Needed with `Capabilities.reply_window`.
    HOLDS = "holds"


HOOKS: Mapping[str, str] = {
    "write": "write(chat, text): a person writes",
    "edit": "edit(chat, text): the person changes their last message",
    "delete": "delete(chat): the person deletes their last message",
    "react": "react(chat, emoji): the person reacts to their last message",
    "attach": "attach(chat, text, attachment): a person sends a file with a text",
    "write_in_thread": "write_in_thread(chat, text, message): a person writes in the thread on the message with this id",
    "write_as_alias": "write_as_alias(chat, text, other): a person writes, and the event names another id of theirs",
    "send_malformed": "send_malformed(): the platform hands over something that cannot be parsed",
    "set_faults": "set_faults(faults): the wire fails from now on, as `WireFake.set_faults` does",
    "unreachable": "unreachable: an adapter of the same kind whose platform cannot be reached",
    "restart": "restart(): a new adapter of the same account, as after a restart of the process, with the same spool",
    "close_reply_window": "close_reply_window(chat): messages to this chat are not accepted until a person writes",
    "count_messages": "count_messages(chat): how many messages of the adapter a person sees in a chat",
    "files": "files(chat): the bytes of the files that a person sees in a chat, in order",
    "count_typing": "count_typing(): how often typing was shown",
    "count_reactions": "count_reactions(): how many messages the adapter has reacted to",
    "set_role": "set_role(role): give a person a role, or none for an empty text, and return a source of theirs",
    "buttons": "buttons(chat): the labels of the buttons that a person sees in a chat",
    "press": "press(chat, label): a person presses a button",
    "steps": "steps(chat): the tool calls that a person sees in a chat, as pairs of title and StepState, in order",
    "count_open": "count_open(chat): how many streams or cards in a chat are not closed",
    "challenge": "challenge: a GET request by which the platform verifies the hook, and the body that it expects",
}


@dataclass(frozen=True, kw_only=True)
class AdapterHarness:
    """An adapter with a fake of its platform, and what people do and see there. `HOOKS` describes the optional fields."""

    adapter: Adapter
    # The texts that a person sees in a chat, in order, without files.
    texts: Callable[[str], list[str]]
    traits: frozenset[Trait] = frozenset()
    # The ids of two chats.
    chats: tuple[str, str] = ("c1", "c2")
    # The thread of what is sent, for platforms that stream in threads only.
    thread: str = ""
    # Must be in no error and in no log.
    secret: str = ""
    # The position of an account that has listened before, for platforms that hand over nothing older than the first
    # connection.
    cursor: str | None = None
    # Runs beside `listen`, for platforms that post to a hook: posts events until cancelled.
    post: Callable[[], Awaitable[None]] | None = None
    write: Callable[[str, str], object] | None = None
    edit: Callable[[str, str], object] | None = None
    delete: Callable[[str], object] | None = None
    react: Callable[[str, str], object] | None = None
    attach: Callable[[str, str, Attachment], object] | None = None
    write_in_thread: Callable[[str, str, str], object] | None = None
    write_as_alias: Callable[[str, str, str], object] | None = None
    send_malformed: Callable[[], object] | None = None
    set_faults: Callable[[PlatformFaults], object] | None = None
    unreachable: Adapter | None = None
    restart: Callable[[], Adapter] | None = None
    close_reply_window: Callable[[str], object] | None = None
    files: Callable[[str], list[bytes]] | None = None
    count_messages: Callable[[str], int] | None = None
    count_typing: Callable[[], int] | None = None
    count_reactions: Callable[[], int] | None = None
    set_role: Callable[[str], Source] | None = None
    buttons: Callable[[str], list[str]] | None = None
    press: Callable[[str, str], object] | None = None
    steps: Callable[[str], list[tuple[str, StepState]]] | None = None
    count_open: Callable[[str], int] | None = None
    challenge: tuple[WebhookRequest, bytes] | None = None

    @property
    def capabilities(self) -> Capabilities:
        return self.adapter.capabilities

    def find_problems(self) -> list[str]:
        """Return what the harness lacks for what the adapter and the traits declare, and which hooks no trait uses."""
        problems: list[str] = []
        for reason, declared, hooks in self._list_needs():
            for name, hook in hooks.items():
                if declared and hook is None:
                    problems.append(f"{reason} is declared, so the harness needs {HOOKS[name]}")
                if not declared and hook is not None:
                    problems.append(f"the harness has `{name}`, so declare {reason}, or remove it")
        if Trait.RECEIVES in self.traits and Trait.REDELIVERS not in self.traits and self.restart is None:
            problems.append(
                f"{_name(Trait.REDELIVERS)} is not declared, so the adapter must keep a spool and the harness needs {HOOKS['restart']}"
            )
        if self.capabilities.reply_window is not None and Trait.HOLDS not in self.traits:
            problems.append(f"Capabilities.reply_window is declared, so declare {_name(Trait.HOLDS)}")
        return problems

    def _list_needs(self) -> list[tuple[str, bool, dict[str, object]]]:
        """Return for each declaration its name, whether it is made, and the hooks that it needs."""
        able, adapter = self.capabilities, self.adapter
        traits: dict[Trait, dict[str, object]] = {
            Trait.RECEIVES: {"write": self.write},
            Trait.EDITS: {"edit": self.edit},
            Trait.DELETES: {"delete": self.delete},
            Trait.REACTS: {"react": self.react},
            Trait.ATTACHES: {"attach": self.attach},
            Trait.OPENS_THREADS: {"write_in_thread": self.write_in_thread},
            Trait.ALIASES: {"write_as_alias": self.write_as_alias},
            Trait.MALFORMED: {"send_malformed": self.send_malformed},
            Trait.NETWORK: {"set_faults": self.set_faults, "unreachable": self.unreachable},
            Trait.HOLDS: {"close_reply_window": self.close_reply_window},
        }
        needs = [(_name(trait), trait in self.traits, hooks) for trait, hooks in traits.items()]
        closes = able.streaming in (Streaming.APPEND, Streaming.CARD)
        hook = adapter.hook
        return [
            *needs,
            ("Capabilities.attachments", able.attachments is not None, {"files": self.files}),
            ("Capabilities.files_with_text", able.files_with_text, {"count_messages": self.count_messages}),
            ("Capabilities.typing", able.typing, {"count_typing": self.count_typing}),
            ("Capabilities.reactions", able.reactions, {"count_reactions": self.count_reactions}),
            ("SupportsRoles", isinstance(adapter, SupportsRoles), {"set_role": self.set_role}),
            ("Capabilities.buttons", able.buttons, {"buttons": self.buttons, "press": self.press}),
            ("Capabilities.steps", able.steps, {"steps": self.steps}),
            ("streaming by Streaming.APPEND or CARD", closes, {"count_open": self.count_open}),
            (
                "GET in Webhook.methods",
                hook is not None and "GET" in hook.methods,
                {"challenge": self.challenge},
            ),
        ]


@pytest.mark.anyio
class AdapterContract:
    """Derive a class of tests from this one, with a fixture `harness` that returns or yields an `AdapterHarness`.

    The tests run an adapter in their own loop. Keryx runs one of another package in a thread with a loop of its own."""

    # How long a test waits for an event.
    seconds: ClassVar[float] = 60

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def test_the_harness_has_what_is_declared(self, harness: AdapterHarness) -> None:
        assert harness.find_problems() == []

    async def test_declared_capabilities_agree_with_each_other(self, harness: AdapterHarness) -> None:
        able, adapter = harness.capabilities, harness.adapter
        assert able.edit or able.streaming is Streaming.NONE, "streaming needs Capabilities.edit"
        assert able.streaming is not Streaming.NONE or not able.steps, "steps needs Capabilities.streaming"
        assert able.edit or not able.max_edits, "max_edits needs Capabilities.edit"
        assert able.buttons or not able.button_label, "button_label needs Capabilities.buttons"
        assert able.limit > 0 and able.max_edits >= 0 and able.button_label >= 0
        assert able.attachments is None or able.attachments.kinds, "attachments need at least one kind"
        assert able.attachments or not able.files_with_text, "files_with_text needs Capabilities.attachments"
        assert able.reply_window is None or able.reply_window > timedelta(0)
        assert able.reactions == isinstance(adapter, SupportsReactions)
        assert able.threads or not able.thread_titles, "thread_titles needs Capabilities.threads"
        assert isinstance(adapter, SupportsThreads) or not able.thread_titles
        assert (able.idempotency is Idempotency.RECONCILE) == isinstance(adapter, SupportsReconciliation)
        assert adapter.hook is None or (adapter.hook.path and adapter.hook.methods)

    async def test_what_is_sent_arrives_and_has_an_id(self, harness: AdapterHarness) -> None:
        receipt = await harness.adapter.send(build_part(harness))
        assert receipt and read_texts(harness) == ["hello"]

    async def test_what_is_sent_one_after_the_other_arrives_in_order(self, harness: AdapterHarness) -> None:
        receipts = [
            await harness.adapter.send(build_part(harness, f"t{n}", delivery=f"d{n}")) for n in range(5)
        ]
        assert read_texts(harness) == [f"t{n}" for n in range(5)]
        assert len(set(receipts)) == 5

    async def test_a_message_arrives_in_its_chat_only(self, harness: AdapterHarness) -> None:
        one, two = harness.chats
        await harness.adapter.send(build_part(harness, "one", chat=one))
        await harness.adapter.send(build_part(harness, "two", delivery="d2", chat=two))
        assert (harness.texts(one), harness.texts(two)) == (["one"], ["two"])

    async def test_a_repetition_under_one_key_arrives_once_where_that_is_declared(
        self, harness: AdapterHarness
    ) -> None:
        first = await harness.adapter.send(build_part(harness))
        again = await harness.adapter.send(build_part(harness))
        native = harness.capabilities.idempotency is Idempotency.NATIVE
        assert read_texts(harness) == ["hello"] * (1 if native else 2)
        assert (first == again) == native

    async def test_a_part_that_may_have_arrived_is_marked(self, harness: AdapterHarness) -> None:
        skip_unless(
            harness.capabilities.idempotency is not Idempotency.NATIVE, "repetitions are recognised by key"
        )
        marked = msgspec.structs.replace(build_part(harness, "it is **bold**"), again=True)
        await harness.adapter.send(marked)
        assert read_texts(harness) == [REPEAT_MARK + marked.text]

    async def test_own_send_keys_differ_and_identify_what_was_sent(self, harness: AdapterHarness) -> None:
        adapter = harness.adapter
        if not isinstance(adapter, SupportsSendKeys):
            pytest.skip("the adapter does not choose its send keys")
        parts = [build_part(harness, f"t{n}", delivery=f"d{n}") for n in range(3)]
        keys = [adapter.create_send_key(part) for part in parts]
        assert all(keys) and len(set(keys)) == 3
        keyed = [
            msgspec.structs.replace(part, key=key, again=True) for part, key in zip(parts, keys, strict=True)
        ]
        receipts = [await adapter.send(msgspec.structs.replace(part, again=False)) for part in keyed]
        if isinstance(adapter, SupportsReconciliation):
            assert [await adapter.find_sent(part) for part in keyed] == receipts
        if harness.capabilities.idempotency is Idempotency.NATIVE:
            assert [await adapter.send(part) for part in keyed] == receipts
        assert read_texts(harness) == ["t0", "t1", "t2"]

    async def test_find_sent_finds_what_has_arrived_and_nothing_else(self, harness: AdapterHarness) -> None:
        adapter = harness.adapter
        if not isinstance(adapter, SupportsReconciliation):
            pytest.skip("the adapter does not reconcile")
        one, two = (self._build_keyed(harness, f"t{n}", f"d{n}") for n in range(2))
        assert await adapter.find_sent(one) is None
        receipt = await adapter.send(one)
        again = msgspec.structs.replace(one, again=True)
        assert (await adapter.find_sent(again), await adapter.find_sent(two)) == (receipt, None)
        if Trait.NETWORK in harness.traits:
            set_faults(harness, PlatformFaults(lost_reply=1))
            with pytest.raises(Uncertain):
                await adapter.send(two)
            assert await adapter.find_sent(two) not in (None, receipt)
            unreachable = need(harness.unreachable, "unreachable")
            assert isinstance(unreachable, SupportsReconciliation)
            with pytest.raises(SendError) as caught:
                await unreachable.find_sent(one)
            check_secret(harness, caught.value)

    def _build_keyed(self, harness: AdapterHarness, text: str, delivery: str) -> OutgoingPart:
        part, adapter = build_part(harness, text, delivery=delivery), harness.adapter
        if isinstance(adapter, SupportsSendKeys):
            return msgspec.structs.replace(part, key=adapter.create_send_key(part))
        return part

    @pytest.mark.parametrize("text", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
    async def test_any_text_arrives_or_raises_a_send_error(self, harness: AdapterHarness, text: str) -> None:
        for number, rendered in enumerate(harness.adapter.parts(text)):
            part = set_text(build_part(harness), rendered, number)
            try:
                await harness.adapter.send(part)
            except SendError:
                assert read_texts(harness) == []
            else:
                assert read_texts(harness)[number:] == [rendered.text]

    @pytest.mark.parametrize("text", ["x", "word " * 3000, "👩‍👩‍👧‍👦" * 500])
    async def test_the_parts_of_a_text_lose_nothing_and_are_never_empty(
        self, harness: AdapterHarness, text: str
    ) -> None:
        parts = harness.adapter.parts(text)
        shown = [part.text for part in parts]
        assert "".join("".join(shown).split()) == "".join(text.split()) and all(shown)
        assert list(harness.adapter.parts(text)) == list(parts)

    async def test_parts_keep_to_the_declared_limit_and_arrive(self, harness: AdapterHarness) -> None:
        able = harness.capabilities
        skip_unless(able.limit <= _LONGEST_TRIED, "the limit is too large to try")
        parts = harness.adapter.parts("längere Wörter 👋 " * (able.limit // 10))
        for number, rendered in enumerate(parts):
            assert measure_length(rendered.text, able.unit) <= able.limit
            await harness.adapter.send(set_text(build_part(harness), rendered, number))
        assert read_texts(harness) == [part.text for part in parts]

    async def test_nothing_is_sent_to_a_platform_that_cannot_be_reached(
        self, harness: AdapterHarness
    ) -> None:
        skip_without(harness, Trait.NETWORK)
        with pytest.raises(NotSent) as caught:
            await need(harness.unreachable, "unreachable").send(build_part(harness))
        check_secret(harness, caught.value)

    async def test_a_throttled_part_says_how_long_to_wait_and_did_not_arrive(
        self, harness: AdapterHarness
    ) -> None:
        skip_without(harness, Trait.THROTTLES)
        set_faults(harness, PlatformFaults(throttle=1, retry_after=3))
        with pytest.raises(Throttled) as caught:
            await harness.adapter.send(build_part(harness))
        assert caught.value.after == timedelta(seconds=3) and read_texts(harness) == []
        check_secret(harness, caught.value)

    async def test_a_failure_of_the_platform_can_be_retried(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.NETWORK)
        set_faults(harness, PlatformFaults(broken=1))
        with pytest.raises((NotSent, Uncertain)) as caught:
            await harness.adapter.send(build_part(harness))
        assert read_texts(harness) == []
        check_secret(harness, caught.value)

    async def test_an_answer_of_something_else_is_no_answer_to_a_send(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.NETWORK)
        set_faults(harness, PlatformFaults(garbled=1))
        try:
            await harness.adapter.send(build_part(harness))
        except (NotSent, Uncertain) as exc:
            assert read_texts(harness) == []
            check_secret(harness, exc)
        else:
            # The fake cannot do this.
            assert read_texts(harness) == ["hello"]

    async def test_a_reply_that_is_lost_after_acceptance_is_uncertain(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.NETWORK)
        set_faults(harness, PlatformFaults(lost_reply=1))
        with pytest.raises(Uncertain) as caught:
            await harness.adapter.send(build_part(harness))
        assert read_texts(harness) == ["hello"]
        check_secret(harness, caught.value)

    async def test_a_message_outside_the_reply_window_is_held_until_the_person_writes(
        self, harness: AdapterHarness
    ) -> None:
        skip_without(harness, Trait.HOLDS)
        chat = harness.chats[0]
        need(harness.close_reply_window, "close_reply_window")(chat)
        with pytest.raises(Held) as caught:
            await harness.adapter.send(build_part(harness))
        assert read_texts(harness) == []
        check_secret(harness, caught.value)
        need(harness.write, "write")(chat, "hello?")
        await harness.adapter.send(build_part(harness))
        assert read_texts(harness) == ["hello"]

    async def test_an_edit_replaces_what_was_sent_and_may_be_repeated(self, harness: AdapterHarness) -> None:
        skip_unless(harness.capabilities.edit, "messages cannot be edited")
        first = await harness.adapter.send(build_part(harness, "draft"))
        edit = msgspec.structs.replace(build_part(harness, "final"), edits=first)
        assert [await harness.adapter.send(edit), await harness.adapter.send(edit)] == [first, first]
        assert read_texts(harness) == ["final"]
        with pytest.raises(MessageGone):
            await harness.adapter.send(msgspec.structs.replace(edit, edits="99999999"))

    async def test_a_message_that_is_removed_is_gone(self, harness: AdapterHarness) -> None:
        adapter = harness.adapter
        if not isinstance(adapter, SupportsRemoval):
            pytest.skip("messages cannot be removed")
        part = build_part(harness, "working")
        first = await adapter.send(part)
        await adapter.send(msgspec.structs.replace(build_part(harness, "done"), key=f"{part.key}.2"))
        await adapter.remove(part.target, first)
        assert read_texts(harness) == ["done"]
        with pytest.raises(MessageGone):
            await adapter.remove(part.target, first)

    async def test_a_message_can_be_edited_as_often_as_declared(self, harness: AdapterHarness) -> None:
        edits = harness.capabilities.max_edits
        skip_unless(0 < edits <= _MOST_EDITS_TRIED, "there is no limit of edits that can be tried")
        id_ = await harness.adapter.send(build_part(harness, "v0"))
        for number in range(1, edits + 1):
            edit = msgspec.structs.replace(build_part(harness, f"v{number}"), edits=id_)
            assert await harness.adapter.send(edit) == id_
        assert read_texts(harness) == [f"v{edits}"]

    @pytest.mark.parametrize("answer", ["Hello there.", "Something else."])
    async def test_a_preview_grows_and_the_final_part_replaces_it(
        self, harness: AdapterHarness, answer: str
    ) -> None:
        skip_unless(
            harness.capabilities.streaming is not Streaming.NONE, "nothing is shown while it is written"
        )
        shown, id_ = "", ""
        for text in ("Hel", "Hello", "Hello th"):
            part = build_part(harness, text)
            id_ = await harness.adapter.send(
                msgspec.structs.replace(part, edits=id_, shown=shown, final=False)
            )
            shown = part.text
            assert read_texts(harness) == [text]
        self._check_open(harness, 1)
        final = msgspec.structs.replace(build_part(harness, answer), edits=id_)
        assert await harness.adapter.send(msgspec.structs.replace(final, shown=shown)) == id_
        self._check_open(harness, 0)
        assert await harness.adapter.send(final) == id_, "a final part may be repeated"
        assert read_texts(harness) == [answer]

    async def test_a_preview_shows_the_tool_calls_of_the_turn(self, harness: AdapterHarness) -> None:
        skip_unless(harness.capabilities.steps, "tool calls are not shown")
        steps, chat = need(harness.steps, "steps"), harness.chats[0]
        reading = ToolStep("s1", "read a file", StepState.RUNNING)
        first = msgspec.structs.replace(build_part(harness, ""), steps=(reading,), final=False)
        id_ = await harness.adapter.send(first)
        assert steps(chat) == [("read a file", StepState.RUNNING)]
        done = msgspec.structs.replace(reading, state=StepState.DONE)
        grown = msgspec.structs.replace(build_part(harness, "Hello"), edits=id_, steps=(done,), final=False)
        assert await harness.adapter.send(grown) == id_
        assert steps(chat) == [("read a file", StepState.DONE)]
        assert [text.endswith("Hello") for text in read_texts(harness)] == [True]
        final = msgspec.structs.replace(build_part(harness, "Hello there."), edits=id_, shown="Hello")
        assert await harness.adapter.send(final) == id_
        assert read_texts(harness) == ["Hello there."]

    async def test_a_final_part_of_its_own_is_closed(self, harness: AdapterHarness) -> None:
        streaming = harness.capabilities.streaming
        skip_unless(streaming in (Streaming.APPEND, Streaming.CARD), "there are no streams or cards")
        await harness.adapter.send(build_part(harness))
        self._check_open(harness, 0)

    def _check_open(self, harness: AdapterHarness, expected: int) -> None:
        if harness.capabilities.streaming in (Streaming.APPEND, Streaming.CARD):
            assert need(harness.count_open, "count_open")(harness.chats[0]) == expected

    async def test_a_press_sends_the_text_of_its_button_and_an_edit_removes_the_buttons(
        self, harness: AdapterHarness
    ) -> None:
        skip_unless(harness.capabilities.buttons, "there are no buttons")
        chat, buttons = harness.chats[0], need(harness.buttons, "buttons")
        sent = await harness.adapter.send(
            msgspec.structs.replace(build_part(harness, "May I?"), buttons=_BUTTONS)
        )
        assert buttons(chat) == ["Yes", "No"]
        need(harness.press, "press")(chat, "No")
        [event] = await self.receive_messages(harness, 1)
        assert (get_texts([event]), event.reply, event.source.chat) == (["/answer 01jd0 2"], None, chat)
        check_ids(harness, event)
        skip_unless(harness.capabilities.edit, "messages cannot be edited, so buttons stay")
        await harness.adapter.send(msgspec.structs.replace(build_part(harness, "No."), edits=sent))
        assert (buttons(chat), read_texts(harness)) == ([], ["No."])

    async def test_a_file_within_the_declared_limits_arrives_with_its_bytes(
        self, harness: AdapterHarness
    ) -> None:
        limits = harness.capabilities.attachments
        if limits is None:
            pytest.skip("files cannot be sent")
        mimes = ("image/png", "application/pdf", "audio/ogg", "text/plain", "video/mp4")
        accepted = [mime for mime in mimes if not limits.find_reason(mime, 1)]
        bodies = [b"\x00\xff %d" % number for number in range(len(accepted))]
        for number, (mime, body) in enumerate(zip(accepted, bodies, strict=True)):
            attachment = Attachment(name=f"f{number}.bin", mime=mime, body=body)
            part = set_text(build_part(harness, ""), RenderedPart(""), number)
            assert await harness.adapter.send(msgspec.structs.replace(part, attachment=attachment))
        assert accepted and need(harness.files, "files")(harness.chats[0]) == bodies

    async def test_a_text_and_its_files_arrive_as_one_message(self, harness: AdapterHarness) -> None:
        skip_unless(harness.capabilities.files_with_text, "files are messages of their own")
        files = tuple(
            Attachment(name=f"f{n}.bin", mime="application/pdf", body=b"%%PDF \x00\xff %d" % n)
            for n in range(3)
        )
        part = msgspec.structs.replace(build_part(harness), attachments=files, title="A title")
        assert await harness.adapter.send(part)
        assert read_texts(harness) == ["hello"]
        chat = harness.chats[0]
        assert need(harness.files, "files")(chat) == [file.body for file in files]
        assert need(harness.count_messages, "count_messages")(chat) == 1

    async def test_typing_is_shown(self, harness: AdapterHarness) -> None:
        skip_unless(harness.capabilities.typing, "typing cannot be shown")
        target = build_part(harness).target
        if Trait.RECEIVES in harness.traits:
            # Some platforms show it at the message that is being answered.
            self.write(harness, "hello")
            [message] = await self.receive_messages(harness, 1)
            target = message.reply or target
        await harness.adapter.typing(target)
        assert need(harness.count_typing, "count_typing")() == 1

    async def test_a_declared_reaction_is_shown_at_the_message(self, harness: AdapterHarness) -> None:
        adapter = harness.adapter
        if not isinstance(adapter, SupportsReactions):
            pytest.skip("the adapter does not react")
        skip_without(harness, Trait.RECEIVES)
        self.write(harness, "hello")
        [message] = await self.receive_messages(harness, 1)
        assert message.reply is not None and message.reply.reply_to
        await adapter.react(message.reply)
        assert need(harness.count_reactions, "count_reactions")() == 1

    async def test_declared_roles_can_be_looked_up(self, harness: AdapterHarness) -> None:
        able, adapter = harness.capabilities, harness.adapter
        if not isinstance(adapter, SupportsRoles):
            pytest.skip("there are no roles, or events carry them")
        set_role = need(harness.set_role, "set_role")
        for role in able.roles:
            found = await adapter.roles(set_role(role))
            assert role in found and set(found) <= set(able.roles)
        assert list(await adapter.roles(set_role(""))) == []
        unreachable = need(harness.unreachable, "unreachable")
        assert isinstance(unreachable, SupportsRoles)
        with pytest.raises(Unavailable) as caught:
            await unreachable.roles(set_role(""))
        check_secret(harness, caught.value)

    async def test_a_hook_answers_the_challenge_of_its_platform(self, harness: AdapterHarness) -> None:
        hook = harness.adapter.hook
        if hook is None or "GET" not in hook.methods:
            pytest.skip("there is no challenge")
        request, expected = need(harness.challenge, "challenge")
        response = await hook.handle(request)
        assert (response.status, response.body) == (200, expected)
        unsigned = await hook.handle(msgspec.structs.replace(request, query={}))
        assert unsigned.status >= 400, "a challenge without its token is refused"

    async def test_listening_continues_until_it_is_cancelled(self, harness: AdapterHarness) -> None:
        task = asyncio.create_task(harness.adapter.listen(RecordingAdapterContext()))
        await asyncio.sleep(0.02)
        assert not task.done()
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=self.seconds)
        assert done and task.cancelled()

    async def test_events_have_ids_of_their_own_and_ids_of_the_declared_formats(
        self, harness: AdapterHarness
    ) -> None:
        self.write(harness, *(f"m{n}" for n in range(4)))
        messages = await self.receive_messages(harness, 4, distinct=True)
        assert len({message.event for message in messages}) == 4
        assert set(get_texts(messages)) == {f"m{n}" for n in range(4)}
        for message in messages:
            assert message.reply and message.reply.chat == harness.chats[0]
            assert message.source.platform == harness.adapter.platform
            check_ids(harness, message)

    async def test_events_are_received_in_order(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.ORDERS)
        self.write(harness, *(f"m{n}" for n in range(4)))
        assert get_texts(await self.receive_messages(harness, 4)) == [f"m{n}" for n in range(4)]

    async def test_only_an_account_that_resumes_has_a_cursor_and_it_continues_there(
        self, harness: AdapterHarness
    ) -> None:
        self.write(harness, *(f"m{n}" for n in range(4)))
        first = await self.receive_messages(harness, 4, distinct=True)
        cursors = [message.cursor for message in first]
        if Trait.RESUMES not in harness.traits:
            assert not any(cursors), f"events have a cursor: declare {_name(Trait.RESUMES)}"
            pytest.skip("the platform has no cursor")
        assert all(cursors)
        rest = await self.receive_messages(harness, 2, cursors[1])
        assert [message.event for message in rest] == [message.event for message in first[2:]]

    async def test_a_restart_after_any_event_continues_with_the_next(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.RESUMES)
        self.write(harness, *(f"m{n}" for n in range(6)))
        if Trait.NETWORK in harness.traits:
            set_faults(harness, PlatformFaults(reorder=1, duplicate=0.3))
        texts: list[str] = []
        cursor: str | None = None
        state: dict[str, str] = {}
        for _ in range(6):
            context = StoppingContext(1, cursor or harness.cursor, state=state)
            [event] = await self.receive_messages(harness, 1, context=context)
            assert event.cursor
            texts, cursor, state = [*texts, *get_texts([event])], event.cursor, context.state
        assert texts == [f"m{n}" for n in range(6)]

    async def test_an_event_that_was_not_stored_is_handed_over_again(self, harness: AdapterHarness) -> None:
        """An adapter that acknowledges an event before it is stored fails here."""
        skip_without(harness, Trait.REDELIVERS)
        refused = await self._refuse_one(harness, context := RecordingAdapterContext(harness.cursor))
        again = StoppingContext(1, harness.cursor, state=context.state)
        assert [m.event for m in await self.receive_messages(harness, 1, context=again)] == [refused.event]

    async def test_an_event_that_was_not_stored_comes_again_from_the_spool(
        self, harness: AdapterHarness
    ) -> None:
        """The platform hands it over once, so the adapter has to spool it before it calls `receive`."""
        skip_without(harness, Trait.RECEIVES)
        skip_unless(Trait.REDELIVERS not in harness.traits, "the platform hands it over again")
        restart = need(harness.restart, "restart")
        refused = await self._refuse_one(harness, context := RecordingAdapterContext(harness.cursor))
        adapter, stored = restart(), StoppingContext(1, harness.cursor, state=context.state)
        [event] = await self.receive_events(harness, context=stored, adapter=adapter)
        assert event.event == refused.event
        # After it is stored, it is not handed over again.
        self.write(harness, "next")
        after = StoppingContext(1, harness.cursor, state=stored.state)
        [event] = await self.receive_messages(harness, 1, context=after, adapter=restart())
        assert get_texts([event]) == ["next"]

    async def _refuse_one(self, harness: AdapterHarness, context: RecordingAdapterContext) -> InboundEvent:
        """Write a message while the store is not available, end the adapter, and return the event."""
        self.write(harness, "hello")
        refused: asyncio.Future[InboundEvent] = asyncio.get_running_loop().create_future()

        async def refuse(inbound: InboundEvent) -> Receipt:
            if not refused.done():
                refused.set_result(inbound)
            raise Unavailable("the store is not available")

        context.set_receive(refuse)
        task = asyncio.create_task(listen(harness, context))
        try:
            async with asyncio.timeout(self.seconds):
                return await refused
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def test_state_is_stored_and_a_restart_continues_with_it(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.KEEPS_STATE)
        self.write(harness, "m0", "m1")
        first = StoppingContext(1, harness.cursor)
        [event] = await self.receive_messages(harness, 1, context=first)
        assert get_texts([event]) == ["m0"] and any(first.state.values())
        second = StoppingContext(1, event.cursor or harness.cursor, state=first.state)
        adapter = harness.restart() if harness.restart else harness.adapter
        [event] = await self.receive_messages(harness, 1, context=second, adapter=adapter)
        assert get_texts([event]) == ["m1"]

    async def test_a_repeated_event_keeps_its_id(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.NETWORK)
        skip_without(harness, Trait.REDELIVERS)
        self.write(harness, "m0", "m1", "m2")
        set_faults(harness, PlatformFaults(duplicate=1))
        events = await self.receive_messages(harness, 3, distinct=True)
        assert len({(m.event, *get_texts([m])) for m in events}) == 3
        [again] = await self.receive_messages(harness, 1)
        assert again.event in {m.event for m in events}

    async def test_events_out_of_order_and_torn_responses_lose_nothing(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.NETWORK)
        skip_without(harness, Trait.REDELIVERS)
        self.write(harness, *(f"m{n}" for n in range(12)))
        set_faults(harness, PlatformFaults(reorder=1, torn=0.5, duplicate=0.3))
        events = await self.receive_messages(harness, 12, distinct=True)
        assert set(get_texts(events)) == {f"m{n}" for n in range(12)}

    async def test_answers_of_something_else_lose_no_event(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.NETWORK)
        skip_without(harness, Trait.REDELIVERS)
        self.write(harness, *(f"m{n}" for n in range(4)))
        set_faults(harness, PlatformFaults(garbled=0.3))
        events = await self.receive_messages(harness, 4, distinct=True)
        assert set(get_texts(events)) == {f"m{n}" for n in range(4)}

    async def test_what_cannot_be_parsed_is_skipped_and_blocks_nothing(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.MALFORMED)
        send_malformed = need(harness.send_malformed, "send_malformed")
        self.write(harness, "before")
        send_malformed()
        self.write(harness, "after")
        send_malformed()
        assert get_texts(await self.receive_messages(harness, 2)) == ["before", "after"]

    async def test_an_edit_by_a_person_names_the_message(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.EDITS)
        self.write(harness, "helo")
        need(harness.edit, "edit")(harness.chats[0], "hello")
        first, second = await self.receive_messages(harness, 2)
        assert (first.edits, second.edits) == (None, first.source.message)
        assert get_texts([second]) == ["hello"] and first.event != second.event

    async def test_a_deletion_names_the_event_of_the_message(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.DELETES)
        self.write(harness, "m0", "m1")
        messages = await self.receive_messages(harness, 2)
        need(harness.delete, "delete")(harness.chats[0])
        context = StoppingContext(1, messages[-1].cursor or harness.cursor, kind=InboundDeletion)
        [deletion] = await self.receive_events(harness, context=context)
        assert isinstance(deletion, InboundDeletion)
        assert deletion.message_event == messages[1].event
        assert deletion.event not in {message.event for message in messages}
        assert deletion.source.chat == harness.chats[0]

    async def test_a_reaction_names_the_message_and_its_event(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.REACTS)
        self.write(harness, "m0", "m1")
        messages = await self.receive_messages(harness, 2)
        need(harness.react, "react")(harness.chats[0], "👍")
        context = StoppingContext(1, messages[-1].cursor or harness.cursor, kind=InboundReaction)
        [reaction] = await self.receive_events(harness, context=context)
        assert isinstance(reaction, InboundReaction)
        assert (reaction.reaction, reaction.removed) == ("👍", False)
        assert (reaction.message, reaction.message_event) == (messages[1].source.message, messages[1].event)
        assert reaction.event not in {message.event for message in messages}
        assert reaction.source.chat == harness.chats[0] and reaction.source.user

    async def test_a_reply_is_sent_with_its_context_and_without(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.RECEIVES)
        self.write(harness, "hello?")
        [message] = await self.receive_messages(harness, 1)
        reply = message.reply
        if reply is None or reply.reply_context is None:
            pytest.skip("messages bring no reply context")
        for number, target in enumerate((reply, msgspec.structs.replace(reply, reply_context=None))):
            part = build_part(harness, f"t{number}", delivery=f"d{number}")
            assert await harness.adapter.send(msgspec.structs.replace(part, target=target))
        assert read_texts(harness) == ["t0", "t1"]

    async def test_a_thread_on_an_answer_names_the_answer_and_is_answered_in_place(
        self, harness: AdapterHarness
    ) -> None:
        skip_without(harness, Trait.OPENS_THREADS)
        able, chat = harness.capabilities, harness.chats[0]
        assert able.threads and not able.topics, (
            "threads on messages need Capabilities.threads, without topics"
        )
        answer = await harness.adapter.send(build_part(harness))
        self.write(harness, "hello")
        need(harness.write_in_thread, "write_in_thread")(chat, "why?", answer)
        [outside, event] = await self.receive_messages(harness, 2)
        assert (outside.thread_root, outside.source.thread) == ("", None)
        assert event.thread_root == answer and event.source.chat == chat and event.source.thread
        reply = event.reply
        assert reply is not None and reply.thread == event.source.thread
        part = build_part(harness, "because", delivery="d2")
        assert await harness.adapter.send(msgspec.structs.replace(part, target=reply))

    async def test_another_id_of_a_person_is_stored_before_their_message(
        self, harness: AdapterHarness
    ) -> None:
        skip_without(harness, Trait.ALIASES)
        need(harness.write_as_alias, "write_as_alias")(harness.chats[0], "hello", "another")
        context = StoppingContext(1, harness.cursor)
        [event] = await self.receive_messages(harness, 1, context=context)
        assert context.aliases == [(event.source.user, "another")] and get_texts([event]) == ["hello"]

    async def test_a_file_of_a_person_is_stored_with_its_bytes(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.ATTACHES)
        attachment = Attachment(name="report.pdf", mime="application/pdf", body=b"%PDF-1.7 \x00\xff")
        need(harness.attach, "attach")(harness.chats[0], "look", attachment)
        context = StoppingContext(1, harness.cursor)
        [event] = await self.receive_messages(harness, 1, context=context)
        assert get_texts([event]) == ["look"] and len(event.parts) + len(event.files) == 2
        fetched = [await get_downloads(harness).download(file, limit=1000) for file in event.files]
        assert [(a.mime, a.body) for a in (*context.attachments, *fetched)] == [
            ("application/pdf", b"%PDF-1.7 \x00\xff")
        ]

    async def test_a_file_that_cannot_be_stored_becomes_a_sentence(self, harness: AdapterHarness) -> None:
        skip_without(harness, Trait.ATTACHES)
        attachment = Attachment(name="a.bin", mime="", body=b"far too long")
        need(harness.attach, "attach")(harness.chats[0], "look", attachment)
        context = StoppingContext(1, harness.cursor, limit=1)
        [event] = await self.receive_messages(harness, 1, context=context)
        assert all(isinstance(part, Text) for part in event.parts)
        [text] = get_texts([event])
        for file in event.files:
            with pytest.raises(Invalid) as caught:
                await get_downloads(harness).download(file, limit=1)
            text += f"{file.name}: {caught.value}"
        assert "look" in text and "a.bin" in text
        check_secret(harness, ValueError(text))

    async def test_a_file_is_fetched_after_a_restart_by_what_was_stored(
        self, harness: AdapterHarness
    ) -> None:
        """An adapter that keeps in memory what it needs to fetch a file fails here."""
        skip_without(harness, Trait.ATTACHES)
        skip_unless(isinstance(harness.adapter, SupportsDownloads), "files come with their event")
        attachment = Attachment(name="a.txt", mime="text/plain", body=b"words")
        need(harness.attach, "attach")(harness.chats[0], "look", attachment)
        [event] = await self.receive_messages(harness, 1)
        [file] = [codec.loads(codec.dumps(file), RemoteFile) for file in event.files]
        adapter = harness.restart() if harness.restart else harness.adapter
        assert isinstance(adapter, SupportsDownloads)
        assert (await adapter.download(file, limit=1000)).body == b"words"
        assert not harness.secret or harness.secret not in codec.dumps(file)

    async def test_a_file_that_cannot_be_fetched_now_raises_unavailable(
        self, harness: AdapterHarness
    ) -> None:
        skip_without(harness, Trait.ATTACHES)
        skip_without(harness, Trait.NETWORK)
        skip_unless(isinstance(harness.adapter, SupportsDownloads), "files come with their event")
        need(harness.attach, "attach")(
            harness.chats[0], "look", Attachment(name="a.txt", mime="text/plain", body=b"words")
        )
        [event] = await self.receive_messages(harness, 1)
        unreachable = need(harness.unreachable, "unreachable")
        assert isinstance(unreachable, SupportsDownloads)
        with pytest.raises(Unavailable) as caught:
            await unreachable.download(event.files[0], limit=1000)
        check_secret(harness, caught.value)

    async def test_no_secret_is_logged(
        self, harness: AdapterHarness, caplog: pytest.LogCaptureFixture
    ) -> None:
        skip_unless(bool(harness.secret), "there is no secret")
        skip_without(harness, Trait.NETWORK)
        caplog.set_level(logging.DEBUG)
        set_faults(harness, PlatformFaults(lost_reply=1))
        with pytest.raises(SendError):
            await harness.adapter.send(build_part(harness))
        self.write(harness, "hello")
        await self.receive_messages(harness, 1)
        assert harness.secret not in caplog.text

    def write(self, harness: AdapterHarness, *texts: str) -> None:
        """Write these texts as a person. Skip the test if people cannot write."""
        skip_without(harness, Trait.RECEIVES)
        write = need(harness.write, "write")
        for text in texts:
            write(harness.chats[0], text)

    async def receive_messages(
        self,
        harness: AdapterHarness,
        count: int,
        cursor: str | None = None,
        *,
        context: "StoppingContext | None" = None,
        adapter: Adapter | None = None,
        distinct: bool = False,
    ) -> list[InboundMessage]:
        """Listen until this many messages are stored, and return them."""
        context = context or StoppingContext(count, cursor or harness.cursor, distinct=distinct)
        await self.receive_events(harness, context=context, adapter=adapter)
        return context.events

    async def receive_events(
        self, harness: AdapterHarness, *, context: "StoppingContext", adapter: Adapter | None = None
    ) -> list[InboundEvent]:
        """Listen until the context has what it waits for, end the adapter as a crash does, and return the events."""
        listening = asyncio.create_task(listen(harness, context, adapter))
        reached = asyncio.create_task(context.reached.wait())
        done, _ = await asyncio.wait(
            {listening, reached}, timeout=self.seconds, return_when=asyncio.FIRST_COMPLETED
        )
        listening.cancel()
        reached.cancel()
        await asyncio.wait({listening, reached})
        if listening in done:
            listening.result()
        if not done:
            pytest.fail(f"after {self.seconds:g} seconds, {len(context.received)} events were received")
        return context.received


class StoppingContext(RecordingAdapterContext):
    """A context that stores this many events and does not return from the last, as if the process had ended."""

    def __init__(
        self,
        count: int,
        cursor: str | None = None,
        *,
        state: Mapping[str, str] = {},
        distinct: bool = False,
        kind: type[InboundEvent] = InboundMessage,
        limit: int = 1_000_000,
    ) -> None:
        super().__init__(cursor, limit=limit)
        self.state.update(state)
        # The events of this kind, in order; a repeated one counts once if they are to be distinct.
        self.received: list[InboundEvent] = []
        self.reached = asyncio.Event()
        self._count = count
        self._distinct = distinct
        self._kind = kind

    async def receive(self, inbound: InboundEvent) -> Receipt:
        receipt = await super().receive(inbound)
        if isinstance(inbound, self._kind):
            self.received.append(inbound)
        if len({e.event for e in self.received} if self._distinct else self.received) >= self._count:
            self.reached.set()
            await asyncio.Event().wait()
        return receipt


def get_downloads(harness: AdapterHarness) -> SupportsDownloads:
    """Return the adapter as one that fetches the files that its events name."""
    adapter = harness.adapter
    if not isinstance(adapter, SupportsDownloads):
        pytest.fail("events name files, so the adapter needs `download` (SupportsDownloads)")
    return adapter


def build_part(
    harness: AdapterHarness, text: str = "hello", *, delivery: str = "d1", chat: str = ""
) -> OutgoingPart:
    """Return the first part of a text, as the engine sends it."""
    target = Target(
        harness.adapter.platform, harness.adapter.account, chat or harness.chats[0], harness.thread
    )
    part = OutgoingPart(delivery=DeliveryId(delivery), number=0, key=f"{delivery}.0", target=target)
    return set_text(part, harness.adapter.parts(text)[0] if text else RenderedPart(""))


def set_text(part: OutgoingPart, rendered: RenderedPart, number: int = 0) -> OutgoingPart:
    return msgspec.structs.replace(
        part,
        number=number,
        key=f"{part.delivery}.{number}",
        text=rendered.text,
        markup=rendered.markup,
    )


def read_texts(harness: AdapterHarness) -> list[str]:
    """Return what a person sees in the first chat."""
    return harness.texts(harness.chats[0])


def get_texts(messages: list[InboundMessage]) -> list[str]:
    return ["".join(p.text for p in m.parts if isinstance(p, Text)) for m in messages]


def set_faults(harness: AdapterHarness, faults: PlatformFaults) -> None:
    need(harness.set_faults, "set_faults")(faults)


def skip_unless(condition: bool, reason: str) -> None:
    if not condition:
        pytest.skip(reason)


def skip_without(harness: AdapterHarness, trait: Trait) -> None:
    skip_unless(trait in harness.traits, f"{_name(trait)} is not declared")


def need(hook: T | None, name: str) -> T:
    """Return a hook of the harness, or fail with what to add."""
    if hook is None:
        pytest.fail(f"the harness needs {HOOKS[name]}")
    return hook


def check_ids(harness: AdapterHarness, message: InboundMessage) -> None:
    """Fail if an id does not have the format that the adapter declares, because targets are checked by it."""
    able, source = harness.capabilities, message.source
    if message.reply:
        check_target(message.reply, PlatformReach(ids=able.ids, threads=able.threads))
    check_id(source.platform, "chat", source.chat or "", able.ids.chat)
    check_id(source.platform, "thread", source.thread or "", able.ids.thread)
    check_id(source.platform, "person", source.user or "", able.ids.person)


def check_secret(harness: AdapterHarness, error: BaseException) -> None:
    """Fail if the secret is in an error or in what led to it."""
    report = "".join(traceback.format_exception(error)) + repr(error)
    assert not harness.secret or harness.secret not in report


async def listen(
    harness: AdapterHarness, context: RecordingAdapterContext, adapter: Adapter | None = None
) -> None:
    """Listen until the adapter ends or is cancelled. Meanwhile a platform that posts does so."""
    posting = asyncio.ensure_future(harness.post()) if harness.post else None
    try:
        await (adapter or harness.adapter).listen(context)
    finally:
        if posting:
            posting.cancel()
            await asyncio.wait({posting})


def _name(trait: Trait) -> str:
    return f"Trait.{trait.name}"
