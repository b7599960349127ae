"""The settings of a platform, read from its table in keryx.toml and from the environment, those of the relay, and the placeholder for an adapter that cannot be built."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, get_type_hints
from urllib.parse import urlsplit

import msgspec

from keryx import config_errors, settings_file
from keryx.config_errors import WrongSetting
from keryx.core.deliveries import Target
from keryx.core.errors import Invalid, NotSent, Unavailable
from keryx.core.ports.adapter import AdapterContext, Capabilities, OutgoingPart, RenderedPart
from keryx.core.ports.relay import RelayLimits
from keryx.core.turns import Count
from keryx.secrets import Secret

ENTRY_POINT_GROUP = "keryx.adapters"
"""The entry points of adapters: `<platform> = "module:make"`. `make` takes an `AdapterSetup` and returns an `Adapter`,
or `None` if its platform is not configured."""

_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
RELAY_KEY_VARIABLE = "KERYX_RELAY_KEY"

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
            found = config_errors.convert(values, kind, table=self.label, dec_hook=decode_secret)
        except WrongSetting as wrong:
            variable = self.variable_name(wrong.name.removeprefix(f"{self.label}."))
            if self.environ.get(variable):
                raise Invalid(f"{variable}: {wrong}") from wrong
            raise Invalid(config_errors.describe(self.home / "keryx.toml", wrong)) from wrong
        return self._name_secrets(found)

    def require(self, **settings: object) -> None:
        """Raise `Invalid`, which says what to do, for the first of these settings that is empty."""
        for name, value in settings.items():
            if not value:
                raise Invalid(
                    f"{self.label}.{name} is missing: run `{self.command}`, or set {self.variable_name(name)}"
                )

    @property
    def label(self) -> str:
        """The name of the table in keryx.toml."""
        return f"{self.platform}.{self.name}" if self.name else self.platform

    @property
    def command(self) -> str:
        """The command that sets the account up."""
        return f"keryx gateway setup {self.platform}" + (f" --name {self.name}" if self.name else "")

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


def build_interval(per_second: float) -> timedelta:
    """Return the shortest time between two sends for a setting that limits their rate; 0 means unlimited."""
    return timedelta(seconds=1 / per_second) if per_second > 0 else timedelta(0)


class RelaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The relay: `listen` on the connector, which holds the bots, and `url` on an instance, which answers."""

    listen: str = ""  # HOST:PORT at which instances connect
    events: Count = 10_000  # kept for each instance that is away; later ones are not taken
    size: Count = 50_000_000  # of their texts, in bytes
    age: timedelta = timedelta(days=7)  # after which they are dropped
    notice_after: timedelta = timedelta(minutes=1)  # then people are told that their messages wait
    url: str = ""  # ws:// or wss:// of the connector
    # Where the key is: env:NAME or file:PATH. The variable KERYX_RELAY_KEY takes precedence.
    key_from: str = ""
    plain: bool = False  # allow ws:// to another machine, through a tunnel that encrypts

    def __post_init__(self) -> None:
        if self.age <= timedelta(0):
            raise ValueError("age: give more than 0s")
        if self.listen:
            self.address  # noqa: B018 raises if it is wrong
        parts = urlsplit(self.url)
        if self.url and (parts.scheme not in ("ws", "wss") or not parts.hostname):
            raise ValueError("url: write wss://HOST or ws://HOST:PORT")
        if parts.scheme == "ws" and not self.plain and parts.hostname not in _LOOPBACK_HOSTS:
            raise ValueError(
                "url: ws:// is not encrypted; write wss://, or set plain = true if a tunnel encrypts it"
            )
        Secret(self.key_from, what="key")

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port of `listen`."""
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal() or not 0 <= int(port) <= 65_535:
            raise ValueError("listen: write HOST:PORT, such as 127.0.0.1:7338")
        return host.strip("[]"), int(port)

    @property
    def limits(self) -> RelayLimits | None:
        """The limits of the queues of a connector; `None` if this Keryx is none."""
        if not self.listen:
            return None
        return RelayLimits(events=self.events, size=self.size, age=self.age, notice_after=self.notice_after)

    def read_key(self, environ: Mapping[str, str] | None = None) -> str:
        """Return the key of an instance. Raise `Invalid` if it is missing."""
        environ = os.environ if environ is None else environ
        given = environ.get(RELAY_KEY_VARIABLE, "").strip()
        if not given and not self.key_from:
            raise Invalid(f"relay.key_from is missing: set it, or the variable {RELAY_KEY_VARIABLE}")
        return given or Secret(self.key_from, name="relay.key_from").reveal(environ)


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
