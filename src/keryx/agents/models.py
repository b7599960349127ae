"""Models: what is known of each named model, and how its key is found when it is needed."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec

from keryx import secrets
from keryx.core.errors import AgentFailed

LOCAL = "local:"
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
    def near(self) -> bool:
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


def resolve(model: Model, environ: Mapping[str, str] | None = None) -> Endpoint:
    """Read the key of a model. Blocks for as long as it takes to read a small file."""
    key = secrets.read(model.key, f"The key of model {model.name!r}", environ) if model.key else ""
    return Endpoint(model.base_url, key)
