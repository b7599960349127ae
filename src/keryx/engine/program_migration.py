"""Migration from another program beyond its conversations: its chats go on in their sessions, and people, home channels, jobs
and answers that were not sent come over. Each item is written in one transaction together with the note of it, so that a
migration goes on after a crash, adds nothing twice, and can be taken back."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec

from keryx.core import ids, lanes, resets, schedules, sessions
from keryx.core import source as sources
from keryx.core.deliveries import Target
from keryx.core.errors import Conflict, Invalid
from keryx.core.ids import OPERATOR, JobId, PrincipalId, ProfileId, SessionId
from keryx.core.jobs import Job, JobState
from keryx.core.lanes import LaneAddress
from keryx.core.ports import adapter as adapter_port
from keryx.core.ports.adapter import Adapter, SupportsMigration
from keryx.core.records import Progress, ignore_progress
from keryx.core.sessions import Session, Viewer
from keryx.core.source import ChatType, Source
from keryx.core.text import to_short_line
from keryx.core.texts import Phrase
from keryx.engine.policy import Policy
from keryx.engine.units import access, control
from keryx.engine.units import jobs as job_units
from keryx.importers.conversation import ImportLog
from keryx.importers.program_setup import (
    ForeignChat,
    ForeignGrant,
    ForeignJob,
    ForeignPlace,
    ProgramSetup,
    UnsentAnswer,
)
from keryx.store import access as access_store
from keryx.store import deliveries, imports, jobs, people, platforms, turns
from keryx.store import lanes as lane_store
from keryx.store import sessions as session_store
from keryx.store.db import Database, Transaction
from keryx.store.imports import MigrationItem

BEGIN = "begin"
BEFORE = "before"
OWNER = "owner"
PERSON = "person"
LANE = "lane"
GRANT = "grant"
HOME = "home"
JOB = "job"
ANSWER = "answer"
SETTING = "setting"
SECRET = "secret"
_PAGE_SIZE = 200
_MAX_SHOWN = 60
_NEW, _THERE = "new", "there already"


class MigrationScope(msgspec.Struct, frozen=True, kw_only=True):
    """A program, where its data goes, and the accounts that its bots have here, by the name of their table."""

    program: str
    title: str
    profile: ProfileId
    accounts: Mapping[str, Adapter]
    # The policy as it is once the settings are written.
    policy: Policy

    @property
    def job_reason(self) -> str:
        """Why the jobs of the program are paused until the bot has moved."""
        return f"it waits until {self.title} is stopped: `keryx migrate switch {self.program}`"

    def find_item(self, tx: Transaction, kind: str, key: str) -> MigrationItem | None:
        return imports.find_item(tx, self.profile, self.program, kind=kind, key=key)

    def list_items(self, tx: Transaction, kind: str) -> list[MigrationItem]:
        return imports.list_items(tx, self.profile, self.program, kind)

    def note(
        self,
        tx: Transaction,
        kind: str,
        key: str,
        owner: PrincipalId = OPERATOR,
        *,
        data: Mapping[str, Any] = {},
    ) -> None:
        item = MigrationItem(kind=kind, key=key, owner=owner, data=dict(data))
        imports.add_item(tx, self.profile, self.program, item)

    def forget(self, tx: Transaction, kind: str, key: str) -> None:
        imports.remove_item(tx, self.profile, self.program, kind=kind, key=key)


class PlanEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One item of the program, and the plan for it."""

    kind: str
    what: str
    # Where it goes.
    to: str
    # `new`, `there already`, or why it stays as it is.
    state: str = _NEW


class MigrationResult(msgspec.Struct, kw_only=True):
    """How many of each kind were added, and what was left as it is."""

    chats: int = 0
    people: int = 0
    grants: int = 0
    homes: int = 0
    jobs: int = 0
    kept: list[str] = []


class UndoResult(msgspec.Struct, kw_only=True):
    """What was removed, and what stays because something was said since."""

    sessions: int = 0
    chats: int = 0
    people: int = 0
    grants: int = 0
    homes: int = 0
    jobs: int = 0
    kept: list[str] = []


class _Place(NamedTuple):
    """A chat as this Keryx names it."""

    source: Source
    address: LaneAddress
    # Who the lane belongs to; empty for the operator.
    person: str


async def is_begun(database: Database, scope: MigrationScope) -> bool:
    found = await database.read("import.migrate", lambda tx: scope.find_item(tx, BEGIN, ""))
    return found is not None


