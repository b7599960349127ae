"""Reads what Hermes Agent has besides its conversations: the routing of its chats, who may talk, home channels, cron jobs,
personality, models, and answers that were not sent."""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from keryx.core.errors import Invalid
from keryx.core.lanes import LaneSharing
from keryx.core.resets import ResetMode, ResetPolicy
from keryx.core.schedules import CronRule, IntervalRule, OnceRule, Schedule, ScheduleRule
from keryx.core.source import MAX_ID_LENGTH, ChatType, Source
from keryx.importers import conversation, program_setup
from keryx.importers.conversation import ImportLog, Json, as_count, as_dict, as_list, as_text
from keryx.importers.program_setup import (
    ForeignAccess,
    ForeignAccount,
    ForeignChat,
    ForeignGrant,
    ForeignJob,
    ForeignModel,
    ForeignPlace,
    ProgramSetup,
    SetupReader,
    UnsentAnswer,
    is_true,
    split_list,
)
from keryx.importers.source_files import ForeignDatabase, open_database

# The platforms of Hermes that Keryx has as well, with their names there.
PLATFORMS: Mapping[str, str] = {
    "telegram": "telegram",
    "discord": "discord",
    "slack": "slack",
    "matrix": "matrix",
    "signal": "signal",
    "email": "email",
    "feishu": "feishu",
    "bluebubbles": "imessage",
}
_HOMES = {"matrix": "HOME_ROOM", "email": "HOME_ADDRESS"}
# Endpoints that speak the protocol of OpenAI, with the variable of the key.
_PROVIDERS = {
    "openrouter": ("https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",)),
    "openai-api": ("https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "openai": ("https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "lmstudio": ("http://127.0.0.1:1234/v1", ("LM_API_KEY",)),
    "gemini": (
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    ),
    "zai": ("https://api.z.ai/api/paas/v4", ("GLM_API_KEY", "ZAI_API_KEY", "Z_AI_API_KEY")),
    "kimi-coding": ("https://api.moonshot.ai/v1", ("KIMI_API_KEY", "KIMI_CODING_API_KEY")),
    "deepseek": ("https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",)),
    "xai": ("https://api.x.ai/v1", ("XAI_API_KEY",)),
    "anthropic": ("https://api.anthropic.com/v1", ("ANTHROPIC_API_KEY", "ANTHROPIC_TOKEN")),
}
_UNSENT_STATES = ("pending", "attempting", "failed")
_CHAT_TYPES = {
    "dm": ChatType.DM,
    "group": ChatType.GROUP,
    "forum": ChatType.GROUP,
    "channel": ChatType.CHANNEL,
    "thread": ChatType.THREAD,
}
_NOT_BROUGHT = (
    ("skills", "skills", "skills: copy what you need into the instructions"),
    ("plugins", "plugins", "plugins of Hermes"),
    ("hooks", "hooks", "hooks of Hermes"),
    ("scripts", "scripts", "scripts: nothing of another program is run"),
)


def read(path: Path, log: ImportLog, env: Mapping[str, str]) -> ProgramSetup:
    """Read a Hermes home folder. What cannot be brought is counted in the log. Raise `Invalid` for a folder without a readable
    state.db: without it no chat could go on."""
    home = Path(os.path.realpath(path if path.is_dir() else path.parent))
    if not (home / "state.db").exists():
        raise Invalid(f"{home} has no state.db: give the home folder of Hermes")
    return _HomeReader(home, log, env).read()


