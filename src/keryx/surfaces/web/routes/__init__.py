"""The HTTP API: one module with handlers for each resource, the list of all operations, and their routes."""

from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from keryx.core.errors import Forbidden
from keryx.core.ids import OPERATOR
from keryx.core.texts import Phrase
from keryx.surfaces.web import ag_ui, mcp_http
from keryx.surfaces.web.a2a import agent_card, task_routes
from keryx.surfaces.web.auth import Caller
from keryx.surfaces.web.openai_api import conversation_routes, generation_routes, model_routes
from keryx.surfaces.web.operations import Operation, RequiredRole
from keryx.surfaces.web.request import ApiRequest, Services, parse_arguments
from keryx.surfaces.web.responses import build_response
from keryx.surfaces.web.routes import (
    files,
    installation,
    jobs,
    lanes,
    messages,
    people,
    projects,
    session_contents,
    sessions,
    setup,
    shares,
    sign_ins,
    users,
    watched_sessions,
)
from keryx.surfaces.web.stream import endpoint

# In the order of the reference.
_ROUTERS = (
    installation.router,
    setup.router,
    endpoint.router,
    sign_ins.router,
    users.router,
    people.router,
    sessions.router,
    messages.router,
    session_contents.router,
    shares.router,
    projects.router,
    lanes.router,
    files.router,
    jobs.router,
    watched_sessions.router,
    generation_routes.router,
    conversation_routes.router,
    model_routes.router,
    agent_card.router,
    task_routes.router,
    mcp_http.router,
    ag_ui.router,
)
OPERATIONS: tuple[Operation, ...] = tuple(o for router in _ROUTERS for o in router.operations)


def build_routes(services: Services) -> list[Route]:
    """Build one route for each path, so that the response to a wrong method names all that are allowed."""
    paths: dict[str, dict[str, Operation]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = operation
    return [
        Route(path, _build_endpoint(services, by_method), methods=list(by_method))
        for path, by_method in paths.items()
    ]


def _build_endpoint(
    services: Services, by_method: Mapping[str, Operation]
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(http: Request) -> Response:
        operation = by_method["GET" if http.method == "HEAD" else http.method]
        if operation.role is not RequiredRole.NONE:
            caller: Caller = http.state.caller
            if operation.role is RequiredRole.OPERATOR and caller.viewer.principal != OPERATOR:
                raise Forbidden(Phrase("web.operator_only"))
        arguments = await parse_arguments(operation, http)
        result = await operation.handler(ApiRequest(services, http), **arguments)
        if result is None or isinstance(result, msgspec.Struct):
            return await build_response(http, operation, result)
        # Starlette calls the result as an ASGI app, which is all that an event stream is.
        return cast(Response, result)

    return endpoint
