"""`keryx gateway`: the state of the connections to chat platforms, and the setup of each: a command built from its fields, which is imported when the command is used."""

import asyncio
import getpass
import inspect
import os
import sys
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from cyclopts import App, Parameter

from keryx import config, setup_registry
from keryx.cli import output
from keryx.cli.options import FLAG, Json, Yes, confirm, load_settings, open_hub
from keryx.core.access import EVERYBODY
from keryx.core.errors import Invalid, KeryxError, NotFound, Unavailable
from keryx.core.ports.adapter import LinkState, PlatformStatus
from keryx.core.ports.setup import PlatformSetup, SetupField
from keryx.settings_file import format_variable
from keryx.setup_registry import ALLOW, YES, SetupSession

Command = Callable[..., Awaitable[None]]

_HELP_WIDTH = 76
_HOW_IT_ENDS = """\
The answers are checked before anything is written. Secrets are kept in files
that you alone can read; keryx.toml refers to them, and everything else there
stays as it is."""
_NAME_HELP = "A name for the account, such as work, if it is one of several."

_HEADINGS = ("platform", "account", "state", "since", "received", "sent", "failed", "throttled", "detail")

app = App(name="gateway", help="The chat platforms: how they are connected.")
_setup_app = App(name="setup", help="Connect a chat platform.")
app.command(_setup_app)
for _platform in sorted({*setup_registry.list_platforms(), *config.list_platforms()}):
    _setup_app.command(f"{__name__}:{_platform}", name=_platform)


@app.command
async def status(*, json: Json = False) -> None:
    """Show how each platform is connected, what went through it, and what is
    held back and until when. A node writes its counters every few seconds.

    For example:

        keryx gateway status
        keryx gateway status --json
    """
    async with open_hub() as access:
        nodes = await access.hub.list_nodes()
        found = await access.hub.platform_statuses()
        gates = await access.hub.closed_gates()
    if json:
        output.write_json({"nodes": len(nodes), "connections": found, "gates": gates})
        return
    if not nodes:
        output.write(output.wrap("No node runs, so nothing is connected: start one with `keryx serve`."))
    elif not found:
        output.write(output.wrap("No platform has reported yet: ask again in a moment."))
    if found:
        names = {node.id: f"{node.host} ({node.pid})" for node in nodes}
        rows = [
            (
                *(c.platform, c.account, c.link.value, output.format_time(c.since)),
                *map(str, (c.received, c.sent, c.failed, c.throttled)),
                # Of several nodes each has its connections.
                *([names.get(c.worker, "")] if len(nodes) > 1 else []),
                c.detail,
            )
            for c in found
        ]
        *headings, detail = _HEADINGS
        shown = (*headings, *(["node (process)"] if len(nodes) > 1 else []), detail)
        output.write_table(shown, rows, flexible=len(shown) - 1, right=(4, 5, 6, 7))
    for platform in dict.fromkeys(c.platform for c in found if c.link is LinkState.REFUSED):
        name = output.sanitize(platform, one_line=True)
        output.write(
            f"{name} refuses the credentials: "
            f"`keryx gateway setup {name}` asks for new ones; then restart the node."
        )
    for c in found:
        if c.rejected:
            output.write(output.wrap(_describe_rejections(c)))
    for gate in gates:
        why = f" ({output.sanitize(gate.reason, one_line=True)})" if gate.reason else ""
        target, until = output.sanitize(gate.key.rstrip(":"), one_line=True), gate.until.astimezone()
        output.write(f"Nothing is sent to {target} until {until:%H:%M:%S}{why}.")


