"""Changes to keryx.toml in place, and the files of secrets."""

import stat
from pathlib import Path

import pytest

from keryx import settings_file
from keryx.core.errors import Invalid


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
    ],
    ids=["new", "appended", "replaced", "added"],
)
def test_the_rest_of_the_settings_file_stays_as_it_is(old: str, new: str) -> None:
    assert settings_file.update_text(old, "a.b", {"x": "1"}) == new


@pytest.mark.parametrize("old", ["a = { b = { y = 2 } }\n", '[a.b]\nx = [\n  "0",\n]\n', "[a\n"])
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
