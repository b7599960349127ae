"""Turns permission requests and forms of an agent into questions for a person, and the answers into responses."""

import hashlib
from urllib.parse import urlsplit

from keryx.agents.acp.update_translator import format_action, format_title
from keryx.core.questions import AskPerson, Consent, Option, Question, build_option
from keryx.core.text import to_short_line, to_single_line, truncate
from keryx.core.texts import Phrase
from keryx.jsonrpc import INVALID_PARAMS, KIND_CONSENTS, Json, RpcError, as_object, as_text

CANCELLED_OUTCOME: Json = {"outcome": {"outcome": "cancelled"}}
_MAX_DETAIL_LENGTH = 2900
_CONSENT_ORDER = list(Consent)
_MAX_FORM_FIELDS = 12
_SKIP_ANSWER = "-"
_YES, _NO, _DONE = Phrase("question.yes"), Phrase("question.no"), Phrase("question.done")
_BOOLEAN_OPTIONS = (build_option("true", _YES), build_option("false", _NO))
_URL_OPTIONS = (build_option("accept", _DONE), build_option("decline", _NO))


def build_permission_question(agent: str, call: Json, options: list[Json], *, number: int) -> Question | None:
    """Build the question for a permission request, with the exact action; `None` without options. The mildest option
    comes first: it is the default."""
    choices: list[Option] = []
    for option in options:
        id_ = as_text(option.get("optionId"))
        label = to_short_line(as_text(option.get("name")), 80) or to_short_line(id_, 80)
        consent = KIND_CONSENTS.get(as_text(option.get("kind")), Consent.OTHER)
        if id_ and label and consent.lasts:
            choices.append(
                build_option(id_, Phrase("question.agent_decides", label=label, agent=agent), consent)
            )
        elif id_ and label:
            choices.append(Option(id_, label, consent))
    if not choices:
        return None
    choices.sort(key=lambda o: _CONSENT_ORDER.index(o.consent))
    title = format_title(call)
    action = format_action(call)
    # An agent may reuse an id after a restart, so the key contains the action: an answer counts for that one only.
    digest = hashlib.sha256(f"{title}\n{action}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    detail = truncate(action, _MAX_DETAIL_LENGTH)
    if detail != action:
        detail += f"\n[Cut: {len(action):,} characters in all, {digest}]"
    return Question(
        key=f"{as_text(call.get('toolCallId'))[:80]}-{digest}-{number}",
        title=f"{agent}: {title}",
        detail=detail,
        options=tuple(choices),
    )


async def ask_permission(ask: AskPerson, question: Question) -> Json:
    """Ask the user and return the outcome. Without an answer the request is denied."""
    chosen = await ask(question)
    if chosen not in {o.id for o in question.options}:
        chosen = next((o.id for o in question.options if o.consent is Consent.DENY_ONCE), None)
    return CANCELLED_OUTCOME if chosen is None else {"outcome": {"outcome": "selected", "optionId": chosen}}


async def ask_form(ask: AskPerson, params: Json, *, agent: str, number: int) -> Json:
    """Ask for each field of a form in turn, or show its address, and return the result of the request."""
    if params.get("mode") == "url":
        address = as_text(params.get("url"))
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RpcError(INVALID_PARAMS, "the address is none that a browser opens")
        title = Phrase("question.open_page", agent=agent, host=to_single_line(parts.hostname))
        question = Question(
            key=f"visit-{number}",
            title=str(title),
            phrase=title.store(),
            detail="\n".join(t for t in (as_text(params.get("message")), address) if t),
            options=_URL_OPTIONS,
        )
        return {"action": await ask(question) or "cancel"}
    fields = as_object(as_object(params.get("requestedSchema")).get("properties"))
    if not fields or len(fields) > _MAX_FORM_FIELDS:
        raise RpcError(INVALID_PARAMS, f"a form has between 1 and {_MAX_FORM_FIELDS} fields")
    content: Json = {}
    for name, schema in fields.items():
        field = as_object(schema)
        options = _parse_field_options(field)
        question = Question(
            key=f"form-{number}-{name[:60]}",
            title=truncate(f"{agent}: {to_single_line(as_text(field.get('title')) or name)}", 120),
            detail="\n".join(
                t for t in (as_text(params.get("message")), as_text(field.get("description"))) if t
            ),
            options=options,
        )
        answer = await ask(question)
        if answer is None:
            return {"action": "cancel"}
        if options or answer.strip() != _SKIP_ANSWER:
            content[name] = _convert_answer(field, answer)
    return {"action": "accept", "content": content}


def _parse_field_options(field: Json) -> tuple[Option, ...]:
    if field.get("type") == "boolean":
        return _BOOLEAN_OPTIONS
    named = field.get("oneOf")
    if isinstance(named, list):
        entries = [as_object(n) for n in named]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        return tuple(
            Option(as_text(e.get("const")), as_text(e.get("title")) or as_text(e.get("const")))
            for e in entries
        )
    values = field.get("enum")
    return tuple(Option(str(v), str(v)) for v in values) if isinstance(values, list) else ()  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _convert_answer(field: Json, answer: str) -> object:
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
        raise RpcError(INVALID_PARAMS, f"the person did not answer with a number: {answer[:80]!r}") from exc
