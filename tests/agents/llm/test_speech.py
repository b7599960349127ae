"""Sounds that are written down, and texts that are read aloud, by a model behind an endpoint."""

import msgspec
import pytest
from tests.agents.conversation import VARIABLE, a_model
from tests.fakes.endpoint import EARS, MOUTH, Endpoint, Raw, Refusal, make_sound

from keryx.agents.llm import speech
from keryx.agents.llm.speech import open_speaker, open_transcriber
from keryx.core.errors import AgentFailed
from keryx.core.media import Attachment


@pytest.mark.parametrize(
    ("mime", "name"),
    [
        ("audio/ogg", "sound.ogg"),
        ("audio/aac", "sound.aac"),
        ("audio/amr", "sound.amr"),
        ("audio/x-m4a", "sound.m4a"),
        ("audio/x-caf", "sound.caf"),
        ("audio/opus", "sound.opus"),
    ],
)
async def test_a_sound_has_the_ending_of_its_type_by_which_providers_go(mime: str, name: str) -> None:
    with Endpoint() as endpoint:
        async with open_transcriber(msgspec.structs.replace(a_model(endpoint), id=EARS)) as transcribe:
            assert await transcribe(Attachment(name="voice", mime=mime, body=b"x")) == "hello there"
        assert endpoint.sounds == [(name, b"x")]


async def test_a_text_becomes_a_sound_in_the_chosen_voice() -> None:
    with Endpoint() as endpoint:
        async with open_speaker(a_model(endpoint, id=MOUTH), voice="nova") as speak:
            sound = await speak("Good morning.")
        assert (sound.mime, sound.body) == ("audio/wav", make_sound(0.2))
        assert endpoint.spoken == [
            {"model": MOUTH, "voice": "nova", "input": "Good morning.", "response_format": "mp3"}
        ]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Refusal(status=400, message="unknown voice"), "unknown voice"),
        (Raw("<html>down</html>"), "Model 'test' sent no sound."),
        (b"", "Model 'test' sent no sound."),
        (b"x" * 2000, "The sound of model 'test' is too long."),
    ],
)
async def test_a_sound_that_cannot_be_had_is_told_in_a_sentence(
    answer: bytes | Refusal | Raw, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speech, "MOST_SOUND_BYTES", 1000)
    with Endpoint() as endpoint:
        endpoint.voices[:] = [answer]
        async with open_speaker(a_model(endpoint, id=MOUTH), voice="nova") as speak:
            with pytest.raises(AgentFailed, match=told) as failure:
                await speak("Good morning.")
    assert "/retry" not in str(failure.value)


async def test_a_missing_key_is_told_without_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with Endpoint() as endpoint:
        async with open_speaker(a_model(endpoint, id=MOUTH), voice="nova") as speak:
            with pytest.raises(AgentFailed, match=VARIABLE):
                await speak("Good morning.")
        assert endpoint.spoken == []
