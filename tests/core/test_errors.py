"""What errors tell the user to do."""

import json
import sys
from pathlib import Path

import pytest

from keryx.core.errors import format_install_command


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (
            {"url": "file:///opt/my%20clone", "dir_info": {"editable": True}},
            "-m pip install -e '/opt/my clone[postgres]'",
        ),
        ({"url": "file:///tmp/keryx-9.8-py3-none-any.whl"}, "-m pip install 'keryx[postgres]==9.8'"),
        (None, "-m pip install 'keryx[postgres]==9.8'"),
    ],
    ids=["clone", "wheel", "index"],
)
def test_the_command_for_an_extra_fits_the_way_of_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: object, wanted: str
) -> None:
    folder = tmp_path / "keryx-9.8.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: keryx\nVersion: 9.8\n")
    if source:
        (folder / "direct_url.json").write_text(json.dumps(source))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert format_install_command("postgres") == f"{sys.executable} {wanted}"
