"""Settings: shown with their origin, without secrets, and written down in full."""

import tomllib
from pathlib import Path

import msgspec
import pytest
from tests.cli.driver import Cli

from keryx.cli.commands import config
from keryx.config import Settings


def test_every_value_says_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "keryx.toml").write_text('busy = "steer"\n[limits]\nat_once = 5\n')
    found = Cli(tmp_path, KERYX_DRAIN="3s").json("config", "show")["settings"]
    assert found["busy"] == {"value": "steer", "source": "keryx.toml"}
    assert found["limits.at_once"] == {"value": 5, "source": "keryx.toml"}
    assert found["drain"] == {"value": "3s", "source": "KERYX_DRAIN"}
    assert found["host"]["source"] == "default"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:geheim@db/keryx", "postgresql://ann:***@db/keryx"),
        ("postgresql://ann:ge:he@im@db/keryx", "postgresql://ann:***@db/keryx"),
        (
            "postgresql://db/keryx?user=ann&password=geheim&x=1",
            "postgresql://db/keryx?user=ann&password=***&x=1",
        ),
        ("postgresql://ann@db/keryx", "postgresql://ann@db/keryx"),
        ("/var/lib/keryx.db", "/var/lib/keryx.db"),
    ],
)
def test_passwords_are_never_shown(tmp_path: Path, address: str, shown: str) -> None:
    keryx = Cli(tmp_path, KERYX_DATABASE=address)
    assert keryx.json("config")["settings"]["database"]["value"] == shown
    assert "geheim" not in keryx.ok("config").out


def test_the_path_of_the_file(keryx: Cli) -> None:
    assert keryx.ok("config", "path").out == f"{keryx.home}/keryx.toml\n"


def test_the_example_changes_nothing_and_uncommented_neither(keryx: Cli) -> None:
    text = keryx.ok("config", "example").out
    before = keryx.json("config")["settings"]
    keryx.home.mkdir()
    (keryx.home / "keryx.toml").write_text(text)
    assert tomllib.loads(text)
    assert {k: v["value"] for k, v in keryx.json("config")["settings"].items()} == {
        k: v["value"] for k, v in before.items()
    }
    assignments = [
        line.removeprefix("# ") for line in text.splitlines() if " = " in line or line.startswith("[")
    ]
    (keryx.home / "keryx.toml").write_text("\n".join(assignments))
    after = keryx.json("config")["settings"]
    assert {k: v["value"] for k, v in after.items()} == {k: v["value"] for k, v in before.items()}
    assert after["port"]["source"] in ("keryx.toml", "KERYX_PORT")


def test_every_setting_has_a_meaning() -> None:
    assert [row.name for row in config.list_settings()] == list(config.MEANINGS)
    assert len(config.list_settings()) > len(msgspec.structs.fields(Settings))


def test_every_variable_is_read(tmp_path: Path) -> None:
    plain = [row for row in config.list_settings() if row.variable and row.name != "home"]
    keryx = Cli(
        tmp_path, **{row.variable: str(row.default) for row in plain if row.default not in ("", True, False)}
    )
    found = keryx.json("config")["settings"]
    for row in plain:
        if row.default not in ("", True, False):
            assert found[row.name]["source"] == row.variable, row
