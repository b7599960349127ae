"""Routes of models under /v1: which there are, and the transcription of sounds."""

import math
import re
from collections.abc import Mapping

import anyio.to_thread
from starlette.responses import Response

from keryx.core.errors import Invalid, NotFound
from keryx.core.media import Attachment
from keryx.core.ports.agent import SpeechHints
from keryx.surfaces.web.openai_api import Json
from keryx.surfaces.web.openai_api.generation_routes import JSON, respond
from keryx.surfaces.web.openai_api.request_bodies import LooseQuery
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest, read_body

router = ApiRouter()

_BOUNDARY = re.compile(
    r"""multipart/form-data;.*\bboundary=(?:"([^"]{1,200})"|([^\s;,"]{1,200}))""", re.IGNORECASE
)
_FIELD = re.compile(r"""\b(name|filename)="((?:[^"\\]|\\.)*)\"""")
_LANGUAGE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,3}")
_FORM_BYTES = 65_536
_MAX_FIELDS = 50
_MAX_FIELD_HEAD_BYTES = 8_192
_MOST_PROMPT_CHARACTERS = 10_000
_TRANSCRIPTION_FIELDS = frozenset(
    {"file", "model", "language", "prompt", "temperature", "response_format", "stream"}
)


@router.get("/v1/models", summary="The models and agents that a request may name.", media_types=JSON)
async def list_models(request: ApiRequest, query: LooseQuery) -> Response:
    models = [_build_model(name) for name in request.hub.api_turns.list_models()]
    return respond({"object": "list", "data": models})


@router.get("/v1/models/{model}", summary="A model or agent that a request may name.", media_types=JSON)
async def get_model(request: ApiRequest, query: LooseQuery) -> Response:
    name, known = request.path_param("model"), request.hub.api_turns.list_models()
    if name not in known:
        raise NotFound(f"there is no model {name[:80]!r}: there are {', '.join(known)}")
    return respond(_build_model(name))


@router.post(
    "/v1/audio/transcriptions",
    summary="What is said in a sound, if a model is configured for it.",
    media_types=("application/json", "text/plain"),
    body_media_type="multipart/form-data",
)
async def create_transcription(request: ApiRequest, query: LooseQuery) -> Response:
    transcribe = request.services.transcribe
    if transcribe is None:
        raise NotFound(
            "no model is configured that transcribes sounds: name one under [transcription] in keryx.toml"
        )
    body = await read_body(request.http, request.hub.media.limit + _FORM_BYTES)
    content_type = request.http.headers.get("content-type", "")
    fields = await anyio.to_thread.run_sync(parse_form, content_type, body)
    file = fields.get("file")
    if file is None or not file.body:
        raise Invalid("`file` is missing: send the sound as a part of the form")
    wanted, hints = read_speech_request(fields)
    text = await transcribe(file, hints)
    if wanted == "text":
        return Response(text, media_type="text/plain")
    return respond({"text": text})


def read_speech_request(fields: Mapping[str, Attachment]) -> tuple[str, SpeechHints]:
    """Return the format that a request for a transcription wants, and what it says about the sound. Raise `Invalid` for what
    is not there: times of words, speakers, streams."""
    values = {
        name: field.body.decode("utf-8", "replace").strip()
        for name, field in fields.items()
        if name != "file"
    }
    unknown = sorted(name for name in values if name not in _TRANSCRIPTION_FIELDS)
    if unknown:
        known = ", ".join(sorted(_TRANSCRIPTION_FIELDS))
        raise Invalid(f"`{unknown[0][:40]}` is not known for transcriptions: leave it out, there are {known}")
    wanted = values.get("response_format") or "json"
    if wanted not in ("json", "text"):
        raise Invalid(f"`response_format` is json or text: {wanted[:40]!r} needs times, which are not there")
    if values.get("stream", "").lower() not in ("", "false", "0"):
        raise Invalid("transcriptions are not streamed: leave `stream` out")
    language, prompt, temperature = (values.get(name) for name in ("language", "prompt", "temperature"))
    if prompt and len(prompt) > _MOST_PROMPT_CHARACTERS:
        raise Invalid(
            f"`prompt` has {len(prompt):,} characters: at most {_MOST_PROMPT_CHARACTERS:,} are taken"
        )
    if language and not _LANGUAGE.fullmatch(language):
        raise Invalid(f"`language` is a code such as de or pt-BR: {language[:40]!r} is none")
    try:
        warmth = float(temperature) if temperature else None
    except ValueError:
        warmth = math.nan
    if warmth is not None and not 0 <= warmth <= 1:
        raise Invalid("`temperature` is a number from 0 to 1")
    return wanted, SpeechHints(language=language or None, prompt=prompt or None, temperature=warmth)


def parse_form(content_type: str, body: bytes) -> dict[str, Attachment]:
    """Return the fields of a multipart form by name. Raise `Invalid` if it is none."""
    found = _BOUNDARY.match(content_type)
    if found is None:
        raise Invalid("the body is not multipart/form-data: send the sound as a form with the field `file`")
    boundary = b"\r\n--" + (found[1] or found[2]).encode("latin-1")
    # The first boundary has no line before it.
    pieces = (b"\r\n" + body).split(boundary, _MAX_FIELDS)
    if len(pieces) > _MAX_FIELDS or len(pieces) < 3:
        raise Invalid(f"the form has no fields, or more than {_MAX_FIELDS}")
    fields: dict[str, Attachment] = {}
    for piece in pieces[1:-1]:
        end = piece.find(b"\r\n\r\n", 0, _MAX_FIELD_HEAD_BYTES)
        if end < 0:
            raise Invalid("a field of the form has no end of its headers, or very long ones")
        text, content = piece[:end].decode("utf-8", "replace"), piece[end + 4 :]
        names = dict(_FIELD.findall(text))
        mime = re.search(r"^content-type:\s*(\S+)", text, re.IGNORECASE | re.MULTILINE)
        fields[names.get("name", "")] = Attachment(
            name=names.get("filename", ""), mime=mime[1].rstrip(";") if mime else "", body=content
        )
    return fields


def _build_model(name: str) -> Json:
    return {"id": name, "object": "model", "created": 0, "owned_by": "keryx"}
