"""Transcribes sounds with a model behind an OpenAI-compatible `/audio/transcriptions` endpoint. Import it lazily: it loads the optional openai package."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import openai

from keryx.agents.llm import Model, provider_errors, resolve_endpoint
from keryx.core.errors import AgentFailed, KeryxError
from keryx.core.media import Attachment
from keryx.core.ports.agent import SpeechHints, TranscribeSound
from keryx.core.text import truncate
from keryx.core.texts import Phrase

NO_SPEECH = Phrase("voice.silent")
_MOST_CHARACTERS = 100_000
_TIMEOUT = openai.Timeout(120.0, connect=10.0)
_RETRIES = 2
# Providers recognise the format by the ending of the name.
_ENDINGS = {
    "audio/ogg": "ogg",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/webm": "webm",
    "audio/flac": "flac",
    "audio/x-flac": "flac",
    "audio/mp3": "mp3",
    "audio/mpga": "mpga",
    "audio/m4a": "m4a",
    "audio/x-m4a": "m4a",
    "audio/aac": "aac",
    "audio/amr": "amr",
    "audio/x-caf": "caf",
    "audio/silk": "silk",
    "audio/opus": "opus",
}


@asynccontextmanager
async def open_transcriber(model: Model) -> AsyncGenerator[TranscribeSound]:
    """Open a function that returns what is said in a sound, and raises `AgentFailed` with a sentence for the user."""
    clients: list[openai.AsyncOpenAI] = []

    async def transcribe(sound: Attachment, hints: SpeechHints = SpeechHints()) -> str:
        try:
            endpoint = await asyncio.to_thread(resolve_endpoint, model)
        except KeryxError as exc:
            raise AgentFailed(Phrase("model.no_key", reason=exc.text)) from exc
        if not clients:
            clients.append(
                openai.AsyncOpenAI(
                    base_url=endpoint.base_url,
                    api_key=endpoint.key or "none",
                    max_retries=_RETRIES,
                    timeout=_TIMEOUT,
                )
            )
            # The SDK reads these from the environment, where they are meant for one provider only.
            clients[0].organization = clients[0].project = None
        client = clients[0].with_options(api_key=endpoint.key or "none")
        name = f"sound.{_ENDINGS.get(sound.mime, 'ogg')}"
        try:
            result = await client.audio.transcriptions.create(
                file=(name, sound.body, sound.mime),
                model=model.id,
                response_format="json",
                language=openai.omit if hints.language is None else hints.language,
                prompt=openai.omit if hints.prompt is None else hints.prompt,
                temperature=openai.omit if hints.temperature is None else hints.temperature,
            )
        except openai.OpenAIError as exc:
            raise provider_errors.classify(exc, model, secret=endpoint.key).error from exc
        return truncate(result.text.strip(), _MOST_CHARACTERS) or NO_SPEECH

    try:
        yield transcribe
    finally:
        for client in clients:
            await client.close()
