import pytest
from tests import left_out


def skipped(reason: str) -> pytest.TestReport:
    return pytest.TestReport(
        "test", ("test.py", 1, ""), {}, "skipped", ("test.py", 1, f"Skipped: {reason}"), "setup"
    )


def test_the_summary_names_each_group_once_with_its_command_and_count() -> None:
    browser = left_out.reason(
        "tests in a browser", why="there is no\nChromium", command="apt-get install chromium"
    )
    disk = [left_out.reason("tests of a full disk", why=why, command="sudo make test") for why in ("a", "b")]
    assert left_out.summarize([skipped(text) for text in (browser, *disk)]) == [
        "tests in a browser: there is no Chromium. To run them: apt-get install chromium (1 test)",
        "tests of a full disk: b. To run them: sudo make test (2 tests)",
    ]


def test_a_case_that_does_not_apply_is_not_in_the_summary() -> None:
    assert left_out.summarize([skipped("this platform has no edits")]) == []
