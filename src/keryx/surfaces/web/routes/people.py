"""Routes of people: preferences of the viewer, pairing requests and grants."""

from msgspec import UNSET

from keryx.core.errors import Invalid
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.operations import ApiRouter, RequiredRole
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.request_schema import AlertLevel

router = ApiRouter()

_TRUE = "yes"
_CONVERSATION_KEY = "alerts."


@router.get("/api/preferences", summary="How the viewer likes the page.")
async def preferences(request: ApiRequest) -> schema.Preferences:
    return present_preferences(await request.hub.viewer_state.preferences(request.viewer))


@router.patch("/api/preferences", summary="Change preferences; what is left out stays.")
async def prefer(request: ApiRequest, body: request_schema.PreferForm) -> schema.Preferences:
    changed: dict[str, str] = {}
    if body.theme is not UNSET:
        changed["theme"] = body.theme.value
    if body.send_with is not UNSET:
        changed["send_with"] = body.send_with.value
    if body.details is not UNSET:
        changed["details"] = _TRUE if body.details else ""
    if body.model is not UNSET:
        names = [m.name for m in request.services.installation.models]
        if body.model and body.model not in names:
            known = ", ".join(names) or "none is configured"
            raise Invalid(f"there is no model {body.model!r} here: choose from {known}, or leave it empty")
        changed["model"] = body.model
    if body.muted is not UNSET:
        changed["muted"] = " ".join(body.muted)
    if body.sound is not UNSET:
        changed["sound"] = _TRUE if body.sound else ""
    for session, level in body.conversations.items():
        changed[_CONVERSATION_KEY + session] = "" if level is AlertLevel.DEFAULT else level.value
    return present_preferences(await request.hub.viewer_state.change_preferences(request.viewer, changed))


@router.get("/api/pairing", summary="Who waits to be let in, and who was let in.", role=RequiredRole.OPERATOR)
async def pairing(request: ApiRequest) -> schema.Pairings:
    pairings = await request.hub.people.list_pairings(request.viewer)
    return schema.Pairings(
        waiting=[presenters.pairing(p) for p in pairings.waiting],
        granted=[presenters.grant(g) for g in pairings.granted],
    )


@router.post(
    "/api/pairing",
    summary="Let somebody in by the code they were given.",
    status=201,
    role=RequiredRole.OPERATOR,
)
async def approve(request: ApiRequest, body: request_schema.ApproveForm) -> schema.GrantSchema:
    return presenters.grant(await request.hub.people.approve(request.viewer, body.platform, body.code))


@router.delete("/api/pairing/{pairing}", summary="Refuse somebody who waits.", role=RequiredRole.OPERATOR)
async def deny(request: ApiRequest) -> None:
    await request.hub.people.deny(request.viewer, *presenters.decode_person_id(request.path_param("pairing")))


@router.delete("/api/grants/{grant}", summary="Let somebody in no longer.", role=RequiredRole.OPERATOR)
async def revoke_grant(request: ApiRequest) -> None:
    await request.hub.people.revoke(request.viewer, *presenters.decode_person_id(request.path_param("grant")))


def present_preferences(values: dict[str, str]) -> schema.Preferences:
    return schema.Preferences(
        theme=values.get("theme", "system"),
        send_with=values.get("send_with", "enter"),
        details=values.get("details") == _TRUE,
        model=values.get("model", ""),
        muted=values.get("muted", "").split(),
        sound=values.get("sound") == _TRUE,
        conversations={
            key.removeprefix(_CONVERSATION_KEY): level
            for key, level in values.items()
            if key.startswith(_CONVERSATION_KEY)
        },
    )
