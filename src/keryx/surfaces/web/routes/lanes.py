"""Routes of lanes: list, show, suspend and reset them."""

from datetime import timedelta

from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.request import ApiRequest, Handler
from keryx.surfaces.web.routes import deliveries, installation, people, projects, search, turns


async def lanes(ask: ApiRequest) -> schema.Lanes:
    query = ask.query(request_schema.LaneQuery)
    since = ask.services.clock.now() - timedelta(minutes=query.minutes) if query.minutes else None
    found = await ask.hub.lanes.page(ask.viewer, since=since, limit=query.limit)
    titles = await ask.hub.views.titles(ask.viewer, {lane.session for lane in found if lane.session})
    return schema.Lanes(lanes=[presenters.lane(e, title=titles.get(e.session or "", "")) for e in found])


async def lane(ask: ApiRequest) -> schema.LaneHistory:
    found, moves = await ask.hub.lanes.get(ask.viewer, presenters.decode_lane_id(ask.path_param("lane")))
    named = [found.session, *(m.session for m in moves)]
    titles = await ask.hub.views.titles(ask.viewer, {s for s in named if s})
    return schema.LaneHistory(
        lane=presenters.lane(found, title=titles.get(found.session or "", "")),
        moves=[
            schema.Move(at=m.at, why=m.why, session=m.session, title=titles.get(m.session or "", ""))
            for m in moves
        ],
    )


async def change_lane(ask: ApiRequest) -> schema.Lane:
    key = presenters.decode_lane_id(ask.path_param("lane"))
    await ask.hub.lanes.suspend(ask.viewer, key, ask.body(request_schema.LaneChange).suspended)
    return (await lane(ask)).lane


async def reset_lane(ask: ApiRequest) -> schema.Lane:
    await ask.hub.lanes.reset(ask.viewer, presenters.decode_lane_id(ask.path_param("lane")))
    return (await lane(ask)).lane


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        projects.projects,
        projects.add_project,
        projects.change_project,
        projects.remove_project,
        search.search,
        lanes,
        lane,
        change_lane,
        reset_lane,
        deliveries.deliveries,
        deliveries.retry_delivery,
        deliveries.discard_delivery,
        turns.board,
        turns.questions,
        turns.answer,
        installation.usage,
        people.pairing,
        people.approve,
        people.deny,
        people.revoke_grant,
    )
}
