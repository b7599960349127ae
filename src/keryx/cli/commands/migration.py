"""`keryx migrate`: moves from another program to Keryx, with the chats going on."""

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import App, Parameter

from keryx import bootstrap, config, importers, settings_file, setup_registry
from keryx.bootstrap import BaseApp
from keryx.cli import output, settings_migration
from keryx.cli.commands import doctor
from keryx.cli.commands.doctor import Finding, Level
from keryx.cli.options import FLAG, Json, Yes, confirm, load_base
from keryx.cli.output import format_count, show_progress
from keryx.cli.settings_migration import SettingChange, SettingsChanges
from keryx.core.errors import Conflict, Invalid, NotFound
from keryx.core.ports.adapter import Adapter
from keryx.engine import conversation_import, program_migration
from keryx.engine.conversation_import import ConversationReport
from keryx.engine.policy import Policy
from keryx.engine.program_migration import MigrationResult, MigrationScope, PlanEntry, UndoResult
from keryx.importers import Program, hermes_setup, openclaw_setup
from keryx.importers.conversation import Damage, ImportLog, LossCount
from keryx.importers.program_setup import ForeignAccount, ProgramSetup, UnsentAnswer
from keryx.store import imports
from keryx.store.db import Database, Transaction
from keryx.surfaces.gateway.adapter_settings import AdapterSetup

migrate_app = App(name="migrate", help="Move from another program to Keryx, with the chats going on.")

_SetupReader: TypeAlias = Callable[[Path, ImportLog, Mapping[str, str]], ProgramSetup]
_READERS: Mapping[str, _SetupReader] = {
    "hermes": hermes_setup.read,
    "openclaw": openclaw_setup.read,
}
_STOP_COMMANDS = {"hermes": "hermes gateway stop", "openclaw": "openclaw gateway stop"}
_SETTINGS_DIGEST = "settings"
_SECRET_VARIABLE = "MIGRATED_"

_Place: TypeAlias = Annotated[
    str,
    Parameter(allow_leading_hyphen=True, help="Its folder, if it is not at its usual place."),
]
_DryRun: TypeAlias = Annotated[
    bool, FLAG, Parameter(help="Show what would be done and what would be lost, and change nothing.")
]


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration does, as it is shown before."""

    program: str
    source: str
    # The process that has the bots now, 0 for none.
    gateway: int
    conversations: ConversationReport | None
    entries: list[PlanEntry]
    settings: list[SettingChange]
    # The files that secrets are written to.
    secrets: list[str]
    kept: list[str]
    losses: list[LossCount]
    # Questions that were not answered, and answers that were not sent.
    unanswered: list[str]
    unsent: list[str]
    damages: list[Damage]


class MigrationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration did."""

    plan: MigrationPlan
    conversations: ConversationReport
    added: MigrationResult
    findings: list[Finding]


class SwitchSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What came over with the bot, and what is left to a person."""

    messages: int
    jobs: int
    # Jobs that have missed their time.
    late: list[str]
    unanswered: list[str]
    unsent: list[str]
    # `sent`, `dropped` or `open`.
    answers: str


class UndoSummary(msgspec.Struct, frozen=True, kw_only=True):
    program: str
    removed: UndoResult
    # Settings and files that stay.
    kept: list[str]


class ProgramMigration:
    """One migration: the program, what it has, and where that goes."""

    def __init__(self, base: BaseApp, program: Program, source: Path) -> None:
        self.base = base
        self.program = program
        self.source = source
        # What the reader of settings could not bring.
        self.log = ImportLog()
        self.setup = _READERS[program.name](source, self.log, os.environ)
        self.accounts: dict[str, Adapter] = {}
        # The table of each account in keryx.toml.
        self.tables: dict[str, str] = {}
        self._new: list[ForeignAccount] = []
        self._load_accounts()
        self.settings = self._plan_settings()
        self.scope = _build_scope(base, program, self.accounts, self._build_policy())

    def _load_accounts(self) -> None:
        """Build the adapter of each bot of the program, which knows the account. Nothing is connected."""
        configured = bootstrap.load_adapters(config.list_setups(self.base.settings))
        for account in self.setup.accounts:
            variables = {
                f"{_SECRET_VARIABLE}{name.upper()}": value for name, value in account.secrets.items()
            }
            references = {name: f"env:{_SECRET_VARIABLE}{name.upper()}" for name in account.secrets}
            trial = AdapterSetup(
                platform=account.platform,
                name=account.name,
                home=self.base.settings.folder,
                table={**account.settings, **references},
                environ=variables,
            )
            try:
                # The name becomes part of keryx.toml and of the names of files.
                setup_registry.build_label(account.platform, account.name)
                [adapter] = bootstrap.load_adapters([trial]).values()
            except (Invalid, ValueError) as exc:
                self.log.lose(
                    f"{account.label}: set it up with `keryx gateway setup`: {exc}", str(self.source)
                )
                continue
            same = [
                label
                for label, known in configured.items()
                if (known.platform, known.account) == (adapter.platform, adapter.account)
            ]
            taken = account.label in configured
            self.accounts[account.label] = adapter
            self.tables[account.label] = (
                same[0] if same else f"{account.platform}.{self.program.name}" if taken else account.label
            )
            if not same:
                self._new.append(account)

    def _plan_settings(self) -> SettingsChanges:
        home = self.base.settings.folder
        return settings_migration.plan(
            home, self.setup, self.tables, profile=self.base.viewer.profile, new=self._new
        )

    def _build_policy(self) -> Policy:
        """Return the policy as it is once the settings are written."""
        policy = self.base.policy
        changed = {(change.table, change.key): change.after for change in self.settings.changes}
        sharing = {key: value for (table, key), value in changed.items() if table == "sharing"}
        rules = policy.resets
        if ("resets.default", "mode") in changed and self.setup.resets is not None:
            rules = msgspec.structs.replace(rules, default=self.setup.resets)
        return msgspec.structs.replace(
            policy, sharing=msgspec.structs.replace(policy.sharing, **sharing), resets=rules
        )

    async def plan(self, database: Database, *, count: bool) -> MigrationPlan:
        """Return what is to be done. With `count`, the conversations are read to tell how many there are."""
        counted = None
        losses = ImportLog()
        if count:
            with show_progress() as progress:
                counted = await conversation_import.import_conversations(
                    database,
                    self.base.viewer,
                    self.program.key,
                    self.program.read(self.source, losses),
                    losses,
                    dry_run=True,
                    progress=progress,
                )
        log = ImportLog()
        entries = await program_migration.plan(database, self.scope, self.setup, log)
        answers = await program_migration.list_open_answers(database, self.scope, self.setup)
        found = [loss for part in (self.log, log, losses) for loss in part.losses.values()]
        return MigrationPlan(
            program=self.program.name,
            source=str(self.source),
            gateway=self.setup.gateway,
            conversations=counted,
            entries=entries,
            settings=self.settings.changes,
            secrets=sorted(self.settings.secrets),
            kept=self.settings.kept,
            losses=sorted(found, key=lambda loss: -loss.count),
            unanswered=self.list_questions(),
            unsent=list(map(_describe_answer, answers)),
            damages=[*self.log.damages, *losses.damages],
        )

    def list_questions(self) -> list[str]:
        """Return what people asked without an answer."""
        chats = [chat for chat in self.setup.chats if chat.question]
        return list(map(program_migration.describe_question, chats))

    async def run(self, database: Database) -> tuple[ConversationReport, MigrationResult, ImportLog]:
        """Bring everything over."""
        await program_migration.begin(database, self.scope)
        log = ImportLog()
        with show_progress() as progress:
            report = await conversation_import.import_conversations(
                database,
                self.base.viewer,
                self.program.key,
                self.program.read(self.source, log),
                log,
                progress=progress,
            )
            added = await program_migration.apply(database, self.scope, self.setup, progress=progress)
        await database.write("import.migrate", self._note_settings)
        home = self.base.settings.folder
        await asyncio.to_thread(settings_migration.write, home, self.program.name, self.settings)
        return report, added, log

    def _note_settings(self, tx: Transaction) -> None:
        """Note what is about to be written to keryx.toml, so that it can be taken back."""
        if not self.settings.changes and not self.settings.secrets:
            return
        scope = self.scope
        for change in self.settings.changes:
            key = f"{change.table} {change.key}" if change.key else f"{change.table} {change.after}"
            known = scope.find_item(tx, program_migration.SETTING, key)
            before = known.data["before"] if known else change.before
            data = {"table": change.table, "key": change.key, "before": before, "after": change.after}
            scope.note(tx, program_migration.SETTING, key, data=data)
        for name in self.settings.secrets:
            scope.note(tx, program_migration.SECRET, name)
        written = scope.find_item(tx, program_migration.BEGIN, _SETTINGS_DIGEST)
        current = settings_migration.digest_text(settings_file.read_text(self.base.settings.folder))
        # A file that was edited in between is not replaced by the copy from before.
        edited = written is not None and written.data["digest"] != current
        digest = "" if edited else settings_migration.digest_text(self.settings.text)
        scope.note(tx, program_migration.BEGIN, _SETTINGS_DIGEST, data={"digest": digest})


def _build_scope(
    base: BaseApp, program: Program, accounts: Mapping[str, Adapter], policy: Policy
) -> MigrationScope:
    return MigrationScope(
        program=program.name,
        title=program.title,
        profile=base.viewer.profile,
        accounts=accounts,
        policy=policy,
    )


@migrate_app.command
async def hermes(
    path: _Place = "", /, *, dry_run: _DryRun = False, yes: Yes = False, json: Json = False
) -> int:
    """Move from Hermes Agent to Keryx.

    Conversations, chats, people, home channels, jobs, personality, models and bots come over; the plan is shown first.
    Nothing in Hermes is changed or run. Start it again to bring what was said since, or after an interruption. The exit
    code is 1 if a part of the source could not be read.

        keryx migrate hermes --dry-run
        keryx migrate hermes
        keryx migrate switch hermes
        keryx migrate undo hermes
    """
    return await _migrate("hermes", path, dry_run=dry_run, yes=yes, json=json)


@migrate_app.command
async def openclaw(
    path: _Place = "", /, *, dry_run: _DryRun = False, yes: Yes = False, json: Json = False
) -> int:
    """Move from OpenClaw to Keryx.

    Conversations, chats, people, jobs, instructions, models and bots come over; the plan is shown first. Nothing in
    OpenClaw is changed or run. Start it again to bring what was said since, or after an interruption. The exit code is 1 if
    a part of the source could not be read.

        keryx migrate openclaw --dry-run
        keryx migrate openclaw
        keryx migrate switch openclaw
        keryx migrate undo openclaw
    """
    return await _migrate("openclaw", path, dry_run=dry_run, yes=yes, json=json)


@migrate_app.command
async def switch(
    program: Annotated[str, Parameter(help="hermes or openclaw.")],
    path: _Place = "",
    /,
    *,
    send_answers: Annotated[
        bool, FLAG, Parameter(help="Send the answers that the program did not record as sent.")
    ] = False,
    drop_answers: Annotated[bool, FLAG, Parameter(help="Do not send them, and ask no more.")] = False,
    json: Json = False,
) -> int:
    """Finish a migration once the other program is stopped.

    Brings what was said since, lets the jobs run, and asks about answers that were not sent. Then start `keryx serve`.

        keryx migrate switch hermes
        keryx migrate switch hermes --drop-answers
    """
    if send_answers and drop_answers:
        raise Invalid("give --send-answers or --drop-answers, not both")
    migration = _open_migration(program, path)
    if migration.setup.gateway:
        stop = _STOP_COMMANDS[migration.program.name]
        raise Conflict(
            f"{migration.program.title} still has the bot (process {migration.setup.gateway}): stop it first with `{stop}`"
        )
    async with migration.base.database as database:
        if not await program_migration.is_begun(database, migration.scope):
            raise Conflict(f"nothing was migrated yet: start with `keryx migrate {migration.program.name}`")
        report, _, log = await migration.run(database)
        resumed, late = await program_migration.resume_jobs(database, migration.scope)
        answers = await program_migration.list_open_answers(database, migration.scope, migration.setup)
        if send_answers or drop_answers:
            for answer in answers:
                await program_migration.settle_answer(database, migration.scope, answer, send=send_answers)
    summary = SwitchSummary(
        messages=report.messages,
        jobs=resumed,
        late=late,
        unanswered=migration.list_questions(),
        unsent=list(map(_describe_answer, answers)),
        answers="sent" if send_answers else "dropped" if drop_answers else "open",
    )
    if json:
        output.write_json(summary)
    else:
        _write_switch(summary, migration.program.title)
    for damage in log.damages:
        output.warn(f"{damage.place}: {damage.text}")
    return int(bool(log.damages))


@migrate_app.command
async def undo(
    program: Annotated[str, Parameter(help="hermes or openclaw.")],
    /,
    *,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Take a migration back: what it added is removed, and keryx.toml is as it was.

    Conversations in which something was said since stay, with their chats and people.

        keryx migrate undo hermes
    """
    chosen = _find_program(program)
    base = load_base()
    scope = _build_scope(base, chosen, {}, base.settings.policy)
    async with base.database as database:
        if not await program_migration.is_begun(database, scope):
            raise Conflict(f"nothing was migrated from {chosen.title}")
        confirm(f"Remove what was migrated from {chosen.title}?", yes)
        with show_progress() as progress:
            removed = await program_migration.undo(database, scope, progress=progress)
        kept = await _undo_settings(database, scope, base.settings.folder)
        await program_migration.forget(database, scope)
    summary = UndoSummary(program=chosen.name, removed=removed, kept=kept)
    if json:
        output.write_json(summary)
        return
    output.write_fields(
        [
            ("conversations removed", str(removed.sessions)),
            ("chats", str(removed.chats)),
            ("people", str(removed.people)),
            ("grants", str(removed.grants)),
            ("home channels", str(removed.homes)),
            ("jobs", str(removed.jobs)),
        ]
    )
    for line in (*removed.kept, *kept):
        output.write(f"stays: {output.sanitize(line, one_line=True)}")
    output.write("Start `keryx serve` again if it runs, so that it reads keryx.toml.")


