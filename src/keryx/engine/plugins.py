"""Calls into adapters and agents: rendering, sends with a timeout, detached tasks, and the cached lookup of roles."""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from functools import cache, partial
from typing import Any, cast

import anyio
import anyio.to_thread
import msgspec

from keryx.core import access
from keryx.core.access import CLOSED, AccessRules, Verdict
from keryx.core.cache import LruCache
from keryx.core.clock import Clock
from keryx.core.deliveries import Target
from keryx.core.errors import Invalid, NotSent, Refused, SendError, Unavailable, Uncertain
from keryx.core.media import Attachment, RemoteFile
from keryx.core.ports.adapter import (
    Adapter,
    InboundDeletion,
    InboundEvent,
    InboundFailure,
    InboundMessage,
    OutgoingPart,
    RenderedPart,
    SupportsDownloads,
    SupportsReconciliation,
    SupportsRemoteRendering,
    SupportsRemoval,
    SupportsRoles,
    SupportsSendKeys,
    SupportsThreads,
)
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase, explain
from keryx.engine.threaded_adapter import ThreadedAdapter
from keryx.plugin_thread import guard_plugin, name_error

log = logging.getLogger(__name__)
ROLE_TTL_SECONDS = 30.0
_ROLE_TIMEOUT_SECONDS = 10.0
_MAX_CACHED = 10_000
# Longer texts are rendered in a worker thread, in characters.
_MAX_INLINE_RENDER = 400

_detached: set[asyncio.Task[None]] = set()


