"""Opens settings, store, adapters and hub for one command, and configures logging. Loads no agent, so that short commands start fast."""

import logging
import os
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from keryx import config, logs
from keryx.config import LogFormat, Settings
from keryx.core import ids
from keryx.core.clock import Clock
from keryx.core.deliveries import LOCAL, parse_targets
from keryx.core.errors import Invalid, KeryxError, StoreBroken, format_install_command
from keryx.core.ids import OPERATOR
from keryx.core.ports.adapter import Adapter, PlatformReach
from keryx.core.ports.relay import parse_key
from keryx.core.sessions import Viewer
from keryx.core.source import SourceRule
from keryx.engine import threaded_adapter
from keryx.engine.hub import Hub
from keryx.engine.loops.feed import Feed
from keryx.engine.policy import Policy, check_access, map_reach, name_accounts
from keryx.plugin_thread import name_error
from keryx.store.db import Database
from keryx.store.db.metrics import MeteredDatabase
from keryx.store.db.session_keys import SessionKeys
from keryx.store.db.sqlite import LOST_REMEDY, SqliteDatabase, has_content, has_stray_log
from keryx.store.search.fts5 import has_documents
from keryx.surfaces.gateway.adapter_settings import ENTRY_POINT_GROUP, AdapterSetup, BrokenAdapter
from keryx.surfaces.gateway.local_files import LocalAdapter
from keryx.timing import SystemClock

if TYPE_CHECKING:
    from keryx.surfaces.gateway.relay.instance import RelayLink

log = logging.getLogger(__name__)
_OWN_PACKAGE = "keryx"


class BaseApp:
    """The store, the platforms that can be sent to, and the hub over both, built from the settings."""

    def __init__(
        self, settings: Settings, *, adapters: Sequence[Adapter] = (), database: Database | None = None
    ) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self.viewer = Viewer(ids.parse_profile(settings.profile), OPERATOR)
        self._adapters = adapters
        self._database = database

    @cached_property
    def database(self) -> MeteredDatabase:
        return MeteredDatabase(self._database or open_database(self.settings, self.clock))

    @asynccontextmanager
    async def hub(self) -> AsyncGenerator[Hub]:
        """Open the store and the hub, without background tasks."""
        async with self.database, self.open_hub(self.policy) as hub:
            yield hub

    @asynccontextmanager
    async def open_hub(self, policy: Policy) -> AsyncGenerator[Hub]:
        """Open the hub over an open store."""
        feed = Feed(self.database, self.clock)
        with closing(Hub(self.database, policy=policy, feed=feed)) as hub:
            yield hub

    @cached_property
    def all_adapters(self) -> list[Adapter]:
        """The adapter of each account. Raise `Invalid` if their settings are wrong."""
        local = LocalAdapter(self.settings.folder / "outbox")
        adapters: list[Adapter] = [local, *self._adapters, *self._configured_adapters.values()]
        for relayed in self.relay_link.build_adapters() if self.relay_link else ():
            if any((a.platform, a.account) == (relayed.platform, relayed.account) for a in adapters):
                raise Invalid(
                    f"[{relayed.platform}] and the relay have the same account: take [{relayed.platform}] out here"
                )
            adapters.append(relayed)
        check_access(self._named_policy.access, adapters)
        return adapters

    @cached_property
    def relay_link(self) -> "RelayLink | None":
        """The connection to the connector, if this Keryx is an instance of a relay. Raise `Invalid` if its key is wrong."""
        settings = self.settings.relay
        if not settings.url:
            return None
        from keryx.surfaces.gateway.relay.instance import RelayLink  # noqa: PLC0415 costs nothing unless it is used

        return RelayLink(settings.url, parse_key(settings.read_key()), self.settings.folder)

    def find_unknown_variables(self) -> list[str]:
        """Return a sentence for each variable that looks like a setting and is none. Loads the adapters, which know their
        settings; what is wrong with those, `all_adapters` raises."""
        with suppress(KeryxError):
            _ = self._configured_adapters
        return config.find_unknown_variables(os.environ, self._setups)

    def find_unknown_places(self) -> list[tuple[str, str]]:
        """Return a sentence for each setting that names a platform or an account that is not there, and what is there. What is
        wrong with the settings of adapters, `all_adapters` raises."""
        platforms = config.list_platforms()
        found = [
            (f"{where}: there is no platform {name!r}.", _suggest_name(name, platforms))
            for where, name in _list_named_platforms(self.settings)
            if name.partition(".")[0] not in platforms
        ]
        with suppress(KeryxError):
            found += self._find_unknown_accounts()
        return found

    def _find_unknown_accounts(self) -> Iterator[tuple[str, str]]:
        """Report rules for accounts that are not connected. The accounts of a relay are known when it is connected."""
        accounts: dict[str, set[str]] = {}
        for label, adapter in self._configured_adapters.items() if not self.settings.relay.url else ():
            platform, _, name = label.partition(".")
            accounts.setdefault(platform, set()).update({name or adapter.account, adapter.account})
        for where, rule in _list_rules(self.settings):
            known = {a for p, names in accounts.items() if rule.platform in ("", p) for a in names}
            if rule.account and known and rule.account not in known:
                of = f" of {rule.platform}" if rule.platform else ""
                text = f"{where}.account: there is no account {rule.account!r}{of}, so the rule fits nothing."
                yield text, _suggest_name(rule.account, sorted(known))

    @cached_property
    def _setups(self) -> list[AdapterSetup]:
        return config.list_setups(self.settings)

    @cached_property
    def _configured_adapters(self) -> dict[str, Adapter]:
        return load_adapters(self._setups)

    @cached_property
    def _named_policy(self) -> Policy:
        names = {name: a.account for name, a in self._configured_adapters.items() if "." in name}
        return name_accounts(self.settings.policy, names)

    @property
    def policy(self) -> Policy:
        """The policy of the settings, in which the names of accounts are resolved if any are used."""
        if not any("." in name for name in self.settings.access) and not self.settings.has_named_accounts:
            return self.settings.policy
        try:
            return self._named_policy
        except Invalid as exc:
            log.info("the names of accounts are not known in this process: %s", exc)
            return self.settings.policy

    @property
    def usable_adapters(self) -> list[Adapter]:
        """All adapters, or those that need no secret if one is missing, as in a terminal."""
        try:
            return self.all_adapters
        except Invalid as exc:
            log.info("platforms are not available in this process: %s", exc)
            return [LocalAdapter(self.settings.folder / "outbox"), *self._adapters]

    @property
    def reachable_platforms(self) -> dict[str, PlatformReach]:
        """The platforms that can be sent to."""
        return map_reach(self.usable_adapters, self.policy.account_names)


