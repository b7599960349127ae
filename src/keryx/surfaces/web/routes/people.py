"""Routes of people: preferences of the viewer, pairing requests and grants."""

from msgspec import UNSET

from keryx.core.errors import Invalid
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.request import ApiRequest

_TRUE = "yes"


async def pairing(ask: ApiRequest) -> schema.Pairings:
    found = await ask.hub.people.list_pairings(ask.viewer)
    return schema.Pairings(
        waiting=[presenters.pairing(p) for p in found.waiting],
        granted=[presenters.grant(g) for g in found.granted],
    )


async def approve(ask: ApiRequest) -> schema.Grant:
    form = ask.body(request_schema.Approve)
    return presenters.grant(await ask.hub.people.approve(ask.viewer, form.platform, form.code))


async def deny(ask: ApiRequest) -> None:
    await ask.hub.people.deny(ask.viewer, *presenters.decode_person_id(ask.path_param("pairing")))


async def revoke_grant(ask: ApiRequest) -> None:
    await ask.hub.people.revoke(ask.viewer, *presenters.decode_person_id(ask.path_param("grant")))


async def preferences(ask: ApiRequest) -> schema.Preferences:
    return present_preferences(await ask.hub.viewer_state.preferences(ask.viewer))


async def prefer(ask: ApiRequest) -> schema.Preferences:
    form = ask.body(request_schema.Prefer)
    changed: dict[str, str] = {}
    if form.theme is not UNSET:
        changed["theme"] = form.theme.value
    if form.send_with is not UNSET:
        changed["send_with"] = form.send_with.value
    if form.details is not UNSET:
        changed["details"] = _TRUE if form.details else ""
    if form.model is not UNSET:
        changed["model"] = _check_model(ask, form.model)
    return present_preferences(await ask.hub.viewer_state.change_preferences(ask.viewer, changed))


def _check_model(ask: ApiRequest, model: str) -> str:
    names = [m.name for m in ask.services.installation.models]
    if model and model not in names:
        known = ", ".join(names) or "none is configured"
        raise Invalid(f"there is no model {model!r} here: choose from {known}, or leave it empty")
    return model


def present_preferences(values: dict[str, str]) -> schema.Preferences:
    return schema.Preferences(
        theme=values.get("theme", "system"),
        send_with=values.get("send_with", "enter"),
        details=values.get("details") == _TRUE,
        model=values.get("model", ""),
    )
