"""Configured language models: endpoints, prices, and the usage that providers report. Does not import openai, because the settings need it."""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Annotated, Any, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from keryx import secrets
from keryx.agents.llm import known_models
from keryx.core.errors import AgentFailed
from keryx.core.texts import Phrase
from keryx.core.turns import Count
from keryx.core.usage import Usage
from keryx.jsonrpc import Json, as_object

# The base URL of the model that runs in this process.
LOCAL_BASE_URL = "local:"
CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_IMAGE = 1000
_ADDRESS_RULE = "write an address that begins with https:// or http://"
HttpAddress: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=rf"^(https?://.|{LOCAL_BASE_URL}$)", description=_ADDRESS_RULE)
]
OptionalHttpAddress: TypeAlias = Annotated[
    str, msgspec.Meta(pattern=r"^(https?://.+)?$", description=_ADDRESS_RULE)
]
_Price: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices per million tokens."""

    input: _Price = 0
    output: _Price = 0
    # As much as output if `None`.
    reasoning: _Price | None = None
    # As much as input if `None`.
    cache_read: _Price | None = None
    cache_write: _Price | None = None

    def compute_cost(self, usage: Usage) -> int:
        """Return the cost in millionths of the currency. A price per million tokens is a price in millionths per token."""
        classes = (
            (usage.input, self.input),
            (usage.output, self.output),
            (usage.reasoning, self.output if self.reasoning is None else self.reasoning),
            (usage.cache_read, self.input if self.cache_read is None else self.cache_read),
            (usage.cache_write, self.input if self.cache_write is None else self.cache_write),
        )
        return round(sum(tokens * price for tokens, price in classes))


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model behind an OpenAI-compatible endpoint."""

    # Its name for users.
    name: Annotated[str, msgspec.Meta(min_length=1, description="write a name")]
    base_url: HttpAddress
    # Its name at the endpoint.
    id: str
    # A reference, `env:NAME` or `file:PATH`, never the key itself.
    key: str = ""
    # In tokens. This and the next three are those of the known model of this name if they are not set.
    context: Count | None = None
    images: bool | None = None
    files: bool | None = None
    audio: bool | None = None
    prices: Prices | None = None
    tools: bool = True
    # The endpoint reports usage in a stream if asked to.
    usage: bool = True
    # It writes the titles of conversations.
    titles: bool = True
    # The request field for earlier reasoning beside tool calls, such as `reasoning_content`; empty to omit it.
    replay: str = ""
    # Added to each request as they are.
    options: dict[str, Any] = {}
    # The names of models that answer in its place, in this order, while it is down or has reached a limit.
    fallback: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.name in self.fallback or len(set(self.fallback)) < len(self.fallback):
            raise ValueError("fallback: name other models, each of them once")
        if self.key and not self.key.startswith(("env:", "file:")):
            raise ValueError("key: write env:NAME or file:PATH, not the key itself")
        known = known_models.find(self.id)
        defaults = (
            ("context", self.context, known.context),
            ("images", self.images, known.images),
            ("files", self.files, known.files),
            ("audio", self.audio, known.audio),
        )
        for name, value, default in defaults:
            if value is None:
                msgspec.structs.force_setattr(self, name, default)

    @property
    def host(self) -> str:
        """The endpoint without path, user name and password, so that it can be shown."""
        return urlsplit(self.base_url).hostname or self.base_url

    @property
    def port(self) -> int:
        url = urlsplit(self.base_url)
        return url.port or (443 if url.scheme == "https" else 80)

    @property
    def is_local(self) -> bool:
        """Whether the endpoint is on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


class Endpoint(msgspec.Struct, frozen=True):
    """The address of a model with its key in clear text. Never stored."""

    base_url: str
    key: str = ""


class Models:
    """The configured models. `default` names the model of sessions that have chosen none."""

    def __init__(self, models: Iterable[Model], *, default: str = "") -> None:
        self._models = {m.name: m for m in models}
        self._default = default or next(iter(self._models), "")

    @property
    def names(self) -> list[str]:
        return list(self._models)

    def list_chain(self, name: str | None) -> list[Model]:
        """Return the model of this name, or the default, and then its fallbacks."""
        first = self.pick(name)
        return [first, *(self._models[other] for other in first.fallback if other in self._models)]

    def pick(self, name: str | None) -> Model:
        """Return the model of this name, or the default. Raise `AgentFailed` if there is none."""
        wanted = name or self._default
        if model := self._models.get(wanted):
            return model
        if not self._models:
            raise AgentFailed(Phrase("model.none"))
        known = ", ".join(self._models)
        raise AgentFailed(Phrase("model.unknown", name=repr(wanted), choices=known))


def resolve_endpoint(model: Model, environ: Mapping[str, str] | None = None) -> Endpoint:
    """Read the key of a model. Blocking if it is in a file."""
    key = (
        secrets.read(model.key, Phrase("secret.of_model", name=repr(model.name)), environ)
        if model.key
        else ""
    )
    return Endpoint(model.base_url, key)


def parse_usage(raw: Json | None, model: Model, messages: Sequence[Json] = ()) -> Usage:
    """Return the usage of a request. The cost is that of the provider if reported, else computed from the prices, else
    unknown. Without a report only the size of the context is estimated."""
    if raw is None:
        return Usage(model=model.name, context_used=estimate_tokens(messages), context_limit=model.context)
    prompt, completion = _read_count(raw, "prompt_tokens"), _read_count(raw, "completion_tokens")
    sent, made = as_object(raw.get("prompt_tokens_details")), as_object(raw.get("completion_tokens_details"))
    read = min(_read_count(sent, "cached_tokens") or _read_count(raw, "prompt_cache_hit_tokens"), prompt)
    write = min(_read_count(sent, "cache_write_tokens"), prompt - read)
    reasoning = min(_read_count(made, "reasoning_tokens"), completion)
    counted = Usage(
        model=model.name,
        input=prompt - read - write,
        output=completion - reasoning,
        reasoning=reasoning,
        cache_read=read,
        cache_write=write,
    )
    reported = raw.get("cost")
    computed = model.prices.compute_cost(counted) if model.prices else None
    actual = isinstance(reported, int | float)
    return msgspec.structs.replace(
        counted,
        cost=round(reported * 1_000_000) if actual else computed,
        estimated=not actual,
        context_used=prompt + completion,
        context_limit=model.context,
    )


def estimate_tokens(messages: Sequence[Json]) -> int:
    """Estimate the number of tokens of a request."""
    size = 0
    for message in messages:
        content = message.get("content")
        size += len(str(message.get("tool_calls", "")))
        if isinstance(content, str):
            size += len(content)
            continue
        for part in cast(list[Json], content or ()):
            text = part.get("type") == "text"
            size += len(part["text"]) if text else _TOKENS_PER_IMAGE * CHARACTERS_PER_TOKEN
    return size // CHARACTERS_PER_TOKEN


def _read_count(raw: Json, name: str) -> int:
    value = raw.get(name)
    return max(0, int(value)) if isinstance(value, int | float) else 0
