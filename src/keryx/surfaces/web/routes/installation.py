"""Routes of the installation: the first load of the page, models, settings, connections and usage."""

from datetime import timedelta

from keryx.core.errors import NotFound
from keryx.core.ids import OPERATOR, SessionId
from keryx.engine.commands import COMMANDS
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.request import ApiRequest, Handler
from keryx.surfaces.web.routes import people, sign_ins
from keryx.surfaces.web.routes.sessions import present_composer, read_snapshot
from keryx.surfaces.web.stream import endpoint


async def usage(ask: ApiRequest) -> schema.Usage:
    now = ask.services.clock.now()
    since = now - timedelta(days=ask.query(request_schema.DaysQuery).days)
    return presenters.usage(await ask.hub.views.spending(ask.viewer, since=since, now=now))


async def start(ask: ApiRequest) -> schema.Start:
    beginning = await ask.hub.views.load_home(ask.viewer)
    if not beginning.visited:
        await ask.hub.viewer_state.change_preferences(ask.viewer, {})
    facts = ask.services.installation
    return schema.Start(
        who=sign_ins.present_caller(ask, ask.caller),
        version=facts.version,
        agent=facts.agent,
        cursor=beginning.cursor,
        sessions=presenters.session_page(beginning.page),
        projects=[presenters.project(p) for p in beginning.projects],
        turns=[presenters.turn(t) for t in beginning.turns],
        questions=[presenters.question(q) for q in beginning.questions],
        deliveries=beginning.unsent,
        models=list(facts.models),
        commands=[
            schema.Command(name=c.name, help=c.help, usage=c.usage, aliases=list(c.aliases), busy=c.busy)
            for c in COMMANDS
        ],
        preferences=people.present_preferences(beginning.preferences),
        composer=await present_composer(ask, beginning.composed),
        connections=await _list_connections(ask),
        open=await _open_session(ask),
    )


async def models(ask: ApiRequest) -> schema.Models:
    return schema.Models(models=list(ask.services.installation.models))


async def settings(ask: ApiRequest) -> schema.AllSettings:
    return schema.AllSettings(settings=list(ask.services.installation.settings))


async def connections(ask: ApiRequest) -> schema.Connections:
    return schema.Connections(connections=await _list_connections(ask))


async def _open_session(ask: ApiRequest) -> schema.Snapshot | None:
    query = ask.query(request_schema.StartQuery)
    if query.session is None:
        return None
    try:
        return await read_snapshot(ask, SessionId(query.session), query)
    except NotFound:
        # The page begins all the same, and says so where the conversation would be.
        return None


async def _list_connections(ask: ApiRequest) -> list[schema.Connection]:
    """How accounts stand, for the operator: they belong to nobody else."""
    if ask.viewer.principal != OPERATOR:
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
        for c in await ask.hub.platform_statuses()
    ]


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        start,
        endpoint.stream,
        sign_ins.sign_in,
        sign_ins.sign_out,
        sign_ins.sign_ins,
        sign_ins.revoke,
        people.preferences,
        people.prefer,
        models,
        settings,
        connections,
    )
}