@app.command
async def remove(
    account: Annotated[str, Parameter(help="The account as keryx.toml has it: telegram, or telegram.work.")],
    /,
    *,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove a connected account: its settings and the files of its secrets.

    Its chats and their conversations stay. What is sent there, by jobs too,
    waits until the account is connected again.

    For example:

        keryx gateway remove telegram
        keryx gateway remove telegram.work --yes
    """
    with suppress(Invalid):
        load_settings()
    home = config.find_home(os.environ)
    confirm(
        f"Remove {account}? Its chats and conversations stay; what is sent there, by jobs too, waits until it is "
        "connected again.",
        yes,
    )
    removed = await asyncio.to_thread(setup_registry.remove, home, account, os.environ)
    if json:
        output.write_json(
            {"account": account, "settings": str(removed.settings), "variables": removed.variables}
        )
        return
    output.write(
        output.wrap(f"Removed {account} from {removed.settings}. It is disconnected when Keryx is restarted.")
    )
    if removed.variables:
        output.write(output.wrap(f"These variables connect it still: {', '.join(removed.variables)}."))
    output.write(
        output.wrap("The platform knows the bot still: revoke its token there if nothing else uses it.")
    )


def _describe_rejections(status: PlatformStatus) -> str:
    account = output.sanitize(f"{status.platform}:{status.account}".rstrip(":"), one_line=True)
    which = "1 request" if status.rejected == 1 else f"{status.rejected} requests"
    return (
        f"Rejected at the hook of {account} since the node started: {which}, not signed with its secret, malformed or too "
        "large. If messages do not arrive, compare the secret in the settings with that of the platform."
    )


def __getattr__(name: str) -> Command:
    """Build the command of a platform, which cyclopts looks up here by its name."""
    if name in setup_registry.list_platforms():
        try:
            return build_command(setup_registry.load(name))
        except Unavailable as exc:
            return _build_failing_command(name, "This setup cannot be used.", exc)
    if name in config.list_platforms():
        by_hand = NotFound(
            f"{name} has no setup: write its settings in keryx.toml under [{name}]; its documentation tells which"
        )
        return _build_failing_command(
            name, "It has no setup: its settings are written in keryx.toml.", by_hand
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def build_command(setup: PlatformSetup) -> Command:
    """Return the command of a setup, with an option for each of its fields."""
    options = {_name_option(field): _build_option(setup, field) for field in setup.fields}
    options.pop(ALLOW, None)
    which = f"such as {setup.allow_example}" if setup.allow_example else "by their ids on the platform"
    people = Parameter(negative="", help=f"Who may talk to Keryx, {which}; may be repeated.")
    options[ALLOW] = (Annotated[list[str] | None, people], None)
    options["name"] = (Annotated[str, Parameter(show_default=False, help=_NAME_HELP)], "")
    options["json"] = (Json, False)

    async def command(**given: Any) -> None:
        # Options that were not given are left out.
        await _run(setup, {option: given.get(option, default) for option, (_, default) in options.items()})

    _describe(command, setup.platform, _build_help(setup), options)
    return command


def _build_failing_command(platform: str, summary: str, error: KeryxError) -> Command:
    """Return a command that says why there is none, so that the others can be listed and used."""

    async def command(**_: Any) -> None:
        raise error

    text = f"{summary}\n\n    keryx gateway setup {platform}"
    _describe(command, platform, text, {"json": (Json, False)})
    return command


def _describe(command: Command, name: str, text: str, options: Mapping[str, tuple[Any, object]]) -> None:
    """Give a command its name, its help and its options, each with a type and a default."""
    function = cast(Any, command)
    function.__name__, function.__doc__ = name, text
    function.__annotations__ = {option: kind for option, (kind, _) in options.items()}
    function.__signature__ = inspect.Signature(
        [
            inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for option, (kind, default) in options.items()
        ]
    )


def _name_option(field: SetupField) -> str:
    return f"{field.name}_file" if field.secret else field.name


def _build_option(setup: PlatformSetup, field: SetupField) -> tuple[Any, object]:
    """Return the type and the default of the option for a field."""
    variable = format_variable(setup.platform, field.name)
    if field.flag:
        return Annotated[bool, FLAG, Parameter(help=field.help or field.label)], False
    if field.secret:
        asked = "" if field.optional and not field.ask else ", or you are asked"
        text = f"A file with the {_lower_first(field.label)}; without it {variable}{asked}."
        return Annotated[Path | None, Parameter(help=f"{text} {field.help}".strip())], None
    text = f"{field.label}." + (f" {field.help}" if field.help else "")
    if field.default:
        text += f" Without it: {field.default}."
    kind: Any = Literal[field.choices] if field.choices else str
    return Annotated[kind | None, Parameter(show_default=False, help=text)], None


def _build_help(setup: PlatformSetup) -> str:
    start = f"keryx gateway setup {setup.platform}"
    needed: list[str] = []
    for field in setup_registry.find_missing(setup, {}):
        value = field.name if field.secret else field.example or (field.choices or (field.name.upper(),))[0]
        needed.append(f"--{_name_option(field).replace('_', '-')} {value}")
    examples = [start, *([_wrap_example(start, needed)] if needed else []), f"{start} --name work"]
    shown = textwrap.indent("\n".join(examples), "    ")
    summary = setup.summary or f"Connect {setup.title}."
    return "\n\n".join([summary, setup.intro.strip(), _HOW_IT_ENDS, shown])


def _wrap_example(start: str, options: Sequence[str]) -> str:
    """Return a command with its options, in lines as a shell accepts them."""
    lines = [start]
    for option in options:
        if len(lines[-1]) + len(option) < _HELP_WIDTH - 2:
            lines[-1] += f" {option}"
        else:
            lines[-1] += " \\"
            lines.append(f"    {option}")
    return "\n".join(lines)


async def _run(setup: PlatformSetup, given: Mapping[str, Any]) -> None:
    # A setup can be what mends wrong settings.
    with suppress(Invalid):
        load_settings()
    label = setup_registry.build_label(setup.platform, given["name"])
    home = config.find_home(os.environ)
    terminal = SetupTerminal(json=given["json"])
    people = _split_names(" ".join(given[ALLOW] or ()))
    setup_registry.check_people(setup, people)
    answers = _collect_answers(setup, label, given, terminal)
    configured = setup_registry.read_configured(home, label, os.environ)
    outcome = await setup_registry.check(setup, answers, TerminalSession(label, configured, terminal))
    if given[ALLOW] is None and not outcome.allow and setup.allow_example and terminal.interactive:
        people = terminal.ask_people(setup)
    written = setup_registry.write(home, label, outcome, people)
    if given["json"]:
        output.write_json(
            {
                **outcome.details,
                "summary": outcome.summary,
                "settings": str(written.settings),
                "allow": written.allow,
                "steps": outcome.steps,
            }
        )
        return
    output.write(output.sanitize(outcome.summary, one_line=True))
    labels = {field.name: _lower_first(field.label) for field in setup.fields}
    for name, path in written.secrets.items():
        output.write(f"The {labels.get(name, name)} is in {path}; {written.settings} refers to it.")
    if not written.secrets:
        output.write(f"The settings are in {written.settings}, under [{label}].")
    if written.allow:
        who = "Everybody" if EVERYBODY in written.allow else ", ".join(written.allow)
        output.write(output.sanitize(f"{who} may talk to it.", one_line=True))
    steps = [*outcome.steps]
    if setup.allow_example and not written.allow:
        rule = f'[access.{label}] allow = ["{setup.allow_example}"]'
        steps.insert(0, f"say who may talk to it: in keryx.toml, {rule}")
    if steps:
        output.write("\nNext:")
    for number, step in enumerate(steps, 1):
        output.write(f"  {number}. {output.sanitize(step, one_line=True)}")
    if outcome.note:
        output.write(f"\n{output.sanitize(outcome.note)}")


def _collect_answers(
    setup: PlatformSetup, label: str, given: Mapping[str, Any], terminal: "SetupTerminal"
) -> dict[str, str]:
    """Return the answers from the options and the variables, then from the person. Raise `Invalid` if one is missing and
    the terminal is not interactive."""
    answers: dict[str, str] = {}
    for field in setup.fields:
        value = given[_name_option(field)]
        if field.name == ALLOW:
            answers[ALLOW] = ",".join(value or []) or setup_registry.find_variable(field, label, os.environ)
        elif field.secret and value is not None:
            try:
                text = value.read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as exc:
                raise Invalid(f"{value} cannot be read: {exc}") from exc
            if not text:
                raise Invalid(f"{value} is empty")
            answers[field.name] = text
        elif field.flag:
            answers[field.name] = YES if value else ""
        else:
            answers[field.name] = value or setup_registry.find_variable(field, label, os.environ)
    missing = setup_registry.find_missing(setup, answers)
    if missing and not terminal.interactive:
        needed = " and ".join(
            f"--{_name_option(field).replace('_', '-')}, or set {format_variable(label, field.name)}"
            for field in missing
        )
        raise Invalid(f"nobody can be asked here: give {needed}")
    introduced = False
    for field in setup.fields if terminal.interactive else ():
        if (
            answers[field.name]
            or field.flag
            or (not field.ask and field not in missing)
            or not setup_registry.is_needed(setup, field, answers)
        ):
            continue
        if not introduced:
            terminal.show(setup.intro.strip() + "\n")
            introduced = True
        answers[field.name] = terminal.ask_field(field)
    return answers


class SetupTerminal:
    """Shows and asks in the terminal. With JSON on stdout both go to stderr."""

    def __init__(self, *, json: bool) -> None:
        self.interactive = sys.stdin.isatty()
        self._stream = sys.stderr if json else sys.stdout

    def show(self, text: str) -> None:
        self._stream.write(output.sanitize(text) + "\n")
        self._stream.flush()

    def ask(self, question: str, *, hidden: bool = False) -> str:
        """Return what the person types. Raise `Invalid` at the end of the input."""
        try:
            if hidden:
                return getpass.getpass(question).strip()
            self._stream.write(question)
            self._stream.flush()
            line = sys.stdin.readline()
        except EOFError:
            line = ""
        if not line:
            raise Invalid("nothing was said: start again when you have it")
        return line.strip()

    def ask_field(self, field: SetupField) -> str:
        """Ask until there is an answer that the field accepts."""
        hints = [
            f"such as {field.example}" if field.example and not field.choices else "",
            ", ".join(field.choices),
            "not shown" if field.secret else "",
            f"empty for {field.default}" if field.default else "may be empty" if field.optional else "",
        ]
        hint = "; ".join(filter(None, hints))
        if field.help:
            self.show(field.help)
        while True:
            answer = self.ask(
                f"{field.label} ({hint}): " if hint else f"{field.label}: ", hidden=field.secret
            )
            if not answer and not field.optional and not field.default:
                self.show("This is needed. Ctrl-C ends the setup without a change.")
            elif answer and field.choices and answer not in field.choices:
                self.show(f"Choose {', '.join(field.choices)}.")
            elif not (mistake := _find_mistake(field, answer)):
                return answer
            else:
                self.show(mistake)

    def ask_people(self, setup: PlatformSetup) -> list[str]:
        """Ask who may talk until each of them can exist on the platform."""
        while True:
            answer = self.ask(f"Who may talk to it? (such as {setup.allow_example}; empty for nobody yet): ")
            people = _split_names(answer)
            try:
                setup_registry.check_people(setup, people)
            except Invalid as exc:
                self.show(_build_sentence(exc))
            else:
                return people


class TerminalSession(SetupSession):
    """A setup in the terminal, whose check may ask the person something."""

    def __init__(self, label: str, configured: Mapping[str, object], terminal: SetupTerminal) -> None:
        super().__init__(label, configured, terminal.show)
        self._terminal = terminal

    async def ask(self, question: str) -> str:
        if not self._terminal.interactive:
            raise Invalid(f"nobody can be asked here ({question}): use a terminal")
        return await asyncio.to_thread(self._terminal.ask, f"{question}: ")


def _find_mistake(field: SetupField, answer: str) -> str:
    """Return the sentence with which a field refuses an answer, else an empty text."""
    if answer and field.accept is not None:
        try:
            field.accept(answer)
        except Invalid as exc:
            return _build_sentence(exc)
    return ""


def _split_names(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _build_sentence(error: Invalid) -> str:
    sentence = str(error)
    return f"{sentence[:1].upper()}{sentence[1:]}."


def _lower_first(text: str) -> str:
    """Return a label for use within a sentence; words like API keep their capitals."""
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]
