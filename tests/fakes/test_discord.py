"""The fake Discord is as strict as the real one where it matters, and the client library of Discord's users works with it."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests import left_out
from tests.fakes import discord_schema
from tests.fakes.discord import APPLICATION_ID, ROUTES, TOKEN, FakeDiscord

from keryx.testing.fault_injection import PlatformFaults

HEADERS = {"authorization": f"Bot {TOKEN}", "user-agent": "DiscordBot (test, 1)"}


@pytest.fixture
def discord() -> Iterator[FakeDiscord]:
    with FakeDiscord() as running:
        running.add_channel("7001", guild=None)
        yield running


def call(discord: FakeDiscord, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    return httpx.request(
        method, discord.api_url + path, json=body, headers={**HEADERS, **headers}, timeout=10
    )


def send(discord: FakeDiscord, **body: Any) -> httpx.Response:
    return call(discord, "POST", "/channels/7001/messages", body)


def test_every_route_of_the_fake_is_an_operation_of_discord() -> None:
    assert {operation for *_, operation in ROUTES} == set(discord_schema.OPERATIONS)


def test_what_the_description_does_not_have_is_refused(discord: FakeDiscord) -> None:
    assert call(discord, "GET", "/channels/7001/messages?limit=10&after=0").status_code == 200
    for query in ("hologram=1", "limit=many"):
        refused = call(discord, "GET", f"/channels/7001/messages?{query}")
        assert refused.json()["code"] == 50035, query


def test_answers_have_every_field_that_the_description_requires(discord: FakeDiscord) -> None:
    application = call(discord, "GET", "/applications/@me").json()
    assert application["owner"]["global_name"] is None and application["redirect_uris"] == []
    described = discord_schema.OPERATIONS["GET /applications/@me"]["answer"]
    assert discord_schema.find_problems(application, described, answer=True) == []
    wrong = {**application, "id": 5, "name": None}
    del wrong["flags"]
    problems = discord_schema.find_problems(wrong, described, answer=True)
    assert [problem.partition(" ")[0] for problem in problems] == ["flags", "id", "name"]


def test_a_wrong_token_and_a_wrong_client_are_refused(discord: FakeDiscord) -> None:
    assert call(discord, "GET", "/users/@me", authorization="Bot x").status_code == 401
    assert call(discord, "GET", "/users/@me", **{"user-agent": "python"}).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        {"content": "x" * 2001},
        {"content": "x", "nonce": "n" * 26},
        {"content": "x", "hologram": 1},
        {"content": 3},
        {"content": "x", "allowed_mentions": {"parse": ["all"]}},
        {"content": "x", "message_reference": {}},
        {"content": "x", "components": [{"type": 1, "components": [{"type": 2, "style": 2, "label": "a"}]}]},
        {
            "content": "x",
            "components": [
                {"type": 1, "components": [{"type": 2, "style": 2, "label": "a" * 81, "custom_id": "a"}]}
            ],
        },
        {"content": "x", "attachments": [{"id": 0, "filename": "a"}]},
    ],
)
def test_a_message_that_breaks_a_limit_is_refused(discord: FakeDiscord, body: dict[str, Any]) -> None:
    answer = send(discord, **body)
    assert (answer.status_code, answer.json()["code"]) == (400, 50035)
    assert discord.posts == []


def test_an_empty_message_is_refused(discord: FakeDiscord) -> None:
    assert send(discord, content=" ").json()["code"] == 50006


def test_a_repeated_nonce_returns_the_first_message(discord: FakeDiscord) -> None:
    first = send(discord, content="a", nonce="1", enforce_nonce=True).json()["id"]
    assert send(discord, content="a", nonce="1", enforce_nonce=True).json()["id"] == first
    assert send(discord, content="a", nonce="1").json()["id"] != first
    discord.forget_nonces()
    assert send(discord, content="a", nonce="1", enforce_nonce=True).json()["id"] != first


def test_a_bucket_tells_what_is_left(discord: FakeDiscord) -> None:
    discord.bucket = (1, 60.0)
    assert send(discord, content="a").headers["x-ratelimit-remaining"] == "0"
    refused = send(discord, content="b")
    assert refused.status_code == 429 and 0 < refused.json()["retry_after"] <= 60


def test_a_lost_reply_comes_after_the_message_was_taken() -> None:
    with FakeDiscord(PlatformFaults(lost_reply=1)) as discord:
        discord.add_channel("7001", guild=None)
        with pytest.raises(httpx.RemoteProtocolError):
            send(discord, content="hello")
        assert discord.texts() == ["hello"]


def test_messages_are_listed_after_an_id_the_newest_first(discord: FakeDiscord) -> None:
    ids = [discord.say(f"m{n}") for n in range(4)]
    found = call(discord, "GET", f"/channels/7001/messages?after={ids[0]}&limit=2").json()
    assert [message["content"] for message in found] == ["m2", "m1"]


def test_an_interaction_can_be_acknowledged_once(discord: FakeDiscord) -> None:
    given = discord.command("new")
    path = f"/interactions/{given.id}/{given.token}/callback"
    assert call(discord, "POST", path, {"type": 5}).status_code == 204
    assert call(discord, "POST", path, {"type": 5}).json()["code"] == 40060
    original = f"/webhooks/{APPLICATION_ID}/{given.token}/messages/@original"
    assert call(discord, "GET", original).json()["flags"] & 128
    assert call(discord, "PATCH", original, {"content": "done"}).json()["flags"] == 0
    assert discord.texts() == ["done"]


PROGRAM = """
import asyncio, json, sys, warnings
warnings.simplefilter("ignore")
import discord, yarl
from discord import app_commands
from discord.gateway import DiscordWebSocket
from discord.http import Route
api, gateway, token = sys.argv[1:]
Route.BASE, DiscordWebSocket.DEFAULT_GATEWAY = api, yarl.URL(gateway)
intents = discord.Intents.default()
intents.message_content = True
client = discord.Client(intents=intents)
tree = app_commands.CommandTree(client)
seen = []

