"""One conversation over HTTP: versions of questions, single messages, search in it, its outline, its words and its links."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.conftest import Begin
from tests.engine.world import OPEN, World
from tests.importers.samples import SAMPLES
from tests.web.site import HOST, INSTALLATION, Listener, Site, open_site

from keryx.core.ids import DEFAULT_PROFILE, PrincipalId, SessionId, TurnId
from keryx.core.ports.agent import AgentEvent, TextDelta, TurnContext, UsageEvent
from keryx.core.sessions import Binding, Viewer
from keryx.core.usage import Usage
from keryx.engine.policy import Policy
from keryx.importers import PROGRAMS
from keryx.store import epochs, sessions
from keryx.store.db import Engine

PUBLIC = msgspec.structs.replace(INSTALLATION, public_address=f"http://{HOST}")
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


class History:
    """An agent that answers with the questions that it was shown, and says which model it was asked for."""

    async def run(self, context: TurnContext) -> AsyncGenerator[AgentEvent, None]:
        said = [m.text for m in await context.history() if m.role.value == "user"]
        yield TextDelta(" | ".join(said))
        yield UsageEvent(Usage(model=context.settings.model or "small", input=7, output=5, cost=1200))


async def say(site: Site, world: World, text: str, session: str = "") -> dict[str, Any]:
    path = f"/api/sessions/{session}/messages" if session else "/api/sessions"
    return await settled(world, await site.post(path, {"text": text}))


async def settled(world: World, sent: dict[str, Any]) -> dict[str, Any]:
    await world.settle(TurnId(sent["turn"]))
    return sent


def turns_of(found: dict[str, Any]) -> list[list[str]]:
    return [[v["turn"] for v in question] for question in found["versions"]["questions"]]


async def shown(site: Site, session: str) -> list[str]:
    """The texts of the messages that are part of the conversation."""
    found = await site.get(f"/api/sessions/{session}")
    return [m["parts"][0].get("text", "") for m in found["messages"] if not m.get("undone")]


async def test_an_edit_makes_a_version_that_can_be_chosen_and_the_agent_sees_the_chosen_one(
    begin: Begin,
) -> None:
    world = await begin(agent=History(), policy=Policy(access=OPEN))
    async with open_site(world.hub, world.clock) as site:
        first = await say(site, world, "one")
        session = first["session"]
        await say(site, world, "two", session)
        edited = await settled(world, await site.post(f"/api/messages/{session}.1/edit", {"text": "eins"}))
        assert await shown(site, session) == ["eins", "eins"]
        await say(site, world, "zwei", session)
        found = await site.get(f"/api/sessions/{session}/messages")
        assert turns_of(found) == [[first["turn"], edited["turn"]]]
        assert {m["undone"] for m in found["messages"] if m.get("undone")} == set(found["versions"]["hidden"])

        await site.post(f"/api/sessions/{session}/version", {"turn": first["turn"]})
        assert await shown(site, session) == ["one", "one", "two", "one | two"]
        await say(site, world, "three", session)
        assert (await shown(site, session))[-1] == "one | two | three"
        await site.problem(404, "POST", f"/api/sessions/{session}/redo")

        await site.post(f"/api/sessions/{session}/version", {"turn": edited["turn"]})
        assert await shown(site, session) == ["eins", "eins", "zwei", "eins | zwei"]
        await site.post(f"/api/sessions/{session}/undo")
        assert await shown(site, session) == ["eins", "eins"]
        await site.post(f"/api/sessions/{session}/redo")
        assert await shown(site, session) == ["eins", "eins", "zwei", "eins | zwei"]


async def test_an_edited_answer_is_a_version_that_no_agent_answers(begin: Begin) -> None:
    world = await begin(agent=History(), policy=Policy(access=OPEN))
    async with open_site(world.hub, world.clock) as site:
        first = await say(site, world, "one")
        session = first["session"]
        await say(site, world, "two", session)
        edited = await site.post(f"/api/messages/{session}.2/edit", {"text": "**eins**"})
        assert await shown(site, session) == ["one", "**eins**"]
        found = await site.get(f"/api/sessions/{session}")
        assert turns_of(found) == [[first["turn"], edited["turn"]]]
        answer = next(m for m in found["messages"] if m["seq"] == edited["seq"])
        assert answer["mark"] == "edited" and "<strong>eins</strong>" in answer["parts"][0]["html"]
        assert found["session"].get("activity", "idle") == "idle"
        await say(site, world, "zwei", session)
        assert await shown(site, session) == ["one", "**eins**", "zwei", "one | zwei"]
        await site.post(f"/api/sessions/{session}/version", {"turn": first["turn"]})
        assert await shown(site, session) == ["one", "one", "two", "one | two"]
        await site.problem(409, "POST", f"/api/messages/{session}.{edited['seq']}/edit", json={"text": "x"})


async def test_a_question_within_a_version_has_versions_too_and_a_fork_keeps_all_of_them(
    begin: Begin,
) -> None:
    world = await begin(agent=History(), policy=Policy(access=OPEN))
    async with open_site(world.hub, world.clock) as site:
        first = await say(site, world, "one")
        session = first["session"]
        second = await say(site, world, "two", session)
        again = await settled(world, await site.post(f"/api/sessions/{session}/retry"))
        edited = await settled(world, await site.post(f"/api/messages/{session}.1/edit", {"text": "eins"}))
        found = await site.get(f"/api/sessions/{session}")
        assert turns_of(found) == [
            [first["turn"], edited["turn"]],
            [second["turn"], again["turn"]],
        ]
        assert all(m["undone"] in found["versions"]["hidden"] for m in found["messages"] if m.get("undone"))
        await site.post(f"/api/sessions/{session}/version", {"turn": first["turn"]})
        await site.post(f"/api/sessions/{session}/version", {"turn": second["turn"]})
        assert await shown(site, session) == ["one", "one", "two", "one | two"]

        fork = (await site.post(f"/api/sessions/{session}/fork"))["session"]["id"]
        await site.post(f"/api/sessions/{fork}/version", {"turn": edited["turn"]})
        assert await shown(site, fork) == ["eins", "eins"]
        assert await shown(site, session) == ["one", "one", "two", "one | two"]
        await site.problem(404, "POST", f"/api/sessions/{session}/version", json={"turn": "nothing"})


async def test_a_version_whose_question_was_deleted_gives_way_whole(begin: Begin) -> None:
    world = await begin(agent=History(), policy=Policy(access=OPEN))
    async with open_site(world.hub, world.clock) as site:
        first = await say(site, world, "one")
        session = first["session"]
        again = await settled(world, await site.post(f"/api/sessions/{session}/retry"))
        await say(site, world, "two", session)
        await site.delete(f"/api/messages/{session}.{again['seq']}")
        await site.post(f"/api/sessions/{session}/version", {"turn": first["turn"]})
        assert await shown(site, session) == ["one", "one"]
        await site.post(f"/api/sessions/{session}/version", {"turn": again["turn"]})
        assert await shown(site, session) == ["one", "two", "one | two"]


async def test_a_version_from_before_a_summary_is_refused(site: Site, world: World) -> None:
    first = await say(site, world, "one")
    session = first["session"]
    again = await settled(world, await site.post(f"/api/sessions/{session}/retry"))
    await world.database.write(
        "test", lambda tx: epochs.begin(tx, SessionId(session), first_seq=again["seq"], summary="one")
    )
    path = f"/api/sessions/{session}/version"
    assert "summarized" in await site.problem(409, "POST", path, json={"turn": first["turn"]})
    assert await shown(site, session) == ["one", "one"]


async def test_an_earlier_question_is_asked_again_with_another_model_and_the_answer_names_it(
    begin: Begin,
) -> None:
    policy = Policy(access=OPEN, models=("small", "large"))
    world = await begin(agent=History(), policy=policy)
    async with open_site(world.hub, world.clock) as site:
        start = await site.get("/api/start")
        listener = Listener(site.app, start["cursor"])
        first = await say(site, world, "one")
        session = first["session"]
        await say(site, world, "two", session)
        retry = f"/api/sessions/{session}/retry"
        async with listener.connect():
            sent = await settled(world, await site.post(retry, {"message": 2, "model": "large"}))
            await listener.wait_until(
                lambda: any(e.data.get("answer", {}).get("turn") == sent["turn"] for e in listener.events)
            )
        told = next(e.data for e in listener.events if e.data.get("answer", {}).get("turn") == sent["turn"])
        assert (told["answer"]["model"], told["answer"]["cost"]) == ("large", 1200)
        found = await site.get(f"/api/sessions/{session}")
        by_turn = {a["turn"]: a for a in found["answers"]}
        assert by_turn[first["turn"]]["model"] == "small"
        assert by_turn[sent["turn"]]["tokens"] == {"input": 7, "output": 5}
        assert by_turn[sent["turn"]]["seconds"] >= 0
        assert await shown(site, session) == ["one", "one"]
        await say(site, world, "three", session)
        newest = (await site.get(f"/api/sessions/{session}"))["answers"][-1]
        assert newest["model"] == "small"
        await site.problem(404, "POST", retry, json={"model": "unknown"})


async def test_one_message_is_deleted_restored_and_erased(site: Site, world: World) -> None:
    session = (await say(site, world, "one"))["session"]
    await say(site, world, "!tool read secret", session)
    found = (await site.get(f"/api/sessions/{session}"))["messages"]
    call = next(m for m in found if any(p["type"] == "tool_call" for p in m["parts"]))
    await site.delete(f"/api/messages/{call['id']}")
    left = (await site.get(f"/api/sessions/{session}"))["messages"]
    assert [m["undone"] for m in left if m.get("undone")] == [-1, -1]
    await site.problem(404, "POST", f"/api/sessions/{session}/redo")
    await site.post(f"/api/messages/{call['id']}/restore")
    back = (await site.get(f"/api/sessions/{session}"))["messages"]
    assert back == found

    await site.delete(f"/api/messages/{session}.1")
    await site.post(f"/api/sessions/{session}/undo", {"count": 1})
    await site.post(f"/api/sessions/{session}/redo")
    assert (await shown(site, session))[0] == "one"
    await site.delete(f"/api/messages/{call['id']}?erase=true")
    after = await site.request("GET", f"/api/sessions/{session}/export?format=jsonl")
    assert '"secret' not in after.text.replace("!tool read secret", "")
    gone = await site.get(f"/api/messages/{call['id']}")
    assert [p.get("text", p.get("input")) for p in gone["parts"]] == ["(erased)", "{}"]
    hits = await site.get("/api/search", params={"q": "was given"})
    assert all(hit["seq"] != call["seq"] for hit in hits["hits"])


async def test_a_search_finds_words_of_the_whole_conversation_in_order(site: Site, world: World) -> None:
    session = (await say(site, world, "the Oslo trip"))["session"]
    await say(site, world, "nothing here", session)
    await say(site, world, "back to oslo, and OSLO again", session)
    await say(site, world, "oslo elsewhere")
    found = await site.get(f"/api/sessions/{session}/search", params={"q": "oslo"})
    assert [p["seq"] for p in found["passages"]] == [1, 2, 5, 6]
    assert [p["count"] for p in found["passages"]] == [1, 1, 2, 2]
    assert found["words"] == ["oslo"]
    assert "<mark>OSLO</mark>" in found["passages"][2]["html"]
    assert (await site.get(f"/api/sessions/{session}/search", params={"q": "osl*"}))["passages"]
    assert (await site.get(f"/api/sessions/{session}/search", params={"q": '"("'}))["passages"] == []
    await site.problem(404, "GET", "/api/sessions/nothing/search?q=oslo")


async def test_the_outline_a_date_and_the_words_for_the_clipboard(site: Site, world: World) -> None:
    session = (await say(site, world, "one\nline"))["session"]
    await site.post(f"/api/sessions/{session}/messages", {"text": "two"})
    last = await say(site, world, "three **bold**", session)
    outline = await site.get(f"/api/sessions/{session}/outline")
    assert [q["text"] for q in outline["questions"]] == ["one line", "two", "three **bold**"]
    at = outline["questions"][0]["at"]
    window = await site.get(f"/api/sessions/{session}/messages", params={"at": at, "limit": 2})
    assert window["messages"][0]["seq"] == 1
    await site.problem(400, "GET", f"/api/sessions/{session}/messages?at={at.replace('+', '%2B')}&before=3")
    words = await site.request("GET", f"/api/sessions/{session}/words?first=1&last={last['seq']}")
    assert words.headers["content-type"].startswith("text/markdown")
    assert words.text.count("**You**") == 3
    assert "three **bold**" in words.text
    assert "one\nline" in words.text


async def test_a_shared_link_shows_one_conversation_and_ends_when_it_is_revoked(world: World) -> None:
    async with open_site(world.hub, world.clock, installation=PUBLIC, token="a-token-of-some-length") as site:
        signed = {"Authorization": "Bearer a-token-of-some-length"}
        site.client.headers.update(signed)
        picture = await site.request("POST", "/api/media?name=dot.png", content=PIXEL)
        sent = await site.post(
            "/api/sessions",
            {"text": "look **here** <script>alert(1)</script>", "media": [picture.json()["media"]]},
        )
        await settled(world, sent)
        session = sent["session"]
        other = await say(site, world, "private words")
        made = await site.post(f"/api/sessions/{session}/shares")
        path = made["address"].removeprefix(f"http://{HOST}")
        await say(site, world, "said afterwards", session)
        del site.client.headers["Authorization"]

        page = await site.request("GET", path)
        assert page.status_code == 200
        assert "look <strong>here</strong>" in page.text
        assert "<script" not in page.text
        for hidden in (session, other["session"], "private", "afterwards", "operator", made["share"]["id"]):
            assert hidden not in page.text
        policy = page.headers["content-security-policy"]
        assert (
            "unsafe" not in policy and "script-src" not in policy and policy.startswith("default-src 'none'")
        )
        assert page.headers["cache-control"] == "no-store"
        source = page.text.partition('<img src="')[2].partition('"')[0]
        assert (await site.request("GET", source)).content == PIXEL
        for wrong in (path[:-1], f"{path}x", f"{path}/media/unknown", "/share/x"):
            assert (await site.request("GET", wrong)).status_code == 404
        await site.problem(401, "GET", f"/api/sessions/{session}/shares")

        site.client.headers.update(signed)
        assert [s["through"] for s in (await site.get(f"/api/sessions/{session}/shares"))["shares"]] == [2]
        await site.delete(f"/api/sessions/{session}/shares/{made['share']['id']}")
        await site.problem(404, "DELETE", f"/api/sessions/{session}/shares/{made['share']['id']}")
        del site.client.headers["Authorization"]
        assert (await site.request("GET", path)).status_code == 404
        assert (await site.request("GET", source)).status_code == 404


@pytest.mark.engines(Engine.SQLITE)
async def test_nothing_is_shared_without_a_public_address_nor_after_the_conversation_is_deleted(
    world: World,
) -> None:
    async with open_site(world.hub, world.clock, installation=PUBLIC) as site:
        session = (await say(site, world, "one"))["session"]
        path = (await site.post(f"/api/sessions/{session}/shares"))["address"].removeprefix(f"http://{HOST}")
        assert (await site.request("GET", path)).status_code == 200
        async with open_site(world.hub, world.clock) as closed:
            assert (await closed.request("GET", path)).status_code == 404
            await closed.problem(403, "POST", f"/api/sessions/{session}/shares")
        await site.delete(f"/api/sessions/{session}")
        assert (await site.request("GET", path)).status_code == 404


@pytest.mark.engines(Engine.SQLITE)
async def test_the_files_of_a_folder_are_found_and_nothing_outside_of_it(
    site: Site, world: World, tmp_path: Path
) -> None:
    folder, outside = tmp_path / "project", tmp_path / "outside"
    (folder / "src").mkdir(parents=True)
    (folder / ".git").mkdir()
    outside.mkdir()
    for path in (folder / "src/main.py", folder / "notes.md", folder / ".git/config", outside / "main.py"):
        path.write_text("x")
    (folder / "link").symlink_to(outside)
    (folder / "main.link").symlink_to(outside / "main.py")
    session = (await say(site, world, "one"))["session"]
    files = f"/api/sessions/{session}/files"
    assert (await site.get(files))["files"] == []
    await site.patch(f"/api/sessions/{session}", {"cwd": str(folder)})
    assert (await site.get(files))["files"] == ["notes.md", "src/main.py"]
    assert (await site.get(files, params={"q": "smn"}))["files"] == ["src/main.py"]
    assert (await site.get(files, params={"q": "../"}))["files"] == []


@pytest.mark.engines(Engine.SQLITE)
async def test_an_import_that_takes_long_keeps_no_export_waiting(site: Site, world: World) -> None:
    """Each program's reader looks through the whole file, line by line, before it is refused."""
    session = (await say(site, world, "one"))["session"]
    importing = asyncio.create_task(site.request("POST", "/api/import?name=x.jsonl", content=b"\n" * 150_000))
    await site.get("/api/start")
    exported = await site.request("GET", f"/api/sessions/{session}/export?format=markdown")
    assert "one" in exported.text
    assert not importing.done()
    assert (await importing).status_code == 400


