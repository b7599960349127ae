"""Texts for people: every language has every text, every text is used, and an operator can change each of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from string import Formatter

import pytest

import keryx
from keryx.core.deliveries import REPEAT_MARK
from keryx.core.errors import Invalid, NotFound
from keryx.core.texts import (
    ENGLISH,
    ERROR_AREAS,
    LANGUAGES,
    NO_CHANGES,
    Catalogue,
    Phrase,
    Reader,
    choose_language,
    find_language,
    find_phrase,
    list_fields,
    parse_changes,
)
from keryx.engine.commands import COMMANDS

SOURCES = Path(keryx.__file__).parent
# Keys that are composed: the part before the name of a command, a state, a mark or a kind of file; and the errors of the
# system, which are chosen beside the catalogue.
COMPOSED = (
    "help.",
    "usage.",
    "state.",
    "mark.",
    "kind.",
    "terminal.turn_",
    "setting.mode_",
    "system.",
    "move.",
    "trace.role_",
    "trace.question_",
    "export.cost_",
    "export.user",
    "export.assistant",
    "export.tool",
    "export.notice",
)
# Labels of options and reasons, which the server sends.
SENT = {"page.daily", "page.Allow", "page.Always allow in this conversation", "page.Deny"}
# Where people read every text, so that no sentence may stand in the code.
SPOKEN = ("engine/commands", "cli/terminal")
# Examples of commands, reasons in the history of a lane, and errors for operators.
NOT_SPOKEN = ("/jobs add", "a scheduled run", "handed over", "cannot be written", "check its rights")


# The agent for tests repeats what it is told, and these platforms say in their own words why they refuse.
QUOTED = ("told to fail", "TargetGone(f'BlueBubbles knows no such chat")


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


@pytest.mark.parametrize("language", [name for name in LANGUAGES if name != "en"])
def test_every_language_has_the_same_texts_with_the_same_fields(language: str) -> None:
    ours, theirs = LANGUAGES["en"], LANGUAGES[language]
    assert ours.keys() == theirs.keys()
    assert [k for k in ours if list_fields(ours[k]) != list_fields(theirs[k])] == []


def test_every_text_is_used_and_every_used_text_exists() -> None:
    keys = set(LANGUAGES["en"])
    used: set[str] = set()
    # The keys that are said by name.
    named: set[str] = set()
    for path in SOURCES.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        if "texts" not in path.parts:
            used |= {str(node.value) for node in literals(tree)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                named |= {str(node.args[0].value)} if name in ("say", "Phrase") else set()
    for path in SOURCES.rglob("*.js"):
        used |= {f"page.{text}" for text in re.findall(r'"((?:[^"\\\n]|\\.)*)"', path.read_text("utf-8"))}
    used |= {f"{key}_{reader.value}" for key in used for reader in Reader}
    assert {k for k in keys - used - SENT if not k.startswith(COMPOSED)} == set()
    assert named - keys == set()


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


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """The calls in a module, with the function that they stand in."""
    for function in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from ((function.name, node) for node in ast.walk(function) if isinstance(node, ast.Call))


def is_untranslated(call: ast.Call, errors: set[str]) -> bool:
    """Whether a call builds one of these errors with words of its own, or those of another error, and no phrase."""
    built = {node.id for node in ast.walk(call.func) if isinstance(node, ast.Name)}
    if not built & errors or not call.args:
        return False
    first, *others = (*call.args, *(keyword.value for keyword in call.keywords))
    own = isinstance(first, ast.Constant | ast.JoinedStr | ast.BinOp) or ast.unparse(first).startswith("str(")
    return own and not any(ast.unparse(node).startswith(("Phrase(", "reason", "exc.text")) for node in others)


@pytest.mark.parametrize(
    ("folder", "functions", "errors"),
    [
        # The end of a turn, which is told in the chat.
        ("agents", "", {"AgentFailed", "AgentRefused", "AgentUnavailable"}),
        ("engine", "", {"AgentFailed", "AgentRefused"}),
        # What stands in a message instead of a file. What may succeed later has a text of the engine.
        (
            "surfaces/gateway",
            "download|read_file|read_local_file|find_file|stream_file|decrypt_file",
            {"Invalid"},
        ),
        ("engine/media.py", "", {"Invalid", "Conflict", "NotFound"}),
        # Why a job is paused.
        ("surfaces/gateway", "", {"TargetGone"}),
        # Commands, and the settings of a conversation.
        ("engine/commands", "", {"Invalid", "NotFound", "Forbidden", "Conflict", "Ambiguous"}),
    ],
)
def test_no_error_that_people_read_is_in_english_only(folder: str, functions: str, errors: set[str]) -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{call.lineno}: {ast.unparse(call)}"
        for path in [SOURCES / folder, *(SOURCES / folder).rglob("*.py")]
        if path.is_file()
        for function, call in calls(path)
        if re.search(functions, function) and is_untranslated(call, errors)
    ]
    assert [text for text in found if not any(quoted in text for quoted in QUOTED)] == []


@pytest.mark.parametrize(
    ("key", "fields", "text"),
    [
        ("turn.queue_cleared", {"count": 2}, "Removed 2 queued messages."),
        (
            "turn.undone",
            {"count": 2, "text": "X"},
            "Took back 2 turns; /redo restores them. Your message was: X",
        ),
        ("question.allowed_once", {"title": "X"}, "Allowed once: X"),
        (
            "setting.effort_unknown",
            {"name": "'silly'", "choices": "low or high"},
            "Unknown effort 'silly'. Choose low or high.",
        ),
        (
            "setting.agent_unknown",
            {"name": "'x'", "choices": "llm"},
            "There is no agent 'x'. Available: llm.",
        ),
        ("chat.instructions_saved", {}, "Saved. It applies from your next message."),
        ("help.compact", {}, "Summarize older messages to free up context."),
        ("person.welcome", {}, "You have access now. Say something; /help lists the commands."),
        (
            "status.usage_cost",
            {"input": 170, "output": 37, "cost": 0.0002, "currency": "USD"},
            "170 input and 37 output tokens, about 0.0002 USD.",
        ),
        ("status.context", {"percent": 3, "limit": 100_000}, "Context: 3 % of 100,000."),
        ("question.closed", {}, "This question is closed."),
        ("status.idle", {}, "Idle."),
        ("setting.model_default", {"name": "fast"}, "Model: fast (default)."),
        ("person.unknown", {"name": "x"}, "No such person: x."),
        (
            "person.pairing",
            {"platform": "telegram", "code": "ABCD2346", "minutes": 60},
            "I don't know you yet. Ask the owner of this bot to run:\n\n"
            "keryx pairing approve telegram ABCD2346\n\nThe code is valid for 60 minutes.",
        ),
        ("question.none", {}, "no open questions here"),
    ],
)
def test_people_are_told_in_plain_words(key: str, fields: dict[str, object], text: str) -> None:
    assert ENGLISH.say(key, **fields) == text


def test_people_read_of_conversations_and_not_of_sessions() -> None:
    """Other programs have sessions; those of Keryx are named so in the command line and the API only."""
    told = {key: re.sub(r"`[^`]*`|\{[^}]*\}|/sessions", "", text) for key, text in LANGUAGES["en"].items()}
    found = {key for key, text in told.items() if re.search(r"\bsessions?\b", text, re.IGNORECASE)}
    assert found == {"agent.no_session_id", "connect.wechat_ended"}


def test_a_possible_repetition_is_marked_in_plain_words() -> None:
    assert REPEAT_MARK == "(possible repeat) "


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
        # Browsers send less; to look at the rest would only cost time.
        ("fr," * 10_000 + "de", None),
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


def test_a_changed_text_holds_for_operators_too_unless_theirs_is_changed() -> None:
    shared, own = (
        {"model": {"none": "No model."}},
        {"model": {"none": "No model.", "none_operator": "Add one."}},
    )
    for table, told in ((shared, "No model."), (own, "Add one.")):
        catalogue = Catalogue(changes=parse_changes(table))
        assert catalogue.speak("en", "", Reader.OPERATOR).say("model.none") == told
        assert catalogue.speak("en").say("model.none") == "No model."


@pytest.mark.parametrize("area", [*ERROR_AREAS, "move", "receipt"])
def test_an_english_text_that_is_stored_is_shown_in_german(area: str) -> None:
    for key, template in LANGUAGES["en"].items():
        operators = LANGUAGES["en"].get(f"{key}_{Reader.OPERATOR}", template)
        if key.partition(".")[0] != area or key.endswith(f"_{Reader.OPERATOR}"):
            continue
        fields: dict[str, object] = {
            name: 2 if "|" in (spec or "") else f"{name}-1"
            for text in (template, operators)
            for _, name, spec, _ in Formatter().parse(text)
            if name
        }
        stored = str(Phrase(key, **fields))
        if len(stored) > 500:
            continue
        found = find_phrase(stored, area)
        assert str(found) == stored, key
        # A text of fields alone says nothing by itself: those are found where they are texts of their own.
        if not re.search(r"[a-z|]", re.sub(r"{\w+}", "", template)):
            continue
        assert isinstance(found, Phrase), key
        assert NO_CHANGES.speak("de").render(found) == NO_CHANGES.speak("de").say(found.key, **found.fields)


def test_what_stands_in_a_stored_text_is_shown_in_german_too() -> None:
    texts = NO_CHANGES.speak("de")
    stored = "telegram:7: Telegram refuses: the person has blocked the bot"
    assert (
        texts.render_stored(stored, *ERROR_AREAS)
        == "telegram:7: Telegram lehnt ab: die Person hat den Bot blockiert"
    )
    assert texts.render_stored("Bad Request: message is empty", "delivery") == "Bad Request: message is empty"
    assert texts.render_stored("x" * 10_000, *ERROR_AREAS) == "x" * 10_000
    late = "delivery 1 may have arrived"
    assert texts.render_stored(late, *ERROR_AREAS) == late


def test_the_cause_of_an_error_is_told_in_the_language_of_the_reader() -> None:
    phrase = Phrase("delivery.not_uploaded", reason=NotFound(Phrase("file.gone")))
    assert phrase == "the file could not be uploaded: it was deleted"
    assert (
        NO_CHANGES.speak("de").render(phrase)
        == "die Datei konnte nicht hochgeladen werden: die Datei wurde gelöscht"
    )


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


HINTS = re.compile(
    r"`(?:keryx|uv|pip|ollama)\b|keryx\.toml|base_url|KERYX_|`continues|pip |\[\[models\]\]|ways|variable"
)


@pytest.mark.parametrize("language", ["en", "de"])
@pytest.mark.parametrize(
    "key",
    [
        "agent.login_ways",
        "file.no_cipher",
        "model.check_network",
        "model.key_missing",
        "model.key_refused",
        "model.local_missing",
        "model.no_address",
        "model.no_endpoint",
        "model.no_host",
        "model.no_tools",
        "model.none",
        "model.not_safe",
        "model.start_ollama",
        "model.start_server",
        "model.unknown_id",
        "secret.unset",
        "tag.unknown",
        "temporary.no_extra",
        "tools.missing",
        "watch.no_agent",
    ],
)
def test_commands_and_settings_are_named_to_operators_only(language: str, key: str) -> None:
    fields = dict.fromkeys(list_fields(LANGUAGES["en"][f"{key}_operator"]), "`keryx x` ways variable")
    plain = dict.fromkeys(fields, "x")
    texts = NO_CHANGES.speak(language)
    person = texts.say(key, **plain)
    operator = NO_CHANGES.speak(language, "", Reader.OPERATOR).say(key, **fields)
    assert not HINTS.search(person) and HINTS.search(operator)
    # What programs and logs say is what operators read, and the reader decides in the end.
    phrase = Phrase(key, **plain)
    assert phrase == NO_CHANGES.speak("en", "", Reader.OPERATOR).say(key, **plain)
    assert texts.render(phrase) == person


def test_the_page_names_no_command_of_chats_for_an_unknown_conversation() -> None:
    unknown = Phrase("session.unknown", name="'x'")
    assert "/sessions" in NO_CHANGES.speak("de").render(unknown)
    assert NO_CHANGES.speak("de", "", Reader.PAGE).render(unknown) == "es gibt kein Gespräch 'x'"


def test_commands_are_named_as_people_write_them_on_a_platform() -> None:
    slack = Catalogue(signs={"slack": "!"}).speak("de", "slack")
    assert slack.say("chat.greeting").count("!new") == 1 and "/" not in slack.say("chat.greeting")
    assert "!nwe" in slack.say("command.unknown", name="nwe")
    assert slack.say("command.busy", verb="undo").startswith("!undo")
    # What is no command stays.
    assert "/v1" in slack.say("model.no_endpoint_operator", name="x", host="y")
    assert "/new" in Catalogue(signs={"slack": "!"}).speak("de", "telegram").say("chat.greeting")
