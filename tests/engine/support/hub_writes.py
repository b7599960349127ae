"""The writes of the hub: for each label, a function that prepares new rows and returns the call that makes this write."""

import io
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeAlias

import msgspec
from tests.builders import ANN, ANNS, OPERATORS, a_delivery, a_job, a_session, a_turn, at_time, claim
from tests.engine.support.hub_setup import CLOSED, HubSetup, fresh
from tests.engine.world import AT_ONCE, ECHO, FAKE, Wire, inbound

from keryx import config
from keryx.app import App
from keryx.core import ids
from keryx.core.deliveries import DeliveryState, Target
from keryx.core.ids import DEFAULT_PROFILE, SessionId, TurnId, WorkerId
from keryx.core.media import Attachment
from keryx.core.messages import Role, TurnVersion, text_parts
from keryx.core.ports.adapter import Adapter
from keryx.core.questions import Consent, Question
from keryx.core.sessions import (
    EndReason,
    PruneRule,
    Session,
    SessionChange,
    SessionSettings,
    TagColour,
    Viewer,
)
from keryx.core.turns import Turn
from keryx.engine.export import ExportFormat, export
from keryx.engine.hub import Hub
from keryx.engine.hub.api_turns import DEFAULT_MODEL, ApiTurnRequest, PastMessage
from keryx.engine.importer import import_sessions
from keryx.engine.policy import Notices, Policy
from keryx.engine.service import Service
from keryx.engine.units import api_turns
from keryx.engine.units.jobs import JobChange, JobRequest
from keryx.store import deliveries, inbox, messages, platforms, questions, sessions, viewer_state, workers
from keryx.store.db import Database, Transaction
from keryx.store.search import tsvector
from keryx.store.viewer_state import UnsentMessage
from keryx.store.workers import Worker
from keryx.testing import FakeClock, RecordingAdapter

Act: TypeAlias = Callable[[], Awaitable[object]]
Preparation: TypeAlias = Callable[[HubSetup], Awaitable[Act]]


def on_session(work: Callable[[Hub, Session], Awaitable[object]]) -> Preparation:
    async def prepare(setup: HubSetup) -> Act:
        session = await setup.talked()
        return lambda: work(setup.hub, session)

    return prepare


def on_turns(work: Callable[[Hub, Turn, Turn], Awaitable[object]]) -> Preparation:
    async def prepare(setup: HubSetup) -> Act:
        running, waiting = await setup.busy()
        return lambda: work(setup.hub, running, waiting)

    return prepare


def on_lane(work: Callable[[Hub, str], Awaitable[object]]) -> Preparation:
    async def prepare(setup: HubSetup) -> Act:
        key, _ = await setup.lane()
        return lambda: work(setup.hub, key)

    return prepare


def on_project(work: Callable[[Hub, str], Awaitable[object]]) -> Preparation:
    async def prepare(setup: HubSetup) -> Act:
        project = await setup.hub.projects.add(ANNS, fresh())
        return lambda: work(setup.hub, project.name)

    return prepare


def on_tag(work: Callable[[Hub, str], Awaitable[object]]) -> Preparation:
    async def prepare(setup: HubSetup) -> Act:
        tag = await setup.hub.tags.add(ANNS, fresh())
        return lambda: work(setup.hub, tag.name)

    return prepare


def on_job(work: Callable[[Hub, str], Awaitable[object]]) -> Preparation:
    async def prepare(setup: HubSetup) -> Act:
        job = await setup.write(a_job, name=fresh())
        return lambda: work(setup.hub, job.id)

    return prepare


def on_person(work: Callable[[Hub, str], Awaitable[object]], platform: str = FAKE) -> Preparation:
    async def prepare(setup: HubSetup) -> Act:
        person = await setup.person(platform)
        return lambda: work(setup.hub, person)

    return prepare


def ask_by_program(text: str) -> ApiTurnRequest:
    said = (PastMessage(Role.USER, text_parts(text)),)
    return ApiTurnRequest(viewer=OPERATORS, model=DEFAULT_MODEL, inputs=said)


