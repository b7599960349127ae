"""A store that fails in the middle of a watch: what was seen is stored whole, later, and once."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from tests.builders import OPERATORS
from tests.engine.support import labels
from tests.engine.support.fault_recorder import FaultRecorder, changed
from tests.engine.world import AT_ONCE
from tests.watch.test_session_watcher import Desk, append, claude_talk, watch_one
from tests.watch.test_takeover import RULES

from keryx.core.errors import Retryable
from keryx.core.sessions import ProgramState
from keryx.engine.hub import Hub
from keryx.engine.loops.feed import Feed
from keryx.engine.takeover import ProgramStateChange
from keryx.importers.watched_programs import ProgramProcess
from keryx.store.admin.verify import verify
from keryx.store.db import Database
from keryx.testing import CrashingDatabase, DatabaseFault, FaultTiming


async def prepare(label: str, hub: Hub, desk: Desk) -> Callable[[], Awaitable[object]]:
    [session] = await desk.sessions()
    if label == "watch.states":
        desk.processes = [ProgramProcess("claude-code", 3, "/home/ada/project", 0)]
        return desk.poll
    if label == "watch.told":
        states = [ProgramStateChange("claude-code", "s1", ProgramState.WRITING)]
        return lambda: hub.watched.set_states(OPERATORS, states)
    if label == "watch.person":
        return lambda: hub.watched.ensure_person(OPERATORS, "fake", "ben")
    return lambda: hub.watched.take_over(OPERATORS, session.id)


def list_labels() -> list[str]:
    return sorted(label for label in labels.written() if label.startswith("watch."))


@pytest.mark.parametrize("when", FaultTiming)
@pytest.mark.parametrize("label", list_labels())
async def test_a_write_that_is_struck_is_done_whole_or_not_at_all(
    database: Database, tmp_path: Path, label: str, when: FaultTiming
) -> None:
    recorder = FaultRecorder(database)
    desk, _ = await watch_one(recorder, tmp_path / "home")
    policy = msgspec.structs.replace(AT_ONCE, takeovers=RULES)
    hub = Hub(recorder, policy=policy, feed=Feed(recorder, desk.clock))
    act = await prepare(label, hub, desk)
    recorder.strike(label, when)
    with pytest.raises(Retryable):
        await act()
    found = await recorder.look()
    assert not changed(found, recorder.before if when is FaultTiming.BEFORE else recorder.after)
    await act()
    assert await verify(database) == []
    hub.close()


@pytest.mark.parametrize("when", FaultTiming)
async def test_what_could_not_be_stored_is_read_again(
    database: Database, tmp_path: Path, when: FaultTiming
) -> None:
    crashing = CrashingDatabase(database)
    desk, file = await watch_one(crashing, tmp_path / "home")
    append(file, *claude_talk(10, "w1", "one more", "Yes."))
    desk.touch(file)
    crashing.faults = [DatabaseFault("import", when)]
    with pytest.raises(Retryable):
        await desk.poll()
    await desk.poll()
    [session] = await desk.sessions()
    assert [m.text for m in await desk.messages(session)] == ["hello there", "Hello.", "one more", "Yes."]
    assert await verify(database) == []
