"""Answer: one streamed answer of a model, put together from its fragments."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from openai.types.chat.chat_completion_chunk import ChatCompletionChunk, ChoiceDelta, ChoiceDeltaToolCall

from keryx.agents import history
from keryx.agents.media import Json
from keryx.agents.models import Model
from keryx.agents.tools import Permission, Spec
from keryx.core import messages
from keryx.core.messages import Parts, Reasoning, Text, ToolCall
from keryx.core.ports import Event, Said, Thought

THINKS_AGAIN = "\n\n(The connection broke; thinking again.)\n\n"
_THOUGHTS = ("reasoning_content", "reasoning")
_UNKNOWN = Spec(name="")
_GROWING = ("text", "summary", "data")


class Fragments:
    """A tool call while it arrives."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.name = ""
        self.arguments: list[str] = []


class Answer:
    """Grows with each chunk. `said`: words of it were shown to a person, in whichever try."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._shown: list[Text | Reasoning] = []
        self.said = False
        self.begin()

    def begin(self) -> None:
        """Forget an attempt of which no word was shown."""
        self._calls: list[Fragments] = []
        self._at: dict[int, Fragments] = {}
        self._details: list[Json] = []
        self.refusal = ""
        self.finish = ""
        self.usage: Json | None = None
        self._thinks_again = bool(self._shown)

    def feed(self, chunk: ChatCompletionChunk) -> Iterator[Event]:
        """Take in a chunk; gives what it adds for people to see."""
        if chunk.usage:
            self.usage = chunk.usage.to_dict()
        # Providers send chunks without choices, for usage, and some a null.
        for choice in chunk.choices or ():
            if choice.delta:
                yield from self._grow(choice.delta)
            self.finish = choice.finish_reason or self.finish

    def _grow(self, delta: ChoiceDelta) -> Iterator[Event]:
        if delta.model_extra:
            yield from self._think(delta.model_extra)
        if delta.content:
            self.said = True
            self._shown.append(Text(delta.content))
            yield Said(delta.content)
        self.refusal += delta.refusal or ""
        for fragment in delta.tool_calls or ():
            self._add(fragment)

    def _think(self, extra: Json) -> Iterator[Event]:
        for details in cast(list[Any], extra.get("reasoning_details") or ()):
            if isinstance(details, dict):
                _merge(self._details, cast(Json, details))
        text = next((extra[name] for name in _THOUGHTS if extra.get(name)), "")
        if not isinstance(text, str) or not text:
            return
        if self._thinks_again:
            text, self._thinks_again = THINKS_AGAIN + text, False
        self._shown.append(Reasoning(text))
        yield Thought(text)

    def _add(self, fragment: ChoiceDeltaToolCall) -> None:
        call = self._at.get(fragment.index)
        # Some providers give every call of a step the same index: a new id begins a new call.
        if call is None or (fragment.id and call.id and fragment.id != call.id):
            call = self._at[fragment.index] = Fragments(fragment.id or "")
            self._calls.append(call)
        call.id = call.id or fragment.id or ""
        if fragment.function:
            call.name = call.name or fragment.function.name or ""
            call.arguments.append(fragment.function.arguments or "")

    @property
    def opaque(self) -> str:
        """The reasoning in the provider's own form; empty if it has none."""
        return history.sealed(self._details, self._model) if self._details else ""

    @property
    def cut(self) -> bool:
        """Whether it reached the length that the model may write."""
        return self.finish == "length"

    @property
    def called(self) -> bool:
        return bool(self._calls)

    def calls(self, specs: Mapping[str, Spec], *, prefix: str, taken: set[str]) -> tuple[ToolCall, ...]:
        """The tools to call, with what is known of them. An id that is missing or was used before becomes one that begins with `prefix`."""
        made: list[ToolCall] = []
        for number, call in enumerate(self._calls, 1):
            known = call.id if call.id and call.id not in taken else f"{prefix}-{number}"
            taken.add(known)
            spec = specs.get(call.name, _UNKNOWN)
            asks = spec.permission is Permission.ASK
            made.append(ToolCall(known, call.name, "".join(call.arguments), spec.repeatable, asks))
        return tuple(made)

    def parts(self, calls: tuple[ToolCall, ...]) -> Parts:
        """The answer as the parts of a message, just as they are stored."""
        opaque = (Reasoning(opaque=self.opaque),) if self.opaque else ()
        return messages.join((*self._shown, *opaque, *calls))


def _merge(details: list[Json], new: Json) -> None:
    """Blocks of reasoning arrive in pieces of the same type and index."""
    last = details[-1] if details else None
    if last is None or (last.get("type"), last.get("index")) != (new.get("type"), new.get("index")):
        details.append(dict(new))
        return
    for key, value in new.items():
        old = last.get(key)
        if key in _GROWING and isinstance(old, str) and isinstance(value, str):
            last[key] = old + value
        elif value is not None:
            last[key] = value