def on_api_turn(work: Callable[[Hub, TurnId], Awaitable[object]]) -> Preparation:
    """A program has asked for a turn, which another worker runs and which waits for an answer of a person."""

    async def prepare(setup: HubSetup) -> Act:
        def ask(tx: Transaction) -> TurnId:
            now = setup.clock.now()
            submitted = api_turns.submit(at_time(tx, now), ask_by_program(fresh()), policy=AT_ONCE)
            turn = claim(tx, at=now, session=submitted.session)
            assert turn
            question = Question(key="q", title="May it?", tool="rm")
            questions.add(at_time(tx, now), turn, question, shared=False, expires_at=now + timedelta(hours=1))
            return turn.id

        turn = await setup.write(ask)
        return lambda: work(setup.hub, turn)

    return prepare


def on_conversation(work: Callable[[Hub, SessionId], Awaitable[object]]) -> Preparation:
    """A program has created a conversation with one message."""

    async def prepare(setup: HubSetup) -> Act:
        said = ask_by_program("hello").inputs
        created = await setup.hub.api_turns.create_conversation(OPERATORS, said, {})
        return lambda: work(setup.hub, created.session)

    return prepare


async def see_key(setup: HubSetup) -> Act:
    _, secret = await setup.hub.api_keys.add(OPERATORS, fresh())
    return lambda: setup.hub.api_keys.check(secret)


async def revoke_key(setup: HubSetup) -> Act:
    key, _ = await setup.hub.api_keys.add(OPERATORS, fresh())
    return lambda: setup.hub.api_keys.revoke(OPERATORS, key.id)


def anywhere(work: Callable[[Hub, str], Awaitable[object]]) -> Preparation:
    async def prepare(setup: HubSetup) -> Act:
        name = fresh()
        return lambda: work(setup.hub, name)

    return prepare


async def claim_listener(setup: HubSetup) -> Act:
    platform, now = fresh(), setup.clock.now()
    worker = Worker(
        id=WorkerId(f"elsewhere/1/1/{platform}"),
        kind="serve",
        host="elsewhere",
        pid=1,
        started_at=now,
        seen_at=now,
    )
    await setup.write(workers.heartbeat, worker)
    return lambda: setup.hub.claim_listener(worker.id, platform, "")


async def undelete(setup: HubSetup) -> Act:
    session = await setup.talked()
    await setup.hub.delete(OPERATORS, session.id)
    return lambda: setup.hub.undelete(OPERATORS, session.id)


async def redo(setup: HubSetup) -> Act:
    session = await setup.talked()
    await setup.hub.undo(OPERATORS, session.id)
    return lambda: setup.hub.redo(OPERATORS, session.id)


async def version(setup: HubSetup) -> Act:
    session = await setup.talked()
    first = (await setup.hub.open(OPERATORS, session.id)).messages[0].turn
    assert first is not None

    def ask_again(tx: Transaction) -> None:
        second = TurnId(fresh())
        group = sessions.next_undo_group(tx, session.id)
        messages.set_undone(tx, session.id, first, first=1, group=group)
        seq = messages.append(tx, session.id, Role.USER, text_parts("again"), turn=second)
        messages.add_version(tx, session.id, TurnVersion(first, first, 1))
        messages.add_version(tx, session.id, TurnVersion(second, first, seq))

    await setup.write(ask_again)
    return lambda: setup.hub.choose_version(OPERATORS, session.id, first)


async def restore_message(setup: HubSetup) -> Act:
    session = await setup.talked()
    await setup.hub.delete_message(OPERATORS, f"{session.id}.1")
    return lambda: setup.hub.restore_message(OPERATORS, f"{session.id}.1")


async def revoke_share(setup: HubSetup) -> Act:
    session = await setup.talked()
    share, _ = await setup.hub.shares.add(OPERATORS, session.id)
    return lambda: setup.hub.shares.revoke(OPERATORS, session.id, share.id)


async def branch(setup: HubSetup) -> Act:
    session, said = await setup.talked(), inbound("and then?", chat=fresh())
    return lambda: setup.hub.branch(OPERATORS, session.id, said, surface="web")


async def lane_chat(setup: HubSetup) -> Act:
    _, said = await setup.lane()
    old, new = said.source.chat or "", fresh()
    return lambda: setup.hub.lanes.move_chat(FAKE, "", old, new)


async def lane_switch(setup: HubSetup) -> Act:
    session = await setup.talked()
    _, said = await setup.lane()
    return lambda: setup.hub.lanes.switch(OPERATORS, said, session.id)


async def assign(setup: HubSetup) -> Act:
    session, project = await setup.talked(), await setup.hub.projects.add(ANNS, fresh())
    return lambda: setup.hub.projects.assign(ANNS, session.id, project.name)


