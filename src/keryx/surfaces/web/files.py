"""Files: what leaves as a file: exported conversations."""

from io import StringIO
from urllib.parse import quote

from starlette.responses import Response

from keryx.engine.exchange.export import Format
from keryx.surfaces.web import forms
from keryx.surfaces.web.ask import Ask

_EXPORTS = {
    forms.Format.MARKDOWN: (Format.MD, "md", "text/markdown; charset=utf-8"),
    forms.Format.HTML: (Format.HTML, "html", "text/html; charset=utf-8"),
    forms.Format.JSONL: (Format.JSONL, "jsonl", "application/x-ndjson"),
}
SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"


async def export(ask: Ask) -> Response:
    query = ask.query(forms.ExportQuery)
    wanted, ending, mime = _EXPORTS[query.format]
    text = StringIO()
    await ask.hub.export(ask.viewer, ask.session, wanted, text.write, redact=query.redact)
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
