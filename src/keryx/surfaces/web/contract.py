"""Contract: every operation of the HTTP API as data. Routes, the OpenAPI document and the reference follow from it."""

from enum import StrEnum

import msgspec

from keryx.surfaces.web import forms, people, talk, wire


class Needs(StrEnum):
    """What a caller must show."""

    NOTHING = "nothing"
    VIEWER = "viewer"
    OPERATOR = "operator"


class Operation(msgspec.Struct, frozen=True):
    """One method of one path. `query` and `body` are forms, `answer` is what it gives (`None`: nothing, status 204).
    `key`: takes the header Idempotency-Key. `raw` are the media types of an answer that is not JSON, `takes` the
    one of a body that is not. `tagged`: answers with an ETag and heeds If-None-Match."""

    name: str
    method: str
    path: str
    about: str
    answer: type[msgspec.Struct] | None = None
    query: type[forms.Form] = forms.Nothing
    body: type[forms.Form] | None = None
    status: int = 200
    key: bool = False
    raw: str = ""
    takes: str = ""
    tagged: bool = False
    needs: Needs = Needs.VIEWER


_SESSION = "/api/sessions/{session}"
_OPERATOR = Needs.OPERATOR

_STARTING = (
    Operation(
        "start",
        "GET",
        "/api/start",
        "All that the page needs to begin, and a conversation to begin with.",
        wire.Start,
        forms.StartQuery,
    ),
    Operation(
        "stream",
        "GET",
        "/api/stream",
        "Everything that the viewer may see, as it happens: server-sent events from a cursor on.",
        query=forms.StreamQuery,
        raw="text/event-stream",
    ),
    Operation(
        "sign_in",
        "POST",
        "/api/sign-in",
        "Exchange the password or the token for a cookie.",
        people.Who,
        body=forms.SignIn,
        needs=Needs.NOTHING,
    ),
    Operation("sign_out", "POST", "/api/sign-out", "Give up the cookie."),
    Operation(
        "sign_ins", "GET", "/api/sign-ins", "The viewer's browsers that are signed in.", people.SignIns
    ),
    Operation(
        "revoke", "DELETE", "/api/sign-ins/{sign_in}", "End a sign-in. Its streams are cut within seconds."
    ),
    Operation("preferences", "GET", "/api/preferences", "How the viewer likes the page.", people.Preferences),
    Operation(
        "prefer",
        "PATCH",
        "/api/preferences",
        "Change preferences; what is left out stays.",
        people.Preferences,
        body=forms.Prefer,
    ),
)