async def job_resume(setup: HubSetup) -> Act:
    job = await setup.write(a_job, name=fresh())
    await setup.hub.jobs.pause(ANNS, job.id)
    return lambda: setup.hub.jobs.resume(ANNS, job.id)


async def answer(setup: HubSetup) -> Act:
    turn, _ = await setup.busy()
    now = setup.clock.now()
    question = Question(key="q", title="May it?", tool="rm")
    asked = await setup.at(now).write(
        questions.add, turn, question, shared=False, expires_at=now + timedelta(hours=1)
    )
    return lambda: setup.hub.questions.answer(OPERATORS, asked.id, "always")


async def forget(setup: HubSetup) -> Act:
    session = await setup.talked()
    await setup.write(questions.set_consent, session.id, "rm", Consent.ALLOW_ALWAYS, by=ANN)
    return lambda: setup.hub.questions.forget_consents(ANNS, session.id, "rm")


async def send_typed(setup: HubSetup) -> Act:
    session = await setup.talked()
    typed = UnsentMessage(text="half a th")
    await setup.write(viewer_state.save_unsent, ANNS, session.id, typed, session=session.id)
    sent = UnsentMessage(text="half a thought")
    return lambda: setup.hub.viewer_state.forget_sent_text(ANNS, session.id, sent)


async def decide(setup: HubSetup) -> Act:
    def fail(tx: Transaction) -> str:
        now, chat = setup.clock.now(), fresh()
        a_delivery(tx, target=Target(CLOSED, chat=chat), session=setting_session, at=now)
        worker = WorkerId("another")
        lease = timedelta(hours=1)
        found = deliveries.claim(
            at_time(tx, now), most=9, platform=CLOSED, account="", worker=worker, lease=lease
        )
        ((delivery, token),) = found.leased
        deliveries.finish_attempt(
            at_time(tx, now), delivery, token, DeliveryState.FAILED, error="no such chat"
        )
        return delivery.id

    setting_session = await setup.talked()
    failed = ids.DeliveryId(await setup.write(fail))
    return lambda: setup.hub.deliveries.decide(OPERATORS, failed, DeliveryState.DISCARDED)


async def post(setup: HubSetup) -> Act:
    def ask(tx: Transaction) -> Turn:
        now, target = setup.clock.now(), Target(FAKE, chat=fresh())
        return a_turn(tx, a_session(tx, title=fresh(), at=now), at=now, reply=target)

    turn, text = await setup.write(ask), fresh()
    return lambda: setup.hub.deliveries.post(ANNS, turn.id, "origin", text, alone=False)


async def see(setup: HubSetup) -> Act:
    id_, secret = await setup.hub.sign_ins.create(ANNS, browser="Firefox")
    setup.clock.advance(timedelta(hours=2))
    return lambda: setup.hub.sign_ins.check(id_, secret)


async def sign_out(setup: HubSetup) -> Act:
    id_, _ = await setup.hub.sign_ins.create(ANNS, browser="Firefox")
    return lambda: setup.hub.sign_ins.end(ANNS, id_)


async def user(setup: HubSetup) -> tuple[str, Viewer]:
    added = await setup.hub.users.add(OPERATORS, fresh().lower().replace("/", "-")[:30], "a hash")
    return added.name, added.viewer


async def change_password(setup: HubSetup) -> Act:
    name, _ = await user(setup)
    return lambda: setup.hub.users.set_password(OPERATORS, name, "another hash")


async def remove_user(setup: HubSetup) -> Act:
    name, viewer = await user(setup)
    await setup.hub.sign_ins.create(viewer, browser="Firefox")
    return lambda: setup.hub.users.remove(OPERATORS, name)


async def add_passkey(setup: HubSetup) -> Act:
    id_ = fresh()
    return lambda: setup.hub.users.add_passkey(ANNS, id_=id_, public_key="k", uses=1, name="phone")


async def use_passkey(setup: HubSetup) -> Act:
    added = await setup.hub.users.add_passkey(ANNS, id_=fresh(), public_key="k", uses=1, name="phone")
    return lambda: setup.hub.users.use_passkey(added.id, uses=2)


async def remove_passkey(setup: HubSetup) -> Act:
    added = await setup.hub.users.add_passkey(ANNS, id_=fresh(), public_key="k", uses=1, name="phone")
    return lambda: setup.hub.users.remove_passkey(ANNS, added.id)


