"""Webhook endpoints of the adapters. Each adapter handles its own path, and bodies above its limit are refused."""

import logging
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from keryx.core.errors import Invalid, KeryxError, Unavailable
from keryx.core.ports import adapter as ports_adapter
from keryx.core.ports.adapter import Adapter, Webhook

log = logging.getLogger(__name__)

_RETRY_HEADERS = {"Retry-After": "5"}


class _HookBodyTooLarge(Exception):
    pass


def build_hook_routes(adapters: Sequence[Adapter], *, listening: Callable[[Adapter], bool]) -> list[Route]:
    """`POST /hooks/<path>` for every adapter that has a hook. `listening` tells whether one can take events now."""
    found: dict[str, tuple[Adapter, Webhook]] = {}
    for adapter in adapters:
        hook = adapter.hook
        if hook is None:
            continue
        if hook.path in found:
            raise Invalid(f"two adapters want the hook {hook.path!r}: give one of them another path")
        found[hook.path] = adapter, hook

    async def answer(request: Request) -> Response:
        known = found.get(str(request.path_params["path"]))
        if known is None:
            return PlainTextResponse("there is no such hook\n", status_code=404)
        adapter, hook = known
        if not listening(adapter):
            return PlainTextResponse("not ready yet: try again\n", status_code=503, headers=_RETRY_HEADERS)
        return await _handle(request, adapter, hook)

    return [Route("/hooks/{path:path}", answer, methods=["POST"])]


async def _handle(request: Request, adapter: Adapter, hook: Webhook) -> Response:
    """The door of a hook: what fails inside is logged, and told to nobody."""
    try:
        body = await _read_body(request, hook.limit)
        given = ports_adapter.WebhookRequest(headers=_lower_headers(request), body=body)
        answer = await hook.handle(given)
    except _HookBodyTooLarge:
        return PlainTextResponse(
            f"at most {hook.limit} bytes are taken\n", status_code=413, headers={"Connection": "close"}
        )
    except Unavailable as exc:
        log.warning("the hook of %s waits for the store: %s", adapter.platform, exc)
        return PlainTextResponse("not now: try again\n", status_code=503, headers=_RETRY_HEADERS)
    except KeryxError as exc:
        log.warning("the hook of %s failed: %s", adapter.platform, exc)
        return PlainTextResponse("this failed\n", status_code=500)
    except Exception:
        log.exception("the hook of %s failed", adapter.platform)
        return PlainTextResponse("this failed\n", status_code=500)
    return Response(answer.body, status_code=answer.status, media_type=answer.mime)


async def _read_body(request: Request, limit: int) -> bytes:
    """The whole body, refused as soon as it is known to be too large, whether it says its length or not."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > limit:
        raise _HookBodyTooLarge
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise _HookBodyTooLarge
    return bytes(body)


def _lower_headers(request: Request) -> dict[str, str]:
    return {name.lower(): value for name, value in request.headers.items()}
