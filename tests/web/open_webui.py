"""Open WebUI, the front end: installed from PyPI into a folder of the user's cache, without what needs torch, and driven by the calls that its page makes.

`python -m tests.web.open_webui` installs it, which takes some minutes and about 1.3 GB."""

import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from tests import left_out
from tests.cli.driver import WAIT, end
from tests.free_ports import find_free_port

VERSION = "0.12.4"
COMMAND = ".venv/bin/python -m tests.web.open_webui (1.3 GB)"
# Only for the search in documents and for speech on its own machine.
_WITHOUT = frozenset(
    [
        "accelerate",
        "chromadb",
        "faster-whisper",
        "onnxruntime",
        "opencv-python-headless",
        "pyarrow",
        "rapidocr",
        "sentence-transformers",
        "transformers",
    ]
)
# Those that it imports although it names them only through the ones above.
_BESIDES = ("typer", "chromadb==1.5.9")
_REQUIREMENT = re.compile(r"^Requires-Dist: ([\w.-]+)([^;\n]*)$", re.MULTILINE)
# It migrates its database first.
_START_SECONDS = 300.0
_TASKS = {"title_generation": True, "tags_generation": True, "follow_up_generation": True}


def find_folder() -> Path:
    """Return the folder of its virtual environment, which may be missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cache / "keryx-tests" / f"open-webui-{VERSION}"


def is_installed() -> bool:
    return (find_folder() / "installed").exists()


def require() -> None:
    """Skip the test if Open WebUI is not installed."""
    if not is_installed():
        left_out.skip(
            "the real Open WebUI", why=f"version {VERSION} is not in {find_folder()}", command=COMMAND
        )


def install() -> None:
    """Install it into an environment of its own."""
    folder = find_folder()
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", f"open-webui=={VERSION}"], check=True)
    [metadata] = folder.glob("lib/python*/site-packages/open_webui-*.dist-info/METADATA")
    wanted = [name + rest for name, rest in _REQUIREMENT.findall(metadata.read_text())]
    kept = [text for text in wanted if re.split(r"[^\w.-]", text)[0].lower() not in _WITHOUT]
    subprocess.run([*pip, *kept], check=True)
    subprocess.run([*pip, *_BESIDES], check=True)
    (folder / "installed").touch()


@contextmanager
def serving(data: Path, api: str) -> Generator["OpenWebUi"]:
    """A new Open WebUI whose models are those of an API, with a person who has signed in."""
    port = find_free_port()
    variables = {
        "DATA_DIR": str(data),
        "WEBUI_SECRET_KEY": "k" * 32,
        "OPENAI_API_BASE_URL": api,
        "OPENAI_API_KEY": "none",
        "ENABLE_FORWARD_USER_INFO_HEADERS": "true",
        "ENABLE_OLLAMA_API": "false",
        "OFFLINE_MODE": "true",
        "HF_HUB_OFFLINE": "1",
        "RAG_EMBEDDING_ENGINE": "openai",
        "ANONYMIZED_TELEMETRY": "false",
    }
    data.mkdir(exist_ok=True)
    program = str(find_folder() / "bin" / "open-webui")
    with (data / "log").open("w") as log:
        process = subprocess.Popen(
            [program, "serve", "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, **variables},
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT) as client:
                _wait_until_ready(client, process, data / "log")
                person = {"name": "Ann", "email": "ann@example.com", "password": "Passw0rd!x"}
                token = client.post("/api/v1/auths/signup", json=person).raise_for_status().json()["token"]
                client.headers["Authorization"] = f"Bearer {token}"
                yield OpenWebUi(client)
        finally:
            end(process)


def _wait_until_ready(client: httpx.Client, process: "subprocess.Popen[str]", log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if client.get("/health").is_success:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise AssertionError(f"Open WebUI did not start: {log.read_text()[-2000:]}")


@dataclass(frozen=True, slots=True)
class OpenWebUi:
    client: httpx.Client

    def list_models(self) -> list[str]:
        return [model["id"] for model in self.client.get("/api/models").raise_for_status().json()["data"]]

    def stream(self, text: str) -> list[str]:
        """Ask without a chat, and return the data of the events."""
        body = {"stream": True, "model": "keryx", "messages": [{"role": "user", "content": text}]}
        with self.client.stream("POST", "/api/chat/completions", json=body) as answer:
            return [line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: ")]


@dataclass(slots=True)
class Chat:
    """A chat as its page keeps it: a tree of messages, of which the one with the last answer is sent."""

    program: OpenWebUi
    model: str = "keryx"
    id: str = ""
    question: str = ""
    answer: str = ""
    messages: dict[str, Any] = field(default_factory=dict[str, Any])

    def ask(self, text: str, *, pictures: tuple[str, ...] = ()) -> None:
        """Send a message, with pictures as data URLs. The first one of a chat also asks for a title, tags and questions to follow."""
        files = [{"type": "image", "url": url} for url in pictures]
        self.question = self._add("user", self.answer, content=text, models=[self.model], files=files)
        self.ask_again()

    def ask_again(self) -> None:
        """Ask for another answer to the last question."""
        self.answer = self._add("assistant", self.question, content="", done=False, model=self.model)
        path = self._list_path()
        history = {"messages": self.messages, "currentId": self.answer}
        chat = {"title": "New Chat", "models": [self.model], "history": history, "messages": path}
        first = not self.id
        place = "/api/v1/chats/new" if first else f"/api/v1/chats/{self.id}"
        self.id = self._post(place, {"chat": {**chat, "id": self.id}})["id"]
        body = {
            "stream": True,
            "model": self.model,
            "messages": [{"role": m["role"], "content": m["content"]} for m in path[:-1]],
            "chat_id": self.id,
            "id": self.answer,
            "session_id": "a-tab",
            "parent_id": self.question,
            "user_message": self.messages[self.question],
            "background_tasks": _TASKS if first else {},
        }
        self._post("/api/chat/completions", body)

    def wait(self, *wanted: str) -> dict[str, Any]:
        """Wait until the last answer is complete or has failed, and has these further fields. Return it."""
        deadline = time.monotonic() + WAIT
        while True:
            found = self.load()["chat"]["history"]["messages"][self.answer]
            if (found.get("done") or found.get("error")) and all(map(found.get, wanted)):
                self.messages[self.answer] |= {"content": found["content"], "done": True}
                return found
            assert time.monotonic() < deadline, found
            time.sleep(0.2)

    def wait_for_title(self) -> str:
        """Wait until the chat has a title, which comes after the answer. Return it."""
        deadline = time.monotonic() + WAIT
        while (title := self.load()["title"]) == "New Chat":
            assert time.monotonic() < deadline, "no title"
            time.sleep(0.2)
        return title

    def load(self) -> dict[str, Any]:
        """Return the chat as it is stored."""
        return self.program.client.get(f"/api/v1/chats/{self.id}").raise_for_status().json()

    def _add(self, role: str, parent: str, **fields: Any) -> str:
        id_ = str(uuid4())
        links: dict[str, Any] = {"id": id_, "parentId": parent or None, "childrenIds": []}
        self.messages[id_] = {**links, "role": role, "timestamp": int(time.time()), **fields}
        if parent:
            self.messages[parent]["childrenIds"].append(id_)
        return id_

    def _list_path(self) -> list[dict[str, Any]]:
        path: list[dict[str, Any]] = []
        current: str | None = self.answer
        while current:
            path.insert(0, self.messages[current])
            current = self.messages[current]["parentId"]
        return path

    def _post(self, place: str, body: object) -> Any:
        return self.program.client.post(place, json=body).raise_for_status().json()


if __name__ == "__main__":
    print(f"installing Open WebUI {VERSION} into {find_folder()}", file=sys.stderr)
    install()
