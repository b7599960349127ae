"""Configured models: endpoints, prices, and the usage that providers report. Does not import openai."""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Any, TypeAlias, cast
from urllib.parse import urlsplit

import msgspec

from keryx import secrets
from keryx.core.errors import AgentFailed
from keryx.core.usage import Usage

LOCAL_BASE_URL = "local:"
_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_IMAGE = 1000

Json: TypeAlias = dict[str, Any]
"""The base URL of the model that runs in this process."""


class Prices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices per million tokens. Reasoning costs as much as output, and cached input as much as input, unless
    it is said otherwise."""

    input: float = 0
    output: float = 0
    reasoning: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model behind an OpenAI-compatible endpoint, under the name by which people choose it.

    `key` is a reference, `env:NAME` or `file:PATH`, never the key itself. `context` is in tokens. `usage`: the
    endpoint can be asked for usage in a stream. `titles`: it names conversations. `replay` names the field in which the endpoint wants to see
    its own reasoning again beside tool calls, such as `reasoning_content`. `options` go into each request as
    they are.
    """

    name: str
    base_url: str
    id: str
    key: str = ""
    context: int | None = None
    prices: Prices | None = None
    images: bool = False
    files: bool = False
    audio: bool = False
    tools: bool = True
    usage: bool = True
    titles: bool = True
    replay: str = ""
    options: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if self.key and not self.key.startswith(("env:", "file:")):
            raise ValueError(f"key of model {self.name!r}: write env:NAME or file:PATH, not the key itself")

    @property
    def host(self) -> str:
        """The endpoint as it may be shown: without a path, a user name or a password."""
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
    """Where a model is reached, with the key in clear. Lives as short as a request, and is never stored."""

    base_url: str
    key: str = ""


class Models:
    """The configured models. `default` names the one that sessions use which have chosen none."""

    def __init__(self, models: Iterable[Model], *, default: str = "") -> None:
        self._models = {m.name: m for m in models}
        self._default = default or next(iter(self._models), "")

    @property
    def names(self) -> list[str]:
        return list(self._models)

    def pick(self, name: str | None) -> Model:
        """The model of this name, or the default. Raises `AgentFailed` when there is none."""
        wanted = name or self._default
        if found := self._models.get(wanted):
            return found
        if not self._models:
            raise AgentFailed("No model is configured: add one under [[models]] in keryx.toml.")
        known = ", ".join(self._models)
        raise AgentFailed(f"There is no model {wanted!r}: choose one of {known} with /model.")


def resolve_endpoint(model: Model, environ: Mapping[str, str] | None = None) -> Endpoint:
    """Read the key of a model. Blocks for as long as it takes to read a small file."""
    key = secrets.read(model.key, f"The key of model {model.name!r}", environ) if model.key else ""
    return Endpoint(model.base_url, key)


def parse_usage(raw: Json | None, model: Model, messages: Sequence[Json] = ()) -> Usage:
    """What a request used. The cost is the provider's own where it tells, else by the prices, else unknown;
    without counts, only the size of the context is estimated."""
    if raw is None:
        return Usage(model=model.name, context_used=estimate_tokens(messages), context_limit=model.context)
    prompt, completion = _read_count(raw, "prompt_tokens"), _read_count(raw, "completion_tokens")
    sent, made = _read_group(raw, "prompt_tokens_details"), _read_group(raw, "completion_tokens_details")
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
    return _add_cost(counted, raw, model, prompt + completion)


def estimate_tokens(messages: Sequence[Json]) -> int:
    """About how many tokens a request has."""
    return sum(_count_characters(m) for m in messages) // _CHARACTERS_PER_TOKEN


def _add_cost(usage: Usage, raw: Json, model: Model, context: int) -> Usage:
    told = raw.get("cost")
    actual = isinstance(told, int | float)
    cost = round(told * 1_000_000) if actual else _compute_cost(usage, model.prices)
    return msgspec.structs.replace(
        usage, cost=cost, estimated=not actual, context_used=context, context_limit=model.context
    )


def _compute_cost(usage: Usage, prices: Prices | None) -> int | None:
    """In millionths of the currency: a price per million tokens is a price in millionths per token."""
    if prices is None:
        return None
    classes = (
        (usage.input, prices.input),
        (usage.output, prices.output),
        (usage.reasoning, prices.output if prices.reasoning is None else prices.reasoning),
        (usage.cache_read, prices.input if prices.cache_read is None else prices.cache_read),
        (usage.cache_write, prices.input if prices.cache_write is None else prices.cache_write),
    )
    return round(sum(tokens * price for tokens, price in classes))


def _read_count(raw: Json, name: str) -> int:
    value = raw.get(name)
    return max(0, int(value)) if isinstance(value, int | float) else 0


def _read_group(raw: Json, name: str) -> Json:
    value: Any = raw.get(name)
    return cast(Json, value) if isinstance(value, dict) else {}


def _count_characters(message: Json) -> int:
    content = message.get("content")
    size = len(str(message.get("tool_calls", "")))
    if isinstance(content, str):
        return size + len(content)
    for part in cast(list[Json], content or ()):
        size += len(part["text"]) if part.get("type") == "text" else _TOKENS_PER_IMAGE * _CHARACTERS_PER_TOKEN
    return size