@pytest.mark.engines(Engine.SQLITE)
async def test_files_of_exports_are_imported_and_only_by_the_operator(
    site: Site, world: World, tmp_path: Path
) -> None:
    first = await say(site, world, "one")
    session = first["session"]
    await settled(world, await site.post(f"/api/messages/{session}.1/edit", {"text": "uno"}))
    await site.delete(f"/api/messages/{session}.4")
    own = await site.request("GET", f"/api/sessions/{session}/export?format=jsonl")
    await site.delete(f"/api/sessions/{session}?erase=true")
    path = "/api/import?name=keryx.jsonl"
    added = (await site.request("POST", path, content=own.content)).json()
    assert (added["program"], added["created"], added["messages"]) == ("Keryx", 1, 4)
    assert await shown(site, session) == ["uno"]
    await site.post(f"/api/sessions/{session}/version", {"turn": first["turn"]})
    assert await shown(site, session) == ["one", "one"]
    assert (await site.request("POST", path, content=own.content)).json()["unchanged"] == 1
    for name in ("chatgpt", "claude-ai", "open-webui", "librechat", "claude-code", "codex"):
        file = SAMPLES[name].write(tmp_path / name)
        if file.is_dir():
            file = next(f for f in sorted(file.rglob("*")) if f.suffix in (".json", ".jsonl", ".zip", ".db"))
        answer = await site.request("POST", f"/api/import?name={file.name}", content=file.read_bytes())
        assert answer.status_code == 200, (name, answer.text)
        assert answer.json()["program"] == PROGRAMS[name].title
        assert answer.json()["messages"] > 0
    await site.problem(400, "POST", "/api/import?name=x.json", content=b"not an export")
    await site.problem(400, "POST", "/api/import?name=..%2Fx", content=b"{}")
    guest = Viewer(DEFAULT_PROFILE, PrincipalId("bob"))
    async with open_site(world.hub, world.clock, operator=guest) as other:
        await other.problem(403, "POST", path, content=own.content)


