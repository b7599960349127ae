"""The settings of a platform, read from its table in keryx.toml and from the environment, and the placeholder for an adapter that cannot be built."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec

from keryx import setting_errors, settings_file
from keryx.core.deliveries import Target
from keryx.core.errors import Invalid, NotSent, Unavailable
from keryx.core.ports.adapter import AdapterContext, Capabilities, OutgoingPart, RenderedPart
from keryx.secrets import Secret

ENTRY_POINT_GROUP = "keryx.adapters"
"""The entry points of adapters: `<platform> = "module:make"`. `make` takes an `AdapterSetup` and returns an `Adapter`,
or `None` if its platform is not configured."""

Kind = TypeVar("Kind", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSetup:
    """The raw settings of one account of a platform."""

    platform: str
    # The name of the account if the platform has several: `work` of `[telegram.work]`.
    name: str = ""
    # The folder of Keryx.
    home: Path
    # The table in keryx.toml, without the tables of accounts below it.
    table: Mapping[str, Any] = field(default_factory=dict[str, Any])
    # Variables `KERYX_<PLATFORM>_<SETTING>`, or `KERYX_<PLATFORM>_<NAME>_<SETTING>`, take precedence over the table.
    environ: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    # The names of the settings that the adapter has. They are known after `read`, for all accounts of the platform.
    names: set[str] = field(default_factory=set[str], compare=False, repr=False)

    def read(self, kind: type[Kind]) -> Kind | None:
        """Return the settings as `kind`, or `None` if there are none. Raise `Invalid` with the name of a wrong setting;
        `kind` should forbid unknown fields, so that a misspelt name is an error.

        The variable of a `Secret` contains the secret itself, any other variable the value as in keryx.toml."""

        def decode_secret(hint: type[Any], value: Any) -> Any:
            if hint is not Secret:
                raise NotImplementedError(f"a setting cannot be {hint.__name__}")
            return Secret(str(value))

        self.names.update(get_type_hints(kind))
        values = {**self.table, **self._read_variables(kind)}
        if not values:
            return None
        try:
            found = msgspec.convert(values, kind, strict=False, dec_hook=decode_secret)
        except msgspec.ValidationError as exc:
            wrong = setting_errors.explain(str(exc), kind, table=self.label)
            variable = self.variable_name(wrong.name.removeprefix(f"{self.label}."))
            if self.environ.get(variable):
                raise Invalid(f"{variable}: {wrong}") from exc
            raise Invalid(setting_errors.describe(self.home / "keryx.toml", wrong)) from exc
        return self._name_secrets(found)

    @property
    def label(self) -> str:
        """The name of the table in keryx.toml."""
        return f"{self.platform}.{self.name}" if self.name else self.platform

    @property
    def hook_path(self) -> str:
        """The path below `/hooks/` for an adapter with a hook."""
        return self.label.replace(".", "/")

    @property
    def variables(self) -> set[str]:
        """The variables of all settings of the adapter, once they are read."""
        return {self.variable_name(name) for name in self.names}

    def variable_name(self, name: str) -> str:
        """Return the variable of a setting: KERYX_TELEGRAM_BASE_URL for `base_url` of telegram."""
        return settings_file.format_variable(self.label, name)

    def _read_variables(self, kind: type[msgspec.Struct]) -> dict[str, Any]:
        hints = get_type_hints(kind)
        variables = {name: self.variable_name(name) for name in hints}
        return {
            name: f"env:{variable}" if hints[name] is Secret else self.environ[variable]
            for name, variable in variables.items()
            if self.environ.get(variable)
        }

    def _name_secrets(self, settings: Kind) -> Kind:
        """Return settings whose secrets know what they are called, for errors."""
        values = msgspec.structs.asdict(settings)
        named = {
            name: Secret(value.reference, name=f"{self.label}.{name}")
            for name, value in values.items()
            if isinstance(value, Secret)
        }
        return msgspec.structs.replace(settings, **named)


class BrokenAdapter:
    """The placeholder for an adapter that could not be built: its deliveries wait, and `reason` is shown."""

    hook = None
    # Accept any access rule: the capabilities of the platform are unknown.
    capabilities = Capabilities(roles=("*",), threads=True)

    def __init__(self, platform: str, reason: str, account: str = "") -> None:
        self.platform = platform
        self.account = account
        self._reason = reason

    async def listen(self, context: AdapterContext) -> None:
        raise Unavailable(self._reason)

    async def typing(self, target: Target) -> None:
        """Do nothing."""

    def parts(self, text: str) -> Sequence[RenderedPart]:
        return [RenderedPart(text)]

    async def send(self, part: OutgoingPart) -> str:
        raise NotSent(self._reason)
