"""Commands on places: which chat is home, what it is told, what it mirrors, and where a conversation goes on."""

from keryx.core.deliveries import Target, parse_target
from keryx.core.errors import Invalid, NotFound
from keryx.core.shapes import Reach, check_target
from keryx.core.source import ChatType
from keryx.engine import control
from keryx.engine.commands.call import Call, Done, Run, counted, label
from keryx.store import deliveries, homes
from keryx.store import lanes as lane_store
from keryx.store.lanes import Lane

_LONGEST = 8_000


def _home(call: Call) -> Done:
    reply, source = call.inbound.reply, call.inbound.source
    if reply is None:
        raise Invalid("this place cannot be a home channel: write /home in a chat")
    if call.text == "off":
        there = homes.remove(call.tx, reply.platform, profile=call.viewer.profile)
        return Done(f"{reply.platform} has no home channel now." if there else "There was none.")
    name = source.chat_name or source.user_name or ""
    homes.put(call.tx, reply, profile=call.viewer.profile, name=name, by=call.viewer.principal, now=call.now)
    return Done(f"This is the home channel of {reply.platform} now. /home off takes that back.")


def _instructions(call: Call) -> Done:
    lane = call.place
    if not call.text:
        return Done(lane.instructions or "Nothing is set. /instructions Answer in Danish. sets it.")
    text = "" if call.text == "none" else call.text
    if len(text) > _LONGEST:
        raise Invalid(f"that is too long: instructions have at most {_LONGEST} characters")
    lane_store.set_instructions(call.tx, lane, text)
    return Done("Told from the next message on." if text else "No instructions any more.")


def _mirror(call: Call) -> Done:
    lane = call.place
    if call.text not in ("", "on", "off"):
        raise Invalid("write /mirror on or /mirror off")
    if call.text:
        lane_store.set_mirror(call.tx, lane, call.text == "on")
    shown = call.text == "on" if call.text else lane.mirror
    return Done(
        "This chat shows what is said to its conversation elsewhere. /mirror off ends that."
        if shown
        else "This chat shows only what is said here. /mirror on shows what is said elsewhere too."
    )


def _handoff(call: Call) -> Done:
    session = call.current
    if not call.text:
        raise NotFound("say where to: /handoff telegram, or /handoff telegram:123")
    target = _one(call)
    there = _lane_at(call, target)
    came_from = call.inbound.source.platform
    control.switch(call.tx, there, session, why=f"handed over from {came_from}", now=call.now)
    if call.lane is not None:
        lane_store.move(call.tx, call.lane, None, why=f"handed over to {there.source.platform}", now=call.now)
    deliveries.enqueue(
        call.tx,
        there.target,
        f"{label(session)} goes on here, from {came_from}: {counted(session.messages, 'message')}.",
        profile=session.profile,
        owner=session.owner,
        session=session.id,
        now=call.now,
    )
    return Done(f"{label(session)} goes on at {there.target} from now on.", session.id)


def _one(call: Call) -> Target:
    found = parse_target(call.text)
    if len(found) != 1:
        raise Invalid("a conversation goes on in one place: name one")
    check_target(found[0], call.policy.reach.get(found[0].platform, Reach()))
    return found[0]


def _lane_at(call: Call, target: Target) -> Lane:
    """The lane of the same person that a target means: of several, the direct one that was used last."""
    session = call.current
    fitting = [
        lane
        for lane in lane_store.of_owner(call.tx, profile=session.profile, owner=session.owner)
        if lane.source.platform == target.platform
        and (not target.chat or (lane.target.chat, lane.target.thread) == (target.chat, target.thread))
        and (call.lane is None or lane.key != call.lane.key)
    ]
    direct = [lane for lane in fitting if lane.source.chat_type is ChatType.DM]
    found = next(iter(direct or fitting), None)
    if found is None:
        raise NotFound(
            f"you have no other chat at {target}: say something there first, and if Keryx takes you for"
            " somebody else there, /link the two"
        )
    return found


RUN: dict[str, Run] = {
    "home": _home,
    "instructions": _instructions,
    "mirror": _mirror,
    "handoff": _handoff,
}
