"""The search command: what it asks for is looked up ahead of the transaction that answers it."""

from collections.abc import Sequence

from keryx.core.errors import NotFound
from keryx.core.ports import Inbound
from keryx.core.source import ChatType
from keryx.engine.commands.call import Call, Done, Run, label
from keryx.engine.commands.table import parse
from keryx.store.search import Hit

FOUND = 5


def sought(inbound: Inbound) -> str | None:
    """What a /search asks for, so that it can be looked up before the transaction; `None` for anything else."""
    if not inbound.commands or inbound.observed or inbound.edits is not None:
        return None
    asked = parse(inbound.parts)
    alone = inbound.source.chat_type is ChatType.DM
    return asked.text or None if alone and asked and asked.name == "search" else None


def listed(hits: Sequence[Hit]) -> str:
    """What /search replies: each hit with its conversation, its day and, of a message, the passage."""
    return "\n".join(f"{n}. {_hit(hit)}" for n, hit in enumerate(hits, start=1))


def _search(call: Call) -> Done:
    if not call.text:
        raise NotFound("say what to look for: /search oslo hotel")
    return Done(call.found or "Nothing found.", call.session.id if call.session else None)


def _hit(hit: Hit) -> str:
    if hit.message is None:
        return f"{label(hit.session)} · {hit.session.active_at:%Y-%m-%d}"
    return f"{label(hit.session)} · {hit.message.at:%Y-%m-%d}\n{hit.snippet.text}"


RUN: dict[str, Run] = {
    "search": _search,
}