@tree.command(name="greet", description="Greet somebody.")
async def greet(interaction, arguments: str):
    await interaction.response.defer()
    await interaction.edit_original_response(content="hello " + arguments)
    seen.append("command " + arguments)
    await client.close()

@client.event
async def on_ready():
    await tree.sync()
    print("ready", flush=True)

@client.event
async def on_message(message):
    if message.author == client.user:
        return
    seen.append(message.content)
    sent = await message.channel.send("thinking", nonce="n1", reference=message)
    await sent.edit(content="echo: " + message.content)
    await message.channel.send(file=discord.File(__import__("io").BytesIO(b"abc"), "a.txt"))

async def main():
    async with asyncio.timeout(60):
        await client.start(token)

asyncio.run(main())
print(json.dumps(seen))
"""


def test_discord_py_works_with_the_fake(discord: FakeDiscord) -> None:
    if importlib.util.find_spec("discord") is None:
        left_out.skip("discord.py", why="it is not installed", command="pip install discord.py")
    program = [sys.executable, "-c", PROGRAM, discord.api_url, discord.gateway_url, TOKEN]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None and running.stdout.readline() == "ready\n"
        discord.say("hi", channel="600000000000000001")
        assert discord.wait_for(lambda: len(discord.bot_posts("600000000000000001")) == 2)
        discord.command("greet", "Ann", channel="600000000000000001")
        assert json.loads(running.stdout.read()) == ["hi", "command Ann"]
    echo, file, response = discord.bot_posts("600000000000000001")
    assert (echo.content, echo.edits, echo.reference != "") == ("echo: hi", 1, True)
    assert [f["filename"] for f in file.files] == ["a.txt"]
    assert response.content == "hello Ann"
    assert [command["name"] for command in discord.commands] == ["greet"]
    assert discord.identifies == 1
