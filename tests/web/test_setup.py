"""The set-up over HTTP: models, tools, profiles and people are changed by the operator, and no secret comes back."""

import json
import logging
import stat
import sys
import threading
import tomllib
from collections.abc import AsyncIterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.agents.acp.conversation import PLAYER
from tests.builders import ANN, a_session
from tests.engine.world import World
from tests.fakes.endpoint import KEY, MODEL, Endpoint, Refusal, answer
from tests.fakes.wechat import ANN as WECHAT_ANN
from tests.fakes.wechat import LINK, FakeWeChat
from tests.web.site import INSTALLATION, TOKEN, Site, open_site

from keryx.core.ids import DEFAULT_PROFILE, PrincipalId
from keryx.core.questions import Consent
from keryx.core.sessions import Viewer
from keryx.settings_editor import SettingsEditor
from keryx.store import people, questions
from keryx.store.db import Engine
from keryx.surfaces.web.operations import RequiredRole
from keryx.surfaces.web.routes import OPERATIONS

pytestmark = pytest.mark.engines(Engine.SQLITE)
TOOL_SERVER = Path(__file__).parents[1] / "agents" / "tool_server.py"
TOML = """# mine
[[models]]  # first
name = "small"
base_url = "http://localhost:1/v1"
id = "s-1"
prices = { input = 1, cache_read = 0.1 }

[limits]
at_once = 3
"""


