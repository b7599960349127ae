"""What Feishu does not tell with an event: the names of people and chats, the kind of a chat, and where a message is. Looked up when needed and kept for a while."""

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Annotated, NamedTuple
from urllib.parse import quote

import msgspec

from keryx.core.cache import LruCache
from keryx.core.errors import Unavailable
from keryx.core.ports.adapter import AdapterContext
from keryx.surfaces.gateway.feishu.event_parser import FeishuPlace
from keryx.surfaces.gateway.feishu.open_api import FEISHU_ERRORS, FeishuApi, FeishuApiError, read_data
from keryx.surfaces.gateway.feishu.payloads import FeishuChat, FeishuUser, StoredMessage

log = logging.getLogger(__name__)

_KEEP_SECONDS = 3600.0
_RETRY_SECONDS = 300.0
_MAX_ENTRIES = 10_000
# Feishu repeats an event that is not acknowledged within three seconds.
_LOOKUP_TIMEOUT_SECONDS = 1.2
_DIRECT, _GROUP = "p2p", "group"
_CHAT_PREFIX = "oc_"


class _FeishuName(NamedTuple):
    # Until when it is used.
    deadline: float
    # Empty if it is not known.
    name: str


class FeishuDirectory:
    def __init__(self, api: FeishuApi, now: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._now = now
        self._names = LruCache[str, _FeishuName](_MAX_ENTRIES)
        # Whether a chat is a direct one.
        self._direct = LruCache[str, bool](_MAX_ENTRIES)
        self._places = LruCache[str, FeishuPlace](_MAX_ENTRIES)
        self._reported: set[int] = set()

    def note_name(self, id_: str, name: str) -> None:
        """A mention has told the name of a person."""
        if id_ and name:
            self._names.put(id_, _FeishuName(self._now() + _KEEP_SECONDS, name))

    def note_message(self, message: str, place: FeishuPlace) -> None:
        self._places.put(message, place)

    def note_sent(self, message: str, chat: str, thread: str) -> None:
        """Remember where a message of ours is, if it is known what kind of chat that is."""
        direct = self._direct.get(chat)
        if direct is not None:
            self._places.put(message, FeishuPlace(chat=chat, direct=direct, thread=thread, own=True))

    async def find_names(self, ids: Iterable[str]) -> dict[str, str]:
        """Return those names of these people and chats that can be had within a short time."""
        wanted = set(ids)
        missing = [id_ for id_ in wanted if self._is_outdated(id_)]
        if missing:
            try:
                async with asyncio.timeout(_LOOKUP_TIMEOUT_SECONDS):
                    await asyncio.gather(*(self._look_up_name(id_) for id_ in missing))
            except TimeoutError:
                log.info("Feishu did not tell %d names in time", len(missing))
                for id_ in missing:
                    if self._is_outdated(id_):
                        self._names.put(id_, _FeishuName(self._now() + _RETRY_SECONDS, self._get_name(id_)))
        return {id_: name for id_ in wanted if (name := self._get_name(id_))}

    async def note_chat(self, context: AdapterContext, chat: str, *, direct: bool) -> dict[str, str]:
        """Return the state to be stored with an event of a chat, which tells its kind; nothing if it is stored already."""
        if self._direct.get(chat) is not None or await context.load_state(_name_scope(chat)):
            return {}
        return {_name_scope(chat): _DIRECT if direct else _GROUP}

    def remember_chat(self, chat: str, *, direct: bool) -> None:
        """The kind of a chat is stored."""
        self._direct.put(chat, direct)

    async def find_chat(self, context: AdapterContext, chat: str) -> bool:
        """Return whether a chat is a direct one. Raise `Unavailable` if Feishu does not say."""
        known = self._direct.get(chat)
        if known is None:
            stored = await context.load_state(_name_scope(chat))
            known = stored == _DIRECT if stored else (await self._fetch_chat(chat)).chat_mode == _DIRECT
            self._direct.put(chat, known)
        return known

    async def find_message(self, context: AdapterContext, message: str) -> FeishuPlace:
        """Return where a message is. Raise `Unavailable` if Feishu does not say, `FeishuApiError` if it refuses to."""
        place = self._places.get(message)
        if place is None:
            # The first one is the message itself.
            found = (await self._fetch_messages(message))[0]
            place = FeishuPlace(
                chat=found.chat_id,
                direct=await self.find_chat(context, found.chat_id),
                thread=found.thread_id or "",
                own=found.sender.id == self._api.app_id,
            )
            self._places.put(message, place)
        return place

    async def find_forwarded(self, message: str) -> list[StoredMessage]:
        """Return the messages that one forwards together. Raise as `find_message` does."""
        return [one for one in await self._fetch_messages(message) if one.upper_message_id]

    def _get_name(self, id_: str) -> str:
        entry = self._names.get(id_)
        return entry.name if entry else ""

    def _is_outdated(self, id_: str) -> bool:
        entry = self._names.get(id_)
        return entry is None or entry.deadline <= self._now()

    async def _look_up_name(self, id_: str) -> None:
        try:
            name, seconds = await self._fetch_name(id_), _KEEP_SECONDS
        except FEISHU_ERRORS as exc:
            name, seconds = self._get_name(id_), _RETRY_SECONDS
            self._report(exc)
        except (msgspec.ValidationError, Unavailable):
            name, seconds = self._get_name(id_), _RETRY_SECONDS
        self._names.put(id_, _FeishuName(self._now() + seconds, name))

    async def _fetch_name(self, id_: str) -> str:
        if id_.startswith(_CHAT_PREFIX):
            return (await self._fetch_chat(id_)).name
        answer = await self._api.call(
            "GET", f"/open-apis/contact/v3/users/{quote(id_, safe='')}", query={"user_id_type": "open_id"}
        )
        user = msgspec.convert(read_data(answer).get("user"), FeishuUser)
        return user.name or user.nickname

    async def _fetch_chat(self, chat: str) -> FeishuChat:
        with _translate_errors("what kind of chat a chat is"):
            async with asyncio.timeout(_LOOKUP_TIMEOUT_SECONDS):
                answer = await self._api.call("GET", f"/open-apis/im/v1/chats/{quote(chat, safe='')}")
            return msgspec.convert(answer.get("data"), FeishuChat)

    async def _fetch_messages(self, message: str) -> list[StoredMessage]:
        """Return a message, and behind it those that it forwards."""
        with _translate_errors("where a message is"):
            async with asyncio.timeout(_LOOKUP_TIMEOUT_SECONDS):
                answer = await self._api.call("GET", f"/open-apis/im/v1/messages/{quote(message, safe='')}")
            return msgspec.convert(
                read_data(answer).get("items"), Annotated[list[StoredMessage], msgspec.Meta(min_length=1)]
            )

    def _report(self, error: Exception) -> None:
        """Log each reason once: without a permission every lookup fails."""
        code = error.code if isinstance(error, FeishuApiError) else 0
        if code not in self._reported:
            self._reported.add(code)
            log.warning("names cannot be looked up: %s", error)


@contextmanager
def _translate_errors(what: str) -> Generator[None]:
    """Raise `Unavailable` for a lookup that may succeed later. A refusal of Feishu stays as it is."""
    try:
        yield
    except FeishuApiError as exc:
        if exc.retry_after is None and not exc.unauthorized:
            raise
        raise Unavailable(str(exc)) from None
    except (*FEISHU_ERRORS, msgspec.ValidationError, TimeoutError) as exc:
        raise Unavailable(f"Feishu does not say {what} ({exc})") from None


def _name_scope(chat: str) -> str:
    return f"chat {chat}"
