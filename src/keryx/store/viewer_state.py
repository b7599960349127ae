"""State of each viewer: read marks, text that was typed and not sent, preferences, links to sessions that were shared, and the
browsers that are told of what happens while the page is closed."""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from keryx.core import codec
from keryx.core.changes import ChangeKind
from keryx.core.clock import from_micros, to_micros
from keryx.core.errors import NotFound
from keryx.core.ids import Cursor, PrincipalId, ProfileId, QuestionId, SessionId, TurnId
from keryx.core.messages import Role, Text
from keryx.core.questions import QuestionState
from keryx.core.sessions import JOB_SURFACE, Session, Viewer
from keryx.core.texts import Phrase
from keryx.store import changes, inbox, messages, questions, sessions, turns
from keryx.store.db import Transaction
from keryx.store.db.rows import RowMapper

_ZONE = "zone"
# Which sessions are unread is a question for each of them, so only so many are asked about.
_EXAMINED = 2_000


class UnsentMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was typed and not sent; `media` are ids, and `names` what the files are called, in the same order."""

    text: str = ""
    media: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def mark_read(tx: Transaction, viewer: Viewer, session: Session, seq: int) -> bool:
    """Move a read mark forward, never back, and note it; return whether it moved."""
    moved = tx.count(
        """
        insert into reads (profile, principal, session, seq) values (:profile, :principal, :session, :seq)
        on conflict (profile, principal, session) do update set seq = excluded.seq where reads.seq < excluded.seq
        """,
        {**_viewer_key(viewer), "session": session.id, "seq": min(seq, session.last_seq)},
    )
    if moved:
        scope = changes.Scope(viewer.profile, viewer.principal, session.id)
        changes.note(tx, ChangeKind.READ, session.id, scope, note=str(min(seq, session.last_seq)))
    return bool(moved)


def get_read_marks(tx: Transaction, viewer: Viewer, sessions: Sequence[Session]) -> dict[SessionId, int]:
    """How far the viewer has read each session. What was said before the first visit counts as read."""
    rows = tx.rows(
        f"""
        select session, seq from reads
        where profile = :profile and principal = :principal and session {tx.in_names}
        """,
        {**_viewer_key(viewer), "names": json.dumps([s.id for s in sessions])},
    )
    known = {SessionId(session): int(seq) for session, seq in rows}
    since = _get_first_visit(tx, viewer)
    old = {s.id: s.last_seq for s in sessions if since is None or s.active_at <= since}
    return {s.id: known.get(s.id, old.get(s.id, 0)) for s in sessions}


def list_unread(tx: Transaction, viewer: Viewer, *, limit: int) -> list[SessionId]:
    """The sessions of the list with something that the viewer has not read, among those that were used last."""
    since = _get_first_visit(tx, viewer)
    if since is None:
        return []
    owner = "and s.owner = :owner" if viewer.owner else ""
    rows = tx.rows(
        f"""
        select recent.id from (
          select s.id, s.last_seq, s.active_at from sessions s
          where s.profile = :profile {owner} and s.archived = 0 and s.deleted_at is null and s.surface <> :job
          order by s.pinned desc, s.active_at desc, s.id desc
          limit :examined
        ) recent
        left join reads r on r.profile = :profile and r.principal = :principal and r.session = recent.id
        where recent.last_seq > coalesce(r.seq, case when recent.active_at <= :since then recent.last_seq else 0 end)
        limit :limit
        """,
        {
            **_viewer_key(viewer),
            "owner": viewer.owner,
            "job": JOB_SURFACE,
            "since": to_micros(since),
            "examined": _EXAMINED,
            "limit": limit,
        },
    )
    return [SessionId(row[0]) for row in rows]


def save_unsent(
    tx: Transaction,
    viewer: Viewer,
    place: str,
    composed: UnsentMessage,
    *,
    session: SessionId | None,
) -> None:
    """Keep what was typed at a place; nothing typed is forgotten."""
    key = {**_viewer_key(viewer), "place": place}
    if composed == UnsentMessage():
        tx.run(
            "delete from composers where profile = :profile and principal = :principal and place = :place",
            key,
        )
        return
    tx.run(
        """
        insert into composers (profile, principal, place, session, body, saved_at)
        values (:profile, :principal, :place, :session, :body, :now)
        on conflict (profile, principal, place) do update set body = excluded.body, saved_at = excluded.saved_at
        """,
        {
            **key,
            "session": session,
            "body": tx.keys.seal(session, codec.dumps(composed)),
            "now": to_micros(tx.now),
        },
    )


def get_unsent(tx: Transaction, viewer: Viewer, place: str) -> UnsentMessage:
    row = tx.row(
        "select body from composers where profile = :profile and principal = :principal and place = :place",
        {**_viewer_key(viewer), "place": place},
    )
    return UnsentMessage() if row is None else codec.loads(row[0], UnsentMessage)


def get_zone(tx: Transaction, viewer: Viewer) -> str:
    """Return the time zone that a person has set, empty if none."""
    return get_preferences(tx, viewer).get(_ZONE, "")


def set_zone(tx: Transaction, viewer: Viewer, zone: str) -> None:
    """Keep the time zone of a person; an empty one is removed."""
    save_preferences(tx, viewer, {**get_preferences(tx, viewer), _ZONE: zone})


def get_preferences(tx: Transaction, viewer: Viewer) -> dict[str, str]:
    row = tx.row(
        "select body from preferences where profile = :profile and principal = :principal",
        _viewer_key(viewer),
    )
    return {} if row is None else codec.loads(row[0], dict[str, str])


def save_preferences(tx: Transaction, viewer: Viewer, values: dict[str, str]) -> None:
    """Keep preferences. The first time is the viewer's first visit."""
    tx.run(
        """
        insert into preferences (profile, principal, body, since) values (:profile, :principal, :body, :now)
        on conflict (profile, principal) do update set body = excluded.body
        """,
        {**_viewer_key(viewer), "body": codec.dumps(values), "now": to_micros(tx.now)},
    )


