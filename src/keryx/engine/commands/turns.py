"""Commands on turns: undo, redo, retry, compact, stop, queue, steer and busy."""

import msgspec

from keryx.core.errors import NotFound
from keryx.core.messages import Text
from keryx.core.turns import BusyMode
from keryx.engine.commands.call import CommandCall, CommandResult, pluralize
from keryx.engine.units import compaction, control, revisions
from keryx.engine.units.user_messages import UserMessage, find_author, submit
from keryx.store import messages, turns


def undo(call: CommandCall) -> CommandResult:
    number = call.text if call.text.isascii() and call.text.isdigit() and len(call.text) < 5 else "1"
    text = revisions.undo(call.tx, call.current_session, int(number))
    return CommandResult(
        f"Undone; /redo brings it back. It began with: {text[:300]}", call.current_session.id
    )


def redo(call: CommandCall) -> CommandResult:
    count = revisions.redo(call.tx, call.current_session)
    return CommandResult(f"{pluralize(count, 'message')} back.", call.current_session.id)


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
    waiting = len(turns.list_queued(call.tx, call.current_session.id))
    rest = (
        f" {pluralize(waiting, 'question')} left in the queue: /queue clear removes what waits."
        if waiting
        else ""
    )
    return CommandResult(("Stopping." if stopped else "Nothing is running.") + rest, call.current_session.id)


def queue(call: CommandCall) -> CommandResult:
    if call.text == "clear":
        removed = control.clear_queue(call.tx, call.current_session.id)
        text = f"Removed {pluralize(removed, 'queued message')}." if removed else "Nothing waits."
        return CommandResult(text, call.current_session.id)
    if call.text:
        return _submit_text(call, BusyMode.QUEUE)
    waiting = turns.list_queued(call.tx, call.current_session.id)
    if not waiting:
        return CommandResult("Nothing waits.", call.current_session.id)
    texts = [messages.get(call.tx, t.session, t.input_seq).text for t in waiting]
    return CommandResult(
        "\n".join(f"{n}. {t[:120]}" for n, t in enumerate(texts, start=1)), call.current_session.id
    )


def steer(call: CommandCall) -> CommandResult:
    if not call.text:
        raise NotFound("say what to consider: /steer use the metric system")
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
        return CommandResult(
            f"While a turn runs, messages: {call.settings.busy or call.policy.busy.value}.", call.session_id
        )
    if call.text not in {m.value for m in BusyMode}:
        raise NotFound(f"choose one of {', '.join(m.value for m in BusyMode)}")
    changed = call.configure(msgspec.structs.replace(call.settings, busy=call.text))
    return CommandResult(f"While a turn runs, messages: {call.text}.", changed)
