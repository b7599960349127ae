"""A long turn shows itself while it runs, and what a person reads at the end is the answer, once."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.engine.conftest import Begin
from tests.engine.loops.test_dispatcher import post
from tests.engine.world import FAKE, OPERATORS, Pause, Scenes, World

from keryx.core.deliveries import REPEAT_MARK, Idempotency, PreviewState, Target
from keryx.core.errors import (
    AgentFailed,
    MessageGone,
    NotSent,
    Refused,
    SendError,
    Throttled,
    Unavailable,
    Uncertain,
)
from keryx.core.messages import Role, ToolCall, ToolResult
from keryx.core.ports.adapter import (
    AttachmentLimits,
    Capabilities,
    OutgoingPart,
    Receipt,
    Streaming,
)
from keryx.core.ports.agent import (
    WARNING_KIND,
    AgentEvent,
    FileEvent,
    NoticeEvent,
    TextDelta,
    ToolCallEvent,
    ToolResultEvent,
    TurnContext,
)
from keryx.core.questions import Question
from keryx.store import deliveries, platforms, turns
from keryx.store.admin.verify import verify
from keryx.store.db import Database, Engine
from keryx.testing import CrashingDatabase, DatabaseFault, FakeClock, FaultTiming, RecordingAdapter

pytestmark = pytest.mark.engines(Engine.SQLITE)
# For those that run every statement of a preview.
BOTH = pytest.mark.engines(*Engine)
SECOND = timedelta(seconds=1)
PNG = b"\x89PNG\r\n\x1a\n"


class Screen(RecordingAdapter):
    """Keeps everything that was sent, each with the moment; `edits` are the errors that edits meet."""

    def __init__(self, clock: FakeClock, *, limit: int = 0, **able: Any) -> None:
        given: dict[str, Any] = {"edit": True, "streaming": Streaming.EDIT, **able}
        super().__init__(FAKE, capabilities=Capabilities(**given), limit=limit)
        self._clock = clock
        self.sent: list[tuple[float, OutgoingPart]] = []
        self.edits: list[SendError] = []

    async def send(self, part: OutgoingPart) -> str:
        self.sent.append((self._clock.monotonic(), part))
        if part.edits and self.edits:
            raise self.edits.pop(0)
        return await super().send(part)

    def count(self) -> int:
        return len(self.sent)


class ErasableScreen(Screen):
    """A screen whose messages can be deleted; `removals` are the errors that this meets."""

    def __init__(self, clock: FakeClock, **able: Any) -> None:
        super().__init__(clock, **able)
        self.removed: set[str] = set()
        self.removals: list[SendError] = []

    @property
    def texts(self) -> list[str]:
        return [text for n, text in enumerate(super().texts) if f"{FAKE}-{n}" not in self.removed]

    async def remove(self, target: Target, message: str) -> None:
        if self.removals:
            raise self.removals.pop(0)
        if message in self.removed:
            raise MessageGone("it is gone")
        self.removed.add(message)


class Stage:
    """A world with one long turn: `lines` are said one by one, each when the test lets it."""

    def __init__(self, world: World, screen: Screen, pauses: Sequence[Pause]) -> None:
        self.world = world
        self.screen = screen
        self.pauses = list(pauses)
        self.receipt = Receipt(duplicate=False)

    async def begin(self) -> None:
        self.receipt = await self.world.say("long")
        await self.pauses[0].reached()

    async def go_on(self) -> None:
        """Let the turn say its next line."""
        self.pauses.pop(0).go_on()
        if self.pauses:
            await self.pauses[0].reached()

    async def shows(self, *texts: str) -> None:
        """Let time pass until the screen shows this."""
        await self.world.flow(self.world.eventually(lambda: self.screen.texts == list(texts)), step=0.3)

    async def end(self) -> None:
        while self.pauses:
            await self.go_on()
        await self.world.flow(self.world.settle(self.receipt), step=0.3)


async def a_stage(begin: Begin, screen: Screen, *lines: Any, database: Database | None = None) -> Stage:
    pauses = [Pause() for _ in lines[1:]]
    script = [step for line, pause in zip(lines, pauses, strict=False) for step in (line, pause)]
    world = await begin(agent=Scenes({"long": [*script, lines[-1]]}), adapters=[screen], database=database)
    return Stage(world, screen, pauses)


async def arrived(stage: Stage, count: int = 1) -> None:
    await stage.world.flow(stage.world.delivered(count), step=0.5)
    assert await verify(stage.world.database) == []


@BOTH
async def test_the_answer_takes_the_place_of_what_was_shown(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("upon "), TextDelta("a time."))
    await stage.begin()
    await stage.shows("Once ")
    await stage.go_on()
    await stage.shows("Once upon ")
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Once upon a time."]
    (delivery,) = await stage.world.delivered(1)
    assert delivery.receipts == ("fake-0",)
    keys = [p.key for _, p in screen.sent]
    assert len(set(keys)) == len(keys) == 3
    assert delivery.turn and await stage.world.read(deliveries.find_preview, delivery.turn) is None


async def test_a_quick_answer_is_sent_and_nothing_before_it(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock, typing=True)
    stage = await a_stage(begin, screen, TextDelta("Quick"), TextDelta(" one"))
    await stage.begin()
    clock.advance(0.5)
    stage.pauses[0].go_on()
    await stage.world.settle(stage.receipt)
    await screen.wait_for(1)
    assert (screen.count(), screen.texts, screen.typing_targets) == (1, ["Quick one"], [])


async def test_edits_are_gathered_and_keep_their_distance(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    stage = await a_stage(begin, screen, *(TextDelta(f"{n} ") for n in range(12)))
    await stage.begin()
    while stage.pauses:
        await stage.go_on()
        for _ in range(4):
            clock.advance(0.1)
            await asyncio.sleep(0.003)
    await stage.end()
    await arrived(stage)
    times = [at for at, _ in screen.sent]
    assert times[0] >= 1.2
    assert all(b - a >= 1.5 for a, b in pairwise(times[:-1]))
    assert 2 <= len(times) <= 5
    assert screen.texts == ["".join(f"{n} " for n in range(12))]


async def test_of_a_long_text_the_first_part_is_shown_and_stays(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock, limit=4)
    stage = await a_stage(begin, screen, TextDelta("aabb"), TextDelta("ccdd"), TextDelta("ee"))
    await stage.begin()
    await stage.shows("aabb")
    await stage.go_on()
    await stage.world.flow(clock.sleep(6), step=0.5)
    assert screen.texts == ["aabb"]
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["aabb", "ccdd", "ee"]


async def test_a_long_silence_shows_what_is_being_done(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    stage = await a_stage(
        begin, screen, ToolCallEvent((ToolCall("1", "grep", "{}"),)), TextDelta("Found it.")
    )
    await stage.begin()
    await stage.world.flow(clock.sleep(8), step=0.5)
    assert screen.texts == []
    await stage.shows("working: grep …")
    await stage.world.flow(
        stage.world.eventually(lambda: screen.texts == ["still working: grep, 1 min"]), step=5
    )
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["The answer is below.", "Found it."]


CALL = ToolCallEvent((ToolCall("1", "grep", "{}"),))
RESULT = ToolResultEvent(ToolResult("1", "grep", "x"))


@BOTH
async def test_an_answer_after_long_work_is_a_new_message_and_the_progress_is_removed(
    begin: Begin, clock: FakeClock
) -> None:
    screen = ErasableScreen(clock)
    stage = await a_stage(begin, screen, CALL, RESULT, TextDelta("Found it."))
    await stage.begin()
    await stage.shows("working: grep …")
    await stage.go_on()
    await stage.world.flow(clock.sleep(70), step=2)
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Found it."] and screen.removed == {"fake-0"}


async def test_an_answer_soon_after_its_preview_takes_its_place(begin: Begin, clock: FakeClock) -> None:
    screen = ErasableScreen(clock)
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("a time."))
    await stage.begin()
    await stage.shows("Once ")
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Once a time."] and not screen.removed


@pytest.mark.parametrize(
    ("error", "left"),
    [
        (MessageGone("gone"), ["working: grep …"]),
        (Refused("too old"), ["The answer is below."]),
        (NotSent("no line"), []),
        (Uncertain("the line broke"), []),
    ],
)
async def test_progress_that_cannot_be_deleted_does_not_hold_up_the_answer(
    begin: Begin, clock: FakeClock, error: SendError, left: list[str]
) -> None:
    screen = ErasableScreen(clock)
    stage = await a_stage(begin, screen, CALL, RESULT, TextDelta("Found it."))
    await stage.begin()
    await stage.shows("working: grep …")
    screen.removals.append(error)
    await stage.go_on()
    screen_after = len(screen.texts)
    await stage.world.flow(clock.sleep(41), step=0.5)
    assert len(screen.texts) == screen_after
    clock.advance(20)
    await stage.end()
    await arrived(stage)
    assert screen.texts[-1] == "Found it." and not any(REPEAT_MARK in t for t in screen.texts)
    if not isinstance(error, MessageGone):
        assert screen.texts[:-1] == left


@BOTH
async def test_text_before_a_tool_call_is_a_message_of_its_own(begin: Begin, clock: FakeClock) -> None:
    screen = ErasableScreen(clock)
    stage = await a_stage(
        begin,
        screen,
        TextDelta("Let me look."),
        CALL,
        RESULT,
        TextDelta("It is "),
        TextDelta("in the attic."),
    )
    await stage.begin()
    await stage.shows("Let me look.")
    await stage.go_on()
    await arrived(stage, 1)
    assert screen.texts == ["Let me look."] and not screen.removed
    await stage.go_on()
    await stage.go_on()
    await stage.shows("Let me look.", "It is ")
    await stage.end()
    await arrived(stage, 2)
    assert screen.texts == ["Let me look.", "It is in the attic."]


async def test_a_turn_that_ends_with_a_tool_removes_its_progress(begin: Begin, clock: FakeClock) -> None:
    screen = ErasableScreen(clock)
    stage = await a_stage(begin, screen, TextDelta("I set it up."), CALL, RESULT)
    await stage.begin()
    await stage.shows("I set it up.")
    await stage.go_on()
    await stage.shows("I set it up.", "working: grep …")
    await stage.end()
    await arrived(stage, 2)
    assert screen.texts == ["I set it up."]


async def test_tool_calls_are_shown_where_the_platform_has_a_place_for_them(
    begin: Begin, clock: FakeClock
) -> None:
    screen = ErasableScreen(clock, steps=True)
    other = ToolCallEvent((ToolCall("2", "read\nfile", "{}"),))
    failed = ToolResultEvent(ToolResult("2", "read", "no", failed=True))
    stage = await a_stage(
        begin, screen, TextDelta("Let me look."), CALL, RESULT, other, failed, TextDelta("Found.")
    )
    await stage.begin()
    await stage.go_on()

    async def shows(*steps: str) -> None:
        def listed() -> list[str]:
            return [f"{step.title} {step.state}" for _, part in screen.sent[-1:] for step in part.steps]

        await stage.world.flow(stage.world.eventually(lambda: listed() == list(steps)), step=0.3)

    await shows("grep running")
    # The text before the call is a message of its own, and the steps are below it.
    assert screen.texts == ["Let me look.", ""]
    await stage.go_on()
    await shows("grep done")
    await stage.go_on()
    await shows("grep done", "read file running")
    await stage.end()
    await arrived(stage, 2)
    assert screen.texts == ["Let me look.", "Found."]
    assert screen.sent[-1][1].final and not screen.sent[-1][1].steps


async def test_typing_and_progress_go_on_while_a_tool_works_after_a_word(
    begin: Begin, clock: FakeClock
) -> None:
    screen = ErasableScreen(clock, typing=True)
    stage = await a_stage(begin, screen, TextDelta("Let me look."), CALL, RESULT, TextDelta("Found."))
    await stage.begin()
    await stage.shows("Let me look.")
    await stage.go_on()
    typed = len(screen.typing_targets)
    await stage.shows("Let me look.", "working: grep …")
    assert len(screen.typing_targets) > typed
    await stage.shows("Let me look.", "still working: grep, 1 min")
    typed = len(screen.typing_targets)
    await stage.world.flow(stage.world.eventually(lambda: len(screen.typing_targets) > typed + 3), step=1)
    await stage.end()
    await arrived(stage, 2)
    assert screen.texts == ["Let me look.", "Found."]


async def test_typing_stops_while_a_person_is_asked(begin: Begin, clock: FakeClock) -> None:
    async def ask(context: TurnContext) -> None:
        await context.ask(Question(key="1", title="May I?"))

    screen = ErasableScreen(clock, typing=True)
    stage = await a_stage(begin, screen, ask, TextDelta("Thanks."))
    stage.receipt = await stage.world.say("long")
    await stage.world.flow(stage.world.eventually(lambda: len(screen.texts) == 1), step=0.3)
    typed = len(screen.typing_targets)
    await stage.world.flow(clock.sleep(30), step=0.5)
    assert len(screen.typing_targets) == typed and len(screen.texts) == 1
    await stage.world.command("1")
    await stage.end()


async def test_typing_is_shown_until_the_answer_is_there(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock, typing=True)
    stage = await a_stage(begin, screen, ToolCallEvent(()), TextDelta("x"), TextDelta("y"))
    await stage.begin()
    await stage.world.flow(stage.world.eventually(lambda: len(screen.typing_targets) >= 3), step=0.5)
    await stage.go_on()
    await stage.shows("x")
    typed = len(screen.typing_targets)
    await stage.world.flow(stage.world.eventually(lambda: len(screen.typing_targets) > typed), step=0.5)
    await stage.end()
    typed = len(screen.typing_targets)
    await stage.world.flow(clock.sleep(9), step=0.5)
    assert len(screen.typing_targets) == typed


async def test_typing_that_fails_does_no_harm(begin: Begin, clock: FakeClock) -> None:
    class Broken(Screen):
        async def typing(self, target: Target) -> None:
            raise RuntimeError("no typing today")

    screen = Broken(clock, typing=True, edit=False, streaming=Streaming.NONE)
    stage = await a_stage(begin, screen, TextDelta("x"), TextDelta("y"))
    await stage.begin()
    await stage.world.flow(clock.sleep(9), step=0.5)
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["xy"]


async def test_without_typing_a_reaction_says_once_that_it_is_being_answered(
    begin: Begin, clock: FakeClock
) -> None:
    reacted: list[Target] = []

    class Reacts(Screen):
        async def react(self, target: Target) -> None:
            reacted.append(target)

    screen = Reacts(clock, reactions=True, edit=False, streaming=Streaming.NONE)
    stage = await a_stage(begin, screen, TextDelta("x"), TextDelta("y"))
    await stage.begin()
    await stage.world.flow(clock.sleep(9), step=0.5)
    assert stage.receipt.turn is not None
    turn = await stage.world.read(turns.get, stage.receipt.turn)
    await stage.end()
    await arrived(stage)
    assert reacted == [turn.reply]
    assert (screen.texts, screen.typing_targets) == (["xy"], [])


async def test_a_turn_that_is_stopped_says_so_where_it_was_shown(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    stage = await a_stage(begin, screen, TextDelta("Once upon"), TextDelta(" a time."))
    await stage.begin()
    await stage.shows("Once upon")
    assert stage.receipt.session
    await stage.world.hub.stop(OPERATORS, stage.receipt.session)
    await arrived(stage)
    assert screen.texts == ["Once upon\n\n(stopped)"]


async def test_a_turn_that_is_stopped_unseen_sends_nothing(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    stage = await a_stage(begin, screen, TextDelta("Once upon"), TextDelta(" a time."))
    await stage.begin()
    assert stage.receipt.session
    await stage.world.hub.stop(OPERATORS, stage.receipt.session)
    await stage.world.flow(stage.world.settle(stage.receipt), step=0.1)
    assert await stage.world.hub.deliveries.page(OPERATORS) == []


async def test_a_turn_that_fails_says_so_below_what_it_had_said(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    stage = await a_stage(begin, screen, TextDelta("Once upon"), AgentFailed("The model is away."))
    await stage.begin()
    await stage.shows("Once upon")
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Once upon\n\nThe model is away."]


async def test_a_preview_in_doubt_is_followed_by_a_marked_answer(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    screen.errors_after.append(Uncertain("the line broke"))
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("upon "), TextDelta("a time."))
    await stage.begin()
    await stage.shows("Once ")
    await stage.go_on()
    await stage.world.flow(clock.sleep(8), step=0.5)
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Once ", f"{REPEAT_MARK}Once upon a time."]


async def test_a_platform_with_keys_finds_a_preview_in_doubt_again(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock, idempotency=Idempotency.NATIVE)
    screen.errors_after.append(Uncertain("the line broke"))
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("upon "), TextDelta("a time."))
    await stage.begin()
    await stage.shows("Once ")
    await stage.go_on()
    await stage.shows("Once upon ")
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Once upon a time."]


async def test_a_preview_that_was_deleted_is_sent_afresh_without_a_mark(
    begin: Begin, clock: FakeClock
) -> None:
    screen = Screen(clock)
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("a time."))
    await stage.begin()
    await stage.shows("Once ")
    screen.edits.append(MessageGone("it was deleted"))
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Once ", "Once a time."]


async def test_a_preview_deleted_while_the_turn_runs_is_not_shown_again(
    begin: Begin, clock: FakeClock
) -> None:
    screen = Screen(clock)
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("upon "), TextDelta("a time."))
    await stage.begin()
    await stage.shows("Once ")
    screen.edits.append(MessageGone("it was deleted"))
    await stage.go_on()
    await stage.world.flow(clock.sleep(8), step=0.5)
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Once ", "Once upon a time."]
    assert screen.count() == 3


async def test_an_edit_in_doubt_is_repeated_without_a_mark(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("a time."))
    await stage.begin()
    await stage.shows("Once ")
    screen.edits.append(Uncertain("the line broke"))
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Once a time."]


@BOTH
async def test_a_throttled_preview_makes_the_answer_wait(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    screen.errors_before.append(Throttled("slow down", after=timedelta(seconds=40)))
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("a time."))
    await stage.begin()
    await stage.world.flow(stage.world.eventually(lambda: screen.count() == 1), step=0.3)
    await stage.world.until(lambda tx: platforms.get_gates_open_at(tx, Target(FAKE, chat="1")) is not None)
    throttled = clock.monotonic()
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Once a time."]
    assert clock.monotonic() - throttled >= 39


async def test_a_preview_that_is_refused_leaves_the_answer_alone(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    screen.errors_before.append(Refused("not like this"))
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("upon "), TextDelta("a time."))
    await stage.begin()
    await stage.world.flow(clock.sleep(5), step=0.5)
    await stage.go_on()
    await stage.world.flow(clock.sleep(5), step=0.5)
    await stage.end()
    await arrived(stage)
    assert (screen.texts, screen.count()) == (["Once upon a time."], 2)


@BOTH
async def test_previews_make_room_for_what_waits(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("a time."))
    await stage.world.write(
        platforms.close_gate, Target(FAKE, chat="1").key, until=clock.now() + 8 * SECOND, reason=""
    )
    await stage.begin()
    await stage.world.write(post, "first")
    await stage.shows("first", "Once ")
    await stage.end()
    await arrived(stage, 2)
    assert screen.texts == ["first", "Once a time."]


async def test_files_alone_still_replace_what_was_shown(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock, attachments=AttachmentLimits())
    stage = await a_stage(
        begin, screen, ToolCallEvent((ToolCall("1", "draw", "{}"),)), FileEvent("cat.png", "", PNG)
    )
    await stage.begin()
    await stage.shows("working: draw …")
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Attached:", ""]
    file = screen.sent_parts[1].attachment
    assert file is not None and (file.name, file.body) == ("cat.png", PNG)


@BOTH
async def test_the_next_attempt_goes_on_with_the_same_message(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("a time."))
    await stage.begin()
    await stage.shows("Once ")
    await stage.world.restart()
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Once a time."]


LABELS = ("preview.begin", "preview.end", "turn.finish", "delivery.claim", "delivery.settle")


def check(screen: Screen) -> None:
    """The whole answer is there; whatever else is there is what was shown, or carries the mark."""
    whole = [t for t in screen.texts if t.removeprefix(REPEAT_MARK) == "Once upon a time."]
    unmarked = [t for t in whole if not t.startswith(REPEAT_MARK)]
    others = [t for t in screen.texts if t not in whole]
    assert whole and len(unmarked) <= 1 and others in ([], ["Once "], ["Once upon "])
    if others:
        assert not unmarked, screen.texts


@pytest.mark.parametrize("native", [False, True], ids=["none", "native"])
@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize("label", LABELS)
async def test_a_fault_at_a_write_leaves_one_answer(
    begin: Begin, clock: FakeClock, database: Database, label: str, when: FaultTiming, native: bool
) -> None:
    screen = Screen(clock, idempotency=Idempotency.NATIVE if native else Idempotency.NONE)
    fault = DatabaseFault(label, when, nth=2 if label == "delivery.claim" else 1)
    stage = await a_stage(
        begin,
        screen,
        TextDelta("Once "),
        TextDelta("upon "),
        TextDelta("a time."),
        database=CrashingDatabase(database, fault),
    )
    await stage.begin()
    await stage.world.flow(clock.sleep(4), step=0.3)
    await stage.go_on()
    await stage.world.flow(clock.sleep(4), step=0.3)
    await stage.end()
    await arrived(stage)
    assert fault.hits
    check(screen)
    if native:
        assert screen.texts == ["Once upon a time."]


@pytest.mark.parametrize("native", [False, True], ids=["none", "native"])
@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize("label", LABELS)
async def test_a_process_that_dies_at_a_write_leaves_one_answer(
    begin: Begin, clock: FakeClock, database: Database, label: str, when: FaultTiming, native: bool
) -> None:
    screen = Screen(clock, idempotency=Idempotency.NATIVE if native else Idempotency.NONE)
    struck = asyncio.Event()

    def strike(_: str) -> None:
        stage.world.node.die()
        struck.set()
        raise Unavailable("dead")

    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("upon "), TextDelta("a time."))
    await stage.world.node.stop()
    nth = 2 if label in ("delivery.claim", "preview.begin", "preview.end") else 1
    await stage.world.start(CrashingDatabase(database, DatabaseFault(label, when, nth=nth, strike=strike)))
    await stage.begin()
    await stage.world.flow(clock.sleep(4), step=0.3)
    pauses = list(stage.pauses)
    if not struck.is_set():
        await stage.go_on()
        await stage.world.flow(clock.sleep(4), step=0.3)
    for pause in pauses:
        pause.go_on()
    await stage.world.flow(struck.wait(), step=0.3)
    await stage.world.restart()
    await stage.world.flow(stage.world.settle(stage.receipt), step=0.5)
    await arrived(stage)
    check(screen)
    if native:
        assert screen.texts == ["Once upon a time."]


STEP_LABELS = ("preview.begin", "preview.end", "preview.withdraw", "turn.progress", "turn.finish")


@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize("label", [*STEP_LABELS, "delivery.claim", "delivery.settle"])
@pytest.mark.parametrize("nth", [1, 2])
async def test_a_process_that_dies_between_the_messages_of_a_turn_repeats_none(
    begin: Begin, clock: FakeClock, database: Database, label: str, when: FaultTiming, nth: int
) -> None:
    class Resuming:
        """Goes on after what an interrupted attempt has stored, as the agent for models does."""

        async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
            mine = [m for m in await context.history() if m.turn == context.turn and m.mark is None]
            if not any(m.role is Role.ASSISTANT for m in mine):
                yield TextDelta("Let me look.")
                await context.clock.sleep(3)
                yield CALL
            if not any(m.role is Role.TOOL for m in mine):
                await context.clock.sleep(80)
                yield RESULT
            yield TextDelta("Found it.")

    screen = ErasableScreen(clock, idempotency=Idempotency.NATIVE)
    struck = asyncio.Event()

    def strike(_: str) -> None:
        world.node.die()
        struck.set()
        raise Unavailable("dead")

    world = await begin(agent=Resuming(), adapters=[screen])
    await world.node.stop()
    fault = DatabaseFault(label, when, nth=nth, strike=strike)
    await world.start(CrashingDatabase(database, fault))
    receipt = await world.say("long")
    arrival = asyncio.ensure_future(world.delivered(2))
    strikes = asyncio.ensure_future(struck.wait())
    await world.flow(asyncio.wait({arrival, strikes}, return_when=asyncio.FIRST_COMPLETED), step=0.5)
    arrival.cancel()
    strikes.cancel()
    if struck.is_set():
        await world.restart()
    await world.flow(world.settle(receipt), step=0.5)
    await world.flow(world.delivered(2), step=0.5)
    assert screen.texts == ["Let me look.", "Found it."]
    assert await verify(database) == []


@BOTH
async def test_a_lost_preview_is_kept_as_lost(begin: Begin, clock: FakeClock) -> None:
    screen = Screen(clock)
    screen.errors_after.append(Uncertain("the line broke"))
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("a time."))
    await stage.begin()
    assert stage.receipt.turn
    turn = stage.receipt.turn
    await stage.world.flow(
        stage.world.until(
            lambda tx: (p := deliveries.find_preview(tx, turn)) is not None and p.state is PreviewState.LOST
        ),
        step=0.3,
    )
    await stage.end()


@BOTH
async def test_the_answer_after_a_question_is_a_new_message_below_it(begin: Begin, clock: FakeClock) -> None:
    async def ask(context: TurnContext) -> None:
        await context.ask(Question(key="1", title="May I?"))

    screen = Screen(clock)
    stage = await a_stage(begin, screen, TextDelta("Once "), ask, TextDelta("a time."))
    await stage.begin()
    await stage.shows("Once ")
    stage.pauses.pop(0).go_on()
    await stage.world.flow(stage.world.eventually(lambda: len(screen.texts) == 2), step=0.3)
    assert screen.texts[0] == "Once " and "May I?" in screen.texts[1]
    await stage.world.command("1")
    await stage.pauses[0].reached()
    await stage.end()
    await arrived(stage, 4)
    assert screen.texts[0] == "Once " and "May I?" in screen.texts[1]
    assert screen.texts[-1] == "a time." and len(screen.texts) == 4


async def test_a_question_removes_the_progress_above_it(begin: Begin, clock: FakeClock) -> None:
    async def ask(context: TurnContext) -> None:
        await context.ask(Question(key="1", title="May I?"))

    screen = ErasableScreen(clock)
    stage = await a_stage(begin, screen, CALL, ask, TextDelta("Thanks."))
    await stage.begin()
    await stage.shows("working: grep …")
    stage.pauses.pop(0).go_on()
    await stage.world.flow(stage.world.eventually(lambda: "May I?" in "".join(screen.texts)), step=0.3)
    assert len(screen.texts) == 1
    await stage.world.command("1")
    await stage.pauses[0].reached()
    await stage.world.flow(stage.world.eventually(lambda: screen.texts[-1:] == ["working: grep …"]), step=0.3)
    await stage.end()
    await arrived(stage, 3)
    assert screen.texts[-1] == "Thanks." and len(screen.texts) == 3


async def test_the_answer_after_a_warning_is_a_new_message_below_it(begin: Begin, clock: FakeClock) -> None:
    screen = ErasableScreen(clock)
    warning = NoticeEvent("The model is asked again.", WARNING_KIND)
    stage = await a_stage(begin, screen, TextDelta("Once "), warning, TextDelta("a time."))
    await stage.begin()
    await stage.shows("Once ")
    await stage.go_on()
    await stage.shows("Once ", "The model is asked again.")
    await stage.end()
    await arrived(stage, 2)
    assert screen.texts == ["The model is asked again.", "Once a time."]


async def test_a_node_that_stops_lets_what_is_on_its_way_arrive(begin: Begin, clock: FakeClock) -> None:
    class Slow(Screen):
        def __init__(self, clock: FakeClock) -> None:
            super().__init__(clock)
            self.reached, self.go_on = asyncio.Event(), asyncio.Event()

        async def send(self, part: OutgoingPart) -> str:
            self.reached.set()
            await self.go_on.wait()
            return await super().send(part)

    screen = Slow(clock)
    stage = await a_stage(begin, screen, TextDelta("Once "), TextDelta("a time."))
    await stage.begin()
    await stage.world.flow(screen.reached.wait(), step=0.3)
    stopping = asyncio.create_task(stage.world.node.stop())
    await asyncio.sleep(0.05)
    screen.go_on.set()
    await stopping
    await stage.world.start()
    await stage.end()
    await arrived(stage)
    assert screen.texts == ["Once a time."]
