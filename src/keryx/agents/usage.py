"""Usage: the token counts of providers as five classes that do not overlap, and what they cost."""

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from keryx.agents.media import Json
from keryx.agents.models import Model, Prices
from keryx.core.turns import Usage

_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_IMAGE = 1000


def of(raw: Json | None, model: Model, messages: Sequence[Json] = ()) -> Usage:
    """What a request used. The cost is the provider's own where it tells, else by the prices, else unknown;
    without counts, only the size of the context is estimated."""
    if raw is None:
        return Usage(model=model.name, context_used=estimate(messages), context_limit=model.context)
    prompt, completion = _count(raw, "prompt_tokens"), _count(raw, "completion_tokens")
    sent, made = _group(raw, "prompt_tokens_details"), _group(raw, "completion_tokens_details")
    read = min(_count(sent, "cached_tokens") or _count(raw, "prompt_cache_hit_tokens"), prompt)
    write = min(_count(sent, "cache_write_tokens"), prompt - read)
    reasoning = min(_count(made, "reasoning_tokens"), completion)
    counted = Usage(
        model=model.name,
        input=prompt - read - write,
        output=completion - reasoning,
        reasoning=reasoning,
        cache_read=read,
        cache_write=write,
    )
    return _priced(counted, raw, model, prompt + completion)


def estimate(messages: Sequence[Json]) -> int:
    """About how many tokens a request has."""
    return sum(_size(m) for m in messages) // _CHARACTERS_PER_TOKEN


def _priced(usage: Usage, raw: Json, model: Model, context: int) -> Usage:
    told = raw.get("cost")
    actual = isinstance(told, int | float)
    cost = round(told * 1_000_000) if actual else _cost(usage, model.prices)
    return msgspec.structs.replace(
        usage, cost=cost, estimated=not actual, context_used=context, context_limit=model.context
    )


def _cost(usage: Usage, prices: Prices | None) -> int | None:
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


def _count(raw: Json, name: str) -> int:
    value = raw.get(name)
    return max(0, int(value)) if isinstance(value, int | float) else 0


def _group(raw: Json, name: str) -> Json:
    value: Any = raw.get(name)
    return cast(Json, value) if isinstance(value, dict) else {}


def _size(message: Json) -> int:
    content = message.get("content")
    size = len(str(message.get("tool_calls", "")))
    if isinstance(content, str):
        return size + len(content)
    for part in cast(list[Json], content or ()):
        size += len(part["text"]) if part.get("type") == "text" else _TOKENS_PER_IMAGE * _CHARACTERS_PER_TOKEN
    return size
