"""Sounds over the API: what is said in one, a text as one, and who may ask for that."""

import pytest
from tests.agents.conversation import VARIABLE, a_model
from tests.engine.world import World
from tests.fakes.endpoint import EARS, KEY, MOUTH, Endpoint, Refusal, make_sound
from tests.web.site import PASSWORD, open_site

from keryx.agents.llm.speech import open_speaker, open_transcriber
from keryx.surfaces.web.settings import hash_password

WEBM = {"content-type": "audio/webm;codecs=opus"}


async def test_a_person_with_access_has_words_written_down_and_texts_spoken(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    with Endpoint() as endpoint:
        async with (
            open_transcriber(a_model(endpoint, id=EARS)) as transcribe,
            open_speaker(a_model(endpoint, id=MOUTH), voice="alloy") as speak,
            open_site(
                world.hub, world.clock, transcribe=transcribe, speak=speak, password=hash_password(PASSWORD)
            ) as site,
        ):
            assert (await site.request("POST", "/api/speech", json={"text": "Hello"})).status_code == 401
            assert (
                await site.request("POST", "/api/transcriptions", content=b"x", headers=WEBM)
            ).status_code == 401
            await site.post("/api/sign-in", {"secret": PASSWORD})
            start = await site.get("/api/start")
            assert (start["transcribes"], start["speaks"]) == (True, True)
            heard = await site.request("POST", "/api/transcriptions", content=b"sound", headers=WEBM)
            assert heard.json() == {"text": "hello there"}
            assert endpoint.sounds == [("sound.webm", b"sound")]
            endpoint.transcripts[:] = [" "]
            silent = await site.request("POST", "/api/transcriptions", content=b"sound", headers=WEBM)
            assert silent.json() == {"text": ""}
            spoken = await site.request("POST", "/api/speech", json={"text": "Hello"})
            assert spoken.content == make_sound(0.2)
            assert spoken.headers["content-type"] == "audio/wav"
            assert spoken.headers["cache-control"] == "no-store"
            assert "microphone=(self)" in spoken.headers["permissions-policy"]
            endpoint.voices[:] = [Refusal(status=400, message="unknown voice")]
            assert "unknown voice" in await site.problem(502, "POST", "/api/speech", json={"text": "Hello"})


async def test_what_is_no_sound_and_what_is_too_long_is_refused_before_a_model_is_asked(world: World) -> None:
    with Endpoint() as endpoint:
        async with (
            open_transcriber(a_model(endpoint, id=EARS)) as transcribe,
            open_speaker(a_model(endpoint, id=MOUTH), voice="alloy") as speak,
            open_site(world.hub, world.clock, transcribe=transcribe, speak=speak) as site,
        ):
            for content, headers in ((b"x", {"content-type": "text/plain"}), (b"", WEBM)):
                told = await site.problem(
                    400, "POST", "/api/transcriptions", content=content, headers=headers
                )
                assert told == "This is not a sound."
            large = b"x" * (world.hub.media.limit + 1)
            assert "MB" in await site.problem(413, "POST", "/api/transcriptions", content=large, headers=WEBM)
            await site.problem(400, "POST", "/api/speech", json={"text": ""})
            await site.problem(400, "POST", "/api/speech", json={"text": "x" * 4001})
        assert endpoint.sounds == endpoint.spoken == []


async def test_without_a_model_the_page_is_told_so(world: World) -> None:
    async with open_site(world.hub, world.clock) as site:
        start = await site.get("/api/start")
        assert not start.get("transcribes")
        assert not start.get("speaks")
        german = {**WEBM, "accept-language": "de"}
        assert await site.problem(404, "POST", "/api/transcriptions", content=b"x", headers=german) == (
            "Es ist kein Modell eingerichtet, das Gesprochenes aufschreibt."
        )
        assert "No model" in await site.problem(404, "POST", "/api/speech", json={"text": "Hello"})
