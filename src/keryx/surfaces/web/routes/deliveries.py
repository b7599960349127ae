"""Routes of deliveries: list, retry and discard them."""

from keryx.core.deliveries import DeliveryState
from keryx.core.ids import DeliveryId
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.request import ApiRequest

_UNSENT_STATES = (
    DeliveryState.READY,
    DeliveryState.SENDING,
    DeliveryState.UNKNOWN,
    DeliveryState.FAILED,
    DeliveryState.DEAD,
)


async def deliveries(ask: ApiRequest) -> schema.Deliveries:
    query = ask.query(request_schema.DeliveryQuery)
    states = (query.state,) if query.state else _UNSENT_STATES
    found = await ask.hub.deliveries.page(ask.viewer, states=states, limit=query.limit)
    return schema.Deliveries(deliveries=[presenters.delivery(d) for d in found])


async def retry_delivery(ask: ApiRequest) -> schema.Delivery:
    return await _decide(ask, DeliveryState.READY)


async def discard_delivery(ask: ApiRequest) -> schema.Delivery:
    return await _decide(ask, DeliveryState.DISCARDED)


async def _decide(ask: ApiRequest, state: DeliveryState) -> schema.Delivery:
    id_ = DeliveryId(ask.path_param("delivery"))
    return presenters.delivery(await ask.hub.deliveries.decide(ask.viewer, id_, state))
