"""Small home folders of Hermes and OpenClaw, written by hand in their formats: chats, people, jobs, settings and secrets."""

import json
from pathlib import Path
from typing import Any

from tests.importers import samples
from tests.importers.samples import START, Json, write_database, write_json

TOKEN = "900001:abcdefghijklmnopqrstuvwxyzABCDEFGHI"
MODEL_KEY = "sk-of-the-model"
GROUP = "-100777"


def _route(key: str, session: str, origin: Json, **more: Any) -> Json:
    entry = {
        "session_key": key,
        "session_id": session,
        "platform": origin["platform"],
        "chat_type": origin["chat_type"],
        "suspended": False,
        "origin": origin,
        **more,
    }
    return {"scope": "", "session_key": key, "entry_json": json.dumps(entry), "updated_at": START}


def hermes_home_tables() -> dict[str, list[Json]]:
    """A direct chat that goes on in the second session of its conversation, a group where one member was not answered, a
    topic, and a chat on a platform that Keryx does not have."""
    tables = samples.hermes_tables()

    def session(id_: str, **more: Any) -> Json:
        return {"id": id_, "source": "telegram", "user_id": "4242", "chat_id": GROUP, "chat_type": "group", "started_at": START + 100, "cwd": None, "archived": 0, **more}  # fmt: skip

    def message(id_: int, session: str, role: str, text: str) -> Json:
        return {"id": id_, "session_id": session, "role": role, "content": text, "timestamp": START + 100 + id_, "active": 1, "compacted": 0, "observed": 0}  # fmt: skip

    group, topic, other = "20261116_090001_a1", "20261116_090002_a2", "20261116_090003_a3"
    tables["sessions"] += [
        session(group, title="Lunch"),
        session(topic, title="Topic", thread_id="5"),
        session(other, title="Irc", source="irc", chat_id="#dev", user_id="bob"),
    ]
    tables["messages"] += [
        message(30, group, "user", "[Ada] where do we eat?"),
        message(31, group, "assistant", "At Luigi's."),
        message(32, group, "user", "[Ada] and when?"),
        message(33, topic, "user", "[Ada] what is new?"),
        message(34, topic, "assistant", "Nothing."),
        message(35, other, "user", "hello"),
        message(36, other, "assistant", "Hello."),
    ]
    ada = {"platform": "telegram", "user_id": "4242", "user_name": "Ada"}
    direct = {**ada, "chat_id": "4242", "chat_name": "Ada", "chat_type": "dm", "message_id": "9"}
    in_group = {**ada, "chat_id": GROUP, "chat_name": "Team", "chat_type": "group"}
    irc = {"platform": "irc", "chat_id": "#dev", "chat_type": "group", "user_id": "bob"}
    tables["gateway_routing"] = [
        _route("agent:main:telegram:dm:4242", "20261116_084101_bb", direct),
        _route(f"agent:main:telegram:group:{GROUP}:4242", group, in_group),
        _route(f"agent:main:telegram:group:{GROUP}:5", topic, {**in_group, "thread_id": "5"}),
        _route("agent:main:irc:group:#dev:bob", other, irc),
    ]
    tables["delivery_obligations"] = [
        {"obligation_id": "o1", "session_key": "agent:main:telegram:dm:4242", "platform": "telegram", "chat_id": "4242", "thread_id": None, "content": "The train leaves at ten.", "state": "attempting", "attempts": 1, "created_at": START},
        {"obligation_id": "o2", "session_key": "agent:main:telegram:dm:4242", "platform": "telegram", "chat_id": "4242", "thread_id": None, "content": "Hello Ada.", "state": "delivered", "attempts": 1, "created_at": START},
    ]  # fmt: skip
    return tables


