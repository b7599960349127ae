"""Routes of deliveries: list, retry and discard them."""

from keryx.core.deliveries import DeliveryState
from keryx.core.ids import DeliveryId
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest

router = ApiRouter()

_UNSENT_STATES = (
    DeliveryState.READY,
    DeliveryState.SENDING,
    DeliveryState.UNKNOWN,
    DeliveryState.HELD,
    DeliveryState.FAILED,
    DeliveryState.DEAD,
)


@router.get("/api/deliveries", summary="Answers on their way to platforms, newest first.")
async def deliveries(request: ApiRequest, query: request_schema.DeliveryQuery) -> schema.Deliveries:
    states = (query.state,) if query.state else _UNSENT_STATES
    page = await request.hub.deliveries.page(request.viewer, states=states, limit=query.limit)
    return schema.Deliveries(deliveries=[presenters.delivery(d) for d in page])


@router.post("/api/deliveries/{delivery}/retry", summary="Send again what failed or is in doubt.")
async def retry_delivery(request: ApiRequest) -> schema.DeliverySchema:
    return await _decide(request, DeliveryState.READY)


@router.post("/api/deliveries/{delivery}/discard", summary="Give up on a delivery.")
async def discard_delivery(request: ApiRequest) -> schema.DeliverySchema:
    return await _decide(request, DeliveryState.DISCARDED)


async def _decide(request: ApiRequest, state: DeliveryState) -> schema.DeliverySchema:
    id_ = DeliveryId(request.path_param("delivery"))
    return presenters.delivery(await request.hub.deliveries.decide(request.viewer, id_, state))
