"""Routes of conversations and their items under /v1. A conversation is a session, and every session can be read as one."""

from starlette.responses import Response

from keryx.core import messages
from keryx.core.errors import NotFound
from keryx.core.ids import SessionId
from keryx.core.messages import Message, Part
from keryx.engine.hub.api_turns import ApiConversation
from keryx.engine.hub.views import MessageRange
from keryx.surfaces.web import openai_api
from keryx.surfaces.web.openai_api import Json, parse_conversation_id
from keryx.surfaces.web.openai_api.generation_routes import JSON, build_reader, respond
from keryx.surfaces.web.openai_api.request_bodies import (
    MAX_BODY_BYTES,
    ConversationForm,
    ItemQuery,
    ItemsForm,
    LooseQuery,
)
from keryx.surfaces.web.openai_api.turn_responses import build_page
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest

router = ApiRouter()

_PAGE = 100


@router.post(
    "/v1/conversations", summary="Create a conversation.", media_types=JSON, body_limit=MAX_BODY_BYTES
)
async def create_conversation(request: ApiRequest, query: LooseQuery, body: ConversationForm) -> Response:
    entries = await build_reader(request, keep_instructions=True).read(body.items or [])
    created = await request.hub.api_turns.create_conversation(request.viewer, entries, body.metadata or {})
    return respond(_build_conversation(created))


@router.get("/v1/conversations/{conversation}", summary="A conversation.", media_types=JSON)
async def get_conversation(request: ApiRequest, query: LooseQuery) -> Response:
    found = await request.hub.api_turns.get_conversation(request.viewer, _read_id(request))
    return respond(_build_conversation(found))


@router.post(
    "/v1/conversations/{conversation}", summary="Replace the metadata of a conversation.", media_types=JSON
)
async def update_conversation(request: ApiRequest, query: LooseQuery, body: ConversationForm) -> Response:
    changed = await request.hub.api_turns.set_metadata(request.viewer, _read_id(request), body.metadata or {})
    return respond(_build_conversation(changed))


@router.delete(
    "/v1/conversations/{conversation}",
    summary="Delete a conversation. It is erased after the grace period.",
    media_types=JSON,
)
async def delete_conversation(request: ApiRequest, query: LooseQuery) -> Response:
    id_ = _read_id(request)
    await request.hub.api_turns.remove_conversation(request.viewer, id_)
    name = openai_api.format_conversation_id(id_)
    return respond({"id": name, "object": "conversation.deleted", "deleted": True})


@router.get(
    "/v1/conversations/{conversation}/items", summary="The items of a conversation.", media_types=JSON
)
async def list_conversation_items(request: ApiRequest, query: ItemQuery) -> Response:
    session = _read_id(request)
    await request.hub.api_turns.get_conversation(request.viewer, session)
    rising = query.order == "asc"
    items: list[Json] = []
    known = query.after
    position = _parse_item_id(known)[1] if known else None
    while len(items) <= query.limit:
        page = await _read_messages(request, session, position, rising=rising, inclusive=known is not None)
        if not page:
            break
        position = page[-1].seq
        found = [pair[0] for m in page for pair in openai_api.list_message_items(m)[:: 1 if rising else -1]]
        if known is not None:
            ids = [item["id"] for item in found]
            found = found[ids.index(known) + 1 :] if known in ids else found
            known = None
        items += found
    return respond(build_page(items[: query.limit], more=len(items) > query.limit))


@router.post(
    "/v1/conversations/{conversation}/items",
    summary="Append items to a conversation. No turn answers them.",
    media_types=JSON,
    body_limit=MAX_BODY_BYTES,
)
async def add_conversation_items(request: ApiRequest, query: LooseQuery, body: ItemsForm) -> Response:
    entries = await build_reader(request, keep_instructions=True).read(body.items)
    added = await request.hub.api_turns.add_messages(request.viewer, _read_id(request), entries)
    items = [item for message in added for item, _ in openai_api.list_message_items(message)]
    return respond(build_page(items, more=False))


@router.get(
    "/v1/conversations/{conversation}/items/{item}", summary="An item of a conversation.", media_types=JSON
)
async def get_conversation_item(request: ApiRequest, query: LooseQuery) -> Response:
    item, _, _ = await _find_item(request)
    return respond(item)


@router.delete(
    "/v1/conversations/{conversation}/items/{item}",
    summary="Take an item out of a conversation.",
    media_types=JSON,
)
async def delete_conversation_item(request: ApiRequest, query: LooseQuery) -> Response:
    _, message, parts = await _find_item(request)
    await request.hub.api_turns.remove_parts(request.viewer, message.id, parts)
    found = await request.hub.api_turns.get_conversation(request.viewer, _read_id(request))
    return respond(_build_conversation(found))


def _read_id(request: ApiRequest) -> SessionId:
    return parse_conversation_id(request.path_param("conversation"))


def _build_conversation(found: ApiConversation) -> Json:
    return {
        "id": openai_api.format_conversation_id(found.session),
        "object": "conversation",
        "created_at": int(found.created_at.timestamp()),
        "metadata": found.metadata,
    }


def _parse_item_id(text: str) -> tuple[SessionId, int]:
    """Return the session and the number of the message that an item belongs to."""
    session, dot, rest = text.partition("_")[2].partition(".")
    return messages.parse_id(f"{session}{dot}{rest.partition('.')[0]}")


async def _read_messages(
    request: ApiRequest, session: SessionId, position: int | None, *, rising: bool, inclusive: bool
) -> list[Message]:
    """Return the next messages in the order of the list. A conversation without a session has none yet."""
    if rising:
        window = MessageRange(after=(position or 0) - inclusive, limit=_PAGE)
    else:
        window = MessageRange(before=None if position is None else position + inclusive, limit=_PAGE)
    try:
        page = await request.hub.page(request.viewer, session, window)
    except NotFound:
        return []
    return page.messages if rising else page.messages[::-1]


async def _find_item(request: ApiRequest) -> tuple[Json, Message, tuple[Part, ...]]:
    name, session = request.path_param("item"), _read_id(request)
    found, seq = _parse_item_id(name)
    if found == session:
        message = await request.hub.views.message(request.viewer, session, seq)
        for item, parts in openai_api.list_message_items(message):
            if item["id"] == name:
                return item, message, parts
    raise NotFound(f"there is no item {name[:80]!r} in this conversation")
