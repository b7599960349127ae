"""Routes of shared links: make, list and revoke them, and the page that shows a conversation to anybody who has one."""

from html import escape

from starlette.responses import Response, StreamingResponse

from keryx.core.errors import Forbidden, NotFound
from keryx.core.messages import Image, Message, Role, Text, read_part
from keryx.core.texts import Phrase, Texts
from keryx.engine.hub.shares import Share, SharedConversation
from keryx.markdown.html import prepare_document
from keryx.surfaces.web import presenters, schema
from keryx.surfaces.web.operations import ApiRouter, RequiredRole
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.responses import build_document

router = ApiRouter()

# No script runs, whatever was said. A sandbox would keep the style sheet out, too.
_POLICY = "default-src 'none'; style-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
# A link must not be kept by a cache after it was revoked, nor be found by a search engine.
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    "X-Robots-Tag": "noindex, nofollow",
    "Vary": "Accept-Language",
}
_PAGE = """\
<!doctype html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/shared/keryx.css">
</head>
<body class="shared">
<main class="column">
<h1 dir="auto">{title}</h1>
<p class="muted small">{note}</p>
{messages}
</main>
</body>
</html>
"""


@router.get("/api/sessions/{session}/shares", summary="The links to a conversation.")
async def shares(request: ApiRequest) -> schema.Shares:
    found = await request.hub.shares.list_all(request.viewer, request.session_id)
    return schema.Shares(shares=[_present(share) for share in found])


@router.post(
    "/api/sessions/{session}/shares",
    summary="Make a link that shows the conversation, as it is now, to anybody who has it.",
    status=201,
)
async def share(request: ApiRequest) -> schema.NewShare:
    address = request.services.installation.public_address
    if not address:
        raise Forbidden(Phrase("web.shares_off"))
    made, token = await request.hub.shares.add(request.viewer, request.session_id)
    return schema.NewShare(share=_present(made), address=f"{address}/share/{token}")


@router.delete(
    "/api/sessions/{session}/shares/{share}", summary="Revoke a link: it shows nothing from now on."
)
async def revoke_share(request: ApiRequest) -> None:
    await request.hub.shares.revoke(request.viewer, request.session_id, request.path_param("share"))


@router.get(
    "/share/{token}",
    summary="The page of a shared conversation.",
    media_types=("text/html",),
    role=RequiredRole.NONE,
)
async def shared_page(request: ApiRequest) -> Response:
    token = request.path_param("token")
    _require_shares(request)
    session = await request.hub.shares.find_session(token)
    async with request.services.shares.hold(session):
        found = await request.hub.shares.open(token)
        page = await request.render(lambda render: _write_page(found, token, request.texts, render))
        return await build_document(
            page,
            headers=_HEADERS,
            media_type="text/html; charset=utf-8",
            folder=request.services.installation.home,
        )


@router.get(
    "/share/{token}/media/{media}",
    summary="A picture of a shared conversation.",
    media_types=("image/*",),
    role=RequiredRole.NONE,
)
async def shared_picture(request: ApiRequest) -> Response:
    _require_shares(request)
    token, file = request.path_param("token"), request.path_param("media")
    session = await request.hub.shares.find_session(token)
    async with request.services.shares.hold(session):
        found = await request.hub.shares.find_picture(token, file)
    return StreamingResponse(
        request.hub.media.read_chunks(found.id),
        headers={**_HEADERS, "Content-Length": str(found.size)},
        media_type=found.mime,
    )


def _require_shares(request: ApiRequest) -> None:
    """Without a public address, no link leads anywhere."""
    if not request.services.installation.public_address:
        raise NotFound(Phrase("web.no_share"))


def _present(share: Share) -> schema.ShareSchema:
    return schema.ShareSchema(id=share.id, through=share.through, created_at=share.created_at)


def _write_page(shared: SharedConversation, token: str, texts: Texts, render: presenters.Render) -> str:
    """Write the page. It names neither the session nor its owner; people are "You" and the agent's words stand below."""
    return _PAGE.format(
        language=texts.language,
        title=escape(shared.title or texts.say("page.Untitled")),
        note=escape(texts.say("page.A shared conversation. Only what was said is shown.")),
        messages="\n".join(filter(None, (_write_message(m, token, texts, render) for m in shared.messages))),
    )


def _write_message(message: Message, token: str, texts: Texts, render: presenters.Render) -> str:
    body = "".join(
        f'<div class="prose">{prepare_document(render(read_part(part, texts)), prefix=f"m{message.seq}-")}</div>'
        if isinstance(part, Text)
        else f'<p><img src="/share/{token}/media/{escape(part.media)}" alt="{escape(part.name)}"></p>'
        for part in message.parts
        if isinstance(part, Text | Image)
    )
    if not body:
        return ""
    who = texts.say("page.Question" if message.role is Role.USER else "page.Agent")
    return (
        f'<article class="message {message.role.value}"><div class="head"><span class="who">{escape(who)}</span></div>'
        f'<div class="body">{body}</div></article>'
    )
