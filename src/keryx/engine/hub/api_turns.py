"""What the OpenAI-compatible API may call: turns that programs ask for, followed until their end, conversations, and the keys of programs."""

import hashlib
import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from itertools import groupby

import msgspec

from keryx.core import ids
from keryx.core.changes import ChangeKind, DraftChunk
from keryx.core.errors import Conflict, Forbidden, Invalid, NotFound
from keryx.core.ids import OPERATOR, PrincipalId, SessionId, TurnId
from keryx.core.ports.adapter import Receipt
from keryx.core.sessions import API_SURFACE, Viewer
from keryx.core.source import parse_handle
from keryx.core.texts import Phrase
from keryx.engine.hub.verbs import HubPart, bind_read, bind_write, read_unit, write_unit
from keryx.engine.loops import reports
from keryx.engine.loops.feed import Feed
from keryx.engine.policy import Policy
from keryx.engine.units import api_turns as units
from keryx.engine.units.api_turns import (
    DEFAULT_MODEL,
    ITEM_KIND,
    ApiTurnPage,
    ApiTurnRequest,
    ApiTurnView,
    PastMessage,
    SubmittedTurn,
)
from keryx.store import api_turns, people
from keryx.store.api_turns import ApiConversation, ApiKey, ApiTurnFilter, ChangePosition
from keryx.store.db import Database, Transaction

__all__ = [
    "DEFAULT_MODEL",
    "ITEM_KIND",
    "KEY_PREFIX",
    "ApiConversation",
    "ApiKey",
    "ApiKeySummary",
    "ApiTurnFilter",
    "ApiTurnPage",
    "ApiTurnRequest",
    "ApiTurnView",
    "ChangePosition",
    "HubApiKeys",
    "HubApiTurns",
    "PastMessage",
]

KEY_PREFIX = "kx-"
"""Every key begins with it."""
_LONGEST_NAME = 200
_SEEN_INTERVAL = timedelta(hours=1)


class HubApiTurns(HubPart):
    def __init__(self, database: Database, *, policy: Policy, feed: Feed) -> None:
        super().__init__(database)
        self._policy = policy
        self._feed = feed

    load = bind_read("api.view", units.load_view)
    list_page = bind_read("api.turns", units.list_page)
    find_context = bind_read("api.context", units.find_context)
    answer_question = bind_write("api.answer", units.answer_question)
    take = bind_write("api.take", units.take)
    create_conversation = bind_write("api.conversation.create", units.create_conversation)
    get_conversation = bind_read("api.conversation", units.get_conversation)
    set_metadata = bind_write("api.conversation.change", units.set_metadata)
    add_messages = bind_write("api.conversation.add", units.add_messages)
    remove_parts = bind_write("api.conversation.cut", units.remove_parts)

    def list_models(self) -> tuple[str, ...]:
        """Return the names that a request may have as its model, the default first."""
        return tuple(dict.fromkeys((DEFAULT_MODEL, *self._policy.models, *self._policy.agents)))

    async def submit(self, asked: ApiTurnRequest) -> SubmittedTurn:
        """Return when the turn that answers a request is queued; a repeated request returns the first turn."""
        began = time.monotonic()
        submitted = await self._database.write(
            "api.submit", lambda tx: units.submit(tx, asked, policy=self._policy)
        )
        receipt = Receipt(duplicate=submitted.duplicate, session=submitted.session, turn=submitted.turn)
        reports.report_asked(API_SURFACE, asked.viewer.principal, receipt, time.monotonic() - began)
        return submitted

    async def follow(
        self, viewer: Viewer, turn: TurnId, *, beat: float | None = None
    ) -> AsyncGenerator[ApiTurnView, None]:
        """Yield a turn now and after each change, until it has ended, and again after `beat` seconds without a change. Raise
        `NotFound` if it is deleted meanwhile."""
        while True:
            view = await self.load(viewer, turn)
            view = msgspec.structs.replace(view, draft=_merge_pieces(view.draft))
            yield view
            if view.turn.state.finished:
                return
            async with aclosing(self._feed.batches(view.cursor, beat=beat)) as batches:
                async for batch in batches:
                    gone = any(
                        c.kind is ChangeKind.SESSION_GONE and c.session == view.turn.session for c in batch
                    )
                    own = [c for c in batch if c.turn == turn]
                    pieces = [c.piece for c in own if c.kind is ChangeKind.DRAFT and c.piece]
                    if gone or len(pieces) < len(own):
                        break
                    if pieces or not batch:
                        view = msgspec.structs.replace(view, draft=_merge_pieces([*view.draft, *pieces]))
                        yield view

    @write_unit("api.remove")
    def remove(self, tx: Transaction, viewer: Viewer, turn: TurnId) -> None:
        """Forget an answer and stop its turn. The session is deleted if it consists of this turn."""
        units.remove(tx, viewer, turn, grace=self._policy.keep.erase)

    @write_unit("api.conversation.remove")
    def remove_conversation(self, tx: Transaction, viewer: Viewer, session: SessionId) -> None:
        units.remove_conversation(tx, viewer, session, grace=self._policy.keep.erase)


