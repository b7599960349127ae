"""`keryx import` by command: what it finds, what it would do, and what it did."""

from pathlib import Path

from tests.cli.driver import Cli
from tests.importers import samples


def test_the_programs_are_listed_with_their_places(keryx: Cli, tmp_path: Path) -> None:
    keryx.variables["CODEX_HOME"] = str(samples.write_codex(tmp_path / "codex"))
    found = {entry["name"]: entry["place"] for entry in keryx.json("import")["programs"]}
    assert len(found) == 14
    assert found["codex"] == str(tmp_path / "codex")
    assert "found at" in keryx.ok("import").out


def test_a_dry_run_shows_what_would_come_and_what_would_be_lost_and_changes_nothing(
    keryx: Cli, tmp_path: Path
) -> None:
    source = str(samples.write_claude_code(tmp_path / "source"))
    shown = keryx.ok("import", "claude-code", source, "--dry-run").out
    assert "messages would be added       20" in shown
    assert "context records" in shown and "not kept" in shown
    assert keryx.json("sessions", "list") == {"sessions": [], "next": None}


def test_an_import_reports_what_came_and_a_second_one_that_nothing_did(keryx: Cli, tmp_path: Path) -> None:
    source = str(samples.write_claude_code(tmp_path / "source"))
    report = keryx.json("import", "claude-code", source)
    assert (report["result"]["created"], report["result"]["messages"]) == (3, 20)
    assert report["damages"] == []
    assert report["folded"]["text for the model only"] == 2
    again = keryx.json("import", "claude-code", source)
    assert (again["result"]["created"], again["result"]["unchanged"]) == (0, 3)
    assert "hello there" in keryx.ok("sessions", "show", "s-two").out


def test_the_default_place_is_found(keryx: Cli, tmp_path: Path) -> None:
    keryx.variables["CODEX_HOME"] = str(samples.write_codex(tmp_path / "codex"))
    assert keryx.json("import", "codex")["source"] == str(tmp_path / "codex")


def test_a_damaged_source_ends_with_one_and_names_the_place(keryx: Cli, tmp_path: Path) -> None:
    source = samples.write_qwen(tmp_path / "source")
    file = next(source.rglob("*.jsonl"))
    file.write_text(file.read_text() + '{"half":')
    done = keryx("import", "qwen", str(source))
    assert done.code == 1
    assert f"{file}:11: the last line is half-written" in done.err


def test_a_line_that_is_no_json_is_named_without_words_of_the_program(keryx: Cli, tmp_path: Path) -> None:
    source = samples.write_qwen(tmp_path / "source")
    file = next(source.rglob("*.jsonl"))
    file.write_text(file.read_text() + '{"half"}\n[]\n')
    done = keryx("import", "qwen", str(source))
    assert done.code == 1
    assert f"{file}:11: not JSON: " in done.err and f"{file}:12: " in done.err
    assert "dict" not in done.err


def test_a_folder_of_another_program_is_told_with_the_usual_place(keryx: Cli, tmp_path: Path) -> None:
    keryx.variables["CLAUDE_CONFIG_DIR"] = str(tmp_path / "usual")
    done = keryx.ok("import", "claude-code", str(samples.write_qwen(tmp_path / "source")))
    assert f"no conversation of Claude Code was found in {tmp_path / 'source'}" in done.err
    assert f"its usual place is {tmp_path / 'usual'}" in done.err
    source = str(samples.write_claude_code(tmp_path / "claude"))
    for _ in range(2):
        assert keryx.ok("import", "claude-code", source).err == ""


def test_a_place_without_anything_is_refused_with_what_to_give(keryx: Cli, tmp_path: Path) -> None:
    refused = keryx("import", "chatgpt")
    assert refused.code != 0
    assert "give the file or folder of the export" in refused.err
    refused = keryx("import", "qwen", str(tmp_path / "nowhere"))
    assert "does not exist" in refused.err
