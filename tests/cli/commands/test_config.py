"""Settings: shown with their origin, without secrets, and written down in full."""

import tomllib
from pathlib import Path

import msgspec
import pytest
from tests.cli.driver import Cli

from keryx.cli.commands import config
from keryx.config import Settings
from keryx.surfaces.web.settings import verify_password


def test_every_value_says_where_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "keryx.toml").write_text('busy = "steer"\n[limits]\nat_once = 5\n')
    found = Cli(tmp_path, KERYX_DRAIN="3s").json("config", "show")["settings"]
    assert found["busy"] == {"value": "steer", "source": "keryx.toml"}
    assert found["limits.at_once"] == {"value": 5, "source": "keryx.toml"}
    assert found["drain"] == {"value": "3s", "source": "KERYX_DRAIN"}
    assert found["host"]["source"] == "default"


def test_a_password_is_typed_twice(tmp_path: Path) -> None:
    keryx = Cli(tmp_path)
    for second, code in (("open sesame\n", 0), ("open simsim\n", 2)):
        with keryx.terminal("config", "password") as terminal:
            terminal.see("Password (not shown): ")
            terminal.type("open sesame\n")
            terminal.see("The same again: ")
            terminal.type(second)
            terminal.see("scrypt" if code == 0 else "the two are not the same: start again")
            assert terminal.exit() == code


def test_a_password_can_be_piped_in_and_without_one_the_reason_is_named(tmp_path: Path) -> None:
    keryx = Cli(tmp_path)
    hashed = keryx.ok("config", "password", stdin="open sesame\n").out.strip()
    assert verify_password("open sesame", hashed)
    nobody = keryx("config", "password")
    assert nobody.code == 2 and "there is no terminal to ask in" in nobody.err


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\n[telegrm]\nx = 1", "line 2: Unknown setting telegrm; did you mean telegram?"),
        (
            "[resets.platforms.matrix]\nhour = 30",
            "line 2: resets.platforms.matrix.hour: write a whole number",
        ),
        ("port = ", "cannot be read"),
    ],
)
def test_a_wrong_setting_is_told_with_its_place_and_the_settings_are_still_shown(
    keryx: Cli, text: str, told: str
) -> None:
    keryx.home.mkdir()
    file = keryx.home / "keryx.toml"
    file.write_text(text)
    refused = keryx("sessions", "list")
    assert refused.code == 2 and told in refused.err and str(file) in refused.err
    assert keryx.ok("config", "path").out == f"{file}\n"
    shown = keryx("config")
    assert shown.code == 2 and told in shown.err and "limits.at_once" in shown.out
    assert told in keryx("config", "--json").json["error"]


def test_secrets_of_a_wrong_file_are_not_shown(keryx: Cli) -> None:
    keryx.home.mkdir()
    (keryx.home / "keryx.toml").write_text(
        """
prot = 1
models = [{ name = "a", key = "geheim" }]
[telegram]
token = "geheim"
[agents.x.env]
NAME = "geheim"
[agents.y]
env = { OTHER = "geheim" }
"""
    )
    for shown in (keryx("config"), keryx("config", "--json"), keryx("doctor")):
        assert "geheim" not in shown.out + shown.err


def test_a_wrong_variable_is_told_by_its_name(tmp_path: Path) -> None:
    told = Cli(tmp_path, KERYX_BUSY="stear")("sessions", "list").err
    assert "KERYX_BUSY: busy = 'stear' is not known" in told and "'steer'" in told


def test_durations_are_read_in_every_table(keryx: Cli) -> None:
    keryx.home.mkdir()
    (keryx.home / "keryx.toml").write_text(
        """
[resets.platforms.telegram]
idle = "2h"
[resets.chat_types.dm]
idle = "2h"
[resets.places.telegram.dm]
idle = "2h"
"""
    )
    found = keryx.json("config")["settings"]
    for table in ("platforms.telegram", "chat_types.dm", "places.telegram.dm"):
        assert found[f"resets.{table}.idle"] == {"value": "2h", "source": "keryx.toml"}


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