def spawn_detached(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run plug-in code as a task outside of every task group. A task group cancels in a busy loop until its tasks end,
    so a task that ignores cancellation would use a whole core; this one is cancelled once and then left alone."""
    task = asyncio.create_task(work)
    _detached.add(task)
    task.add_done_callback(_detached.discard)
    return task


async def render_parts(adapter: Adapter, text: str) -> Sequence[RenderedPart]:
    """Render a text as messages. Raise `Refused` if the adapter fails, which it would again, and `NotSent` if it is
    blocked."""
    try:
        with guard_plugin():
            if isinstance(adapter, ThreadedAdapter):
                return await adapter.call(lambda: list(adapter.parts(text)))
            if _renders_remotely(type(adapter)):
                return await cast(SupportsRemoteRendering, adapter).render(text)
            if len(text) > _MAX_INLINE_RENDER:
                return await anyio.to_thread.run_sync(adapter.parts, text)
            return adapter.parts(text)
    except NotSent:
        raise
    except Exception as exc:
        raise Refused(
            Phrase("delivery.adapter_split", platform=adapter.platform, reason=f"{name_error(exc)}: {exc}")
        ) from exc


@cache
def _renders_remotely(kind: type) -> bool:
    """Whether adapters of a class render elsewhere. Asked for each answer, and the check of a protocol is slow."""
    return issubclass(kind, SupportsRemoteRendering)


async def create_send_key(adapter: SupportsSendKeys, part: OutgoingPart) -> str:
    """Ask an adapter for the key of a part. Raise `NotSent` if it is blocked."""
    with guard_plugin():
        if isinstance(adapter, ThreadedAdapter):
            return await adapter.call(partial(adapter.create_send_key, part))
        return adapter.create_send_key(part)


async def send_part(adapter: Adapter, part: OutgoingPart, timeout: timedelta) -> str:
    """Send through an adapter. Raises a `SendError` only: any other error becomes `Uncertain`."""
    try:
        with anyio.fail_after(timeout.total_seconds()), guard_plugin():
            return await adapter.send(part)
    except SendError:
        raise
    except TimeoutError as exc:
        raise Uncertain(Phrase("delivery.not_answered", platform=adapter.platform)) from exc
    except Exception as exc:
        log.exception("the %s adapter failed with delivery %s", adapter.platform, part.delivery)
        raise Uncertain(
            Phrase("delivery.adapter_failed", platform=adapter.platform, kind=name_error(exc))
        ) from exc


async def find_sent(adapter: SupportsReconciliation, part: OutgoingPart, timeout: timedelta) -> str | None:
    """Search the platform for a part that may have arrived. Raises a `SendError` only: nothing is sent before it is known."""
    try:
        with anyio.fail_after(timeout.total_seconds()), guard_plugin():
            return await adapter.find_sent(part)
    except SendError:
        raise
    except Exception as exc:
        log.exception("the adapter failed to search for delivery %s", part.delivery)
        raise NotSent(Phrase("delivery.not_searched", kind=name_error(exc))) from exc


async def download(
    adapter: SupportsDownloads, file: RemoteFile, *, limit: int, timeout: timedelta
) -> Attachment:
    """Fetch a file through an adapter. Raise `Invalid` if that cannot succeed, `Unavailable` if it may later."""
    try:
        with anyio.fail_after(timeout.total_seconds()), guard_plugin():
            return await adapter.download(file, limit=limit)
    except (Invalid, Unavailable):
        raise
    except TimeoutError as exc:
        raise Invalid(Phrase("file.slow")) from exc
    except Exception as exc:
        log.exception("the adapter failed to fetch a file")
        raise Unavailable(f"the adapter failed ({name_error(exc)})") from exc


async def remove_message(adapter: SupportsRemoval, target: Target, message: str, timeout: timedelta) -> None:
    """Delete a message through an adapter. Raises a `SendError` only. May be repeated."""
    try:
        with anyio.fail_after(timeout.total_seconds()), guard_plugin():
            await adapter.remove(target, message)
    except SendError:
        raise
    except Exception as exc:
        log.exception("the %s adapter failed to delete a message", target.platform)
        raise NotSent(
            Phrase("delivery.adapter_failed", platform=target.platform, kind=name_error(exc))
        ) from exc


async def update_thread(
    adapter: SupportsThreads, target: Target, *, title: str, archive: bool, timeout: timedelta
) -> None:
    """Name a thread, unless the title is empty, and archive it if asked to. Raises a `SendError` only. May be repeated."""
    try:
        with anyio.fail_after(timeout.total_seconds()), guard_plugin():
            if title:
                await adapter.rename_thread(target, title)
            if archive:
                await adapter.archive_thread(target)
    except SendError:
        raise
    except Exception as exc:
        log.exception("the %s adapter failed to update a thread", target.platform)
        raise NotSent(
            Phrase("delivery.adapter_failed", platform=target.platform, kind=name_error(exc))
        ) from exc


def has_detached() -> bool:
    """Whether a detached task is still running."""
    return bool(_detached)


def get_account_key(item: Adapter | Source | Target) -> tuple[str, str]:
    """Return the platform and the account, the key of the adapter that serves a source or a target."""
    return item.platform, item.account


class RoleLookup:
    """Looks up roles on platforms whose access rule names roles and whose adapter supports it."""

    def __init__(self, adapters: Sequence[Adapter], rules: AccessRules, clock: Clock) -> None:
        with_roles = [a for a in adapters if (access.find_rule(rules, *get_account_key(a)) or CLOSED).roles]
        self._adapters = {get_account_key(a): a for a in with_roles if isinstance(a, SupportsRoles)}
        self._rules = rules
        self._clock = clock
        # The time of the lookup and the roles, by platform, account, chat and user.
        self._cache: LruCache[tuple[str, ...], tuple[float, tuple[str, ...]]] = LruCache(_MAX_CACHED)

    @property
    def enabled(self) -> bool:
        return bool(self._adapters)

    async def add_roles(self, inbound: InboundEvent) -> InboundEvent:
        """Return the event with the roles of its author, unless it is ignored anyway or needs no access."""
        if isinstance(inbound, InboundDeletion | InboundFailure):
            return inbound
        rule = access.find_rule(self._rules, *get_account_key(inbound.source)) or CLOSED
        addressed = inbound.addressed if isinstance(inbound, InboundMessage) else True
        follows = rule.follow_threads and inbound.source.thread is not None
        if access.lacks_mention(rule, inbound.source, addressed=addressed) and not (rule.observe or follows):
            return inbound
        return msgspec.structs.replace(inbound, source=await self.refresh_roles(inbound.source))

    async def refresh_roles(self, source: Source) -> Source:
        """Return the source with the current roles of its author; without roles if another rule allows access.

        Raise `Unavailable` if the platform does not answer."""
        adapter = self._adapters.get(get_account_key(source))
        if adapter is None or source.chat_type is ChatType.DM or not source.chat or not source.user:
            return source
        bare = msgspec.structs.replace(source, roles=())
        rule = access.find_rule(self._rules, *get_account_key(source)) or CLOSED
        if access.judge(rule, bare, granted=False) is Verdict.ALLOWED:
            return bare
        key = (*get_account_key(source), source.chat, source.user)
        time, roles = self._cache.get(key) or (0.0, None)
        if roles is None or self._clock.monotonic() - time > ROLE_TTL_SECONDS:
            time = self._clock.monotonic()
            try:
                with anyio.fail_after(_ROLE_TIMEOUT_SECONDS), guard_plugin():
                    roles = tuple(await adapter.roles(source))
            except Unavailable as exc:
                reason = explain(exc, "platform.silent", platform=source.platform)
                raise Unavailable(str(exc), reason) from exc
            except TimeoutError as exc:
                raise Unavailable(Phrase("platform.silent", platform=source.platform)) from exc
            except Exception as exc:
                log.exception("the %s adapter could not look up roles", source.platform)
                raise Unavailable(
                    f"{source.platform} cannot tell who has which role: {name_error(exc)}",
                    Phrase("platform.silent", platform=source.platform),
                ) from exc
            self._cache.put(key, (time, roles))
        return msgspec.structs.replace(source, roles=roles)
