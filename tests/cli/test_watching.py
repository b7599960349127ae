"""What an operator sees of a real node: metrics, log lines and /readyz."""

import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from tests.cli.driver import WAIT, Cli, Node
from tests.fakes.endpoint import DOWN, KEY, MODEL, Endpoint, answer, calls
from tests.fakes.telegram import TOKEN, FakeTelegram

from keryx.logs import FIELDS

CHAT = 778899
SECRET_WORDS = "the heron flies at midnight"
ANSWER_WORDS = "tell the otter about it"
_LEVEL = {"KERYX_LOG_LEVEL": "debug"}


@pytest.fixture
def telegram() -> Iterator[FakeTelegram]:
    with FakeTelegram() as fake:
        yield fake


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = calls(("c1", "list_jobs", "{}"), ("c2", "no_such_tool", "{}"))
    with Endpoint(DOWN, made, answer(ANSWER_WORDS)) as fake:
        yield fake


@pytest.fixture
def keryx(tmp_path: Path, telegram: FakeTelegram, endpoint: Endpoint) -> Cli:
    return Cli(
        tmp_path,
        KERYX_AGENT="llm",
        KERYX_LLM_BASE_URL=endpoint.base_url,
        KERYX_LLM_MODEL=MODEL,
        KERYX_LLM_API_KEY=KEY,
        KERYX_TELEGRAM_TOKEN=TOKEN,
        KERYX_TELEGRAM_BASE_URL=telegram.url,
        KERYX_TELEGRAM_ALLOW="*",
    )


def get(node: Node, page: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"{node.address}/{page}", timeout=WAIT) as response:
            return response.status, response.read().decode()
    except HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def read_metrics(node: Node) -> dict[str, float]:
    lines = get(node, "metrics")[1].splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if not line.startswith("#")]
    return {name: float(value) for name, value in pairs}


def exchange(keryx: Cli, telegram: FakeTelegram, node: Node) -> None:
    telegram.say(SECRET_WORDS, chat=CHAT)
    assert telegram.wait_for(lambda: telegram.texts(CHAT) == [ANSWER_WORDS]), telegram.texts(CHAT)
    keryx.until("sent", "deliveries", "list", "--state", "sent")


def stop(node: Node) -> list[str]:
    node.process.send_signal(signal.SIGTERM)
    _, err = node.process.communicate(timeout=WAIT)
    return err.splitlines()


def test_metrics_tell_of_an_exchange(keryx: Cli, telegram: FakeTelegram) -> None:
    with keryx.serving() as node:
        exchange(keryx, telegram, node)
        get(node, "nothing/here")
        get(node, "api/sessions?limit=1")
        found = read_metrics(node)
    for name, least in {
        'keryx_received_total{platform="telegram",outcome="queued"}': 1,
        'keryx_turns_total{outcome="done"}': 1,
        "keryx_turn_wait_seconds_count": 1,
        "keryx_turn_first_token_seconds_count": 1,
        'keryx_turn_seconds_count{outcome="done"}': 1,
        "keryx_turn_first_token_seconds_sum": 0.001,
        f'keryx_model_tokens_total{{model="{MODEL}",kind="input"}}': 20,
        f'keryx_model_tokens_total{{model="{MODEL}",kind="output"}}': 10,
        f'keryx_model_errors_total{{model="{MODEL}",error="InternalServerError"}}': 1,
        f'keryx_model_retries_total{{model="{MODEL}"}}': 1,
        'keryx_tool_calls_total{tool="list_jobs",outcome="ok"}': 1,
        'keryx_tool_calls_total{tool="other",outcome="failed"}': 1,
        'keryx_deliveries_total{platform="telegram",outcome="sent"}': 1,
        'keryx_delivery_seconds_count{platform="telegram"}': 1,
        'keryx_http_requests_total{route="/api/sessions",method="GET",status="2xx"}': 1,
        'keryx_http_requests_total{route="other",method="GET",status="4xx"}': 1,
        'keryx_http_request_seconds_count{route="/api/sessions"}': 1,
        'keryx_adapter_connected{adapter="telegram/424242"}': 1,
        "keryx_oldest_waiting_turn_seconds": 0,
    }.items():
        assert found.get(name, -1) >= least, (name, found.get(name))
    assert "no_such_tool" not in str(found) and "nothing" not in str(found)


def test_the_age_of_the_oldest_waiting_turn_grows(keryx: Cli, endpoint: Endpoint) -> None:
    with keryx.serving(KERYX_LIMITS_AT_ONCE="0") as node:
        keryx.ok("send", "nobody runs this")
        first = read_metrics(node)["keryx_oldest_waiting_turn_seconds"]
        assert read_metrics(node)["keryx_oldest_waiting_turn_seconds"] > first > 0


@pytest.mark.parametrize("form", ["json", "text"])
def test_log_lines_tell_what_happened_and_no_secret(keryx: Cli, telegram: FakeTelegram, form: str) -> None:
    with keryx.serving(KERYX_LOG_FORMAT=form, **_LEVEL) as node:
        exchange(keryx, telegram, node)
        get(node, "api/sessions")
        lines = stop(node)
    text = "\n".join(lines)
    for secret in (SECRET_WORDS, ANSWER_WORDS, "heron", "otter", TOKEN, "test-token", KEY, str(CHAT), "Ann"):
        assert secret not in text, next(line for line in lines if secret in line)
    assert "uvicorn" in text
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00"
    if form == "text":
        written = re.compile(rf"{stamp} [A-Z]+ [\w.]+: .+|Keryx.*|keryx: .*")
        assert all(written.fullmatch(line) for line in lines), lines
        assert re.search(
            r"answered session=\w+ turn=\w+ platform=telegram chat=chat-[0-9a-f]{8} attempt=1", text
        )
        return
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines if line.startswith("{")]
    assert all(re.fullmatch(stamp, entry["time"]) for entry in entries)
    known = {"time", "level", "logger", "message", "error", *FIELDS}
    assert all(set(entry) <= known for entry in entries)
    [received] = [e for e in entries if e["message"] == "received" and e["platform"] == "telegram"]
    [answered] = [e for e in entries if e["message"] == "answered"]
    [delivered] = [e for e in entries if e["message"] == "delivered"]
    for name in ("session", "turn", "chat", "platform"):
        assert received[name] == answered[name] == delivered[name], name
    assert (received["outcome"], answered["outcome"], delivered["outcome"]) == ("queued", "done", "sent")
    assert answered["model"] == MODEL and answered["seconds"] >= answered["first_token"] > 0
    retry = next(e for e in entries if e["message"].startswith(f"model {MODEL}: try 1 failed"))
    assert retry["turn"] == answered["turn"]


def test_readyz_tells_of_a_refused_platform_and_stays_ready(keryx: Cli, telegram: FakeTelegram) -> None:
    telegram.token = "424242:another"
    with keryx.serving() as node:
        keryx.until("refused", "gateway", "status")
        status, page = get(node, "readyz")
        found = read_metrics(node)
    assert status == 200
    first, line = page.splitlines()
    assert first == "ok" and line.startswith("telegram")
    assert "refused since" in line and "keryx gateway status" in line
    assert TOKEN not in page
    assert found['keryx_adapter_refused{adapter="telegram/424242"}'] == 1
    assert found['keryx_adapter_connected{adapter="telegram/424242"}'] == 0
    assert found['keryx_adapter_connected{adapter="local"}'] == 1
