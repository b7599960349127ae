"""Commands on the settings of a session (agent, model, effort, personality, tools), and status, usage and help."""

import msgspec

from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.core.sessions import EFFORTS
from keryx.engine.commands.call import CommandCall, CommandResult, pluralize, quote_title
from keryx.engine.commands.command_table import COMMANDS, CommandAudience
from keryx.engine.units import place
from keryx.store import sessions, turns

_MAX_PERSONALITY = 4000


def set_agent(call: CommandCall) -> CommandResult:
    session, agents = call.session, call.policy.agents
    if not call.text:
        choices = f" There are: {', '.join(agents)}." if agents else ""
        name = (
            call.policy.choose_agent(session, place.find_source(session, call.lane))
            if session
            else call.settings.agent
        )
        origin = "" if call.settings.agent else " (not chosen here)"
        return CommandResult(f"Agent: {name or 'default'}{origin}.{choices}", call.session_id)
    if not call.is_operator:
        raise Forbidden("choosing an agent is for operators: see [access] in the settings")
    if call.text != "default" and call.text not in agents:
        raise NotFound(f"there is no agent {call.text[:80]!r}: there are {', '.join(agents) or 'none'}")
    agent = None if call.text == "default" else call.text
    changed = call.configure(msgspec.structs.replace(call.settings, agent=agent))
    return CommandResult(f"Agent: {agent or 'default'}. It answers from the next message on.", changed)


def set_model(call: CommandCall) -> CommandResult:
    models = ", ".join(call.policy.models)
    if not call.text:
        choices = f" There are: {models}." if models else ""
        return CommandResult(f"Model: {call.settings.model or 'default'}.{choices}", call.session_id)
    model = None if call.text == "default" else call.text[:200]
    changed = call.configure(msgspec.structs.replace(call.settings, model=model))
    # An external agent may have models that the settings do not list.
    unknown = f" It is none of those set up here: {models}." if models and model else ""
    return CommandResult(
        f"Model: {model or 'default'}.{'' if model in call.policy.models else unknown}", changed
    )


def set_effort(call: CommandCall) -> CommandResult:
    if not call.text:
        return CommandResult(f"Effort: {call.settings.effort or 'default'}.", call.session_id)
    if call.text not in (*EFFORTS, "default"):
        raise Invalid(f"{call.text[:80]!r} is no effort: write {', '.join(EFFORTS)} or default")
    effort = None if call.text == "default" else call.text
    changed = call.configure(msgspec.structs.replace(call.settings, effort=effort))
    return CommandResult(f"Effort: {effort or 'default'}.", changed)


def set_personality(call: CommandCall) -> CommandResult:
    if not call.text:
        return CommandResult(_render_personality(call.settings.personality), call.session_id)
    text = None if call.text in ("off", "none", "default") else call.text
    if text and len(text) > _MAX_PERSONALITY:
        raise Invalid(f"a personality has at most {_MAX_PERSONALITY:,} characters: shorten it")
    changed = call.configure(msgspec.structs.replace(call.settings, personality=text))
    return CommandResult(_render_personality(text), changed)


def _render_personality(personality: str | None) -> str:
    return f"Personality: {personality}" if personality else "No personality is set here."


def switch_tools(call: CommandCall) -> CommandResult:
    tools = call.policy.tools
    enabled = tools if call.settings.tools is None else call.settings.tools
    word, _, name = call.text.partition(" ")
    if not call.text:
        listed = [f"{n}: {'on' if n in enabled else 'off'}" for n in tools]
        return CommandResult("\n".join(listed) or "There are no tools.", call.session_id)
    if word not in ("on", "off") or name not in tools:
        raise NotFound(f"write /tools on or /tools off and one of {', '.join(tools) or 'no tools at all'}")
    now = tuple(n for n in tools if (n in enabled and n != name) or (n == name and word == "on"))
    changed = call.configure(msgspec.structs.replace(call.settings, tools=None if now == tools else now))
    return CommandResult(f"{name}: {word}.", changed)


def show_status(call: CommandCall) -> CommandResult:
    session = call.session
    if session is None:
        return CommandResult("No conversation here yet. Say something.")
    activity = sessions.get_activity(call.tx, session.id)
    waiting = len(turns.list_queued(call.tx, session.id))
    lines = [
        f"{quote_title(session)} · {session.id}",
        f"{activity.value}, {waiting} waiting · {pluralize(session.messages, 'message')}, {pluralize(session.turns, 'turn')}",
        f"model {session.settings.model or 'default'} · since {session.created_at:%Y-%m-%d %H:%M} UTC",
    ]
    return CommandResult("\n".join(lines), session.id)


def show_usage(call: CommandCall) -> CommandResult:
    s = call.current_session
    cost = "unknown" if s.cost is None else f"{s.cost / 1_000_000:.4f} ({s.cost_status})"
    t = s.tokens
    return CommandResult(
        f"in {t.input}, out {t.output}, reasoning {t.reasoning}, cache read {t.cache_read}, write {t.cache_write} · cost {cost}",
        s.id,
    )


def show_help(call: CommandCall) -> CommandResult:
    allowed = [c for c in COMMANDS if c.who is not CommandAudience.OPERATOR or call.is_operator]
    return CommandResult("\n".join(f"/{c.name} {c.usage}".rstrip() + f" – {c.help}" for c in allowed))
