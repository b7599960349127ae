"""Commands on a chat: home channel, instructions, mirroring, and handing a session over to another chat."""

from keryx.core.deliveries import parse_targets
from keryx.core.errors import Invalid, NotFound
from keryx.core.ports.adapter import PlatformReach, check_target, find_account
from keryx.core.source import ChatType
from keryx.core.texts import Phrase
from keryx.engine.commands.call import CommandCall, CommandResult, quote_title
from keryx.engine.units import control
from keryx.store import deliveries, platforms
from keryx.store import lanes as lane_store

_MAX_INSTRUCTIONS = 8_000


def set_home(call: CommandCall) -> CommandResult:
    reply, source = call.inbound.reply, call.inbound.source
    if reply is None:
        raise Invalid(Phrase("chat.no_home_here"))
    if call.text == "off":
        removed = platforms.remove_home(call.tx, reply.platform, profile=call.viewer.profile)
        return CommandResult(
            call.say("chat.home_off", platform=reply.platform) if removed else call.say("chat.home_none")
        )
    name = source.chat_name or source.user_name or ""
    platforms.set_home(call.tx, reply, profile=call.viewer.profile, name=name, by=call.viewer.principal)
    return CommandResult(call.say("chat.home", platform=reply.platform))


def set_instructions(call: CommandCall) -> CommandResult:
    lane = call.current_lane
    if not call.text:
        return CommandResult(lane.instructions or call.say("chat.no_instructions"))
    text = "" if call.text == "none" else call.text
    if len(text) > _MAX_INSTRUCTIONS:
        raise Invalid(Phrase("chat.instructions_long", limit=_MAX_INSTRUCTIONS))
    lane_store.set_instructions(call.tx, lane, text)
    return CommandResult(call.say("chat.instructions_saved") if text else call.say("chat.instructions_off"))


def set_mirror(call: CommandCall) -> CommandResult:
    lane = call.current_lane
    if call.text not in ("", "on", "off"):
        raise Invalid(Phrase("chat.mirror_syntax"))
    if call.text:
        lane_store.set_mirror(call.tx, lane, call.text == "on")
    enabled = call.text == "on" if call.text else lane.mirror
    return CommandResult(call.say("chat.mirror_on") if enabled else call.say("chat.mirror_off"))


def hand_over(call: CommandCall) -> CommandResult:
    session = call.current_session
    if not call.text:
        raise NotFound(Phrase("chat.handoff_missing"))
    targets = parse_targets(call.text)
    if len(targets) != 1:
        raise Invalid(Phrase("chat.handoff_one"))
    target = find_account(targets[0], call.policy.reach)
    check_target(target, call.policy.reach.get(target.platform, PlatformReach()))
    # The lane of the session's owner that matches the target, preferably the direct chat that was used last.
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
        raise NotFound(Phrase("chat.handoff_unknown", target=str(target)))
    lane = (direct or matches)[0]
    came_from = call.inbound.source.platform
    control.switch(call.tx, lane, session, why=Phrase("move.from", platform=came_from))
    if call.lane is not None:
        lane_store.move(call.tx, call.lane, None, why=Phrase("move.to", platform=lane.source.platform))
    deliveries.enqueue(
        call.tx,
        lane.target,
        call.tx.texts.speak(lane.source.language, lane.source.platform).say(
            "chat.handoff_arrived",
            session=quote_title(session),
            platform=came_from,
            count=session.messages,
        ),
        of=session,
    )
    return CommandResult(
        call.say("chat.handoff_done", session=quote_title(session), target=str(lane.target)), session.id
    )