class ImportWatch:
    """Notes in which thread a module is imported."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.threads: list[threading.Thread] = []

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if name == self.module:
            self.threads.append(threading.current_thread())
        return None


@pytest.fixture
def restarts() -> list[str]:
    return []


@pytest.fixture
async def site(
    world: World, tmp_path: Path, restarts: list[str], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.delenv("KERYX_MODEL", raising=False)
    (tmp_path / "keryx.toml").write_text(TOML)
    installation = msgspec.structs.replace(INSTALLATION, home=tmp_path)
    editor = SettingsEditor(tmp_path, world.clock, lambda: restarts.append("restart"))
    async with open_site(world.hub, world.clock, installation=installation, setup=editor) as made:
        yield made


def model(endpoint: Endpoint, **more: object) -> dict[str, object]:
    return {"base_url": endpoint.base_url, "id": MODEL, "secret": KEY, **more}


async def find(site: Site, kind: str, name: str) -> dict[str, Any]:
    return next(m for m in (await site.get("/api/setup"))[kind] if m["name"] == name)


async def test_a_model_is_tried_and_saved_and_its_key_stays_in_a_file(
    site: Site, tmp_path: Path, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    refusal = Refusal(status=401, message="wrong key")
    with Endpoint(answer("ready"), answer("ready"), refusal) as endpoint:
        tried = await site.post("/api/setup/models/large/test", model(endpoint))
        assert tried["answer"] == "ready" and tried["output_tokens"] >= 0
        assert (tmp_path / "keryx.toml").read_text() == TOML
        await site.put("/api/setup/models/large", model(endpoint, input_price=1.5, output_price=2))
        secret = tmp_path / "secrets" / "model-large-key"
        assert secret.read_text() == f"{KEY}\n" and stat.S_IMODE(secret.stat().st_mode) == 0o600
        text = (tmp_path / "keryx.toml").read_text()
        assert text.startswith(TOML)
        assert tomllib.loads(text)["models"][1] == {
            "name": "large",
            "base_url": endpoint.base_url,
            "id": MODEL,
            "key": f"file:{secret}",
            "prices": {"input": 1.5, "output": 2},
        }
        saved = await find(site, "models", "large")
        assert saved["editable"] and not saved["default"] and saved["key"] == f"file:{secret}"
        assert (await site.get("/api/setup"))["restart"]
        # The saved key is used when the model is tried again without one.
        again = {"base_url": endpoint.base_url, "id": MODEL, "key": saved["key"]}
        assert (await site.post("/api/setup/models/large/test", again))["answer"] == "ready"
        detail = await site.problem(502, "POST", "/api/setup/models/large/test", json=again)
        assert KEY not in detail
    await site.put("/api/setup/default-model", {"name": "large"})
    assert (await find(site, "models", "large"))["default"]
    revision = (await find(site, "models", "large"))["revision"]
    await site.delete(f"/api/setup/models/large?revision={revision}")
    assert (tmp_path / "keryx.toml").read_text() == TOML and not secret.exists()
    stored = await world.read(lambda tx: tx.rows("select * from changes"))
    assert KEY not in caplog.text and KEY not in str(stored)


async def test_a_model_that_is_not_reached_is_told_in_words_of_the_form(site: Site) -> None:
    for address, words in (
        ("http://127.0.0.1:9/v1", "check its address, and whether its server runs"),
        ("http://nowhere.invalid/v1", "check the address and the network"),
    ):
        told = await site.problem(
            502, "POST", "/api/setup/models/gone/test", json={"base_url": address, "id": "x"}
        )
        assert words in told and "/retry" not in told and "base_url" not in told


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"base_url": "localhost"}, "base_url"),
        ({"base_url": "https://me:secret@models.example"}, "base_url"),
        ({"id": " "}, "id"),
        ({"key": "sk-123"}, "key"),
        ({"secret": "a\x00b"}, "secret"),
    ],
)
async def test_a_wrong_value_is_refused_with_its_field(
    site: Site, tmp_path: Path, change: dict[str, object], field: str
) -> None:
    body = {"base_url": "https://models.example/v1", "id": "m", **change}
    answer = await site.request("PUT", "/api/setup/models/new", json=body)
    assert answer.status_code == 400 and answer.json()["field"] == field
    assert (tmp_path / "keryx.toml").read_text() == TOML and not (tmp_path / "secrets").exists()
    german = {"Accept-Language": "de"}
    told = (await site.request("PUT", "/api/setup/models/new", json=body, headers=german)).json()["detail"]
    assert told != answer.json()["detail"]


async def test_two_browsers_do_not_overwrite_each_other(site: Site, tmp_path: Path) -> None:
    before = (await find(site, "models", "small"))["revision"]
    body = {"base_url": "http://localhost:2/v1", "id": "s-2", "input_price": 2, "revision": before}
    await site.put("/api/setup/models/small", body)
    late = {**body, "base_url": "http://localhost:3/v1"}
    assert "changed meanwhile" in await site.problem(409, "PUT", "/api/setup/models/small", json=late)
    await site.problem(409, "PUT", "/api/setup/models/small", json={**late, "revision": ""})
    await site.problem(409, "DELETE", f"/api/setup/models/small?revision={before}")
    assert (await find(site, "models", "small"))["base_url"] == "http://localhost:2/v1"
    text = (tmp_path / "keryx.toml").read_text()
    assert (
        text.startswith("# mine\n[[models]]  # first\n")
        and "cache_read" in text
        and text.endswith("[limits]\nat_once = 3\n")
    )


async def test_a_server_of_tools_is_checked_and_saved(site: Site, tmp_path: Path) -> None:
    command = f"{sys.executable} {TOOL_SERVER} {tmp_path / 'runs'}"
    body = {"command": command, "env": {"TOKEN": "s3cret-token", "MODE": "text:quick"}, "policy": "ask"}
    checked = await site.post("/api/setup/tools/files/check", body)
    assert checked["error"] == "" and {"ask"} == {tool["permission"] for tool in checked["tools"]}
    await site.put("/api/setup/tools/files", body)
    saved = await find(site, "tools", "files")
    secret = tmp_path / "secrets" / "tools-files-token"
    assert saved["env"] == {"TOKEN": f"file:{secret}", "MODE": "text:quick"} and saved["command"] == command
    assert secret.read_text() == "s3cret-token\n" and stat.S_IMODE(secret.stat().st_mode) == 0o600
    broken = await site.post("/api/setup/tools/files/check", {"command": f"{sys.executable} -c 1"})
    assert broken["error"]
    for wrong, name in (({"command": "a", "url": "http://b"}, "x"), ({}, "x"), ({"command": "a"}, "Nö")):
        answer = await site.request("PUT", f"/api/setup/tools/{name}", json=wrong)
        assert answer.status_code == 400 and answer.json()["field"]
    await site.delete(f"/api/setup/tools/files?revision={saved['revision']}")
    assert (tmp_path / "keryx.toml").read_text() == TOML and not secret.exists()


async def test_the_agent_that_answers_is_chosen(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERYX_AGENT", raising=False)
    (tmp_path / "keryx.toml").write_text(
        '# mine\nagent = "echo"\n\n[agents.coder]\nkind = "acp"\ncommand = ["coder"]\n'
    )
    assert (await find(site, "agents", "echo"))["default"]
    await site.put("/api/setup/default-agent", {"name": "coder"})
    assert (await find(site, "agents", "coder"))["default"]
    assert (tmp_path / "keryx.toml").read_text().startswith('# mine\nagent = "coder"\n')
    assert (await site.get("/api/setup"))["restart"]
    wrong = await site.request("PUT", "/api/setup/default-agent", json={"name": "nobody"})
    assert wrong.status_code == 400
    assert "coder" in wrong.json()["detail"]


async def test_an_agent_is_checked_saved_changed_and_removed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KERYX_AGENT", raising=False)
    (tmp_path / "agent-store").mkdir()
    command = f"{sys.executable} {PLAYER} {tmp_path / 'agent-store'}"
    body = {"command": command, "env": {"API_KEY": "s3cret", "MODE": "text:quick"}, "cwd": str(tmp_path)}
    checked = await site.post("/api/setup/agents/player/check", body)
    assert checked["agent"] == "Player 1.2" and checked["models"] == ["small", "large"]
    assert (tmp_path / "keryx.toml").read_text() == TOML and not (tmp_path / "secrets").exists()
    await site.put("/api/setup/agents/player", {**body, "model": "small"})
    saved = await find(site, "agents", "player")
    secret = tmp_path / "secrets" / "agent-player-api-key"
    assert saved["env"] == {"API_KEY": f"file:{secret}", "MODE": "text:quick"} and saved["editable"]
    assert secret.read_text() == "s3cret\n" and stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert (await site.get("/api/setup"))["restart"]
    # Without a command it is the one that is saved, with its secret.
    assert (await site.post("/api/setup/agents/player/check", {}))["agent"] == "Player 1.2"
    broken = await site.post("/api/setup/agents/player/check", {"command": f"{sys.executable} -c 1"})
    assert broken["error"]
    await site.put("/api/setup/default-agent", {"name": "player"})
    late = {**body, "env": {}, "revision": saved["revision"]}
    await site.problem(409, "PUT", "/api/setup/agents/player", json={**late, "revision": ""})
    await site.put("/api/setup/agents/player", late)
    assert not secret.exists()
    assert "changed meanwhile" in await site.problem(409, "PUT", "/api/setup/agents/player", json=late)
    await site.problem(409, "DELETE", f"/api/setup/agents/player?revision={saved['revision']}")
    revision = (await find(site, "agents", "player"))["revision"]
    await site.delete(f"/api/setup/agents/player?revision={revision}")
    assert (tmp_path / "keryx.toml").read_text() == TOML
    await site.problem(404, "POST", "/api/setup/agents/player/check", json={})
    for name, wrong, field in (
        ("Nö", {"command": "a"}, "name"),
        ("llm", {"command": "a"}, "name"),
        ("coder", {}, "command"),
        ("coder", {"command": "a 'b"}, "command"),
        ("coder", {"command": "a", "cwd": "notes"}, "cwd"),
        ("coder", {"command": "a", "env": {"A": "b\x00"}}, "env"),
    ):
        answer = await site.request("PUT", f"/api/setup/agents/{name}", json=wrong)
        assert answer.status_code == 400 and answer.json()["field"] == field
    assert (tmp_path / "keryx.toml").read_text() == TOML


async def test_what_an_agent_has_beside_the_form_stays_as_it_is_written(site: Site, tmp_path: Path) -> None:
    written = """[agents.coder]
