"""Sounds that are written down by a model behind an endpoint."""

import msgspec
import pytest
from tests.agents.conversation import a_model
from tests.fakes.endpoint import EARS, Endpoint

from keryx.agents.llm.transcription import open_transcriber
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
