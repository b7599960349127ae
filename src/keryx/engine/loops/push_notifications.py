"""Tells the browsers of a person what happened while the page is closed. What is to be told is queued in the store from the change feed, and sent until the push service took it, the browser is gone, or it is too old."""

import logging
from datetime import timedelta
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from keryx import logs
from keryx.core import codec
from keryx.core.changes import Change, ChangeKind
from keryx.core.clock import Clock
from keryx.core.durations import Backoff
from keryx.core.errors import CursorExpired, KeryxError
from keryx.core.questions import QuestionState
from keryx.core.text import to_single_line, truncate
from keryx.core.texts import Catalogue
from keryx.core.turns import TurnState
from keryx.engine.loops.feed import Feed
from keryx.engine.policy import PushSettings
from keryx.engine.web_push import (
    MAX_PLAINTEXT,
    PushClient,
    PushOutcome,
    PushResult,
    ServerKey,
    build_topic,
    encrypt,
)
from keryx.store import viewer_state
from keryx.store.db import Database
from keryx.store.viewer_state import DuePush, PushCandidate, PushEvent, PushKind
from keryx.timing import WakeSignal, wait_until

log = logging.getLogger(__name__)

# A person who has read or answered meanwhile, in any browser, is not told.
_DELAY = timedelta(seconds=3)
# Longer than any request takes. A process that ends in between leaves its pushes for then.
_LEASE = timedelta(minutes=2)
_AT_ONCE = 8
_BACKOFF = Backoff(first=timedelta(seconds=20), longest=timedelta(hours=1), jitter=0.2)
_RETRY = Backoff(first=timedelta(seconds=2), longest=timedelta(minutes=5))
_LOOK_AGAIN = timedelta(minutes=5)
# So many changes are read again at most after a restart.
_SAVE_AFTER = 1_000
_MAX_TEXT = 300
_TURN_KINDS = {
    TurnState.DONE.value: PushKind.FINISHED,
    TurnState.FAILED.value: PushKind.FAILED,
    TurnState.PARKED.value: PushKind.FAILED,
}
# The surface of turns that were asked for on the page.
_PAGE = "web"
_WORDS = {
    PushKind.FINISHED: "page.An answer is finished",
    PushKind.QUESTION: "page.An agent needs you",
    PushKind.FAILED: "page.An answer failed",
}


def find_event(change: Change) -> PushEvent | None:
    """Return the event that a change is, `None` for one that nobody is told of."""
    kind = None
    if change.kind is ChangeKind.TURN:
        kind = _TURN_KINDS.get(change.note)
    elif change.kind is ChangeKind.QUESTION and change.note == QuestionState.OPEN.value:
        kind = PushKind.QUESTION
    if kind is None or change.session is None:
        return None
    return PushEvent(
        kind=kind,
        subject=change.subject,
        session=change.session,
        profile=change.profile,
        owner=change.owner,
        at=change.at,
    )


def wants(candidate: PushCandidate) -> bool:
    """Whether the preferences of the person ask for it: those of the conversation go before those of the kind. The page tells by
    the same rule while it is open."""
    event, preferences = candidate.event, candidate.preferences
    chosen = preferences.get(f"alerts.{event.session}", "")
    if chosen:
        return chosen == "all"
    if event.kind.value in preferences.get("muted", "").split():
        return False
    return event.kind is not PushKind.FINISHED or candidate.surface == _PAGE


def build_payload(due: DuePush, texts: Catalogue) -> bytes:
    """Return what the browser is told, in the language of the person."""
    push, subscription = due.push, due.subscription
    said = texts.speak(subscription.language)
    words = said.say(_WORDS[push.kind])
    quote = said.render(due.quote)
    limit = _MAX_TEXT
    while True:
        payload = codec.dumps(
            {
                "id": f"{push.kind.value} {push.subject}",
                "who": subscription.principal,
                "session": push.session,
                "path": f"{subscription.prefix}/#/s/{push.session}",
                "title": truncate(to_single_line(due.title), limit) or "Keryx",
                "text": truncate(to_single_line(quote), limit) or words,
            }
        ).encode("utf-8", "replace")
        if len(payload) <= MAX_PLAINTEXT:
            return payload
        limit //= 2


