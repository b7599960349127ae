"""Real programs with a fake model: a home folder of their own, and the settings that lead them to the model."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import left_out

INSTALL = {
    "claude": "npm install -g @anthropic-ai/claude-code",
    "claude-agent-acp": "npm install -g @agentclientprotocol/claude-agent-acp",
    "codex": "npm install -g @openai/codex",
    "opencode": "npm install -g opencode-ai",
    "hermes": 'pip install "hermes-agent[messaging]"',
    "pi": "npm install -g @mariozechner/pi-coding-agent",
    "qwen": "npm install -g @qwen-code/qwen-code",
    "goose": "npm install -g @aaif/goose-binary-linux-x64, and its bin/goose in the PATH",
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
    """Return the path of a program, or skip the test."""
    path = shutil.which(name)
    if path is None:
        left_out.skip(f"tests with the real {name}", why=f"{name} is not installed", command=INSTALL[name])
    return path
