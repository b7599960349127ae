"""`keryx jobs`: prompts that run by a schedule, made and looked at from a terminal."""

import re

import pytest
from tests.cli.driver import Cli


def test_a_job_is_made_shown_rested_and_removed(keryx: Cli) -> None:
    assert "`keryx jobs list --all` shows those that are over" in keryx.ok("jobs", "list").out
    assert "No jobs now" in keryx.ok("jobs", "list", "--all").out
    assert "one that is over goes by its id" in keryx("jobs", "runs", "tea").err
    made = keryx.json("jobs", "add", "every 2h", "Check the news", "--to", "local:news", "--name", "news")
    assert (made["name"], made["targets"]) == ("news", [{"platform": "local", "chat": "news"}])
    assert "every 2h" in keryx.ok("jobs", "list").out
    shown = keryx.ok("jobs", "show", "new").out
    assert "Check the news" in shown and "It has not run yet." in shown
    assert keryx.json("jobs", "pause", "news")["state"] == "paused"
    assert "goes on, next" in keryx.ok("jobs", "resume", "news").out
    assert keryx.ok("jobs", "remove", "news", "--yes").out == "Removed news.\n"
    assert keryx.json("jobs", "list") == {"jobs": []}


def test_the_next_time_is_shown_with_its_date_in_the_zone_of_the_job(keryx: Cli) -> None:
    made = keryx.ok("jobs", "add", "0 9 1 1 *", "Greet", "--zone", "Pacific/Auckland").out
    assert re.search(r", next \d{4}-01-01 09:00 Pacific/Auckland\.\n", made)
    for command in (("list",), ("show", "greet")):
        assert re.search(r"\d{4}-01-01 09:00 Pacific/Auckland", keryx.ok("jobs", *command).out)


def test_a_run_waits_for_a_node_and_says_so(keryx: Cli) -> None:
    keryx.ok("jobs", "add", "@daily", "hello")
    begun = keryx("jobs", "run", "hello")
    assert "keryx sessions show" in begun.out and "no node runs now" in begun.err
    (run,) = keryx.json("jobs", "runs", "hello")["runs"]
    assert (run["status"], run["deliveries"]) == ("queued", [])
    shown = keryx.ok("sessions", "show", run["session"]).out
    assert "hello" in shown
    assert run["session"] not in keryx.ok("sessions", "list").out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "soon", "tea"), "every 2h"),
        (("add", "30m", "tea", "--to", "telegram"), "telegram is not connected"),
        (("add", "30m", "tea", "--to", "origin"), "`origin` has no meaning here"),
        (("add", "30m", "tea", "--zone", "Mars"), "time zone"),
        (("add", "30m", ""), "needs a prompt"),
        (("show", "nothing"), "there is no job"),
        (("runs", "x", "--limit", "0"), "above zero"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(keryx: Cli, arguments: tuple[str, ...], said: str) -> None:
    result = keryx("jobs", *arguments)
    assert result.code and not result.out
    assert said in result.err


def test_a_setting_gives_the_zone_and_a_wrong_one_is_refused(keryx: Cli) -> None:
    keryx.variables["KERYX_JOBS_ZONE"] = "Asia/Tokyo"
    assert keryx.json("jobs", "add", "0 9 * * *", "x")["schedule"]["zone"] == "Asia/Tokyo"
    keryx.variables["KERYX_JOBS_ZONE"] = "Mars/Crater"
    assert "Mars/Crater" in keryx("jobs", "list").err