class _HomeReader(SetupReader):
    def __init__(self, home: Path, log: ImportLog, env: Mapping[str, str]) -> None:
        super().__init__(home, log)
        self._settings = self._files.read_yaml("config.yaml")
        known = tuple(f"{name.upper()}_" for name in (*PLATFORMS, "gateway"))
        keys = {variable for _, variables in _PROVIDERS.values() for variable in variables}
        given = {name: value for name, value in env.items() if name.startswith(known) or name in keys}
        # A variable in the file takes precedence, as it does for Hermes.
        self._env = {**given, **self._written_env}
        # Of its schedules.
        self._zone = self._choose_zone(
            self._env.get("HERMES_TIMEZONE") or as_text(self._settings.get("timezone"))
        )

    def read(self) -> ProgramSetup:
        setup = self._setup
        setup.gateway = self._files.find_process(("gateway.pid", "gateway_state.json"), "hermes")
        for name, platform in PLATFORMS.items():
            self._read_platform(name, platform)
        sessions = as_dict(self._settings.get("gateway"))
        setup.sharing = LaneSharing(
            groups_per_person=self._get_flag("group_sessions_per_user", sessions, default=True),
            threads_shared=not self._get_flag("thread_sessions_per_user", sessions, default=False),
        )
        self._read_resets(sessions)
        with open_database(self._home / "state.db", self._log) as database:
            if database is None:
                [damage] = self._log.damages[-1:]
                raise Invalid(
                    f"{damage.place}: {damage.text}. Nothing was changed; `sqlite3 state.db .recover` may help"
                )
            setup.chats = list(self._read_chats(database))
            setup.answers = list(self._read_answers(database))
        self._read_pairing()
        self._read_jobs()
        self._read_models()
        setup.instructions = self._read_instructions()
        self._name_losses()
        return setup

    def _get_flag(self, name: str, nested: Json, *, default: bool) -> bool:
        value = self._settings.get(name, nested.get(name))
        return default if value is None else is_true(value)

    def _list_blocks(self, name: str) -> list[Json]:
        """Return the tables of a platform in config.yaml, the one that takes precedence first."""
        nested = as_dict(as_dict(self._settings.get("gateway")).get("platforms"))
        tables = [
            self._settings.get(name),
            as_dict(self._settings.get("platforms")).get(name),
            nested.get(name),
        ]
        blocks = [as_dict(table) for table in tables]
        return [*blocks, *(as_dict(block.get("extra")) for block in blocks)]

    def _find(self, name: str, key: str, *variables: str) -> str:
        """Return a value of a platform: from a variable, or else from config.yaml."""
        for variable in variables:
            if value := self._env.get(variable):
                return value
        found = (as_text(block.get(key)) for block in self._list_blocks(name))
        return next((value.strip() for value in found if value.strip()), "")

    def _read_platform(self, name: str, platform: str) -> None:
        blocks = self._list_blocks(name)
        account = self._build_account(name, platform)
        if account is not None:
            self._setup.accounts.append(account)
        prefix = name.upper()
        self._read_access(name, platform, blocks)
        homes = (as_dict(block.get("home_channel")) for block in blocks)
        home = next(filter(None, homes), as_dict(None))
        variable = f"{prefix}_{_HOMES.get(name, 'HOME_CHANNEL')}"
        if chat := self._env.get(variable) or as_text(home.get("chat_id")):
            from_file = variable not in self._env
            self._setup.homes.append(
                ForeignPlace(
                    label=platform,
                    chat=chat,
                    thread=self._env.get(f"{variable}_THREAD_ID", "")
                    or (as_text(home.get("thread_id")) if from_file else ""),
                    name=conversation.clean_name(self._env.get(f"{variable}_NAME") or home.get("name")),
                )
            )
        for block in blocks:
            overrides = as_dict(block.get("channel_overrides"))
            if overrides:
                self._log.lose(
                    "models and prompts of single channels: set them with /model and /instructions there",
                    name,
                    len(overrides),
                )

    def _build_account(self, name: str, platform: str) -> ForeignAccount | None:
        blocks = self._list_blocks(name)
        off = any(block.get("enabled") is False for block in blocks)
        upper = name.upper()
        settings: dict[str, program_setup.SettingValue] = {}
        secrets: dict[str, str] = {}
        match name:
            case "telegram":
                base_url = self._find(name, "base_url").rstrip("/").removesuffix("/bot")
                settings |= {"base_url": base_url} if base_url else {}
                secrets["token"] = self._find(name, "token", "TELEGRAM_BOT_TOKEN")
            case "discord":
                secrets["token"] = self._find(name, "token", "DISCORD_BOT_TOKEN")
            case "slack":
                secrets["token"] = self._find(name, "token", "SLACK_BOT_TOKEN")
                secrets["app_token"] = self._find(name, "app_token", "SLACK_APP_TOKEN")
                if "," in secrets["token"]:
                    self._log.lose("Slack: further workspaces, set each up as an account", name)
                    secrets["token"] = secrets["token"].partition(",")[0].strip()
            case "matrix":
                secrets["token"] = self._find(name, "token", "MATRIX_ACCESS_TOKEN")
                settings["homeserver"] = self._find(name, "homeserver", "MATRIX_HOMESERVER")
                settings["user"] = self._find(name, "user_id", "MATRIX_USER_ID")
            case "signal":
                settings["account"] = self._find(name, "account", "SIGNAL_ACCOUNT")
                settings["url"] = self._find(name, "http_url", "SIGNAL_HTTP_URL")
            case "email":
                settings["address"] = self._find(name, "address", "EMAIL_ADDRESS")
                settings |= self._build_mail_servers()
                secrets["password"] = self._find(name, "password", "EMAIL_PASSWORD")
            case "feishu":
                settings["app_id"] = self._find(name, "app_id", "FEISHU_APP_ID")
                domain = self._find(name, "domain", "FEISHU_DOMAIN")
                settings |= {"domain": domain} if domain else {}
                secrets["app_secret"] = self._find(name, "app_secret", "FEISHU_APP_SECRET")
            case _:
                settings["base_url"] = self._find(name, "server_url", "BLUEBUBBLES_SERVER_URL")
                settings["transport"] = "bluebubbles" if settings["base_url"] else ""
                secrets["password"] = self._find(name, "password", "BLUEBUBBLES_PASSWORD")
        present = [*settings.values(), *secrets.values()]
        if not any(present):
            return None
        if off:
            self._log.lose("platforms that are switched off", name)
            return None
        if not all(present):
            missing = ", ".join(key for key, value in {**settings, **secrets}.items() if not value)
            self._log.lose(
                f"{platform}: set it up with `keryx gateway setup {platform}`", f"{upper}: no {missing}"
            )
            return None
        return ForeignAccount(platform=platform, settings=settings, secrets=secrets)

    def _build_mail_servers(self) -> dict[str, program_setup.SettingValue]:
        imap = self._find("email", "imap_host", "EMAIL_IMAP_HOST")
        smtp = self._find("email", "smtp_host", "EMAIL_SMTP_HOST")
        port = self._find("email", "smtp_port", "EMAIL_SMTP_PORT") or "587"
        scheme = "smtps" if port == "465" else "smtp"
        return {
            "imap": imap and f"imaps://{imap}:{self._env.get('EMAIL_IMAP_PORT', '993')}",
            "smtp": smtp and f"{scheme}://{smtp}:{port}",
        }

    def _read_access(self, name: str, platform: str, blocks: list[Json]) -> None:
        upper = name.upper()
        people = {
            person
            for value in (
                self._env.get(f"{upper}_ALLOWED_USERS"),
                self._env.get("GATEWAY_ALLOWED_USERS"),
                *(block.get("allow_from") for block in blocks),
            )
            for person in split_list(value)
        }
        everybody = is_true(self._env.get(f"{upper}_ALLOW_ALL_USERS")) or is_true(
            self._env.get("GATEWAY_ALLOW_ALL_USERS")
        )
        groups = split_list(self._env.get(f"{upper}_GROUP_ALLOWED_CHATS"))
        scoped = split_list(self._env.get(f"{upper}_GROUP_ALLOWED_USERS"))
        # Chats were listed there by mistake, and Hermes accepts them.
        groups = tuple(dict.fromkeys((*groups, *(entry for entry in scoped if entry.startswith("-")))))
        if only_there := [entry for entry in scoped if not entry.startswith("-")]:
            self._log.lose("people who may talk in groups only", name, len(only_there))
        mention = next(
            (block["require_mention"] for block in blocks if block.get("require_mention") is not None),
            self._env.get(f"{upper}_REQUIRE_MENTION", self._settings.get("require_mention")),
        )
        rule = ForeignAccess(
            label=platform,
            allow=("*",) if everybody or "*" in people else tuple(sorted(people)),
            groups=groups,
            # On Telegram and Signal Hermes answers everything in a group unless it is told otherwise.
            mention=is_true(mention)
            if mention is not None
            else (False if name in ("telegram", "signal") else None),
        )
        if rule.allow or rule.groups or self._setup.has_account(platform):
            self._setup.access.append(rule)

    def _read_resets(self, nested: Json) -> None:
        rule = as_dict(self._settings.get("session_reset", nested.get("session_reset")))
        mode = as_text(rule.get("mode"))
        if mode not in set(ResetMode) or mode == ResetMode.NONE:
            return
        with suppress(Invalid):
            self._setup.resets = ResetPolicy(
                mode=ResetMode(mode),
                idle=timedelta(minutes=as_count(rule.get("idle_minutes")) or 1440),
                hour=as_count(rule.get("at_hour", 4)),
                zone=self._zone,
            )
            return
        self._log.lose("reset policies that are impossible", "session_reset")

    def _read_chats(self, database: ForeignDatabase) -> Iterator[ForeignChat]:
        """Yield the chats of the routing table, or else of its copy in sessions.json."""
        rows = list(database.rows("gateway_routing"))
        entries = [
            (as_text(r.get("session_key")), as_dict(conversation.parse_json(r.get("entry_json"))))
            for r in rows
        ]
        if not entries:
            copy = as_dict(self._files.read_json("sessions/sessions.json"))
            entries = [(key, as_dict(entry)) for key, entry in copy.items() if not key.startswith("_")]
        for key, entry in entries:
            if chat := self._parse_chat(database, key, entry):
                yield chat

    def _parse_chat(self, database: ForeignDatabase, key: str, entry: Json) -> ForeignChat | None:
        origin = as_dict(entry.get("origin"))
        foreign = as_text(origin.get("platform")) or as_text(entry.get("platform"))
        source = parse_source(origin, as_text(entry.get("chat_type")))
        profile = as_text(origin.get("profile"))
        if profile not in ("", "default", "main"):
            self._log.lose(
                "chats of other profiles: migrate each profile's folder with KERYX_PROFILE set", f"{key}"
            )
            return None
        if source is None:
            if foreign in PLATFORMS:
                self._log.lose("chats without an address", key)
            elif foreign not in ("", "cli", "local", "api_server", "webhook"):
                self._log.lose(
                    f"chats on {conversation.clean_name(foreign)}, which Keryx cannot connect", key
                )
            return None
        if entry.get("model_override"):
            self._log.lose("models of single chats: set them with /model", key)
        session = as_text(entry.get("session_id"))
        # What the person asked last, when, and whether there is no answer to it.
        question, asked_at, open_ = "", None, False
        columns = ("id", "role", "content", "timestamp", "active", "tool_calls")
        for row in database.rows("messages", where={"session_id": session}, order=("id",), columns=columns):
            if row.get("active") == 0:
                continue
            if row.get("role") == "user":
                question, open_ = conversation.text_of(row.get("content")), True
                asked_at = conversation.parse_time(row.get("timestamp"))
            elif row.get("role") == "assistant" and not row.get("tool_calls"):
                open_ = False
        return ForeignChat(
            session=session,
            source=source,
            label=source.platform,
            suspended=bool(entry.get("suspended")),
            question=question if open_ or entry.get("resume_pending") else "",
            asked_at=asked_at,
        )

    def _read_answers(self, database: ForeignDatabase) -> Iterator[UnsentAnswer]:
        for row in database.rows("delivery_obligations", order=("created_at", "obligation_id")):
            state, foreign = as_text(row.get("state")), as_text(row.get("platform"))
            if state not in _UNSENT_STATES:
                continue
            if foreign not in PLATFORMS:
                self._log.lose("answers that were not sent, on platforms that Keryx cannot connect", foreign)
                continue
            yield UnsentAnswer(
                id=as_text(row.get("obligation_id")),
                place=ForeignPlace(
                    label=PLATFORMS[foreign],
                    chat=as_text(row.get("chat_id")),
                    thread=as_text(row.get("thread_id")),
                ),
                text=as_text(row.get("content")),
                uncertain=state != "pending",
                at=conversation.parse_time(row.get("created_at")),
            )

    def _read_pairing(self) -> None:
        for folder in ("pairing", "platforms/pairing"):
            for name, platform in PLATFORMS.items():
                approved = as_dict(self._files.read_json(f"{folder}/{name}-approved.json"))
                for person, about in approved.items():
                    grant = ForeignGrant(
                        platform=platform,
                        person=person[:1000],
                        name=conversation.clean_name(as_dict(about).get("user_name")),
                    )
                    if grant not in self._setup.grants:
                        self._setup.grants.append(grant)
                waiting = as_dict(self._files.read_json(f"{folder}/{name}-pending.json"))
                if waiting:
                    self._log.lose("open pairing requests: the person asks again", folder, len(waiting))

    def _read_jobs(self) -> None:
        file = "cron/jobs.json"
        stored = self._files.read_json(file)
        for job in map(as_dict, as_list(as_dict(stored).get("jobs") or stored)):
            place = f"{file}, job {as_text(job.get('id'))}"
            if job.get("no_agent"):
                self._log.lose("jobs that only run a script: nothing of another program is run", place)
            elif parsed := self._parse_job(job, place):
                self._setup.jobs.append(parsed)

    def _parse_job(self, job: Json, place: str) -> ForeignJob | None:
        prompt = as_text(job.get("prompt")).strip()
        rule = _parse_schedule(as_dict(job.get("schedule")), as_text(job.get("next_run_at")))
        if not prompt:
            self._log.lose("jobs without a prompt", place)
            return None
        if rule is None:
            self._log.lose("jobs whose schedule is over or cannot be read", place)
            return None
        for key, what in (
            ("skills", "skills of jobs"),
            ("script", "scripts that a job reads: nothing of another program is run"),
            ("context_from", "links between jobs"),
            ("model", "models of single jobs"),
            ("workdir", "folders of jobs"),
        ):
            if job.get(key):
                self._log.lose(what, place)
        times = as_count(as_dict(job.get("repeat")).get("times"))
        if times and not isinstance(rule, OnceRule):
            self._log.lose("how often a job repeats: it repeats until you remove it", place)
        origin = as_dict(job.get("origin"))
        source = parse_source(origin, as_text(origin.get("chat_type")) or _guess_type(origin))
        return ForeignJob(
            id=as_text(job.get("id")),
            name=conversation.clean_name(job.get("name")),
            prompt=prompt,
            schedule=Schedule(rule, self._zone),
            targets=tuple(self._parse_targets(job, origin, place)),
            source=source if source and source.chat_type is ChatType.DM else None,
            label=source.platform if source else "",
            active=job.get("enabled") is not False and as_text(job.get("state")) != "paused",
        )

    def _parse_targets(self, job: Json, origin: Json, place: str) -> Iterator[ForeignPlace]:
        words = split_list(job.get("deliver") or "local")
        for word in words:
            name, _, rest = word.partition(":")
            if word == "origin":
                name, chat, thread = (
                    as_text(origin.get(key)) for key in ("platform", "chat_id", "thread_id")
                )
            else:
                chat, _, thread = rest.partition(":")
            if word == "all":
                yield from (ForeignPlace(label=home.label) for home in self._setup.homes)
            elif name in PLATFORMS:
                yield ForeignPlace(label=PLATFORMS[name], chat=chat, thread=thread)
            elif word != "local" and name:
                self._log.lose("targets of jobs on platforms that Keryx cannot connect", place)

    def _read_models(self) -> None:
        model = self._settings.get("model")
        table = as_dict(model) or {"default": as_text(model)}
        name = as_text(table.get("default")) or as_text(table.get("name"))
        first = self._build_model(name, table) if name else None
        fallbacks: list[Json] = []
        for key in ("fallback_providers", "fallback_model"):
            value = self._settings.get(key)
            fallbacks += filter(None, map(as_dict, as_list(value) or [value]))
        if first is not None:
            others = (self._build_model(as_text(other.get("model")), other) for other in fallbacks)
            self._setup.add_models(first, others, self._log)
        if self._settings.get("auxiliary"):
            self._log.lose("models for other tasks", "auxiliary")

    def _build_model(self, name: str, about: Json) -> ForeignModel | None:
        """Return a model with its endpoint, `None` if it has none that Keryx can ask."""
        provider = as_text(about.get("provider")) or "openrouter"
        base_url = as_text(about.get("base_url"))
        key = as_text(about.get("api_key"))
        known = _PROVIDERS.get(provider)
        if not name or (not base_url and known is None):
            self._log.lose(
                f"the model of the provider {conversation.clean_name(provider)}: add it as [[models]]", name
            )
            return None
        if known is not None:
            base_url = base_url or known[0]
            key = key or next((self._env[v] for v in known[1] if self._env.get(v)), "")
        key = key or self._env.get("OPENAI_API_KEY", "")
        return ForeignModel(name=name, base_url=base_url.rstrip("/"), key=key)

    def _read_instructions(self) -> str:
        limit = program_setup.MAX_INSTRUCTIONS
        soul = self._files.read_text("SOUL.md")
        if soul.lstrip().startswith(("You are Hermes Agent,", "# Hermes Agent Persona")) and len(soul) < 2000:
            # The text that Hermes begins with says nothing about its owner.
            soul = ""
        notes = [
            (title, self._files.read_text(f"memories/{name}").strip()[:limit])
            for title, name in (("About the person", "USER.md"), ("Notes", "MEMORY.md"))
        ]
        told = [
            soul.strip()[:limit],
            as_text(as_dict(self._settings.get("agent")).get("system_prompt")).strip()[:limit],
            *(f"# {title}\n\n{text}" for title, text in notes if text),
        ]
        return "\n\n".join(text for text in told if text)

    def _name_losses(self) -> None:
        for name, _, what in _NOT_BROUGHT:
            folder = self._home / name
            with suppress(OSError):
                if entries := [entry for entry in folder.iterdir() if not entry.name.startswith(".")]:
                    self._log.lose(what, str(folder), len(entries))
        for name in ("mcp_servers", "quick_commands", "personalities", "providers", "custom_providers"):
            if entries := self._settings.get(name):
                size = len(as_list(entries)) or len(as_dict(entries)) or 1
                what = (
                    "tool servers (MCP): add each as [[tools]]"
                    if name == "mcp_servers"
                    else f"settings `{name}`"
                )
                self._log.lose(what, "config.yaml", size)
        with suppress(OSError):
            for folder in sorted((self._home / "profiles").iterdir()):
                if (folder / "state.db").exists():
                    self._log.lose(
                        "profiles: conversations are brought; for the chats migrate each folder with KERYX_PROFILE set",
                        str(folder),
                    )


