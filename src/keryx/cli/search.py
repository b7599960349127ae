"""Search: messages found by their words."""

from typing import Annotated

import msgspec
from cyclopts import Parameter

from keryx.cli import output, transcript
from keryx.cli.access import Json, hub, positive
from keryx.core.ids import SessionId
from keryx.core.messages import Message
from keryx.core.search import Snippet
from keryx.store.search import Hit


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """`message` is null for a session that was found by its title. `spans` are the hits within `snippet`."""

    session: SessionId
    title: str
    message: str | None
    role: str | None
    snippet: str
    spans: list[tuple[int, int]]
    before: str | None
    after: str | None
    score: float


async def search(
    *words: Annotated[str, Parameter(allow_leading_hyphen=True, help="What to look for.")],
    limit: Annotated[int, Parameter(help="How many at most.")] = 10,
    skip: Annotated[int, Parameter(help="Leave out this many of the best.")] = 0,
    json: Json = False,
) -> None:
    """Search everything that was said: words, "phrases", begin*, OR, -not, from: before: after: has:

    Any input is a valid search. The best come first.

        keryx sessions search oslo hotel
        keryx sessions search '"night train" after:2026-01-01'
    """
    async with hub() as access:
        hits = await access.hub.search(
            access.viewer, " ".join(words), limit=positive(limit, "--limit"), offset=max(0, skip)
        )
    if json:
        output.json({"hits": [_found(hit) for hit in hits]})
        return
    for hit in hits:
        _print(hit)
    if not hits:
        output.write("Nothing found.")


def _print(hit: Hit) -> None:
    who = transcript.speaker(hit.message) if hit.message else "title"
    when = output.when(hit.message.at if hit.message else hit.session.active_at)
    facts = f" · {hit.message.id if hit.message else hit.session.id} · {who} · {when}"
    title = output.cut(hit.session.title or "untitled", max(20, output.width() - len(facts)))
    output.write(output.styled(title, "bold") + output.styled(facts, "dim"))
    output.write(f"  {_highlighted(hit.snippet)}")


def _found(hit: Hit) -> Found:
    return Found(
        session=hit.session.id,
        title=hit.session.title,
        message=hit.message.id if hit.message else None,
        role=hit.message.role.value if hit.message else None,
        snippet=hit.snippet.text,
        spans=list(hit.snippet.spans),
        before=_text(hit.before),
        after=_text(hit.after),
        score=hit.score,
    )


def _highlighted(snippet: Snippet) -> str:
    text, at = "", 0
    for begin, end in snippet.spans:
        text += output.plain(snippet.text[at:begin]) + output.styled(
            output.plain(snippet.text[begin:end]), "hit"
        )
        at = end
    return text + output.plain(snippet.text[at:])


def _text(message: Message | None) -> str | None:
    return message.text if message else None
