"""A whole conversation in German on Telegram: whatever Keryx itself says there comes from the catalogue."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from functools import cache
from string import Formatter
from typing import Any

import msgspec
import pytest
from tests.engine.world import AT_ONCE, SECONDS, Pause, Scenes, World
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.untranslated import find_untranslated_words

from keryx.agents.llm import Model, provider_errors
from keryx.core.access import AccessRule
from keryx.core.errors import AgentRefused
from keryx.core.ids import DEFAULT_PROFILE
from keryx.core.ports.agent import TextDelta, TurnContext
from keryx.core.questions import Question
from keryx.core.sessions import Viewer
from keryx.core.texts import LANGUAGES, Catalogue, Phrase
from keryx.engine.export import ExportFormat, export
from keryx.store import sessions
from keryx.store.db import Database, Engine
from keryx.surfaces.gateway.telegram import TelegramAdapter, TelegramSettings
from keryx.testing import FakeClock

pytestmark = pytest.mark.engines(Engine.SQLITE)
GERMAN = msgspec.structs.replace(
    AT_ONCE,
    texts=Catalogue(language="de"),
    access={"telegram": AccessRule(allow=("7",), operators=("7",))},
    models=("fast", "good"),
    agents=("echo",),
)
MODEL = Model(name="fast", base_url="http://127.0.0.1:1", id="x")
# What is no text of Keryx: what was said, and names.
DATA = (
    "Hallo Ann arbeite bitte buche den Flug räum auf Ich räume auf. Fertig. Erledigt. scheitere stürze ab verboten schau",
    # Words that are typed in every language.
    "queue steer collect interrupt ask auto read default minimal low medium high on off add pause resume run runs continue remove",
    "run_in_terminal rm -r build RuntimeError fast good echo photo.jpg telegram Keryx UTC USD hlp help Bad Request: invalid file_id",
)
# What a person types, each followed by what Keryx answers to it.
COMMANDS = """\
/start
/help
/hlp
/new
/new
/title
/title Reise
/sessions
/resume
/resume nirgends
/undo-reset
/temp nie
/temp end
/undo
/undo abc
/redo
/redo
/retry
/stop
/queue
/steer
/busy
/busy nie
/allow
/answer
/permissions
/permissions forget x
/pin
/pin
/archive
/archive
/project
/project haus
/instructions
/instructions Antworte kurz.
/handoff
/handoff matrix
/handoff telegram:niemand
/handoff telegram.fort:7
/mirror
/mirror vielleicht
/jobs
/jobs add irgendwann tu etwas
/jobs add every 2h tu etwas
/jobs
/jobs pause nichts
/jobs tanze
/home
/home off
/agent
/agent niemand
/model
/model gross
/mode
/mode wild
/effort
/effort silly
/personality
/personality Du bist freundlich.
/tools
/tools an
/status
/usage
/search
/search Mond
/link
/link 123456
/link list
/whoami
/zone
/zone Mars/Olymp
/fork
/delete""".splitlines()


class German:
    """A person who speaks German with a bot of Keryx, over the wire."""

    def __init__(self, world: World, telegram: FakeTelegram) -> None:
        self.world = world
        self.telegram = telegram

    async def ask(self, text: str | None, *, answers: int = 1, chat: int = 7, **more: Any) -> list[str]:
        """Say something, and return the next texts of the bot."""
        known = len(self.telegram.texts(chat))
        self.telegram.say(text, chat=chat, **more)
        async with asyncio.timeout(SECONDS):
            while len(self.telegram.texts(chat)) < known + answers:
                await asyncio.sleep(0.005)
                self.world.node.check()
        return self.telegram.texts(chat)[known:]


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    with FakeTelegram() as fake:
        yield fake


@cache
def list_english() -> dict[str, re.Pattern[str]]:
    """Return how each sentence of the catalogue looks in English, unless its German form looks like that too."""
    found: dict[str, re.Pattern[str]] = {}
    for key, template in LANGUAGES["en"].items():
        pattern = re.compile(_build_pattern(template), re.IGNORECASE)
        words = re.findall(r"[a-z]{2,}", re.sub(r"\{[^}]*\}", "", template))
        if len(words) > 2 and not key.startswith("page.") and not pattern.search(LANGUAGES["de"][key]):
            found[key] = pattern
    return found


def _build_pattern(template: str) -> str:
    pattern = ""
    for literal, name, spec, _ in Formatter().parse(template):
        pattern += re.escape(literal)
        if name is not None:
            forms = (spec or "").split("|")
            plural = [re.escape(form).replace(r"\#", r"[\d,]+") for form in forms]
            pattern += f"(?:{'|'.join(plural)})" if len(forms) > 1 else r"[\s\S]+?"
    return pattern


def check_german(text: str) -> None:
    assert [key for key, pattern in list_english().items() if pattern.search(text)] == [], text


async def test_what_stands_for_a_message_is_english_for_the_model_and_german_for_people(
    database: Database, clock: FakeClock, telegram: FakeTelegram
) -> None:
    agent = Scenes({})
    adapter = TelegramAdapter(TOKEN, TelegramSettings(base_url=telegram.url))
    world = World(database, clock, agent=agent, adapters=[adapter], policy=GERMAN)
    await world.start()
    german = German(world, telegram)
    try:
        origin = {"type": "user", "sender_user": {"id": 8, "is_bot": False, "first_name": "Zoe"}}
        telegram.say("Mond", forward_origin=origin)
        await world.until(lambda tx: tx.rows("select 1 from turns where state = 'queued'") != [])
        [queue] = await german.ask("/queue")
        assert queue == "1. Weitergeleitet von Zoe:\n\nMond"
        telegram.say(None, sticker={"emoji": "😀", "file_id": "s"})
        await world.flow(world.eventually(lambda: len(agent.asked) == 1), step=0.3)
        assert agent.asked == ["Forwarded from Zoe:\n\nMond\n[sticker 😀]"]
        await world.until(lambda tx: tx.rows("select state from turns") == [("done",)])
        await world.until(lambda tx: tx.rows("select count(*) from sessions where title <> ''") == [(1,)])
        [[title]] = await world.read(lambda tx: tx.rows("select title from sessions"))
        assert title.startswith("Weitergeleitet von Zoe")
        documents = {language: "".join(await export_markdown(world, language)) for language in ("de", "en")}
        assert "Weitergeleitet von Zoe:" in documents["de"] and "[Sticker 😀]" in documents["de"]
        assert "Forwarded from Zoe:" in documents["en"] and "[sticker 😀]" in documents["en"]
        await world.eventually(lambda: len(telegram.texts()) == 2)
        [undone] = await german.ask("/undo")
        assert undone.endswith("Deine Nachricht war: Weitergeleitet von Zoe:\n\nMond")
    finally:
        await world.close()
        await adapter.close()


async def export_markdown(world: World, language: str) -> list[str]:
    pieces: list[str] = []
    [[session]] = await world.read(lambda tx: tx.rows("select id from sessions"))
    owner = await world.read(lambda tx: sessions.get(tx, session).owner)
    await export(
        world.database,
        Viewer(DEFAULT_PROFILE, owner),
        [session],
        ExportFormat.MD,
        pieces.append,
        texts=Catalogue(language=language).speak(),
    )
    return pieces


async def test_a_conversation_in_german_has_no_english_text(
    database: Database, clock: FakeClock, telegram: FakeTelegram
) -> None:
    pause = Pause()

    async def ask(context: TurnContext) -> None:
        title = Phrase("question.may_use", tool="run_in_terminal")
        question = Question(
            key="1",
            title=str(title),
            phrase=title.store(),
            tool="run_in_terminal",
            detail="rm -r build",
        )
        await context.ask(question)

    agent = Scenes(
        {
            "räum": [TextDelta("Ich räume auf."), ask, TextDelta("Fertig.")],
            "arbeite": [pause, TextDelta("Erledigt.")],
            "scheitere": [provider_errors.build_interrupted_error(MODEL)],
            "stürze": [RuntimeError("boom")],
            "verboten": [AgentRefused(Phrase("model.filtered", name="'fast'", reason=""))],
        }
    )
    adapter = TelegramAdapter(TOKEN, TelegramSettings(base_url=telegram.url))
    world = World(database, clock, agent=agent, adapters=[adapter], policy=GERMAN)
    await world.start()
    german = German(world, telegram)
    try:
        assert await german.ask("Hallo") == ["Hallo"]
        for command in COMMANDS:
            await german.ask(command)
        # A queue.
        telegram.say("arbeite bitte")
        await pause.reached()
        telegram.say("buche den Flug")
        await world.until(lambda tx: tx.rows("select 1 from turns where state = 'queued'") != [])
        for command in ("/queue", "/queue clear", "/stop"):
            await german.ask(command)
        # A permission question with its buttons, a wrong answer, and what becomes of it.
        await german.ask("räum auf", answers=2)
        await german.ask("/answer 9")
        await german.ask("/allow", answers=2)
        # Errors: of the model, of the agent, and a refused question.
        for text in ("scheitere", "stürze ab", "verboten"):
            await german.ask(text)
        # Files that cannot be fetched, or are too large.
        telegram.files["large"] = bytes(20_000_001)
        telegram.file_waits["busy"] = [7200]
        for name in ("none", "large", "busy"):
            photo = [{"file_id": name, "width": 9, "height": 9}]
            [shown] = await german.ask(None, caption="schau", photo=photo)
            assert "[photo.jpg konnte nicht abgerufen werden: " in shown
        assert "telegram bittet, 2 Stunden zu warten" in shown
        # A stranger.
        await german.ask("Hallo?", chat=8)
    finally:
        await world.close()
        await adapter.close()
    foreign = {
        text: found
        for text in (*telegram.texts(), *telegram.texts(8))
        if (found := find_untranslated_words(text, *COMMANDS, *DATA))
    }
    assert not foreign, json.dumps(foreign, ensure_ascii=False, indent=1)
    for label in {label for bubble in telegram.bubbles for label in bubble.buttons}:
        assert label in {"Erlauben", "Ablehnen"} or "immer erlauben" in label
    for command in telegram.commands:
        check_german(str(command))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Hier gibt es noch kein Gespräch: schreib zuerst etwas.", []),
        ("[photo.jpg konnte nicht abgerufen werden: it is too large to be sent here]", True),
        ("[cut: this answer has 9000 characters. The rest of it is on the page.]", True),
        ("Es gibt kein Gespräch 'x': `keryx sessions list` shows them.", True),
        ("working: grep notes", True),
    ],
)
def test_a_text_that_bypasses_the_catalogue_is_found(text: str, found: list[str] | bool) -> None:
    assert bool(find_untranslated_words(text, *DATA)) is bool(found)
