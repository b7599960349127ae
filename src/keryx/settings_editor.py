"""Changes of keryx.toml from the page: models, tools, agents, profiles and the password, each checked as a whole before it is written; and tests of models, tools and agents."""

import os
import re
import shlex
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import msgspec

from keryx import bootstrap, config, secrets, settings_file
from keryx.agents import agent_config
from keryx.agents.acp.probe import probe
from keryx.agents.agent_config import AgentConfig, AgentKind, ToolServerConfig
from keryx.agents.llm import Model, Prices, local_model
from keryx.agents.tools import Permission, ToolFailed, decide_permission
from keryx.config import Settings
from keryx.core import ids
from keryx.core.clock import Clock
from keryx.core.errors import AgentFailed, Conflict, Invalid, NotFound, Unavailable, format_install_command
from keryx.core.ports.setup import (
    AgentCheck,
    AgentEntry,
    CheckedTool,
    ConfiguredParts,
    ModelEntry,
    ModelTest,
    ProfileEntry,
    ToolServerCheck,
    ToolServerEntry,
    WrongField,
)
from keryx.core.texts import Phrase

_MODEL_NAME = re.compile(r"[^\s/\\\x00-\x1f]{1,100}\Z")
_REFERENCE = ("env:", "file:", "text:")
_UNSAFE = re.compile(r"[^a-z0-9-]+")
_TEST_SECONDS = 60.0
_AGENT_SECONDS = 30.0
_QUESTION = "Reply with the single word: ready"
_PASSWORD_FILE = "web-password"


