"""What Slack does not tell with an event: the names of people and channels, and the thread of a message. Looked up when needed and kept for a while."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

import msgspec

from keryx.core.cache import LruCache
from keryx.surfaces.gateway.slack.payloads import SlackChannel, SlackMessage, SlackUser
from keryx.surfaces.gateway.slack.web_api import SLACK_ERRORS, SlackApi, SlackApiError

log = logging.getLogger(__name__)

_KEEP_SECONDS = 3600.0
_RETRY_SECONDS = 300.0
_MAX_ENTRIES = 10_000
# Slack repeats an event that is not acknowledged within three seconds.
_LOOKUP_TIMEOUT_SECONDS = 1.5


class DirectoryEntry(msgspec.Struct, frozen=True):
    """A person or a channel; empty if Slack did not tell its name."""

    name: str = ""
    language: str = ""


class Directory:
    def __init__(self, api: SlackApi, now: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._now = now
        # With the time until which each entry is used.
        self._entries = LruCache[str, tuple[float, DirectoryEntry]](_MAX_ENTRIES)
        self._reported: set[str] = set()

    async def find(self, ids: Iterable[str]) -> dict[str, DirectoryEntry]:
        """Return what is known about these ids within a short time. An id whose name cannot be had is left out."""
        wanted = set(ids)
        now = self._now()
        missing = [id_ for id_ in wanted if (self._entries.get(id_) or (0.0,))[0] <= now]
        if missing:
            try:
                async with asyncio.timeout(_LOOKUP_TIMEOUT_SECONDS):
                    await asyncio.gather(*(self._look_up(id_) for id_ in missing))
            except TimeoutError:
                log.info("Slack did not tell %d names in time", len(missing))
        found = {id_: entry for id_ in wanted if (entry := self._entries.get(id_))}
        return {id_: entry for id_, (_, entry) in found.items() if entry.name}

    async def _look_up(self, id_: str) -> None:
        try:
            entry, seconds = await self._fetch(id_), _KEEP_SECONDS
        except SLACK_ERRORS as exc:
            entry, seconds = DirectoryEntry(), _RETRY_SECONDS
            self._report(exc)
        except msgspec.ValidationError:
            entry, seconds = DirectoryEntry(), _RETRY_SECONDS
        self._entries.put(id_, (self._now() + seconds, entry))

    async def _fetch(self, id_: str) -> DirectoryEntry:
        if id_.startswith(("U", "W")):
            answer = await self._api.call("users.info", user=id_, include_locale="true")
            user = msgspec.convert(answer.get("user"), SlackUser)
            return DirectoryEntry(user.shown_name, user.locale)
        if id_.startswith(("C", "G")):
            answer = await self._api.call("conversations.info", channel=id_)
            return DirectoryEntry(msgspec.convert(answer.get("channel"), SlackChannel).name)
        # Direct chats and bots have no name of their own.
        return DirectoryEntry()

    def _report(self, error: Exception) -> None:
        """Log each reason once: without a scope every lookup fails."""
        reason = error.code if isinstance(error, SlackApiError) else type(error).__name__
        if reason not in self._reported:
            self._reported.add(reason)
            log.warning("names cannot be looked up: %s", error)


class ThreadIndex:
    """The threads of messages, by channel and ts."""

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._threads = LruCache[tuple[str, str], str](_MAX_ENTRIES)

    def add(self, channel: str, ts: str, thread: str) -> None:
        self._threads.put((channel, ts), thread)

    async def find(self, channel: str, ts: str) -> str:
        """Return the thread of a message; empty if it is in none, or Slack does not tell."""
        thread = self._threads.get((channel, ts))
        if thread is None:
            try:
                async with asyncio.timeout(_LOOKUP_TIMEOUT_SECONDS):
                    answer = await self._api.call("conversations.replies", channel=channel, ts=ts, limit=1)
                messages = msgspec.convert(answer.get("messages"), list[SlackMessage])
            except (*SLACK_ERRORS, msgspec.ValidationError, TimeoutError) as exc:
                log.info("the thread of a message is not known: %s", type(exc).__name__)
                return ""
            thread = (messages[0].thread_ts or "") if messages else ""
            self.add(channel, ts, thread)
        return thread
