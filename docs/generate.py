"""Writes the pages of the reference that follow from the code: `python docs/generate.py` writes them all."""

from pathlib import Path

from keryx.cli.errors import CODES, OTHER_CODES
from keryx.cli.main import app
from keryx.cli.settings import Row, example, rows, toml
from keryx.engine.commands import COMMANDS, Command

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
prints a file to begin with. Durations are written `30s`, `10m`, `2h`, `7d` or `2w`. A wrong value is refused with its name.

| setting | type | default | variable | meaning |
|---|---|---|---|---|
{rows}

## Platforms

Each adapter reads a table of its own, and variables `KERYX_<PLATFORM>_<NAME>` for the same settings: [Telegram](../how-to/telegram.md#settings),
[Matrix](../how-to/matrix.md) and [webhooks](../how-to/webhook.md#set-it-up). A secret in the file is a reference, `env:NAME` or `file:PATH`; a variable for it
holds the secret itself. Who may talk is in `[access.<platform>]`.

| variable | meaning |
|---|---|
| `KERYX_TELEGRAM_TOKEN` | The token of the bot. |
| `KERYX_TELEGRAM_BASE_URL` | Another Bot API than `https://api.telegram.org`. |
| `KERYX_TELEGRAM_ALLOW` | Who may talk on Telegram: ids with commas between them, or `*` for everybody. |

Where a platform cannot recognise a repetition, a part of an answer that may have arrived already is sent again with the mark `(again) ` before it. `doubt` sets that.

## A file with every default

```toml
{example}
```
"""

_COMMANDS = """\
# Chat commands

The same in every place you talk from. A line that begins with `/` and a word is a command; a path such as `/etc/hosts` is speech.

| command | what it does | also |
|---|---|---|
{rows}
"""


def cli() -> str:
    codes = sorted([*OTHER_CODES, *((code, meaning) for _, code, meaning in CODES)])
    tree = app.generate_docs(recursive=True, heading_level=2)
    return _CLI.format(
        codes="\n".join(f"| {code} | {meaning} |" for code, meaning in codes), commands=tree.strip()
    )


def configuration() -> str:
    return _CONFIGURATION.format(rows="\n".join(map(_row, rows())), example=example())


def commands() -> str:
    return _COMMANDS.format(rows="\n".join(map(_command, COMMANDS)))


def _command(command: Command) -> str:
    usage = f" {command.usage}".replace("|", "\\|") if command.usage else ""
    also = ", ".join(f"`/{name}`" for name in command.aliases)
    return f"| `/{command.name}{usage}` | {command.help} | {also} |"


PAGES = {"cli.md": cli, "configuration.md": configuration, "commands.md": commands}


def _row(row: Row) -> str:
    kind = row.kind.replace(" | ", ", ")
    variable = f"`{row.variable}`" if row.variable else ""
    default = f"`{toml(row.default)}`"
    return f"| `{row.name}` | {kind} | {default} | {variable} | {row.meaning} |"


def main() -> None:
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
