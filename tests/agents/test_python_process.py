"""An agent in a process of its own: it is the same agent, and whatever it does to its process, the next turn runs."""

import asyncio
import io
import logging
import os
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path

import msgspec
import pytest
from tests.agents.conversation import Conversation, a_context, asked, collect, spoken

from keryx.agents import python, python_process
from keryx.agents.agent_wire import EVENT, AgentCrashed, compute_frame_limit, encode_event
from keryx.agents.python_process import ProcessAgent
from keryx.core import codec
from keryx.core.errors import AgentFailed, AgentRefused, Invalid, NotFound, QuotaReached
from keryx.core.media import Attachment
from keryx.core.messages import Message, text_parts
from keryx.core.ports.agent import AgentEvent, FileEvent, TextDelta, TurnContext
from keryx.core.questions import Question
from keryx.core.texts import Phrase
from keryx.testing import START_TIME

HERE = __name__
# Half of a pair, as people paste it.
BROKEN = "a\ud83db"


async def obedient(context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
    """Does what the question says."""
    match context.turn_messages[-1].text.split():
        case ["exit"]:
            yield TextDelta("Good-")
            os._exit(3)
        case ["print"]:
            print("{}")
            yield TextDelta(f"read {sys.stdin.read()!r}")
        case ["log", count]:
            for n in range(int(count)):
                logging.getLogger("noisy").warning("%d %s", n, "x" * 20_000)
            yield TextDelta("logged")
        case ["print", count, length]:
            print(*(f"{n} {'x' * int(length)}" for n in range(int(count))), sep="\n", flush=True)
            yield TextDelta("printed")
        case ["freeze"]:
            yield TextDelta("working")
            re.match(r"(a|a)*b", "a" * 60)
        case ["wait", path]:
            try:
                yield TextDelta("waiting")
                await asyncio.sleep(3600)
            finally:
                os.mkdir(path)
        case ["speak", length]:
            yield TextDelta("x" * int(length))
        case ["all"]:
            history = await context.history()
            steered = await context.fetch_new_messages()
            chosen = await context.ask(Question(key="1", title="May I?", detail=""))
            picture = await context.fetch("m1")
            yield TextDelta(f"{len(history)} {[m.text for m in steered]} {chosen} {context.place!r}")
            yield FileEvent(picture.name, picture.mime, picture.body)
        case ["missing"]:
            try:
                await context.fetch("m2")
            except NotFound as exc:
                yield TextDelta(str(exc))
        case ["refuse"]:
            raise AgentRefused(Phrase("agent.unusable", reason=Phrase("agent.gone", name="'x'")))
        case ["limit"]:
            raise QuotaReached("The limit is reached.", until=START_TIME, model="mine")
        case words:
            yield TextDelta(" ".join(words))


@pytest.fixture
async def agent() -> AsyncIterator[ProcessAgent]:
    opened = ProcessAgent(f"{HERE}:obedient")
    await opened.load()
    yield opened
    await opened.close()


async def say(agent: ProcessAgent, text: str) -> str:
    return spoken(await collect(agent, a_context(asked(text))))


async def test_what_the_context_offers_is_there(agent: ProcessAgent) -> None:
    async def ask(question: Question) -> str | None:
        return f"yes to {question.title}"

    async def steer() -> Sequence[Message]:
        return [msgspec.structs.replace(asked("more")[0], parts=text_parts(BROKEN))]

    async def fetch(media: str) -> Attachment:
        if media == "m2":
            raise NotFound("there is no file m2")
        return Attachment(name="a.png", mime="image/png", body=b"\x00\xff")

    messages = Conversation().ask("before").say("yes").ask("all", turn="t9").messages
    context = msgspec.structs.replace(a_context(messages, steer=steer, fetch=fetch, place="p"), ask=ask)
    events = await collect(agent, context)
    assert events == [
        TextDelta(f"3 {[BROKEN]} yes to May I? 'p'"),
        FileEvent("a.png", "image/png", b"\x00\xff"),
    ]
    assert await say(agent, BROKEN) == BROKEN
    events = await collect(agent, a_context(asked("missing"), fetch=fetch))
    assert spoken(events) == "there is no file m2"
    with pytest.raises(AgentRefused) as refused:
        await say(agent, "refuse")
    text = refused.value.text
    assert isinstance(text, Phrase) and isinstance(text.fields["reason"], Phrase)
    with pytest.raises(QuotaReached) as limited:
        await say(agent, "limit")
    assert (limited.value.until, limited.value.model) == (START_TIME, "mine")


async def test_its_standard_streams_are_not_those_of_the_protocol(agent: ProcessAgent) -> None:
    assert await say(agent, "print") == "read ''"


async def test_what_an_agent_logs_is_bounded(agent: ProcessAgent, caplog: pytest.LogCaptureFixture) -> None:
    """What was sent before the answer is read before it."""
    assert await say(agent, "log 1500") == "logged"
    noisy = [record for record in caplog.records if record.name == "noisy"]
    assert 900 < len(noisy) <= 1_000
    assert max(len(record.getMessage()) for record in noisy) <= 10_000
    assert [r.getMessage() for r in caplog.records if "logs too much" in r.getMessage()] == [
        f"the agent {HERE}:obedient logs too much: the rest of this minute is left out"
    ]


@pytest.mark.parametrize(("count", "length"), [(3_000, 20_000), (200_000, 30)], ids=["long", "many"])
async def test_what_an_agent_prints_is_bounded(
    agent: ProcessAgent,
    count: int,
    length: int,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", shown)
    assert await say(agent, f"print {count} {length}") == "printed"
    lines = shown.getvalue().splitlines()
    assert 900 < len(lines) <= 1_000 and all(len(line) <= 10_000 for line in lines)
    assert lines[0].startswith("0 xxx")
    assert sum("logs too much" in record.getMessage() for record in caplog.records) == 1


async def test_a_frame_that_is_too_long_fails_its_turn_only(agent: ProcessAgent) -> None:
    with pytest.raises(AgentCrashed, match="at most 32000000 bytes"):
        await say(agent, "speak 33000000")
    assert len(await say(agent, "speak 31000000")) == 31_000_000


def test_a_frame_may_have_the_longest_file_that_is_kept() -> None:
    file = FileEvent("a.bin", "application/octet-stream", bytes(60_000_000))
    frame = codec.dumps({"jsonrpc": "2.0", "id": 1, "method": EVENT, "params": encode_event(file)})
    assert 32_000_000 < len(frame) <= compute_frame_limit(len(file.body))


async def test_a_process_that_ends_fails_its_turn_only(agent: ProcessAgent) -> None:
    with pytest.raises(AgentCrashed, match="exit code 3"):
        await say(agent, "exit")
    assert await say(agent, "hello") == "hello"


async def test_a_turn_that_is_stopped_is_closed_in_the_process(agent: ProcessAgent, tmp_path: Path) -> None:
    mark = tmp_path / "closed"
    async with aclosing(agent.run(a_context(asked(f"wait {mark}")))) as events:
        assert await anext(events) == TextDelta("waiting")
    while not mark.exists():  # noqa: ASYNC110 another process makes it
        await asyncio.sleep(0.01)
    assert await say(agent, "hello") == "hello"


async def test_a_process_that_does_not_answer_is_replaced(
    agent: ProcessAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with aclosing(agent.run(a_context(asked("freeze")))) as events:
        assert await anext(events) == TextDelta("working")
        resumed = asyncio.ensure_future(anext(events))
        await asyncio.wait({resumed}, timeout=0.1)
        resumed.cancel()
        await asyncio.wait({resumed})
    monkeypatch.setattr(python_process, "_ANSWER_SECONDS", 0.5)
    assert await say(agent, "hello") == "hello"


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("no_such_package:x", "there is no module 'no_such_package'"),
        (f"{HERE}:nothing", "has no 'nothing'"),
    ],
)
async def test_an_agent_that_is_not_there_is_told_when_it_is_opened(
    path: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python, "LOAD_SECONDS", 60)
    with pytest.raises(Invalid, match=sentence):
        async with python_process.open_agent(path):
            pass


async def test_an_agent_whose_module_fails_fails_its_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_agent.py").write_text("import os\n1 / 0\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    async with python_process.open_agent("broken_agent:agent") as agent:
        with pytest.raises(AgentFailed, match="ZeroDivisionError"):
            await collect(agent, a_context())
        (tmp_path / "broken_agent.py").write_text(
            "from keryx.core.ports.agent import TextDelta\nasync def agent(context):\n    yield TextDelta('mended')\n"
        )
        assert spoken(await collect(agent, a_context())) == "mended"
