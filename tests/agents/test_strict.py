"""The strict endpoint refuses what providers refuse."""

from typing import Any

import pytest
from tests.fakes import strict
from tests.fakes.strict import Wrong

Messages = list[dict[str, Any]]

SYSTEM = {"role": "system", "content": "be kind"}
USER = {"role": "user", "content": "hi"}
SAID = {"role": "assistant", "content": "hello"}


def call(id: str = "c1", name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
    }


def result(id: str = "c1") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id, "content": "found"}


def check(messages: Messages, **body: Any) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    strict.check({"model": "m", "messages": messages, "tools": tools, **body})


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [SYSTEM, USER],
        [USER, SAID, USER],
        [USER, call(), result()],
        [USER, call(), result(), SAID, USER],
    ],
)
def test_good_requests_pass(messages: Messages) -> None:
    check(messages)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "too short"),
        ([SAID, USER], "first message must use the user role"),
        ([USER, SYSTEM], "at the beginning"),
        ([USER, USER], "must alternate"),
        ([USER, SAID], "Expected last role"),
        ([USER, call()], "Expected last role"),
        ([USER, call(), result(), USER], "after role 'tool'"),
        ([USER, call(), result("c2")], "response to a preceding"),
        ([USER, call(), result(), result()], "response to a preceding"),
        ([USER, call(), result(), call(), result()], "Duplicate"),
        ([USER, call("c" * 41), result("c" * 41)], "maximum length 40"),
        ([USER, call(name="a b"), result()], "does not match pattern"),
        ([USER, call(arguments="{"), result()], "valid JSON"),
        ([USER, call(arguments="[]"), result()], "JSON object"),
        ([{"role": "user", "content": " "}], "non-empty"),
        ([{"role": "user", "content": None}], "non-empty"),
        ([{"role": "user", "content": "hi", "mood": "good"}], "'mood' was unexpected"),
        ([{"role": "person", "content": "hi"}], "Invalid value"),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "non-empty"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "m1"}}]}], "image URL"),
    ],
)
def test_bad_requests_are_refused(messages: Messages, reason: str) -> None:
    with pytest.raises(Wrong, match=reason):
        check(messages)


def test_an_unknown_argument_of_a_request_is_refused() -> None:
    with pytest.raises(Wrong, match="mood"):
        check([USER], mood="good")
