"""The setup of a platform: what a person is asked, how the answers are checked, and what is written. `keryx gateway setup`, the page and plug-ins use it."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, runtime_checkable

import msgspec


class SetupField(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that a setup needs."""

    # The setting that the answer becomes. In the terminal it is an option: `base_url` is `--base-url`, a secret `token` is
    # `--token-file`. The variable KERYX_<PLATFORM>_<NAME> is read too.
    name: str
    # What the person is asked, without a colon.
    label: str
    # One sentence: where the person finds it.
    help: str = ""
    # Not shown while it is typed, and written to a file that only its owner can read.
    secret: bool = False
    # An empty answer is accepted. The terminal does not ask for it unless `ask` is set.
    optional: bool = False
    ask: bool = True
    # Fields of which any answer makes this one needless: a password is not asked for if there is a token.
    unless: tuple[str, ...] = ()
    # Answers of other fields, or their defaults, that make this one needed or asked for: {"mode": "cloud"}.
    when: Mapping[str, str] = {}
    # Raise `Invalid` with a sentence for an answer that cannot be right, without asking the platform. The terminal asks
    # again at once.
    accept: Callable[[str], object] | None = None
    default: str = ""
    # An answer as it may look, for help texts: `example.org`.
    example: str = ""
    # The only answers that are accepted.
    choices: tuple[str, ...] = ()
    # "yes" or empty; an option without a value.
    flag: bool = False


class SetupOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a check has found, and what is written."""

    # Who Keryx is on the platform, as one sentence.
    summary: str
    # The table of the platform in keryx.toml.
    settings: Mapping[str, str | list[str]] = {}
    # Secrets by the name of their setting. The table gets references to them.
    secrets: Mapping[str, str] = {}
    # Who may talk, as ids of the platform.
    allow: tuple[str, ...] = ()
    # What the person does next, one sentence each.
    steps: tuple[str, ...] = ()
    # What else they should know, as one paragraph.
    note: str = ""
    # For programs: `--json` prints it.
    details: Mapping[str, object] = {}


class SetupDialog(Protocol):
    """What a check may use while it runs."""

    @property
    def label(self) -> str:
        """The name of the table: `discord`, or `discord.work` for one of several accounts."""
        ...

    @property
    def configured(self) -> Mapping[str, object]:
        """The table of the account as it is now."""
        ...

    def show(self, text: str) -> None:
        """Show the person a text at once, such as a code to scan."""
        ...


@runtime_checkable
class SupportsQuestions(Protocol):
    """A dialog with a person who sees at once what is shown and can be asked, as in a terminal. In a form, what is shown
    is read after the check."""

    async def ask(self, question: str) -> str:
        """Return what the person answers. Raise `Invalid` if nobody can be asked."""
        ...


class PlatformSetup(msgspec.Struct, frozen=True, kw_only=True):
    """How a platform is connected. A package declares it as an entry point of the group `keryx.setups`, named as the
    platform."""

    platform: str
    # As people write it: "Discord".
    title: str
    # How to get the answers, step by step. Shown before the first question, and by `--help`.
    intro: str
    fields: tuple[SetupField, ...]
    # One sentence for lists: "Connect a bot on Telegram." By default "Connect <title>."
    summary: str = ""
    # How the platform writes the id of a person, such as `@you:example.org`. With it the setup asks who may talk; without
    # it people let themselves in by pairing.
    allow_example: str = ""
    # Ask the platform whether the answers are right. Raise `Invalid`, `Forbidden` or `Unavailable` with a sentence that
    # says what to do.
    check: Callable[[Mapping[str, str], SetupDialog], Awaitable[SetupOutcome]]


ENTRY_POINT_GROUP = "keryx.setups"
