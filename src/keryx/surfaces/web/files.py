"""Files: what comes and goes as a file: uploads, attachments, exported conversations."""

from functools import partial
from io import StringIO
from urllib.parse import quote

from starlette.responses import Response

from keryx.core.media import PICTURES, UNKNOWN
from keryx.core.ports import Attachment
from keryx.engine.exchange import export as exporting
from keryx.engine.exchange.export import Format
from keryx.surfaces.web import forms, show, talk
from keryx.surfaces.web.ask import Ask, Handler, read

_EXPORTS = {
    forms.Format.MARKDOWN: (Format.MD, "md", "text/markdown; charset=utf-8"),
    forms.Format.HTML: (Format.HTML, "html", "text/html; charset=utf-8"),
    forms.Format.JSONL: (Format.JSONL, "jsonl", "application/x-ndjson"),
}
SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


async def upload(ask: Ask) -> talk.Media:
    body = await read(ask.request, ask.hub.media.limit)
    name = ask.query(forms.UploadQuery).name
    given = ask.request.headers.get("content-type", "")
    return show.media(await ask.hub.media.keep(ask.viewer, Attachment(name=name, mime=given, body=body)))


async def download(ask: Ask) -> Response:
    """A file as it came. Only pictures of known kinds are shown in the browser; nothing in it can run."""
    found = await ask.hub.media.fetch(ask.viewer, ask.path("media"))
    picture, sound = found.mime in PICTURES, found.mime.startswith("audio/")
    return Response(
        found.body,
        headers={
            "Content-Disposition": disposition(found.name or "file", inline=picture),
            "Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
            "Cache-Control": "private, max-age=31536000, immutable",
        },
        media_type=found.mime if picture or sound else UNKNOWN,
    )


async def export(ask: Ask) -> Response:
    query = ask.query(forms.ExportQuery)
    wanted, ending, mime = _EXPORTS[query.format]
    text = StringIO()
    exporter = partial(exporting.export, format=wanted, write=text.write, redact=query.redact)
    await ask.hub.export(ask.viewer, ask.session, exporter)
    return Response(
        text.getvalue().encode("utf-8", "replace"),
        headers={
            "Content-Disposition": disposition(f"{ask.session}.{ending}"),
            "Content-Security-Policy": SANDBOX,
            "Cache-Control": "no-store",
        },
        media_type=mime,
    )


def disposition(name: str, *, inline: bool = False) -> str:
    """The header that names a file; a foreign name can leave neither its quotes nor its line."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in '"\\%;' else "_" for c in name)
    kind = "inline" if inline else "attachment"
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='', errors='replace')}"


HANDLERS: dict[str, Handler] = {handler.__name__: handler for handler in (upload, download, export)}
