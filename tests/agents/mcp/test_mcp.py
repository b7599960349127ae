"""Tools of real MCP servers, as processes and over HTTP: what works, and one clear sentence for what does not."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agents.conversation import a_context
from tests.agents.http_tool_server import SCRIPT, Far

from keryx.agents.agent_config import ToolServerConfig
from keryx.agents.mcp import McpToolbox, mcp_client, open_toolboxes
from keryx.agents.mcp.mcp_client import OUTCOME_UNKNOWN
from keryx.agents.tools import Permission, ToolFailed
from keryx.core.ids import ProfileId
from keryx.core.ports.agent import FileEvent
from keryx.core.texts import Catalogue
from keryx.testing import FakeClock
from keryx.timing import SystemClock

WITH_LOG = "its log is tools/test.log in the home folder of Keryx"
CONTEXT = a_context()
pytestmark = pytest.mark.timeout(180)


def a_server(folder: Path, **fields: Any) -> ToolServerConfig:
    command = (sys.executable, SCRIPT, str(folder / "runs"))
    return msgspec.structs.replace(ToolServerConfig(name="test", command=command), **fields)


def opened(folder: Path, *given: ToolServerConfig) -> AbstractAsyncContextManager[dict[str, McpToolbox]]:
    return open_toolboxes(given, clock=SystemClock(), logs=folder / "logs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tools")


@pytest.fixture(scope="module")
async def tools(folder: Path) -> AsyncIterator[McpToolbox]:
    """A server that all tests of this module share, as turns do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERYX_TEST_TOOL_SECRET", "s3cret")
        server = a_server(folder, env={"TOOL_SECRET": "env:KERYX_TEST_TOOL_SECRET"}, repeatable=("big",))
        async with opened(folder, server) as found:
            await found["test"].specs(CONTEXT)
            yield found["test"]


async def called(tools: McpToolbox, name: str, **arguments: Any) -> str:
    return (await tools.call(name, arguments, CONTEXT)).text


async def failed(tools: McpToolbox, name: str, **arguments: Any) -> str:
    with pytest.raises(ToolFailed) as failure:
        await tools.call(name, arguments, CONTEXT)
    return str(failure.value)


async def test_what_a_server_says_of_its_tools_is_passed_on(tools: McpToolbox) -> None:
    specs = {s.name: s for s in await tools.specs(CONTEXT)}
    look, write = specs["test_look"], specs["test_write"]
    assert look.description == "Look something up."
    assert look.parameters["properties"]["q"]["type"] == "string"
    assert (look.permission, look.repeatable) == (Permission.ALLOW, True)
    assert (write.permission, write.repeatable) == (Permission.ASK, False)
    assert (specs["test_wait"].permission, specs["test_wait"].repeatable) == (Permission.ASK, True)
    assert specs["test_big"].repeatable, "the settings say so"


async def test_a_tool_is_called_by_the_name_that_providers_accept(tools: McpToolbox) -> None:
    (name,) = [s.name for s in await tools.specs(CONTEXT) if "odd" in s.name]
    assert len(name) == 64 and name.replace("_", "").isalnum() and name.isascii()
    assert await called(tools, name) == "odd"


async def test_calls_run_side_by_side(tools: McpToolbox, tmp_path: Path) -> None:
    waiting = asyncio.ensure_future(called(tools, "test_wait", path=str(tmp_path / "go")))
    assert await called(tools, "test_look", q="a") == "found a"
    assert not waiting.done()
    (tmp_path / "go").touch()
    assert await waiting == "it is there"


async def test_a_picture_is_for_the_person_and_named_to_the_model(tools: McpToolbox) -> None:
    given = await tools.call("test_picture", {}, CONTEXT)
    assert given.text == "here it is\n[image of type image/png, about 15 bytes: shown to the person]"
    assert given.files == (FileEvent("picture-1.png", "image/png", b"not a picture"),)


