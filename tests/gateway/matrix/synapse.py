"""A real homeserver: Synapse on loopback, with SQLite in a folder of the test run."""

import base64
import hashlib
import hmac
import importlib.util
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from functools import cached_property
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
    """The server of a folder. `person` registers somebody who speaks through the client-server API."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._people: list[Person] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._settings['port']}"

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return json.loads((self._folder / "settings.json").read_text())

    def person(self, name: str, *, display: str = "") -> Person:
        """A new account; the name gets an ending, so that tests do not meet."""
        user = f"{name}-{secrets.token_hex(4)}"
        nonce = httpx.get(f"{self.url}/_synapse/admin/v1/register").json()["nonce"]
        words = [nonce, user, PASSWORD, "notadmin"]
        mac = hmac.new(self._settings["secret"].encode(), "\0".join(words).encode(), hashlib.sha1).hexdigest()
        body: dict[str, Any] = {"nonce": nonce, "username": user, "password": PASSWORD, "mac": mac}
        answer = httpx.post(
            f"{self.url}/_synapse/admin/v1/register",
            json={**body, "admin": False, "displayname": display or name},
        )
        answer.raise_for_status()
        made = Person(self.url, answer.json()["user_id"], answer.json()["access_token"])
        self._people.append(made)
        return made

    def close(self) -> None:
        for person in self._people:
            person.close()

    def stop(self) -> None:
        """Take the server away at once; `start` brings it back with all it knew."""
        os.kill(int((self._folder / "pid").read_text()), signal.SIGKILL)
        deadline = time.monotonic() + _START_SECONDS
        while self._answers():
            assert time.monotonic() < deadline, "Synapse does not end"
            time.sleep(0.01)

    def start(self) -> None:
        if not (self._folder / "settings.json").exists():
            self._configure()
        config = str(self._folder / "homeserver.yaml")
        with (self._folder / "out").open("ab") as out:
            started = subprocess.run(
                [sys.executable, "-m", "synapse.app.homeserver", "--config-path", config, "--daemonize"],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._answers():
            if started.returncode != 0 or time.monotonic() > deadline:
                said = "".join((self._folder / n).read_text(errors="replace")[-2000:] for n in ("out", "log"))
                raise RuntimeError(f"Synapse does not start: {said}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/_matrix/client/versions", timeout=2).is_success
        except httpx.HTTPError:
            return False

    def _configure(self) -> None:
        folder, port, secret = self._folder, find_free_port(), secrets.token_hex(16)
        (folder / "log.yaml").write_text(
            f"version: 1\nhandlers: {{f: {{class: logging.FileHandler, filename: {folder}/log}}}}\n"
            "root: {level: WARNING, handlers: [f]}\ndisable_existing_loggers: false\n"
        )
        (folder / "homeserver.yaml").write_text(
            f"""server_name: {SERVER}
pid_file: {folder}/pid
listeners: [{{port: {port}, bind_addresses: ['127.0.0.1'], type: http, tls: false, resources: [{{names: [client, media], compress: false}}]}}]
database: {{name: sqlite3, args: {{database: {folder}/db}}}}
log_config: {folder}/log.yaml
media_store_path: {folder}/media
signing_key_path: {folder}/signing.key
registration_shared_secret: {secret}
macaroon_secret_key: {secrets.token_hex(16)}
form_secret: {secrets.token_hex(16)}
report_stats: false
bcrypt_rounds: 4
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
        seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        (folder / "signing.key").write_text(f"ed25519 a_test {seed}\n")
        (folder / "settings.json").write_text(json.dumps({"port": port, "secret": secret}))