def _list_rules(settings: Settings) -> Iterator[tuple[str, SourceRule]]:
    """Return the rules of profiles and agents, with their names."""
    owners = (("profiles", settings.profiles), ("agents", settings.agents))
    for table, owner in ((f"{kind}.{name}", owner) for kind, all_ in owners for name, owner in all_.items()):
        for number, rule in enumerate(owner.rules):
            yield f"{table}.rules[{number}]", rule


def _list_named_platforms(settings: Settings) -> Iterator[tuple[str, str]]:
    """Return the settings that name a platform, with its name."""
    yield from ((f"access.{name}", name) for name in settings.access)
    yield from ((f"resets.platforms.{name}", name) for name in settings.resets.platforms)
    yield from ((f"resets.places.{name}", name) for name in settings.resets.places)
    yield from ((f"notices.no_resets: {name}", name) for name in settings.notices.no_resets)
    yield from (
        (f"{where}.platform", rule.platform) for where, rule in _list_rules(settings) if rule.platform
    )
    if settings.watch.person:
        yield "watch.person", settings.watch.person.partition(":")[0]
    for target in parse_targets(settings.jobs.fallback) if settings.jobs.fallback else ():
        if target.platform != LOCAL:
            yield "jobs.fallback", target.platform


def _suggest_name(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"


def load_adapters(setups: Iterable[AdapterSetup]) -> dict[str, Adapter]:
    """Load the adapter of each configured account, by the name of its table, those of other packages in threads of their
    own. Raise `Invalid` if the settings of one are wrong, once all were read; an adapter that fails to load otherwise does
    not affect the others."""
    factories = {entry.name: entry for entry in entry_points(group=ENTRY_POINT_GROUP)}
    adapters: dict[str, Adapter] = {}
    wrong: list[KeryxError] = []
    for setup in setups:
        factory = factories[setup.platform]
        try:
            adapter = _load_adapter(factory, setup)
        except KeryxError as exc:
            wrong.append(exc)
            continue
        except Exception as exc:
            log.exception("the adapter of %s failed to load", setup.platform)
            adapter = BrokenAdapter(
                setup.platform,
                f"the adapter, {factory.value}, cannot be used ({name_error(exc)}): the log has the details",
                setup.name,
            )
        if adapter is None:
            continue
        same = [
            n for n, a in adapters.items() if (a.platform, a.account) == (adapter.platform, adapter.account)
        ]
        if same:
            raise Invalid(f"[{same[0]}] and [{setup.label}] are the same account: take one of them out")
        adapters[setup.label] = adapter
    if wrong:
        raise wrong[0]
    return adapters


def _load_adapter(factory: EntryPoint, setup: AdapterSetup) -> Adapter | None:
    if factory.module.partition(".")[0] == _OWN_PACKAGE:
        return factory.load()(setup)
    return threaded_adapter.load(setup.platform, lambda: factory.load()(setup))


def check_not_lost(store: Path) -> None:
    """Raise `StoreBroken` if a SQLite store is gone and has left its log or its search index: a new one would hide that."""
    if not has_content(store) and (has_stray_log(store) or has_documents(store)) and not has_content(store):
        raise StoreBroken(f"there is no {store} any more, or it is empty: {LOST_REMEDY}")


def open_database(settings: Settings, clock: Clock | None = None, *, inspect: bool = False) -> Database:
    """Return the store of the settings, not yet open. With `inspect` it is neither created nor changed by opening it."""
    if not settings.on_postgres:
        check_not_lost(Path(settings.store))
        return _set_keys(SqliteDatabase(settings.store, clock=clock, inspect=inspect), settings)
    try:
        from keryx.store.db.postgres import PostgresDatabase  # noqa: PLC0415 an optional extra
    except ImportError as exc:
        raise Invalid(f"PostgreSQL needs an extra: run `{format_install_command('postgres')}`") from exc
    return _set_keys(PostgresDatabase(settings.store, clock=clock, inspect=inspect), settings)


def _set_keys(database: Database, settings: Settings) -> Database:
    """Keep the keys of temporary sessions in the folder of the settings, if they name one."""
    if settings.temporary.keys:
        database.keys = SessionKeys(Path(settings.temporary.keys).expanduser())
    return database


def configure_logging(settings: Settings, file: Path | None = None) -> None:
    """Log to stderr, or to a file. Log lines contain no message text and no secrets."""
    level = logging.getLevelNamesMapping()[settings.log_level.name]
    logs.configure(level, as_json=settings.log_format is LogFormat.JSON, file=file)
