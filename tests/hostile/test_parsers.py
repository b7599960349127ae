"""Every parser of foreign text over the corpus: a budget of processor time for each kilobyte, and a time that grows about as the text does."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

import msgspec
import pytest
from tests.hostile import budget, corpus

from keryx import markdown
from keryx.agents import quota_resets
from keryx.core import codec, durations, media, messages, prompt, schedules, search, sessions, source, text
from keryx.core.changes import DraftChunk
from keryx.core.errors import Invalid, KeryxError
from keryx.core.search import snippets, tokens
from keryx.engine.commands import command_table
from keryx.engine.export import html_document
from keryx.engine.export.redact import Redactor
from keryx.importers import open_webui
from keryx.jsonrpc import RpcError
from keryx.markdown import (
    ansi,
    diagrams,
    discord_markdown,
    email_html,
    feishu_markdown,
    html,
    mathml,
    matrix_html,
    plain,
    signal_styles,
    slack_markdown,
    split,
    telegram_entities,
    whatsapp_markup,
)
from keryx.store.search import documents
from keryx.surfaces.gateway.imessage import event_parser, message_sender
from keryx.surfaces.gateway.matrix import event_types
from keryx.surfaces.web import json_rpc, presenters, request_schema
from keryx.surfaces.web.openai_api import generation_routes, model_routes
from keryx.surfaces.web.stream.incremental_renderer import IncrementalRenderer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUERY = search.parse('word a b "c d" x*')


def refusing(parse: Callable[[str], object]) -> Callable[[str], object]:
    """Return a parser that may refuse a text."""

    def work(given: str) -> object:
        try:
            return parse(given)
        except KeryxError:
            return None

    return work


def parse_schedule(given: str) -> object:
    return schedules.parse(given, zone="UTC", now=NOW)


def build_limits(given: str) -> object:
    """The error of a provider whose every field is hostile."""
    names = ("message", "retry_after", "retryDelay", "resets_at", "X-RateLimit-Reset")
    return {"error": [{name: given} for name in names], "metadata": {"headers": dict.fromkeys(names, given)}}


def build_form(given: str) -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{given}"\r\nContent-Type: {given}'
    return f"{head}\r\n\r\n{given}\r\n--b--".encode("utf-8", "replace")


def calling(parse: Callable[[bytes], object]) -> Callable[[str], object]:
    """Return a reader of calls, which gets a text alone and in each field of a call."""

    def work(given: str) -> None:
        fields = codec.dumps({"jsonrpc": "2.0", "id": given, "method": given, "params": {given: given}})
        for document in (given.encode("utf-8", "replace"), fields.encode()):
            with suppress(RpcError):
                parse(document)

    return work


TASKS = generation_routes._TASK_PROMPTS  # pyright: ignore[reportPrivateUsage]
MARKUP: dict[str, Callable[[str], object]] = {
    "the tree": markdown.parse,
    "the page": html.render_blocks,
    "an exported page": html_document.render_markdown,
    "a draft": lambda given: IncrementalRenderer(markdown.MAX_CHARS).add([DraftChunk(1, given)]),
    "plain text": lambda given: plain.render(markdown.parse(given)),
    "Telegram": telegram_entities.render_parts,
    "Matrix": matrix_html.render_parts,
    "Feishu": feishu_markdown.render_parts,
    "Signal": signal_styles.render_parts,
    "WhatsApp": whatsapp_markup.render_parts,
    "iMessage": message_sender.render_parts,
    "Discord": discord_markdown.render_parts,
    # What is shorter than a message is not parsed.
    "Slack": lambda given: slack_markdown.render(markdown.parse(given)),
    "e-mail": email_html.render_parts,
    "the terminal": lambda given: ansi.AnsiRenderer(80, colours=True).render(given),
}
DIAGRAMS = {
    "a flowchart": "flowchart TD\n{}",
    "a chain of a flowchart": "flowchart LR\na {}",
    "a label of a flowchart": "flowchart LR\na[{}] --> b",
    "a sequence": "sequenceDiagram\n{}",
    "a message of a sequence": "sequenceDiagram\na{}->>b: {}",
    "a pie": "pie\n{}",
}
OTHERS: dict[str, Callable[[str], object]] = {
    "search tokens": tokens.tokenize,
    "search queries": search.parse,
    "folding": tokens.fold,
    "indexed JSON": documents._flatten_json,  # pyright: ignore[reportPrivateUsage]
    "a single line": text.to_single_line,
    "truncation": lambda given: text.truncate(given, len(given) - 1),
    "unwritable characters": text.replace_unwritable,
    "terminal characters": text.replace_for_terminal,
    "column width": split.measure_width,
    "visible text": split.has_visible_text,
    "derived titles": sessions.derive_title,
    "titles": refusing(sessions.clean_title),
    "numbered titles": sessions.split_title_number,
    "quotes in a prompt": prompt.quote,
    "speakers": prompt.format_speaker,
    "ids of WhatsApp": lambda given: source.normalize_user("whatsapp", given),
    "handles of iMessage": event_parser.normalize_handle,
    "telephone numbers": lambda given: prompt.redact_phones(given, b"salt"),
    "slash commands": lambda given: command_table.parse(messages.text_parts(given)),
    "plans": messages.parse_plan,
    "file names": media.clean_name,
    "types of files": lambda given: media.detect_mime(given, given.encode("utf-8", "replace")),
    "schedules": refusing(parse_schedule),
    "date phrases": refusing(lambda given: parse_schedule(f"next monday {given}")),
    "times of day": refusing(lambda given: parse_schedule(f"tomorrow at {given}")),
    "intervals": refusing(lambda given: parse_schedule(f"every {given}")),
    "cron fields": refusing(lambda given: parse_schedule(f"* {given} * * *")),
    "durations": durations.parse,
    "JSON": refusing(lambda given: codec.loads(given, object)),
    "redaction": lambda given: Redactor().text(given),
    "formulas": lambda given: mathml.convert(given[: mathml.MAX_TEX_CHARS], display=True),
    "resets of limits in words": lambda given: quota_resets.find_reset(now=NOW, text=given),
    "resets of limits in fields": lambda given: quota_resets.find_reset(now=NOW, body=build_limits(given)),
    "notices of limits": lambda given: quota_resets.find_limit_notice(given, now=NOW),
    "tasks of front ends": lambda given: TASKS.match(f"### Task:{given}"),
    "older answers of Open WebUI": lambda given: list(open_webui._parse_markdown(given)),  # pyright: ignore[reportPrivateUsage]
    "calls of JSON-RPC": calling(json_rpc.parse_call),
    "forms": refusing(
        lambda given: model_routes.parse_form("multipart/form-data; boundary=b", build_form(given))
    ),
    "types of forms": refusing(lambda given: model_routes.parse_form(f"multipart/form-data; {given}", b"")),
}
SECRETS = ("eyJ-", "-----BEGIN A", "://a:", "sk-", "password", "aA0/", "123456:", "1 2", "/home/a", "a@b.")


def highlight(given: str) -> object:
    return snippets.highlight(given, QUERY)


@pytest.mark.parametrize("renderer", MARKUP)
def test_markup_takes_a_time_that_grows_with_its_length(renderer: str) -> None:
    # All renderers read the tree, which takes most of the time.
    sizes = (budget.SMALL, budget.LARGE) if renderer == "the tree" else (budget.SMALL // 4, budget.LARGE // 4)
    slow = budget.find_slow(MARKUP[renderer], corpus.TEXTS.items(), milliseconds_per_kilobyte=60, sizes=sizes)
    assert slow == []


@pytest.mark.faults
@pytest.mark.parametrize("renderer", MARKUP)
def test_longer_markup_takes_a_time_that_grows_with_its_length(renderer: str) -> None:
    sizes = (2 * budget.SMALL, 2 * budget.LARGE)
    slow = budget.find_slow(MARKUP[renderer], corpus.TEXTS.items(), milliseconds_per_kilobyte=60, sizes=sizes)
    assert slow == []


def test_formulas_take_a_time_that_grows_with_their_length() -> None:
    makers = [*corpus.FORMULAS.items()]
    sizes = (500, mathml.MAX_TEX_CHARS - 50)
    slow = budget.find_slow(OTHERS["formulas"], makers, milliseconds_per_kilobyte=20, sizes=sizes)
    assert slow == []
    for _, make in makers:
        assert html.render_blocks(f"${make(1_300)}$")


def test_a_conversation_of_hostile_messages_opens_within_its_budget() -> None:
    """What comes after the budget is shown as it is."""
    names = ("cells", "bullets of one line", "nested images", "loose list", "nested quotes", "formulas")
    texts = [corpus.TEXTS[name](60_000) for name in names]
    texts += [corpus.build_fence("rst", 20_000), f"${corpus.FORMULAS['accents'](3_000)}$"]
    shown: list[str] = []

    def open_all(_: str) -> None:
        render = presenters.RenderBudget(0.1).render
        shown.extend(map(render, texts))

    # The budget, and the text that is being rendered when it ends.
    assert budget.measure(open_all, "") < 0.1 + 5
    assert shown[-1] == html.render_plain(texts[-1])


LONG = ("a long word", "blanks", "digits", "parts that open")


@pytest.mark.parametrize("parser", OTHERS)
def test_a_line_of_a_megabyte_takes_a_time_that_grows_with_its_length(parser: str) -> None:
    """With few texts, because each parser reads them whole."""
    makers = [(name, corpus.TEXTS[name]) for name in LONG]
    slow = budget.find_slow(OTHERS[parser], makers, milliseconds_per_kilobyte=3, sizes=(250_000, 1_000_000))
    assert slow == []


@pytest.mark.parametrize("kind", DIAGRAMS)
def test_a_diagram_takes_a_time_that_grows_with_its_length(kind: str) -> None:
    def draw(given: str) -> object:
        return diagrams.draw(DIAGRAMS[kind].replace("{}", given))

    sizes = (500, diagrams.MAX_DIAGRAM_CHARS // 2 - 50)
    makers = [*corpus.TEXTS.items(), *corpus.DIAGRAMS.items()]
    assert budget.find_slow(draw, makers, milliseconds_per_kilobyte=40, sizes=sizes) == []


@pytest.mark.parametrize("parser", OTHERS)
def test_any_text_takes_a_time_that_grows_with_its_length(parser: str) -> None:
    assert budget.find_slow(OTHERS[parser], corpus.TEXTS.items(), milliseconds_per_kilobyte=20) == []


LETTERS = search.parse(
    " OR ".join(f"{a}{b}*" for a in "abcdefghijklmnop" for b in " abcdefghij").replace(" *", "*")
)


def test_the_terms_of_a_query_that_are_looked_for_are_few() -> None:
    """The most costly texts, and a query that has a term for each of their words."""
    names = ("an unclosed code span", "cells", "unknown entities", "an unclosed tag")
    makers = [(name, corpus.TEXTS[name]) for name in names]
    sizes = (snippets.SCAN_LIMIT // 8, snippets.SCAN_LIMIT)
    slow = budget.find_slow(
        lambda given: snippets.highlight(given, LETTERS), makers, milliseconds_per_kilobyte=40, sizes=sizes
    )
    assert slow == []


def test_the_words_of_a_phrase_that_are_looked_for_are_few() -> None:
    """A long phrase, in a text where it begins with every word."""
    phrase = search.parse('"' + "a " * 400 + '"')
    sizes = (snippets.SCAN_LIMIT // 8, snippets.SCAN_LIMIT)
    slow = budget.find_slow(
        lambda given: snippets.highlight(given, phrase),
        [("one word", corpus.repeat("a "))],
        milliseconds_per_kilobyte=40,
        sizes=sizes,
    )
    assert slow == []
    shown = snippets.highlight("b " + "a " * 500, phrase)
    assert shown.spans


def test_a_snippet_takes_a_time_that_grows_with_the_text() -> None:
    sizes = (snippets.SCAN_LIMIT // 8, snippets.SCAN_LIMIT)
    assert budget.find_slow(highlight, corpus.TEXTS.items(), milliseconds_per_kilobyte=60, sizes=sizes) == []


def test_redaction_takes_a_time_that_grows_with_the_text() -> None:
    makers = [(unit, corpus.repeat(unit)) for unit in SECRETS]
    assert budget.find_slow(OTHERS["redaction"], makers, milliseconds_per_kilobyte=20) == []


@pytest.mark.parametrize("renderer", MARKUP)
def test_a_very_long_line_has_no_markup(renderer: str) -> None:
    """The marks that take the longest otherwise."""
    makers = [(name, corpus.TEXTS[name]) for name in ("stars", "nested images", "a long word", "bullets")]
    slow = budget.find_slow(MARKUP[renderer], makers, milliseconds_per_kilobyte=10, sizes=(110_000, 330_000))
    assert slow == []


NESTED = (
    "[" * 100_000,
    "[" * 100_000 + "]" * 100_000,
    '{"a":' * 100_000,
    '{"a":' * 100_000 + "1" + "}" * 100_000,
)
NUMBERS = ("9" * 100_000, "-" + "9" * 100_000, "1e" + "9" * 100_000)


@pytest.mark.parametrize("document", [*NESTED, *NUMBERS], ids=lambda given: str(given)[:6])
@pytest.mark.parametrize("kind", [object, dict, list])
def test_json_that_is_too_deep_or_has_too_long_numbers_is_an_error(document: str, kind: type[object]) -> None:
    for given in (document, f'{{"a": {document}}}'):
        with pytest.raises(Invalid):
            codec.loads(given, kind)


@pytest.mark.parametrize("document", NESTED, ids=lambda given: str(given)[:6])
def test_deep_json_with_half_a_character_is_an_error(document: str) -> None:
    """It is read by another decoder."""
    with pytest.raises(Invalid):
        codec.loads(f'["\\ud800", {document}]', object)


@pytest.mark.parametrize("values", ["1,", "{},", '"a",', "[],"])
def test_a_form_with_half_a_character_and_many_unknown_values_is_refused_soon(values: str) -> None:
    """The decoder that reads half a character needs long for many values, and holds the interpreter lock."""

    def read(given: str) -> object:
        document = f'{{"text": "\\ud800", "x": [{values * (len(given) // len(values))}1]}}'
        with pytest.raises(Invalid, match="unknown field"):
            codec.loads(document.encode(), request_schema.SendForm)
        return None

    makers = [(values, corpus.repeat("x"))]
    slow = budget.find_slow(read, makers, milliseconds_per_kilobyte=0.005, sizes=(500_000, 8_000_000))
    assert slow == []


@pytest.mark.parametrize("document", NESTED[1::2], ids=["lists", "objects"])
def test_an_event_of_matrix_that_is_too_deep_is_malformed(document: str) -> None:
    """An error would end the listener, and come again with the same event."""
    head = '"type": "m.room.message", "event_id": "$a", "sender": "@a:b", "origin_server_ts": 1'
    assert event_types.parse_event(msgspec.Raw(f'{{{head}, "content": {document}}}'.encode())) is None
    event = event_types.parse_event(msgspec.Raw(f"{{{head}}}".encode()))
    assert event is not None
    raw = msgspec.Raw(f'{{"other": {document}}}'.encode())
    deep = msgspec.structs.replace(event, content=raw, unsigned=raw)
    assert event_types.parse_content(deep) is None
    assert event_types.parse_state(deep) == event_types.RoomState()
    assert event_types.parse_creation(deep) == event_types.RoomCreation()
    assert event_types.parse_unsigned(deep) == event_types.UnsignedData()


@pytest.mark.parametrize(
    "given",
    [
        "0 0 31 2 *",
        "0 0 30 2 *",
        "* * 31 4,6,9,11 *",
        f"0 {'9' * 5_000} * * *",
        f"{'1,' * 5_000}1 * * * 9",
        "9999999999h",
        "every 999999 years",
        "9" * 5_000 + "h",
        "in 999999 weeks",
        "9999-12-31T23:59-23:59",
    ],
    ids=lambda given: str(given)[:20],
)
def test_a_schedule_that_never_comes_or_is_out_of_range_is_refused(given: str) -> None:
    with pytest.raises(Invalid):
        parse_schedule(given)


def test_a_duration_out_of_range_is_none() -> None:
    assert durations.parse("9" * 5_000 + "h") is None
    assert durations.parse("99999999999999h") is None