class SettingsEditor:
    """A `SetupService` over the folder of keryx.toml. `request_restart` lets the process start again."""

    def __init__(self, home: Path, clock: Clock, request_restart: Callable[[], None] | None = None) -> None:
        self._home = home
        self._clock = clock
        self._request_restart = request_restart
        self._environ = {**os.environ, "KERYX_HOME": str(home)}
        self._in_force = config.read(self._environ)
        # A secret can change while its file keeps its name.
        self._changed = False

    async def read(self) -> ConfiguredParts:
        return await anyio.to_thread.run_sync(self._read)

    async def save_model(self, entry: ModelEntry, *, secret: str = "") -> None:
        if not _MODEL_NAME.match(entry.name):
            raise WrongField("name", Phrase("setup.model_name"))
        written = _build_model_values(entry)
        items = settings_file.read_items(self._home, "models")
        old = next((item for item in items if item.get("name") == entry.name), None)
        if old and isinstance(written["prices"], dict):
            # Those of reasoning and of the cache are not in the form.
            written["prices"] = {**old.get("prices", {}), **written["prices"]}
        files: dict[str, str] = {}
        if secret:
            name = _name_secret("model", entry.name, "key")
            files[name] = _check_secret("secret", secret)
            written["key"] = f"file:{settings_file.find_secret(self._home, name)}"
        await self._save_item("models", entry.name, entry.revision, written, files)

    async def remove_model(self, name: str, revision: str) -> None:
        def update(text: str) -> str:
            new = settings_file.update_item(text, "models", name, None)
            chosen = config.read(self._environ, text=text).model == name
            return settings_file.update_text(new, "", {"model": None}) if chosen else new

        self._require_item("models", name, revision)
        await self._change(update)
        await self._remove_secrets([_name_secret("model", name, "key")])

    async def choose_model(self, name: str) -> None:
        chosen = config.read(self._environ)
        if name not in chosen.model_names:
            raise WrongField(
                "name", Phrase("setup.no_model", name=repr(name), choices=", ".join(chosen.model_names))
            )
        if self._environ.get("KERYX_MODEL"):
            raise Invalid(Phrase("setup.variable", variable="KERYX_MODEL"))
        await self._change(lambda text: settings_file.update_text(text, "", {"model": name}))

    async def choose_agent(self, name: str) -> None:
        names = config.read(self._environ).agent_names
        if name not in names:
            raise WrongField("name", Phrase("setup.choices", choices=", ".join(names)))
        if self._environ.get("KERYX_AGENT"):
            raise Invalid(Phrase("setup.variable", variable="KERYX_AGENT"))
        await self._change(lambda text: settings_file.update_text(text, "", {"agent": name}))

    async def test_model(self, entry: ModelEntry, *, secret: str = "") -> ModelTest:
        if entry.base_url == local_model.MODEL.base_url:
            raise Invalid(Phrase("setup.local"))
        values = _build_model_values(entry)
        with TemporaryDirectory() as folder:
            if secret:
                file = Path(folder) / "key"
                file.touch(mode=0o600)
                file.write_text(_check_secret("secret", secret), encoding="utf-8")
                values["key"] = f"file:{file}"
            given = {name: value for name, value in values.items() if value is not None}
            model = msgspec.convert({**given, "name": entry.name or entry.id}, Model)
            return await self._ask_model(model)

    async def save_tools(self, entry: ToolServerEntry) -> None:
        values, files = self._build_tool_values(entry)
        before = self._list_secrets("tools", self._find_item("tools", entry.name))
        await self._save_item("tools", entry.name, entry.revision, values, files)
        await self._remove_secrets(before - self._list_secrets("tools", values))

    async def remove_tools(self, name: str, revision: str) -> None:
        self._require_item("tools", name, revision)
        removed = self._find_item("tools", name)
        await self._change(lambda text: settings_file.update_item(text, "tools", name, None))
        await self._remove_secrets(self._list_secrets("tools", removed))

    async def check_tools(self, entry: ToolServerEntry) -> ToolServerCheck:
        try:
            # In a thread, because it takes half a second.
            await anyio.to_thread.run_sync(import_module, "keryx.agents.mcp")
            from keryx.agents.mcp import open_toolboxes  # noqa: PLC0415 an optional extra, and slow to import
        except ImportError as exc:
            raise Unavailable(
                f"tools need an extra ({exc.name} is missing): run `{format_install_command('tools')}`"
            ) from exc
        values, files = self._build_tool_values(entry)
        with TemporaryDirectory() as folder:
            home = Path(folder)
            for name, secret in files.items():
                settings_file.change(home, lambda text: text, {name: secret})
                moved = f"file:{settings_file.find_secret(home, name)}"
                stored = f"file:{settings_file.find_secret(self._home, name)}"
                for key in ("env", "headers"):
                    given: dict[str, str] = values[key] or {}
                    values[key] = {n: moved if v == stored else v for n, v in given.items()}
            server = _convert(
                {k: v for k, v in values.items() if v is not None} | {"name": entry.name or "tools"},
                ToolServerConfig,
            )
            async with open_toolboxes([server], clock=self._clock, logs=home) as found:
                (toolbox,) = found.values()
                try:
                    specs = await toolbox.refresh()
                except ToolFailed as exc:
                    return ToolServerCheck(error=str(exc), log=toolbox.client.log_tail)
        rules = self._in_force.permissions
        return ToolServerCheck(
            tools=tuple(
                CheckedTool(
                    name=spec.name,
                    permission=decide_permission(rules, spec.name, "web", default=spec.permission).value,
                    description=spec.description,
                )
                for spec in specs
            )
        )

    async def save_agent(self, entry: AgentEntry) -> None:
        values, files = self._build_agent_values(entry)
        table = f"agents.{entry.name}"

        def update(text: str) -> str:
            old = settings_file.read_table_of(text, table)
            self._require_agent(entry.name, old, entry.revision)
            # What stays the same stays as it is written, such as variables in a table of their own.
            changed = {key: value for key, value in values.items() if value != old.get(key)}
            return settings_file.update_text(text, table, changed)

        before = self._list_secrets("agent", settings_file.read_table(self._home, table))
        await self._change(update, files)
        await self._remove_secrets(before - self._list_secrets("agent", values))

    async def remove_agent(self, name: str, revision: str) -> None:
        def update(text: str) -> str:
            old = settings_file.read_table_of(text, f"agents.{name}")
            if not old:
                raise NotFound(Phrase("setup.no_agent", name=repr(name)))
            self._require_agent(name, old, revision)
            new = settings_file.remove_table(text, f"agents.{name}")
            chosen = settings_file.read_table_of(text, "").get("agent") == name
            return settings_file.update_text(new, "", {"agent": None}) if chosen else new

        removed = self._list_secrets("agent", settings_file.read_table(self._home, f"agents.{name}"))
        await self._change(update)
        await self._remove_secrets(removed)

    async def check_agent(self, entry: AgentEntry) -> AgentCheck:
        if not entry.command:
            chosen = config.read(self._environ).agents.get(entry.name)
            if chosen is None or chosen.kind is not AgentKind.ACP:
                raise NotFound(Phrase("setup.no_agent", name=repr(entry.name)))
            return await _probe_agent(entry.name, chosen)
        values, files = self._build_agent_values(entry)
        with TemporaryDirectory() as folder:
            home = Path(folder)
            for name, secret in files.items():
                written = settings_file.write_secret(home, name, secret)
                stored = f"file:{settings_file.find_secret(self._home, name)}"
                values["env"] = {n: f"file:{written}" if v == stored else v for n, v in values["env"].items()}
            given = {key: value for key, value in values.items() if value is not None}
            return await _probe_agent(entry.name, msgspec.convert(given, AgentConfig))

    def _require_agent(self, name: str, old: Mapping[str, Any], revision: str) -> None:
        """Raise `Conflict` if an agent is not as somebody has seen it, and `WrongField` if it is no program."""
        if not old and revision:
            raise Conflict(Phrase("setup.removed", what=name))
        if old and not revision:
            raise Conflict(Phrase("setup.taken", what=name))
        _require_revision(name, settings_file.compute_revision(old or None), revision)
        if old and old.get("kind") != AgentKind.ACP:
            raise WrongField("name", Phrase("setup.agent_kind", name=repr(name)))

    async def save_profile(self, entry: ProfileEntry) -> None:
        try:
            ids.parse_profile(entry.name)
        except Invalid as exc:
            raise WrongField("name", Phrase("setup.profile_name")) from exc
        table = f"profiles.{entry.name}"
        values: dict[str, settings_file.Value] = {
            "agent": entry.agent or None,
            "instructions": entry.instructions or None,
            "hide_ids": entry.hide_ids,
        }

        def update(text: str) -> str:
            found = config.read(self._environ, text=text).profiles.get(entry.name)
            _require_revision(entry.name, _profile_revision(found), entry.revision)
            return settings_file.update_text(text, table, values)

        await self._change(update)

    async def remove_profile(self, name: str, revision: str) -> None:
        def update(text: str) -> str:
            found = config.read(self._environ, text=text).profiles.get(name)
            if found is None:
                raise NotFound(Phrase("setup.no_profile", name=repr(name)))
            _require_revision(name, _profile_revision(found), revision)
            return settings_file.remove_table(text, f"profiles.{name}")

        await self._change(update)

    async def set_password(self, password_hash: str) -> None:
        if self._environ.get("KERYX_WEB_PASSWORD"):
            raise Invalid(Phrase("setup.variable", variable="KERYX_WEB_PASSWORD"))
        file = settings_file.find_secret(self._home, _PASSWORD_FILE)
        await self._change(
            lambda text: settings_file.update_text(text, "web", {"password_from": f"file:{file}"}),
            {_PASSWORD_FILE: password_hash},
        )

    def note_change(self) -> None:
        self._changed = True

    async def check_restart(self) -> None:
        if self._request_restart is None:
            raise Unavailable(Phrase("setup.no_restart"))
        await anyio.to_thread.run_sync(self._check_start)

    def restart(self) -> None:
        assert self._request_restart is not None
        self._request_restart()

    def _check_start(self) -> None:
        """Raise `Invalid` if a process could not start with what is written."""
        _ = bootstrap.BaseApp(config.read(self._environ)).all_adapters

    def _read(self) -> ConfiguredParts:
        path = self._home / "keryx.toml"
        try:
            chosen, problem = config.read(self._environ), ""
        except Invalid as exc:
            chosen, problem = self._in_force, str(exc)
        try:
            models, tools = (settings_file.read_items(self._home, array) for array in ("models", "tools"))
            written_agents = settings_file.read_table(self._home, "agents")
        except Invalid:
            models, tools, written_agents = [], [], dict[str, Any]()
        return ConfiguredParts(
            path=str(path),
            models=tuple(_list_models(chosen, {str(m.get("name")): m for m in models})),
            tools=tuple(_present_tools(s, {str(t.get("name")): t for t in tools}) for s in chosen.tools),
            agents=tuple(
                _present_agent(name, chosen, written_agents.get(name)) for name in chosen.agent_names
            ),
            profiles=tuple(_list_profiles(chosen)),
            restart=self._changed or chosen != self._in_force or bool(problem),
            problem=problem,
        )

    async def _save_item(
        self,
        array: str,
        name: str,
        revision: str,
        values: Mapping[str, settings_file.Value],
        files: Mapping[str, str],
    ) -> None:
        def update(text: str) -> str:
            self._require_item(array, name, revision)
            return settings_file.update_item(text, array, name, values)

        await self._change(update, files)

    def _require_item(self, array: str, name: str, revision: str) -> None:
        items = settings_file.read_items(self._home, array)
        found = next((item for item in items if item.get("name") == name), None)
        if found is None and revision:
            raise Conflict(Phrase("setup.removed", what=name))
        if found is not None and not revision:
            raise Conflict(Phrase("setup.taken", what=name))
        _require_revision(name, settings_file.compute_revision(found), revision)

    async def _change(self, update: Callable[[str], str], files: Mapping[str, str] | None = None) -> None:
        def check(text: str) -> None:
            try:
                config.read(self._environ, text=text)
            except Invalid as exc:
                raise Invalid(str(exc).removeprefix(f"{self._home / 'keryx.toml'}: ")) from exc

        await anyio.to_thread.run_sync(partial(settings_file.change, self._home, update, files, check=check))
        self._changed = True

    async def _remove_secrets(self, names: Iterable[str]) -> None:
        await anyio.to_thread.run_sync(settings_file.remove_secrets, self._home, names)

    async def _ask_model(self, model: Model) -> ModelTest:
        try:
            await anyio.to_thread.run_sync(import_module, "keryx.agents.llm.chat_client")
            from keryx.agents.llm.chat_client import ChatClient, ChatRequest, RetryPolicy  # noqa: PLC0415 an optional extra, and slow to import
        except ImportError as exc:
            raise Unavailable(
                f"models need an extra ({exc.name} is missing): run `{format_install_command('llm')}`"
            ) from exc
        client = ChatClient(retry=RetryPolicy(tries=1))
        request = ChatRequest(
            model=model, messages=[{"role": "user", "content": _QUESTION}], allow_empty=True
        )
        began = time.monotonic()
        try:
            with anyio.fail_after(_TEST_SECONDS):
                done = await client.complete(request, self._clock)
        except TimeoutError:
            raise AgentFailed(
                Phrase("setup.no_answer", host=model.host, seconds=f"{_TEST_SECONDS:g}")
            ) from None
        except AgentFailed as exc:
            raise _describe_test_failure(exc) from exc
        finally:
            await client.aclose()
        return ModelTest(
            answer=done.text.strip()[:500],
            seconds=time.monotonic() - began,
            input_tokens=done.usage.input + done.usage.cache_read + done.usage.cache_write,
            output_tokens=done.usage.output + done.usage.reasoning,
        )

    def _build_tool_values(self, entry: ToolServerEntry) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the values of a server, and the secrets that are written to files."""
        command = _split_command(entry.command)
        if bool(command) is bool(entry.url):
            raise WrongField("command", Phrase("setup.command_or_address"))
        if entry.url:
            _check_url("url", entry.url)
        if entry.policy and entry.policy not in list(Permission):
            raise WrongField("policy", Phrase("setup.choices", choices=", ".join(Permission)))
        files: dict[str, str] = {}
        values: dict[str, Any] = {
            "command": command or None,
            "url": entry.url or None,
            "cwd": entry.cwd or None,
            "policy": entry.policy or None,
            "profiles": list(entry.profiles) or None,
            "env": self._refer("tools", entry.name, "env", entry.env, files) or None,
            "headers": self._refer("tools", entry.name, "headers", entry.headers, files) or None,
        }
        _convert({k: v for k, v in values.items() if v is not None} | {"name": entry.name}, ToolServerConfig)
        return values, files

    def _build_agent_values(self, entry: AgentEntry) -> tuple[dict[str, Any], dict[str, str]]:
        """Return the values of an agent, and the secrets that are written to files."""
        try:
            agent_config.check_agent_name(entry.name)
        except ValueError as exc:
            raise WrongField("name", Phrase("setup.agent_name")) from exc
        command = _split_command(entry.command)
        if not command:
            raise WrongField("command", Phrase("setup.agent_command"))
        if entry.cwd and not Path(entry.cwd).expanduser().is_absolute():
            raise WrongField("cwd", Phrase("setup.folder"))
        files: dict[str, str] = {}
        values: dict[str, Any] = {
            "kind": AgentKind.ACP.value,
            "command": command,
            "env": self._refer("agent", entry.name, "env", entry.env, files) or None,
            "cwd": entry.cwd or None,
            "login": entry.login or None,
            "model": entry.model or None,
            "mode": entry.mode or None,
        }
        return values, files

    def _refer(
        self, kind: str, name: str, field: str, given: Mapping[str, str], files: dict[str, str]
    ) -> dict[str, str]:
        """Return references in place of the values of a field. A value that is a secret is added to the `files`."""
        references: dict[str, str] = {}
        for key, value in given.items():
            if not value.startswith(_REFERENCE):
                file = _name_secret(kind, name, key)
                files[file] = _check_secret(field, value)
                value = f"file:{settings_file.find_secret(self._home, file)}"
            references[key] = value
        return references

    def _find_item(self, array: str, name: str) -> Mapping[str, Any]:
        items = settings_file.read_items(self._home, array)
        return next((item for item in items if item.get("name") == name), dict[str, Any]())

    def _list_secrets(self, kind: str, table: Mapping[str, Any]) -> set[str]:
        """Return the files of secrets that this editor has written for a server of tools or an agent."""
        folder = f"file:{settings_file.find_secret(self._home, f'{kind}-')}"
        fields: list[dict[str, str]] = [table.get("env") or {}, table.get("headers") or {}]
        references = [reference for field in fields for reference in field.values()]
        return {Path(reference).name for reference in references if reference.startswith(folder)}


async def _probe_agent(name: str, chosen: AgentConfig) -> AgentCheck:
    with TemporaryDirectory() as folder:
        found = await probe(name, chosen, folder=Path(folder), seconds=_AGENT_SECONDS)
    can = found.abilities
    return AgentCheck(
        agent=f"{can.name or name} {can.version}".strip() if can else "",
        models=found.models,
        modes=found.modes,
        logins=tuple(method.id for method in can.logins) if can else (),
        error=found.error,
        log=found.log,
    )


def _split_command(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as exc:
        raise WrongField("command", Phrase("setup.command", reason=str(exc))) from exc


def _convert(values: Mapping[str, Any], kind: type[ToolServerConfig]) -> ToolServerConfig:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as exc:
        if "not a name" in str(exc):
            raise WrongField("name", Phrase("setup.tools_name")) from exc
        raise WrongField("command", str(exc).partition(" - at")[0]) from exc


def _build_model_values(entry: ModelEntry) -> dict[str, settings_file.Value]:
    _check_url("base_url", entry.base_url)
    if not entry.id.strip():
        raise WrongField("id", Phrase("setup.model_id"))
    if entry.key:
        try:
            secrets.check_reference(entry.key, "key")
        except ValueError as exc:
            raise WrongField("key", Phrase("setup.reference")) from exc
        if entry.key.startswith("text:"):
            raise WrongField("key", Phrase("setup.reference"))
    if entry.context is not None and entry.context < 1:
        raise WrongField("context", Phrase("setup.context"))
    priced = entry.input_price is not None or entry.output_price is not None
    if min(entry.input_price or 0, entry.output_price or 0) < 0:
        raise WrongField("input_price", Phrase("setup.price"))
    prices = Prices(input=entry.input_price or 0, output=entry.output_price or 0)
    return {
        "base_url": entry.base_url,
        "id": entry.id.strip(),
        "key": entry.key or None,
        "context": entry.context,
        "images": entry.images,
        "tools": None if entry.tools else False,
        "prices": {"input": prices.input, "output": prices.output} if priced else None,
    }


def _check_url(field: str, text: str) -> None:
    try:
        url = urlsplit(text)
        right = url.scheme in ("http", "https") and bool(url.hostname) and not any(c.isspace() for c in text)
    except ValueError:
        right = False
    else:
        if url.username or url.password or url.query:
            raise WrongField(field, Phrase("setup.address_secret"))
    if not right:
        raise WrongField(field, Phrase("setup.address"))


def _check_secret(field: str, text: str) -> str:
    clean = text.strip()
    if not clean or not clean.isprintable():
        raise WrongField(field, Phrase("setup.secret"))
    return clean


def _name_secret(kind: str, name: str, what: str) -> str:
    """Return the name of a file, different for different names."""
    plain = _UNSAFE.sub("-", name.lower())
    if plain != name:
        plain = f"{plain}-{settings_file.compute_revision(name)[:8]}"
    return f"{kind}-{plain}-{_UNSAFE.sub('-', what.lower())}"


def _require_revision(what: str, current: str, given: str) -> None:
    if current != given:
        raise Conflict(Phrase("setup.changed", what=what))


def _profile_revision(profile: object | None) -> str:
    return "" if profile is None else settings_file.compute_revision(msgspec.to_builtins(profile))


def _list_models(chosen: Settings, written: Mapping[str, Mapping[str, Any]]) -> list[ModelEntry]:
    named = chosen.named_models
    active = chosen.model or (named[0].name if named else local_model.MODEL.name)
    found = [
        ModelEntry(
            name=m.name,
            base_url=m.base_url,
            id=m.id,
            key=m.key,
            context=written.get(m.name, {}).get("context"),
            images=written.get(m.name, {}).get("images"),
            tools=m.tools,
            input_price=m.prices.input if m.prices else None,
            output_price=m.prices.output if m.prices else None,
            revision=settings_file.compute_revision(written.get(m.name)),
            default=m.name == active,
            # A name with a slash does not fit into the path of a request.
            editable=m.name in written and "/" not in m.name,
        )
        for m in named
    ]
    if local_model.is_installed():
        local = local_model.MODEL
        found.append(
            ModelEntry(
                name=local.name,
                base_url=local.base_url,
                id=local.id,
                tools=False,
                default=local.name == active,
                editable=False,
            )
        )
    return found


def _present_tools(server: ToolServerConfig, written: Mapping[str, Mapping[str, Any]]) -> ToolServerEntry:
    return ToolServerEntry(
        name=server.name,
        command=shlex.join(server.command),
        url=server.url,
        env=server.env,
        headers=server.headers,
        cwd=server.cwd,
        policy=server.policy.value if server.policy else "",
        profiles=server.profiles,
        revision=settings_file.compute_revision(written.get(server.name)),
    )


def _present_agent(name: str, chosen: Settings, written: object) -> AgentEntry:
    configured = chosen.agents.get(name)
    kind = configured.kind if configured else AgentKind.PYTHON if ":" in name else AgentKind(name)
    return AgentEntry(
        name=name,
        kind=kind.value,
        command=shlex.join(configured.command) if configured else "",
        env=configured.env if configured else {},
        cwd=configured.cwd if configured else "",
        login=configured.login if configured else "",
        model=configured.model if configured else "",
        mode=configured.mode if configured else "",
        revision=settings_file.compute_revision(written),
        editable=written is not None and kind is AgentKind.ACP,
        default=name == chosen.active_agent,
        profiles=tuple(p for p, profile in chosen.profiles.items() if profile.agent == name),
        checkable=kind is AgentKind.ACP,
    )


def _describe_test_failure(error: AgentFailed) -> AgentFailed:
    """Return the error of a test in a form, where nothing can be asked again by /retry."""
    text = error.text
    if isinstance(text, Phrase) and text.key == "model.failed":
        return AgentFailed(Phrase("setup.model_failed", what=text.fields["what"]))
    if isinstance(text, Phrase) and text.key == "model.no_host":
        return AgentFailed(Phrase("setup.model_no_host", host=text.fields["host"]))
    return error


def _list_profiles(chosen: Settings) -> list[ProfileEntry]:
    default = [] if chosen.profile in chosen.profiles else [ProfileEntry(name=chosen.profile, editable=False)]
    return [
        *default,
        *(
            ProfileEntry(
                name=name,
                agent=profile.agent,
                instructions=profile.instructions,
                hide_ids=profile.hide_ids,
                rules=len(profile.rules),
                revision=_profile_revision(profile),
            )
            for name, profile in sorted(chosen.profiles.items())
        ),
    ]
