"""A node does not pay for what it does not use: platforms, models, notifications, PostgreSQL."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import atexit, json, sys
from keryx.cli import main

def report():
    print(json.dumps(sorted(sys.modules)), file=sys.stderr, flush=True)

atexit.register(report)
sys.argv = ["keryx", "serve", "--port", "0", "--json"]
main()
"""
# What is used without a platform: the target `local`, settings of platforms, and the relay's own settings.
SHARED = {
    "keryx.surfaces.gateway",
    "keryx.surfaces.gateway.adapter_settings",
    "keryx.surfaces.gateway.local_files",
}
# Large packages that models, platforms, notifications and PostgreSQL need.
LARGE = {"cryptography", "httpx", "httpx2", "mcp", "openai", "psycopg", "pydantic"}


def test_a_node_without_platforms_imports_no_adapter(tmp_path: Path) -> None:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("KERYX_")}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**environ, "KERYX_HOME": str(tmp_path), "KERYX_AGENT": "echo"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["address"]
        process.terminate()
        *_, modules = process.stderr.read().splitlines()
    loaded = set(json.loads(modules))
    assert {name for name in loaded if name.startswith("keryx.surfaces.gateway")} <= SHARED
    assert loaded & LARGE == set()
