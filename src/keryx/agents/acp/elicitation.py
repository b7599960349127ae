"""Elicitation: what an agent asks of a person in a form, or by an address to open, as questions in the chat."""

from urllib.parse import urlsplit

from keryx.agents.acp.rpc import PARAMS, Fault, Json, table, text
from keryx.core.questions import Ask, Option, Question
from keryx.core.titles import capped, line

_MOST_FIELDS = 12
_SKIP = "-"
_BOOLEANS = (Option("true", "Yes"), Option("false", "No"))
_OPENED = (Option("accept", "Done"), Option("decline", "No"))


async def elicit(ask: Ask, params: Json, *, agent: str, number: int) -> Json:
    """Ask for every field of a form in turn, or show the address; gives what the agent is answered."""
    if params.get("mode") == "url":
        return await _visit(ask, params, agent=agent, number=number)
    fields = table(table(params.get("requestedSchema")).get("properties"))
    if not fields or len(fields) > _MOST_FIELDS:
        raise Fault(PARAMS, f"a form has between 1 and {_MOST_FIELDS} fields")
    content: Json = {}
    for name, schema in fields.items():
        field = table(schema)
        options = _options(field)
        question = Question(
            key=f"form-{number}-{name[:60]}",
            title=capped(f"{agent}: {line(text(field.get('title')) or name)}", 120),
            detail="\n".join(t for t in (text(params.get("message")), text(field.get("description"))) if t),
            options=options,
        )
        answer = await ask(question)
        if answer is None:
            return {"action": "cancel"}
        if options or answer.strip() != _SKIP:
            content[name] = _value(field, answer)
    return {"action": "accept", "content": content}


async def _visit(ask: Ask, params: Json, *, agent: str, number: int) -> Json:
    address = text(params.get("url"))
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Fault(PARAMS, "the address is none that a browser opens")
    question = Question(
        key=f"visit-{number}",
        title=f"{agent} asks you to open a page of {line(parts.hostname)}",
        detail="\n".join(t for t in (text(params.get("message")), address) if t),
        options=_OPENED,
    )
    return {"action": await ask(question) or "cancel"}


def _options(field: Json) -> tuple[Option, ...]:
    if field.get("type") == "boolean":
        return _BOOLEANS
    named = field.get("oneOf")
    if isinstance(named, list):
        entries = [table(n) for n in named]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return tuple(
            Option(text(e.get("const")), text(e.get("title")) or text(e.get("const"))) for e in entries
        )
    values = field.get("enum")
    return tuple(Option(str(v), str(v)) for v in values) if isinstance(values, list) else ()  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _value(field: Json, answer: str) -> object:
    try:
        match field.get("type"):
            case "boolean":
                return answer == "true"
            case "integer":
                return int(answer)
            case "number":
                return float(answer)
            case "array":
                return [part.strip() for part in answer.split(",")]
            case _:
                return answer
    except ValueError as exc:
        raise Fault(PARAMS, f"the person did not answer with a number: {answer[:80]!r}") from exc
