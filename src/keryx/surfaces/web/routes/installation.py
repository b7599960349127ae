"""Routes of the installation: the first load of the page, models, settings, connections and usage."""

from contextlib import suppress
from datetime import timedelta

from keryx.core.errors import NotFound
from keryx.core.ids import OPERATOR, SessionId
from keryx.engine.commands import list_commands
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.operations import ApiRouter, RequiredRole
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.routes import people, sign_ins
from keryx.surfaces.web.routes.sessions import present_composer, read_snapshot

router = ApiRouter()


@router.get("/api/start", summary="All that the page needs to begin, and a conversation to begin with.")
async def start(request: ApiRequest, query: request_schema.StartQuery) -> schema.Start:
    home = await request.hub.views.load_home(request.viewer)
    if not home.visited:
        await request.hub.viewer_state.change_preferences(request.viewer, {})
    installation = request.services.installation
    opened: schema.Snapshot | None = None
    # A session that does not exist is left out: the page loads, and shows there that it does not exist.
    with suppress(NotFound):
        if query.session is not None:
            opened = await read_snapshot(request, SessionId(query.session), query)
    return schema.Start(
        who=sign_ins.present_caller(request, request.caller),
        version=installation.version,
        agent=installation.agent,
        cursor=home.cursor,
        sessions=presenters.session_page(home.page),
        projects=[presenters.project(p) for p in home.projects],
        turns=[presenters.turn(t) for t in home.turns],
        questions=[presenters.question(q) for q in home.questions],
        deliveries=home.unsent,
        models=list(installation.models),
        commands=[
            schema.Command(
                name=c.name,
                help=c.describe(request.texts),
                usage=c.format_usage(request.texts),
                aliases=list(c.aliases),
                busy=c.busy,
            )
            for c in list_commands()
        ],
        preferences=people.present_preferences(home.preferences),
        composer=await present_composer(request, home.composed),
        connections=await _list_connections(request),
        open=opened,
    )


@router.get(
    "/api/usage",
    summary="Tokens and cost by day, model and surface, and the people and conversations that used most.",
)
async def usage(request: ApiRequest, query: request_schema.DaysQuery) -> schema.UsageSchema:
    since = request.services.clock.now() - timedelta(days=query.days)
    return presenters.usage(await request.hub.usage.report_spending(request.viewer, since=since))


@router.get("/api/models", summary="The models that can be chosen.")
async def models(request: ApiRequest) -> schema.ModelsSchema:
    return schema.ModelsSchema(models=list(request.services.installation.models))


@router.get("/api/settings", summary="The settings in force, without secrets.", role=RequiredRole.OPERATOR)
async def settings(request: ApiRequest) -> schema.AllSettings:
    return schema.AllSettings(settings=list(request.services.installation.settings))


@router.get("/api/connections", summary="How accounts stand with their platforms.")
async def connections(request: ApiRequest) -> schema.Connections:
    return schema.Connections(connections=await _list_connections(request))


async def _list_connections(request: ApiRequest) -> list[schema.Connection]:
    """Return the status of each account. Only the operator may see them."""
    if request.viewer.principal != OPERATOR:
        return []
    return [
        schema.Connection(
            platform=c.platform,
            account=c.account,
            link=c.link.value,
            detail=c.detail,
            since=c.since,
            received=c.received,
            sent=c.sent,
            failed=c.failed,
            throttled=c.throttled,
        )
        for c in await request.hub.platform_statuses()
    ]
