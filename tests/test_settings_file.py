"""Changes to keryx.toml in place, and the files of secrets."""

import stat
import tomllib
from pathlib import Path

import pytest

from keryx import settings_file
from keryx.core.errors import Conflict, Invalid


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", '[a.b]\nx = "1"\n'),
        ("# note\nport = 1\n", '# note\nport = 1\n\n[a.b]\nx = "1"\n'),
        (
            '[a.b] # mine\n# kept\nx = "0"\ny = 2\n\n[c]\nx = 3\n',
            '[a.b] # mine\n# kept\nx = "1"\ny = 2\n\n[c]\nx = 3\n',
        ),
        ("[a.b]\ny = 2\n[c]\n", '[a.b]\nx = "1"\ny = 2\n[c]\n'),
        ('[a.b]\nx = [\n  "0", # zero\n]\ny = 2\n', '[a.b]\nx = "1"\ny = 2\n'),
    ],
    ids=["new", "appended", "replaced", "added", "several lines"],
)
def test_the_rest_of_the_settings_file_stays_as_it_is(old: str, new: str) -> None:
    assert settings_file.update_text(old, "a.b", {"x": "1"}) == new


@pytest.mark.parametrize("old", ["a = { b = { y = 2 } }\n", "[a\n"])
def test_a_file_that_cannot_be_changed_safely_is_left_alone(old: str) -> None:
    with pytest.raises(Invalid):
        settings_file.update_text(old, "a.b", {"x": "1"})


def test_tables_and_secrets_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    home = tmp_path / "home"
    path = settings_file.write(home, {"a": {"x": "1"}, "access.a": {"allow": ["ann"]}}, {"a-token": "s3cret"})
    secret = settings_file.find_secret(home, "a-token")
    assert path.read_text() == '[a]\nx = "1"\n\n[access.a]\nallow = ["ann"]\n'
    assert secret.read_text() == "s3cret\n"
    assert [stat.S_IMODE(p.stat().st_mode) for p in (home, secret.parent, secret, path)] == [
        0o700,
        0o700,
        0o600,
        0o600,
    ]
    for text, told in (("a = { c = 1 }\n", r"write in it, under \[a\.b\]"), ("a = 1\n", "has a value for a")):
        path.write_text(text)
        with pytest.raises(Invalid, match=told):
            settings_file.write(home, {"a.b": {"x": "1"}}, {"a-token": "another"})
        assert secret.read_text() == "s3cret\n" and path.read_text() == text


def test_a_table_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert settings_file.read_table(tmp_path, "a.b") == {}
    (tmp_path / "keryx.toml").write_text("a = 1\n[c.d]\nx = 2\n")
    assert settings_file.read_table(tmp_path, "a.b") == {}
    assert settings_file.read_table(tmp_path, "c.d") == {"x": 2}
    (tmp_path / "keryx.toml").write_text("[c\n")
    with pytest.raises(Invalid, match="Mend it first"):
        settings_file.read_table(tmp_path, "c.d")


MODELS = """# mine
[[models]]  # the first
name = "small"
id = "s-1"
# cheap
[models.prices]
input = 0.1

[[models]]
name = "large"
id = "l-1"

[limits]
at_once = 3
"""


def test_one_of_several_tables_is_added_changed_and_removed() -> None:
    changed = settings_file.update_item(
        MODELS, "models", "small", {"id": "s-2", "prices": {"input": 0.2}, "tools": False}
    )
    assert changed.startswith("# mine\n[[models]]  # the first\nprices = { input = 0.2 }\ntools = false\n")
    assert "# cheap" in changed and changed.endswith("[limits]\nat_once = 3\n")
    added = settings_file.update_item(MODELS, "models", "new", {"id": "n-1"})
    assert added == MODELS + '\n[[models]]\nname = "new"\nid = "n-1"\n'
    removed = settings_file.update_item(added, "models", "small", None)
    assert [m["name"] for m in tomllib.loads(removed)["models"]] == ["large", "new"]
    assert settings_file.update_item('[[a]]\nname = "b"\n', "a", "b", None) == ""


def test_tables_in_another_form_are_left_alone() -> None:
    with pytest.raises(Invalid, match=r"write \[\[models\]\] tables"):
        settings_file.update_item('models = [{ name = "a" }]\n', "models", "a", {"id": "b"})


def test_a_setting_above_the_tables_is_set_and_removed() -> None:
    text = settings_file.update_text("# first\nport = 1\n\n[a]\nmodel = 2\n", "", {"model": "small"})
    assert text == 'model = "small"\n# first\nport = 1\n\n[a]\nmodel = 2\n'
    assert "small" not in settings_file.update_text(text, "", {"model": None})


def test_a_table_is_removed_with_those_below_it() -> None:
    text = "[profiles.work]\nagent = 'a'\n[profiles.work.x]\ny = 1\n[limits]\nz = 1\n"
    assert settings_file.remove_table(text, "profiles.work") == "[limits]\nz = 1\n"
    assert settings_file.remove_table("[a]\nb = 1\n[a.c]\nd = 1\n", "a.c") == "[a]\nb = 1\n"


def test_a_change_that_its_check_refuses_is_not_written(tmp_path: Path) -> None:
    def refuse(text: str) -> None:
        raise Invalid(f"no: {text}")

    with pytest.raises(Invalid, match="no: x"):
        settings_file.change(tmp_path, lambda text: "x = 1\n", {"token": "s3cret"}, check=refuse)
    assert not list(tmp_path.iterdir())


def test_a_change_of_another_program_is_not_overwritten(tmp_path: Path) -> None:
    def write_meanwhile(text: str) -> None:
        (tmp_path / "keryx.toml").write_text("port = 1\n")

    with pytest.raises(Conflict):
        settings_file.change(tmp_path, lambda text: "x = 1\n", check=write_meanwhile)
    assert (tmp_path / "keryx.toml").read_text() == "port = 1\n"
