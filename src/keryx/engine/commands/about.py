"""Commands that tell: what this conversation is, uses and costs, and what can be asked."""

import msgspec

from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.core.sessions import EFFORTS
from keryx.engine import place
from keryx.engine.commands.call import Call, Done, Run, counted, label
from keryx.engine.commands.table import COMMANDS, Who
from keryx.store import listings, turns

_LONGEST_PERSONALITY = 4000


def _agent(call: Call) -> Done:
    session, known = call.session, call.policy.agents
    if not call.text:
        there = f" There are: {', '.join(known)}." if known else ""
        name = call.policy.agent(session, place.where(session, call.lane)) if session else call.settings.agent
        chosen = "" if call.settings.agent else " (not chosen here)"
        return Done(f"Agent: {name or 'default'}{chosen}.{there}", call.id)
    if not call.operates:
        raise Forbidden("choosing an agent is for operators: see [access] in the settings")
    if call.text != "default" and call.text not in known:
        raise NotFound(f"there is no agent {call.text[:80]!r}: there are {', '.join(known) or 'none'}")
    agent = None if call.text == "default" else call.text
    changed = call.configure(msgspec.structs.replace(call.settings, agent=agent))
    return Done(f"Agent: {agent or 'default'}. It answers from the next message on.", changed)


def _model(call: Call) -> Done:
    known = ", ".join(call.policy.models)
    if not call.text:
        there = f" There are: {known}." if known else ""
        return Done(f"Model: {call.settings.model or 'default'}.{there}", call.id)
    model = None if call.text == "default" else call.text[:200]
    changed = call.configure(msgspec.structs.replace(call.settings, model=model))
    # An agent that is a program of its own may have models that nobody here knows.
    unknown = f" It is none of those set up here: {known}." if known and model else ""
    return Done(f"Model: {model or 'default'}.{'' if model in call.policy.models else unknown}", changed)


def _effort(call: Call) -> Done:
    if not call.text:
        return Done(f"Effort: {call.settings.effort or 'default'}.", call.id)
    if call.text not in (*EFFORTS, "default"):
        raise Invalid(f"{call.text[:80]!r} is no effort: write {', '.join(EFFORTS)} or default")
    effort = None if call.text == "default" else call.text
    changed = call.configure(msgspec.structs.replace(call.settings, effort=effort))
    return Done(f"Effort: {effort or 'default'}.", changed)


def _personality(call: Call) -> Done:
    if not call.text:
        return Done(_spoken(call.settings.personality), call.id)
    text = None if call.text in ("off", "none", "default") else call.text
    if text and len(text) > _LONGEST_PERSONALITY:
        raise Invalid(f"a personality has at most {_LONGEST_PERSONALITY:,} characters: shorten it")
    changed = call.configure(msgspec.structs.replace(call.settings, personality=text))
    return Done(_spoken(text), changed)


def _spoken(personality: str | None) -> str:
    return f"Personality: {personality}" if personality else "No personality is set here."


def _tools(call: Call) -> Done:
    known = call.policy.tools
    chosen = known if call.settings.tools is None else call.settings.tools
    word, _, name = call.text.partition(" ")
    if not call.text:
        listed = [f"{n}: {'on' if n in chosen else 'off'}" for n in known]
        return Done("\n".join(listed) or "There are no tools.", call.id)
    if word not in ("on", "off") or name not in known:
        raise NotFound(f"write /tools on or /tools off and one of {', '.join(known) or 'no tools at all'}")
    now = tuple(n for n in known if (n in chosen and n != name) or (n == name and word == "on"))
    changed = call.configure(msgspec.structs.replace(call.settings, tools=None if now == known else now))
    return Done(f"{name}: {word}.", changed)


def _status(call: Call) -> Done:
    session = call.session
    if session is None:
        return Done("No conversation here yet. Say something.")
    activity = listings.activity(call.tx, session.id)
    waiting = len(turns.queued(call.tx, session.id))
    lines = [
        f"{label(session)} · {session.id}",
        f"{activity.value}, {waiting} waiting · {counted(session.messages, 'message')}, {counted(session.turns, 'turn')}",
        f"model {session.settings.model or 'default'} · since {session.created_at:%Y-%m-%d %H:%M} UTC",
    ]
    return Done("\n".join(lines), session.id)


def _usage(call: Call) -> Done:
    s = call.current
    cost = "unknown" if s.cost is None else f"{s.cost / 1_000_000:.4f} ({s.cost_status})"
    t = s.tokens
    return Done(
        f"in {t.input}, out {t.output}, reasoning {t.reasoning}, cache read {t.cache_read}, write {t.cache_write} · cost {cost}",
        s.id,
    )


def _help(call: Call) -> Done:
    shown = [c for c in COMMANDS if c.who is not Who.OPERATOR or call.operates]
    return Done("\n".join(f"/{c.name} {c.usage}".rstrip() + f" – {c.help}" for c in shown))


RUN: dict[str, Run] = {
    "agent": _agent,
    "model": _model,
    "effort": _effort,
    "personality": _personality,
    "tools": _tools,
    "status": _status,
    "usage": _usage,
    "help": _help,
}
