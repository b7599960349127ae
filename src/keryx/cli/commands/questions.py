"""`keryx questions` and `keryx permissions`: answer what agents ask, and list or revoke lasting answers."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.options import Json, open_hub
from keryx.core.ids import QuestionId
from keryx.core.questions import format_answer, format_confirmation
from keryx.core.texts import ENGLISH

app = App(name="questions", help="What agents ask before they go on.")


@app.command(name="list")
async def list_(
    *,
    session: Annotated[
        str | None, Parameter(help="All questions of this session, the answered ones too.")
    ] = None,
    json: Json = False,
) -> None:
    """List the questions that wait for an answer, the oldest first.

    For example:

        keryx questions list
        keryx questions list --session "trip to oslo"
    """
    async with open_hub() as access:
        if session is None:
            found = await access.hub.questions.list_open(access.viewer)
        else:
            found = await access.hub.questions.list_for_session(access.viewer, await access.find_id(session))
    output.write_list(
        "questions",
        found,
        json,
        heads=("id", "state", "asked", "options", "question"),
        rows=(
            (
                a.id,
                a.state.value if a.answer is None else format_answer(a.question, a.answer, ENGLISH),
                output.format_time(a.created_at),
                " / ".join(o.id for o in a.question.options) or "free text",
                " ".join(filter(None, (a.question.title, a.question.detail, a.note))),
            )
            for a in found
        ),
        flexible=4,
        empty="No open questions.",
    )


@app.command
async def answer(
    question: Annotated[str, Parameter(help="The id of a question, as `keryx questions list` shows it.")],
    answer: Annotated[str, Parameter(help="An option by number, id or label; or free text.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Answer a question; the agent goes on wherever it runs. If the editor that asked is gone, the answer is kept for the
    next try.

    For example:

        keryx questions answer 01jd0abcdefghjkmnp allow
        keryx questions answer 01jd0abcdefghjkmnp 3
    """
    async with open_hub() as access:
        asked = await access.hub.questions.answer(access.viewer, QuestionId(question), answer)
    output.write_result(output.sanitize(format_confirmation(asked, ENGLISH), one_line=True), asked, json)


permissions_app = App(name="permissions", help="What was allowed or denied for good in a conversation.")

_SessionRef = Annotated[str, Parameter(help="A session by id, unique prefix or title.")]


@permissions_app.command(name="list")
async def list_permissions(
    *,
    session: Annotated[str | None, Parameter(help="Those of this session only.")] = None,
    json: Json = False,
) -> None:
    """List what was answered with “always”, the newest first.

    For example:

        keryx permissions list
        keryx permissions list --session "trip to oslo"
    """
    async with open_hub() as access:
        chosen = await access.find_id(session) if session else None
        found = await access.hub.questions.list_consents(access.viewer, session=chosen)
    output.write_list(
        "permissions",
        found,
        json,
        heads=("tool", "always", "since", "session", "title"),
        rows=((p.tool, p.label, output.format_time(p.given_at), p.session, p.title) for p in found),
        flexible=4,
        empty="Nothing was allowed or denied for good.",
    )


@permissions_app.command
async def forget(
    session: _SessionRef,
    tool: Annotated[
        str, Parameter(help="The tool, as `keryx permissions list` shows it; `all` for every one.")
    ],
    /,
    *,
    json: Json = False,
) -> None:
    """Take a permission back: the agent asks again, from its next call on.

    For example:

        keryx permissions forget "trip to oslo" run_in_terminal
        keryx permissions forget "trip to oslo" all
    """
    async with open_hub() as access:
        gone = await access.hub.questions.forget_consents(access.viewer, await access.find_id(session), tool)
    output.write_result(f"The agent asks again for {', '.join(gone)}.", {"forgotten": gone}, json)
