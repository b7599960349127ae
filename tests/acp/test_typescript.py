"""The real TypeScript library as the editor, over a whole scenario with kills."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, validate
from tests.acp.driver import command, story, variables
from tests.acp.sdk import Missing, library


@pytest.fixture(scope="module")
def sdk() -> Path:
    try:
        return library()
    except Missing as exc:
        pytest.skip(f"THE TYPESCRIPT LIBRARY IS NOT TESTED: {exc}")


@pytest.fixture(scope="module")
def told(sdk: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("home")
    script = Path(__file__).with_name("client.mjs")
    entry = sdk / "dist" / "v1" / "unstable" / "acp.js"
    done = subprocess.run(
        ["node", str(script), str(entry), "/tmp", *command()],
        env=variables(home),
        capture_output=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def chat(told: dict[str, Any], phase: str) -> list[tuple[str, str, str]]:
    session = told["made"]["sessionId"]
    return story([u["update"] for u in told[phase] if u["sessionId"] == session])


def test_every_request_is_answered_as_the_library_expects(told: dict[str, Any]) -> None:
    assert told["initialize"]["protocolVersion"] == 1
    assert {o["id"]: o["currentValue"] for o in told["option"]["configOptions"]}["effort"] == "high"
    for name in ("first", "tool", "plan", "asked", "after"):
        assert told[name] == {"stopReason": "end_turn"}, name
    assert told["cancelled"] == {"stopReason": "cancelled"}
    assert told["cancelMillis"] < 2000
    assert (told["unknown"], told["relative"]) == (-32002, -32602)
    assert told["permissions"] == 1
    assert told["code"] == 0


def test_after_a_kill_the_replay_shows_what_was_seen_in_order_and_once(told: dict[str, Any]) -> None:
    live, replayed = chat(told, "live"), chat(told, "replayed")
    known = {id_: text for _, id_, text in live}
    again = [(kind, id_, text) for kind, id_, text in replayed if id_ in known]
    assert [(k, i) for k, i, _ in again] == [(k, i) for k, i, _ in live]
    assert all(text.startswith(known[id_]) for _, id_, text in again)
    assert [text for kind, _, text in replayed if kind == "user_message_chunk"] == [
        "!think hello",
        '!tool ls {"path": "/tmp"}',
        "!plan a; b",
        "!ask rm -rf build",
        "slow 60 one two three",
        "slow 60 alpha beta gamma",
    ]


def test_every_update_and_answer_fits_the_published_schema(told: dict[str, Any], sdk: Path) -> None:
    schema = json.loads((sdk / "schema" / "v1" / "schema.json").read_text())

    def check(kind: str, value: object) -> None:
        validate(value, {"$ref": f"#/$defs/{kind}", "$defs": schema["$defs"]}, cls=Draft202012Validator)

    for update in (*told["live"], *told["replayed"]):
        check("SessionNotification", update)
    kinds = {
        "initialize": "InitializeResponse",
        "made": "NewSessionResponse",
        "option": "SetSessionConfigOptionResponse",
        "first": "PromptResponse",
        "loaded": "LoadSessionResponse",
        "listed": "ListSessionsResponse",
        "resumed": "ResumeSessionResponse",
        "closed": "CloseSessionResponse",
        "deleted": "DeleteSessionResponse",
    }
    for name, kind in kinds.items():
        check(kind, told[name])


def test_settings_lists_forks_and_deletes_hold(told: dict[str, Any]) -> None:
    for name in ("loaded", "resumed", "forked"):
        assert {o["id"]: o["currentValue"] for o in told[name]["configOptions"]}["effort"] == "high", name
    assert [s["sessionId"] for s in told["listed"]["sessions"]] == [told["made"]["sessionId"]]
    assert told["left"] == [told["forked"]["sessionId"]]