async def begin(database: Database, scope: MigrationScope) -> None:
    """Note what was imported before, once."""

    def write(tx: Transaction) -> None:
        if scope.find_item(tx, BEGIN, "") is None:
            scope.note(tx, BEGIN, "")
            imports.note_earlier(tx, scope.profile, scope.program, kind=BEFORE)

    await database.write("import.migrate", write)


async def plan(
    database: Database, scope: MigrationScope, setup: ProgramSetup, log: ImportLog
) -> list[PlanEntry]:
    """Return what a migration would do besides importing conversations. What cannot be brought is counted in the log."""

    def read(tx: Transaction) -> list[PlanEntry]:
        return [
            *(entry for chat in setup.chats if (entry := _plan_chat(tx, scope, chat, log))),
            *(_plan_grant(tx, scope, grant) for grant in setup.grants),
            *(entry for home in setup.homes if (entry := _plan_home(tx, scope, home, log))),
            *(_plan_job(tx, scope, setup, job, log) for job in setup.jobs),
        ]

    return await database.read("import.migrate", read)


async def apply(
    database: Database,
    scope: MigrationScope,
    setup: ProgramSetup,
    *,
    progress: Progress = ignore_progress,
) -> MigrationResult:
    """Write what `plan` shows. The conversations must have been imported."""
    result = MigrationResult()
    # Losses were counted by `plan`.
    log = ImportLog()
    last = ""
    while page := await database.read(
        "import.migrate",
        lambda tx, last=last: imports.list_sessions(
            tx, scope.profile, scope.program, after=last, limit=_PAGE_SIZE
        ),
    ):
        result.people += await database.write(
            "import.migrate", partial(_assign_sessions, scope=scope, page=page)
        )
        last = page[-1]
    total = len(setup.chats) + len(setup.grants) + len(setup.homes) + len(setup.jobs)
    done = 0
    for chat in setup.chats:
        await database.write(
            "import.migrate", partial(_move_chat, scope=scope, chat=chat, log=log, result=result)
        )
        progress("chats and settings", done := done + 1, total)
    for grant in setup.grants:
        result.grants += await database.write("import.migrate", partial(_add_grant, scope=scope, grant=grant))
        progress("chats and settings", done := done + 1, total)
    for home in setup.homes:
        result.homes += await database.write(
            "import.migrate", partial(_set_home, scope=scope, home=home, log=log)
        )
        progress("chats and settings", done := done + 1, total)
    for job in setup.jobs:
        result.jobs += await database.write(
            "import.migrate", partial(_add_job, scope=scope, setup=setup, job=job, log=log)
        )
        progress("chats and settings", done := done + 1, total)
    return result


def _locate(scope: MigrationScope, source: Source, label: str, tx: Transaction) -> _Place | None:
    """Return a chat as its next message will name it, `None` if that is not known."""
    adapter = scope.accounts.get(label)
    if adapter is None:
        return None
    source = msgspec.structs.replace(source, account=adapter.account, profile=scope.profile, message=None)
    converted = adapter.convert_source(source) if isinstance(adapter, SupportsMigration) else source
    if converted is None:
        return None
    try:
        adapter_port.check_id(converted.platform, "chat", converted.chat or "", adapter.capabilities.ids.chat)
        address = lanes.build_address(
            converted, sharing=scope.policy.sharing, aliases=access.find_aliases(tx, converted)
        )
    except Invalid:
        return None
    alone = converted.chat_type is ChatType.DM or converted.user_alt or converted.user
    person = access.identify(converted) if alone else ""
    if not person:
        return _Place(converted, address, "")
    canonical = sources.resolve_user(converted.platform, person, aliases=access.find_aliases(tx, converted))
    return _Place(converted, address, canonical)


def _plan_chat(tx: Transaction, scope: MigrationScope, chat: ForeignChat, log: ImportLog) -> PlanEntry | None:
    name = chat.source.chat_name or chat.source.user_name or chat.source.chat or ""
    what = f"{chat.label}: {_shorten(name)}"
    if scope.policy.assign_profile(chat.source).profile not in (scope.profile, chat.source.profile):
        log.lose("chats that belong to another profile here", what)
        return None
    place = _locate(scope, chat.source, chat.label, tx)
    if place is None:
        missing = chat.label not in scope.accounts
        reason = "whose bot is not set up" if missing else "whose address cannot be told"
        log.lose(f"chats {reason}: they begin anew; /resume brings their conversations", what)
        return None
    return PlanEntry(kind="chat", what=what, to=place.address.key, state=_judge_chat(tx, scope, chat, place))


