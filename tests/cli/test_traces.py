"""Traces as a collector gets them: one for each message, from its receipt to its delivery, also over a kill -9."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.cli.driver import Cli
from tests.fakes.collector import Collector, SeenSpan
from tests.fakes.endpoint import KEY, MODEL, Endpoint, answer, calls
from tests.fakes.platform import Platform
from tests.fakes.telegram import TOKEN, FakeTelegram
from tests.faults.node import Node

from keryx import tracing
from keryx.core.errors import format_install_command

STEPS = {"receive", "queued", "turn", "model call", "tool call", "delivery", "message"}
WORDS = "a heron at midnight"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as fake:
        yield fake


def check_trace(collector: Collector) -> dict[str, SeenSpan]:
    """Check that there is one whole trace, and return its spans by name."""
    assert collector.has_names(*STEPS), collector.spans
    spans = {span.id: span for span in collector.spans}
    assert len({span.trace for span in collector.spans}) == 1
    [root] = [span for span in spans.values() if not span.parent]
    assert root.name == "message"
    assert all(span.parent in spans for span in spans.values() if span is not root)
    assert all(root.start <= span.start <= span.end <= root.end for span in spans.values())
    turn = root.attributes["keryx.turn"]
    assert root.trace == f"{tracing.derive_trace_id(turn):032x}"
    assert not any(WORDS in str(span) for span in collector.spans)
    return {span.name: span for span in spans.values()}


def test_a_message_is_one_trace_from_its_receipt_to_its_delivery(
    tmp_path: Path, collector: Collector
) -> None:
    made = calls(("c1", "list_jobs", "{}"))
    with FakeTelegram() as telegram, Endpoint(made, answer(f"{WORDS} too")) as endpoint:
        keryx = Cli(
            tmp_path,
            KERYX_AGENT="llm",
            KERYX_LLM_BASE_URL=endpoint.base_url,
            KERYX_LLM_MODEL=MODEL,
            KERYX_LLM_API_KEY=KEY,
            KERYX_TELEGRAM_TOKEN=TOKEN,
            KERYX_TELEGRAM_BASE_URL=telegram.url,
            KERYX_TELEGRAM_ALLOW="*",
        )
        with keryx.serving(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_SERVICE_NAME="my-bot"):
            telegram.say(WORDS, chat=778899)
            found = check_trace(collector)
    assert {span.service for span in collector.spans} == {"my-bot"}
    assert [span.name for span in collector.spans].count("model call") == 2
    assert len(collector.spans) == len({span.id for span in collector.spans})
    assert found["model call"].attributes["gen_ai.request.model"] == MODEL
    assert found["tool call"].attributes["keryx.tool"] == "list_jobs"
    assert found["tool call"].parent == found["model call"].parent == found["turn"].id
    assert found["delivery"].attributes["keryx.outcome"] == "sent"
    assert "778899" not in str(collector.spans)


@pytest.mark.parametrize("killed_at", ["turn.finish:after:1", "delivery.settle:before:1"])
def test_a_kill_between_turn_and_delivery_leaves_one_whole_trace(
    tmp_path: Path, collector: Collector, killed_at: str
) -> None:
    with (
        Platform() as platform,
        Node(platform.url, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url) as node,
    ):
        node.start(KERYX_TEST_FAULT=killed_at)
        platform.say("chat", f"!tool look {WORDS}")
        assert node.process.wait(60) == -signal.SIGKILL
        node.end()
        node.start()
        check_trace(collector)
    assert {span.service for span in collector.spans} == {"keryx"}


def test_a_failed_turn_and_an_unreachable_chat_are_errors(tmp_path: Path, collector: Collector) -> None:
    with FakeTelegram() as telegram:
        telegram.blocked.add(7)
        keryx = Cli(
            tmp_path,
            KERYX_TELEGRAM_TOKEN=TOKEN,
            KERYX_TELEGRAM_BASE_URL=telegram.url,
            KERYX_TELEGRAM_ALLOW="*",
        )
        with keryx.serving(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{collector.url}/v1/traces"):
            telegram.say("!fail on purpose")
            assert collector.has_names("message", "delivery", "turn")
    assert {span.name for span in collector.spans if span.failed} == {"message", "delivery", "turn"}


def test_without_a_collector_nothing_is_imported() -> None:
    code = (
        "import asyncio, sys; from keryx import tracing, app\n"
        "async def main():\n"
        "    async with tracing.exporting():\n"
        "        assert not tracing.is_enabled()\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])\n"
    )
    environ = {"PATH": "/usr/bin:/bin", "OTEL_EXPORTER_OTLP_ENDPOINT": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_collector_without_the_extra_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)

    async def run() -> bool:
        async with tracing.exporting():
            return tracing.is_enabled()

    assert anyio.run(run) is False
    assert format_install_command("otel") in caplog.text


def test_a_stopped_node_does_not_wait_for_a_dead_collector(tmp_path: Path) -> None:
    keryx = Cli(tmp_path)
    with keryx.serving(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9") as node:
        keryx.session("hello")
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(60) == 0
