"""Commands on turns: undo, redo, retry, compact, stop, queue, steer and busy."""

import msgspec

from keryx.core.errors import Invalid, NotFound
from keryx.core.messages import Text, read_text
from keryx.core.texts import Phrase
from keryx.core.turns import BusyMode
from keryx.engine.commands.call import CommandCall, CommandResult, format_choices
from keryx.engine.units import compaction, control, revisions
from keryx.engine.units.user_messages import UserMessage, find_author, submit
from keryx.store import messages, turns


def undo(call: CommandCall) -> CommandResult:
    if call.text and not (call.text.isascii() and call.text.isdigit() and len(call.text) < 5):
        raise Invalid(Phrase("turn.undo_number"))
    undone = revisions.undo(call.tx, call.current_session, int(call.text or 1))
    reply = call.say("turn.undone", count=undone.turns, text=read_text(undone.message, call.texts)[:300])
    return CommandResult(reply, call.current_session.id)


def redo(call: CommandCall) -> CommandResult:
    count = revisions.redo(call.tx, call.current_session)
    return CommandResult(call.say("turn.redone", count=count), call.current_session.id)


def retry(call: CommandCall) -> CommandResult:
    receipt = revisions.retry(
        call.tx,
        call.current_session,
        asker=call.viewer.principal,
        surface=call.inbound.surface,
        pin=call.inbound.pin,
        source=find_author(call.inbound),
    )
    return CommandResult("", call.current_session.id, receipt.turn, receipt.seq)


def compact(call: CommandCall) -> CommandResult:
    receipt = compaction.request(
        call.tx, call.current_session, _build_message(call, BusyMode.QUEUE), call.text
    )
    return CommandResult("", call.current_session.id, receipt.turn, receipt.seq)


def stop(call: CommandCall) -> CommandResult:
    stopped = control.stop(call.tx, call.current_session.id)
    waiting = control.count_queued(call.tx, call.current_session.id)
    reply = [call.say("turn.stopping") if stopped else call.say("turn.none_running")]
    if waiting:
        reply.append(call.say("turn.still_queued", count=waiting))
    return CommandResult(" ".join(reply), call.current_session.id)


def queue(call: CommandCall) -> CommandResult:
    if call.text == "clear":
        dropped = control.clear_queue(call.tx, call.current_session.id)
        reply = call.say("turn.queue_cleared", count=dropped) if dropped else call.say("turn.queue_empty")
        return CommandResult(reply, call.current_session.id)
    if call.text:
        return _submit_text(call, BusyMode.QUEUE)
    waiting = turns.list_queued(call.tx, call.current_session.id)
    if not waiting:
        return CommandResult(call.say("turn.queue_empty"), call.current_session.id)
    texts = [read_text(messages.get(call.tx, t.session, t.input_seq), call.texts) for t in waiting]
    return CommandResult(
        "\n".join(f"{n}. {t[:120]}" for n, t in enumerate(texts, start=1)), call.current_session.id
    )


def steer(call: CommandCall) -> CommandResult:
    if not call.text:
        raise NotFound(Phrase("turn.steer_missing"))
    return _submit_text(call, BusyMode.STEER)


def _submit_text(call: CommandCall, mode: BusyMode) -> CommandResult:
    receipt = submit(call.tx, call.ensure_session(), _build_message(call, mode))
    return CommandResult("", receipt.session, receipt.turn, receipt.seq)


def _build_message(call: CommandCall, mode: BusyMode) -> UserMessage:
    return UserMessage(
        parts=(Text(call.text),),
        asker=call.viewer.principal,
        surface=call.inbound.surface,
        mode=mode,
        author=call.inbound.source.user_name or "",
        reply=call.inbound.reply,
        pin=call.inbound.pin,
        source=find_author(call.inbound),
    )


def set_busy_mode(call: CommandCall) -> CommandResult:
    if not call.text:
        mode = call.settings.busy or call.policy.busy.value
        return CommandResult(call.say("turn.busy_mode", mode=mode), call.session_id)
    if call.text not in {m.value for m in BusyMode}:
        raise NotFound(
            Phrase(
                "turn.unknown_mode",
                name=repr(call.text[:80]),
                choices=format_choices([m.value for m in BusyMode]),
            )
        )
    changed = call.configure(msgspec.structs.replace(call.settings, busy=call.text))
    return CommandResult(call.say("turn.busy_mode", mode=call.text), changed)