async def _undo_settings(database: Database, scope: MigrationScope, home: Path) -> list[str]:
    """Take back what was written to keryx.toml, then the notes of it."""

    def read(tx: Transaction) -> tuple[list[SettingChange], list[str], str]:
        items = scope.list_items(tx, program_migration.SETTING)
        secrets = [item.key for item in scope.list_items(tx, program_migration.SECRET)]
        written = scope.find_item(tx, program_migration.BEGIN, _SETTINGS_DIGEST)
        changes = [msgspec.convert(item.data, SettingChange) for item in items]
        return changes, secrets, written.data["digest"] if written else ""

    changes, secrets, digest = await database.read("import.migrate", read)
    kept = await asyncio.to_thread(
        partial(settings_migration.undo, home, scope.program, changes, secrets, digest=digest)
    )

    def write(tx: Transaction) -> None:
        for kind in (program_migration.SETTING, program_migration.SECRET):
            for item in scope.list_items(tx, kind):
                imports.remove_item(tx, scope.profile, scope.program, kind=kind, key=item.key)

    await database.write("import.migrate", write)
    return kept


def _find_program(name: str) -> Program:
    if name not in _READERS:
        raise NotFound(f"{name[:80]!r} cannot be migrated: choose {' or '.join(_READERS)}")
    return importers.find_program(name)