def has_visited(tx: Transaction, viewer: Viewer) -> bool:
    """Whether the viewer has been here before."""
    return _get_first_visit(tx, viewer) is not None


def _get_first_visit(tx: Transaction, viewer: Viewer) -> datetime | None:
    row = tx.row(
        "select since from preferences where profile = :profile and principal = :principal",
        _viewer_key(viewer),
    )
    return None if row is None else from_micros(row[0])


def _viewer_key(viewer: Viewer) -> dict[str, str]:
    return {"profile": viewer.profile, "principal": viewer.principal}


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A link to a session. It shows messages up to `through`."""

    id: str
    session: SessionId
    through: int
    created_at: datetime


_SHARE_ROWS = RowMapper(Share)


def add_share(tx: Transaction, share: Share, *, digest: str) -> None:
    tx.run(
        """
        insert into shares (id, session, digest, through, created_at)
        values (:id, :session, :digest, :through, :created_at)
        """,
        {**_SHARE_ROWS.encode(share), "digest": digest},
    )


def find_share(tx: Transaction, *, digest: str) -> Share | None:
    row = tx.row(f"select {_SHARE_ROWS.columns} from shares where digest = :digest", {"digest": digest})
    return _SHARE_ROWS.decode_optional(row)


def list_shares(tx: Transaction, session: SessionId) -> list[Share]:
    """Return the links to a session, oldest first."""
    rows = tx.rows(
        f"select {_SHARE_ROWS.columns} from shares where session = :session order by created_at, id",
        {"session": session},
    )
    return _SHARE_ROWS.decode_all(rows)


def remove_share(tx: Transaction, session: SessionId, id_: str) -> None:
    gone = tx.count(
        "delete from shares where session = :session and id = :id", {"session": session, "id": id_}
    )
    if not gone:
        raise NotFound(Phrase("web.no_share"))


_PUSH_CURSOR = "push:seen"
_MAX_SUBSCRIPTIONS = 20
_MAX_QUOTED = 2_000


class PushKind(StrEnum):
    """What a person is told of, by the names that preferences have for it."""

    FINISHED = "finished"
    QUESTION = "question"
    FAILED = "failed"


class PushSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A browser of a person. `public_key` and `secret` are those of the browser, `server_key` is that of this installation."""

    id: str
    profile: ProfileId
    principal: PrincipalId
    # `None` where nobody signs in.
    sign_in: str | None
    # The part of the address of the page that names the profile.
    prefix: str
    endpoint: str
    public_key: str
    secret: str
    server_key: str
    language: str
    # Whether notifications have the title of the conversation, and the beginning of the question or answer.
    with_text: bool
    created_at: datetime

    @property
    def viewer(self) -> Viewer:
        return Viewer(self.profile, self.principal)


class PushEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened in a session. `subject` is the turn or the question."""

    kind: PushKind
    subject: str
    session: SessionId
    profile: ProfileId
    owner: PrincipalId
    at: datetime


class PushCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """An event, a browser of a person who may see it, and what decides whether they want to be told."""

    event: PushEvent
    subscription: PushSubscription
    preferences: dict[str, str]
    # The surface of the turn; empty for a question.
    surface: str


class Push(msgspec.Struct, frozen=True, kw_only=True):
    """One event on its way to one browser."""

    id: str
    subscription: str
    session: SessionId
    kind: PushKind
    subject: str
    attempts: int
    created_at: datetime


class DuePush(msgspec.Struct, frozen=True, kw_only=True):
    """A push that is to be sent now. `title` and `quote` are empty unless the person wants them."""

    push: Push
    subscription: PushSubscription
    title: str
    quote: str | Phrase


_SUBSCRIPTION_ROWS = RowMapper(PushSubscription)
_SELECT_SUBSCRIPTION = f"select {_SUBSCRIPTION_ROWS.columns} from push_subscriptions"
_PUSH_ROWS = RowMapper(Push)


def save_subscription(tx: Transaction, subscription: PushSubscription) -> PushSubscription:
    """Add a browser, or renew what is known of it. Somebody else who used the same browser before is told nothing more. Return
    it as it is stored."""
    tx.run(
        "delete from push_subscriptions where endpoint = :endpoint and principal <> :principal",
        {"endpoint": subscription.endpoint, "principal": subscription.principal},
    )
    row = tx.row(
        f"""
        insert into push_subscriptions (
          id, profile, principal, sign_in, prefix, endpoint, public_key, secret, server_key, language, with_text, created_at
        ) values (
          :id, :profile, :principal, :sign_in, :prefix, :endpoint, :public_key, :secret, :server_key, :language, :with_text,
          :created_at
        )
        on conflict (endpoint, profile) do update set
          sign_in = excluded.sign_in, prefix = excluded.prefix, public_key = excluded.public_key,
          secret = excluded.secret, server_key = excluded.server_key, language = excluded.language,
          with_text = excluded.with_text
        returning {_SUBSCRIPTION_ROWS.columns}
        """,
        _SUBSCRIPTION_ROWS.encode(subscription),
    )
    assert row is not None
    tx.run(
        """
        delete from push_subscriptions where id in (
          select id from push_subscriptions where profile = :profile and principal = :principal
          order by created_at desc, id desc limit 1000 offset :most
        )
        """,
        {**_viewer_key(subscription.viewer), "most": _MAX_SUBSCRIPTIONS},
    )
    if inbox.get_cursor(tx, _PUSH_CURSOR) is None:
        inbox.set_cursor(tx, _PUSH_CURSOR, changes.get_head(tx))
    return _SUBSCRIPTION_ROWS.decode(row)


def find_subscription(tx: Transaction, viewer: Viewer, endpoint: str) -> PushSubscription | None:
    row = tx.row(
        f"{_SELECT_SUBSCRIPTION} where endpoint = :endpoint and profile = :profile and principal = :principal",
        {**_viewer_key(viewer), "endpoint": endpoint},
    )
    return _SUBSCRIPTION_ROWS.decode_optional(row)


def remove_subscription(tx: Transaction, id_: str, *, viewer: Viewer | None = None) -> None:
    """Forget a browser, with what it was to be told. One of another viewer stays."""
    row = tx.row(f"{_SELECT_SUBSCRIPTION} where id = :id", {"id": id_})
    if row is not None and viewer in (None, _SUBSCRIPTION_ROWS.decode(row).viewer):
        tx.run("delete from push_subscriptions where id = :id", {"id": id_})


def remove_unsigned_subscriptions(tx: Transaction) -> None:
    """Forget the browsers that nobody has signed in with."""
    tx.run("delete from push_subscriptions where sign_in is null")


def find_push_cursor(tx: Transaction) -> Cursor:
    """Return where to read the feed on for pushes: at its end while there is nobody to tell."""
    known = inbox.get_cursor(tx, _PUSH_CURSOR)
    if known is None or tx.row("select 1 from push_subscriptions limit 1") is None:
        return changes.get_head(tx)
    return Cursor(known)


def skip_to_end(tx: Transaction) -> None:
    """Go on at the end of the feed, for instance because what is between was trimmed."""
    inbox.set_cursor(tx, _PUSH_CURSOR, changes.get_head(tx))


def list_push_candidates(tx: Transaction, events: Sequence[PushEvent]) -> list[PushCandidate]:
    """Return who may be told of these events: the browsers that were there before them."""
    rows = tx.rows(
        f"{_SELECT_SUBSCRIPTION} where profile {tx.in_names}",
        {"names": json.dumps(sorted({event.profile for event in events}))},
    )
    found = _SUBSCRIPTION_ROWS.decode_all(rows)
    if not found:
        return []
    preferences = {viewer: get_preferences(tx, viewer) for viewer in {s.viewer for s in found}}
    surfaces = {turn.id: turn.surface for turn in turns.get_many(tx, [TurnId(e.subject) for e in events])}
    return [
        PushCandidate(
            event=event,
            subscription=subscription,
            preferences=preferences[subscription.viewer],
            surface=surfaces.get(TurnId(event.subject), ""),
        )
        for event in events
        for subscription in found
        if subscription.created_at <= event.at and subscription.viewer.sees(event.profile, event.owner)
    ]


def queue_pushes(
    tx: Transaction, chosen: Iterable[PushCandidate], *, cursor: Cursor, delay: timedelta
) -> None:
    """Queue what is to be told and move the cursor. An event that is known already is not queued again, on any number of nodes;
    a new one takes the place of those of the same session that still wait."""
    due = to_micros(tx.now + delay)
    for candidate in chosen:
        event, subscription = candidate.event, candidate.subscription
        id_ = f"{subscription.id} {event.kind.value} {event.subject}"
        added = tx.count(
            """
            insert into pushes (id, subscription, session, kind, subject, attempts, created_at, due_at)
            select :id, :subscription, s.id, :kind, :subject, 0, :at, :due from sessions s where s.id = :session
            on conflict (id) do nothing
            """,
            {
                "id": id_,
                "subscription": subscription.id,
                "session": event.session,
                "kind": event.kind.value,
                "subject": event.subject,
                "at": to_micros(event.at),
                "due": due,
            },
        )
        if added:
            tx.run(
                """
                update pushes set due_at = null
                where session = :session and subscription = :subscription and id <> :id and due_at is not null
                """,
                {"session": event.session, "subscription": subscription.id, "id": id_},
            )
    inbox.set_cursor(tx, _PUSH_CURSOR, cursor)


def find_next_push(tx: Transaction, server_key: str) -> datetime | None:
    """Return when the next push of a key is due."""
    row = tx.row(
        """
        select p.due_at from pushes p join push_subscriptions s on s.id = p.subscription
        where s.server_key = :key and p.due_at is not null
        order by p.due_at limit 1
        """,
        {"key": server_key},
    )
    return None if row is None else from_micros(row[0])


def claim_pushes(tx: Transaction, server_key: str, *, limit: int, lease: timedelta) -> list[DuePush]:
    """Take what is due and count the attempt. Each is due again after `lease`, unless its outcome is recorded before. What the
    person may not see any more, has read or has answered meanwhile is not returned, and not sent later."""
    rows = tx.rows(
        f"""
        update pushes set due_at = :later, attempts = attempts + 1
        where id in (
          select p.id from pushes p
          where p.due_at <= :now
            and exists (select 1 from push_subscriptions s where s.id = p.subscription and s.server_key = :key)
          order by p.due_at limit :limit{tx.skip_locked}
        )
        returning {_PUSH_ROWS.columns}
        """,
        {"now": to_micros(tx.now), "later": to_micros(tx.now + lease), "key": server_key, "limit": limit},
    )
    due: list[DuePush] = []
    for push in _PUSH_ROWS.decode_all(rows):
        row = tx.row(f"{_SELECT_SUBSCRIPTION} where id = :id", {"id": push.subscription})
        content = _load_push(tx, push, _SUBSCRIPTION_ROWS.decode(row)) if row else None
        if content is None:
            end_push(tx, push.id)
        else:
            due.append(content)
    return due


def _load_push(tx: Transaction, push: Push, subscription: PushSubscription) -> DuePush | None:
    viewer = subscription.viewer
    try:
        session = sessions.get(tx, push.session, viewer=viewer)
    except NotFound:
        return None
    quote: str | Phrase = ""
    if push.kind is PushKind.QUESTION:
        asked = next(iter(questions.get_many(tx, [QuestionId(push.subject)])), None)
        if asked is None or asked.state is not QuestionState.OPEN:
            return None
        quote = asked.question.display_title
    else:
        if get_read_marks(tx, viewer, [session])[session.id] >= session.last_seq:
            return None
        if push.kind is PushKind.FINISHED and subscription.with_text:
            answers = [
                m
                for m in messages.list_latest(tx, session.id, limit=5)
                if m.turn == push.subject and m.role is Role.ASSISTANT
            ]
            spoken = [part.text for m in answers[-1:] for part in m.parts if isinstance(part, Text)]
            quote = " ".join(spoken)[:_MAX_QUOTED]
    private = not subscription.with_text
    return DuePush(
        push=push,
        subscription=subscription,
        title="" if private else session.title,
        quote="" if private else quote,
    )


def end_push(tx: Transaction, id_: str) -> None:
    """Record that a push was sent, or is not to be sent any more."""
    tx.run("update pushes set due_at = null where id = :id", {"id": id_})


def delay_push(tx: Transaction, id_: str, *, until: datetime) -> None:
    """Record that a push is to be tried again."""
    tx.run(
        "update pushes set due_at = :until where id = :id and due_at is not null",
        {"id": id_, "until": to_micros(until)},
    )


def trim_pushes(tx: Transaction, *, before: datetime) -> int:
    """Remove the pushes of events before a time; return how many."""
    return tx.count("delete from pushes where created_at < :before", {"before": to_micros(before)})
