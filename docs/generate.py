"""Writes the pages of the reference that follow from the code: `python docs/generate.py` writes them all."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_args

import msgspec

from keryx import logs, metrics
from keryx.agents.llm import known_models
from keryx.cli.commands import app
from keryx.cli.commands.config import SettingRow, format_toml, list_settings, render_example
from keryx.cli.exit_codes import CODES, OTHER_CODES
from keryx.core.texts import ENGLISH, LANGUAGES
from keryx.engine.commands import COMMANDS, CommandSpec
from keryx.surfaces.web import openapi, request_schema, schema
from keryx.surfaces.web.operations import Operation
from keryx.surfaces.web.responses import ERROR_STATUS
from keryx.surfaces.web.routes import OPERATIONS
from keryx.surfaces.web.stream import events

REFERENCE = Path(__file__).parent / "reference"

_CLI = """\
# The command line

Every command has `--help` with examples, and `--json` where there is something to read: one JSON document, in UTC,
on stdout. Without it, tables are aligned and cut to the width of a terminal; in a pipe nothing is cut or coloured.
`NO_COLOR` turns colours off. What goes wrong is one sentence on stderr and an exit code.

## Exit codes

| code | meaning |
|---|---|
{codes}

## Commands

{commands}
"""
_CONFIGURATION = """\
# Configuration

Keryx reads its settings once, when a command starts: first the defaults, then `keryx.toml` in its home folder, then
the variables of the environment. `keryx config` shows the value of each and where it comes from, `keryx config example`
prints a file to begin with. Durations are written `30s`, `10m`, `2h`, `7d` or `2w`. A wrong value is refused with its file, line and name, and `keryx doctor` finds names that lead nowhere.

| setting | type | default | variable | meaning |
|---|---|---|---|---|
{rows}

## Models known by name

What the settings do not say of a model (`context`, `images`, `files`, `audio` of [`[[models]]`](../how-to/connect-a-model.md)) is known of these by their `id`, in lower case and without
the provider before the last slash. The first row that fits the beginning counts. Of any other model Keryx assumes {context:,} tokens and that it reads text only.

| id begins with | context | reads, beside text |
|---|---|---|
{models}

## Platforms

