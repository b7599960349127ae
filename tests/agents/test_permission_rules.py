"""What a lasting consent covers: it must allow what the question showed, and nothing that was not shown."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keryx.agents.permission_rules import CallScope, find_scope
from keryx.core.questions import is_about
from keryx.core.texts import Phrase


def scope(cwd: str = "/home/ada/site", tool: str = "run", **arguments: Any) -> CallScope:
    return find_scope(tool, arguments, cwd=cwd)


def allows(first: CallScope, later: CallScope) -> bool:
    return first.rule in later.rules


def test_a_simple_command_covers_those_with_the_same_first_word() -> None:
    first = scope(command="git status")
    assert (first.rule, first.label) == ("run(git *)", "Always allow git commands in this conversation")
    assert allows(first, scope(command="git log -p --all"))
    assert allows(first, scope(command="git commit -m 'what is new'"))
    assert allows(first, scope(command="git", args=["push"]))
    assert not allows(first, scope(command="gitk"))
    assert not allows(first, scope(command="rm -rf build"))
    assert not allows(first, scope(tool="other", command="git status"))


@pytest.mark.parametrize(
    "command",
    [
        "git status; rm -rf /",
        "git status && rm -rf /",
        "git status | sh",
        "git log > /etc/passwd",
        "git $(rm -rf /)",
        "git `rm -rf /`",
        "git status\nrm -rf /",
        "git status &",
        "X=1 git status",
        "git 'unclosed",
        "sh -c 'git status'",
        "sudo git status",
        "/usr/bin/env git status",
        "python3 -c 'import os'",
        "find . -exec rm {} +",
    ],
)
def test_a_command_that_may_run_another_is_covered_exactly_only(command: str) -> None:
    simple, first = scope(command="git status"), scope(command=command)
    assert first.label == "Always allow exactly this command in this conversation"
    assert not allows(simple, first) and not allows(first, simple)
    assert allows(first, scope(command=command)) and not allows(first, scope(command=f"{command} x"))


def test_long_commands_differ_at_their_end_too() -> None:
    long = "echo a; " * 100
    assert allows(scope(command=long), scope(command=long))
    assert not allows(scope(command=long), scope(command=f"{long}rm -rf /"))


def test_a_file_covers_its_folder_and_what_is_in_it() -> None:
    first = scope(tool="write", path="src/a.txt")
    assert (first.rule, first.label) == (
        "write(/home/ada/site/src/)",
        "Always allow write in /home/ada/site/src in this conversation",
    )
    assert allows(first, scope(tool="write", path="/home/ada/site/src/b.txt"))
    assert allows(first, scope(tool="write", path="src/deep/er/c.txt"))
    assert not allows(first, scope(tool="write", path="d.txt"))
    assert not allows(first, scope(tool="write", path="src/../d.txt"))
    assert not allows(first, scope(tool="write", path="/home/ada/site/src2/e.txt"))
    assert not allows(first, scope(tool="delete", path="src/a.txt"))


def test_all_paths_of_a_call_must_be_in_the_folder() -> None:
    first = scope(tool="move", source="src/a", destination="src/b")
    assert allows(first, scope(tool="move", source="src/c", destination="src/d/e"))
    assert not allows(first, scope(tool="move", source="src/c", destination="/tmp/c"))


def test_a_file_at_the_root_covers_itself() -> None:
    first = scope(cwd="", tool="write", path="notes")
    assert first.label == "Always allow write for exactly this in this conversation"
    assert allows(first, scope(cwd="", tool="write", path="notes"))
    assert not allows(first, scope(cwd="", tool="write", path="other"))


def test_another_tool_is_covered_as_a_whole() -> None:
    assert scope(tool="look", q="the pump") == CallScope(
        "look", Phrase("question.always_tool", tool="look"), ("look",)
    )


def test_a_rule_belongs_to_its_tool() -> None:
    assert is_about("run(git *)", "run") and is_about("run(git *)", "run(git *)") and is_about("run", "run")
    assert not is_about("runner(git *)", "run") and not is_about("run(git *)", "run(git")


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_input_is_an_error_and_a_consent_covers_the_call_that_it_was_given_to(
    one: str, other: str
) -> None:
    for arguments in (
        {"command": one},
        {"path": one, "paths": [other, 1]},
        {"command": [one, other]},
        {"args": one},
    ):
        found = find_scope("run", arguments, cwd=other)
        assert found.rule in found.rules and found.rule.startswith("run")
