"""Routes of models under /v1: which there are, and the transcription of sounds."""

import re

import anyio.to_thread
from starlette.responses import Response

from keryx.core.errors import Invalid, NotFound
from keryx.core.media import Attachment
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
_FORM_BYTES = 65_536
_MAX_FIELDS = 50
_MAX_FIELD_HEAD_BYTES = 8_192


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
    text = await transcribe(file)
    wanted = fields.get("response_format")
    if wanted is not None and wanted.body == b"text":
        return Response(text, media_type="text/plain")
    return respond({"text": text})


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