Each adapter reads a table of its own, and variables `KERYX_<PLATFORM>_<NAME>` for the same settings: [Telegram](../how-to/telegram.md#settings),
[Matrix](../how-to/matrix.md) and [webhooks](../how-to/webhook.md#set-it-up). A secret in the file is a reference, `env:NAME` or `file:PATH`; a variable for it
holds the secret itself. Who may talk is in `[access.<platform>]`.

| variable | meaning |
|---|---|
| `KERYX_TELEGRAM_TOKEN` | The token of the bot. |
| `KERYX_TELEGRAM_BASE_URL` | Another Bot API than `https://api.telegram.org`. |
| `KERYX_TELEGRAM_ALLOW` | Who may talk on Telegram: ids with commas between them, or `*` for everybody. |

Where a platform cannot recognise a repetition, a part of an answer that may have arrived already is sent again with the mark `(possible repeat) ` before it. `doubt` sets that, and `repeat_mark` the words of the mark.

## A file with every default

```toml
{example}
```
"""

_COMMANDS = """\
# Chat commands

The same in every place you talk from; a place lists only what works there. A line that begins with `/` and a word is a command; a path such as `/etc/hosts` is speech.

With an argument, `/model`, `/effort`, `/personality`, `/agent`, `/tools`, `/busy`, `/title`, `/project`, `/queue` and `/steer` may come before the first
message: they begin the conversation.

| command | what it does | in a shared chat for | also |
|---|---|---|---|
{rows}

Where several people share one conversation, commands that change it for all are for the person who began it (`owner`) and for operators. `[commands]` in
`keryx.toml` says otherwise, for instance:

```toml
[commands]
title = "everyone"
jobs = "operator"
```

`/resume` takes a number of the list that `/sessions` shows now, a title (with or without quotes), a part of a title that only one conversation has, or an id.
An exact title comes before a numbered one: `/resume Trip` finds “Trip”, and the newest of “Trip #2”, “Trip #3” only if there is no “Trip”.
"""

_TEXTS = """\
# Texts for people

Every text that Keryx shows in chats, on the page and in `keryx chat`, by its key. Words in braces are filled in; `{{count:1 message|# messages}}` has
the form for one and for several. [Choose the language](../how-to/choose-the-language.md) says how to change a text.

| key | {languages} |
|---|{rules}|
{rows}
"""

_METRICS = """\
# Metrics and log fields

## Metrics

`GET /metrics` of `keryx serve` has them in the text format of Prometheus; where a token is set, it is asked for. Counters and histograms are of
this process and begin at 0 with it. What is "of the whole store" is the same on every node. Values of labels come from the settings and the code,
never from what a person writes; beyond {most} series a metric counts further ones as `other`. [Watch a node](../how-to/watch-a-node.md) uses them.

| metric | type | labels | about |
|---|---|---|---|
{metrics}

A histogram has the series `_bucket`, `_sum` and `_count`; all are in seconds.

## Log fields

`log_format = "json"` writes one object on each line with `time` (ISO 8601, UTC), `level`, `logger`, `message`, with a traceback `error`, and those of these
fields that are known. `log_format = "text"` has them at the end of the line.

| field | about |
|---|---|
{fields}

At the level `info` there is one line for each step of a message:

| message | when | fields |
|---|---|---|
| `received` | An event is stored. | `session`, `turn`, `platform`, `chat`, `outcome`, `seconds` |
| `answered` | An attempt at a turn has ended. | `session`, `turn`, `platform`, `chat`, `attempt`, `wait`, `first_token`, `model`, `outcome`, `seconds` |
| `recovered` | A turn whose process died is back in the queue, or was given up. | `session`, `turn`, `attempt`, `outcome`, `seconds` |
| `delivered`, `not delivered` | An attempt to send has ended. | `session`, `turn`, `delivery`, `platform`, `chat`, `attempt`, `outcome`, `seconds` |

No line has the text of a message, a secret, or the id of a chat or a person. Libraries do not know this rule, so only their warnings and errors are
logged, at every level; Keryx and its HTTP server (uvicorn) follow `log_level`.
"""

_HTTP = """\
# The HTTP API

`keryx serve` answers it beside the page, at `http://127.0.0.1:7337` unless it is set otherwise. Bodies and answers are JSON, times
are UTC. Fields that have their default value are left out of answers; unknown fields are refused in requests. `GET /openapi.json`
holds the same as an OpenAPI 3.1 document.

A message without a conversation begins one; the answer is read where it was written, or from [the stream](#the-stream):

```console
$ export KERYX_AGENT=echo API=http://127.0.0.1:7337/api
$ keryx serve >/dev/null 2>&1 &
$ until curl -sf http://127.0.0.1:7337/readyz >/dev/null; do sleep 0.2; done
$ curl -s $API/sessions -d '{{"text": "hello"}}' > sent.json; cat sent.json
{{"duplicate":false,"session":"…","turn":"…","seq":1}}
$ session=$(sed 's/.*"session":"\\([^"]*\\)".*/\\1/' sent.json)
$ until curl -s $API/sessions/$session/messages | grep '"role":"assistant"'; do sleep 0.2; done
{{…"text":"hello"…}}
```

Where a token is set, a program sends it as `Authorization: Bearer ...`; a browser exchanges it, or the password, for a cookie at
`POST /api/sign-in`.
The operator puts `/p/<profile>` before any path to see and change another [profile](../how-to/several-accounts.md#choose-a-profile).
A message that is sent again with the same `Idempotency-Key` takes effect once; another message under that key is refused with 409. Lists and snapshots have an `ETag`. An error is a
problem document (`application/problem+json`) whose `detail` says what to do next:

| status | when |
|---|---|
{errors}

## Operations

| request | query | body | answer | about |
|---|---|---|---|---|
{operations}

## The stream

`GET /api/stream?cursor=...` sends server-sent events of the default type. The data of each is a JSON object with a `type`. The id of an
event is a cursor: a browser that reconnects sends it as `Last-Event-ID` and gets what it missed, also when the server was started
again meanwhile. Begin with the cursor of `GET /api/start` or of a snapshot: then nothing is missed. What has an id replaces what
had it before, so an event that comes twice does no harm. A reader that takes nothing for half a minute is cut.

| type | about |
|---|---|
{events}

## What the html holds

Paragraphs, lists, tables, quotes and headings are plain elements. Code is `<pre class="code" data-language="python"><code>` with
`<span>`s of the classes `code-keyword`, `code-name`, `code-string`, `code-number`, `code-comment`, `code-deleted` and `code-inserted` for
about thirty languages; other and very long code has none. Links open elsewhere and tell nobody where they come from; pictures in Markdown are
links, so that nothing is loaded from a foreign host. There is no script, no style and no other class.

## Types

{types}
"""


def cli() -> str:
    codes = sorted([*OTHER_CODES, *((code, meaning) for _, code, meaning in CODES)])
    tree = app.generate_docs(recursive=True, heading_level=2)
    return _CLI.format(
        codes="\n".join(f"| {code} | {meaning} |" for code, meaning in codes), commands=tree.strip()
    )


def configuration() -> str:
    return _CONFIGURATION.format(
        rows="\n".join(map(_row, list_settings())),
        example=render_example(),
        context=known_models.DEFAULT_CONTEXT,
        models="\n".join(_model(*entry) for entry in known_models.KNOWN_MODELS),
    )


def _model(begins: str, known: known_models.KnownModel) -> str:
    kinds = (("pictures", known.images), ("files", known.files), ("sounds", known.audio))
    reads = ", ".join(name for name, readable in kinds if readable)
    return f"| `{begins.replace('|', chr(92) + '|')}` | {known.context:,} | {reads} |"


def commands() -> str:
    return _COMMANDS.format(rows="\n".join(map(_command, (c for c in COMMANDS if c.listed))))


def _command(command: CommandSpec) -> str:
    words = command.format_usage(ENGLISH)
    usage = f" {words}".replace("|", "\\|") if words else ""
    also = ", ".join(f"`/{name}`" for name in command.aliases)
    return f"| `/{command.name}{usage}` | {command.describe(ENGLISH)} | {command.who} | {also} |"


def texts() -> str:
    def cell(text: str) -> str:
        return text.replace("\n", "<br>").replace("|", "\\|").replace("<", "&lt;").replace("&lt;br>", "<br>")

    rows = (
        f"| `{key}` | {' | '.join(cell(known[key]) for known in LANGUAGES.values())} |"
        for key in LANGUAGES["en"]
    )
    return _TEXTS.format(
        languages=" | ".join(LANGUAGES), rules="|".join(["---"] * len(LANGUAGES)), rows="\n".join(rows)
    )


def http() -> str:
    return _HTTP.format(
        errors="\n".join(f"| {status.value} | {meaning} |" for _, status, meaning in ERROR_STATUS),
        operations="\n".join(map(_operation, OPERATIONS)),
        events="\n".join(map(_event, get_args(events.Event))),
        types="\n\n".join(text for module in (schema, request_schema) for text in _types(module)),
    )


def _operation(operation: Operation) -> str:
    query = operation.query.__name__ if operation.query else ""
    body = openapi.publish_name(operation.body.__name__) if operation.body else operation.body_media_type
    response = ", ".join(operation.media_types) or "nothing"
    if operation.response_type:
        response = openapi.publish_name(operation.response_type.__name__)
    request = f"`{operation.method} {operation.path}`"
    return f"| {request} | {query} | {body} | {response} | {operation.summary} |"


def _event(event: type[msgspec.Struct]) -> str:
    fields = ", ".join(f"`{field.name}`" for field in msgspec.structs.fields(event))
    return f"| `{event.__struct_config__.tag}` ({fields}) | {_about(event)} |"


def _types(module: ModuleType) -> Iterator[str]:
    for name, kind in vars(module).items():
        mine = (
            isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
        )
        if mine and msgspec.structs.fields(kind):
            yield f"### {openapi.publish_name(name)}\n\n{_about(kind)}\n\n{_fields(kind)}".replace(
                "\n\n\n\n", "\n\n"
            )


def _about(kind: type) -> str:
    return " ".join((kind.__doc__ or "").split())


def _fields(kind: type[msgspec.Struct]) -> str:
    schema = openapi.build_type_schema(kind)
    required = schema.get("required", ())
    lines = [
        f"| `{name}` | {openapi.describe_type(field)} | {'yes' if name in required else ''} |"
        for name, field in schema["properties"].items()
    ]
    return "\n".join(("| field | type | always |", "|---|---|---|", *lines))


def metrics_and_logs() -> str:
    return _METRICS.format(
        most=metrics.MAX_SERIES,
        metrics="\n".join(
            f"| `{m.name}` | {m.kind} | {', '.join(f'`{name}`' for name in m.labels)} | {m.about} |"
            for m in metrics.REGISTRY
        ),
        fields="\n".join(f"| `{name}` | {about} |" for name, about in logs.FIELDS.items()),
    )


PAGES = {
    "http-api.md": http,
    "cli.md": cli,
    "configuration.md": configuration,
    "commands.md": commands,
    "texts.md": texts,
    "metrics.md": metrics_and_logs,
}


def _row(row: SettingRow) -> str:
    kind = row.kind.replace(" | ", ", ")
    variable = f"`{row.variable}`" if row.variable else ""
    default = f"`{format_toml(row.default)}`"
    return f"| `{row.name}` | {kind} | {default} | {variable} | {row.meaning} |"


def main() -> None:
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
