"""Methods: what an editor may ask, each as one short function."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path

from keryx.core import ids
from keryx.core.errors import NotFound
from keryx.core.ids import SessionId
from keryx.core.sessions import Listed, Listing, Settings
from keryx.core.workspaces import Server
from keryx.surfaces.acp import about, client, content, faults, options
from keryx.surfaces.acp.desk import SURFACE, Desk
from keryx.surfaces.acp.faults import Fault
from keryx.surfaces.acp.login import Login
from keryx.surfaces.acp.opened import Opened
from keryx.surfaces.acp.params import (
    Authenticate,
    Initialize,
    ListSessions,
    Named,
    Place,
    PromptTurn,
    SetMode,
    SetModel,
    SetOption,
    Take,
    folder,
    read,
)
from keryx.surfaces.acp.peer import Call, Json
from keryx.surfaces.acp.workspace import EditorWorkspace, servers

VERSION = 1
PAGE = 50

Method = Callable[[Json, Call], Awaitable[object]]


class Methods:
    """The agent side of the protocol, for one editor."""

    def __init__(self, desk: Desk, login: Login, *, version: str) -> None:
        self._desk = desk
        self._login = login
        self._version = version
        self._sessions: dict[SessionId, Opened] = {}
        self._open: Mapping[str, Method] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
        }
        self._guarded: Mapping[str, Method] = {
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/prompt": self._prompt,
            "session/set_mode": self._set_mode,
            "session/set_model": self._set_model,
            "session/set_config_option": self._set_option,
        }

    async def request(self, method: str, params: Json, call: Call) -> object:
        if found := self._open.get(method):
            return await found(params, call)
        if found := self._guarded.get(method):
            self._login.check()
            return await found(params, call)
        raise Fault(faults.METHOD, f"there is no method {method[:100]!r}")

    async def notification(self, method: str, params: Json) -> None:
        if method == "session/cancel":
            opened = self._sessions.get(read(params, Named).session_id)
            if opened:
                await opened.cancel()

    async def _initialize(self, params: Json, call: Call) -> Json:
        asked = read(params, Initialize)
        self._desk.client = client.offered(asked.client_capabilities)
        return {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "keryx", "title": "Keryx", "version": self._version},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "fork": {}, "close": {}, "delete": {}},
            },
            "authMethods": self._login.methods(),
        }

    async def _authenticate(self, params: Json, call: Call) -> Json:
        await self._login.run(read(params, Authenticate).method_id)
        return {}

    async def _new(self, params: Json, call: Call) -> None:
        place = read(params, Place)
        cwd, given = place.folder, servers(place.mcp_servers)
        id_ = SessionId(ids.new(self._desk.now()))
        opened = self._sessions[id_] = Opened(self._desk, id_, settings=Settings())
        await opened.work_in(cwd)
        self._lend(opened, given)
        await call.answer({"sessionId": id_, **options.answer(opened.settings, self._desk.choices)})
        await self._desk.update(id_, about.offered())
        await opened.warn()

    async def _load(self, params: Json, call: Call) -> None:
        await self._take(read(params, Take), call, replay=True)

    async def _resume(self, params: Json, call: Call) -> None:
        await self._take(read(params, Take), call, replay=False)

    async def _take(self, asked: Take, call: Call, *, replay: bool) -> None:
        """Open a session of the store. One that is open already, and need not be shown, stays as it is."""
        cwd, given = asked.folder, servers(asked.mcp_servers)
        opened = self._sessions.get(asked.session_id)
        if opened and not (opened.stored and replay):
            if opened.stored:
                await self._desk.hub.session(self._desk.viewer, opened.id)
            await opened.work_in(cwd)
            self._lend(opened, given)
            await call.answer(options.answer(opened.settings, self._desk.choices))
            await opened.warn()
            return
        opened = opened or Opened(self._desk, asked.session_id)
        await opened.work_in(cwd)
        snapshot = await opened.load(replay=replay)
        self._sessions[opened.id] = opened
        self._lend(opened, given)
        await call.answer(options.answer(opened.settings, self._desk.choices))
        await self._desk.update(opened.id, about.offered())
        await opened.live(snapshot)
        await opened.warn()

    async def _fork(self, params: Json, call: Call) -> None:
        asked = read(params, Take)
        desk, cwd, given = self._desk, asked.folder, servers(asked.mcp_servers)
        made = await desk.hub.fork(desk.viewer, asked.session_id, surface=SURFACE, cwd=cwd)
        opened = Opened(desk, made.id)
        await opened.work_in(cwd)
        snapshot = await opened.load(replay=False)
        self._sessions[made.id] = opened
        self._lend(opened, given)
        await call.answer({"sessionId": made.id, **options.answer(opened.settings, desk.choices)})
        await desk.update(made.id, about.offered())
        await opened.live(snapshot)
        await opened.warn()

    async def _list(self, params: Json, call: Call) -> Json:
        asked = read(params, ListSessions)
        cwd = None if asked.cwd is None else folder(asked.cwd)
        listing = Listing(cwd=cwd, after=asked.cursor, limit=PAGE)
        found, following = await self._desk.hub.sessions(self._desk.viewer, listing)
        page: Json = {"sessions": [_listed(entry) for entry in found]}
        return {**page, "nextCursor": following} if following else page

    async def _close(self, params: Json, call: Call) -> Json:
        id_ = read(params, Named).session_id
        if not await self._let_go(id_):
            await self._desk.hub.session(self._desk.viewer, id_)
        return {}

    async def _delete(self, params: Json, call: Call) -> Json:
        id_ = read(params, Named).session_id
        await self._let_go(id_)
        try:
            await self._desk.hub.delete(self._desk.viewer, id_)
        except NotFound:
            return {}  # It is gone already, which is what was asked for.
        return {}

    async def _prompt(self, params: Json, call: Call) -> None:
        asked = read(params, PromptTurn)
        desk = self._desk
        keep = partial(desk.hub.media.keep, desk.viewer)
        await self._named(asked).prompt(partial(content.parts, asked.prompt, keep), call)

    async def _set_mode(self, params: Json, call: Call) -> None:
        asked = read(params, SetMode)
        await self._choose(asked, call, options.MODE, asked.mode_id, {})

    async def _set_model(self, params: Json, call: Call) -> None:
        asked = read(params, SetModel)
        await self._choose(asked, call, options.MODEL, asked.model_id, {})

    async def _choose(self, asked: Named, call: Call, option: str, value: str, result: Json) -> None:
        """The older ways to choose: the list of options follows as an update."""
        settings = await self._named(asked).choose(option, value)
        await call.answer(result)
        await self._desk.update(asked.session_id, about.options_set(settings, self._desk.choices))

    async def _set_option(self, params: Json, call: Call) -> None:
        asked = read(params, SetOption)
        settings = await self._named(asked).choose(asked.config_id, asked.value)
        await call.answer({"configOptions": options.listed(settings, self._desk.choices)})
        if asked.config_id == options.MODE:
            await self._desk.update(asked.session_id, about.mode_set(settings))

    def _lend(self, opened: Opened, given: list[Server]) -> None:
        workspace = EditorWorkspace(self._desk, opened.id)
        self._desk.lender.lend(opened.id, workspace, given, cwd=opened.cwd)

    async def _let_go(self, id_: SessionId) -> bool:
        """Close a session if it is open; gives whether it was."""
        opened = self._sessions.pop(id_, None)
        if opened:
            await opened.close()
            self._desk.lender.withdraw(id_)
        return opened is not None

    def _named(self, asked: Named) -> Opened:
        found = self._sessions.get(asked.session_id)
        if found is None:
            raise NotFound(f"session {asked.session_id[:80]!r} is not open: load it first")
        return found


def _listed(entry: Listed) -> Json:
    session = entry.session
    found: Json = {
        "sessionId": session.id,
        "cwd": session.cwd or str(Path.home()),
        "updatedAt": session.active_at.isoformat(),
        "_meta": {"keryx": {"surface": session.surface, "activity": entry.activity.value}},
    }
    return {**found, "title": session.title} if session.title else found