async def test_a_secret_is_read_by_reference_and_errors_are_kept_apart(
    tools: McpToolbox, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert (folder / "logs" / "test.log").read_text().splitlines()[0] == "started with s3cret"
    assert "s3cret" not in capfd.readouterr().err


async def test_the_log_of_a_server_that_complains_all_the_time_stays_short(
    tools: McpToolbox, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = folder / "logs" / "test.log"
    assert await called(tools, "test_look", q="complain 9000")
    assert await called(tools, "test_look", q="complain 3000")
    async with asyncio.timeout(60):
        while not any("logs too much" in r.getMessage() for r in caplog.records):  # noqa: ASYNC110 nothing else tells
            await asyncio.sleep(0.02)
    # 10,000 lines were written, and it began anew after the first megabyte.
    assert 0 < file.stat().st_size <= 1_000_100
    assert await called(tools, "test_look", q="a") == "found a"


async def test_arguments_that_do_not_fit_fail(tools: McpToolbox) -> None:
    assert "text" in await failed(tools, "test_write")
    assert await failed(tools, "test_nothing") == "There is no tool 'test_nothing' any more."


async def test_a_server_that_dies_is_one_sentence_and_comes_back(tools: McpToolbox, folder: Path) -> None:
    assert await failed(tools, "test_die") == (
        f"The tool server 'test' ended before it answered. {OUTCOME_UNKNOWN} It is started again when it is needed."
        " Its log is tools/test.log in the home folder."
    )
    assert await called(tools, "test_look", q="again") == "found again"


async def test_ten_megabytes_come_through(tools: McpToolbox) -> None:
    assert len(await called(tools, "test_big", size=10_000_000)) == 10_000_000


async def test_a_result_that_is_too_long_is_one_sentence_and_is_not_kept(tools: McpToolbox) -> None:
    said = await failed(tools, "test_big", size=40_000_000)
    assert said == "The tool server 'test' refused the call: its answer has more than 32000000 bytes"
    assert await called(tools, "test_look", q="again") == "found again"


async def test_a_tool_that_hangs_is_given_up(tmp_path: Path) -> None:
    async with opened(tmp_path, a_server(tmp_path, timeout=timedelta(seconds=0.5))) as found:
        await found["test"].specs(CONTEXT)
        assert await failed(found["test"], "test_stuck", path=str(tmp_path / "never")) == (
            f"The tool server 'test' did not answer within 0.5 s. {OUTCOME_UNKNOWN}"
        )
        assert await called(found["test"], "test_look") == "found nothing"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (("/nowhere/at-all",), "there is no program '/nowhere/at-all'"),
        (("/bin/false",), f"it ended at once; {WITH_LOG}"),
        (("/bin/echo", "hello"), f"it ended at once; {WITH_LOG}"),
    ],
)
async def test_a_server_that_does_not_start_is_told_once_it_is_needed(
    tmp_path: Path, command: tuple[str, ...], why: str
) -> None:
    async with opened(tmp_path, a_server(tmp_path, command=command)) as found:
        tools = found["test"]
        assert tools.warnings(CONTEXT) == ()
        assert await tools.specs(CONTEXT) == []
        assert tools.warnings(CONTEXT) == [
            f"The tools of 'test' are missing: {why}. `keryx tools check` says more."
        ]


async def test_a_server_that_starts_too_slowly_names_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_client, "_START_SECONDS", 0.2)
    async with opened(tmp_path, a_server(tmp_path, command=("/bin/sleep", "60"))) as found:
        assert await found["test"].specs(CONTEXT) == []
        [warning] = found["test"].warnings(CONTEXT)
    assert warning == (
        f"The tools of 'test' are missing: it did not start within 0 seconds; {WITH_LOG}. `keryx tools check` says more."
    )
    assert Catalogue(language="de").speak().render(warning) == (
        "Die Werkzeuge von 'test' fehlen: der Server ist in 0 Sekunden nicht gestartet;"
        " sein Protokoll ist tools/test.log im Ordner von Keryx."
    )


async def test_a_missing_secret_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path, a_server(tmp_path, env={"TOKEN": "env:KERYX_TEST_NO_SUCH"})) as found:
        assert await found["test"].specs(CONTEXT) == []
        assert (
            "TOKEN of tools 'test' is missing: set the variable KERYX_TEST_NO_SUCH"
            in (found["test"].warnings(CONTEXT)[0])
        )


async def test_a_server_that_fails_again_and_again_is_left_alone_for_a_while(tmp_path: Path) -> None:
    clock = FakeClock()
    server = a_server(tmp_path, command=("/bin/false",))
    async with open_toolboxes([server], clock=clock, logs=tmp_path) as found:
        connection = found["test"].client
        waits: list[str] = []
        for _ in range(4):
            with pytest.raises(ToolFailed) as failure:
                await connection.tools()
            waits.append(str(failure.value).rpartition("again in ")[2])
            clock.advance(1 if len(waits) == 3 else 0)
    assert waits[2] == "1 s." and not waits[0].endswith("s.") and not waits[3].endswith("s.")


async def test_a_server_serves_its_profiles_only(tools: McpToolbox, tmp_path: Path) -> None:
    async with opened(tmp_path, a_server(tmp_path, profiles=("work",))) as found:
        assert await found["test"].specs(CONTEXT) == ()
        work = msgspec.structs.replace(CONTEXT, profile=ProfileId("work"))
        assert await found["test"].specs(work)


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    far = Far(tmp_path / "runs")
    far.start()
    try:
        yield far
    finally:
        far.kill()


async def test_a_server_over_http_comes_and_goes(tmp_path: Path, far: Far) -> None:
    clock = FakeClock()
    async with open_toolboxes([far.server], clock=clock, logs=tmp_path) as found:
        tools = found["far"]
        assert "far_look" in [s.name for s in await tools.specs(CONTEXT)]
        assert await called(tools, "far_look", q="it") == "found it"
        far.kill()
        assert "ended before it answered" in await failed(tools, "far_look")
        assert "nobody answers at http://127.0.0.1" in await failed(tools, "far_look")
        far.start()
        clock.advance(60)
        assert await called(tools, "far_look", q="again") == "found again"


async def test_an_address_that_nobody_listens_on_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path, ToolServerConfig(name="far", url="http://127.0.0.1:9/mcp")) as found:
        assert await found["far"].specs(CONTEXT) == []
        assert "nobody answers at http://127.0.0.1:9/mcp" in found["far"].warnings(CONTEXT)[0]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "Bad Name", "command": ("x",)}, "is not a name for tools"),
        ({"name": "x"}, "either a command or a url"),
        ({"name": "x", "command": ("x",), "url": "http://x"}, "either a command or a url"),
        ({"name": "x", "url": "http://x", "headers": {"Authorization": "Bearer y"}}, "not the value itself"),
    ],
)
def test_a_wrong_setting_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        ToolServerConfig(**fields)


def test_an_address_is_shown_without_its_secrets() -> None:
    assert ToolServerConfig(name="x", url="https://me:pw@host/mcp?key=1").address == "https://host/mcp"
