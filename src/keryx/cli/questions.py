"""Questions: what agents ask, and the answering of it from a terminal."""

from typing import Annotated

from cyclopts import App, Parameter

from keryx.cli import output
from keryx.cli.access import Json, hub
from keryx.core.ids import QuestionId
from keryx.core.questions import Asked, confirmed, label

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
    async with hub() as access:
        if session is None:
            found = await access.hub.questions.open(access.viewer)
        else:
            found = await access.hub.questions.of_session(access.viewer, await access.id(session))
    if json:
        output.json({"questions": found})
    elif found:
        _print_list(found)
    else:
        output.write("Nobody asks anything.")


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
    async with hub() as access:
        asked = await access.hub.questions.answer(access.viewer, QuestionId(question), answer)
    output.answer(output.plain(confirmed(asked), one_line=True), asked, json)


def _print_list(found: list[Asked]) -> None:
    rows = [
        (
            a.id,
            a.state.value if a.answer is None else label(a.question, a.answer),
            output.when(a.created_at),
            " / ".join(o.id for o in a.question.options) or "free text",
            " ".join(filter(None, (a.question.title, a.question.detail, a.note))),
        )
        for a in found
    ]
    output.table(("id", "state", "asked", "options", "question"), rows, flexible=4)
