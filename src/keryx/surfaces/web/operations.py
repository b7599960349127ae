"""The table of API operations: method, path, types and required role. Routes, the OpenAPI document and the reference are built from it."""

from enum import StrEnum
from functools import partial

import msgspec

from keryx.surfaces.web import request_schema, schema


class RequiredRole(StrEnum):
    """What a caller must show."""

    NOTHING = "nothing"
    VIEWER = "viewer"
    OPERATOR = "operator"


class Operation(msgspec.Struct, frozen=True):
    """One method of one path. `query` and `body` are forms, `answer` is what it gives (`None`: nothing, status 204).
    `key`: takes the header Idempotency-Key. `raw` are the media types of an answer that is not JSON, `takes` the
    one of a body that is not. `tagged`: answers with an ETag and heeds If-None-Match."""

    method: str
    name: str
    path: str
    about: str
    answer: type[msgspec.Struct] | None = None
    query: type[request_schema.RequestForm] = request_schema.EmptyQuery
    body: type[request_schema.RequestForm] | None = None
    status: int = 200
    key: bool = False
    raw: str = ""
    takes: str = ""
    tagged: bool = False
    needs: RequiredRole = RequiredRole.VIEWER


_SESSION = "/api/sessions/{session}"
_OPERATOR = RequiredRole.OPERATOR

_get = partial(Operation, "GET")
_post = partial(Operation, "POST")
_put = partial(Operation, "PUT")
_patch = partial(Operation, "PATCH")
_delete = partial(Operation, "DELETE")

_INSTALLATION = (
    _get(
        "start",
        "/api/start",
        "All that the page needs to begin, and a conversation to begin with.",
        schema.Start,
        request_schema.StartQuery,
    ),
    _get(
        "stream",
        "/api/stream",
        "Everything that the viewer may see, as it happens: server-sent events from a cursor on.",
        query=request_schema.StreamQuery,
        raw="text/event-stream",
    ),
    _post(
        "sign_in",
        "/api/sign-in",
        "Exchange the password or the token for a cookie.",
        schema.Who,
        body=request_schema.SignIn,
        needs=RequiredRole.NOTHING,
    ),
    _post("sign_out", "/api/sign-out", "Give up the cookie."),
    _get("sign_ins", "/api/sign-ins", "The viewer's browsers that are signed in.", schema.SignIns),
    _delete("revoke", "/api/sign-ins/{sign_in}", "End a sign-in. Its streams are cut within seconds."),
    _get("preferences", "/api/preferences", "How the viewer likes the page.", schema.Preferences),
    _patch(
        "prefer",
        "/api/preferences",
        "Change preferences; what is left out stays.",
        schema.Preferences,
        body=request_schema.Prefer,
    ),
)

_SESSIONS = (
    _get(
        "sessions",
        "/api/sessions",
        "A page of conversations, pinned first, then by last message.",
        schema.SessionPage,
        request_schema.SessionQuery,
        tagged=True,
    ),
    _post(
        "begin",
        "/api/sessions",
        "Begin a conversation with a message. A slash command is answered in `reply`.",
        schema.Sent,
        body=request_schema.Begin,
        status=201,
        key=True,
    ),
    _get(
        "resolve",
        "/api/resolve",
        "Find a conversation by id, unique prefix, title or an old id.",
        schema.Session,
        request_schema.NameQuery,
    ),
    _get(
        "session",
        _SESSION,
        "A conversation with a window of messages and all that goes on in it, from one read.",
        schema.Snapshot,
        request_schema.WindowQuery,
        tagged=True,
    ),
    _patch(
        "change",
        _SESSION,
        "Rename, pin, archive, end, put into a project, or set up.",
        schema.Session,
        body=request_schema.SessionChange,
    ),
    _delete(
        "delete",
        _SESSION,
        "Hide a conversation, to be erased after the grace period.",
        query=request_schema.EraseQuery,
    ),
    _post("undelete", f"{_SESSION}/undelete", "Bring a deleted conversation back.", schema.Session),
    _get(
        "messages",
        f"{_SESSION}/messages",
        "A window of messages.",
        schema.MessageWindow,
        request_schema.WindowQuery,
        tagged=True,
    ),
    _post(
        "send",
        f"{_SESSION}/messages",
        "Send a message. A slash command is answered in `reply`.",
        schema.Sent,
        body=request_schema.Send,
        status=201,
        key=True,
    ),
    _get("message", "/api/messages/{message}", "One message with nothing cut.", schema.Message, tagged=True),
    _patch(
        "rewrite",
        "/api/messages/{message}",
        "Change a message whose turn still waits.",
        schema.Message,
        body=request_schema.Rewrite,
    ),
    _get("why", "/api/messages/{message}/why", "The whole story of one message.", schema.Story),
    _post(
        "stop",
        f"{_SESSION}/stop",
        "Ask the running turn to stop. What was said stays.",
        schema.Stopped,
        body=request_schema.Stop,
    ),
    _get("queue", f"{_SESSION}/queue", "What waits in a conversation.", schema.Queue),
    _delete("drop", "/api/turns/{turn}", "Take one waiting turn out of the queue."),
    _post("undo", f"{_SESSION}/undo", "Take the last turns back.", schema.Undone, body=request_schema.Undo),
    _post("redo", f"{_SESSION}/redo", "Bring back what the last undo took.", schema.Redone),
    _post("retry", f"{_SESSION}/retry", "Ask the last question again.", schema.Sent, status=201),
    _post(
        "fork",
        f"{_SESSION}/fork",
        "Go on in a copy, from the end or from a message, and say something there if wanted.",
        schema.Forked,
        body=request_schema.Fork,
        status=201,
        key=True,
    ),
    _get("lineage", f"{_SESSION}/lineage", "The forks, epochs and resets of a conversation.", schema.Lineage),
    _put("read", f"{_SESSION}/read", "Say how far the viewer has read.", body=request_schema.Read),
    _get(
        "export",
        f"{_SESSION}/export",
        "The conversation as a file.",
        query=request_schema.ExportQuery,
        raw="text/markdown, text/html, application/x-ndjson",
    ),
    _get(
        "composer",
        "/api/composers/{composer}",
        "What was typed and not sent: of a conversation, or of `new`.",
        schema.Composer,
    ),
    _put(
        "compose",
        "/api/composers/{composer}",
        "Keep what was typed. An empty text forgets it; sending does too.",
        body=request_schema.Compose,
    ),
)

