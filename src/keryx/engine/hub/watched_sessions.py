"""Sessions that other programs keep: takeover, and what watchers on other machines send."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from keryx.core import codec
from keryx.core.ids import OPERATOR, PrincipalId, SessionId
from keryx.core.sessions import ProgramState, Viewer, WatchedSession
from keryx.engine import takeover
from keryx.engine.hub.verbs import HubPart, read_unit, write_unit
from keryx.engine.policy import Policy
from keryx.engine.takeover import ProgramStateChange
from keryx.importers import pushed_session
from keryx.importers.conversation import ImportLog
from keryx.store import imports, people, sessions
from keryx.store.db import Database, Transaction
from keryx.store.imports import ImportKey

if TYPE_CHECKING:
    from keryx.engine.conversation_import import ConversationReport


class WatchStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where a session is kept, and whether it can be continued here now."""

    watched: WatchedSession
    state: ProgramState
    # Why it cannot be continued, empty if it can.
    refusal: str
    # It can be continued all the same, if a person wants it.
    can_take_over: bool


class KnownRecords(msgspec.Struct, frozen=True, kw_only=True):
    """What is here of a session of another program."""

    fingerprint: str = ""
    # Hashes of the ids of its records.
    records: Sequence[int] = ()


class HubWatchedSessions(HubPart):
    def __init__(self, database: Database, *, policy: Policy) -> None:
        super().__init__(database)
        self._policy = policy

    @read_unit("watch.status")
    def get_status(self, tx: Transaction, viewer: Viewer, session: SessionId) -> WatchStatus | None:
        """Return where a session is kept, `None` if no other program keeps it."""
        watched = imports.find_watched(tx, sessions.get(tx, session, viewer=viewer).id)
        if watched is None:
            return None
        refusal = takeover.find_refusal(tx, watched, self._policy.takeovers)
        forced = msgspec.structs.replace(watched, taken_at=tx.now)
        possible = takeover.find_refusal(tx, forced, self._policy.takeovers) is None
        return WatchStatus(
            watched=watched,
            state=watched.get_state(tx.now),
            refusal=refusal or "",
            can_take_over=refusal is not None and possible,
        )

    @write_unit("watch.takeover")
    def take_over(self, tx: Transaction, viewer: Viewer, session: SessionId) -> WatchedSession:
        """Continue a session here with the next message, although its program is open."""
        return takeover.take_over(tx, sessions.get(tx, session, viewer=viewer), self._policy.takeovers)

    @write_unit("watch.person")
    def ensure_person(self, tx: Transaction, viewer: Viewer, platform: str, person: str) -> PrincipalId:
        """Return the person to whom watched sessions belong, who may not have talked here yet."""
        return people.resolve(tx, profile=viewer.profile, platform=platform, person=person, name="")

    @read_unit("watch.known")
    def load_known(self, tx: Transaction, viewer: Viewer, program: str, source: str) -> KnownRecords:
        """Return what is here of a session of the viewer."""
        key = ImportKey(viewer.profile, viewer.owner or OPERATOR, program, source)
        found = imports.find(tx, key)
        if found is None:
            return KnownRecords()
        return KnownRecords(
            fingerprint=found.fingerprint, records=list(imports.load_records(tx, found.session))
        )

    @read_unit("watch.machine")
    def load_files(self, tx: Transaction, viewer: Viewer, machine: str, program: str) -> dict[str, str]:
        """Return the files of a machine that are here as a whole, escaped, each with its stamp."""
        owner = viewer.owner or OPERATOR
        return imports.list_watched_files(
            tx, profile=viewer.profile, owner=owner, program=program, machine=machine
        )

    @write_unit("watch.told")
    def set_states(self, tx: Transaction, viewer: Viewer, states: Sequence[ProgramStateChange]) -> None:
        """Note what the programs on another machine do."""
        takeover.set_states(tx, Viewer(viewer.profile, viewer.owner or OPERATOR), states)

    async def take(self, viewer: Viewer, body: bytes) -> "ConversationReport":
        """Add what a watcher on another machine has sent, as JSON of a `PushedSession`. Safe to repeat."""
        from keryx.engine.loops.session_watcher import StoreTarget  # noqa: PLC0415 loads the readers of all programs

        pushed = await asyncio.to_thread(codec.loads, body, pushed_session.PushedSession)
        target = StoreTarget(self._database, viewer, machine=pushed.machine, pushed=True)
        added = iter([pushed_session.unpack_session(pushed)])
        stamps = {} if pushed.stamp is None else {pushed.place: pushed.stamp}
        return await target.take(pushed.program, added, stamps, ImportLog())
