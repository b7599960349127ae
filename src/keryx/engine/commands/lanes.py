"""Commands on a chat: home channel, instructions, mirroring, and handing a session over to another chat."""

from keryx.core.deliveries import Target, parse_targets
from keryx.core.errors import Invalid, NotFound
from keryx.core.lanes import Lane
from keryx.core.ports.adapter import PlatformReach, check_target, find_account
from keryx.core.source import ChatType
from keryx.engine.commands.call import CommandCall, CommandResult, pluralize, quote_title
from keryx.engine.units import control
from keryx.store import deliveries, platforms
from keryx.store import lanes as lane_store

_MAX_INSTRUCTIONS = 8_000


def set_home(call: CommandCall) -> CommandResult:
    reply, source = call.inbound.reply, call.inbound.source
    if reply is None:
        raise Invalid("this place cannot be a home channel: write /home in a chat")
    if call.text == "off":
        removed = platforms.remove_home(call.tx, reply.platform, profile=call.viewer.profile)
        return CommandResult(f"{reply.platform} has no home channel now." if removed else "There was none.")
    name = source.chat_name or source.user_name or ""
    platforms.set_home(call.tx, reply, profile=call.viewer.profile, name=name, by=call.viewer.principal)
    return CommandResult(f"This is the home channel of {reply.platform} now. /home off takes that back.")


def set_instructions(call: CommandCall) -> CommandResult:
    lane = call.current_lane
    if not call.text:
        return CommandResult(lane.instructions or "Nothing is set. /instructions Answer in Danish. sets it.")
    text = "" if call.text == "none" else call.text
    if len(text) > _MAX_INSTRUCTIONS:
        raise Invalid(f"that is too long: instructions have at most {_MAX_INSTRUCTIONS} characters")
    lane_store.set_instructions(call.tx, lane, text)
    return CommandResult("Told from the next message on." if text else "No instructions any more.")


def set_mirror(call: CommandCall) -> CommandResult:
    lane = call.current_lane
    if call.text not in ("", "on", "off"):
        raise Invalid("write /mirror on or /mirror off")
    if call.text:
        lane_store.set_mirror(call.tx, lane, call.text == "on")
    enabled = call.text == "on" if call.text else lane.mirror
    return CommandResult(
        "This chat shows what is said to its conversation elsewhere. /mirror off ends that."
        if enabled
        else "This chat shows only what is said here. /mirror on shows what is said elsewhere too."
    )


def hand_over(call: CommandCall) -> CommandResult:
    session = call.current_session
    if not call.text:
        raise NotFound("say where to: /handoff telegram, or /handoff telegram:123")
    targets = parse_targets(call.text)
    if len(targets) != 1:
        raise Invalid("a conversation goes on in one place: name one")
    target = find_account(targets[0], call.policy.reach)
    check_target(target, call.policy.reach.get(target.platform, PlatformReach()))
    lane = _find_lane(call, target)
    came_from = call.inbound.source.platform
    control.switch(call.tx, lane, session, why=f"handed over from {came_from}")
    if call.lane is not None:
        lane_store.move(call.tx, call.lane, None, why=f"handed over to {lane.source.platform}")
    deliveries.enqueue(
        call.tx,
        lane.target,
        f"{quote_title(session)} goes on here, from {came_from}: {pluralize(session.messages, 'message')}.",
        of=session,
    )
    return CommandResult(f"{quote_title(session)} goes on at {lane.target} from now on.", session.id)


def _find_lane(call: CommandCall, target: Target) -> Lane:
    """Return the lane of the session's owner that matches a target, preferably the direct chat that was used last."""
    session = call.current_session
    matches = [
        lane
        for lane in lane_store.list_for_owner(call.tx, profile=session.profile, owner=session.owner)
        if lane.source.platform == target.platform
        and target.account in ("", lane.source.account)
        and (not target.chat or (lane.target.chat, lane.target.thread) == (target.chat, target.thread))
        and (call.lane is None or lane.key != call.lane.key)
    ]
    direct = [lane for lane in matches if lane.source.chat_type is ChatType.DM]
    if not matches:
        raise NotFound(
            f"you have no other chat at {target}: say something there first, and if Keryx takes you for"
            " somebody else there, /link the two"
        )
    return (direct or matches)[0]
