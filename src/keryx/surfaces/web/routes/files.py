"""Routes of files: upload, download, and sessions exported as a file."""

from functools import partial
from io import StringIO
from urllib.parse import quote

from starlette.responses import Response

from keryx.core.media import IMAGE_MIMES, UNKNOWN_MIME, Attachment
from keryx.engine.export import exporter as export_exporter
from keryx.engine.export.exporter import ExportFormat
from keryx.surfaces.web import presenters, request_schema, schema
from keryx.surfaces.web.request import ApiRequest, Handler, read_body

_EXPORTS = {
    request_schema.Format.MARKDOWN: (ExportFormat.MD, "md", "text/markdown; charset=utf-8"),
    request_schema.Format.HTML: (ExportFormat.HTML, "html", "text/html; charset=utf-8"),
    request_schema.Format.JSONL: (ExportFormat.JSONL, "jsonl", "application/x-ndjson"),
}
SANDBOX_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


async def upload(ask: ApiRequest) -> schema.Media:
    body = await read_body(ask.request, ask.hub.media.limit)
    name = ask.query(request_schema.UploadQuery).name
    given = ask.request.headers.get("content-type", "")
    return presenters.media(
        await ask.hub.media.save(ask.viewer, Attachment(name=name, mime=given, body=body))
    )


async def download(ask: ApiRequest) -> Response:
    """A file as it came. Only pictures of known kinds are shown in the browser; nothing in it can run."""
    found = await ask.hub.media.fetch(ask.viewer, ask.path_param("media"))
    picture, sound = found.mime in IMAGE_MIMES, found.mime.startswith("audio/")
    return Response(
        found.body,
        headers={
            "Content-Disposition": build_disposition(found.name or "file", inline=picture),
            "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
            "Cache-Control": "private, max-age=31536000, immutable",
        },
        media_type=found.mime if picture or sound else UNKNOWN_MIME,
    )


async def export(ask: ApiRequest) -> Response:
    query = ask.query(request_schema.ExportQuery)
    wanted, ending, mime = _EXPORTS[query.format]
    text = StringIO()
    exporter = partial(export_exporter.export, format=wanted, write=text.write, redact=query.redact)
    await ask.hub.export(ask.viewer, ask.session_id, exporter)
    return Response(
        text.getvalue().encode("utf-8", "replace"),
        headers={
            "Content-Disposition": build_disposition(f"{ask.session_id}.{ending}"),
            "Content-Security-Policy": SANDBOX_POLICY,
            "Cache-Control": "no-store",
        },
        media_type=mime,
    )


def build_disposition(name: str, *, inline: bool = False) -> str:
    """The header that names a file; a foreign name can leave neither its quotes nor its line."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\%;' else "_" for c in name)
    kind = "inline" if inline else "attachment"
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='', errors='replace')}"


HANDLERS: dict[str, Handler] = {handler.__name__: handler for handler in (upload, download, export)}