kind = "acp"
command = ["coder"]  # mine
stall = "5m"

[agents.coder.env]
TOKEN = "env:TOKEN"  # of the server

[agents.mine]
kind = "python"
path = "mine:agent"
"""
    (tmp_path / "keryx.toml").write_text(written)
    coder = await find(site, "agents", "coder")
    body = {"command": "coder", "env": coder["env"], "mode": "plan", "revision": coder["revision"]}
    await site.put("/api/setup/agents/coder", body)
    head, rest = written.split("kind", 1)
    assert (tmp_path / "keryx.toml").read_text() == f'{head}mode = "plan"\nkind{rest}'
    mine = await find(site, "agents", "mine")
    assert not mine["editable"]
    told = await site.problem(
        400, "PUT", "/api/setup/agents/mine", json={"command": "a", "revision": mine["revision"]}
    )
    assert "keryx.toml" in told


async def test_secrets_of_others_stay_when_one_is_removed(site: Site, tmp_path: Path) -> None:
    for kind in ("tools", "agents"):
        for name in ("files", "files-more"):
            await site.put(f"/api/setup/{kind}/{name}", {"command": "a", "env": {"TOKEN": f"of {name}"}})
        revision = (await find(site, kind, "files"))["revision"]
        await site.delete(f"/api/setup/{kind}/files?revision={revision}")
        left = (await find(site, kind, "files-more"))["env"]["TOKEN"].removeprefix("file:")
        assert (tmp_path / left).read_text() == "of files-more\n"
    assert len(list((tmp_path / "secrets").iterdir())) == 2


async def test_a_profile_is_added_changed_and_removed(site: Site, tmp_path: Path) -> None:
    await site.put("/api/setup/profiles/work", {"instructions": "Be brief.\nNo jokes."})
    work = await find(site, "profiles", "work")
    assert work["instructions"] == "Be brief.\nNo jokes." and work["hide_ids"] is None
    await site.put("/api/setup/profiles/work", {"hide_ids": True, "revision": work["revision"]})
    await site.problem(
        409, "PUT", "/api/setup/profiles/work", json={"hide_ids": False, "revision": work["revision"]}
    )
    for name, body in (("main", {}), ("work", {"agent": "nobody"})):
        revision = (await find(site, "profiles", "work"))["revision"] if name == "work" else ""
        await site.problem(400, "PUT", f"/api/setup/profiles/{name}", json={**body, "revision": revision})
    revision = (await find(site, "profiles", "work"))["revision"]
    await site.delete(f"/api/setup/profiles/work?revision={revision}")
    assert (tmp_path / "keryx.toml").read_text() == TOML


async def test_a_restart_is_refused_while_the_file_is_wrong(
    site: Site, tmp_path: Path, restarts: list[str]
) -> None:
    (tmp_path / "keryx.toml").write_text("[limits]\nat_once = 'many'\n")
    overview = await site.get("/api/setup")
    assert "line 2" in overview["problem"] and overview["restart"]
    assert "line 2" in await site.problem(400, "POST", "/api/setup/restart")
    assert not restarts
    (tmp_path / "keryx.toml").write_text(TOML)
    # Rules that no person fits are found by the adapters.
    path = tmp_path / "keryx.toml"
    path.write_text(
        '[matrix]\nhomeserver = "http://127.0.0.1:9"\nuser = "@k:fake.test"\ntoken = "env:HOME"\n'
        '[access.matrix]\nallow = ["ann"]\n'
    )
    assert "'ann' is no person on matrix" in await site.problem(400, "POST", "/api/setup/restart")
    assert not restarts
    path.write_text("")
    await site.post("/api/setup/restart")
    assert restarts == ["restart"]


async def test_the_password_of_the_operator_is_written_as_a_hash(site: Site, tmp_path: Path) -> None:
    await site.put("/api/setup/password", {"password": "correct horse"})
    kept = (tmp_path / "secrets" / "web-password").read_text()
    assert kept.startswith("scrypt:") and "horse" not in kept
    assert tomllib.loads((tmp_path / "keryx.toml").read_text())["web"]["password_from"].startswith("file:")


async def test_a_login_by_a_code_is_shown_step_by_step(site: Site, tmp_path: Path) -> None:
    with FakeWeChat() as fake:
        fake.statuses[:] = [{"status": "scaned"}, fake.confirm()]
        body = {"answers": {"base_url": fake.url, "cdn_url": fake.cdn_url}}
        given = await site.request("POST", "/api/platforms/setups/wechat/dialog", json=body)
        lines = [json.loads(line) for line in given.text.splitlines()]
    shown = [line["show"] for line in lines if "show" in line]
    assert "█" in shown[0] and LINK in shown[1] and shown[2].startswith("Scanned")
    assert lines[-1]["result"]["table"] == "wechat" and lines[-1]["result"]["allow"] == [WECHAT_ANN]
    assert "wechat" in tomllib.loads((tmp_path / "keryx.toml").read_text())
    assert (await site.get("/api/setup"))["restart"]
    await site.problem(404, "POST", "/api/platforms/dialogs/gone", json={"answer": "42"})
    wrong = {"answers": {"colour": "red"}}
    await site.problem(400, "POST", "/api/platforms/setups/wechat/dialog", json=wrong)


async def test_people_are_listed_merged_split_and_erased(site: Site, world: World) -> None:
    for platform, user in (("telegram", "7"), ("signal", "8")):
        owner = await world.write(
            people.resolve, profile=DEFAULT_PROFILE, platform=platform, person=user, name=f"Ann on {platform}"
        )
        await world.write(a_session, owner=owner, title=platform)
    # Two people of one millisecond stand in any order.
    listed = (await site.get("/api/people"))["people"]
    one, other = sorted(listed, key=lambda person: person["identities"][0]["platform"], reverse=True)
    assert one["identities"] == [{"platform": "telegram", "person": "7", "name": "Ann on telegram"}]
    await site.post("/api/people/merge", {"one": one["id"], "other": other["id"]})
    (merged,) = (await site.get("/api/people"))["people"]
    assert merged["sessions"] == 2 and len(merged["identities"]) == 2
    await site.post("/api/people/split", {"platform": "signal", "person": "8"})
    assert len((await site.get("/api/people"))["people"]) == 2
    await site.delete(f"/api/people/{merged['id']}")
    (left,) = (await site.get("/api/people"))["people"]
    assert [i["platform"] for i in left["identities"]] == ["signal"]
    await site.problem(404, "POST", "/api/people/merge", json={"one": merged["id"], "other": left["id"]})


async def test_a_lasting_consent_is_listed_and_taken_back(site: Site, world: World) -> None:
    session = await world.write(a_session, title="Deploy")
    await world.write(questions.set_consent, session.id, "run(git *)", Consent.ALLOW_ALWAYS, by=ANN)
    (consent,) = (await site.get("/api/consents"))["consents"]
    assert consent["rule"] == "run(git *)" and consent["allowed"] and consent["title"] == "Deploy"
    await site.request("DELETE", f"/api/consents/{session.id}", params={"rule": "run(git *)"})
    assert (await site.get("/api/consents"))["consents"] == []


async def test_a_schedule_is_explained(site: Site) -> None:
    found = await site.get("/api/schedule", params={"schedule": "0 9 * * mon-fri", "zone": "Europe/Berlin"})
    assert len(found["next"]) == 5 and found["zone"] == "Europe/Berlin"
    once = await site.get("/api/schedule", params={"schedule": "30m", "zone": "UTC"})
    assert len(once["next"]) == 1
    await site.problem(400, "GET", "/api/schedule", params={"schedule": "sometimes"})


async def test_only_the_operator_reaches_the_set_up(world: World, tmp_path: Path) -> None:
    guest = Viewer(DEFAULT_PROFILE, PrincipalId("ann"))
    editor = SettingsEditor(tmp_path, world.clock)
    async with open_site(world.hub, world.clock, operator=guest, token=TOKEN, setup=editor) as site:
        site.client.headers["Authorization"] = f"Bearer {TOKEN}"
        folders = ("/api/setup", "/api/platforms", "/api/people")
        guarded = [
            o for o in OPERATIONS if o.path in folders or o.path.startswith(tuple(f"{f}/" for f in folders))
        ]
        assert len(guarded) > 18
        for operation in guarded:
            assert operation.role is RequiredRole.OPERATOR, operation.path
            path = operation.path.replace("{", "").replace("}", "")
            await site.problem(403, operation.method, path, json={})


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("/api/setup/tools/files/check", "keryx.agents.mcp"),
        ("/api/setup/models/small/test", "keryx.agents.llm.chat_client"),
    ],
)
async def test_what_takes_long_to_import_is_imported_in_a_thread(
    site: Site, monkeypatch: pytest.MonkeyPatch, path: str, module: str
) -> None:
    watch = ImportWatch(module)
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(sys, "meta_path", [watch, *sys.meta_path])
    body = {"command": "/nowhere"} if "tools" in path else {"id": "s-1", "base_url": "http://localhost:1/v1"}
    await site.request("POST", path, json=body)
    assert watch.threads
    assert threading.main_thread() not in watch.threads
