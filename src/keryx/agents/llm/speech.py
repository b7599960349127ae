"""Transcribes sounds and speaks texts with models behind OpenAI-compatible endpoints, `/audio/transcriptions` and
`/audio/speech`. Import it lazily: it loads the optional openai package."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Self

import httpx
import openai

from keryx.agents.llm import Model, provider_errors, resolve_endpoint
from keryx.core.errors import AgentFailed, KeryxError
from keryx.core.media import Attachment
from keryx.core.ports.agent import SpeakText, SpeechHints, TranscribeSound
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


# What a provider says that it sends; MP3 is asked for, and what is sent otherwise is passed on.
_SOUND_TYPE = "audio/mpeg"
MOST_SOUND_BYTES = 32 << 20


@asynccontextmanager
async def open_transcriber(model: Model) -> AsyncGenerator[TranscribeSound]:
    """Open a function that returns what is said in a sound, and raises `AgentFailed` with a sentence for the user."""
    async with _Caller(model) as caller:

        async def transcribe(sound: Attachment, hints: SpeechHints = SpeechHints()) -> str:
            name = f"sound.{_ENDINGS.get(sound.mime, 'ogg')}"
            async with caller.call() as client:
                result = await client.audio.transcriptions.create(
                    file=(name, sound.body, sound.mime),
                    model=model.id,
                    response_format="json",
                    language=openai.omit if hints.language is None else hints.language,
                    prompt=openai.omit if hints.prompt is None else hints.prompt,
                    temperature=openai.omit if hints.temperature is None else hints.temperature,
                )
            return truncate(result.text.strip(), _MOST_CHARACTERS) or NO_SPEECH

        yield transcribe


@asynccontextmanager
async def open_speaker(model: Model, *, voice: str) -> AsyncGenerator[SpeakText]:
    """Open a function that returns a text as a sound, and raises `AgentFailed` with a sentence for the user."""
    async with _Caller(model) as caller:

        async def speak(text: str) -> Attachment:
            async with (
                caller.call() as client,
                client.audio.speech.with_streaming_response.create(
                    model=model.id, voice=voice, input=text, response_format="mp3"
                ) as response,
            ):
                mime = response.headers.get("content-type", "").partition(";")[0].strip().lower()
                body = bytearray()
                async for piece in response.iter_bytes():
                    body += piece
                    if len(body) > MOST_SOUND_BYTES:
                        raise AgentFailed(Phrase("speech.too_long", name=repr(model.name)))
            # A page of a proxy, or an error in JSON with status 200.
            if not body or not mime.startswith(("audio/", "application/octet-stream")):
                raise AgentFailed(Phrase("speech.no_sound", name=repr(model.name)))
            return Attachment(
                name="speech", mime=mime if mime.startswith("audio/") else _SOUND_TYPE, body=bytes(body)
            )

        yield speak


class _Caller:
    """Calls the endpoint of a model, with the key that is found at the time."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._client: openai.AsyncOpenAI | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[openai.AsyncOpenAI]:
        """Yield a client. Errors of the provider become `AgentFailed`."""
        try:
            endpoint = await asyncio.to_thread(resolve_endpoint, self._model)
        except KeryxError as exc:
            raise AgentFailed(exc.text) from exc
        if self._client is None:
            self._client = openai.AsyncOpenAI(
                base_url=endpoint.base_url,
                api_key=endpoint.key or "none",
                max_retries=_RETRIES,
                timeout=_TIMEOUT,
            )
            # The SDK reads these from the environment, where they are meant for one provider only.
            self._client.organization = self._client.project = None
        try:
            yield self._client.with_options(api_key=endpoint.key or "none")
        except httpx.HTTPError as exc:
            raise AgentFailed(Phrase("model.broken_off", name=repr(self._model.name))) from exc
        except openai.OpenAIError as exc:
            failure = provider_errors.classify(exc, self._model, secret=endpoint.key)
            # Their advice is a command for a turn that failed.
            raise (AgentFailed(failure.what) if failure.what else failure.error) from exc