def _judge_chat(tx: Transaction, scope: MigrationScope, chat: ForeignChat, place: _Place) -> str:
    """Return what becomes of a chat. One that was moved here, or that goes on here already, stays as it is."""
    known = scope.find_item(tx, LANE, place.address.key)
    found = lane_store.get_many(tx, [place.address.key])
    current = found[0].session if found else None
    if known is None:
        return _NEW if current is None else "it goes on in Keryx already: /resume brings the old conversation"
    session = imports.find_session(tx, scope.profile, scope.program, chat.session)
    if session is None or session == known.data["session"] or current != known.data["session"]:
        return _THERE
    return "goes on in its newer conversation"


def _plan_grant(tx: Transaction, scope: MigrationScope, grant: ForeignGrant) -> PlanEntry:
    there = _find_grant(tx, scope, grant) is not None or scope.find_item(tx, GRANT, _name_grant(grant))
    what = f"{grant.platform}: {_shorten(grant.name or grant.person)}"
    return PlanEntry(kind="person", what=what, to="may talk, by pairing", state=_THERE if there else _NEW)


def _plan_home(
    tx: Transaction, scope: MigrationScope, home: ForeignPlace, log: ImportLog
) -> PlanEntry | None:
    target = _find_target(scope, home)
    if target is None:
        log.lose("home channels whose bot is not set up", f"{home.label}:{home.chat}")
        return None
    current = platforms.find_home(tx, target.platform, profile=scope.profile)
    state = _NEW
    if current is not None:
        state = _THERE if current.target == target else "another one is set here, and stays"
    return PlanEntry(kind="home channel", what=_shorten(home.name or home.chat), to=str(target), state=state)


def _plan_job(
    tx: Transaction, scope: MigrationScope, setup: ProgramSetup, job: ForeignJob, log: ImportLog
) -> PlanEntry:
    known = scope.find_item(tx, JOB, job.id)
    targets = _list_targets(scope, setup, job, log)
    to = f"{job.schedule}, to {', '.join(map(str, targets)) or 'nowhere'}"
    if not job.active:
        to += ", paused"
    over = _find_next(job, tx.now) is None
    return PlanEntry(
        kind="job",
        what=_shorten(job.name or job.prompt),
        to=to,
        state=_THERE if known else "its time has passed, or never comes: it is left out" if over else _NEW,
    )


def _assign_sessions(tx: Transaction, scope: MigrationScope, page: list[SessionId]) -> int:
    """Give the conversations of each chat to the person who had them. Return how many people are new."""
    new = 0
    for id_ in page:
        session = session_store.get(tx, id_, deleted=True)
        if session.owner != OPERATOR or session.origin is None:
            continue
        origin = session.origin
        label = f"{origin.platform}.{origin.account.lower()}"
        place = _locate(scope, origin, label if label in scope.accounts else origin.platform, tx)
        if place is not None:
            new += _assign_session(tx, scope, session, place)
    return new


def _assign_session(tx: Transaction, scope: MigrationScope, session: Session, place: _Place) -> bool:
    """Give a conversation to the person of a chat, once. Return whether the person is new."""
    if session.owner != OPERATOR or not place.person or scope.find_item(tx, OWNER, session.id):
        return False
    owner, is_new = _ensure_person(tx, scope, place)
    session_store.lock(tx, session.id)
    session_store.change_owner(tx, session, owner)
    imports.set_origin(tx, session.id, place.source)
    scope.note(tx, OWNER, session.id, owner)
    return is_new


def _ensure_person(tx: Transaction, scope: MigrationScope, place: _Place) -> tuple[PrincipalId, bool]:
    platform = place.source.platform
    known = people.find(tx, profile=scope.profile, platform=platform, person=place.person)
    if known is not None:
        return known, False
    name = place.source.user_name or place.source.chat_name or ""
    principal = people.resolve(tx, profile=scope.profile, platform=platform, person=place.person, name=name)
    scope.note(tx, PERSON, principal, principal)
    return principal, True


