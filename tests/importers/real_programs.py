"""Real programs with a fake model: a home folder of their own, and the settings that lead them to the model. Run as a script,
it installs them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests import left_out

COMMAND = "make programs (they are put into ~/.cache/keryx-tests, 2 GB)"
_SECONDS = 900


class RealProgram(NamedTuple):
    """A program as npm or pip has it. The import of its files was tried with this version."""

    package: str
    version: str
    # Where its commands are, below the folder that it is installed in.
    commands: str = "node_modules/.bin"
    python: bool = False


REAL_PROGRAMS = {
    "claude": RealProgram("@anthropic-ai/claude-code", "2.1.325"),
    "claude-agent-acp": RealProgram("@agentclientprotocol/claude-agent-acp", "0.100.0"),
    "codex": RealProgram("@openai/codex", "0.166.0"),
    "opencode": RealProgram("opencode-ai", "1.18.33"),
    "gemini": RealProgram("@google/gemini-cli", "0.61.0"),
    "qwen": RealProgram("@qwen-code/qwen-code", "0.24.4"),
    "pi": RealProgram("@mariozechner/pi-coding-agent", "0.73.1"),
    "goose": RealProgram(
        "@aaif/goose-binary-linux-x64", "1.52.0", "node_modules/@aaif/goose-binary-linux-x64/bin"
    ),
    "hermes": RealProgram("hermes-agent[messaging]", "0.19.0", "bin", python=True),
}


class Place:
    """A home folder of a program, with the address of the model."""

    def __init__(self, home: Path, model: str) -> None:
        self.home = home
        self.model = model
        self.work = home / "work"
        self.work.mkdir(parents=True)

    def write(self, name: str, text: str | Mapping[str, Any]) -> None:
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text if isinstance(text, str) else json.dumps(text))

    def run(self, *words: str, **env: str) -> str:
        """Run a program in the work folder, with nothing of this machine's settings."""
        path = find_program(words[0])
        base = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "NO_COLOR": "1",
            "CI": "1",
            "TERM": "dumb",
        }
        done = subprocess.run(
            [path, *words[1:]],
            cwd=self.work,
            env=base | env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout

    def set_up_claude(self) -> dict[str, str]:
        """Return the variables that Claude Code needs."""
        return {
            "ANTHROPIC_BASE_URL": self.model,
            "ANTHROPIC_API_KEY": "sk-x",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        }

    def set_up_opencode(self) -> None:
        options = {"baseURL": f"{self.model}/v1", "apiKey": "x"}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": options,
            "models": {"fake": {"name": "fake"}},
        }
        settings = {
            "model": "rig/fake",
            "small_model": "rig/fake",
            "autoupdate": False,
            "share": "disabled",
            "provider": {"rig": provider},
            "permission": {"*": "allow"},
        }
        self.write(".config/opencode/opencode.json", settings)

    def set_up_qwen(self) -> dict[str, str]:
        """Return the variables that Qwen Code needs."""
        self.write(".qwen/settings.json", {"security": {"auth": {"selectedType": "openai"}}})
        return {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{self.model}/v1", "OPENAI_MODEL": "fake"}


def find_program(name: str) -> str:
    """Return the path of a program that is installed, or skip the test."""
    path = find_installed(name) or shutil.which(name)
    if path is None:
        left_out.skip(f"tests with the real {name}", why=f"{name} is not installed", command=COMMAND)
    return path


def find_installed(name: str) -> str | None:
    """Return the path of a program that `make programs` has installed."""
    file = _name_folder(name) / REAL_PROGRAMS[name].commands / name
    return str(file) if file.exists() else None


def install(name: str) -> None:
    """Install a program into the cache folder, with npm or pip. Raise `CalledProcessError` if that fails."""
    program, folder = REAL_PROGRAMS[name], _name_folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    if program.python:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        words = [folder / "bin/pip", "install", "--quiet", f"{program.package}=={program.version}"]
    else:
        package = f"{program.package}@{program.version}"
        words = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", package]
    subprocess.run(words, check=True, timeout=_SECONDS)


def _name_folder(name: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "keryx-tests/programs" / f"{name}-{REAL_PROGRAMS[name].version}"


def main(names: Sequence[str]) -> int:
    """Install programs, all that are missing if none is named. Return 1 if one could not be installed."""
    failed: list[str] = []
    for name in names or [name for name in REAL_PROGRAMS if find_installed(name) is None]:
        print(f"{name} {REAL_PROGRAMS[name].version}", flush=True)
        try:
            install(name)
        except (subprocess.SubprocessError, OSError) as exc:
            failed.append(f"{name}: {exc}")
    print("\n".join(f"not installed: {text}" for text in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
