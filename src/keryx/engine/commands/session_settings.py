"""Commands on the settings of a session (agent, model, effort, personality, tools), and status, usage and help."""

from collections.abc import Sequence

import msgspec

from keryx.core import clock
from keryx.core.access import CommandAudience
from keryx.core.errors import Forbidden, Invalid, NotFound
from keryx.core.sessions import EFFORTS, Activity, PermissionMode, parse_mode
from keryx.core.source import ChatType, Source
from keryx.core.texts import Phrase
from keryx.core.usage import MILLION
from keryx.engine.commands.call import CommandCall, CommandResult, format_choices, quote_title
from keryx.engine.commands.command_table import list_commands
from keryx.engine.units import control, place
from keryx.store import imports, sessions, turns, viewer_state

_MAX_PERSONALITY = 4000


def set_agent(call: CommandCall) -> CommandResult:
    agents = call.policy.agents
    if not call.text:
        name = call.policy.choose_agent(call.settings, _find_source(call), profile=call.owner.profile)
        key = "setting.agent" if call.settings.agent else "setting.agent_default"
        lines = [call.say(key, name=name or call.say("setting.default"))]
        if agents:
            lines.append(call.say("setting.available", choices=_join_names(agents)))
        return CommandResult(" ".join(lines), call.session_id)
    if not call.is_operator:
        raise Forbidden(Phrase("setting.agent_forbidden"))
    if call.text != "default" and call.text not in agents:
        raise NotFound(
            Phrase("setting.agent_unknown", name=repr(call.text[:80]), choices=_join_names(agents))
        )
    agent = None if call.text == "default" else call.text
    changed = call.configure(msgspec.structs.replace(call.settings, agent=agent))
    reply = call.say("setting.agent_chosen", name=agent or call.say("setting.default"))
    return CommandResult(reply + call.release(), changed)


def set_model(call: CommandCall) -> CommandResult:
    models = _list_models(call)
    if not call.text:
        lines = [_describe_model(call)]
        if models:
            lines.append(call.say("setting.available", choices=_join_names(models)))
        return CommandResult(" ".join(lines), call.session_id)
    model = None if call.text == "default" else call.text[:200]
    settings = msgspec.structs.replace(call.settings, model=model)
    control.check_model(call.tx, call.policy, call.session, settings, _find_source(call))
    changed = call.configure(settings)
    reply = call.say("setting.model", name=model or call.say("setting.default"))
    return CommandResult(reply + call.release(), changed)


def _list_models(call: CommandCall) -> tuple[str, ...]:
    return control.list_models(call.tx, call.policy, call.session, call.settings, _find_source(call))


def _find_source(call: CommandCall) -> Source:
    return place.find_source(call.session, call.lane) if call.session else call.inbound.source


def set_mode(call: CommandCall) -> CommandResult:
    modes = [m.value for m in PermissionMode]
    if not call.text:
        mode = parse_mode(call.settings.mode)
        return CommandResult(
            call.say("setting.mode", name=mode.value, text=Phrase(f"setting.mode_{mode.value}")),
            call.session_id,
        )
    if call.text not in (*modes, "default"):
        raise NotFound(
            Phrase(
                "setting.mode_unknown",
                name=repr(call.text[:80]),
                choices=format_choices((*modes, "default")),
            )
        )
    mode = parse_mode(None if call.text == "default" else call.text)
    if mode is PermissionMode.AUTO and not call.is_operator:
        raise Forbidden(Phrase("setting.mode_forbidden"))
    chosen = None if call.text == "default" else mode.value
    changed = call.configure(msgspec.structs.replace(call.settings, mode=chosen))
    reply = call.say("setting.mode", name=mode.value, text=Phrase(f"setting.mode_{mode.value}"))
    return CommandResult(reply, changed)


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names) or Phrase("setting.none")


def set_effort(call: CommandCall) -> CommandResult:
    if not call.text:
        return CommandResult(
            call.say("setting.effort", name=call.settings.effort or call.say("setting.default")),
            call.session_id,
        )
    if call.text not in (*EFFORTS, "default"):
        raise Invalid(
            Phrase(
                "setting.effort_unknown",
                name=repr(call.text[:80]),
                choices=format_choices((*EFFORTS, "default")),
            )
        )
    effort = None if call.text == "default" else call.text
    changed = call.configure(msgspec.structs.replace(call.settings, effort=effort))
    return CommandResult(call.say("setting.effort", name=effort or call.say("setting.default")), changed)