def parse_source(origin: Json, kind: str = "") -> Source | None:
    """Return the chat of an origin as Hermes stores it, `None` if it has no address or Keryx no such platform."""
    foreign = as_text(origin.get("platform"))
    chat = as_text(origin.get("chat_id"))
    user = as_text(origin.get("user_id"))
    if foreign not in PLATFORMS or not (chat or user):
        return None
    kind = as_text(origin.get("chat_type")) or kind
    scope = as_text(origin.get("scope_id")) or as_text(origin.get("guild_id"))
    thread, user_alt = as_text(origin.get("thread_id")), as_text(origin.get("user_id_alt"))
    chat_alt, parent = as_text(origin.get("chat_id_alt")), as_text(origin.get("parent_chat_id"))
    if max(map(len, (chat, user, thread, user_alt, chat_alt, scope, parent))) > MAX_ID_LENGTH:
        return None
    return Source(
        platform=PLATFORMS[foreign],
        chat=chat or None,
        chat_type=_CHAT_TYPES.get(kind, ChatType.DM),
        chat_name=conversation.clean_name(origin.get("chat_name")) or None,
        user=user or None,
        user_name=conversation.clean_name(origin.get("user_name")) or None,
        thread=thread or None,
        topic=conversation.clean_name(origin.get("chat_topic")) or None,
        user_alt=user_alt or None,
        chat_alt=chat_alt or None,
        scope=scope or None,
        parent_chat=parent or None,
    )


def _guess_type(origin: Json) -> str:
    """Return the type of the chat that a job was made in, which Hermes does not store."""
    chat = as_text(origin.get("chat_id"))
    return "dm" if origin.get("platform") == "telegram" and chat and not chat.startswith("-") else "group"


def _parse_schedule(schedule: Json, next_run: str) -> ScheduleRule | None:
    match as_text(schedule.get("kind")):
        case "cron":
            return CronRule(" ".join(as_text(schedule.get("expr")).split()).lower())
        case "interval":
            minutes = as_count(schedule.get("minutes"))
            start = conversation.parse_time(next_run)
            if not minutes or start is None:
                return None
            span = timedelta(minutes=minutes)
            return IntervalRule(span, start - span)
        case "once":
            at = conversation.parse_time(schedule.get("run_at"))
            return OnceRule(at) if at else None
        case _:
            return None
