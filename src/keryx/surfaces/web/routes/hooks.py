"""Webhook endpoints of the adapters. Each adapter handles its own path, and bodies above its limit are refused."""

import logging
from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from keryx.core.errors import Invalid, KeryxError, Unavailable
from keryx.core.ports.adapter import Adapter, Webhook, WebhookRequest
from keryx.surfaces.web.request import read_body
from keryx.surfaces.web.responses import BodyIncomplete, BodyTooLarge

log = logging.getLogger(__name__)

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_REJECTIONS = (400, 401, 403, 413, 415, 422)
_RETRY_HEADERS = {"Retry-After": "5"}


def build_hook_routes(
    adapters: Sequence[Adapter],
    *,
    listening: Callable[[Adapter], bool],
    on_rejection: Callable[[Adapter], None],
) -> list[Route]:
    """Build the endpoint below `/hooks/` for the adapters that have a hook. While an adapter is not `listening`, the status
    is 503. `on_rejection` is called for each request whose sender, form or size is wrong."""
    hooks: dict[str, tuple[Adapter, Webhook]] = {}
    for adapter in adapters:
        hook = adapter.hook
        if hook is None:
            continue
        if hook.path in hooks:
            raise Invalid(f"two adapters want the hook {hook.path!r}: give one of them another path")
        hooks[hook.path] = adapter, hook

    async def endpoint(request: Request) -> Response:
        path = str(request.path_params["path"])
        # The longest path wins, so that a hook may lie below another.
        known = [name for name in hooks if path == name or path.startswith(f"{name}/")]
        if not known:
            return PlainTextResponse("there is no such hook\n", status_code=404)
        adapter, hook = hooks[max(known, key=len)]
        if request.method not in hook.methods:
            allowed = {"Allow": ", ".join(hook.methods)}
            return PlainTextResponse("this hook takes other methods\n", status_code=405, headers=allowed)
        if request.method == "POST" and not all(map(request.headers.get, hook.required_headers)):
            on_rejection(adapter)
            return PlainTextResponse("the headers that prove who posts are missing\n", status_code=401)
        if not listening(adapter):
            return PlainTextResponse("not ready yet: try again\n", status_code=503, headers=_RETRY_HEADERS)
        answer = await _handle(request, adapter, hook, path[len(hook.path) + 1 :])
        if answer.status_code in _REJECTIONS:
            on_rejection(adapter)
        return answer

    return [Route("/hooks/{path:path}", endpoint, methods=list(_METHODS))]


async def _handle(request: Request, adapter: Adapter, hook: Webhook, rest: str) -> Response:
    """Pass a request to the adapter. Errors are logged; the response does not describe them."""
    try:
        body = await read_body(request, hook.limit)
    except BodyTooLarge:
        return PlainTextResponse(f"at most {hook.limit} bytes are taken\n", status_code=413)
    except BodyIncomplete as exc:
        return PlainTextResponse(f"{exc}\n", status_code=408)
    except Unavailable as exc:
        return PlainTextResponse(f"{exc}\n", status_code=503, headers=_RETRY_HEADERS)
    try:
        event = WebhookRequest(
            method=request.method,
            path=rest,
            query=dict(request.query_params),
            headers={name.lower(): value for name, value in request.headers.items()},
            body=body,
        )
        answer = await hook.handle(event)
    except Unavailable as exc:
        log.warning("the hook of %s could not be stored: %s", adapter.platform, exc)
        return PlainTextResponse("not now: try again\n", status_code=503, headers=_RETRY_HEADERS)
    except KeryxError as exc:
        log.warning("the hook of %s failed: %s", adapter.platform, exc)
        return PlainTextResponse("this failed\n", status_code=500)
    except Exception:
        log.exception("the hook of %s failed", adapter.platform)
        return PlainTextResponse("this failed\n", status_code=500)
    return Response(
        answer.body, status_code=answer.status, headers=dict(answer.headers), media_type=answer.mime
    )