def _move_chat(
    tx: Transaction, scope: MigrationScope, chat: ForeignChat, log: ImportLog, result: MigrationResult
) -> None:
    """Continue a chat in its session."""
    session = imports.find_session(tx, scope.profile, scope.program, chat.session)
    if session is None or _plan_chat(tx, scope, chat, log) is None:
        return
    place = _locate(scope, chat.source, chat.label, tx)
    assert place is not None
    state = _judge_chat(tx, scope, chat, place)
    if state == _THERE:
        return
    lane = lane_store.find_locked(tx, place.address.key)
    known = scope.find_item(tx, LANE, place.address.key)
    if lane is not None and lane.session is not None and known is None:
        result.kept.append(f"{place.address.key}: {state}")
        return
    session_store.lock(tx, session)
    result.people += _assign_session(tx, scope, session_store.get(tx, session), place)
    owner = session_store.get(tx, session).owner
    before = {"before": None, "created": lane is None} if known is None else known.data
    if lane is None:
        lane = lane_store.ensure(tx, place.address, place.source, owner=owner)
    lane = lane_store.move(tx, lane, session, why=Phrase("move.migrated", program=scope.title))
    rule = scope.policy.resets.for_source(place.source.platform, ChatType(place.source.chat_type))
    lane_store.touch(tx, lane, expires_at=resets.find_next_due(rule, last_active=tx.now))
    if chat.suspended:
        lane_store.set_suspended(tx, lane, True)
    scope.note(tx, LANE, place.address.key, owner, data={**before, "session": session})
    result.chats += 1


def _name_grant(grant: ForeignGrant) -> str:
    return f"{grant.platform}:{sources.build_handle(grant.platform, grant.person)}"


def _find_grant(tx: Transaction, scope: MigrationScope, grant: ForeignGrant) -> access_store.Grant | None:
    return access_store.find_grant(
        tx,
        profile=scope.profile,
        platform=ids.escape(grant.platform),
        person=sources.build_handle(grant.platform, grant.person),
    )


def _add_grant(tx: Transaction, scope: MigrationScope, grant: ForeignGrant) -> bool:
    key = _name_grant(grant)
    if scope.find_item(tx, GRANT, key) or _find_grant(tx, scope, grant):
        return False
    handle = sources.build_handle(grant.platform, grant.person)
    access_store.add_grant(
        tx,
        profile=scope.profile,
        platform=ids.escape(grant.platform),
        person=handle,
        name=grant.name,
        operator=False,
        by=OPERATOR,
    )
    owner = people.find_by_handle(
        tx, profile=scope.profile, platform=ids.escape(grant.platform), handle=handle
    )
    data = {"platform": ids.escape(grant.platform), "person": handle}
    scope.note(tx, GRANT, key, owner or OPERATOR, data=data)
    return True


def _find_target(scope: MigrationScope, place: ForeignPlace) -> Target | None:
    """Return where a place is written to, `None` if it cannot be."""
    adapter = scope.accounts.get(place.label)
    if adapter is None or not place.chat:
        return None
    try:
        adapter_port.check_id(adapter.platform, "chat", place.chat, adapter.capabilities.ids.chat)
        adapter_port.check_id(adapter.platform, "thread", place.thread, adapter.capabilities.ids.thread)
    except Invalid:
        return None
    return Target(adapter.platform, adapter.account, place.chat, place.thread)


def _set_home(tx: Transaction, scope: MigrationScope, home: ForeignPlace, log: ImportLog) -> bool:
    target = _find_target(scope, home)
    if target is None or scope.find_item(tx, HOME, target.platform):
        return False
    if platforms.find_home(tx, target.platform, profile=scope.profile) is not None:
        return False
    platforms.set_home(tx, target, profile=scope.profile, name=home.name, by=OPERATOR)
    scope.note(tx, HOME, target.platform, data={"target": msgspec.to_builtins(target)})
    return True


def _list_targets(
    scope: MigrationScope, setup: ProgramSetup, job: ForeignJob, log: ImportLog
) -> list[Target]:
    found: list[Target] = []
    for place in job.targets:
        named = place
        if not place.chat:
            named = next((home for home in setup.homes if home.label == place.label), place)
        target = _find_target(scope, named)
        if target is None:
            log.lose("targets of jobs that cannot be written to", f"{job.name}: {place.label}:{place.chat}")
        elif target not in found:
            found.append(target)
    return found


def _find_next(job: ForeignJob, now: datetime) -> datetime | None:
    """Return when a job is due next, `None` for never, or if its schedule is none."""
    try:
        return schedules.find_next(job.schedule, now)
    except Invalid:
        return None


