"""Commands on turns: take them back, ask again, stop them, and say what a message does while one runs."""

import msgspec

from keryx.core.errors import NotFound
from keryx.core.messages import Text
from keryx.core.turns import BusyMode
from keryx.engine import compaction, control, revisions
from keryx.engine.asking import Question, ask, author
from keryx.engine.commands.call import Call, Done, Run, counted
from keryx.store import messages, turns


def _undo(call: Call) -> Done:
    text = revisions.undo(call.tx, call.current, _number(call.text, 1), now=call.now)
    return Done(f"Undone; /redo brings it back. It began with: {text[:300]}", call.current.id)


def _redo(call: Call) -> Done:
    count = revisions.redo(call.tx, call.current, now=call.now)
    return Done(f"{counted(count, 'message')} back.", call.current.id)


def _retry(call: Call) -> Done:
    receipt = revisions.retry(
        call.tx,
        call.current,
        asker=call.viewer.principal,
        surface=call.inbound.surface,
        pin=call.inbound.pin,
        source=author(call.inbound),
        now=call.now,
    )
    return Done("", call.current.id, receipt.turn, receipt.seq)


def _compact(call: Call) -> Done:
    receipt = compaction.ask(call.tx, call.current, _question(call, BusyMode.QUEUE), call.text, now=call.now)
    return Done("", call.current.id, receipt.turn, receipt.seq)


def _stop(call: Call) -> Done:
    stopped = control.stop(call.tx, call.current.id, now=call.now)
    waiting = len(turns.queued(call.tx, call.current.id))
    left = (
        f" {counted(waiting, 'question')} left in the queue: /queue clear drops what waits."
        if waiting
        else ""
    )
    return Done(("Stopping." if stopped else "Nothing is running.") + left, call.current.id)


def _queue(call: Call) -> Done:
    if call.text == "clear":
        dropped = control.clear(call.tx, call.current.id, now=call.now)
        return Done(f"Dropped {dropped} waiting." if dropped else "Nothing waits.", call.current.id)
    if call.text:
        return _say(call, BusyMode.QUEUE)
    waiting = turns.queued(call.tx, call.current.id)
    if not waiting:
        return Done("Nothing waits.", call.current.id)
    texts = [messages.get(call.tx, t.session, t.input_seq).text for t in waiting]
    return Done("\n".join(f"{n}. {t[:120]}" for n, t in enumerate(texts, start=1)), call.current.id)


def _steer(call: Call) -> Done:
    if not call.text:
        raise NotFound("say what to consider: /steer use the metric system")
    return _say(call, BusyMode.STEER)


def _say(call: Call, mode: BusyMode) -> Done:
    receipt = ask(call.tx, call.opened(), _question(call, mode), now=call.now)
    return Done("", receipt.session, receipt.turn, receipt.seq)


def _question(call: Call, mode: BusyMode) -> Question:
    return Question(
        parts=(Text(call.text),),
        asker=call.viewer.principal,
        surface=call.inbound.surface,
        mode=mode,
        author=call.inbound.source.user_name or "",
        reply=call.inbound.reply,
        pin=call.inbound.pin,
        source=author(call.inbound),
    )


def _busy(call: Call) -> Done:
    if not call.text:
        return Done(f"While a turn runs, messages: {call.settings.busy or call.policy.busy.value}.", call.id)
    if call.text not in {m.value for m in BusyMode}:
        raise NotFound(f"choose one of {', '.join(m.value for m in BusyMode)}")
    changed = call.configure(msgspec.structs.replace(call.settings, busy=call.text))
    return Done(f"While a turn runs, messages: {call.text}.", changed)


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else default


RUN: dict[str, Run] = {
    "undo": _undo,
    "redo": _redo,
    "compact": _compact,
    "retry": _retry,
    "stop": _stop,
    "queue": _queue,
    "steer": _steer,
    "busy": _busy,
}
