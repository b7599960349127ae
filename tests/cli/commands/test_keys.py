"""`keryx keys`: the keys of programs."""

from pathlib import Path

from tests.cli.driver import Cli


def test_a_key_is_printed_once_listed_and_revoked(tmp_path: Path) -> None:
    keryx = Cli(tmp_path / "home")
    assert "No keys yet" in keryx.ok("keys").out
    made = keryx.ok("keys", "add", "open-webui")
    secret = made.out.strip()
    assert secret.startswith("kx-")
    assert "Keep it now" in made.err
    listed = keryx.ok("keys", "list").out
    assert "open-webui" in listed
    assert secret not in listed
    [key] = keryx.json("keys", "list")["keys"]
    assert (key["name"], key["principal"]) == ("open-webui", "operator")
    assert secret not in str(key)
    assert key["may_speak"] is False
    assert keryx.json("keys", "add", "assistant", "--may-speak")["key"]["may_speak"] is True
    assert "asks first" in keryx.ok("keys", "list").out
    keryx.ok("keys", "revoke", "assistant", "--yes")
    keryx.ok("keys", "revoke", "open-webui", "--yes")
    assert keryx.json("keys", "list")["keys"] == []
    for options in (("--yes",), ()):
        refused = keryx("keys", "revoke", "open-webui", *options)
        assert refused.code == 3
        assert "there is no key 'open-webui': `keryx keys list` shows them" in refused.err


def test_a_second_key_of_one_name_is_not_made(tmp_path: Path) -> None:
    keryx = Cli(tmp_path / "home")
    keryx.ok("keys", "add", "laptop")
    refused = keryx("keys", "add", "laptop")
    assert (refused.code, refused.out) == (4, "")
    assert (
        "there is a key called laptop already: choose another name, or revoke that one first" in refused.err
    )
    keryx.ok("keys", "revoke", "laptop", "--yes")
    keryx.ok("keys", "add", "laptop")
    assert len(keryx.json("keys", "list")["keys"]) == 1


def test_a_key_for_somebody_unknown_is_not_made(tmp_path: Path) -> None:
    keryx = Cli(tmp_path / "home")
    refused = keryx("keys", "add", "phone", "--person", "telegram:4711")
    assert refused.code != 0
    assert "has not talked here" in refused.err
    assert keryx.json("keys", "list")["keys"] == []