def _add_job(
    tx: Transaction, scope: MigrationScope, setup: ProgramSetup, job: ForeignJob, log: ImportLog
) -> bool:
    """Add a job, which waits until the bot has moved."""
    if scope.find_item(tx, JOB, job.id) or _find_next(job, tx.now) is None:
        return False
    place = _locate(scope, job.source, job.label, tx) if job.source else None
    owner = _ensure_person(tx, scope, place)[0] if place and place.person else OPERATOR
    added = jobs.add(
        tx,
        Job(
            id=JobId(ids.new(tx.now)),
            profile=scope.profile,
            owner=owner,
            name=sessions.clean_title(job.name) if job.name.strip() else sessions.derive_title(job.prompt),
            prompt=job.prompt,
            schedule=job.schedule,
            targets=tuple(_list_targets(scope, setup, job, log)),
            source=place.source if place else None,
            project=None,
            state=JobState.PAUSED,
            why="",
            next_at=None,
            created_at=tx.now,
        ),
    )
    jobs.set_state(tx, added, JobState.PAUSED, next_at=None, why=scope.job_reason if job.active else "")
    scope.note(tx, JOB, job.id, owner, data={"job": added.id, "active": job.active})
    return True


async def resume_jobs(database: Database, scope: MigrationScope) -> tuple[int, list[str]]:
    """Let the jobs run that wait for the bot. Return how many do, and which have missed their time."""

    def write(tx: Transaction) -> tuple[int, list[str]]:
        waiting = {item.data["job"] for item in scope.list_items(tx, JOB) if item.data.get("active")}
        resumed, late = 0, list[str]()
        for job in jobs.list_for_viewer(tx, Viewer(scope.profile, OPERATOR)):
            if job.id in waiting and job.state is JobState.PAUSED and job.why == scope.job_reason:
                try:
                    job_units.resume(tx, jobs.lock(tx, job))
                    resumed += 1
                except Conflict as exc:
                    late.append(f"{job.name}: {tx.texts.speak().render(exc.text)}")
        return resumed, late

    return await database.write("import.migrate", write)


async def list_open_answers(
    database: Database, scope: MigrationScope, setup: ProgramSetup
) -> list[UnsentAnswer]:
    """Return the answers that were not decided about yet and that can be sent."""

    def read(tx: Transaction) -> list[UnsentAnswer]:
        return [
            answer
            for answer in setup.answers
            if _find_target(scope, answer.place) and scope.find_item(tx, ANSWER, answer.id) is None
        ]

    return await database.read("import.migrate", read)


async def settle_answer(
    database: Database, scope: MigrationScope, answer: UnsentAnswer, *, send: bool
) -> None:
    """Send an answer of the program, or note that it is not to be sent. An answer is sent once."""

    def write(tx: Transaction) -> None:
        target = _find_target(scope, answer.place)
        if target is None or scope.find_item(tx, ANSWER, answer.id) is not None:
            return
        if send:
            mark = scope.policy.repeat_mark if answer.uncertain else ""
            deliveries.enqueue(tx, target, f"{mark}{answer.text}", of=Viewer(scope.profile, OPERATOR))
        scope.note(tx, ANSWER, answer.id, data={"state": "sent" if send else "dropped"})

    await database.write("import.migrate", write)


async def undo(
    database: Database, scope: MigrationScope, *, progress: Progress = ignore_progress
) -> UndoResult:
    """Take a migration back, except for its settings. Conversations in which something was said since stay, with their
    chats and people."""
    result = UndoResult()
    for kind, remove in (
        (JOB, _undo_job),
        (HOME, _undo_home),
        (GRANT, _undo_grant),
        (LANE, _undo_lane),
    ):
        for item in await database.read("import.migrate", partial(scope.list_items, kind=kind)):
            await database.write("import.migrate", partial(remove, scope=scope, item=item, result=result))
    last, done = "", 0
    while page := await database.read(
        "import.migrate",
        lambda tx, last=last: imports.list_sessions(
            tx, scope.profile, scope.program, after=last, limit=_PAGE_SIZE
        ),
    ):
        for session in page:
            await database.write(
                "import.migrate", partial(_undo_session, scope=scope, session=session, result=result)
            )
            progress("conversations", done := done + 1, 0)
        last = page[-1]
    for item in await database.read("import.migrate", partial(scope.list_items, kind=PERSON)):
        await database.write("import.migrate", partial(_undo_person, scope=scope, item=item, result=result))
    return result


