"""Hub: receive, open and follow for every surface, and the commands on sessions and turns, with their projects, questions and usage."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TypeAlias

import msgspec

from keryx.core.changes import Change
from keryx.core.errors import Forbidden, Invalid, NotFound, Unavailable
from keryx.core.ids import Cursor, QuestionId, SessionId, TurnId, WorkerId
from keryx.core.messages import Parts, Role, parse_id
from keryx.core.ports.adapter import InboundEvent, InboundMessage, PlatformStatus, Receipt
from keryx.core.questions import AskedQuestion
from keryx.core.sessions import (
    Project,
    PruneRule,
    ReservedSession,
    Session,
    SessionChange,
    SessionSettings,
    Tag,
    TagColour,
    TitleBy,
    Viewer,
)
from keryx.core.source import MAX_ID_LENGTH, Source, limit_lengths
from keryx.core.texts import Catalogue, explain
from keryx.core.turns import Turn
from keryx.core.usage import Budgets, UsageGrouping, UsageTotal
from keryx.engine import commands
from keryx.engine.hub import trace, views
from keryx.engine.hub.api_turns import HubApiKeys, HubApiTurns
from keryx.engine.hub.chats import HubDeliveries, HubLanes
from keryx.engine.hub.file_imports import HubFileImports
from keryx.engine.hub.jobs import HubJobs
from keryx.engine.hub.people import HubPeople, HubSignIns
from keryx.engine.hub.push_subscriptions import HubPushSubscriptions
from keryx.engine.hub.relay import HubRelay
from keryx.engine.hub.shares import HubShares
from keryx.engine.hub.trace import MessageTrace
from keryx.engine.hub.users import HubUsers
from keryx.engine.hub.verbs import HubPart, bind_read, bind_write, on_session, read_unit, write_unit
from keryx.engine.hub.views import Answering, HubViewerState, HubViews, SessionSnapshot
from keryx.engine.hub.watched_sessions import HubWatchedSessions
from keryx.engine.loops import reports
from keryx.engine.loops.feed import Feed
from keryx.engine.media import MediaStorage
from keryx.engine.policy import Policy
from keryx.engine.units import control, place, receive, revisions
from keryx.engine.units import questions as question_units
from keryx.engine.units import usage as usage_units
from keryx.engine.units import workers as worker_units
from keryx.engine.units.usage import BudgetStatus
from keryx.store import (
    changes,
    inbox,
    messages,
    platforms,
    projects,
    questions,
    sessions,
    turns,
    usage,
    workers,
)
from keryx.store.admin import stats
from keryx.store.db import Database, Transaction
from keryx.store.search import SearchHit, SearchIndex
from keryx.store.workers import Worker

SessionExporter: TypeAlias = Callable[[Transaction, Viewer, list[SessionId]], object]

NODE_KIND = "serve"
_LARGE_INDEX_BATCH = 500


class HubProjects(HubPart):
    list_all = bind_read("projects", projects.list_for_viewer)
    find = bind_read("project", projects.find)

    @write_unit("project.add")
    def add(self, tx: Transaction, viewer: Viewer, name: str, *, colour: str = "") -> Project:
        return projects.add(tx, viewer, name=name, colour=colour)

    @write_unit("project.change")
    def change(
        self, tx: Transaction, viewer: Viewer, name: str, *, new_name: str | None, colour: str | None
    ) -> Project:
        project = projects.find(tx, viewer, name)
        colour = project.colour if colour is None else colour
        return projects.update(tx, viewer, project, name=new_name or project.name, colour=colour)

    @write_unit("project.instruct")
    def set_instructions(self, tx: Transaction, viewer: Viewer, name: str, text: str) -> Project:
        """Set the instructions that every session of a project starts with; an empty text removes them."""
        projects.set_instructions(tx, viewer, projects.find(tx, viewer, name), text)
        return projects.find(tx, viewer, name)

    @write_unit("project.remove")
    def remove(self, tx: Transaction, viewer: Viewer, name: str) -> None:
        projects.remove(tx, viewer, projects.find(tx, viewer, name))

    @write_unit("project.assign")
    def assign(self, tx: Transaction, viewer: Viewer, session: SessionId, name: str | None) -> None:
        """Put a session into a project, or into none."""
        project = projects.find(tx, viewer, name).id if name else None
        sessions.set_project(tx, sessions.get(tx, session, viewer=viewer), project)


class HubTags(HubPart):
    list_all = bind_read("tags", projects.list_tags)
    list_for_session = bind_read("tags.session", projects.list_session_tags)

    @write_unit("tag.add")
    def add(self, tx: Transaction, viewer: Viewer, name: str, *, colour: TagColour | None = None) -> Tag:
        return projects.add_tag(tx, viewer, name, colour=colour)

    @write_unit("tag.change")
    def change(
        self, tx: Transaction, viewer: Viewer, name: str, *, new_name: str | None, colour: TagColour | None
    ) -> Tag:
        tag = projects.find_tag(tx, viewer, name)
        return projects.update_tag(tx, viewer, tag, name=new_name or tag.name, colour=colour or tag.colour)

    @write_unit("tag.remove")
    def remove(self, tx: Transaction, viewer: Viewer, name: str) -> Tag:
        """Remove a tag from all sessions, and return it as it was."""
        tag = projects.find_tag(tx, viewer, name)
        projects.remove_tag(tx, viewer, tag)
        return tag


class HubQuestions(HubPart):
    list_open = bind_read("questions", questions.list_open_for_viewer)
    list_consents = bind_read("consents", questions.list_consents)
    forget_consents = bind_write("consents.forget", on_session(question_units.forget_consents))

    @read_unit("questions.session")
    def list_for_session(self, tx: Transaction, viewer: Viewer, session: SessionId) -> list[AskedQuestion]:
        """Return the last questions of a session in any state, newest first."""
        return questions.list_for_session(tx, sessions.get(tx, session, viewer=viewer).id)

    @read_unit("question")
    def get(self, tx: Transaction, viewer: Viewer, question: QuestionId) -> AskedQuestion:
        return questions.get(tx, question, viewer=viewer)

    @write_unit("question.answer")
    def answer(self, tx: Transaction, viewer: Viewer, question: QuestionId, answer: str) -> AskedQuestion:
        """Answer with an option (its id, number, label or meaning) or, where there are none, in words.

        Raise `Forbidden` for a viewer who may only look on, `Conflict` for a closed question, `Invalid` for a text that
        is not an answer."""
        return question_units.record_answer(tx, questions.get(tx, question, viewer=viewer), viewer, answer)


class HubUsage(HubPart):
    def __init__(self, database: Database, *, budgets: Budgets) -> None:
        super().__init__(database)
        self._budgets = budgets

    report_spending = bind_read("view.spending", usage_units.report_spending)

    @read_unit("usage")
    def report(
        self,
        tx: Transaction,
        viewer: Viewer,
        *,
        by: UsageGrouping,
        since: datetime,
        until: datetime | None = None,
    ) -> list[UsageTotal]:
        return usage.list_totals(tx, viewer, by=by, since=since, until=until or tx.now)

    @read_unit("usage.accounts")
    def list_budgets(self, tx: Transaction, viewer: Viewer) -> list[BudgetStatus]:
        return usage_units.list_budgets(tx, viewer, budgets=self._budgets)


class Hub(HubPart):
    """The interface of every surface. A `Viewer` says who asks, and sees nothing of others.

    Each verb is one unit of work. Those that only call a function of `units` or `store` are bound to it: its docstring
    says what they do."""

    def __init__(
        self, database: Database, *, policy: Policy, feed: Feed, index: SearchIndex | None = None
    ) -> None:
        super().__init__(database)
        # Units of work speak to people as the policy says.
        database.texts = policy.texts
        self._policy = policy
        self._feed = feed
        self._index = index or SearchIndex(database)
        self.views = HubViews(database, sharing=policy.sharing)
        self.viewer_state = HubViewerState(database)
        self.sign_ins = HubSignIns(database)
        self.users = HubUsers(database)
        self.questions = HubQuestions(database)
        self.usage = HubUsage(database, budgets=policy.budgets)
        self.media = MediaStorage(database, limit=policy.media.limit)
        self.people = HubPeople(database, policy=policy)
        self.projects = HubProjects(database)
        self.tags = HubTags(database)
        self.lanes = HubLanes(database, policy=policy)
        self.deliveries = HubDeliveries(database, policy=policy)
        self.jobs = HubJobs(database, policy=policy)
        self.relay = HubRelay(database, policy=policy)
        self.api_turns = HubApiTurns(database, policy=policy, feed=feed)
        self.api_keys = HubApiKeys(database)
        self.watched = HubWatchedSessions(database, policy=policy)
        self.shares = HubShares(database)
        self.push_subscriptions = HubPushSubscriptions(database, policy=policy)
        self.file_imports = HubFileImports(database)

    open = bind_read("open", views.load_snapshot)
    page = bind_read("messages", views.load_messages)
    # Finds a session by id, unique prefix, title or alias.
    resolve = bind_read("resolve", sessions.resolve)
    rename = bind_write("rename", on_session(partial(sessions.rename, by=TitleBy.PERSON)))
    pin = bind_write("pin", on_session(sessions.set_pinned))
    archive = bind_write("archive", on_session(sessions.set_archived))
    # With `None` as the reason, reopens the session.
    end = bind_write("end", on_session(control.set_ended))
    configure = bind_write("configure", on_session(sessions.set_settings))
    choose_version = bind_write("version", on_session(revisions.choose_version))
    undo = bind_write("undo", on_session(revisions.undo))
    redo = bind_write("redo", on_session(revisions.redo))
    head_cursor = bind_read("head", changes.get_head)
    find_listener = bind_read("listener", workers.find_listener)
    platform_cursor = bind_read("cursor", inbox.get_cursor)
    closed_gates = bind_read("gates", platforms.list_closed_gates)
    gauges = bind_read("gauges", stats.read_gauges)
    list_sessions = bind_read("sessions", sessions.list_page)

    @property
    def can_take_over(self) -> bool:
        """Whether an agent here continues sessions of other programs."""
        return bool(self._policy.takeovers.agents)

    @property
    def texts(self) -> Catalogue:
        """The texts for people."""
        return self._policy.texts

    async def receive(self, inbound: InboundEvent, *, relayed: bool = False) -> Receipt:
        """Return when the event is durable; a repeated event returns the first receipt. `relayed`: it came through the
        relay, which only the adapter that is connected to it can know. Raise `Forbidden` if its account is connected
        through the relay and it did not."""
        local = isinstance(inbound, InboundMessage) and inbound.principal is not None
        account = inbound.source.platform, inbound.source.account
        if account in self._policy.relayed and not relayed and not local:
            raise Forbidden(
                f"messages of this account of {inbound.source.platform} come through the relay only"
            )
        if isinstance(inbound, InboundMessage) and inbound.principal and inbound.cwd:
            control.check_folder(Viewer(inbound.source.profile, inbound.principal), inbound.cwd)
        if len(inbound.event) > MAX_ID_LENGTH:
            raise Invalid(f"the id of an event has more than {MAX_ID_LENGTH} characters")
        placed = limit_lengths(inbound.source)
        if not isinstance(inbound, InboundMessage) or inbound.principal is None:
            placed = self._policy.assign_profile(placed)
        if placed is not inbound.source:
            inbound = msgspec.structs.replace(inbound, source=placed)
        session = command = reply = None
        if isinstance(inbound, InboundMessage):
            session, command = inbound.session, commands.parse_inbound(inbound)
            if command and commands.needs_search(command, inbound):
                reply = await self._search_for_command(inbound, command.text)
        # Events with the same key are likely to touch the same rows.
        source = inbound.source
        parts = (source.platform, source.account, source.chat or source.user, source.thread)
        began = time.monotonic()
        receipt = await self._database.write(
            "receive",
            partial(
                receive.receive, inbound=inbound, policy=self._policy, command=command, search_reply=reply
            ),
            key=session or " ".join(part or "" for part in parts),
        )
        reports.report_received(inbound, receipt, time.monotonic() - began)
        return receipt

    async def search(
        self,
        viewer: Viewer,
        text: str,
        *,
        limit: int = 20,
        offset: int = 0,
        session: SessionId | None = None,
    ) -> list[SearchHit]:
        """Return the messages and titles that match and that the viewer may see, best first; with `session`, only messages of
        that one. Any text is a query."""
        if session is not None:
            await self.session(viewer, session)
        return await self._index.search(viewer, text, limit=limit, offset=offset, session=session)

    async def catch_up_index(self) -> None:
        """Update the search index ahead of the next search, and free its memory after a large update."""
        if await self._index.catch_up() > _LARGE_INDEX_BATCH:
            self._index.close()

    def close(self) -> None:
        """Close the search index. The database stays open."""
        self._index.close()

    def follow(
        self, viewer: Viewer, cursor: Cursor, *, session: SessionId | None = None
    ) -> AsyncIterator[Change]:
        """Yield every change after a cursor that the viewer may see, then live ones, without end."""
        return self._feed.follow(viewer, cursor, session=session)

    def follow_all(self, cursor: Cursor) -> AsyncIterator[list[Change]]:
        """Yield the changes of all viewers after a cursor in batches, for a surface that shares them among its viewers."""
        return self._feed.batches(cursor)

    @write_unit("cursor.begin")
    def init_cursor(self, tx: Transaction, name: str, value: str) -> None:
        """Store the first cursor of a platform; one that exists stays."""
        if inbox.get_cursor(tx, name) is None:
            inbox.set_cursor(tx, name, value)

    @write_unit("listener.claim")
    def claim_listener(self, tx: Transaction, me: WorkerId, platform: str, account: str) -> Worker | None:
        """Make a worker the listener of an account, unless another live worker is. Return that other one."""
        return worker_units.claim_listener(
            tx, me=me, platform=platform, account=account, lease=self._policy.limits.lease
        )

    @write_unit("cursor.set")
    def set_platform_cursor(self, tx: Transaction, name: str, value: str) -> None:
        """Store a cursor without an event. An empty one is removed."""
        inbox.set_state(tx, name, value)

    @read_unit("session")
    def session(self, tx: Transaction, viewer: Viewer, session: SessionId) -> Session:
        return sessions.get(tx, session, viewer=viewer)

    @write_unit("session.reserve")
    def reserve_session(
        self, tx: Transaction, viewer: Viewer, session: SessionId, *, cwd: str, settings: SessionSettings
    ) -> None:
        """Give out the id of a session that begins with its first message. Until then it can be opened by
        `find_reserved`, in any process, for 7 days."""
        control.check_folder(viewer, cwd)
        if not sessions.exists(tx, session):
            reserved = ReservedSession(
                profile=viewer.profile, owner=viewer.principal, cwd=cwd, settings=settings
            )
            sessions.reserve(tx, session, reserved)

    @read_unit("session.reserved")
    def find_reserved(self, tx: Transaction, viewer: Viewer, session: SessionId) -> ReservedSession | None:
        """Return a session that was given out and has no message yet."""
        return None if sessions.exists(tx, session) else sessions.find_reserved(tx, session, viewer)

    def find_answering(self, source: Source, snapshot: SessionSnapshot | None = None) -> Answering:
        """Return who answers in a session, or in a new one of a source."""
        if snapshot is not None:
            source = place.find_source(snapshot.session, None)
        agent = self._policy.choose_agent(SessionSettings(), source, profile=source.profile)
        return Answering(agent=agent, models=self._policy.map_models(snapshot.bindings if snapshot else ()))

    @read_unit("session.models")
    def list_models(
        self, tx: Transaction, viewer: Viewer, source: Source, session: SessionId | None = None
    ) -> tuple[str, ...]:
        """Return the models for a session, or for a new one of a source, the default first; none if they are not known."""
        row = sessions.get(tx, session, viewer=viewer) if session else None
        settings = row.settings if row else SessionSettings()
        return control.list_models(tx, self._policy, row, settings, source)

    @read_unit("session.model")
    def check_model(self, tx: Transaction, viewer: Viewer, source: Source, model: str) -> None:
        """Raise `NotFound` if new sessions of a source cannot have this model."""
        control.check_model(tx, self._policy, None, SessionSettings(model=model), source)

    @write_unit("change")
    def change(self, tx: Transaction, viewer: Viewer, session: SessionId, change: SessionChange) -> None:
        """Set several values of a session, all or nothing."""
        row = sessions.get(tx, session, viewer=viewer)
        control.change(tx, row, viewer, change, policy=self._policy)

    @write_unit("change.many")
    def change_many(
        self,
        tx: Transaction,
        viewer: Viewer,
        chosen: Sequence[SessionId],
        change: SessionChange,
        *,
        deleted: bool | None = None,
        stop: bool = False,
    ) -> None:
        """Set the same values of several sessions, all or nothing. `deleted` deletes them or brings them back, `stop` stops
        their turns."""
        for session in dict.fromkeys(chosen):
            row = sessions.get(tx, session, viewer=viewer, deleted=deleted is False)
            if deleted is False:
                sessions.undelete(tx, row)
            if stop:
                control.stop(tx, row.id)
            control.change(tx, row, viewer, change, policy=self._policy)
            if deleted:
                control.delete(tx, row, grace=self._policy.keep.erase)

    @write_unit("erase.many")
    def erase_many(self, tx: Transaction, viewer: Viewer, chosen: Sequence[SessionId]) -> None:
        """Erase several sessions at once, those in the trash too, all or nothing."""
        for session in dict.fromkeys(chosen):
            row = sessions.get(tx, session, viewer=viewer, deleted=True)
            control.delete(tx, row, grace=self._policy.keep.erase, erase=True)

    @write_unit("delete")
    def delete(self, tx: Transaction, viewer: Viewer, session: SessionId, *, erase: bool = False) -> None:
        """Hide a session now and erase it after the grace period; with `erase`, erase it at once, in the trash too."""
        row = sessions.get(tx, session, viewer=viewer, deleted=erase)
        control.delete(tx, row, grace=self._policy.keep.erase, erase=erase)

    @read_unit("prunable")
    def list_prunable(
        self, tx: Transaction, viewer: Viewer, rule: PruneRule, *, limit: int = 100
    ) -> list[Session]:
        """Return the sessions that a rule would archive or delete, oldest first."""
        return sessions.list_prunable(tx, rule, viewer=viewer, limit=limit)

    @write_unit("prune")
    def prune(self, tx: Transaction, viewer: Viewer, session: SessionId, rule: PruneRule) -> bool:
        """Archive or delete a session by a rule. Return false if it was used meanwhile, and stays."""
        row = sessions.get(tx, session, viewer=viewer)
        return control.prune(tx, row.id, rule, grace=self._policy.keep.erase)

    @write_unit("undelete")
    def undelete(self, tx: Transaction, viewer: Viewer, session: SessionId) -> None:
        sessions.undelete(tx, sessions.get(tx, session, viewer=viewer, deleted=True))

    @write_unit("fork")
    def fork(
        self,
        tx: Transaction,
        viewer: Viewer,
        session: SessionId,
        *,
        surface: str,
        through: int | None = None,
        title: str | None = None,
        cwd: str | None = None,
    ) -> Session:
        """Make an independent copy up to a message, by default up to the last complete turn, in the same folder or another."""
        parent = sessions.get(tx, session, viewer=viewer)
        if cwd is not None and cwd != parent.cwd:
            control.check_folder(viewer, cwd)
        return revisions.fork(tx, parent, surface=surface, through=through, title=title, cwd=cwd)

    async def branch(
        self,
        viewer: Viewer,
        session: SessionId,
        inbound: InboundMessage,
        *,
        surface: str,
        through: int | None = None,
        title: str | None = None,
    ) -> Receipt:
        """Fork a session and send a message to the copy; a repeated event returns the first receipt."""
        began = time.monotonic()
        receipt = await self._branch(viewer, session, inbound, surface=surface, through=through, title=title)
        reports.report_received(inbound, receipt, time.monotonic() - began)
        return receipt

    @write_unit("branch")
    def _branch(
        self,
        tx: Transaction,
        viewer: Viewer,
        session: SessionId,
        inbound: InboundMessage,
        *,
        surface: str,
        through: int | None,
        title: str | None,
    ) -> Receipt:
        return receive.receive_in_fork(
            tx,
            sessions.get(tx, session, viewer=viewer),
            inbound,
            viewer=viewer,
            surface=surface,
            through=through,
            title=title,
            policy=self._policy,
        )

    @read_unit("export")
    def export(self, tx: Transaction, viewer: Viewer, session: SessionId, exporter: SessionExporter) -> None:
        """Run an exporter over one session. It is a parameter because only few processes need to import one."""
        exporter(tx, viewer, [sessions.get(tx, session, viewer=viewer).id])

    @read_unit("export.many")
    def export_many(
        self, tx: Transaction, viewer: Viewer, chosen: Sequence[SessionId], exporter: SessionExporter
    ) -> None:
        """Run an exporter over several sessions, in their order."""
        exporter(tx, viewer, [sessions.get(tx, id_, viewer=viewer).id for id_ in dict.fromkeys(chosen)])

    @write_unit("retry")
    def retry(
        self,
        tx: Transaction,
        viewer: Viewer,
        session: SessionId,
        *,
        surface: str,
        message: int | None = None,
        model: str | None = None,
    ) -> Receipt:
        """Ask the last question again, or that of a message, if wanted with another model for this answer."""
        row = sessions.get(tx, session, viewer=viewer)
        if model:
            settings = msgspec.structs.replace(row.settings, model=model)
            control.check_model(tx, self._policy, row, settings, place.find_source(row, None))
        return revisions.retry(tx, row, asker=viewer.principal, surface=surface, message=message, model=model)

    @write_unit("edit")
    def edit(self, tx: Transaction, viewer: Viewer, message: str, parts: Parts, *, surface: str) -> Receipt:
        """Ask a question in other words, or put other words in the place of those of an answer, as another version."""
        session, seq = parse_id(message)
        row = sessions.get(tx, session, viewer=viewer)
        if messages.get(tx, session, seq).role is Role.ASSISTANT:
            return revisions.edit_answer(tx, row, seq, parts, editor=viewer.principal)
        return revisions.edit(tx, row, seq, parts, asker=viewer.principal, surface=surface)

    @write_unit("message.delete")
    def delete_message(self, tx: Transaction, viewer: Viewer, message: str, *, erase: bool = False) -> None:
        """Take one message out of the conversation; with `erase`, its text for good."""
        session, seq = parse_id(message)
        revisions.delete_message(tx, sessions.get(tx, session, viewer=viewer), seq, erase=erase)

    @write_unit("message.restore")
    def restore_message(self, tx: Transaction, viewer: Viewer, message: str) -> None:
        session, seq = parse_id(message)
        revisions.restore_message(tx, sessions.get(tx, session, viewer=viewer), seq)

    @write_unit("stop")
    def stop(
        self, tx: Transaction, viewer: Viewer, session: SessionId, *, queue: bool = False
    ) -> Turn | None:
        """Ask the running turn to stop and return it, or cancel the next turn if that waits for its files; `None` if there is
        neither. With `queue`, cancel queued turns too."""
        return control.stop(tx, sessions.get(tx, session, viewer=viewer).id, queue=queue)

    @write_unit("cancel")
    def cancel(self, tx: Transaction, viewer: Viewer, turn: TurnId) -> Turn:
        """Stop a queued or running turn, and return it as it was. A finished one stays as it is."""
        sessions.get(tx, turns.get(tx, turn).session, viewer=viewer, deleted=True)
        return control.cancel(tx, turn)

    @write_unit("drop")
    def drop(self, tx: Transaction, viewer: Viewer, turn: TurnId) -> None:
        """Cancel a queued turn."""
        sessions.get(tx, turns.get(tx, turn).session, viewer=viewer)
        control.drop(tx, turn)

    @write_unit("rewrite")
    def rewrite(self, tx: Transaction, viewer: Viewer, message: str, parts: Parts) -> None:
        """Change a message whose turn is still queued. Raise `Conflict` once an agent has begun to answer it."""
        session, seq = parse_id(message)
        control.rewrite(tx, sessions.get(tx, session, viewer=viewer).id, seq, parts)

    @read_unit("turn")
    def turn(self, tx: Transaction, viewer: Viewer, turn: TurnId) -> Turn:
        row = turns.get(tx, turn)
        if not viewer.sees(row.profile, row.owner):
            raise NotFound(f"there is no turn {turn!r}")
        return row

    @read_unit("active")
    def list_active_turns(self, tx: Transaction, viewer: Viewer) -> list[Turn]:
        """Return every running or queued turn that the viewer may see."""
        return turns.list_active(tx, profile=viewer.profile, owner=viewer.owner)

    @read_unit("why")
    def trace(self, tx: Transaction, viewer: Viewer, message: str) -> MessageTrace:
        """Tell what happened to a message. It is named by its id, or by the id that its platform gave to it or to an answer."""
        return trace.build(tx, *trace.find_message(tx, viewer, message), policy=self._policy)

    @read_unit("nodes")
    def list_nodes(self, tx: Transaction) -> list[Worker]:
        """Return the live processes that run turns of every session."""
        return [w for w in self._list_live_workers(tx) if w.kind == NODE_KIND]

    @read_unit("connections")
    def platform_statuses(self, tx: Transaction) -> list[PlatformStatus]:
        """Return the status of each platform in each live process."""
        live = {w.id for w in self._list_live_workers(tx)}
        return [status for status in workers.list_connections(tx) if status.worker in live]

    async def check_ready(self) -> None:
        """Return if the store answers and the feed reads; otherwise raise with the reason."""
        await self._database.read("ready", changes.get_head)
        if not self._feed.reading:
            raise Unavailable("the change feed does not read now")

    async def _search_for_command(self, inbound: InboundMessage, query: str) -> str | None:
        """Return the reply to a search command. A search that fails must not keep the event out."""
        texts = self._policy.texts.speak(inbound.source.language, inbound.source.platform)
        try:
            person = await self._database.read("asker", lambda tx: receive.find_sender(tx, inbound))
            if person is None:
                return None
            viewer = Viewer(inbound.source.profile, person)
            hits = await self.search(viewer, query, limit=commands.SEARCH_LIMIT)
            return commands.render_hits(hits, texts)
        except Unavailable as exc:
            return texts.say("session.search_failed", reason=explain(exc, "store.silent"))

    def _list_live_workers(self, tx: Transaction) -> list[Worker]:
        earliest = tx.now - self._policy.limits.lease
        return [w for w in workers.list_all(tx) if w.seen_at >= earliest and not worker_units.is_dead(w)]
