"""Routes of people: preferences of the viewer, pairing requests, grants, people and lasting consents."""

from collections.abc import Mapping

from msgspec import UNSET

from keryx.core.errors import Invalid
from keryx.core.ids import PrincipalId
from keryx.engine.hub.people import PersonSummary
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
    if body.guided is not UNSET:
        changed["guided"] = _TRUE if body.guided else ""
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


@router.patch(
    "/api/grants/{grant}",
    summary="Let somebody give the commands of operators, or no longer.",
    role=RequiredRole.OPERATOR,
)
async def set_role(request: ApiRequest, body: request_schema.GrantRoleForm) -> schema.GrantSchema:
    handle = presenters.decode_person_id(request.path_param("grant"))
    return presenters.grant(
        await request.hub.people.set_role(request.viewer, *handle, operator=body.operator)
    )


@router.get(
    "/api/people", summary="Everybody who has talked, with what was granted.", role=RequiredRole.OPERATOR
)
async def people(request: ApiRequest) -> schema.People:
    found = await request.hub.people.list_all(request.viewer)
    names = {u.viewer.principal: u.name for u, _ in await request.hub.users.list_all(request.viewer)}
    return schema.People(people=[_present_person(p, names) for p in found])


@router.post(
    "/api/people/merge",
    summary="Let two people be one: they share their conversations.",
    role=RequiredRole.OPERATOR,
)
async def merge_people(request: ApiRequest, body: request_schema.MergeForm) -> None:
    other = PrincipalId(body.other) if body.other else None
    await request.hub.people.merge(request.viewer, PrincipalId(body.one), other)


@router.post(
    "/api/people/split",
    summary="Let one way in which a person is known stand alone, with what began there.",
    role=RequiredRole.OPERATOR,
)
async def split_person(request: ApiRequest, body: request_schema.IdentityForm) -> None:
    await request.hub.people.unlink(request.viewer, body.platform, body.person)


@router.delete(
    "/api/people/{person}", summary="Erase everything of a person for good.", role=RequiredRole.OPERATOR
)
async def erase_person(request: ApiRequest) -> None:
    await request.hub.people.erase(request.viewer, PrincipalId(request.path_param("person")))
    await request.hub.catch_up_index()


@router.get("/api/consents", summary="What was allowed or denied for good, by conversation.")
async def consents(request: ApiRequest) -> schema.Consents:
    found = await request.hub.questions.list_consents(request.viewer)
    return schema.Consents(
        consents=[
            schema.LastingConsentSchema(
                session=c.session,
                title=c.title,
                rule=c.tool,
                allowed=c.consent.allows,
                at=c.given_at,
                by=c.given_by,
            )
            for c in found
        ]
    )


@router.delete(
    "/api/consents/{session}", summary="Forget what was allowed or denied for good: the agent asks again."
)
async def forget_consent(request: ApiRequest, query: request_schema.ConsentQuery) -> None:
    await request.hub.questions.forget_consents(request.viewer, request.session_id, query.rule)


def _present_person(person: PersonSummary, users: Mapping[PrincipalId, str]) -> schema.PersonSchema:
    grants = {(g.platform, g.person): g for g in person.grants}
    identities: list[schema.PersonIdentity] = []
    for identity in person.principal.identities:
        grant = grants.get((identity.platform, identity.person))
        identities.append(
            schema.PersonIdentity(
                platform=identity.platform,
                person=identity.person,
                name=identity.name,
                grant=presenters.encode_person_id(grant.platform, grant.person) if grant else "",
                operator=bool(grant and grant.operator),
            )
        )
    return schema.PersonSchema(
        id=person.principal.id,
        name=person.principal.name,
        since=person.principal.at,
        identities=identities,
        lanes=person.lanes,
        sessions=person.sessions,
        user=users.get(person.principal.id, ""),
    )


def present_preferences(values: dict[str, str]) -> schema.Preferences:
    return schema.Preferences(
        theme=values.get("theme", "system"),
        send_with=values.get("send_with", "enter"),
        details=values.get("details") == _TRUE,
        model=values.get("model", ""),
        muted=values.get("muted", "").split(),
        sound=values.get("sound") == _TRUE,
        guided=values.get("guided") == _TRUE,
        conversations={
            key.removeprefix(_CONVERSATION_KEY): level
            for key, level in values.items()
            if key.startswith(_CONVERSATION_KEY)
        },
    )


@router.get("/api/people-names", summary="People to filter the list by, in the order of their names.")
async def people_names(request: ApiRequest, query: request_schema.PersonNameQuery) -> schema.PersonNames:
    found = await request.hub.views.find_people(request.viewer, query.prefix, limit=query.limit)
    return schema.PersonNames(people=[schema.PersonName(id=id_, name=name) for id_, name in found])