_SESSIONS = (
    Operation(
        "sessions",
        "GET",
        "/api/sessions",
        "A page of conversations, pinned first, then by last message.",
        talk.SessionPage,
        forms.SessionQuery,
        tagged=True,
    ),
    Operation(
        "begin",
        "POST",
        "/api/sessions",
        "Begin a conversation with a message. A slash command is answered in `reply`.",
        talk.Sent,
        body=forms.Begin,
        status=201,
        key=True,
    ),
    Operation(
        "resolve",
        "GET",
        "/api/resolve",
        "Find a conversation by id, unique prefix, title or an old id.",
        talk.Session,
        forms.NameQuery,
    ),
    Operation(
        "session",
        "GET",
        _SESSION,
        "A conversation with a window of messages and all that goes on in it, from one read.",
        wire.Snapshot,
        forms.WindowQuery,
        tagged=True,
    ),
    Operation(
        "change",
        "PATCH",
        _SESSION,
        "Rename, pin, archive, end, put into a project, or set up.",
        talk.Session,
        body=forms.SessionChange,
    ),
    Operation(
        "delete",
        "DELETE",
        _SESSION,
        "Hide a conversation, to be erased after the grace period.",
        query=forms.EraseQuery,
    ),
    Operation("undelete", "POST", f"{_SESSION}/undelete", "Bring a deleted conversation back.", talk.Session),
    Operation(
        "messages",
        "GET",
        f"{_SESSION}/messages",
        "A window of messages.",
        talk.MessageWindow,
        forms.WindowQuery,
        tagged=True,
    ),
    Operation(
        "send",
        "POST",
        f"{_SESSION}/messages",
        "Send a message. A slash command is answered in `reply`.",
        talk.Sent,
        body=forms.Send,
        status=201,
        key=True,
    ),
    Operation(
        "message",
        "GET",
        "/api/messages/{message}",
        "One message with nothing cut.",
        talk.Message,
        tagged=True,
    ),
    Operation(
        "rewrite",
        "PATCH",
        "/api/messages/{message}",
        "Change a message whose turn still waits.",
        talk.Message,
        body=forms.Rewrite,
    ),
    Operation("why", "GET", "/api/messages/{message}/why", "The whole story of one message.", talk.Story),
    Operation(
        "stop",
        "POST",
        f"{_SESSION}/stop",
        "Ask the running turn to stop. What was said stays.",
        talk.Stopped,
        body=forms.Stop,
    ),
    Operation("queue", "GET", f"{_SESSION}/queue", "What waits in a conversation.", talk.Queue),
    Operation("drop", "DELETE", "/api/turns/{turn}", "Take one waiting turn out of the queue."),
    Operation(
        "undo",
        "POST",
        f"{_SESSION}/undo",
        "Take the last turns back.",
        talk.Undone,
        body=forms.Undo,
    ),
    Operation("redo", "POST", f"{_SESSION}/redo", "Bring back what the last undo took.", talk.Redone),
    Operation("retry", "POST", f"{_SESSION}/retry", "Ask the last question again.", talk.Sent, status=201),
    Operation(
        "fork",
        "POST",
        f"{_SESSION}/fork",
        "Go on in a copy, from the end or from a message, and say something there if wanted.",
        talk.Forked,
        body=forms.Fork,
        status=201,
        key=True,
    ),
    Operation(
        "lineage",
        "GET",
        f"{_SESSION}/lineage",
        "The forks, epochs and resets of a conversation.",
        talk.Lineage,
    ),
    Operation(
        "read",
        "PUT",
        f"{_SESSION}/read",
        "Say how far the viewer has read.",
        body=forms.Read,
    ),
    Operation(
        "export",
        "GET",
        f"{_SESSION}/export",
        "The conversation as a file.",
        query=forms.ExportQuery,
        raw="text/markdown, text/html, application/x-ndjson",
    ),
    Operation(
        "composer",
        "GET",
        "/api/composers/{composer}",
        "What was typed and not sent: of a conversation, or of `new`.",
        talk.Composer,
    ),
    Operation(
        "compose",
        "PUT",
        "/api/composers/{composer}",
        "Keep what was typed. An empty text forgets it; sending does too.",
        body=forms.Compose,
    ),
)

