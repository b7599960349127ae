"""Routes of files: upload, download, what is said in a sound and a text as one, and sessions exported as a file."""

from functools import partial
from io import StringIO
from urllib.parse import quote

from starlette.responses import Response

from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import SessionId, is_temporary
from keryx.core.media import IMAGE_MIMES, UNKNOWN_MIME, Attachment, clean_name
from keryx.core.texts import Phrase
from keryx.engine.export import ExportFormat, write_sessions
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.operations import ApiRouter, RequiredRole
from keryx.surfaces.web.request import ApiRequest, read_body
from keryx.surfaces.web.responses import build_document

router = ApiRouter()

MAX_IMPORT_BYTES = 48 << 20
"""The largest file that is imported from a browser; `keryx import` takes any."""

_EXPORTS = {
    request_schema.Format.MARKDOWN: (ExportFormat.MD, "md", "text/markdown; charset=utf-8"),
    request_schema.Format.HTML: (ExportFormat.HTML, "html", "text/html; charset=utf-8"),
    request_schema.Format.JSONL: (ExportFormat.JSONL, "jsonl", "application/x-ndjson"),
}
SANDBOX_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


@router.post(
    "/api/media",
    summary="Keep a picture, sound or file, to be sent with a message. The body is the file.",
    status=201,
    body_media_type="application/octet-stream",
)
async def upload(request: ApiRequest, query: request_schema.UploadQuery) -> schema.Media:
    body = await read_body(request.http, request.hub.media.limit)
    mime = request.http.headers.get("content-type", "")
    file = Attachment(name=query.name, mime=mime, body=body)
    session = SessionId(query.session) if is_temporary(query.session) else None
    return presenters.media(await request.hub.media.save(request.viewer, file, session=session))


@router.post(
    "/api/import",
    summary="Bring in the conversations of a file: an export of Keryx or of another program. The body is the file.",
    body_media_type="application/octet-stream",
    body_limit=MAX_IMPORT_BYTES,
    role=RequiredRole.OPERATOR,
)
async def import_file(request: ApiRequest, query: request_schema.UploadQuery) -> schema.Imported:
    body = await read_body(request.http, MAX_IMPORT_BYTES)
    async with request.services.imports:
        done = await request.hub.file_imports.run(request.viewer, query.name, body)
    return schema.Imported(
        program=done.program,
        created=done.created,
        extended=done.extended,
        unchanged=done.unchanged,
        messages=done.messages,
        losses=done.losses,
    )


@router.get("/media/{media}", summary="A picture, sound or file.", media_types=("*/*",))
async def download(request: ApiRequest, query: request_schema.DownloadQuery) -> Response:
    """Return a file unchanged. Browsers display only images of known types; the policy keeps scripts from running."""
    file = await request.hub.media.fetch(request.viewer, request.path_param("media"))
    picture, sound = file.mime in IMAGE_MIMES, file.mime.startswith("audio/")
    return Response(
        file.body,
        headers={
            "Content-Disposition": build_disposition(
                clean_name(query.name) or file.name or "file", inline=picture
            ),
            "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
            "Cache-Control": "private, max-age=31536000, immutable",
            # A browser keeps it for the person who is signed in, not for the next one.
            "Vary": "Cookie, Authorization",
        },
        media_type=file.mime if picture or sound else UNKNOWN_MIME,
    )


@router.post(
    "/api/transcriptions",
    summary="What is said in a sound, which is not kept. The body is the sound.",
    body_media_type="application/octet-stream",
)
async def transcribe(request: ApiRequest) -> schema.Transcription:
    """Return an empty text if nothing is said in it."""
    hear = request.services.transcribe
    if hear is None:
        raise NotFound(Phrase("speech.no_transcription"))
    mime = request.http.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not mime.startswith("audio/"):
        raise Invalid(Phrase("speech.not_a_sound"))
    body = await read_body(request.http, request.hub.media.limit)
    if not body:
        raise Invalid(Phrase("speech.not_a_sound"))
    async with request.services.sounds:
        text = await hear(Attachment(name="speech", mime=mime, body=body))
    # A phrase stands in a conversation for a sound in which nobody speaks.
    return schema.Transcription(text="" if isinstance(text, Phrase) else text)


@router.post("/api/speech", summary="A text as a sound.", media_types=("audio/*",))
async def speak(request: ApiRequest, body: request_schema.SpeechForm) -> Response:
    say = request.services.speak
    if say is None:
        raise NotFound(Phrase("speech.no_model"))
    async with request.services.sounds:
        sound = await say(body.text)
    return Response(sound.body, headers={"Cache-Control": "no-store"}, media_type=sound.mime)


@router.get(
    "/api/sessions/{session}/export",
    summary="The conversation as a file.",
    media_types=("text/markdown", "text/html", "application/x-ndjson"),
)
async def export(request: ApiRequest, query: request_schema.ExportQuery) -> Response:
    format_, extension, mime = _EXPORTS[query.format]
    text = StringIO()
    exporter = partial(
        write_sessions, format=format_, write=text.write, redact=query.redact, texts=request.texts
    )
    async with request.services.exports.hold(request.viewer.principal):
        await request.hub.export(request.viewer, request.session_id, exporter)
        return await _build_export(request, text.getvalue(), f"{request.session_id}.{extension}", mime)


@router.post(
    "/api/export",
    summary="Several conversations as one file.",
    media_types=("text/markdown", "text/html", "application/x-ndjson"),
)
async def export_many(request: ApiRequest, body: request_schema.SessionsExportForm) -> Response:
    format_, extension, mime = _EXPORTS[body.format]
    text = StringIO()
    exporter = partial(
        write_sessions, format=format_, write=text.write, redact=body.redact, texts=request.texts
    )
    async with request.services.exports.hold(request.viewer.principal):
        await request.hub.export_many(request.viewer, [SessionId(id_) for id_ in body.sessions], exporter)
        return await _build_export(request, text.getvalue(), f"conversations.{extension}", mime)


async def _build_export(request: ApiRequest, text: str, name: str, mime: str) -> Response:
    headers = {
        "Content-Disposition": build_disposition(name),
        "Content-Security-Policy": SANDBOX_POLICY,
        "Cache-Control": "no-store",
    }
    return await build_document(
        text, headers=headers, media_type=mime, folder=request.services.installation.home
    )


def build_disposition(name: str, *, inline: bool = False) -> str:
    """Return the Content-Disposition header for a file. The name may be any text: it is escaped."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\%;' else "_" for c in name)
    kind = "inline" if inline else "attachment"
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='', errors='replace')}"
