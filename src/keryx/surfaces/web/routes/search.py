"""The route of the search over messages and titles."""

from keryx.core.sessions import Activity, SessionListItem
from keryx.engine.hub.views import SearchHit
from keryx.surfaces.web import markdown_html, presenters, request_schema, schema
from keryx.surfaces.web.request import ApiRequest

_MAX_CONTEXT_CHARS = 200


async def search(ask: ApiRequest) -> schema.Found:
    query = ask.query(request_schema.SearchQuery)
    hits = await ask.hub.search(ask.viewer, query.q, limit=query.limit + 1, offset=query.offset)
    return schema.Found(hits=[_present_hit(h) for h in hits[: query.limit]], more=len(hits) > query.limit)


def _present_hit(hit: SearchHit) -> schema.Hit:
    message = hit.message
    return schema.Hit(
        session=presenters.session(SessionListItem(session=hit.session, activity=Activity.IDLE)),
        html=markdown_html.mark_spans(hit.snippet.text, hit.snippet.spans),
        text=hit.snippet.text,
        seq=message.seq if message else None,
        role=message.role if message else None,
        at=message.at if message else None,
        before=hit.before.text[:_MAX_CONTEXT_CHARS] if hit.before else "",
        after=hit.after.text[:_MAX_CONTEXT_CHARS] if hit.after else "",
    )
