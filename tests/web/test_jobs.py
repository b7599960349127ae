"""Jobs over HTTP: made, looked at, rested, run and removed, and told of on the stream."""

import pytest
from tests.engine.world import World
from tests.web.site import Listener, Site

from keryx.store.db import Engine

pytestmark = pytest.mark.engines(Engine.SQLITE)


async def test_a_job_is_made_run_and_removed(site: Site, world: World) -> None:
    assert (await site.get("/api/jobs"))["jobs"] == []
    made = await site.post("/api/jobs", {"schedule": "every 2h", "prompt": "Check the news", "name": "news"})
    assert (made["name"], made["schedule"], made["state"]) == ("news", "every 2 hours", "active")
    path = f"/api/jobs/{made['id']}"
    assert (await site.patch(path, {"paused": True}))["state"] == "paused"
    assert "next_at" in await site.patch(path, {"paused": False})
    run = await site.post(f"{path}/run")
    await world.settle(run["turn"])
    told = await site.get(path)
    assert [(r["status"], r.get("delivery")) for r in told["runs"]] == [("done", None)]
    assert (await site.get("/api/jobs"))["jobs"][0]["last"]["session"] == run["session"]
    await site.delete(path)
    await site.problem(404, "GET", path)
    assert (await site.get(f"/api/sessions/{run['session']}"))["session"]["surface"] == "job"


async def test_scheduled_runs_are_shown_with_their_project_alone(site: Site, world: World) -> None:
    made = await site.post("/api/jobs", {"schedule": "@daily", "prompt": "hello"})
    await site.post(f"/api/jobs/{made['id']}/run")
    assert (await site.get("/api/sessions"))["sessions"] == []
    (project,) = (await site.get("/api/projects"))["projects"]
    assert len((await site.get(f"/api/sessions?project={project['id']}"))["sessions"]) == 1
    assert len((await site.get("/api/sessions?surface=job"))["sessions"]) == 1


async def test_a_job_is_changed_as_it_can_be_written(site: Site) -> None:
    made = await site.post(
        "/api/jobs", {"schedule": "0 9 * * mon-fri Europe/Oslo", "prompt": "Check the news"}
    )
    assert (made["written"], made["zone"]) == ("0 9 * * mon-fri", "Europe/Oslo")
    path = f"/api/jobs/{made['id']}"
    same = await site.patch(
        path, {name: made[name] for name in ("prompt", "zone")} | {"schedule": made["written"]}
    )
    assert same == made
    changed = await site.patch(path, {"schedule": "every 2h", "prompt": "Check the weather", "zone": "UTC"})
    assert (changed["written"], changed["prompt"], changed["zone"]) == (
        "every 2h",
        "Check the weather",
        "UTC",
    )
    assert changed["name"] == made["name"]
    assert "every 2h" in await site.problem(400, "PATCH", path, json={"schedule": "often"})
    await site.problem(400, "PATCH", path, json={"prompt": ""})


async def test_what_is_wrong_with_a_job_is_told(site: Site) -> None:
    for body, said in (
        ({"schedule": "often", "prompt": "x"}, "every 2h"),
        ({"schedule": "30m", "prompt": "x", "to": "slack:1"}, "slack"),
        ({"schedule": "30m", "prompt": "x", "zone": "Mars/Crater"}, "time zone"),
    ):
        assert said in await site.problem(400, "POST", "/api/jobs", json=body)
    await site.problem(404, "POST", "/api/jobs/nothing/run")


@pytest.mark.engines(*Engine)
async def test_the_stream_tells_of_jobs(site: Site) -> None:
    listener = Listener(site.app, (await site.get("/api/start"))["cursor"])
    async with listener.connect():
        made = await site.post("/api/jobs", {"schedule": "@daily", "prompt": "hello"})
        assert await listener.wait_for("job", job=made["id"], what="added")
        await site.post(f"/api/jobs/{made['id']}/run")
        assert await listener.wait_for("job", job=made["id"], what="started")
