"""Jobs: each due moment has one run, whose answer goes where it was asked for and can be gone on with."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.conftest import Open
from tests.engine.conftest import Begin
from tests.engine.world import AT_ONCE, FAKE, OPERATORS, Scenes, World, inbound, viewer

from keryx.core import codec
from keryx.core.access import AccessRule
from keryx.core.deliveries import REPEAT_MARK, DeliveryState, Target
from keryx.core.errors import AgentFailed, Conflict, Forbidden, Invalid, NotFound, Refused, TargetGone
from keryx.core.ids import DEFAULT_PROFILE
from keryx.core.jobs import Job, JobRun, JobSettings, JobState, RunOutcome
from keryx.core.ports.adapter import InboundFailure, PlatformReach
from keryx.core.ports.agent import TextDelta, TurnContext
from keryx.core.questions import Question
from keryx.core.sessions import JOB_SURFACE, SessionFilter, Viewer
from keryx.core.source import ChatType, Source
from keryx.core.texts import Catalogue, Phrase, Texts
from keryx.engine.units.jobs import JobChange, JobOrigin, JobRequest, render_line
from keryx.store import jobs, people
from keryx.store.db import Database, Transaction
from keryx.testing import CrashingDatabase, DatabaseFault, FakeClock, FaultTiming, RecordingAdapter

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
ANN = viewer("ann")
HERE = JobOrigin(origin=Target(FAKE, chat="1"))


async def add(world: World, schedule: str, prompt: str = "hello", *, to: str = "origin") -> Job:
    return await world.hub.jobs.add(ANN, JobRequest(schedule=schedule, prompt=prompt, to=to), HERE)


async def passed(world: World, job: Job, count: int) -> list[JobRun]:
    """Go from moment to moment until a job has had this many, and all its turns are over; gives its runs, oldest first."""
    while True:
        found = await world.read(jobs.list_runs, job, limit=100)
        known = await world.read(jobs.find, OPERATORS, job.id)
        if len(found) < count and known.next_at and known.next_at > world.clock.now():
            world.advance(known.next_at - world.clock.now())
        await world.flow(world.until(lambda tx, n=len(found): _over(tx, job, min(n + 1, count))), step=0.2)
        if len(found) >= count:
            return (await world.read(jobs.list_runs, job, limit=100))[::-1]


def _over(tx: Transaction, job: Job, count: int) -> bool:
    """Whether so many runs have ended and nothing is on its way: the clock would leap over the lease of a send."""
    found = jobs.list_runs(tx, job, limit=100)
    ended = all(r.turn_state is None or r.turn_state.finished for r in found)
    return len(found) >= count and ended and not tx.row("select 1 from deliveries where state = 'sending'")


async def test_a_job_runs_at_each_of_its_moments_in_a_session_of_its_own(world: World) -> None:
    job = await add(world, "every 10m")
    first, second = await passed(world, job, 2)
    assert (first.due_at, second.due_at) == (job.created_at + 10 * MINUTE, job.created_at + 20 * MINUTE)
    assert {r.status for r in (first, second)} == {"done"}
    assert first.session and second.session and first.session != second.session
    session = await world.hub.session(ANN, first.session)
    assert (session.surface, session.title) == (JOB_SURFACE, "hello 2026-03-01 12:10")
    assert await world.transcript(first.session) == ["user: hello", "assistant: hello"]
    await world.flow(world.delivered(2))
    assert world.fake.texts == ["hello", "hello"]


async def test_runs_are_hidden_from_lists_and_kept_in_a_project_of_their_own(world: World) -> None:
    await passed(world, await add(world, "every 10m"), 2)
    assert (await world.hub.list_sessions(ANN, SessionFilter()))[0] == []
    (project,) = await world.hub.projects.list_all(ANN)
    shown, _ = await world.hub.list_sessions(ANN, SessionFilter(project=project.id, jobs=True))
    assert (project.name, len(shown)) == ("Scheduled", 2)
    await world.hub.projects.change(ANN, project.id, new_name="Clockwork", colour=None)
    await passed(world, (await world.hub.jobs.list_all(ANN))[0], 3)
    assert [(p.name, p.sessions) for p in await world.hub.projects.list_all(ANN)] == [("Clockwork", 3)]


async def test_a_job_that_comes_once_is_over_then(world: World) -> None:
    job = await add(world, "30m")
    await passed(world, job, 1)
    assert await world.hub.jobs.list_all(ANN) == []
    (over,) = await world.hub.jobs.list_all(ANN, done=True)
    assert (over.state, over.next_at) == (JobState.DONE, None)
    with pytest.raises(Conflict, match="has ended"):
        await world.hub.jobs.resume(ANN, job.id)
    world.advance(24 * HOUR)
    assert len(await passed(world, job, 1)) == 1


async def test_two_nodes_give_each_moment_one_run(begin: Begin, opener: Open, database: Database) -> None:
    world = await begin()
    for _ in range(2):
        await world.start(await opener())
    job = await add(world, "every 1m")
    found = await passed(world, job, 8)
    moments = [r.due_at for r in found]
    assert moments == [job.created_at + (n + 1) * MINUTE for n in range(len(found))]
    assert len({r.session for r in found}) == len(found)
    await world.flow(world.delivered(len(found)))
    # A clock that leaps over a lease makes a sender repeat what it sent, with a mark.
    assert len([t for t in world.fake.texts if not t.startswith(REPEAT_MARK)]) == len(found)


@pytest.mark.parametrize("when", list(FaultTiming))
@pytest.mark.parametrize("label", ["job.begin", "turn.claim", "turn.finish", "delivery.settle"])
async def test_a_fault_at_a_write_neither_loses_nor_doubles_a_run(
    begin: Begin, database: Database, label: str, when: FaultTiming
) -> None:
    fault = DatabaseFault(label, when, nth=2 if label == "turn.claim" else 1)
    world = await begin(database=CrashingDatabase(database, fault))
    job = await add(world, "every 10m")
    found = await passed(world, job, 2)
    assert [r.due_at for r in found[:2]] == [job.created_at + 10 * MINUTE, job.created_at + 20 * MINUTE]
    assert [r.status for r in found[:2]] == ["done", "done"] and fault.hits == 1
    await world.flow(world.delivered(2))
    assert [t for t in world.fake.texts if t == "hello"][:2] == ["hello", "hello"]


@pytest.mark.parametrize("when", list(FaultTiming))
async def test_a_process_that_dies_at_the_moment_is_made_up_for_once(
    begin: Begin, database: Database, when: FaultTiming
) -> None:
    struck: list[str] = []
    world = await begin(
        database=CrashingDatabase(database, DatabaseFault("job.begin", when, strike=_die(struck)))
    )
    job = await add(world, "every 10m")
    world.advance(10 * MINUTE)
    await world.eventually(lambda: bool(struck))
    await world.crash()
    world.advance(5 * MINUTE)
    await world.start(database)
    (run, *_) = await passed(world, job, 1)
    assert (run.due_at, run.status) == (job.created_at + 10 * MINUTE, "done")
    await world.flow(world.delivered(1))


def _die(struck: list[str]):
    def strike(label: str) -> None:
        struck.append(label)
        raise SystemError("killed")

    return strike


async def test_what_was_missed_is_made_up_for_once_within_the_window(world: World) -> None:
    job = await add(world, "every 10m")
    await world.crash()
    world.advance(3 * HOUR + 5 * MINUTE)
    await world.start()
    # Time goes on while we wait, maybe to the next moment: what had passed was made up for by one run.
    found = await passed(world, job, 1)
    (run,) = [r for r in found if r.due_at <= job.created_at + 3 * HOUR]
    assert (run.due_at, run.status) == (job.created_at + 3 * HOUR, "done")


async def test_what_was_missed_for_too_long_is_skipped_and_told(begin: Begin) -> None:
    policy = msgspec.structs.replace(AT_ONCE, jobs=JobSettings(catch_up=timedelta(0)))
    world = await begin(policy=policy)
    daily = await add(world, "@daily")
    once = await add(world, "30m", "tea")
    await world.crash()
    world.advance(13 * HOUR)
    await world.start()
    for job in (daily, once):
        (run,) = await passed(world, job, 1)
        assert (run.outcome, run.session) == (RunOutcome.SKIPPED, None)
    (left,) = await world.hub.jobs.list_all(ANN)
    assert left.next_at and left.next_at > world.clock.now()


async def test_a_clock_that_goes_back_repeats_no_moment_and_delays_none(
    begin: Begin, clock: FakeClock
) -> None:
    world = await begin()
    job = await add(world, "every 1h")
    await passed(world, job, 2)
    clock.jump(-90 * MINUTE)
    found = await passed(world, job, 3)
    assert [r.due_at for r in found] == [job.created_at + n * HOUR for n in (1, 2, 3)]
    clock.jump(-48 * HOUR)
    await world.flow(_sooner(world, job), step=5)


async def _sooner(world: World, job: Job) -> None:
    await world.until(lambda tx: jobs.find(tx, ANN, job.id).next_at == job.created_at + HOUR)


async def test_a_clock_that_goes_forward_counts_as_missed_moments(begin: Begin, clock: FakeClock) -> None:
    world = await begin()
    job = await add(world, "every 1h")
    clock.jump(100 * HOUR + 10 * MINUTE)
    (run,) = await passed(world, job, 1)
    assert run.due_at == job.created_at + 100 * HOUR


async def test_an_answer_of_silence_is_kept_and_not_sent(begin: Begin) -> None:
    scenes = Scenes(
        {"quiet": [TextDelta(" [SILENT]\n")], "nothing": [], "loud": [TextDelta("[SILENT] not quite")]}
    )
    world = await begin(agent=scenes)
    for prompt in ("quiet", "nothing"):
        (run,) = await passed(world, await add(world, "30m", prompt), 1)
        assert (run.status, run.delivery) == ("done", "silent")
    (run,) = await passed(world, await add(world, "30m", "loud"), 1)
    await world.flow(world.delivered(1))
    assert world.fake.texts == ["[SILENT] not quite"]
    (asked, *_) = (await world.open(run.session)).messages
    assert asked.text == "loud" and asked.exact and "answer [SILENT] alone" in asked.exact


async def test_a_run_that_fails_says_so_where_its_answer_was_to_go(begin: Begin) -> None:
    world = await begin(agent=Scenes({"boom": [AgentFailed("The model is asleep.")]}))
    (run,) = await passed(world, await add(world, "30m", "boom"), 1)
    assert (run.status, run.error) == ("failed", "The model is asleep.")
    await world.flow(world.delivered(1))
    assert world.fake.texts == ["The model is asleep."]


async def test_an_answer_goes_to_every_target_and_each_has_its_state(begin: Begin) -> None:
    other = RecordingAdapter("other")
    world = await begin(adapters=[RecordingAdapter(FAKE), other])
    place = JobOrigin(
        origin=Target(FAKE, chat="1"), accounts={FAKE: PlatformReach(), "other": PlatformReach()}
    )
    wanted = JobRequest(schedule="30m", prompt="hi", to="origin, other:7:3, fake:9")
    job = await world.hub.jobs.add(OPERATORS, wanted, place)
    assert [str(t) for t in job.targets] == ["fake:1", "other:7:3", "fake:9"]
    await passed(world, job, 1)
    await world.flow(world.delivered(3))
    (run,) = await world.read(jobs.list_runs, job)
    assert {(str(d.target), d.state) for d in run.deliveries} == {
        (t, DeliveryState.SENT) for t in ("fake:1", "other:7:3", "fake:9")
    }
    assert (run.status, run.delivery) == ("done", "sent")


async def test_a_job_whose_chat_is_gone_is_paused_and_says_why(world: World) -> None:
    world.fake.errors_before.append(TargetGone("the person has blocked the bot"))
    job = await add(world, "every 10m")
    await passed(world, job, 1)
    await world.flow(world.until(lambda tx: jobs.find(tx, ANN, job.id).state is JobState.PAUSED))
    world.advance(HOUR)
    (paused,) = await world.hub.jobs.list_all(ANN)
    assert (paused.why, paused.next_at) == ("fake:1: fake refuses: the person has blocked the bot", None)
    assert "paused: fake:1: fake refuses: the person has blocked the bot" in render_line(
        paused, [], Texts("en")
    )
    assert [r.delivery for r in await world.read(jobs.list_runs, job)] == ["failed"]
    assert (await world.hub.jobs.resume(ANN, job.id)).why == ""
    await passed(world, job, 2)
    await world.flow(world.delivered(1))
    assert world.fake.texts == ["hello"]


async def test_a_job_whose_chat_is_gone_as_the_platform_says_later_is_paused(world: World) -> None:
    job = await add(world, "every 10m")
    await passed(world, job, 1)
    (delivery,) = await world.flow(world.delivered(1))
    failure = InboundFailure(
        event="f1",
        source=Source(platform=FAKE, chat="1"),
        delivery=delivery.id,
        message=delivery.receipts[0],
        reason="the person has no account any more",
        gone=True,
    )
    await world.hub.receive(failure)
    (paused,) = await world.hub.jobs.list_all(ANN)
    assert (paused.state, paused.why) == (JobState.PAUSED, "fake:1: the person has no account any more")


async def test_an_ordinary_refusal_does_not_pause_a_job(world: World) -> None:
    world.fake.errors_before.append(Refused("too long"))
    job = await add(world, "every 10m")
    await passed(world, job, 2)
    await world.flow(world.delivered(1))
    assert (await world.hub.jobs.list_all(ANN))[0].state is JobState.ACTIVE


async def test_the_answer_goes_to_the_fallback_with_the_reason(begin: Begin) -> None:
    settings = msgspec.structs.replace(
        AT_ONCE, jobs=JobSettings(fallback="fake:99"), texts=Catalogue(language="de")
    )
    world = await begin(policy=settings)
    world.fake.errors_before.append(TargetGone(Phrase("gone.no_topic")))
    job = await add(world, "every 10m")
    await passed(world, job, 1)
    await world.flow(world.delivered(1))
    (part,) = world.fake.sent_parts
    assert part.target.chat == "99"
    assert part.text == (
        "Die Antwort von „hello“ konnte nicht zugestellt werden, der Auftrag ist daher angehalten"
        " (fake:1: das Thema wurde gelöscht). Die Antwort:\n\nhello"
    )


@pytest.mark.parametrize("fallback", ["fake:1", "nowhere:1"])
async def test_a_fallback_that_is_gone_too_or_unknown_ends_there(begin: Begin, fallback: str) -> None:
    world = await begin(policy=msgspec.structs.replace(AT_ONCE, jobs=JobSettings(fallback=fallback)))
    world.fake.errors_before.append(TargetGone("the topic was deleted"))
    job = await add(world, "every 10m")
    await passed(world, job, 1)
    await world.flow(world.until(lambda tx: jobs.find(tx, ANN, job.id).state is JobState.PAUSED))
    (paused,) = await world.hub.jobs.list_all(ANN)
    assert ("jobs.fallback" in paused.why) == (fallback == "nowhere:1")
    (run,) = await world.read(jobs.list_runs, job)
    assert len(run.deliveries) == 1 and not world.fake.texts


def test_a_fallback_that_is_no_target_is_refused() -> None:
    with pytest.raises(Invalid, match="not a target"):
        JobSettings(fallback="!")


async def test_a_job_without_a_target_is_read_in_its_session(world: World) -> None:
    (run,) = await passed(world, await add(world, "30m", to=""), 1)
    assert await world.transcript(run.session) == ["user: hello", "assistant: hello"]
    assert world.fake.texts == []


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (JobRequest(schedule="often", prompt="x"), "every 2h"),
        (JobRequest(schedule="30m", prompt=" "), "prompt"),
        (JobRequest(schedule="30m", prompt="x" * 20_001), "too long"),
        (JobRequest(schedule="30m", prompt="x", to="telegram:2"), "telegram is not connected"),
        (JobRequest(schedule="30m", prompt="x", to="!"), "not a target"),
        (JobRequest(schedule="30m", prompt="x", zone="Mars/Crater"), "time zone"),
    ],
)
async def test_what_is_wrong_is_refused_when_a_job_is_made(
    world: World, wanted: JobRequest, said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        await world.hub.jobs.add(ANN, wanted, HERE)
    assert await world.hub.jobs.list_all(ANN) == []


async def test_an_operator_names_only_platforms_that_are_connected(world: World) -> None:
    with pytest.raises(Invalid, match="not connected"):
        await world.hub.jobs.add(
            OPERATORS,
            JobRequest(schedule="30m", prompt="x", to="slack:1"),
            JobOrigin(accounts={FAKE: PlatformReach()}),
        )


async def test_a_person_has_a_limited_number_of_jobs(begin: Begin) -> None:
    world = await begin(policy=msgspec.structs.replace(AT_ONCE, jobs=JobSettings(most=1)))
    await add(world, "30m")
    with pytest.raises(Forbidden, match="1 jobs already"):
        await add(world, "30m")


async def test_a_paused_job_rests_and_goes_on_from_there(world: World) -> None:
    job = await add(world, "every 10m")
    await world.hub.jobs.pause(ANN, job.name)
    world.advance(35 * MINUTE)
    resumed = await world.hub.jobs.resume(ANN, job.name)
    assert resumed.next_at == job.created_at + 40 * MINUTE
    (run, *_) = await passed(world, job, 1)
    assert run.due_at == job.created_at + 40 * MINUTE


async def test_a_job_can_be_run_now_beside_its_schedule(world: World) -> None:
    job = await add(world, "every 10m")
    await world.hub.jobs.pause(ANN, job.id)
    begun = await world.hub.jobs.run(ANN, job.id)
    assert begun.outcome is RunOutcome.STARTED
    (run,) = await passed(world, job, 1)
    assert run.status == "done"
    assert (await world.hub.jobs.get(ANN, job.id))[0].state is JobState.PAUSED


async def test_a_changed_job_keeps_its_runs_and_counts_from_then_on(world: World) -> None:
    job = await add(world, "every 10m")
    (run, *_) = await passed(world, job, 1)
    world.advance(MINUTE)
    same = await world.hub.jobs.change(ANN, job.id, JobChange(schedule="every 10m", prompt="Look again"))
    assert (same.prompt, same.schedule) == ("Look again", job.schedule)
    assert same.next_at == (await world.hub.jobs.get(ANN, job.id))[0].next_at == run.due_at + 10 * MINUTE
    changed = await world.hub.jobs.change(
        ANN, job.id, JobChange(schedule="0 8 * * *", zone="Europe/Berlin", name="weather", to="")
    )
    assert (changed.name, changed.targets, changed.schedule.zone) == ("weather", (), "Europe/Berlin")
    assert changed.next_at and changed.schedule.format_time(changed.next_at).endswith("08:00")
    stored, runs = await world.hub.jobs.get(ANN, "weather")
    assert stored == changed and [r.due_at for r in runs] == [run.due_at]
    resting = await world.hub.jobs.change(ANN, job.id, JobChange(paused=True))
    later = await world.hub.jobs.change(ANN, job.id, JobChange(schedule="every 2h"))
    assert resting.state is later.state is JobState.PAUSED and later.next_at is None
    going = await world.hub.jobs.change(ANN, job.id, JobChange(paused=False))
    assert going.next_at == world.clock.now() + 2 * HOUR


async def test_what_is_wrong_changes_nothing_of_a_job(world: World) -> None:
    job = await add(world, "every 10m")
    for wanted, said in (
        (JobChange(schedule="often"), "every 2h"),
        (JobChange(prompt=" "), "prompt"),
        (JobChange(prompt="Look", to="telegram:2"), "telegram is not connected"),
        (JobChange(zone="Mars/Crater"), "time zone"),
    ):
        with pytest.raises(Invalid, match=said):
            await world.hub.jobs.change(ANN, job.id, wanted)
    with pytest.raises(NotFound):
        await world.hub.jobs.change(viewer("bob"), job.id, JobChange(prompt="mine"))
    assert (await world.hub.jobs.get(ANN, job.id))[0] == job
    other = await add(world, "every 10m")
    named = await world.hub.jobs.change(ANN, other.id, JobChange(name=job.name))
    assert named.name == f"{job.name} #2"


async def test_a_removed_job_runs_no_more_and_its_conversations_stay(world: World) -> None:
    job = await add(world, "every 10m")
    (run, *_) = await passed(world, job, 1)
    await world.hub.jobs.remove(ANN, job.id)
    world.advance(HOUR)
    assert run.session and await world.hub.session(ANN, run.session)
    with pytest.raises(NotFound):
        await world.hub.jobs.get(ANN, job.id)


async def test_nobody_sees_or_changes_the_jobs_of_others(world: World) -> None:
    job = await add(world, "every 10m")
    bob = viewer("bob")
    assert await world.hub.jobs.list_all(bob) == []
    for verb in (world.hub.jobs.pause, world.hub.jobs.run, world.hub.jobs.remove, world.hub.jobs.get):
        with pytest.raises(NotFound):
            await verb(bob, job.id)
    assert [j.id for j in await world.hub.jobs.list_all(OPERATORS)] == [job.id]


async def test_jobs_of_one_name_get_numbers_and_are_found_by_the_beginning(world: World) -> None:
    names = [(await add(world, "every 1h", "Check the news.")).name for _ in range(2)]
    assert names == ["Check the news", "Check the news #2"]
    await add(world, "every 1h", "Water the plants")
    assert (await world.hub.jobs.get(ANN, "water"))[0].name == "Water the plants"
    assert (await world.hub.jobs.get(ANN, "check the news"))[0].name == "Check the news"
    with pytest.raises(Conflict, match="fits 2 jobs"):
        await world.hub.jobs.get(ANN, "check")


async def test_a_job_that_is_over_is_found_by_its_name_unless_another_one_has_it(world: World) -> None:
    over = [await add(world, "10m", "Tea") for _ in range(2)]
    for job in over:
        await passed(world, job, 1)
    await world.until(lambda tx: all(jobs.find(tx, ANN, j.id).state is JobState.DONE for j in over))
    assert (await world.hub.jobs.get(ANN, "tea"))[0].id == over[0].id
    assert (await world.hub.jobs.get(ANN, "tea #2"))[0].id == over[1].id
    with pytest.raises(NotFound):
        await world.hub.jobs.get(viewer("bob"), "tea")
    again = await add(world, "every 1h", "Tea")
    assert (await world.hub.jobs.get(ANN, again.name))[0].id == again.id


async def test_a_person_who_may_no_longer_talk_has_no_more_runs(begin: Begin) -> None:
    world = await begin()
    job = await _from_chat(world)
    await world.crash()
    world.policy = msgspec.structs.replace(world.policy, access={FAKE: AccessRule(allow=("somebody",))})
    await world.start()
    (run,) = await passed(world, job, 1)
    assert (run.outcome, run.session) == (RunOutcome.REFUSED, None)
    (paused,) = await world.hub.jobs.list_all(OPERATORS)
    assert paused.state is JobState.PAUSED and "may no longer talk" in paused.why


async def _from_chat(world: World, text: str = "/jobs add every 10m hello", **fields: Any) -> Job:
    """A job that a person made in a chat, who came in through the platform."""
    reply = await world.command(text, principal=None, **fields)
    assert "runs every 10 minutes" in reply
    return (await world.hub.jobs.list_all(OPERATORS))[-1]


async def test_a_job_is_made_and_managed_in_a_chat(world: World) -> None:
    assert "You have no jobs" in await world.command("/jobs")
    made = await world.command("/jobs add 0 9 * * mon-fri Europe/Berlin Tell me the news")
    assert "“Tell me the news” runs 0 9 * * mon-fri Europe/Berlin, first at 2026-03-02 09:00" in made
    (job,) = await world.hub.jobs.list_all(ANN)
    assert (job.prompt, [str(t) for t in job.targets]) == ("Tell me the news", ["fake:1"])
    assert "Tell me the news · 0 9 * * mon-fri" in await world.command("/jobs")
    assert "is paused until" in await world.command("/jobs pause tell me")
    assert "goes on, next at 2026-03-02 09:00" in await world.command("/jobs resume tell me")
    assert "has not run yet" in await world.command("/jobs runs tell")
    assert "runs now" in await world.command("/jobs run tell")
    await passed(world, job, 1)
    assert "done" in await world.command("/jobs runs tell")
    assert "last run done" in await world.command("/jobs")
    assert "is removed" in await world.command("/jobs remove tell me the news")
    assert "There is no job" in await world.command("/jobs run tell")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/jobs add", "/jobs add every 2h"),
        ("/jobs add soon tea", "every 2h"),
        ("/jobs add 30m", "needs a prompt"),
        ("/jobs dance", "write add, pause"),
        ("/jobs pause", "name a job"),
        ("/jobs continue", "no job has sent anything here"),
    ],
)
async def test_a_wrong_word_is_answered_with_what_would_be_right(world: World, text: str, said: str) -> None:
    assert said.casefold() in (await world.command(text)).casefold()


async def test_jobs_are_not_listed_where_others_read_along(world: World) -> None:
    group = Source(platform=FAKE, chat="g", chat_type=ChatType.GROUP, user="ann", user_name="ann")
    for text in ("/jobs", "/jobs list"):
        assert "direct chat" in await world.command(text, chat="g", source=group)
    assert "runs once" in await world.command("/jobs add 30m tea", chat="g", source=group)


async def test_the_answer_of_a_run_is_gone_on_with_where_it_arrived(world: World) -> None:
    job = await add(world, "every 10m")
    (run, *_) = await passed(world, job, 1)
    await world.flow(world.delivered(1))
    assert "Now in “hello 2026-03-01 12:10”" in await world.command("/jobs continue")
    receipt = await world.say("and then?")
    assert receipt.session == run.session
    assert "Now in" in await world.command("/jobs continue hello")


async def test_a_thread_under_the_answer_of_a_run_goes_on_with_it(world: World) -> None:
    job = await add(world, "every 10m")
    await passed(world, job, 1)
    (delivery,) = await world.flow(world.delivered(1))
    (run, *_) = await world.read(jobs.list_runs, job)
    thread = Source(platform=FAKE, chat="1", user="ann", thread=delivery.receipts[0])
    reply = Target(FAKE, chat="1", thread=delivery.receipts[0])
    receipt = await world.say("why?", source=thread, reply=reply)
    assert receipt.session == run.session
    await world.command("/new", source=thread, reply=reply)
    fresh = await world.say("something else", source=thread, reply=reply)
    assert fresh.session != run.session
    strange = Source(platform=FAKE, chat="1", user="bob", thread=delivery.receipts[0] + "0")
    assert (await world.say("hm", user="bob", source=strange)).session != run.session


async def test_everything_of_a_person_includes_their_jobs(world: World, database: Database) -> None:
    job = await _from_chat(world)
    await passed(world, job, 1)
    owner = Viewer(DEFAULT_PROFILE, job.owner)
    written: list[str] = []
    await world.hub.people.export(OPERATORS, owner.principal, written.append)
    assert '"hello"' in written[0] and '"every"' in written[0]
    await world.hub.people.erase(OPERATORS, owner.principal)
    assert await world.hub.jobs.list_all(OPERATORS, done=True) == []
    assert await world.read(lambda tx: tx.rows("select * from job_runs")) == []


async def test_jobs_go_with_a_person_who_is_linked_and_unlinked(world: World) -> None:
    job = await _from_chat(world)
    world.advance(1)
    await _from_chat(world, user="bob", chat="2")
    await world.hub.people.link(OPERATORS, (FAKE, "ann"), (FAKE, "bob"))
    found = await world.hub.jobs.list_all(OPERATORS)
    assert {j.owner for j in found} == {job.owner} and sorted(j.name for j in found) == ["hello", "hello #2"]
    await world.hub.people.unlink(OPERATORS, FAKE, "bob")
    owners = {j.name: j.owner for j in await world.hub.jobs.list_all(OPERATORS)}
    assert owners["hello"] == job.owner and owners["hello #2"] != job.owner
    known = await world.read(people.list_all, DEFAULT_PROFILE)
    assert owners["hello #2"] in {p.id for p in known}


async def test_an_event_that_makes_a_job_makes_it_once(world: World) -> None:
    given = inbound("/jobs add every 10m hello")
    first, again = await world.hub.receive(given), await world.hub.receive(given)
    assert (again.duplicate, again.reply) == (True, first.reply)
    assert len(await world.hub.jobs.list_all(ANN)) == 1


async def test_a_question_of_a_run_is_answered_from_the_chat_that_it_reached(begin: Begin) -> None:
    answers: list[str | None] = []

    async def ask(context: TurnContext) -> None:
        answers.append(await context.ask(Question(key="1", title="May I?")))

    world = await begin(agent=Scenes({"build": [ask, TextDelta("built")]}))
    job = await add(world, "30m", "build")
    world.advance(30 * MINUTE)
    (told,) = await world.sent(1)
    assert "May I?" in told and "/jobs continue" in told
    await world.command("/jobs continue")
    await world.command("/allow")
    (run,) = await passed(world, job, 1)
    assert (run.status, answers) == ("done", ["allow"])


async def test_a_job_follows_a_chat_that_gets_another_id(world: World) -> None:
    job = await _from_chat(world)
    await world.hub.lanes.move_chat(FAKE, "", "1", "-1001")
    (moved,) = await world.hub.jobs.list_all(OPERATORS)
    assert [str(t) for t in moved.targets] == ["fake:-1001"] and moved.source and moved.source.chat == "-1001"
    await passed(world, job, 1)
    (delivery,) = [d for d in await world.flow(world.delivered(2)) if d.turn]
    assert delivery.target == Target(FAKE, chat="-1001")


async def test_a_job_in_a_zone_that_is_gone_holds_up_no_other(world: World) -> None:
    lost, other = await add(world, "0 * * * *"), await add(world, "0 * * * *", "other")
    strange = msgspec.structs.replace(lost.schedule, zone="Mars/Crater")
    await world.write(
        lambda tx: tx.run(
            "update jobs set schedule = :s where id = :id", {"s": codec.dumps(strange), "id": lost.id}
        )
    )
    (run,) = await passed(world, other, 1)
    assert run.status == "done"
    paused, _ = await world.hub.jobs.get(ANN, lost.id)
    assert paused.state is JobState.PAUSED and "Mars/Crater" in paused.why


async def test_what_became_of_moments_long_past_is_forgotten(world: World) -> None:
    job = await add(world, "every 10m")
    first, _ = await passed(world, job, 2)
    before = first.at + MINUTE
    await world.database.write("runs.trim", lambda tx: jobs.trim_runs(tx, before=before))
    left = await world.read(jobs.list_runs, job)
    assert [run.due_at for run in left] == [job.created_at + 20 * MINUTE]
