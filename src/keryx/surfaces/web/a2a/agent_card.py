"""The agent card: what a client of A2A learns about this server before it talks to it."""

from starlette.requests import Request
from starlette.responses import Response

from keryx.core import codec
from keryx.surfaces.web.a2a import VERSION, Json
from keryx.surfaces.web.operations import ApiRouter, RequiredRole
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.responses import compute_etag, matches_etag

router = ApiRouter()

PATH = "/.well-known/agent-card.json"
ENDPOINT = "/a2a"
_TEXT_TYPES = ["text/plain", "text/markdown"]
_INPUT_TYPES = [*_TEXT_TYPES, "application/json", "image/*", "audio/*", "application/octet-stream"]


@router.get(
    PATH,
    summary="The agent card of A2A: where and how other agents talk to this one.",
    media_types=("application/json",),
    role=RequiredRole.NONE,
)
async def get_agent_card(request: ApiRequest) -> Response:
    required = request.services.authenticator.required
    base_url = find_base_url(request.http, secure=request.services.secure_cookies)
    body = codec.dumps(
        build_card(base_url, request.services.installation.version, required=required)
    ).encode()
    tag = compute_etag(body)
    headers = {"Cache-Control": "public, max-age=300", "ETag": tag, "Vary": "Host"}
    if matches_etag(request.http, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def find_base_url(http: Request, *, secure: bool) -> str:
    """Return the address under which the client reaches this server, without a slash at the end."""
    scheme = "https" if secure else http.scope.get("scheme", "http")
    return f"{scheme}://{http.headers.get('host', 'localhost')}{http.state.prefix}"


def build_card(base_url: str, version: str, *, required: bool) -> Json:
    """Build the card. `required`: callers need a key."""
    bindings = [
        {"url": f"{base_url}{ENDPOINT}", "protocolBinding": name, "protocolVersion": VERSION}
        for name in ("JSONRPC", "HTTP+JSON")
    ]
    card: Json = {
        "name": "Keryx",
        "description": "An agent with durable conversations. A context is a conversation, which people see and continue on all"
        " their surfaces; a task is one answer in it.",
        "version": version or "0",
        "supportedInterfaces": bindings,
        "capabilities": {"streaming": True, "pushNotifications": False, "extendedAgentCard": False},
        "defaultInputModes": _INPUT_TYPES,
        "defaultOutputModes": _TEXT_TYPES,
        "skills": [
            {
                "id": "conversation",
                "name": "Conversation",
                "description": "Answers messages, and remembers the conversation that they belong to.",
                "tags": ["chat"],
                "examples": ["What did we decide about the garden last week?"],
            }
        ],
        "securitySchemes": {
            "key": {
                "httpAuthSecurityScheme": {
                    "scheme": "Bearer",
                    "description": "A key of `keryx keys add`, one for each program or device.",
                }
            }
        },
    }
    if required:
        card["securityRequirements"] = [{"schemes": {"key": {"list": []}}}]
    return card
