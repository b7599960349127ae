"""The contract suite as the author of another package runs it: over the adapter of the how-to page, and over an agent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_blocks import ROOT, programs

PAGE = ROOT / "docs/how-to/write-an-adapter.md"
PARROT = """
from contextlib import asynccontextmanager

from keryx import TextDelta
from keryx.testing.contracts import AgentHarness, Behaviour


class Parrot:
    async def run(self, context):
        yield TextDelta("Polly")


@asynccontextmanager
async def open_harness():
    yield AgentHarness(agent=Parrot(), messages={Behaviour.ANSWER: "hello"})
"""
STORE = "                await context.receive(parse(event))\n"
ACKNOWLEDGE = "            await self._client.delete(f\"/events/{raw['id']}\")\n"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, body in programs(PAGE):
        (tmp_path / name).write_text(body, encoding="utf-8")
    (tmp_path / "parrot.py").write_text(PARROT, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    return tmp_path


def run_suite(folder: Path, *arguments: str, **environ: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", "pytest.ini", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTEST_ADDOPTS": "", **environ},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


# The next test runs all of it.
@pytest.mark.parametrize(
    "only",
    [("-k", "not_stored or an_answer_is_text"), pytest.param((), marks=pytest.mark.faults)],
    ids=["some", "all"],
)
def test_the_suite_runs_over_other_packages_with_one_line(package: Path, only: tuple[str, ...]) -> None:
    code, out = run_suite(
        package,
        "--pyargs",
        "keryx.testing",
        *only,
        KERYX_TEST_ADAPTER="carrier_fake:open_harness",
        KERYX_TEST_AGENT="parrot:open_harness",
    )
    assert code == 0 and " passed" in out, out


def test_the_suite_runs_as_a_module_of_another_package(package: Path) -> None:
    code, out = run_suite(package, "test_carrier.py")
    assert code == 0 and " passed" in out, out


def test_without_a_harness_the_suite_says_what_to_name(package: Path) -> None:
    code, out = run_suite(package, "--pyargs", "keryx.testing")
    assert code == 1 and "KERYX_TEST_ADAPTER=" in out


def test_an_adapter_that_acknowledges_before_it_stores_fails(package: Path) -> None:
    adapter = package / "carrier.py"
    text = adapter.read_text(encoding="utf-8")
    assert STORE + ACKNOWLEDGE in text
    eager = text.replace(STORE + ACKNOWLEDGE, f"    {ACKNOWLEDGE}{STORE}")
    adapter.write_text(eager, encoding="utf-8")
    code, out = run_suite(
        package,
        "--pyargs",
        "keryx.testing",
        "-k",
        "not_stored",
        KERYX_TEST_ADAPTER="carrier_fake:open_harness",
        KERYX_TEST_SECONDS="3",
    )
    assert code == 1 and "FAILED" in out and "test_an_event_that_was_not_stored_is_handed_over_again" in out


def test_a_trait_without_its_hook_fails_with_what_to_add(package: Path) -> None:
    fake = package / "carrier_fake.py"
    text = fake.read_text(encoding="utf-8")
    fake.write_text(text.replace("            delete=fake.delete,\n", ""), encoding="utf-8")
    code, out = run_suite(package, "test_carrier.py", "-k", "declared or deletion")
    assert code == 1 and "Trait.DELETES is declared, so the harness needs delete(chat)" in out
    assert "the harness needs delete(chat): the person deletes their last message" in out