_RESOURCES = (
    _get("projects", "/api/projects", "The viewer's projects.", schema.Projects),
    _post(
        "add_project",
        "/api/projects",
        "Make a project.",
        schema.Project,
        body=request_schema.AddProject,
        status=201,
    ),
    _patch(
        "change_project",
        "/api/projects/{project}",
        "Change the name or colour of a project.",
        schema.Project,
        body=request_schema.ProjectChange,
    ),
    _delete("remove_project", "/api/projects/{project}", "Remove a project; its conversations stay."),
    _get(
        "search",
        "/api/search",
        "Messages and titles that fit, best first. Any text is a query.",
        schema.Found,
        request_schema.SearchQuery,
    ),
    _get("lanes", "/api/lanes", "Places to talk, by activity.", schema.Lanes, request_schema.LaneQuery),
    _get("lane", "/api/lanes/{lane}", "A place, and the conversations it had.", schema.LaneHistory),
    _patch(
        "change_lane",
        "/api/lanes/{lane}",
        "Suspend a place, or let it go on.",
        schema.Lane,
        body=request_schema.LaneChange,
    ),
    _post(
        "reset_lane",
        "/api/lanes/{lane}/reset",
        "Let the next message there begin a new conversation.",
        schema.Lane,
    ),
    _get(
        "deliveries",
        "/api/deliveries",
        "Answers on their way to platforms, newest first.",
        schema.Deliveries,
        request_schema.DeliveryQuery,
    ),
    _post(
        "retry_delivery",
        "/api/deliveries/{delivery}/retry",
        "Send again what failed or is in doubt.",
        schema.Delivery,
    ),
    _post(
        "discard_delivery", "/api/deliveries/{delivery}/discard", "Give up on a delivery.", schema.Delivery
    ),
    _get("board", "/api/turns", "Every turn that runs or waits.", schema.Board),
    _get("questions", "/api/questions", "What agents ask and nobody has answered.", schema.Questions),
    _post(
        "answer",
        "/api/questions/{question}/answer",
        "Answer a question.",
        schema.Question,
        body=request_schema.Answer,
    ),
    _get(
        "usage",
        "/api/usage",
        "Tokens and cost by day, model and surface, and the people and conversations that used most.",
        schema.Usage,
        request_schema.DaysQuery,
    ),
    _get("models", "/api/models", "The models that can be chosen.", schema.Models),
    _get(
        "settings",
        "/api/settings",
        "The settings in force, without secrets.",
        schema.AllSettings,
        needs=_OPERATOR,
    ),
    _get("connections", "/api/connections", "How accounts stand with their platforms.", schema.Connections),
    _get(
        "pairing",
        "/api/pairing",
        "Who waits to be let in, and who was let in.",
        schema.Pairings,
        needs=_OPERATOR,
    ),
    _post(
        "approve",
        "/api/pairing",
        "Let somebody in by the code they were given.",
        schema.Grant,
        body=request_schema.Approve,
        status=201,
        needs=_OPERATOR,
    ),
    _delete("deny", "/api/pairing/{pairing}", "Refuse somebody who waits.", needs=_OPERATOR),
    _delete("revoke_grant", "/api/grants/{grant}", "Let somebody in no longer.", needs=_OPERATOR),
    _post(
        "upload",
        "/api/media",
        "Keep a picture, sound or file, to be sent with a message. The body is the file.",
        schema.Media,
        request_schema.UploadQuery,
        status=201,
        takes="application/octet-stream",
    ),
    _get("download", "/media/{media}", "A picture, sound or file.", raw="*/*"),
)

_JOB = "/api/jobs/{job}"
_JOBS = (
    _get("jobs", "/api/jobs", "What runs by a schedule.", schema.Jobs, request_schema.JobsQuery),
    _post(
        "add_job",
        "/api/jobs",
        "Let the agent do something by a schedule.",
        schema.Job,
        body=request_schema.AddJob,
        status=201,
    ),
    _get("job", _JOB, "A job and its last runs.", schema.JobRuns, request_schema.RunsQuery),
    _patch("change_job", _JOB, "Pause a job, or let it go on.", schema.Job, body=request_schema.JobChange),
    _delete("remove_job", _JOB, "Remove a job; the conversations of its runs stay."),
    _post("run_job", f"{_JOB}/run", "Run a job now, beside its schedule.", schema.Run, status=201),
)

OPERATIONS: tuple[Operation, ...] = (*_INSTALLATION, *_SESSIONS, *_RESOURCES, *_JOBS)
