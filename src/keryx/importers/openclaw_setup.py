"""Reads what OpenClaw has besides its conversations: the chats of its sessions, who may talk, cron jobs, instructions, models,
and answers that were not sent."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from keryx.core import clock
from keryx.core.errors import Invalid
from keryx.core.lanes import LaneSharing
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
    SettingValue,
    SetupReader,
    SourceFolder,
    UnsentAnswer,
    split_list,
)
from keryx.importers.source_files import ForeignDatabase, find_files, load_json, open_database

PLATFORMS = ("telegram", "discord", "slack", "matrix", "signal", "feishu")
_MAIN = ("", "default")
_CHAT_TYPES = {"direct": ChatType.DM, "dm": ChatType.DM, "group": ChatType.GROUP, "channel": ChatType.CHANNEL}
# The settings of an account: ours, theirs, and whether it is a secret.
_FIELDS: Mapping[str, tuple[tuple[str, str, bool], ...]] = {
    "telegram": (("token", "botToken", True),),
    "discord": (("token", "token", True),),
    "slack": (("token", "botToken", True), ("app_token", "appToken", True)),
    "matrix": (
        ("token", "accessToken", True),
        ("homeserver", "homeserver", False),
        ("user", "userId", False),
    ),
    "signal": (("account", "account", False), ("url", "httpUrl", False)),
    "feishu": (("app_id", "appId", False), ("app_secret", "appSecret", True)),
}
_UNSAFE_NAME = re.compile(r"[^a-z0-9_-]+")
_APIS = ("openai-completions", "openai-responses", "")
_NOTES = (("", "SOUL.md"), ("", "AGENTS.md"), ("About the person", "USER.md"), ("Notes", "MEMORY.md"))
_OPEN_STATES = ("pending", "failed", "claimed", "processing", "unknown")


def read(path: Path, log: ImportLog, env: Mapping[str, str]) -> ProgramSetup:
    """Read a state folder of OpenClaw. What cannot be brought is counted in the log. Raise `Invalid` for another folder."""
    home = Path(os.path.realpath(path if path.is_dir() else path.parent))
    if not (home / "openclaw.json").exists() and not (home / "agents").is_dir():
        raise Invalid(f"{home} is no state folder of OpenClaw: it has neither openclaw.json nor agents")
    return _SettingsReader(home, log, env).read()


class _SettingsReader(SetupReader):
    def __init__(self, home: Path, log: ImportLog, env: Mapping[str, str]) -> None:
        super().__init__(home, log)
        self._env = {**env, **self._written_env}
        self._settings = self._files.read_relaxed_json("openclaw.json")
        # Of schedules that name none.
        defaults = as_dict(as_dict(self._settings.get("agents")).get("defaults"))
        self._zone = self._choose_zone(as_text(defaults.get("userTimezone")))

    def read(self) -> ProgramSetup:
        setup = self._setup
        setup.gateway = self._find_gateway()
        channels = as_dict(self._settings.get("channels"))
        for platform in PLATFORMS:
            self._read_platform(platform, as_dict(channels.get(platform)))
        for name in sorted(set(channels) - {*PLATFORMS, "defaults", "modelByChannel"}):
            self._log.lose(f"{conversation.clean_name(name)}: Keryx brings nothing of it", "openclaw.json")
        for file in find_files(self._home, "openclaw-agent.sqlite", self._log):
            with open_database(file, self._log) as database:
                if database is not None:
                    setup.chats += self._read_chats(database, file)
        setup.chats += list(self._read_old_chats())
        if any(chat.source.chat_type is not ChatType.DM for chat in setup.chats):
            # All members of a group share one session there.
            setup.sharing = LaneSharing(groups_per_person=False)
        state = self._home / "state" / "openclaw.sqlite"
        if state.exists():
            with open_database(state, self._log) as database:
                if database is not None:
                    self._read_state(database)
        self._read_old_files()
        self._read_models()
        setup.instructions = self._read_instructions()
        self._name_losses()
        return setup

    def _find_gateway(self) -> int:
        folder = self._home / "tmp" / f"openclaw-{os.getuid()}"
        names = [str(file.relative_to(self._home)) for file in sorted(folder.glob("gateway.*.lock"))]
        return self._files.find_process(names, "openclaw")

    def _find_secret(self, value: object) -> str:
        """Return a secret that is written in the settings, or that a variable has; empty for one that a program would
        have to be run for."""
        text = as_text(value).strip()
        if text.startswith("${") and text.endswith("}"):
            return self._env.get(text[2:-1], "")
        about = as_dict(value)
        if about.get("source") == "env":
            return self._env.get(as_text(about.get("id")), "")
        return text

    def _read_platform(self, platform: str, table: Json) -> None:
        if not table:
            return
        named = as_dict(table.get("accounts"))
        accounts = {name: {**table, **as_dict(own)} for name, own in named.items()} or {"": table}
        for name, own in accounts.items():
            short = "" if name in _MAIN or len(accounts) == 1 else _clean_account(name)
            account = self._build_account(platform, short, own)
            if account is None:
                continue
            self._setup.accounts.append(account)
            self._setup.access.append(self._build_access(account.label, own))

    def _build_account(self, platform: str, name: str, table: Json) -> ForeignAccount | None:
        if table.get("enabled") is False:
            self._log.lose("platforms that are switched off", platform)
            return None
        settings: dict[str, SettingValue] = {}
        secrets: dict[str, str] = {}
        for ours, theirs, secret in _FIELDS[platform]:
            value = self._find_secret(table.get(theirs))
            if secret and not value and ours == "token" and not name:
                value = self._env.get(f"{platform.upper()}_BOT_TOKEN", "")
            if not value:
                self._log.lose(
                    f"{platform}: set it up with `keryx gateway setup {platform}`", f"there is no {theirs}"
                )
                return None
            (secrets if secret else settings)[ours] = value
        if platform == "telegram" and (root := as_text(table.get("apiRoot")).rstrip("/")):
            settings["base_url"] = root
        return ForeignAccount(platform=platform, name=name, settings=settings, secrets=secrets)

    def _build_access(self, label: str, table: Json) -> ForeignAccess:
        people = split_list(as_list(table.get("allowFrom")))
        only_in_groups = [p for p in split_list(as_list(table.get("groupAllowFrom"))) if p not in people]
        if only_in_groups:
            self._log.lose("people who may talk in groups only", label, len(only_in_groups))
        groups = as_dict(table.get("groups"))
        every = as_dict(groups.get("*"))
        single = [name for name, own in groups.items() if name != "*" and as_dict(own)]
        if single:
            self._log.lose("settings of single groups", label, len(single))
        is_open = table.get("groupPolicy") == "open"
        clean = tuple(_strip_prefix(person) for person in people)
        return ForeignAccess(
            label=label,
            # `open` without a star lets in only those who are listed.
            allow=("*",) if "*" in clean else clean,
            groups=tuple(groups) or ("*",) if is_open else (),
            mention=False if every.get("requireMention") is False else None,
        )

    def _find_label(self, platform: str, account: str) -> str:
        labels = [f"{platform}.{_clean_account(account)}", platform]
        known = [found.label for found in self._setup.accounts if found.platform == platform]
        return next((label for label in labels if label in known), known[0] if len(known) == 1 else platform)

    def _read_chats(self, database: ForeignDatabase, file: Path) -> Iterator[ForeignChat]:
        conversations = {as_text(row.get("conversation_id")): row for row in database.rows("conversations")}
        windows = {
            as_text(row.get("session_id")): as_text(row.get("primary_conversation_id"))
            for row in database.rows("session_windows", columns=("session_id", "primary_conversation_id"))
        }
        for node in database.rows("session_nodes"):
            session = as_text(node.get("current_session_id"))
            place = conversations.get(windows.get(session, ""), {})
            if node.get("archived_at") or not place:
                continue
            source = _parse_source(place)
            key = as_text(node.get("session_key"))
            if source is None:
                self._log.lose(
                    f"chats on {conversation.clean_name(place.get('channel'))}, which cannot be continued",
                    f"{file}, {key}",
                )
                continue
            yield ForeignChat(
                session=session,
                source=source,
                label=self._find_label(source.platform, as_text(place.get("account_id"))),
            )

    def _read_old_chats(self) -> Iterator[ForeignChat]:
        """Yield the chats of versions that had session files. Their keys are the addresses."""
        known = {chat.session for chat in self._setup.chats}
        places = {_name_place(chat.source) for chat in self._setup.chats}
        for file in find_files(self._home, "sessions.json", self._log):
            for key, entry in as_dict(load_json(file, self._log)).items():
                session = as_text(as_dict(entry).get("sessionId"))
                source = _parse_key(key)
                if source is None or session in known or _name_place(source) in places:
                    continue
                account = as_text(as_dict(as_dict(entry).get("deliveryContext")).get("accountId"))
                yield ForeignChat(
                    session=session, source=source, label=self._find_label(source.platform, account)
                )

    def _read_state(self, database: ForeignDatabase) -> None:
        for row in database.rows("channel_pairing_allow_entries"):
            self._add_grant(as_text(row.get("channel_key")), as_text(row.get("entry")))
        for row in database.rows("cron_jobs", order=("sort_order", "job_id")):
            job = as_dict(conversation.parse_json(row.get("job_json")))
            enabled = row.get("enabled") not in (0, False)
            self._add_job({"id": row.get("job_id"), "name": row.get("name"), **job, "enabled": enabled})
        for row in database.rows("delivery_queue_entries", order=("enqueued_at", "id")):
            if answer := self._parse_answer(row):
                self._setup.answers.append(answer)

    def _read_old_files(self) -> None:
        """Read the files of versions before the state database."""
        for platform in PLATFORMS:
            for file in sorted((self._home / "credentials").glob(f"{platform}*-allowFrom.json")):
                stored = as_dict(self._files.read_json(f"credentials/{file.name}"))
                for person in split_list(as_list(stored.get("allowFrom"))):
                    self._add_grant(platform, person)
        jobs = as_dict(self._files.read_json("cron/jobs.json"))
        known = {job.id for job in self._setup.jobs}
        for job in map(as_dict, as_list(jobs.get("jobs"))):
            if as_text(job.get("id")) not in known:
                self._add_job(job)

    def _add_grant(self, platform: str, person: str) -> None:
        grant = ForeignGrant(platform=platform, person=_strip_prefix(person)[:MAX_ID_LENGTH])
        if platform not in PLATFORMS:
            self._log.lose("people on platforms that Keryx cannot connect", platform)
        elif grant.person and grant not in self._setup.grants:
            self._setup.grants.append(grant)

    def _add_job(self, job: Json) -> None:
        place = f"job {as_text(job.get('id'))}"
        payload = as_dict(job.get("payload"))
        prompt = (as_text(payload.get("message")) or as_text(payload.get("text"))).strip()
        if as_text(payload.get("kind")) not in ("agentTurn", "systemEvent") or not prompt:
            self._log.lose("jobs that run a command or a script: nothing of another program is run", place)
            return
        schedule = as_dict(job.get("schedule"))
        rule = _parse_schedule(schedule, job)
        if rule is None:
            self._log.lose("jobs whose schedule is over, or begins with an event", place)
            return
        if payload.get("model"):
            self._log.lose("models of single jobs", place)
        if as_dict(job.get("trigger")):
            self._log.lose("conditions of jobs", place)
        zone = self._zone
        with suppress(Invalid):
            zone = clock.find_zone(as_text(schedule.get("tz")) or zone).key
        self._setup.jobs.append(
            ForeignJob(
                id=as_text(job.get("id")),
                name=conversation.clean_name(job.get("name")),
                prompt=prompt,
                schedule=Schedule(rule, zone),
                targets=tuple(self._parse_targets(as_dict(job.get("delivery")), payload, place)),
                active=job.get("enabled") is not False,
            )
        )

    def _parse_targets(self, delivery: Json, payload: Json, place: str) -> Iterator[ForeignPlace]:
        # Older jobs have the target in the payload.
        channel = as_text(delivery.get("channel")) or as_text(payload.get("channel"))
        to = as_text(delivery.get("to")) or as_text(payload.get("to"))
        if delivery.get("mode") == "none" or not (channel or to):
            return
        if channel in PLATFORMS and to:
            chat, _, thread = _strip_prefix(to).partition(":topic:")
            label = self._find_label(channel, as_text(delivery.get("accountId")))
            yield ForeignPlace(label=label, chat=chat, thread=thread)
        else:
            self._log.lose("targets of jobs that name no chat: `keryx jobs list` shows them", place)

    def _parse_answer(self, row: Json) -> UnsentAnswer | None:
        entry = as_dict(conversation.parse_json(row.get("entry_json")))
        channel = as_text(row.get("channel")) or as_text(entry.get("channel"))
        to = as_text(row.get("target")) or as_text(entry.get("to"))
        texts = (conversation.text_of(payload) for payload in as_list(entry.get("payloads")))
        text = "\n\n".join(filter(None, texts))
        if as_text(row.get("status")) not in _OPEN_STATES or not text:
            return None
        if channel not in PLATFORMS or not to:
            self._log.lose("answers that were not sent, on platforms that Keryx cannot connect", channel)
            return None
        chat, _, thread = _strip_prefix(to).partition(":topic:")
        return UnsentAnswer(
            id=f"{as_text(row.get('queue_name'))}:{as_text(row.get('id'))}",
            place=ForeignPlace(
                label=self._find_label(channel, as_text(row.get("account_id"))), chat=chat, thread=thread
            ),
            text=text,
            uncertain=bool(row.get("platform_send_started_at")) or row.get("status") == "failed",
            at=conversation.parse_time(row.get("enqueued_at")),
        )

    def _read_models(self) -> None:
        """Add the model that agents use by default, if its endpoint speaks the protocol of OpenAI."""
        defaults = as_dict(as_dict(self._settings.get("agents")).get("defaults"))
        model = defaults.get("model")
        primary = as_text(as_dict(model).get("primary")) or as_text(model)
        first = self._build_model(primary) if primary else None
        if first is not None:
            others = (self._build_model(as_text(other)) for other in as_list(as_dict(model).get("fallbacks")))
            self._setup.add_models(first, others, self._log)

    def _build_model(self, named: str) -> ForeignModel | None:
        """Return a model with its endpoint, `None` if it has none that Keryx can ask."""
        provider, _, name = named.partition("/")
        about = as_dict(as_dict(as_dict(self._settings.get("models")).get("providers")).get(provider))
        base_url = as_text(about.get("baseUrl")).rstrip("/")
        if not name or not base_url or as_text(about.get("api")) not in _APIS:
            self._log.lose("models: add them as [[models]]", conversation.clean_name(named))
            return None
        return ForeignModel(name=name, base_url=base_url, key=self._find_secret(about.get("apiKey")))

    def _read_instructions(self) -> str:
        defaults = as_dict(as_dict(self._settings.get("agents")).get("defaults"))
        named = as_text(defaults.get("workspace"))
        folder = Path(os.path.realpath(Path(named).expanduser() if named else self._home / "workspace"))
        if not folder.is_relative_to(self._home):
            # Nothing outside of the source is read.
            self._log.lose("instructions in a workspace elsewhere: copy them to [profiles]", str(folder))
            return ""
        limit = program_setup.MAX_INSTRUCTIONS
        workspace = SourceFolder(folder, self._log)
        told = [(title, workspace.read_text(name).strip()[:limit]) for title, name in _NOTES]
        return "\n\n".join(f"# {title}\n\n{text}" if title else text for title, text in told if text)

    def _name_losses(self) -> None:
        for name, what in (("skills", "skills"), ("extensions", "plugins"), ("hooks", "hooks")):
            with suppress(OSError):
                if entries := list((self._home / name).iterdir()):
                    self._log.lose(f"{what} of OpenClaw", str(self._home / name), len(entries))
        agents = as_list(as_dict(self._settings.get("agents")).get("list"))
        if len(agents) > 1:
            self._log.lose(
                "settings of further agents: their conversations are brought",
                "openclaw.json",
                len(agents) - 1,
            )
        if self._settings.get("bindings"):
            self._log.lose(
                "rules that give chats to agents: write them as [agents.NAME] rules", "openclaw.json"
            )


def _clean_account(name: str) -> str:
    """Return a name that an account can have here."""
    return _UNSAFE_NAME.sub("-", name.lower()).strip("-_")[:32] or "other"


def _strip_prefix(text: str) -> str:
    """Return an id without the name of its platform before it."""
    head, _, rest = text.strip().partition(":")
    return rest if rest and (head in PLATFORMS or head in ("user", "channel", "tg")) else text.strip()


def _parse_source(place: Json) -> Source | None:
    platform = as_text(place.get("channel"))
    chat, _, topic = _strip_prefix(as_text(place.get("peer_id"))).partition(":topic:")
    thread = as_text(place.get("thread_id")) or topic
    kind = _CHAT_TYPES.get(as_text(place.get("kind")))
    if platform not in PLATFORMS or not chat or kind is None or max(len(chat), len(thread)) > MAX_ID_LENGTH:
        return None
    native = as_text(place.get("native_direct_user_id"))
    label = conversation.clean_name(place.get("label")) or None
    direct = kind is ChatType.DM
    return Source(
        platform=platform,
        chat=(as_text(place.get("native_channel_id")) or chat)[:MAX_ID_LENGTH]
        if platform == "discord"
        else chat,
        chat_type=kind,
        chat_name=label,
        user=(native or chat)[:MAX_ID_LENGTH] if direct else None,
        user_name=label if direct else None,
        thread=thread or None,
    )


def _name_place(source: Source) -> tuple[str, str | None, str | None]:
    return source.platform, source.chat, source.thread


def _parse_key(key: str) -> Source | None:
    """Return the chat that a session key names: `agent:main:telegram:group:-100777:topic:5`."""
    parts = key.split(":")
    if len(parts) < 5 or parts[0] != "agent" or parts[3] not in _CHAT_TYPES:
        return None
    rest, kind = ":".join(parts[4:]), _CHAT_TYPES[parts[3]]
    chat, _, thread = rest.partition(":topic:" if ":topic:" in rest else ":thread:")
    if parts[2] not in PLATFORMS or not chat or max(len(chat), len(thread)) > MAX_ID_LENGTH:
        return None
    direct = kind is ChatType.DM
    return Source(
        platform=parts[2], chat=chat, chat_type=kind, user=chat if direct else None, thread=thread or None
    )


def _parse_schedule(schedule: Json, job: Json) -> ScheduleRule | None:
    match as_text(schedule.get("kind")):
        case "cron":
            return CronRule(" ".join(as_text(schedule.get("expr")).split()).lower())
        case "every":
            span = timedelta(milliseconds=min(as_count(schedule.get("everyMs")), 1 << 44))
            anchor = schedule.get("anchorMs") or job.get("createdAtMs")
            since = conversation.parse_time(anchor)
            return IntervalRule(span, since) if span >= timedelta(minutes=1) and since else None
        case "at":
            at = conversation.parse_time(schedule.get("at") or schedule.get("atMs"))
            return OnceRule(at) if at else None
        case _:
            return None
