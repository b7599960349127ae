"""`keryx config`: the settings in force without secrets, their meanings, and an example file."""

import getpass
import os
import re
import sys
from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from cyclopts import App

from keryx import config
from keryx.bootstrap import BaseApp
from keryx.cli import output
from keryx.cli.options import Json
from keryx.config import PREFIX, Settings
from keryx.core.durations import format_duration
from keryx.core.errors import Invalid
from keryx.surfaces.web import settings

MEANINGS = {
    "home": "The folder of the store, the settings file, the history and local answers. Set by KERYX_HOME only.",
    "database": "A file, or a postgresql:// address; empty means keryx.db in the home folder.",
    "host": "The address that `keryx serve` listens on.",
    "port": "The port that `keryx serve` listens on.",
    "agent": "Who answers: echo (offline), llm (the configured models), local (a small model in this process), package.module:object for your own, or the name of a table under [agents], which may also be written in place; auto is llm where models are configured, else local where it is installed, else echo.",
    "agents": "Agents by name: tables of `kind` (acp, llm, local, echo, python), `rules` (the places where it answers), for acp `command`, `env`, `cwd`, `folders`, `shared`, `login`, `model`, `mode`, `files`, `terminal`, `stall`, `idle`, `processes` and `continues`, for python `path` and `isolation`.",
    "model": "The model of sessions that have chosen none; empty means the first one.",
    "models": "Models behind OpenAI-compatible endpoints: tables of `name`, `base_url`, `id`, `key` (env:NAME or file:PATH), `context`, `prices` and more.",
    "tools": "Servers of tools that speak MCP: tables of `name`, `command` or `url`, `env`, `headers`, `timeout`, `policy`, `repeatable`, `ids` and more.",
    "permissions": "What tools get, by patterns of their names: allow, ask or deny; a table named like a surface holds its own.",
    "llm_base_url": "The endpoint of a single model, without a [[models]] table; its key is the variable KERYX_LLM_API_KEY.",
    "llm_model": "The name of that model at its endpoint.",
    "llm_images": "That model reads pictures: true or false; auto is what is known of a model of this name.",
    "llm_files": "That model reads PDF and other files; text files are read by every model.",
    "llm_audio": "That model listens to sounds (WAV and MP3).",
    "profile": "The profile that the command line works in.",
    "busy": "What a message does while a turn runs: wait, steer it, join the waiting ones, or interrupt it.",
    "edits": "What an edit of a message that was answered does: it is noted, or the last message of a conversation is answered anew.",
    "doubt": "What happens when nobody knows whether a part arrived: repeat it with a mark, or hold it for a person.",
    "repeat_mark": "What stands before a part of an answer that may have arrived already; at most 40 characters.",
    "drain": "How long running turns may go on when `keryx serve` is asked to stop.",
    "log_level": "What is logged at least: debug, info, warning or error.",
    "log_format": "How the log is written.",
    "language": "The language of texts for people: auto takes the one that a platform or browser tells of each person, else English.",
    "zone": "The time zone of people who have not set theirs with /zone. Models are told the time of each message in it.",
    "texts": "Texts for people in your own words, by key: for all languages, or in a table named like a language. The reference of texts lists the keys.",
    "commands": "Who may give a command: `everyone`, `owner` (of a conversation that several people share, and operators), `operator`.",
    "currency": "The currency of the prices of models, as people read it.",
    "access": "Who may talk, by platform: a table of `allow`, `groups`, `roles`, `operators`, `bots`, `pairing`, `mention`, `follow_threads`, `observe` and `relay`. KERYX_<PLATFORM>_ALLOW sets `allow`, with commas.",
    "profiles": "What is set for a profile, by its name: a table of `rules` (which places belong to it), `instructions`, `agent` and `hide_ids`.",
    "limits.at_once": "How many turns run at once in one process; 0 for none: it only receives.",
    "limits.per_principal": "How many turns of one person run at once; fewer while few places are left.",
    "limits.first_byte": "How long a turn may take to say its first word.",
    "limits.silence": "How long a turn may be silent after that.",
    "limits.question": "How long a question of an agent waits for a person; then the answer is no.",
    "limits.total": "How long a turn may take in all.",
    "limits.edit": "How long an answer takes the place of its preview in a chat. Later it is a new message, which notifies a phone, and the preview is deleted.",
    "limits.gather": "How long a turn waits for further messages that belong to its first one: the pictures of an album, a forward and its comment, the parts of a long text. 0s: every message is a turn of its own.",
    "limits.await_files": "On Feishu, iMessage, Matrix and WeChat, where a file that is sent with a text is a message of its own, an answer is shown no sooner than this after the text, so that a file which follows within it gets the same answer. The agent works meanwhile. 0s: at once.",
    "limits.hold": "The longest time between a message and the reset of a limit of its model that the message waits for; a later reset fails it. 0s: messages do not wait.",
    "limits.fresh": "For how long after an interruption a turn is taken up again.",
    "limits.lease": "How long a worker that gives no sign keeps its turns.",
    "limits.answer": "The longest text of an answer, in characters. Then the turn ends, and what came is kept.",
    "limits.output": "How much a turn may say in all, with reasoning, calls and results of tools, in characters.",
    "limits.steps": "How many tool calls, files and notices a turn may have.",
    "limits.parts": "How many messages of a chat an answer may fill. A longer one is sent as a file, or cut where files cannot be sent.",
    "limits.settle": "How long a node must have been up before it begins a try of an interrupted turn that could be its last.",
    "sharing.groups_per_person": "In a group each person talks to a session of their own.",
    "sharing.threads_shared": "In a thread all people talk to one session.",
    "sharing.threads_inherit": "A thread that is opened on an answer begins with the conversation that led to it.",
    "resets.default.mode": "When a place starts a new conversation by itself.",
    "resets.default.idle": "The silence after which it does.",
    "resets.default.hour": "The local hour at which it does.",
    "resets.default.zone": "The time zone of that hour.",
    "resets.chat_types": "Other rules by kind of chat: a table of `mode`, `idle`, `hour` and `zone` for dm, group, channel or thread.",
    "resets.platforms": "Other rules by platform, written alike.",
    "resets.places": "Other rules by platform and kind of chat, written alike.",
    "resets.busy_limit": "For how long an answer that is being written keeps its conversation from being reset.",
    "keep.inbox": "For how long an event is known, so that its repetition is recognised, and for how long what was overheard in a group waits for a question.",
    "keep.feed": "For how long changes are kept for readers that fell behind.",
    "keep.lanes": "After how long a place that nobody uses is forgotten; its sessions stay.",
    "keep.erase": "After how long a deleted session is erased.",
    "keep.files": "After how long a file is removed that no session shows.",
    "keep.temporary": "After how long without a message a temporary conversation ends.",
    "keep.runs": "How long is remembered what became of scheduled prompts.",
    "keep.archive": "After how long without a message conversations are archived: a table of durations by the surface on which they began (cli, gateway, web, acp, api, job), `*` for the others. Pinned ones stay.",
    "keep.sessions": "After how long without a message conversations are deleted, written alike. Deleted ones are erased after `keep.erase`; `keryx sessions prune` shows beforehand what would go.",
    "notices.restart": "Home channels are told when Keryx has started again.",
    "notices.resets": "A chat is told when it starts a new conversation by itself.",
    "notices.no_resets": "Platforms whose chats are not told, such as matrix.",
    "acp.limit": "The longest message in bytes that `keryx acp` takes from an editor.",
    "acp.login": "A command, as a list, with which a person logs in from an editor; empty means that nobody needs to.",
    "media.limit": "The size of the largest picture, sound or file that is kept, in bytes.",
    "media.timeout": "How long fetching a file from a platform may take. Later the message says that it is missing.",
    "media.at_once": "How many files of one account are fetched at once.",
    "watchdog.report": "How long the event loop of `keryx serve` may stand still before the log tells where every thread stands; 0s is never.",
    "watchdog.exit": "How long it may stand still before the process is killed, so that a supervisor starts it again; 0s is never.",
    "watchdog.stop": "How long `keryx serve` may take to end after a signal, beyond `drain`; then it is killed.",
    "transcription.model": "The model that writes down what is said in voice messages and other sounds, such as whisper-1; empty for none.",
    "transcription.base_url": "Its OpenAI-compatible endpoint; empty for `llm_base_url`, with its key, else that of OpenAI.",
    "transcription.key": "Where its key is found: env:NAME or file:PATH.",
    "speech.model": "The model that reads answers aloud on the page where the browser has no voices, such as tts-1; empty for none.",
    "speech.voice": "Its voice, by the name that the endpoint has for it.",
    "speech.base_url": "Its OpenAI-compatible endpoint with `/audio/speech`; empty for `llm_base_url`, with its key, else that of OpenAI.",
    "speech.key": "Where its key is found: env:NAME or file:PATH.",
    "session_end.hooks": "Functions of your own, as package.module:object, that are called when a conversation has ended.",
    "session_end.prompt": "What the agent is asked when a conversation has ended, such as to save what is worth remembering; its answer is sent to nobody.",
    "temporary.keys": "The folder of the keys of temporary conversations; empty for one beside a SQLite store. On PostgreSQL all nodes must share it.",
    "web.secret": "Where the token of the web is: env:NAME or file:PATH. The variable KERYX_WEB_TOKEN holds the token itself and goes before it. Without a token and a password only this machine is let in.",
    "web.password_from": "Where the password of the page is, or its hash as `keryx config password` prints it: env:NAME or file:PATH. The variable KERYX_WEB_PASSWORD holds it itself and goes before it.",
    "web.hosts": "Names by which browsers may reach the web beside localhost and plain addresses, such as keryx.example.org.",
    "web.public_address": "The address under which others reach this Keryx, such as https://keryx.example.org. Without it, no conversation can be shared by a link.",
    "web.https": "Browsers reach the web by https, through a proxy: cookies are then sent by https only.",
    "web.trusted_proxies": "Addresses and networks of proxies, such as 127.0.0.1 or 10.0.0.0/8, whose header X-Forwarded-For tells the address of a client.",
    "web.connections": "How many connections there may be; fewer where the limit of open files does not allow as many.",
    "web.connections_per_address": "How many of them one address may have; this machine and trusted proxies may have all.",
    "web.streams": "How many event streams there may be, one for each open page; at most half of the connections.",
    "web.head": "How long a new connection may take to send the head of its first request.",
    "web.idle": "How long a connection may stay open between two requests.",
    "web.stall": "How long a client may send nothing of a body, or read nothing of an answer, before its connection is closed.",
    "push.enabled": "Whether browsers are told while the page is closed, if their person turned it on. It needs the extra `push`.",
    "push.contact": "Where a push service writes to if something is wrong, such as mailto:me@keryx.example. Empty: the address under [web] with https, if there is one. Safari asks for it.",
    "push.keep": "How long a notification waits for a browser that is not reached.",
    "push.loopback": "Whether push services on this machine are allowed, without https. For tests alone.",
    "compaction.at": "The share of a model's context at which the old part of a conversation is summarised.",
    "compaction.keep": "The share of the context that the newest turns may keep as they are.",
    "compaction.tell": "A chat is told with a short marker when its conversation was compacted by itself, or could not be.",
    "budgets.everyone.day": "What each person may spend in a UTC day, in the currency of the prices; 0 is no limit.",
    "budgets.everyone.month": "What each person may spend in a month.",
    "budgets.everyone.day_tokens": "How many tokens each person may use in a day.",
    "budgets.everyone.month_tokens": "How many tokens each person may use in a month.",
    "budgets.people": "Other budgets by person, as /whoami names them: tables of `day`, `month`, `day_tokens` and `month_tokens`.",
    "jobs.zone": "The time zone of jobs that name none, of people who have not set theirs with /zone; empty for `zone`.",
    "jobs.catch_up": "For how long a run that was missed is made up for, once; later it is skipped. 0s skips all that is more than a minute late.",
    "jobs.most": "How many jobs one person may have at a time.",
    "jobs.fallback": "Where the answers of jobs go whose own chat is gone, such as telegram:123 or local. The answers of all people go there: name a chat that operators alone read.",
    "relay.listen": "Where the instances of a relay connect to this Keryx, which holds the bots: HOST:PORT; empty for nowhere.",
    "relay.events": "How many events are kept for each instance that is away. Later ones are not taken, and people are told.",
    "relay.size": "How many bytes they may have together, without files.",
    "relay.age": "How long they are kept. Then they are dropped, and people are told.",
    "relay.notice_after": "How long an instance may be away before people are told that their messages wait.",
    "relay.url": "The address of the Keryx that holds the bots, wss:// or ws://, if this one is an instance of its relay.",
    "relay.key_from": "Where the key of this instance is: env:NAME or file:PATH. The variable KERYX_RELAY_KEY holds the key itself and goes before it.",
    "relay.plain": "Allow ws:// to another machine, through a tunnel that encrypts.",
    "watch.enabled": "`keryx serve` shows the conversations that other programs on this machine keep, such as Claude Code, while they run.",
    "watch.programs": "Which programs are watched: claude-code, codex, opencode, goose, gemini, qwen; by default all.",
    "watch.since": "Conversations that did not change for longer appear when they change.",
    "watch.person": "Whose conversations they are, as PLATFORM:ID; without it, the operator's.",
    "watch.machine": "The name of this machine in what people read; by default its host name.",
}
_URL_PASSWORD = re.compile(r"(://[^/@:]*):[^/]*@|(\bpassword=)[^&\s]*")
_INLINE_SECRET = re.compile(r"^(text:|https?://[^?]*\?).+", re.S)


class SettingRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str  # dotted, as in `limits.lease`
    kind: str
    default: Any
    variable: str  # empty if it has none
    meaning: str


def list_settings() -> list[SettingRow]:
    """Return all settings in the order of the settings file, without those of the platforms."""
    return [
        SettingRow(
            name=name,
            kind=_describe_type(hint),
            default="~/.keryx"
            if name == "home"
            else format_duration(value)
            if isinstance(value, timedelta)
            else value,
            variable="" if get_args(hint) else PREFIX + name.replace(".", "_").upper(),
            meaning=MEANINGS[name],
        )
        for name, hint, value in _walk_fields(Settings(), "")
        if name != "platforms"
    ]


def render_example() -> str:
    """Render a settings file that has every setting with its default, commented out."""
    lines = [
        "# Keryx reads this file from its home folder: `keryx config path` says where. Remove a # to change a value."
    ]
    table = ""
    for row in list_settings():
        if row.name == "home":
            continue
        parent, _, last = row.name.rpartition(".")
        if parent != table:
            lines += ["", f"[{parent}]"]
            table = parent
        lines += ["", f"# {row.meaning}", f"# {last} = {format_toml(row.default)}"]
    return "\n".join(lines)


def format_toml(value: object) -> str:
    return "{}" if value == {} else format_json(value)


