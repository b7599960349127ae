"""Surroundings: the operations on all that lies around conversations: projects, search, places, deliveries, the board."""

from datetime import timedelta

from msgspec import UNSET

from keryx.core.deliveries import DeliveryState
from keryx.core.ids import DeliveryId, QuestionId
from keryx.core.sessions import Activity, Listed
from keryx.engine.views import Hit
from keryx.surfaces.web import forms, people, render, show, wire
from keryx.surfaces.web.ask import Ask, Handler

_CONTEXT = 200
_OPEN = (
    DeliveryState.READY,
    DeliveryState.SENDING,
    DeliveryState.UNKNOWN,
    DeliveryState.FAILED,
    DeliveryState.DEAD,
)


async def projects(ask: Ask) -> wire.Projects:
    return wire.Projects(projects=[show.project(p) for p in await ask.hub.projects.every(ask.viewer)])


async def add_project(ask: Ask) -> wire.Project:
    form = ask.body(forms.AddProject)
    return show.project(await ask.hub.projects.add(ask.viewer, form.name, colour=form.colour))


async def change_project(ask: Ask) -> wire.Project:
    form = ask.body(forms.ProjectChange)
    name = None if form.name is UNSET else form.name
    colour = None if form.colour is UNSET else form.colour
    return show.project(
        await ask.hub.projects.change(ask.viewer, ask.path("project"), new_name=name, colour=colour)
    )


async def remove_project(ask: Ask) -> None:
    await ask.hub.projects.remove(ask.viewer, ask.path("project"))


async def search(ask: Ask) -> wire.Found:
    query = ask.query(forms.SearchQuery)
    hits = await ask.hub.search(ask.viewer, query.q, limit=query.limit + 1, offset=query.offset)
    return wire.Found(hits=[_hit(h) for h in hits[: query.limit]], more=len(hits) > query.limit)


async def lanes(ask: Ask) -> wire.Lanes:
    query = ask.query(forms.LaneQuery)
    since = ask.place.clock.now() - timedelta(minutes=query.minutes) if query.minutes else None
    found = await ask.hub.lanes.page(ask.viewer, since=since, limit=query.limit)
    titles = await ask.hub.views.titles(ask.viewer, {lane.session for lane in found if lane.session})
    return wire.Lanes(lanes=[show.lane(e, title=titles.get(e.session or "", "")) for e in found])


async def lane(ask: Ask) -> wire.LaneHistory:
    found, moves = await ask.hub.lanes.show(ask.viewer, show.lane_key(ask.path("lane")))
    named = [found.session, *(m.session for m in moves)]
    titles = await ask.hub.views.titles(ask.viewer, {s for s in named if s})
    return wire.LaneHistory(
        lane=show.lane(found, title=titles.get(found.session or "", "")),
        moves=[
            wire.Move(at=m.at, why=m.why, session=m.session, title=titles.get(m.session or "", ""))
            for m in moves
        ],
    )


async def change_lane(ask: Ask) -> wire.Lane:
    key = show.lane_key(ask.path("lane"))
    await ask.hub.lanes.suspend(ask.viewer, key, ask.body(forms.LaneChange).suspended)
    return (await lane(ask)).lane


async def reset_lane(ask: Ask) -> wire.Lane:
    await ask.hub.lanes.reset(ask.viewer, show.lane_key(ask.path("lane")))
    return (await lane(ask)).lane


async def deliveries(ask: Ask) -> wire.Deliveries:
    query = ask.query(forms.DeliveryQuery)
    states = (query.state,) if query.state else _OPEN
    found = await ask.hub.deliveries.page(ask.viewer, states=states, limit=query.limit)
    return wire.Deliveries(deliveries=[show.delivery(d) for d in found])


async def retry_delivery(ask: Ask) -> wire.Delivery:
    return await _decide(ask, DeliveryState.READY)


async def discard_delivery(ask: Ask) -> wire.Delivery:
    return await _decide(ask, DeliveryState.DISCARDED)


async def board(ask: Ask) -> wire.Board:
    return wire.Board(turns=[show.running(t) for t in await ask.hub.views.board(ask.viewer)])


async def questions(ask: Ask) -> wire.Questions:
    return wire.Questions(questions=[show.question(q) for q in await ask.hub.questions.open(ask.viewer)])


async def answer(ask: Ask) -> wire.Question:
    given = ask.body(forms.Answer).answer
    return show.question(await ask.hub.questions.answer(ask.viewer, QuestionId(ask.path("question")), given))


async def usage(ask: Ask) -> wire.Usage:
    now = ask.place.clock.now()
    since = now - timedelta(days=ask.query(forms.DaysQuery).days)
    return show.usage(await ask.hub.views.spending(ask.viewer, since=since, now=now))


async def pairing(ask: Ask) -> people.Pairings:
    found = await ask.hub.people.doorway(ask.viewer)
    return people.Pairings(
        waiting=[show.pairing(p) for p in found.waiting], granted=[show.grant(g) for g in found.let_in]
    )


async def approve(ask: Ask) -> people.Grant:
    form = ask.body(forms.Approve)
    return show.grant(await ask.hub.people.approve(ask.viewer, form.platform, form.code))


async def deny(ask: Ask) -> None:
    await ask.hub.people.deny(ask.viewer, *show.person_of(ask.path("pairing")))


async def revoke_grant(ask: Ask) -> None:
    await ask.hub.people.revoke(ask.viewer, *show.person_of(ask.path("grant")))


async def _decide(ask: Ask, state: DeliveryState) -> wire.Delivery:
    id_ = DeliveryId(ask.path("delivery"))
    return show.delivery(await ask.hub.deliveries.decide(ask.viewer, id_, state))


def _hit(hit: Hit) -> wire.Hit:
    message = hit.message
    return wire.Hit(
        session=show.session(Listed(session=hit.session, activity=Activity.IDLE)),
        html=render.marked(hit.snippet.text, hit.snippet.spans),
        text=hit.snippet.text,
        seq=message.seq if message else None,
        role=message.role if message else None,
        at=message.at if message else None,
        before=hit.before.text[:_CONTEXT] if hit.before else "",
        after=hit.after.text[:_CONTEXT] if hit.after else "",
    )


HANDLERS: dict[str, Handler] = {
    handler.__name__: handler
    for handler in (
        projects,
        add_project,
        change_project,
        remove_project,
        search,
        lanes,
        lane,
        change_lane,
        reset_lane,
        deliveries,
        retry_delivery,
        discard_delivery,
        board,
        questions,
        answer,
        usage,
        pairing,
        approve,
        deny,
        revoke_grant,
    )
}