async def forget(database: Database, scope: MigrationScope) -> None:
    """Remove the notes of a migration that was taken back."""

    def write(tx: Transaction) -> None:
        for kind in (ANSWER, OWNER, BEFORE, BEGIN):
            for item in scope.list_items(tx, kind):
                scope.forget(tx, kind, item.key)

    await database.write("import.migrate", write)


def _was_continued(tx: Transaction, id_: SessionId) -> bool:
    """Whether something was said in a session since it was imported."""
    session = session_store.get(tx, id_, deleted=True)
    imported = max(imports.load_records(tx, id_).values(), default=0)
    return session.last_seq > imported or turns.has_open(tx, id_)


def _undo_job(tx: Transaction, scope: MigrationScope, item: MigrationItem, result: UndoResult) -> None:
    viewer = Viewer(scope.profile, OPERATOR)
    for job in jobs.list_for_viewer(tx, viewer, done=True):
        if job.id == item.data["job"]:
            jobs.remove(tx, job)
            result.jobs += 1
    scope.forget(tx, JOB, item.key)


def _undo_home(tx: Transaction, scope: MigrationScope, item: MigrationItem, result: UndoResult) -> None:
    home = platforms.find_home(tx, item.key, profile=scope.profile)
    if home is not None and home.target == msgspec.convert(item.data["target"], Target):
        platforms.remove_home(tx, item.key, profile=scope.profile)
        result.homes += 1
    scope.forget(tx, HOME, item.key)


def _undo_grant(tx: Transaction, scope: MigrationScope, item: MigrationItem, result: UndoResult) -> None:
    result.grants += access_store.remove_grant(
        tx, profile=scope.profile, platform=item.data["platform"], person=item.data["person"]
    )
    scope.forget(tx, GRANT, item.key)


def _undo_lane(tx: Transaction, scope: MigrationScope, item: MigrationItem, result: UndoResult) -> None:
    lane = lane_store.find_locked(tx, ids.LaneKey(item.key))
    session = SessionId(item.data["session"])
    if lane is not None and lane.session == session:
        if session_store.exists(tx, session) and _was_continued(tx, session):
            result.kept.append(f"{item.key}: something was said there since")
        elif item.data["created"]:
            lane_store.remove(tx, lane)
            result.chats += 1
        else:
            lane_store.move(tx, lane, None, why=Phrase("move.migration_undone", program=scope.title))
            result.chats += 1
    scope.forget(tx, LANE, item.key)


def _undo_session(tx: Transaction, scope: MigrationScope, session: SessionId, result: UndoResult) -> None:
    if not session_store.exists(tx, session):
        return
    session_store.lock(tx, session)
    found = session_store.get(tx, session, deleted=True)
    if _was_continued(tx, session):
        if found.deleted_at is None:
            result.kept.append(f"{found.title or session}: something was said in it since")
    elif scope.find_item(tx, BEFORE, session) is None:
        control.delete(tx, found, grace=scope.policy.keep.erase, erase=True)
        result.sessions += 1
    elif scope.find_item(tx, OWNER, session) is not None:
        session_store.change_owner(tx, found, OPERATOR)
    scope.forget(tx, OWNER, session)


def _undo_person(tx: Transaction, scope: MigrationScope, item: MigrationItem, result: UndoResult) -> None:
    principal = PrincipalId(item.key)
    owns = (
        session_store.list_ids_for_owner(tx, profile=scope.profile, owner=principal)
        or lane_store.list_for_owner(tx, profile=scope.profile, owner=principal)
        or jobs.list_for_owner(tx, profile=scope.profile, owner=principal)
    )
    if not owns and people.exists(tx, principal, profile=scope.profile):
        people.remove_owned(tx, profile=scope.profile, owner=principal)
        people.remove(tx, principal)
        result.people += 1
    scope.forget(tx, PERSON, item.key)


def describe_question(chat: ForeignChat) -> str:
    """Return who asked what without an answer."""
    name = chat.source.user_name or chat.source.user or chat.source.chat or ""
    when = f" at {chat.asked_at:%Y-%m-%d %H:%M} UTC" if chat.asked_at else ""
    return f"{chat.label}: {_shorten(name)}{when}: {_shorten(chat.question)}"


def _shorten(text: str) -> str:
    return to_short_line(text, _MAX_SHOWN)
