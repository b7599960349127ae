"""House: the operations on the place itself: beginning, signing in, preferences, settings, models, connections."""

from msgspec import UNSET
from starlette.responses import Response

from keryx.core import wire as codec
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import OPERATOR, Cursor, SessionId
from keryx.engine.commands import COMMANDS
from keryx.surfaces.web import credentials, forms, people, show, wire
from keryx.surfaces.web.ask import Ask, Handler
from keryx.surfaces.web.conversations import shown_composer, snapshot
from keryx.surfaces.web.guard import Caller
from keryx.surfaces.web.problems import Unsigned
from keryx.surfaces.web.stream import Stream

_YES = "yes"


async def start(ask: Ask) -> wire.Start:
    beginning = await ask.hub.views.begin(ask.viewer)
    if not beginning.visited:
        await ask.hub.desk.prefer(ask.viewer, {})
    facts = ask.place.facts
    return wire.Start(
        who=_who(ask, ask.caller),
        version=facts.version,
        agent=facts.agent,
        cursor=beginning.cursor,
        sessions=show.page(beginning.page),
        projects=[show.project(p) for p in beginning.projects],
        turns=[show.turn(t) for t in beginning.turns],
        questions=[show.question(q) for q in beginning.questions],
        deliveries=beginning.unsent,
        models=list(facts.models),
        commands=[
            wire.Command(name=c.name, help=c.help, usage=c.usage, aliases=list(c.aliases), busy=c.busy)
            for c in COMMANDS
        ],
        preferences=_preferences(beginning.preferences),
        composer=await shown_composer(ask, beginning.composed),
        connections=await _connections(ask),
        open=await _opened(ask),
    )


async def stream(ask: Ask) -> Stream | Response:
    given = ask.request.headers.get("last-event-id") or ask.query(forms.StreamQuery).cursor
    cursor = Cursor(given) if given else await ask.hub.now()
    await ask.hub.views.check(cursor)
    if ask.request.method == "HEAD":
        return Response(media_type=ask.operation.raw)
    return Stream(ask.place.broadcast, ask.place.gate, ask.caller, cursor)


async def sign_in(ask: Ask) -> Response:
    """The right password or token gives a cookie; too many wrong ones make everybody wait."""
    place, request = ask.place, ask.request
    address = request.client.host if request.client else ""
    if not place.gate.closed:
        raise Unsigned("nobody needs to sign in here: ask without a token")
    with place.tries.one(address) as right:
        viewer = await place.gate.admits(ask.body(forms.SignIn).secret)
        if viewer is None:
            raise Unsigned("this is not right: use the password or the token that Keryx was started with")
        right()
    id_, secret = await ask.hub.sign_ins.begin(viewer, browser=request.headers.get("user-agent", ""))
    answer = Response(codec.dumps(_who(ask, Caller(viewer, id_))), media_type="application/json")
    answer.headers["Set-Cookie"] = credentials.set_cookie(place.seal.cookie(id_, secret), secure=place.secure)
    return answer


async def sign_out(ask: Ask) -> Response:
    if ask.caller.sign_in:
        await ask.hub.sign_ins.end(ask.viewer, ask.caller.sign_in)
    answer = Response(status_code=204)
    answer.headers["Set-Cookie"] = credentials.set_cookie("", secure=ask.place.secure)
    return answer


async def sign_ins(ask: Ask) -> people.SignIns:
    found = await ask.hub.sign_ins.every(ask.viewer)
    return people.SignIns(
        sign_ins=[
            people.SignedIn(
                id=s.id,
                created_at=s.created_at,
                seen_at=s.seen_at,
                expires_at=s.expires_at,
                browser=s.browser,
                current=s.id == ask.caller.sign_in,
            )
            for s in found
        ]
    )


async def revoke(ask: Ask) -> None:
    await ask.hub.sign_ins.end(ask.viewer, ask.path("sign_in"))


async def preferences(ask: Ask) -> people.Preferences:
    return _preferences(await ask.hub.desk.preferences(ask.viewer))


async def prefer(ask: Ask) -> people.Preferences:
    form = ask.body(forms.Prefer)
    changed: dict[str, str] = {}
    if form.theme is not UNSET:
        changed["theme"] = form.theme.value
    if form.send_with is not UNSET:
        changed["send_with"] = form.send_with.value
    if form.details is not UNSET:
        changed["details"] = _YES if form.details else ""
    if form.model is not UNSET:
        changed["model"] = _known(ask, form.model)
    return _preferences(await ask.hub.desk.prefer(ask.viewer, changed))


async def models(ask: Ask) -> wire.Models:
    return wire.Models(models=list(ask.place.facts.models))


async def settings(ask: Ask) -> wire.AllSettings:
    return wire.AllSettings(settings=list(ask.place.facts.settings))


async def connections(ask: Ask) -> wire.Connections:
    return wire.Connections(connections=await _connections(ask))


async def _opened(ask: Ask) -> wire.Snapshot | None:
    query = ask.query(forms.StartQuery)
    if query.session is None:
        return None
    try:
        return await snapshot(ask, SessionId(query.session), query)
    except NotFound:
        # The page begins all the same, and says so where the conversation would be.
        return None


async def _connections(ask: Ask) -> list[wire.Connection]:
    """How accounts stand, for the operator: they belong to nobody else."""
    if ask.viewer.principal != OPERATOR:
        return []
    return [
        wire.Connection(
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
        for c in await ask.hub.connections()
    ]


def _who(ask: Ask, caller: Caller) -> people.Who:
    return people.Who(
        principal=caller.viewer.principal,
        profile=caller.viewer.profile,
        operator=caller.viewer.principal == OPERATOR,
        signed_in=caller.sign_in is not None,
        password=ask.place.gate.closed,
    )


def _known(ask: Ask, model: str) -> str:
    names = [m.name for m in ask.place.facts.models]
    if model and model not in names:
        known = ", ".join(names) or "none is configured"
        raise Invalid(f"there is no model {model!r} here: choose from {known}, or leave it empty")
    return model


def _preferences(values: dict[str, str]) -> people.Preferences:
    return people.Preferences(
        theme=values.get("theme", "system"),
        send_with=values.get("send_with", "enter"),
        details=values.get("details") == _YES,
        model=values.get("model", ""),
    )


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        start,
        stream,
        sign_in,
        sign_out,
        sign_ins,
        revoke,
        preferences,
        prefer,
        models,
        settings,
        connections,
    )
}