async def set_role(setup: HubSetup) -> Act:
    grant = await (await approve(setup))()
    assert isinstance(grant, msgspec.Struct)
    person = str(msgspec.structs.asdict(grant)["person"])
    return lambda: setup.hub.people.set_role(OPERATORS, CLOSED, person, operator=True)


async def merge(setup: HubSetup) -> Act:
    handles = ((FAKE, await setup.person()), ("telegram", await setup.person("telegram")))
    one, other = [(await setup.hub.people.find(OPERATORS, *handle)).principal.id for handle in handles]
    return lambda: setup.hub.people.merge(OPERATORS, one, other)


async def keep(setup: HubSetup) -> Act:
    file = Attachment(name="a.txt", mime="text/plain", body=fresh().encode())
    return lambda: setup.hub.media.save(ANNS, file)


async def approve(setup: HubSetup) -> Act:
    person = await setup.person(CLOSED)
    waiting = await setup.hub.deliveries.page(OPERATORS)
    told = next(d.text for d in waiting if d.target.chat == person)
    code = re.search(r"approve closed (\w+)", told)
    assert code
    return lambda: setup.hub.people.approve(OPERATORS, CLOSED, code[1])


async def revoke(setup: HubSetup) -> Act:
    grant = await (await approve(setup))()
    assert isinstance(grant, msgspec.Struct)
    person = str(msgspec.structs.asdict(grant)["person"])
    return lambda: setup.hub.people.revoke(OPERATORS, CLOSED, person)


async def link(setup: HubSetup) -> Act:
    one, other = await setup.person(), await setup.person("telegram")
    return lambda: setup.hub.people.link(OPERATORS, (FAKE, one), ("telegram", other))


async def unlink(setup: HubSetup) -> Act:
    one, other = await setup.person(), await setup.person("telegram")
    await setup.hub.people.link(OPERATORS, (FAKE, one), ("telegram", other))
    return lambda: setup.hub.people.unlink(OPERATORS, "telegram", other)


async def alias(setup: HubSetup) -> Act:
    one, other = await setup.person("whatsapp"), await setup.person("whatsapp")
    return lambda: setup.hub.people.learn_alias(OPERATORS, "whatsapp", one, other)


async def erase(setup: HubSetup) -> Act:
    found = await setup.hub.people.find(OPERATORS, FAKE, await setup.person())
    return lambda: setup.hub.people.erase(OPERATORS, found.principal.id)


async def import_(setup: HubSetup) -> Act:
    session = await setup.talked()
    pieces: list[str] = []
    await export(setup.database, OPERATORS, [session.id], ExportFormat.JSONL, pieces.append)
    await setup.hub.delete(OPERATORS, session.id, erase=True)
    data = "".join(pieces).encode()
    return lambda: import_sessions(setup.database, setup.clock, OPERATORS, io.BytesIO(data))


async def search(setup: HubSetup) -> Act:
    """Something to find, and an index that has nothing yet."""
    await setup.talked()
    await setup.write(inbox.set_cursor, tsvector.CURSOR_NAME, "")
    return lambda: setup.hub.search(OPERATORS, "answer")


async def restart(setup: HubSetup) -> Act:
    """A node starts that tells a home channel of it."""
    home = partial(platforms.set_home, profile=DEFAULT_PROFILE, name="home", by=ANN)
    await setup.write(home, Target(CLOSED, chat=fresh()))
    setup.clock.advance(timedelta(hours=1))
    telling = msgspec.structs.replace(AT_ONCE, notices=Notices(restart=True))
    return lambda: come_and_go(setup.database, setup.clock, telling)


async def publish(setup: HubSetup) -> Act:
    """A node starts that serves a platform."""
    platform = RecordingAdapter(fresh())
    return lambda: come_and_go(setup.database, setup.clock, adapters=[platform])


async def gather(setup: HubSetup) -> Act:
    """A node starts while a message waits for what belongs to it."""
    await setup.hub.receive(inbound("one", chat=fresh(), more=True))
    return await publish(setup)


async def come_and_go(
    database: Database, clock: FakeClock, policy: Policy = AT_ONCE, *, adapters: Sequence[Adapter] = ()
) -> None:
    """A node starts and ends."""
    service = Service(
        database,
        clock,
        policy=policy,
        choose=lambda reading: ECHO,
        place=lambda reading, turn: "a test",
        adapters=adapters,
    )
    async with service.running():
        pass


