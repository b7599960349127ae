"""A real homeserver: Synapse on loopback, with SQLite in a folder that goes away with it."""

import hashlib
import hmac
import importlib.util
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
from tests.free_ports import find_free_port
from tests.gateway.matrix.person import Person

SERVER = "hub.test"
PASSWORD = "a-long-password"
_START_SECONDS = 60
_LOOSE = "{per_second: 10000, burst_count: 10000}"


def installed() -> bool:
    return importlib.util.find_spec("synapse") is not None


class Synapse:
    """Started when made. `person` registers somebody who speaks through the client-server API."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="keryx-synapse-"))
        self._people: list[Person] = []
        self._secret = secrets.token_hex(16)
        self._port = find_free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._configure()
        self._start()

    def person(self, name: str, *, display: str = "") -> Person:
        """A new account; the name gets an ending, so that tests do not meet."""
        user = f"{name}-{secrets.token_hex(4)}"
        nonce = httpx.get(f"{self.url}/_synapse/admin/v1/register").json()["nonce"]
        words = [nonce, user, PASSWORD, "notadmin"]
        mac = hmac.new(self._secret.encode(), "\0".join(words).encode(), hashlib.sha1).hexdigest()
        body: dict[str, Any] = {"nonce": nonce, "username": user, "password": PASSWORD, "mac": mac}
        answer = httpx.post(
            f"{self.url}/_synapse/admin/v1/register",
            json={**body, "admin": False, "displayname": display or name},
        )
        answer.raise_for_status()
        made = Person(self.url, answer.json()["user_id"], answer.json()["access_token"])
        self._people.append(made)
        return made

    def stop(self) -> None:
        """Take the server away at once; `start_again` brings it back with all it knew."""
        self._process.kill()
        self._process.wait(20)

    def start_again(self) -> None:
        self._start()

    def remove(self) -> None:
        for person in self._people:
            person.close()
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _configure(self) -> None:
        folder = self._folder
        (folder / "log.yaml").write_text(
            f"version: 1\nhandlers: {{f: {{class: logging.FileHandler, filename: {folder}/log}}}}\n"
            "root: {level: WARNING, handlers: [f]}\ndisable_existing_loggers: false\n"
        )
        (folder / "homeserver.yaml").write_text(
            f"""server_name: {SERVER}
pid_file: {folder}/pid
listeners: [{{port: {self._port}, bind_addresses: ['127.0.0.1'], type: http, tls: false, resources: [{{names: [client, media], compress: false}}]}}]
database: {{name: sqlite3, args: {{database: {folder}/db}}}}
log_config: {folder}/log.yaml
media_store_path: {folder}/media
signing_key_path: {folder}/signing.key
registration_shared_secret: {self._secret}
macaroon_secret_key: {secrets.token_hex(16)}
form_secret: {secrets.token_hex(16)}
report_stats: false
trusted_key_servers: []
federation_domain_whitelist: []
suppress_key_server_warning: true
rc_message: {_LOOSE}
rc_login: {{address: {_LOOSE}, account: {_LOOSE}, failed_attempts: {_LOOSE}}}
rc_joins: {{local: {_LOOSE}}}
rc_room_creation: {_LOOSE}
rc_invites: {{per_room: {_LOOSE}, per_user: {_LOOSE}, per_issuer: {_LOOSE}}}
"""
        )
        self._run("--generate-keys").wait(_START_SECONDS)

    def _run(self, *more: str) -> subprocess.Popen[bytes]:
        config = str(self._folder / "homeserver.yaml")
        with (self._folder / "out").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "synapse.app.homeserver", "--config-path", config, *more],
                cwd=self._folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    def _start(self) -> None:
        self._process = self._run()
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                httpx.get(f"{self.url}/_matrix/client/versions", timeout=2).raise_for_status()
                return
            except httpx.HTTPError as exc:
                out = (self._folder / "out").read_text(errors="replace")[-2000:]
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Synapse does not start: {out}") from exc
                time.sleep(0.05)