def set_personality(call: CommandCall) -> CommandResult:
    if not call.text:
        return CommandResult(_render_personality(call, call.settings.personality), call.session_id)
    text = None if call.text in ("off", "none", "default") else call.text
    if text and len(text) > _MAX_PERSONALITY:
        raise Invalid(Phrase("setting.personality_long", limit=_MAX_PERSONALITY))
    changed = call.configure(msgspec.structs.replace(call.settings, personality=text))
    return CommandResult(_render_personality(call, text), changed)


def _render_personality(call: CommandCall, personality: str | None) -> str:
    if not personality:
        return call.say("setting.no_personality")
    return call.say("setting.personality", text=personality)


def switch_tools(call: CommandCall) -> CommandResult:
    tools = call.policy.tools
    enabled = tools if call.settings.tools is None else call.settings.tools
    word, _, name = call.text.partition(" ")
    if not call.text:
        listed = [
            call.say("setting.tool_on", name=n) if n in enabled else call.say("setting.tool_off", name=n)
            for n in tools
        ]
        return CommandResult("\n".join(listed) or call.say("setting.no_tools"), call.session_id)
    if word not in ("on", "off") or name not in tools:
        raise NotFound(Phrase("setting.tools_syntax", choices=_join_names(tools)))
    now = tuple(n for n in tools if (n in enabled and n != name) or (n == name and word == "on"))
    changed = call.configure(msgspec.structs.replace(call.settings, tools=None if now == tools else now))
    reply = (
        call.say("setting.tool_on", name=name) if word == "on" else call.say("setting.tool_off", name=name)
    )
    return CommandResult(reply, changed)


def show_status(call: CommandCall) -> CommandResult:
    session = call.session
    if session is None:
        return CommandResult(call.say("status.none"))
    activity = sessions.get_activity(call.tx, session.id)
    queue = turns.list_queued(call.tx, session.id)
    waiting = len(queue)
    state = [call.say("status.running" if activity is Activity.RUNNING else "status.idle")]
    if held := next((turn.hold for turn in queue if turn.hold), None):
        zone = viewer_state.get_zone(call.tx, call.viewer) or call.policy.zone
        time = clock.describe_moment(held.until, zone, now=call.now)
        state = [call.say("status.held", time=time, name=held.model)]
    if waiting:
        state.append(call.say("status.queued", count=waiting))
    state.append(_describe_model(call))
    if session.context_used is not None and session.context_limit:
        percent = round(100 * session.context_used / session.context_limit)
        state.append(call.say("status.context", percent=percent, limit=session.context_limit))
    lines = [
        call.say("status.title", session=quote_title(session), id=session.id),
        " ".join(state),
        call.say("status.size", messages=session.messages, turns=session.turns, since=session.created_at),
    ]
    return CommandResult("\n".join(lines), session.id)


def _describe_model(call: CommandCall) -> str:
    """Return the model of the session, or the default one."""
    if call.settings.model:
        return call.say("setting.model", name=call.settings.model)
    default = next(iter(_list_models(call)), "")
    if not default:
        return call.say("setting.model", name=call.say("setting.default"))
    return call.say("setting.model_default", name=default)


def show_usage(call: CommandCall) -> CommandResult:
    s = call.current_session
    tokens = s.tokens
    if s.cost is None:
        reply = call.say("status.usage", input=tokens.input, output=tokens.output)
        return CommandResult(reply, s.id)
    reply = call.say(
        "status.usage_cost",
        input=tokens.input,
        output=tokens.output,
        cost=s.cost / MILLION,
        currency=call.policy.currency,
    )
    return CommandResult(reply, s.id)


def greet(call: CommandCall) -> CommandResult:
    return CommandResult(call.say("chat.greeting"))


def show_help(call: CommandCall) -> CommandResult:
    rights = call.policy.commands
    allowed = [
        c
        for c in list_commands(
            lane=call.lane is not None,
            chat=call.inbound.reply is not None,
            direct=call.inbound.source.chat_type is ChatType.DM,
            watched=call.session is not None and imports.find_watched(call.tx, call.session.id) is not None,
        )
        if rights.get(c.name, c.who) is not CommandAudience.OPERATOR or call.is_operator
    ]
    texts = call.texts
    lines = [
        f"{texts.sign}{c.name} {c.format_usage(texts)}".rstrip() + f" – {c.describe(texts)}" for c in allowed
    ]
    return CommandResult("\n".join(lines))