def _open_migration(name: str, path: str) -> ProgramMigration:
    program = _find_program(name)
    source = importers.find_source(program, path, home=Path.home(), env=os.environ)
    return ProgramMigration(load_base(), program, source)


async def _migrate(name: str, path: str, *, dry_run: bool, yes: bool, json: bool) -> int:
    migration = _open_migration(name, path)
    async with migration.base.database as database:
        plan = await migration.plan(database, count=dry_run or not yes)
        if not json:
            _write_plan(plan, migration.program.title)
        if dry_run:
            if json:
                output.write_json(plan)
            return int(bool(plan.damages))
        confirm("Do this?", yes)
        report, added, log = await migration.run(database)
    # That no node runs is right until the switch: the other program still has the bot.
    findings = [f for f in await doctor.examine() if f.level is not Level.OK and f.name != doctor.NODE]
    summary = MigrationSummary(plan=plan, conversations=report, added=added, findings=findings)
    if json:
        output.write_json(summary)
    else:
        _write_summary(summary, migration)
    for damage in log.damages:
        output.warn(f"{damage.place}: {damage.text}")
    return int(bool(log.damages or plan.damages))


def _write_plan(plan: MigrationPlan, title: str) -> None:
    counted = plan.conversations
    if counted is not None:
        output.write_fields(
            [
                ("source", plan.source),
                ("new conversations", str(counted.created)),
                ("longer now", str(counted.extended)),
                ("unchanged", str(counted.unchanged)),
                ("messages", str(counted.messages)),
            ]
        )
        output.write("")
    rows = [(entry.kind, entry.what, entry.to, entry.state) for entry in plan.entries]
    rows += [("setting", *_describe_change(change), "new") for change in plan.settings]
    rows += [("secret", "", f"secrets/{name}", "new") for name in plan.secrets]
    if rows:
        output.write_table(("kind", "what", "here", "state"), rows, flexible=1)
        output.write("")
    for line in plan.kept:
        output.write(line)
    if plan.losses:
        output.write_table(
            ("not brought", "count", "first at"),
            [(loss.what, str(loss.count), loss.place) for loss in plan.losses],
            flexible=2,
            right=(1,),
        )
        output.write("")
    _write_questions(title, plan.unanswered)
    _write_answers(title, plan.unsent)
    for damage in plan.damages:
        output.warn(f"{damage.place}: {damage.text}")
    if plan.gateway:
        output.warn(f"{title} runs (process {plan.gateway}) and has the bot until you stop it")


