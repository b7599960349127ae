"""A compaction as people see it: in the terminal, in what is listed and exported, and on the page."""

from pathlib import Path

import pytest
from tests.cli.driver import Cli
from tests.fakes.endpoint import KEY, MODEL, Endpoint, Refusal, answer

LONG = "w" * 1600
REFUSED = Refusal(status=400, message="no summaries today")


def connect(home: Path, endpoint: Endpoint) -> Cli:
    home.mkdir()
    (home / "keryx.toml").write_text(
        f'[[models]]\nname = "m"\nbase_url = "{endpoint.base_url}"\nid = "{MODEL}"\nkey = "env:TEST_KEY"\n'
        "context = 1500\ntools = false\ntitles = false\n[compaction]\nat = 0.5\nkeep = 0.2\n"
    )
    return Cli(home, KERYX_AGENT="llm", TEST_KEY=KEY)


@pytest.mark.parametrize("telling", ["one\ntwo\nthree\n", "one\ntwo\n/compact the dates\nthree\n"])
def test_the_terminal_lists_and_exports_show_the_marker_with_its_summary(
    tmp_path: Path, telling: str
) -> None:
    with Endpoint(answer(LONG), answer(LONG), answer("We spoke of w."), answer("Third.")) as endpoint:
        keryx = connect(tmp_path / "home", endpoint)
        said = keryx.ok("chat", stdin=telling)
        assert said.out == f"{LONG}\n{LONG}\nThird.\n"
        assert "summarized to make room" in said.err and "We spoke of w." in said.err
        (entry,) = keryx.json("sessions", "list")["sessions"]
        session = entry["session"]["id"]
        for told in (
            keryx.ok("sessions", "show", session).out,
            keryx.ok("sessions", "export", session, "--format", "md").out,
            keryx.ok("sessions", "export", session, "--format", "html").out,
        ):
            assert told.count("We spoke of w.") == 1 and told.count("w" * 70) >= 2
            assert "summarized" in told or "compacted here" in told
        assert ("keep above all: the dates" in keryx.ok("sessions", "show", session).out) == (
            "/compact" in telling
        )


def test_the_terminal_shows_a_compaction_that_failed(tmp_path: Path) -> None:
    with Endpoint(answer(LONG), answer(LONG), REFUSED, answer("Third.")) as endpoint:
        keryx = connect(tmp_path / "home", endpoint)
        said = keryx.ok("chat", stdin="one\ntwo\nthree\nfour\n")
    assert said.out.splitlines()[-2:] == ["Third.", "Third."]
    assert said.err.count("The conversation could not be summarized: ") == 1
