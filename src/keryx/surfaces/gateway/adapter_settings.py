"""The settings of a platform, read from its table in keryx.toml and from the environment, and the placeholder for an adapter that cannot be built."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from keryx.core.deliveries import Target
from keryx.core.errors import Invalid, NotSent, Unavailable
from keryx.core.ports.adapter import AdapterContext, Capabilities, OutgoingPart, RenderedPart
from keryx.secrets import Secret

ENTRY_POINT_GROUP = "keryx.adapters"
"""The group of entry points that adapters are found by: `<platform> = "module:make"`. `make` takes a `Setup` and
gives an `Adapter`, or `None` when nothing of its platform is set."""

Kind = TypeVar("Kind", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSetup:
    """What is said about one platform, not yet read: `table` from keryx.toml, and variables `KERYX_<PLATFORM>_<NAME>`
    of the environment, which win. `home` is the folder of Keryx."""

    platform: str
    home: Path
    table: Mapping[str, Any] = field(default_factory=dict[str, Any])
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def read(self, kind: type[Kind]) -> Kind | None:
        """The settings as the adapter knows them; `None` when none is given. A variable for a `Secret` holds the
        secret itself; any other holds the value as the file would. `Invalid` names what is wrong; give `kind`
        `forbid_unknown_fields`, so that a misspelt name is."""
        values = {**self.table, **self._read_variables(kind)}
        if not values:
            return None
        try:
            return msgspec.convert(values, kind, strict=False, dec_hook=_decode_secret)
        except msgspec.ValidationError as exc:
            what, _, where = str(exc).partition(" - at `$.")
            place = f"{self.platform}.{where.rstrip('`')}" if where else f"[{self.platform}]"
            raise Invalid(f"the configuration is wrong: {place}: {what}") from exc

    def variable_name(self, name: str) -> str:
        """The variable of a setting: KERYX_TELEGRAM_BASE_URL for `base_url` of telegram."""
        return f"KERYX_{self.platform}_{name}".upper().replace("-", "_")

    def _read_variables(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        given = {name: self.variable_name(name) for name in get_type_hints(kind)}
        return {
            name: f"env:{variable}" if hint is Secret else self.environ[variable]
            for (name, variable), hint in zip(given.items(), get_type_hints(kind).values(), strict=True)
            if self.environ.get(variable)
        }


def _decode_secret(kind: type[Any], value: Any) -> Any:
    if kind is not Secret:
        raise NotImplementedError(f"a setting cannot be {kind.__name__}")
    return Secret(str(value))


class BrokenAdapter:
    """Stands in for an adapter that could not be built: deliveries wait, and `reason` is shown."""

    account = ""
    hook = None
    # Accept any access rule: the capabilities of the platform are unknown.
    capabilities = Capabilities(roles=("*",), threads=True)

    def __init__(self, platform: str, reason: str) -> None:
        self.platform = platform
        self._reason = reason

    async def listen(self, context: AdapterContext) -> None:
        raise Unavailable(self._reason)

    async def typing(self, target: Target) -> None:
        """Nothing is shown."""

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return [RenderedPart(text)]

    async def send(self, part: OutgoingPart) -> str:
        raise NotSent(self._reason)
