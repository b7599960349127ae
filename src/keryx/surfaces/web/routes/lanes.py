"""Routes of lanes and of deliveries: the chats on platforms, and what is sent to them."""

from datetime import timedelta

from keryx.core.deliveries import UNSENT_STATES, DeliveryState
from keryx.core.ids import DeliveryId
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest

router = ApiRouter()


@router.get("/api/lanes", summary="Places to talk, by activity.")
async def lanes(request: ApiRequest, query: request_schema.LaneQuery) -> schema.Lanes:
    since = request.services.clock.now() - timedelta(minutes=query.minutes) if query.minutes else None
    page = await request.hub.lanes.page(request.viewer, since=since, limit=query.limit)
    titles = await request.hub.views.titles(request.viewer, {lane.session for lane in page if lane.session})
    return schema.Lanes(lanes=[presenters.lane(e, title=titles.get(e.session or "", "")) for e in page])


@router.get("/api/lanes/{lane}", summary="A place, and the conversations it had.")
async def lane(request: ApiRequest) -> schema.LaneHistory:
    value, moves = await request.hub.lanes.get(
        request.viewer, presenters.decode_lane_id(request.path_param("lane"))
    )
    session_ids = [value.session, *(m.session for m in moves)]
    titles = await request.hub.views.titles(request.viewer, {s for s in session_ids if s})
    return schema.LaneHistory(
        lane=presenters.lane(value, title=titles.get(value.session or "", "")),
        moves=[
            schema.Move(
                at=m.at,
                why=request.texts.render_stored(m.why, "move"),
                session=m.session,
                title=titles.get(m.session or "", ""),
            )
            for m in moves
        ],
    )


@router.patch("/api/lanes/{lane}", summary="Suspend a place, or let it go on.")
async def change_lane(request: ApiRequest, body: request_schema.LaneChangeForm) -> schema.LaneSchema:
    key = presenters.decode_lane_id(request.path_param("lane"))
    await request.hub.lanes.suspend(request.viewer, key, body.suspended)
    return (await lane(request)).lane


@router.post("/api/lanes/{lane}/reset", summary="Let the next message there begin a new conversation.")
async def reset_lane(request: ApiRequest) -> schema.LaneSchema:
    await request.hub.lanes.reset(request.viewer, presenters.decode_lane_id(request.path_param("lane")))
    return (await lane(request)).lane


@router.get("/api/deliveries", summary="Answers on their way to platforms, newest first.")
async def deliveries(request: ApiRequest, query: request_schema.DeliveryQuery) -> schema.Deliveries:
    states = (query.state,) if query.state else UNSENT_STATES
    page = await request.hub.deliveries.page(request.viewer, states=states, limit=query.limit)
    waits = await request.hub.deliveries.waits(page)
    return schema.Deliveries(
        deliveries=[presenters.delivery(d, request.texts, waits.get(d.id)) for d in page]
    )


@router.post(
    "/api/deliveries/{delivery}/retry",
    summary="Send again what failed or is in doubt, and now what waits for its next try.",
)
async def retry_delivery(request: ApiRequest) -> schema.DeliverySchema:
    return await _decide(request, DeliveryState.READY)


@router.post("/api/deliveries/{delivery}/stop", summary="Try a delivery that waits no more, but keep it.")
async def stop_delivery(request: ApiRequest) -> schema.DeliverySchema:
    return await _decide(request, DeliveryState.DEAD)


@router.post("/api/deliveries/{delivery}/discard", summary="Give up on a delivery.")
async def discard_delivery(request: ApiRequest) -> schema.DeliverySchema:
    return await _decide(request, DeliveryState.DISCARDED)


async def _decide(request: ApiRequest, state: DeliveryState) -> schema.DeliverySchema:
    id_ = DeliveryId(request.path_param("delivery"))
    decided = await request.hub.deliveries.decide(request.viewer, id_, state)
    return presenters.delivery(decided, request.texts)
