"""Routes of the installation: the first load of the page, models, settings, connections, setups of platforms and usage."""

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.to_thread

from keryx import setup_registry
from keryx.core.errors import KeryxError, NotFound, Unavailable
from keryx.core.ids import OPERATOR, SessionId
from keryx.core.ports.setup import PlatformSetup, SetupOutcome
from keryx.core.texts import Phrase, Texts
from keryx.engine.commands import list_commands
from keryx.setup_registry import SetupSession, WrittenSetup
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.operations import ApiRouter, RequiredRole
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.routes import people, sign_ins
from keryx.surfaces.web.routes.messages import build_source
from keryx.surfaces.web.routes.sessions import present_composer, read_snapshot

router = ApiRouter()

_LOAD_SECONDS = 10.0
_CHECK_SECONDS = 120.0


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
    user = None if request.viewer.principal == OPERATOR else await request.hub.users.find_of(request.viewer)
    return schema.Start(
        who=sign_ins.present_caller(request, request.caller, user.name if user else ""),
        version=installation.version,
        agent=installation.agent,
        profiles=list(installation.profiles) if request.viewer.principal == OPERATOR else [],
        cursor=home.cursor,
        sessions=presenters.session_page(home.page),
        projects=[presenters.project(p) for p in home.projects],
        sections={project: presenters.session_page(page) for project, page in home.sections.items()},
        unread=list(home.unread),
        tags=[presenters.tag(t) for t in home.tags],
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
            for c in list_commands(watched=request.hub.can_take_over)
        ],
        preferences=people.present_preferences(home.preferences),
        composer=await present_composer(request, home.composed),
        connections=await _list_connections(request),
        answering=presenters.answering(request.hub.find_answering(build_source(request))),
        open=opened,
        public_address=installation.public_address,
        currency=installation.currency,
        transcribes=request.services.transcribe is not None,
        speaks=request.services.speak is not None,
        agents=list(installation.agents),
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


@router.get(
    "/api/platforms/setups",
    summary="What each platform needs to be connected.",
    role=RequiredRole.OPERATOR,
)
async def setups(request: ApiRequest) -> schema.PlatformSetups:
    home = find_home(request)
    platforms = await anyio.to_thread.run_sync(setup_registry.list_platforms)
    return schema.PlatformSetups(
        setups=[await _present_setup(platform, home, request.texts) for platform in platforms]
    )


@router.post(
    "/api/platforms/setups/{platform}",
    summary="Connect an account of a platform: check the answers there, then write settings and secrets.",
    status=201,
    role=RequiredRole.OPERATOR,
)
async def set_up(request: ApiRequest, body: request_schema.SetupForm) -> schema.SetupResult:
    home = find_home(request)
    setup = await load_setup(request.path_param("platform"))
    label = setup_registry.build_label(setup.platform, body.name)
    shown: list[str] = []
    async with request.services.setup_lock:
        configured = await anyio.to_thread.run_sync(
            setup_registry.read_configured, home, label, dict(os.environ)
        )
        session = SetupSession(label, configured, shown.append)
        answers = setup_registry.add_allowed(setup, body.answers, body.allow)
        outcome = await setup_registry.check(setup, answers, session, seconds=_CHECK_SECONDS)
        written = await anyio.to_thread.run_sync(setup_registry.write, home, label, outcome, body.allow)
    if request.services.setup is not None:
        request.services.setup.note_change()
    return present_outcome(label, outcome, written, request.texts, shown)


@router.delete(
    "/api/platforms/accounts/{account}",
    summary="Remove an account of a platform, such as telegram or telegram.work, and the files of its secrets.",
    role=RequiredRole.OPERATOR,
)
async def remove_account(request: ApiRequest) -> schema.RemovedAccountSchema:
    home, label = find_home(request), request.path_param("account")
    async with request.services.setup_lock:
        removed = await anyio.to_thread.run_sync(setup_registry.remove, home, label, dict(os.environ))
    if request.services.setup is not None:
        request.services.setup.note_change()
    return schema.RemovedAccountSchema(
        account=label, settings=str(removed.settings), variables=list(removed.variables)
    )


def present_outcome(
    label: str, outcome: SetupOutcome, written: WrittenSetup, texts: Texts, shown: Sequence[str] = ()
) -> schema.SetupResult:
    return schema.SetupResult(
        table=label,
        settings=str(written.settings),
        summary=texts.render(outcome.summary),
        allow=list(written.allow),
        steps=[texts.render(step) for step in outcome.steps],
        note=texts.render(outcome.note),
        shown=[texts.render(text) for text in shown],
        details=dict(outcome.details),
    )


def find_home(request: ApiRequest) -> Path:
    home = request.services.installation.home
    if home is None:
        raise Unavailable(Phrase("connect.no_folder"))
    return home


async def load_setup(platform: str) -> PlatformSetup:
    """Import the setup of a platform in a thread, as it can be code of another package."""
    try:
        with anyio.fail_after(_LOAD_SECONDS):
            return await anyio.to_thread.run_sync(setup_registry.load, platform, abandon_on_cancel=True)
    except TimeoutError:
        raise Unavailable(Phrase("connect.not_loaded", platform=platform)) from None


async def _present_setup(platform: str, home: Path, texts: Texts) -> schema.PlatformSetupSchema:
    try:
        setup = await load_setup(platform)
        accounts = await anyio.to_thread.run_sync(setup_registry.list_accounts, home, platform)
    except KeryxError as exc:
        return schema.PlatformSetupSchema(platform=platform, title=platform, error=texts.render(exc.text))
    return schema.PlatformSetupSchema(
        platform=platform,
        title=texts.render(setup.title),
        summary=texts.render(setup.summary),
        intro=texts.render(setup.intro),
        fields=[
            schema.SetupFieldSchema(
                name=field.name,
                label=texts.render(field.label),
                help=texts.render(field.help),
                example=field.example,
                default=field.default,
                choices=list(field.choices),
                unless=list(field.unless),
                when=dict(field.when),
                secret=field.secret,
                optional=field.optional,
                flag=field.flag,
            )
            for field in setup.fields
        ],
        allow_example=setup.allow_example,
        accounts=accounts,
    )


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
            rejected=c.rejected,
        )
        for c in await request.hub.platform_statuses()
    ]
