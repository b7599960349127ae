"""Completion in a chat: commands, their values such as models and titles, and paths of files."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence

import msgspec
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from keryx.core.texts import Texts
from keryx.engine.commands import list_commands

# Commands that the terminal runs itself.
LOCAL_COMMANDS = ("attach", "detach", "quit")
_MAX_VALUES = 50


class CommandValue(msgspec.Struct, frozen=True):
    """A value that a command takes, with a few words about it."""

    text: str
    about: str = ""


ListValues = Callable[[str], Awaitable[Sequence[CommandValue]]]


class ChatCompleter(Completer):
    """Completes a line that begins with a slash. `list_values` returns the values of a command, by its name."""

    def __init__(self, texts: Texts, list_values: ListValues) -> None:
        self._texts = texts
        self._list_values = list_values
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Complete nothing: the values are read from the store, which only `get_completions_async` can do."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        name, blank, typed = document.text_before_cursor.partition(" ")
        if not name.startswith("/"):
            return
        if not blank:
            for completion in self._complete_name(name):
                yield completion
        elif name == "/attach":
            for completion in self._paths.get_completions(Document(typed), complete_event):
                yield completion
        else:
            wanted = typed.strip().casefold()
            values = await self._list_values(name[1:])
            found = [value for value in values if wanted in value.text.casefold() and value.text != typed]
            # Values that begin with what was typed come before those that contain it.
            found.sort(key=lambda value: not value.text.casefold().startswith(wanted))
            for value in found[:_MAX_VALUES]:
                yield Completion(value.text, start_position=-len(typed), display_meta=value.about)

    def _complete_name(self, typed: str) -> Iterable[Completion]:
        known = {c.name: c.describe(self._texts) for c in list_commands(lane=True)}
        known |= {name: self._texts.say(f"help.{name}") for name in LOCAL_COMMANDS}
        return (
            Completion(f"/{name}", start_position=-len(typed), display_meta=about)
            for name, about in known.items()
            if name.startswith(typed[1:])
        )