def format_json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def mask_secrets(text: str) -> str:
    """Mask the password and the query of an address, and a secret written in place of a reference."""
    text = _URL_PASSWORD.sub(lambda found: f"{found[1]}:***@" if found[1] else f"{found[2]}***", text)
    return _INLINE_SECRET.sub(r"\1***", text)


def explain_settings() -> dict[str, config.SettingOrigin]:
    """Return the settings in force and where each comes from, with secrets masked."""
    return _mask_origins(config.explain())


def _mask_origins(origins: dict[str, config.SettingOrigin]) -> dict[str, config.SettingOrigin]:
    return {
        name: msgspec.structs.replace(origin, value=_mask_value(origin.value))
        for name, origin in origins.items()
    }


def _mask_value(value: Any) -> Any:
    match value:
        case str():
            return mask_secrets(value)
        case list() | tuple():
            return [_mask_value(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        case dict():
            return {key: _mask_value(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
        case _:
            return value


def _walk_fields(value: msgspec.Struct, prefix: str) -> Iterator[tuple[str, Any, Any]]:
    hints = get_type_hints(type(value))
    for field in msgspec.structs.fields(value):
        inner = msgspec.structs.asdict(value)[field.name]
        if isinstance(inner, msgspec.Struct):
            yield from _walk_fields(inner, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, hints[field.name], inner


def _describe_type(hint: Any) -> str:
    if get_args(hint):
        return "list" if str in get_args(hint) else "tables" if get_origin(hint) is tuple else "table"
    if issubclass(hint, StrEnum):
        return " | ".join(item.value for item in hint)
    return {timedelta: "duration", bool: "true | false", int: "number", float: "number", str: "text"}[hint]


app = App(name="config", help="The settings in force, and where each comes from.")


@app.command
@app.default
def show(*, json: Json = False) -> int:
    """Show every setting, its value, and where the value comes from. Passwords are left out.

    If the settings are wrong, what is written is shown with what is wrong with it, and the exit code is 2.

    For example:

        keryx config
        KERYX_PORT=8000 keryx config show --json
    """
    wrong = ""
    try:
        found = explain_settings()
    except Invalid as exc:
        wrong = str(exc)
        found = _mask_origins(config.explain_wrong())
    if json:
        output.write_json({"settings": found} | ({"error": wrong} if wrong else {}))
    else:
        rows = [(name, format_json(origin.value), origin.source) for name, origin in found.items()]
        output.write_table(("setting", "value", "from"), rows, flexible=1, title=0)
    unknown = (
        config.find_unknown_variables(os.environ)
        if wrong
        else BaseApp(config.read()).find_unknown_variables()
    )
    for text in (*unknown, *([wrong] if wrong else [])):
        output.warn(f"keryx: {text}")
    return 2 if wrong else 0


@app.command
def path(*, json: Json = False) -> None:
    """Print where the settings file is looked for.

    For example:

        keryx config path
    """
    file = config.find_home(os.environ) / "keryx.toml"
    output.write_result(str(file), {"path": str(file), "exists": file.exists()}, json)


@app.command
def example(*, json: Json = False) -> None:
    """Print a settings file with every setting and its meaning, all commented out.

    For example:

        keryx config example > ~/.keryx/keryx.toml
    """
    output.write_result(render_example(), {"settings": list_settings()}, json)


@app.command
def password(*, json: Json = False) -> None:
    """Print the hash of a password, to keep in a file that `[web] password_from` names.

    The password is asked for twice, or read from what is piped in.

    For example:

        keryx config password > ~/.keryx/web.password
    """
    if sys.stdin.isatty():
        typed = getpass.getpass("Password (not shown): ").strip()
        if getpass.getpass("The same again: ").strip() != typed:
            raise Invalid("the two are not the same: start again")
    else:
        typed = sys.stdin.readline().strip()
        if not typed:
            raise Invalid("there is no terminal to ask in: type it in one, or pipe the password in")
    hashed = settings.hash_password(typed)
    output.write_result(hashed, {"password": hashed}, json)
