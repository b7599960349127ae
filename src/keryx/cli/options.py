"""Options that many commands share, and how a command opens the hub."""

import os
import re
import sys
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, TypeAlias

from cyclopts import Parameter

from keryx import config
from keryx.bootstrap import BaseApp, configure_logging
from keryx.cli import output
from keryx.config import Settings
from keryx.core import durations
from keryx.core.errors import Conflict, Invalid, StoreBroken
from keryx.core.ids import SessionId
from keryx.core.sessions import Session, Viewer
from keryx.core.texts import find_language
from keryx.engine.hub import Hub

Json: TypeAlias = Annotated[
    bool, Parameter(name="--json", negative="", show_default=False, help="Print JSON instead of text.")
]
SessionRef: TypeAlias = Annotated[
    str, Parameter(help="A session: its id, the beginning of its id, its title, or an old id.")
]
_MAX_LOG_BYTES = 1_000_000
_OPTION = re.compile(r"--?[A-Za-z][\w-]*(=.*)?\Z")
FLAG = Parameter(negative="", show_default=False)
Attach: TypeAlias = Annotated[
    list[str] | None,
    Parameter(
        name=["--attach", "-a"], negative="", help="A file that goes with the message; may be repeated."
    ),
]
Yes: TypeAlias = Annotated[
    bool, Parameter(name=["--yes", "-y"], negative="", show_default=False, help="Do not ask.")
]


@dataclass(frozen=True, slots=True)
class HubAccess:
    """The hub, and the viewer on whose behalf a command calls it."""

    hub: Hub
    viewer: Viewer

    async def find_session(self, ref: str) -> Session:
        return await self.hub.resolve(self.viewer, ref)

    async def find_id(self, ref: str) -> SessionId:
        return (await self.find_session(ref)).id


def load_settings() -> Settings:
    """Read the settings and configure logging."""
    settings = config.read()
    configure_logging(settings)
    return settings


@contextmanager
def log_to_file(settings: Settings) -> Generator[None]:
    """Log to a file in the home folder instead of stderr, so that nothing is written over a chat in the terminal."""
    path = settings.folder / "chat.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.stat().st_size > _MAX_LOG_BYTES:
            path.unlink()
        path.touch(mode=0o600)
        configure_logging(settings, path)
    except OSError as exc:
        raise StoreBroken(
            f"{path} cannot be written ({exc.strerror}): check its rights, or set KERYX_HOME"
        ) from exc
    try:
        yield
    finally:
        # This closes the file.
        configure_logging(settings)


def check_words(words: Sequence[str], command: str) -> None:
    """Raise `Invalid` for a word of a message that looks like an option."""
    if stray := next((word for word in words if _OPTION.match(word)), None):
        raise Invalid(
            f"unknown option {stray}: `keryx {command} --help` lists them; send such a text through `-`"
        )


def join_input(words: Sequence[str], given: str) -> str:
    """Return the text of a message that ends with `-`: the words, and below them what was read from stdin."""
    return "\n\n".join(filter(None, (" ".join(words), given.removesuffix("\n"))))


def load_base() -> BaseApp:
    """Build Keryx without its agents from the settings."""
    return BaseApp(load_settings())


@asynccontextmanager
async def open_hub() -> AsyncGenerator[HubAccess]:
    """Open the hub for one command. Nothing runs in the background."""
    app = load_base()
    async with app.hub() as hub:
        yield HubAccess(hub, app.viewer)


def find_terminal_language() -> str | None:
    """Return the language of the terminal, `None` if it has no catalogue."""
    names = ("LC_ALL", "LC_MESSAGES", "LANG")
    return find_language(next((value for name in names if (value := os.environ.get(name))), ""))


def parse_since(text: str) -> datetime:
    """The moment that a span before now, or a date, names."""
    try:
        if (age := durations.parse(text)) is not None:
            return datetime.now(UTC) - age
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as exc:
        raise Invalid(f"{text[:80]!r} is not a time: write 30m, 12h, 7d or 2026-01-31") from exc
    return moment.astimezone(UTC)


def parse_timeout(text: str) -> timedelta:
    """Read a time to wait, such as 90s or 5m."""
    found = durations.parse(text)
    if not found:
        raise Invalid(f"--timeout {text[:80]} is not a time to wait. Write 30s, 10m or 2h")
    return found


def check_positive(number: int, name: str) -> int:
    if number < 1:
        raise Invalid(f"{name} needs a number above zero")
    return number


def report(text: str, json: bool, **subject: str) -> None:
    """Print the result of a command; as JSON together with its subject, such as `session=`."""
    output.write_result(text, {**subject, "result": text}, json)


def confirm(question: str, yes: bool) -> None:
    """Ask the user. Return if the answer is yes, or if `yes` was given as an option; raise `Conflict` otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Invalid("this needs a yes: add --yes where nobody can be asked")
    output.write(f"{output.sanitize(question)} [y/N] ", end="")
    output.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Conflict("nothing was done")


def warn_without_node(nodes: Sequence[object]) -> None:
    """Warn that a message waits in the queue if no node runs."""
    if not nodes:
        output.warn("keryx: it waits in the queue: no node runs now, `keryx serve` will answer it")