class ApiKeySummary(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    # What people call the program or device that has the key.
    name: str
    # Whose rights it has: the id, and the name of the person, empty if none is known.
    principal: PrincipalId
    person: str
    created_at: datetime
    # When it was last used, to the hour.
    seen_at: datetime | None
    # It may say something in a conversation by a tool, without a question to the owner.
    may_speak: bool


class HubApiKeys(HubPart):
    revoke = bind_write("api.key.revoke", api_turns.remove_key)

    @read_unit("api.keys")
    def list_all(self, tx: Transaction, viewer: Viewer) -> list[ApiKeySummary]:
        """Return the keys of the viewer, for the operator those of everybody in the profile, newest first."""
        return [_summarize(tx, key) for key in api_turns.list_keys(tx, viewer)]

    @write_unit("api.key.add")
    def add(
        self,
        tx: Transaction,
        viewer: Viewer,
        name: str,
        *,
        person: tuple[str, str] | None = None,
        may_speak: bool = False,
    ) -> tuple[ApiKeySummary, str]:
        """Return a new key and its secret, which cannot be read again. The key has the rights of the viewer or, if the
        operator makes it, of the person with an id on a platform. With `may_speak` it says something in a conversation by a
        tool without a question to that person. Raise `Conflict` if its owner has a key of this name."""
        name = name.strip()
        if not name or len(name) > _LONGEST_NAME:
            raise Invalid(
                f"the name of a key has 1 to {_LONGEST_NAME} characters: name the program that gets it"
            )
        owner = viewer
        if person is not None:
            if viewer.principal != OPERATOR:
                raise Forbidden("only the operator makes keys for others")
            platform, handle = person
            found = people.find_by_handle(
                tx, profile=viewer.profile, platform=platform, handle=parse_handle(handle)
            )
            if found is None:
                raise NotFound(
                    f"{handle} on {platform} has not talked here: `keryx people list` shows who has"
                )
            owner = Viewer(viewer.profile, found)
        # Keys are revoked by their name.
        if any(k.name == name and k.viewer == owner for k in api_turns.list_keys(tx, owner)):
            raise Conflict(Phrase("key.taken", name=name))
        secret = KEY_PREFIX + secrets.token_urlsafe(32)
        key = ApiKey(
            id=ids.new(tx.now),
            viewer=owner,
            name=name,
            digest=_hash_key(secret),
            created_at=tx.now,
            may_speak=may_speak,
        )
        api_turns.add_key(tx, key)
        return _summarize(tx, key), secret

    async def check(self, secret: str) -> ApiKey | None:
        """Return the key of a secret, `None` if there is none."""
        digest = _hash_key(secret)
        key = await self._database.read("api.key.check", lambda tx: api_turns.find_key(tx, digest))
        if key is None:
            return None
        if key.seen_at is None or self._database.clock.now() - key.seen_at > _SEEN_INTERVAL:
            await self._database.write("api.key.see", lambda tx: api_turns.touch_key(tx, key.id))
        return key


def _merge_pieces(draft: Sequence[DraftChunk]) -> list[DraftChunk]:
    """Return a draft with one piece for each run of text or reasoning, so that a long draft is not put together again from
    thousands of pieces for each reader and each new one."""
    merged: list[DraftChunk] = []
    for (media, thought), run in groupby(draft, key=lambda chunk: (chunk.media, chunk.thought)):
        chunks = list(run)
        if media is not None or len(chunks) == 1:
            merged += chunks
        else:
            text = "".join(chunk.text for chunk in chunks)
            merged.append(DraftChunk(n=chunks[-1].n, text=text, thought=thought))
    return merged


def _summarize(tx: Transaction, key: ApiKey) -> ApiKeySummary:
    return ApiKeySummary(
        id=key.id,
        name=key.name,
        principal=key.viewer.principal,
        person=people.get_name(tx, key.viewer.principal),
        created_at=key.created_at,
        seen_at=key.seen_at,
        may_speak=key.may_speak,
    )


def _hash_key(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