def write_hermes_home(
    folder: Path,
    *,
    base_url: str = "",
    model: str = "fake",
    model_url: str = "http://127.0.0.1:9/v1",
    key: str = MODEL_KEY,
) -> Path:
    write_database(folder / "state.db", hermes_home_tables())
    settings = f"""
# A comment.
model:
  default: {model}
  provider: custom
  base_url: {model_url}
  api_key: {key}
timezone: Europe/Berlin
session_reset: {{mode: daily, at_hour: 5}}
agent:
  system_prompt: Answer in one sentence.
mcp_servers:
  files: {{command: npx}}
"""
    if base_url:
        settings += f"platforms: {{telegram: {{extra: {{base_url: {base_url}/bot}}}}}}\n"
    folder.joinpath("config.yaml").write_text(settings)
    folder.joinpath(".env").write_text(
        f"export TELEGRAM_BOT_TOKEN='{TOKEN}'\nTELEGRAM_ALLOWED_USERS=4242, 4343  # the family\n"
        f"TELEGRAM_HOME_CHANNEL=4242\nTELEGRAM_REQUIRE_MENTION=true\n"
    )
    folder.joinpath("SOUL.md").write_text("You are Miro, a calm assistant.\n")
    (folder / "memories").mkdir()
    folder.joinpath("memories/USER.md").write_text("Ada lives in Oslo.")
    write_json(folder / "pairing/telegram-approved.json", {"5151": {"user_name": "Eve", "approved_at": 1.0}})
    (folder / "skills/cook").mkdir(parents=True)
    jobs = [
        {
            "id": "j1",
            "name": "News",
            "prompt": "Tell me the news.",
            "schedule": {"kind": "cron", "expr": "0 9 * * 1-5"},
            "deliver": "origin",
            "origin": {"platform": "telegram", "chat_id": "4242", "user_id": "4242"},
            "enabled": True,
            "state": "scheduled",
            "skills": ["web"],
        },
        {
            "id": "j2",
            "name": "Water",
            "prompt": "Remind us of water.",
            "schedule": {"kind": "interval", "minutes": 120},
            "next_run_at": "2026-11-16T12:00:00+00:00",
            "deliver": f"telegram:{GROUP}:5,telegram",
            "enabled": False,
            "state": "paused",
        },
        {"id": "j3", "name": "Backup", "no_agent": True, "script": "backup.sh", "schedule": {"kind": "cron"}},
        {"id": "j4", "prompt": "Old", "schedule": {"kind": "once", "run_at": "2020-01-01T00:00:00+00:00"}},
        {"id": "j5", "prompt": "Odd", "schedule": {"kind": "cron", "expr": "what is this"}},
    ]
    write_json(folder / "cron/jobs.json", {"jobs": jobs})
    return folder


def write_openclaw_home(folder: Path) -> Path:
    samples.write_openclaw(folder)
    # A group that an older version has left.
    old = folder / "agents/main/sessions"
    samples.write_lines(old / "old2.jsonl", samples.pi_entries("old2"))
    write_json(old / "sessions.json", {f"agent:main:telegram:group:{GROUP}:topic:5": {"sessionId": "old2"}})
    folder.joinpath("openclaw.json").write_text(
        """
{
  // Keys may have no quotation marks.
  gateway: {mode: "local"},
  models: {providers: {rig: {baseUrl: "http://127.0.0.1:9/v1/", apiKey: "${RIG_KEY}", api: "openai-completions"}}},
  agents: {defaults: {model: {primary: "rig/fake"}, userTimezone: "Europe/Oslo"}},
\tchannels: {
    telegram: {
      botToken: "TOKEN",
      dmPolicy: "allowlist",
      allowFrom: ["telegram:4242"],
      groups: {"*": {requireMention: false}},
      groupPolicy: "open",
    },
    whatsapp: {enabled: true}, /* not here */
  },
}
""".replace("TOKEN", TOKEN)
    )
    folder.joinpath(".env").write_text(f"RIG_KEY={MODEL_KEY}\n")
    (folder / "workspace").mkdir()
    folder.joinpath("workspace/SOUL.md").write_text("You are a lobster.")
    news = {
        "schedule": {"kind": "cron", "expr": "30 7 * * *", "tz": "Asia/Tokyo"},
        "payload": {"kind": "agentTurn", "message": "Tell me the news."},
        "delivery": {"mode": "announce", "channel": "telegram", "to": "telegram:4242"},
    }
    script = {
        "schedule": {"kind": "cron", "expr": "* * * * *"},
        "payload": {"kind": "command", "argv": ["rm"]},
    }
    entry = {"channel": "telegram", "to": "4242", "payloads": [{"text": "One more thing."}]}
    write_database(
        folder / "state/openclaw.sqlite",
        {
            "channel_pairing_allow_entries": [{"channel_key": "telegram", "account_id": "default", "entry": "5151"}],
            "cron_jobs": [
                {"job_id": "c1", "name": "News", "enabled": 1, "job_json": json.dumps(news), "sort_order": 0},
                {"job_id": "c2", "name": "Clean", "enabled": 1, "job_json": json.dumps(script), "sort_order": 1},
            ],
            "delivery_queue_entries": [{"queue_name": "outbound", "id": "d1", "status": "pending", "channel": "telegram", "target": "4242", "account_id": "default", "entry_json": json.dumps(entry), "enqueued_at": START * 1000, "platform_send_started_at": None}],
        },
    )  # fmt: skip
    return folder