_AROUND = (
    Operation("projects", "GET", "/api/projects", "The viewer's projects.", wire.Projects),
    Operation(
        "add_project",
        "POST",
        "/api/projects",
        "Make a project.",
        wire.Project,
        body=forms.AddProject,
        status=201,
    ),
    Operation(
        "change_project",
        "PATCH",
        "/api/projects/{project}",
        "Change the name or colour of a project.",
        wire.Project,
        body=forms.ProjectChange,
    ),
    Operation(
        "remove_project", "DELETE", "/api/projects/{project}", "Remove a project; its conversations stay."
    ),
    Operation(
        "search",
        "GET",
        "/api/search",
        "Messages and titles that fit, best first. Any text is a query.",
        wire.Found,
        forms.SearchQuery,
    ),
    Operation("lanes", "GET", "/api/lanes", "Places to talk, by activity.", wire.Lanes, forms.LaneQuery),
    Operation("lane", "GET", "/api/lanes/{lane}", "A place, and the conversations it had.", wire.LaneHistory),
    Operation(
        "change_lane",
        "PATCH",
        "/api/lanes/{lane}",
        "Suspend a place, or let it go on.",
        wire.Lane,
        body=forms.LaneChange,
    ),
    Operation(
        "reset_lane",
        "POST",
        "/api/lanes/{lane}/reset",
        "Let the next message there begin a new conversation.",
        wire.Lane,
    ),
    Operation(
        "deliveries",
        "GET",
        "/api/deliveries",
        "Answers on their way to platforms, newest first.",
        wire.Deliveries,
        forms.DeliveryQuery,
    ),
    Operation(
        "retry_delivery",
        "POST",
        "/api/deliveries/{delivery}/retry",
        "Send again what failed or is in doubt.",
        wire.Delivery,
    ),
    Operation(
        "discard_delivery",
        "POST",
        "/api/deliveries/{delivery}/discard",
        "Give up on a delivery.",
        wire.Delivery,
    ),
    Operation("board", "GET", "/api/turns", "Every turn that runs or waits.", wire.Board),
    Operation(
        "questions", "GET", "/api/questions", "What agents ask and nobody has answered.", wire.Questions
    ),
    Operation(
        "answer",
        "POST",
        "/api/questions/{question}/answer",
        "Answer a question.",
        wire.Question,
        body=forms.Answer,
    ),
    Operation(
        "usage",
        "GET",
        "/api/usage",
        "Tokens and cost by day, model and surface, and the people and conversations that used most.",
        wire.Usage,
        forms.DaysQuery,
    ),
    Operation("models", "GET", "/api/models", "The models that can be chosen.", wire.Models),
    Operation(
        "settings",
        "GET",
        "/api/settings",
        "The settings in force, without secrets.",
        wire.AllSettings,
        needs=_OPERATOR,
    ),
    Operation(
        "connections", "GET", "/api/connections", "How accounts stand with their platforms.", wire.Connections
    ),
    Operation(
        "pairing",
        "GET",
        "/api/pairing",
        "Who waits to be let in, and who was let in.",
        people.Pairings,
        needs=_OPERATOR,
    ),
    Operation(
        "approve",
        "POST",
        "/api/pairing",
        "Let somebody in by the code they were given.",
        people.Grant,
        body=forms.Approve,
        status=201,
        needs=_OPERATOR,
    ),
    Operation("deny", "DELETE", "/api/pairing/{pairing}", "Refuse somebody who waits.", needs=_OPERATOR),
    Operation("revoke_grant", "DELETE", "/api/grants/{grant}", "Let somebody in no longer.", needs=_OPERATOR),
    Operation(
        "upload",
        "POST",
        "/api/media",
        "Keep a picture, sound or file, to be sent with a message. The body is the file.",
        talk.Media,
        forms.UploadQuery,
        status=201,
        takes="application/octet-stream",
    ),
    Operation("download", "GET", "/media/{media}", "A picture, sound or file.", raw="*/*"),
)

_JOB = "/api/jobs/{job}"
_JOBS = (
    Operation("jobs", "GET", "/api/jobs", "What runs by a schedule.", wire.Jobs, forms.JobsQuery),
    Operation(
        "add_job",
        "POST",
        "/api/jobs",
        "Let the agent do something by a schedule.",
        wire.Job,
        body=forms.AddJob,
        status=201,
    ),
    Operation("job", "GET", _JOB, "A job and its last runs.", wire.JobRuns, forms.RunsQuery),
    Operation("change_job", "PATCH", _JOB, "Pause a job, or let it go on.", wire.Job, body=forms.JobChange),
    Operation("remove_job", "DELETE", _JOB, "Remove a job; the conversations of its runs stay."),
    Operation("run_job", "POST", f"{_JOB}/run", "Run a job now, beside its schedule.", wire.Run, status=201),
)

OPERATIONS: tuple[Operation, ...] = (*_STARTING, *_SESSIONS, *_AROUND, *_JOBS)
