"""An editor whose agent is a model that says what scripts tell it to."""

import json
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.acp.driver import Editor, editor
from tests.fakes.endpoint import KEY, MODEL, Endpoint, Script


@contextmanager
def thinking(
    home: Path, *scripts: Script, capabilities: dict[str, object] | None = None, **model: object
) -> Generator[tuple[Editor, Endpoint]]:
    """`model` is what the settings say of it beside its address."""
    with ExitStack() as stack:
        endpoint = stack.enter_context(Endpoint(*scripts))
        zed = stack.enter_context(editor(home, **settings(home, endpoint, **model)))
        zed.initialize(**(capabilities or {}))
        zed.answers["session/request_permission"] = lambda _: {
            "outcome": {"outcome": "selected", "optionId": "allow"}
        }
        yield zed, endpoint


def settings(home: Path, endpoint: Endpoint, **model: object) -> dict[str, str]:
    """Write the settings of a home; gives the variables that its processes need."""
    home.mkdir(exist_ok=True)
    known = {"name": MODEL, "id": MODEL, "base_url": endpoint.base_url, "key": "env:TEST_KEY", **model}
    rows = [f"{key} = {json.dumps(value)}\n" for key, value in known.items()]
    (home / "keryx.toml").write_text("".join(["[[models]]\n", *rows]))
    return {"KERYX_AGENT": "llm", "TEST_KEY": KEY}