def _describe_change(change: SettingChange) -> tuple[str, str]:
    if not change.key:
        return f"[[{change.table}]]", str(change.after).split("\n")[1]
    shown = output.truncate(settings_file.format_value(change.after), 60)
    return f"[{change.table}] {change.key}", shown


def _write_switch(summary: SwitchSummary, title: str) -> None:
    fields = (("messages since", summary.messages), ("jobs that run from now on", summary.jobs))
    output.write_fields((name, str(count)) for name, count in fields)
    for line in summary.late:
        output.warn(line)
    _write_questions(title, summary.unanswered)
    if summary.answers == "open" and summary.unsent:
        _write_answers(title, summary.unsent)
        output.write("`--send-answers` sends them, `--drop-answers` does not.")
    elif summary.unsent:
        output.write(f"{format_count(len(summary.unsent), 'answer')} of {title}: {summary.answers}.")
    output.write("Start `keryx serve` now: what people wrote meanwhile is answered.")


def _write_questions(title: str, questions: list[str]) -> None:
    if questions:
        output.write(
            f"{title} took these questions in and did not answer them; ask the person to repeat them:"
        )
        for line in questions:
            output.write(f"  {output.sanitize(line, one_line=True)}")
        output.write("")


def _write_answers(title: str, answers: list[str]) -> None:
    if answers:
        output.write(f"{title} did not record these answers as sent; `keryx migrate switch` asks about them:")
        for line in answers:
            output.write(f"  {output.sanitize(line, one_line=True)}")
        output.write("")


def _describe_answer(answer: UnsentAnswer) -> str:
    doubt = " (it may have arrived)" if answer.uncertain else ""
    text = output.truncate(answer.text, 60)
    return f"{answer.place.label}:{answer.place.chat}{doubt}: {text}"


def _write_summary(summary: MigrationSummary, migration: ProgramMigration) -> None:
    report, added = summary.conversations, summary.added
    output.write_fields(
        [
            ("conversations added", str(report.created)),
            ("longer now", str(report.extended)),
            ("messages added", str(report.messages)),
            ("chats that go on", str(added.chats)),
            ("people", str(added.people)),
            ("people who may talk", str(added.grants)),
            ("home channels", str(added.homes)),
            ("jobs, paused until the switch", str(added.jobs)),
            ("settings", str(len(summary.plan.settings))),
        ]
    )
    for line in added.kept:
        output.write(f"stays: {output.sanitize(line, one_line=True)}")
    output.write("")
    for finding in summary.findings:
        output.write(f"{finding.level.value}: {finding.text} → {finding.remedy}")
    title, name = migration.program.title, migration.program.name
    first = f"stop {title}: {_STOP_COMMANDS[name]}"
    if migration.setup.gateway:
        first += f" (its process is {migration.setup.gateway})"
    output.write("To switch over:")
    output.write(f"  1. {first}")
    output.write(f"  2. keryx migrate switch {name}")
    output.write("  3. keryx serve; start it again if it runs")
    output.write(
        output.wrap(
            "What people write on Telegram in between waits there for up to a day, and Keryx answers it. Other platforms keep"
            " less, so let little time pass. `keryx migrate undo` takes all of it back."
        )
    )