class PushNotifier:
    """Queues and sends. On several nodes each event is told once, by the node whose key the browser knows."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        feed: Feed,
        *,
        settings: PushSettings,
        key_file: Path,
        texts: Catalogue,
    ) -> None:
        self._database = database
        self._clock = clock
        self._feed = feed
        self._settings = settings
        self._key_file = key_file
        self._texts = texts
        self._work = WakeSignal()
        self._unsaved = 0

    async def run(self) -> None:
        """Queue and send until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._follow)
            await self._send_all()

    async def _follow(self) -> None:
        failures = 0
        while True:
            try:
                cursor = await self._database.read("push.cursor", viewer_state.find_push_cursor)
                async for batch in self._feed.batches(cursor):
                    await self._queue(batch)
                    failures = 0
            except CursorExpired:
                log.warning("changes were missed: nobody is told of them")
                await self._database.write("push.skip", viewer_state.skip_to_end)
            except KeryxError as exc:
                failures += 1
                log.warning("cannot look for what people are to be told: %s", exc, extra=logs.REPEATS)
                await self._clock.sleep(_RETRY.seconds(failures))

    async def _queue(self, batch: list[Change]) -> None:
        """Queue what a batch of changes has for people."""
        oldest = self._clock.now() - self._settings.keep
        events = [event for change in batch if (event := find_event(change)) and event.at > oldest]
        chosen: list[PushCandidate] = []
        if events:
            candidates = await self._database.read(
                "push.candidates", lambda tx: viewer_state.list_push_candidates(tx, events)
            )
            chosen = [candidate for candidate in candidates if wants(candidate)]
        self._unsaved += len(batch)
        if not chosen and self._unsaved < _SAVE_AFTER:
            return
        work = partial(viewer_state.queue_pushes, chosen=chosen, cursor=batch[-1].cursor, delay=_DELAY)
        await self._database.write("push.queue", work)
        self._unsaved = 0
        if chosen:
            self._work.signal()

    async def _send_all(self) -> None:
        key: ServerKey | None = None
        while key is None:
            seen = self._work.count
            try:
                key = await anyio.to_thread.run_sync(ServerKey.find, self._key_file)
            except KeryxError as exc:
                log.warning("nothing can be pushed: %s", exc)
            if key is None:
                await wait_until(self._work, seen, self._clock, self._clock.now() + _LOOK_AGAIN)
        settings = self._settings
        failures = 0
        async with PushClient(key, contact=settings.contact, loopback=settings.loopback) as client:
            while True:
                seen, now = self._work.count, self._clock.now()
                try:
                    find = partial(viewer_state.find_next_push, server_key=key.public)
                    at = await self._database.read("push.next", find)
                    if at is not None and at <= now:
                        await self._send_due(client)
                        continue
                    failures = 0
                except KeryxError as exc:
                    failures += 1
                    log.warning("cannot push now: %s", exc, extra=logs.REPEATS)
                    at = now + _RETRY.delay(failures)
                latest = now + _LOOK_AGAIN
                await wait_until(self._work, seen, self._clock, min(at or latest, latest))

    async def _send_due(self, client: PushClient) -> None:
        claim = partial(viewer_state.claim_pushes, server_key=client.key.public, limit=_AT_ONCE, lease=_LEASE)
        due = await self._database.write("push.claim", claim)
        results: dict[str, PushResult] = {}

        async def send(push: DuePush) -> None:
            results[push.push.id] = await self._send(client, push)

        async with anyio.create_task_group() as group:
            for push in due:
                group.start_soon(send, push)
        for push in due:
            await self._record(push, results[push.push.id])

    async def _send(self, client: PushClient, due: DuePush) -> PushResult:
        push, subscription, now = due.push, due.subscription, self._clock.now()
        left = push.created_at + self._settings.keep - now
        if left <= timedelta(0):
            return PushResult(outcome=PushOutcome.REFUSED, detail="it is too old")
        try:
            body = encrypt(
                build_payload(due, self._texts),
                public_key=subscription.public_key,
                secret=subscription.secret,
            )
        except ValueError as exc:
            return PushResult(outcome=PushOutcome.GONE, detail=f"the key of the browser is wrong: {exc}")
        return await client.send(
            subscription.endpoint,
            body,
            topic=build_topic(push.session),
            urgent=push.kind is PushKind.QUESTION,
            seconds=int(left.total_seconds()),
            now=now,
        )

    async def _record(self, due: DuePush, result: PushResult) -> None:
        push = due.push
        log.debug("push %s: %s %s", push.id, result.outcome.value, result.detail)
        match result.outcome:
            case PushOutcome.GONE:
                log.info("a browser is told nothing any more: %s", result.detail)
                work = partial(viewer_state.remove_subscription, id_=push.subscription)
            case PushOutcome.RETRY:
                until = self._clock.now() + max(result.after, _BACKOFF.delay(push.attempts))
                log.info("a notification has to wait: %s", result.detail, extra=logs.REPEATS)
                work = partial(viewer_state.delay_push, id_=push.id, until=until)
            case PushOutcome.REFUSED:
                log.warning("a notification cannot be sent: %s", result.detail, extra=logs.REPEATS)
                work = partial(viewer_state.end_push, id_=push.id)
            case PushOutcome.SENT:
                work = partial(viewer_state.end_push, id_=push.id)
        await self._database.write("push.record", work)
