"""Routes for reading one conversation: search in it, the outline of its questions, its words for the clipboard, and the files of its folder."""

import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

import anyio.to_thread
from starlette.responses import Response

from keryx.core.errors import Forbidden
from keryx.core.ids import OPERATOR
from keryx.core.media import filter_media
from keryx.core.messages import Message, Role, read_text
from keryx.core.search import Query, parse
from keryx.core.search.snippets import highlight
from keryx.core.text import to_short_line, to_single_line
from keryx.core.texts import Phrase, Texts
from keryx.markdown import html
from keryx.surfaces.web import request_schema, schema
from keryx.surfaces.web.operations import ApiRouter
from keryx.surfaces.web.request import ApiRequest
from keryx.surfaces.web.responses import build_document

router = ApiRouter()

_MAX_PASSAGES = 500
_MAX_WORDS = 300
_OUTLINE_SIZE = 500
_MAX_LINE_CHARS = 160
_MAX_FILES = 20
_MAX_SCANNED = 20_000
_MAX_DEPTH = 12
_SKIPPED_FOLDERS = frozenset({"node_modules", "__pycache__", "venv", "target", "dist", "build"})


@router.get(
    "/api/sessions/{session}/search",
    summary="Messages of one conversation that fit, from its beginning on. Any text is a query.",
)
async def find(request: ApiRequest, query: request_schema.FindQuery) -> schema.Passages:
    hits = await request.hub.search(
        request.viewer, query.q, limit=_MAX_PASSAGES + 1, session=request.session_id
    )
    found = sorted(((hit.message, hit.snippet) for hit in hits if hit.message), key=lambda pair: pair[0].seq)
    shown = found[-_MAX_PASSAGES:]
    parsed = parse(query.q)
    marked = await anyio.to_thread.run_sync(lambda: [_list_words(message, parsed) for message, _ in shown])
    in_snippets = [[s.text[start:stop].lower() for start, stop in s.spans] for _, s in shown]
    words = dict.fromkeys(islice(dict.fromkeys(chain(*marked, *in_snippets)), _MAX_WORDS))
    return schema.Passages(
        passages=[
            schema.Passage(
                seq=message.seq,
                role=message.role,
                at=message.at,
                html=html.mark_spans(snippet.text, snippet.spans),
                count=max(1, sum(word in words for word in in_text)),
            )
            for (message, snippet), in_text in zip(shown, marked, strict=True)
        ],
        words=list(words),
        more=len(hits) > _MAX_PASSAGES,
    )


def _list_words(message: Message, query: Query) -> list[str]:
    """Return the words of a message's text that fit, as often as they are there, in lower case."""
    text = message.text
    spans = highlight(text, query, width=len(text)).spans
    return [text[start:stop].lower() for start, stop in spans]


@router.get(
    "/api/sessions/{session}/outline", summary="The questions of a conversation, each by its beginning."
)
async def outline(request: ApiRequest, query: request_schema.OutlineQuery) -> schema.Outline:
    found = await request.hub.views.list_questions(
        request.viewer, request.session_id, limit=_OUTLINE_SIZE + 1, before=query.before
    )
    return schema.Outline(
        questions=[
            schema.QuestionLine(seq=m.seq, at=m.at, text=_describe(m, request.texts))
            for m in found[-_OUTLINE_SIZE:]
        ],
        earlier=len(found) > _OUTLINE_SIZE,
    )


@router.get(
    "/api/sessions/{session}/words",
    summary="What was said from one message to another, as Markdown, whole.",
    media_types=("text/markdown",),
)
async def words(request: ApiRequest, query: request_schema.RangeQuery) -> Response:
    async with request.services.exports.hold(request.viewer.principal):
        found = await request.hub.views.list_range(
            request.viewer, request.session_id, first=query.first, last=query.last
        )
        said = "\n\n".join(filter(None, (_write_message(m, request.texts) for m in found)))
        return await build_document(
            f"{said}\n",
            headers={"Cache-Control": "no-store", "Content-Security-Policy": "sandbox; default-src 'none'"},
            media_type="text/markdown; charset=utf-8",
            folder=request.services.installation.home,
        )


@router.get(
    "/api/sessions/{session}/files",
    summary="Files in the folder of a conversation, for the operator. Links out of the folder are not followed.",
)
async def folder_files(request: ApiRequest, query: request_schema.FilesQuery) -> schema.FolderFiles:
    session = await request.hub.session(request.viewer, request.session_id)
    if request.viewer.principal != OPERATOR:
        raise Forbidden(Phrase("web.operator_only"))
    if not session.cwd:
        return schema.FolderFiles(files=[])
    async with request.services.folders.hold(request.viewer.principal):
        found = await anyio.to_thread.run_sync(_find_files, Path(session.cwd), query.q)
    return schema.FolderFiles(files=found)


def _describe(message: Message, texts: Texts) -> str:
    """Return the beginning of a question on one line; of one without words, the names of its files."""
    names = ", ".join(part.name or part.media for part in filter_media(message.parts))
    return to_short_line(read_text(message, texts), _MAX_LINE_CHARS) or names[:_MAX_LINE_CHARS]


def _write_message(message: Message, texts: Texts) -> str:
    files = [f"*{to_single_line(part.name or part.media)}*" for part in filter_media(message.parts)]
    said = "\n\n".join(filter(None, (read_text(message, texts), *files)))
    author = message.author or texts.say("page.You" if message.role is Role.USER else "page.Agent")
    return f"**{to_single_line(author)}**, {message.at:%Y-%m-%d %H:%M} UTC\n\n{said}" if said.strip() else ""


def _find_files(folder: Path, letters: str) -> list[str]:
    """Return paths of files below a folder that have these letters in this order, the closest first. Links are not followed."""
    wanted = letters.casefold()
    found = [
        path for path in islice(_walk_folder(folder), _MAX_SCANNED) if _has_letters(path.casefold(), wanted)
    ]

    def rank(path: str) -> tuple[bool, bool, int, str]:
        name = path.rpartition("/")[2].casefold()
        return not name.startswith(wanted), wanted not in path.casefold(), len(path), path

    return sorted(found, key=rank)[:_MAX_FILES]


def _has_letters(text: str, wanted: str) -> bool:
    letters = iter(text)
    return all(letter in letters for letter in wanted)


def _walk_folder(folder: Path) -> Iterator[str]:
    """Yield the paths of the files below a folder, hidden ones left out. `os.walk` does not enter links to folders; links to
    files are left out, because they may lead out of the folder."""
    root = os.path.realpath(folder)
    for place, folders, names in os.walk(root):
        below = os.path.relpath(place, root)
        depth = 0 if below == "." else below.count(os.sep) + 1
        folders[:] = [
            name
            for name in sorted(folders)
            if depth < _MAX_DEPTH and not name.startswith(".") and name not in _SKIPPED_FOLDERS
        ]
        for name in sorted(names):
            path = os.path.join(place, name)
            if not name.startswith(".") and name.isprintable() and not os.path.islink(path):
                yield name if below == "." else f"{below.replace(os.sep, '/')}/{name}"
