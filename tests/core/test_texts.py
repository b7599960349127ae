"""Texts for people: every language has every text, every text is used, and an operator can change each of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import keryx
from keryx.core.errors import Invalid
from keryx.core.texts import (
    ENGLISH,
    LANGUAGES,
    Catalogue,
    Phrase,
    choose_language,
    find_language,
    list_fields,
    parse_changes,
)
from keryx.engine.commands import COMMANDS

SOURCES = Path(keryx.__file__).parent
# Keys that are composed: the part before the name of a command, a state, a mark or a kind of file.
COMPOSED = ("help.", "usage.", "state.", "mark.", "kind.", "terminal.turn_", "setting.mode_")
# Labels of options and reasons, which the server sends.
SENT = {"page.daily", "page.Allow", "page.Always allow in this conversation", "page.Deny"}
# Where people read every text, so that no sentence may stand in the code.
SPOKEN = ("engine/commands", "cli/terminal")
# Examples of commands, reasons in the history of a lane, and errors for operators.
NOT_SPOKEN = ("/jobs add", "a scheduled run", "handed over", "cannot be written", "check its rights")


def literals(tree: ast.Module) -> Iterator[ast.Constant]:
    """All string constants but docstrings."""
    skipped = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node


def used_keys() -> set[str]:
    found: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        if "texts" not in path.parts:
            found |= {str(node.value) for node in literals(ast.parse(path.read_text("utf-8")))}
    for path in SOURCES.rglob("*.js"):
        found |= {f"page.{text}" for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text("utf-8"))}
    return found


@pytest.mark.parametrize("language", [name for name in LANGUAGES if name != "en"])
def test_every_language_has_the_same_texts_with_the_same_fields(language: str) -> None:
    ours, theirs = LANGUAGES["en"], LANGUAGES[language]
    assert ours.keys() == theirs.keys()
    assert [k for k in ours if list_fields(ours[k]) != list_fields(theirs[k])] == []


def named_keys() -> set[str]:
    """The keys that are said by name."""
    found: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                found |= {str(node.args[0].value)} if name in ("say", "Phrase") else set()
    return found


def test_every_text_is_used_and_every_used_text_exists() -> None:
    keys = set(LANGUAGES["en"])
    assert {k for k in keys - used_keys() - SENT if not k.startswith(COMPOSED)} == set()
    assert named_keys() - keys == set()


def test_every_text_that_the_page_asks_for_exists() -> None:
    pages = [path.read_text("utf-8") for path in SOURCES.rglob("*.js")]
    asked = {text for page in pages for text in re.findall(r'\bt\("((?:[^"\\\n]|\\.)*)"', page)}
    assert len(asked) > 200
    assert {text for text in asked if f"page.{text}" not in LANGUAGES["en"]} == set()


def test_every_command_has_its_help_in_every_language() -> None:
    for texts in (Catalogue(language=name).speak() for name in LANGUAGES):
        assert all(command.describe(texts).endswith(".") for command in COMMANDS)


@pytest.mark.parametrize("folder", SPOKEN)
def test_no_sentence_for_people_stands_in_the_code(folder: str) -> None:
    sentence = re.compile(r"[A-Za-z]+ [a-z]+ [a-z]+")
    for path in (SOURCES / folder).rglob("*.py"):
        found = [str(n.value) for n in literals(ast.parse(path.read_text("utf-8")))]
        told = [t for t in found if sentence.search(t) and not any(word in t for word in NOT_SPOKEN)]
        assert told == [], path


def test_a_number_takes_its_plural_form_and_separators() -> None:
    german = Catalogue(language="de").speak()
    assert [ENGLISH.say("turn.queue_cleared", count=n) for n in (1, 2, 1200)] == [
        "Removed 1 queued message.",
        "Removed 2 queued messages.",
        "Removed 1,200 queued messages.",
    ]
    assert german.say("turn.queue_cleared", count=1200) == "1.200 wartende Nachrichten entfernt."
    assert german.say("status.usage_cost", input=1700, output=3, cost=0.0002, currency="EUR") == (
        "1.700 Eingabe- und 3 Ausgabe-Tokens, etwa 0,0002 EUR."
    )


def test_a_phrase_is_english_and_can_be_said_in_another_language() -> None:
    inner = Phrase("session.titled", title="Oslo")
    phrase = Phrase("session.back", session=inner, count=1)
    assert phrase == "Back in “Oslo”: 1 message."
    assert Catalogue(language="de").speak().render(phrase) == "Zurück in „Oslo“: 1 Nachricht."
    assert ENGLISH.render("as it is") == "as it is"


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("de-AT,de;q=0.9,en;q=0.8", "de"),
        ("fr,en;q=0.4,de;q=0.5", "de"),
        ("fr-FR", None),
        ("de;q=0", None),
        ("", None),
        ("*, ;;q=x", None),
    ],
)
def test_a_browser_says_which_language_it_prefers(accepted: str, language: str | None) -> None:
    assert choose_language(accepted) == language


def test_a_language_is_known_by_any_of_its_tags() -> None:
    assert [find_language(tag) for tag in ("de", "DE-at", "de_DE.UTF-8", "C.UTF-8", "pt-br", "")] == [
        *["de"] * 3,
        *[None] * 3,
    ]


def test_the_setting_decides_before_the_person() -> None:
    assert Catalogue(language="de").speak("en").language == "de"
    assert Catalogue().speak("de-AT").language == "de"
    assert Catalogue().speak("fr").language == "en"


def test_an_operator_changes_a_text_for_one_language_or_all() -> None:
    changes = parse_changes({"turn": {"stopping": "OK."}, "de": {"turn.none_running": "Nichts los."}})
    catalogue = Catalogue(changes=changes)
    assert catalogue.speak("de").say("turn.stopping") == catalogue.speak("en").say("turn.stopping") == "OK."
    assert catalogue.speak("de").say("turn.none_running") == "Nichts los."
    assert catalogue.speak("en").say("turn.none_running") == "Nothing is running."


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            {"turn": {"stoping": "x"}},
            "texts.turn.stoping: there is no such text; did you mean texts.turn.stopping?",
        ),
        ({"zzz": "x"}, "texts.zzz: there is no such text: the reference of texts lists all"),
        (
            {"de": {"session.back": "{sesion}"}},
            "texts.de.session.back: this text has no field {sesion}; did you mean {session}?",
        ),
        (
            {"de": {"turn": {"stoping": "x"}}},
            "texts.de.turn.stoping: there is no such text; did you mean texts.de.turn.stopping?",
        ),
        (
            {"fr": {"turn.stopping": "x"}},
            "texts.fr.turn.stopping: there is no language fr; available: en, de",
        ),
        ({"de": "x"}, "texts.de: write [texts.de] and its texts below it"),
        ({"turn.stopping": "{x}"}, "texts.turn.stopping: this text has no field {x}; it has none"),
        ({"turn.stopping": "{"}, "texts.turn.stopping: "),
        ({"turn.stopping": 3}, "texts.turn.stopping: write a text in quotes"),
    ],
)
def test_a_wrong_change_is_refused_with_what_would_be_right(table: dict[str, object], told: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_changes(table)
    assert str(caught.value).startswith(told)