async def test_nobody_else_reaches_these_verbs(world: World) -> None:
    turn = await world.ask("mine")
    stranger = Viewer(DEFAULT_PROFILE, PrincipalId("bob"))
    async with open_site(world.hub, world.clock, operator=stranger, installation=PUBLIC) as site:
        base, message = f"/api/sessions/{turn.session}", f"/api/messages/{turn.session}.1"
        for method, path, body in (
            ("POST", f"{message}/edit", {"text": "x"}),
            ("DELETE", message, None),
            ("POST", f"{message}/restore", None),
            ("POST", f"{base}/version", {"turn": turn.id}),
            ("POST", f"{base}/retry", {"message": 1}),
            ("GET", f"{base}/search?q=mine", None),
            ("GET", f"{base}/outline", None),
            ("GET", f"{base}/words", None),
            ("GET", f"{base}/files", None),
            ("GET", f"{base}/shares", None),
            ("POST", f"{base}/shares", {}),
            ("DELETE", f"{base}/shares/x", None),
        ):
            await site.problem(404, method, path, **({"json": body} if body is not None else {}))


async def test_the_page_is_told_who_answers_in_a_conversation_and_in_new_ones(begin: Begin) -> None:
    policy = Policy(
        access=OPEN, models=("small", "large"), agents=("echo", "llm", "coder"), model_agents={"llm": "large"}
    )
    world = await begin(policy=policy)
    async with open_site(world.hub, world.clock) as site:
        models = {"llm": ["large", "small"]}
        assert (await site.get("/api/start"))["answering"] == {"agent": "echo", "models": models}
        session = SessionId((await say(site, world, "one"))["session"])
        binding = Binding(agent="coder", id="1", cwd="/", model="opus", models=("haiku", "opus"))
        await world.database.write("bind", lambda tx: sessions.save_binding(tx, session, binding))
        found = await site.get(f"/api/sessions/{session}")
        assert found["answering"] == {"agent": "echo", "models": models | {"coder": ["opus", "haiku"]}}