async def salt(setup: HubSetup) -> Act:
    """A process starts on a store that has no salt yet."""
    await setup.write(lambda tx: tx.run("delete from cursors where name = :name", {"name": "prompt:salt"}))

    async def act() -> None:
        with tempfile.TemporaryDirectory() as home:
            app = App(config.Settings(home=home, agent="echo"), database=Wire(setup.database))
            async with app.service("cli"):
                pass

    return act


HUB_WRITES: Mapping[str, Preparation] = {
    "rename": on_session(lambda hub, s: hub.rename(OPERATORS, s.id, f"better {s.title}")),
    "pin": on_session(lambda hub, s: hub.pin(OPERATORS, s.id, True)),
    "archive": on_session(lambda hub, s: hub.archive(OPERATORS, s.id, True)),
    "end": on_session(lambda hub, s: hub.end(OPERATORS, s.id, EndReason.PERSON)),
    "configure": on_session(lambda hub, s: hub.configure(OPERATORS, s.id, SessionSettings(model="large"))),
    "change": on_session(
        lambda hub, s: hub.change(
            OPERATORS, s.id, SessionChange(title=f"best {s.title}", pinned=True, ended=EndReason.PERSON)
        )
    ),
    "change.many": on_session(
        lambda hub, s: hub.change_many(
            OPERATORS, [s.id], SessionChange(pinned=True, add_tags=("a tag",)), deleted=True, stop=True
        )
    ),
    "erase.many": on_session(lambda hub, s: hub.erase_many(OPERATORS, [s.id])),
    "tag.add": anywhere(lambda hub, name: hub.tags.add(ANNS, name)),
    "tag.change": on_tag(lambda hub, tag: hub.tags.change(ANNS, tag, new_name=None, colour=TagColour.RED)),
    "tag.remove": on_tag(lambda hub, tag: hub.tags.remove(ANNS, tag)),
    "delete": on_session(lambda hub, s: hub.delete(OPERATORS, s.id)),
    "prune": on_session(
        lambda hub, s: hub.prune(
            OPERATORS, s.id, PruneRule(before=s.active_at + timedelta(hours=1), delete=True)
        )
    ),
    "undelete": undelete,
    "fork": on_session(lambda hub, s: hub.fork(OPERATORS, s.id, surface="web")),
    "branch": branch,
    "undo": on_session(lambda hub, s: hub.undo(OPERATORS, s.id)),
    "redo": redo,
    "edit": on_session(lambda hub, s: hub.edit(OPERATORS, f"{s.id}.1", text_parts("better"), surface="web")),
    "version": version,
    "message.delete": on_session(lambda hub, s: hub.delete_message(OPERATORS, f"{s.id}.1", erase=True)),
    "message.restore": restore_message,
    "share.add": on_session(lambda hub, s: hub.shares.add(OPERATORS, s.id)),
    "share.revoke": revoke_share,
    "retry": on_session(lambda hub, s: hub.retry(OPERATORS, s.id, surface="web")),
    "stop": on_turns(lambda hub, running, _: hub.stop(OPERATORS, running.session, queue=True)),
    "cancel": on_turns(lambda hub, running, _: hub.cancel(OPERATORS, running.id)),
    "drop": on_turns(lambda hub, _, waiting: hub.drop(OPERATORS, waiting.id)),
    "rewrite": on_turns(
        lambda hub, _, w: hub.rewrite(OPERATORS, f"{w.session}.{w.input_seq}", text_parts("better"))
    ),
    "lane.reset": on_lane(lambda hub, key: hub.lanes.reset(OPERATORS, key)),
    "lane.suspend": on_lane(lambda hub, key: hub.lanes.suspend(OPERATORS, key, True)),
    "lane.instruct": on_lane(lambda hub, key: hub.lanes.set_instructions(OPERATORS, key, "be brief")),
    "lane.chat": lane_chat,
    "lane.switch": lane_switch,
    "project.add": anywhere(lambda hub, name: hub.projects.add(ANNS, name)),
    "project.change": on_project(lambda hub, p: hub.projects.change(ANNS, p, new_name=None, colour="red")),
    "project.instruct": on_project(lambda hub, p: hub.projects.set_instructions(ANNS, p, "be brief")),
    "project.remove": on_project(lambda hub, p: hub.projects.remove(ANNS, p)),
    "project.assign": assign,
    "job.add": anywhere(
        lambda hub, name: hub.jobs.add(ANNS, JobRequest(schedule="every 2h", prompt="news", name=name))
    ),
    "job.change": on_job(lambda hub, job: hub.jobs.change(ANNS, job, JobChange(prompt="weather"))),
    "job.pause": on_job(lambda hub, job: hub.jobs.pause(ANNS, job)),
    "job.resume": job_resume,
    "job.run": on_job(lambda hub, job: hub.jobs.run(ANNS, job)),
    "job.remove": on_job(lambda hub, job: hub.jobs.remove(ANNS, job)),
    "question.answer": answer,
    "consents.forget": forget,
    "delivery.decide": decide,
    "post": post,
    "desk.read": on_session(lambda hub, s: hub.viewer_state.mark_read(ANNS, s.id, 1)),
    "desk.compose": on_session(
        lambda hub, s: hub.viewer_state.save_unsent_text(ANNS, s.id, UnsentMessage(text="half a th"))
    ),
    "desk.sent": send_typed,
    "desk.prefer": anywhere(lambda hub, name: hub.viewer_state.change_preferences(ANNS, {"theme": name})),
    "sign_in.begin": anywhere(lambda hub, name: hub.sign_ins.create(ANNS, browser=name)),
    "sign_in.see": see,
    "sign_in.end": sign_out,
    "user.add": anywhere(lambda hub, name: hub.users.add(OPERATORS, f"u{name.lower()}"[:30], "a hash")),
    "user.password": change_password,
    "user.remove": remove_user,
    "passkey.add": add_passkey,
    "passkey.use": use_passkey,
    "passkey.remove": remove_passkey,
    "media.begin": keep,
    "media.chunk": keep,
    "media.finish": keep,
    "people.approve": approve,
    "people.deny": on_person(lambda hub, person: hub.people.deny(OPERATORS, CLOSED, person), CLOSED),
    "people.clear": on_person(lambda hub, _: hub.people.clear_pairings(OPERATORS, None), CLOSED),
    "people.revoke": revoke,
    "people.role": set_role,
    "people.merge": merge,
    "people.link": link,
    "people.unlink": unlink,
    "people.alias": alias,
    "people.erase": erase,
    "cursor.begin": anywhere(lambda hub, name: hub.init_cursor(name, "1")),
    "session.reserve": anywhere(
        lambda hub, name: hub.reserve_session(OPERATORS, SessionId(name), cwd="", settings=SessionSettings())
    ),
    "cursor.set": anywhere(lambda hub, name: hub.set_platform_cursor(name, "1")),
    "listener.claim": claim_listener,
    "import": import_,
    "notices.restart": restart,
    "rules.publish": publish,
    "turns.gather": gather,
    "salt": salt,
    "search.put": search,
    "search.analyse": search,
    "api.submit": anywhere(lambda hub, name: hub.api_turns.submit(ask_by_program(name))),
    "api.answer": on_api_turn(
        lambda hub, turn: hub.api_turns.answer_question(OPERATORS, turn, "allow", key=turn)
    ),
    "api.take": on_api_turn(lambda hub, turn: hub.api_turns.take(OPERATORS, turn)),
    "api.remove": on_api_turn(lambda hub, turn: hub.api_turns.remove(OPERATORS, turn)),
    "api.conversation.create": anywhere(
        lambda hub, name: hub.api_turns.create_conversation(OPERATORS, ask_by_program(name).inputs, {})
    ),
    "api.conversation.change": on_conversation(
        lambda hub, s: hub.api_turns.set_metadata(OPERATORS, s, {"place": "desk"})
    ),
    "api.conversation.add": on_conversation(
        lambda hub, s: hub.api_turns.add_messages(OPERATORS, s, ask_by_program("and this").inputs)
    ),
    "api.conversation.cut": on_conversation(
        lambda hub, s: hub.api_turns.remove_parts(OPERATORS, f"{s}.1", text_parts("hello"))
    ),
    "api.conversation.remove": on_conversation(
        lambda hub, s: hub.api_turns.remove_conversation(OPERATORS, s)
    ),
    "api.key.add": anywhere(lambda hub, name: hub.api_keys.add(OPERATORS, name)),
    "api.key.revoke": revoke_key,
    "api.key.see": see_key,
}

# Each call of these is another one: a second fork, a second sign-in. All others leave the store as the first left it.
EACH = frozenset(
    {
        "fork",
        "share.add",
        "job.add",
        "post",
        "sign_in.begin",
        "api.conversation.create",
        "api.conversation.add",
        "api.key.add",
    }
)
# These writes are followed by others of the same verb.
FIRST = frozenset({"media.begin", "media.chunk", "search.put"})
