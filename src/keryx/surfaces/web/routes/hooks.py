"""Webhook endpoints of the adapters. Each adapter handles its own path, and bodies above its limit are refused."""

import logging
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from keryx.core.errors import Invalid, KeryxError, Unavailable
from keryx.core.ports import adapter as ports_adapter
from keryx.core.ports.adapter import Adapter, Webhook
from keryx.surfaces.web.request import read_body
from keryx.surfaces.web.responses import BodyTooLarge

log = logging.getLogger(__name__)

_RETRY_HEADERS = {"Retry-After": "5"}


def build_hook_routes(adapters: Sequence[Adapter], *, listening: Callable[[Adapter], bool]) -> list[Route]:
    """Build `POST /hooks/<path>` for the adapters that have a hook. While an adapter is not `listening`, the status is 503."""
    hooks: dict[str, tuple[Adapter, Webhook]] = {}
    for adapter in adapters:
        hook = adapter.hook
        if hook is None:
            continue
        if hook.path in hooks:
            raise Invalid(f"two adapters want the hook {hook.path!r}: give one of them another path")
        hooks[hook.path] = adapter, hook

    async def endpoint(request: Request) -> Response:
        match = hooks.get(str(request.path_params["path"]))
        if match is None:
            return PlainTextResponse("there is no such hook\n", status_code=404)
        adapter, hook = match
        if not listening(adapter):
            return PlainTextResponse("not ready yet: try again\n", status_code=503, headers=_RETRY_HEADERS)
        return await _handle(request, adapter, hook)

    return [Route("/hooks/{path:path}", endpoint, methods=["POST"])]


async def _handle(request: Request, adapter: Adapter, hook: Webhook) -> Response:
    """Pass a request to the adapter. Errors are logged; the response does not describe them."""
    try:
        body = await read_body(request, hook.limit)
        event = ports_adapter.WebhookRequest(
            headers={name.lower(): value for name, value in request.headers.items()}, body=body
        )
        answer = await hook.handle(event)
    except BodyTooLarge:
        return PlainTextResponse(
            f"at most {hook.limit} bytes are taken\n", status_code=413, headers={"Connection": "close"}
        )
    except Unavailable as exc:
        log.warning("the hook of %s could not be stored: %s", adapter.platform, exc)
        return PlainTextResponse("not now: try again\n", status_code=503, headers=_RETRY_HEADERS)
    except KeryxError as exc:
        log.warning("the hook of %s failed: %s", adapter.platform, exc)
        return PlainTextResponse("this failed\n", status_code=500)
    except Exception:
        log.exception("the hook of %s failed", adapter.platform)
        return PlainTextResponse("this failed\n", status_code=500)
    return Response(answer.body, status_code=answer.status, media_type=answer.mime)
