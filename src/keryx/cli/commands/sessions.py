"""`keryx sessions`: list, show, search and change conversations."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
from cyclopts import App, Parameter

from keryx import config
from keryx.cli import output, terminal
from keryx.cli.commands.people import parse_person
from keryx.cli.options import (
    FLAG,
    HubAccess,
    Json,
    SessionRef,
    Yes,
    check_positive,
    confirm,
    open_hub,
    parse_since,
    report,
    warn_without_node,
)
from keryx.core.errors import Invalid, NotFound
from keryx.core.ids import OPERATOR, PrincipalId, SessionId
from keryx.core.messages import Message
from keryx.core.sessions import (
    Activity,
    EndReason,
    PruneRule,
    Session,
    SessionChange,
    SessionFilter,
    SessionListItem,
    SettingsChange,
)
from keryx.core.texts import ENGLISH
from keryx.engine.hub.views import MessageRange
from keryx.store.search import SearchHit

_PAGE_SIZE = 500
_MAX_PRUNED = 100_000
_MAX_SHOWN = 20
_FILTER_HELP = "Only those that filters match: is:, tag:, project:, surface:, person:, before:, after:. is:deleted is the trash."

app = App(name="sessions", help="List, read, search and change conversations.")


class SessionListReport(msgspec.Struct, frozen=True, kw_only=True):
    sessions: list[SessionListItem]
    next: str | None


class SessionReport(msgspec.Struct, frozen=True, kw_only=True):
    session: Session
    messages: list[Message]
    earlier: bool


async def list_(
    *,
    surface: Annotated[
        str | None, Parameter(help="Only those that began here: cli, gateway, web, acp, api, job.")
    ] = None,
    owner: Annotated[
        str | None,
        Parameter(help="Only those of this person: PLATFORM:ID such as telegram:4711, or operator."),
    ] = None,
    project: Annotated[str | None, Parameter(help="Only those of this project.")] = None,
    pinned: Annotated[bool, FLAG, Parameter(help="Only pinned ones.")] = False,
    archived: Annotated[bool, FLAG, Parameter(help="Only archived ones.")] = False,
    all_: Annotated[
        bool, FLAG, Parameter(name="--all", help="Archived ones and scheduled runs too.")
    ] = False,
    state: Annotated[Activity | None, Parameter(help="Only those in this state.")] = None,
    filter_: Annotated[str, Parameter(name="--filter", help=_FILTER_HELP)] = "",
    cwd: Annotated[str | None, Parameter(help="Only those of this directory.")] = None,
    since_: Annotated[
        str | None, Parameter(name="--since", help="Only those active since: 12h, 7d or a date.")
    ] = None,
    limit: Annotated[int, Parameter(help="How many at most, up to 500.")] = 20,
    page: Annotated[str | None, Parameter(help="Go on after a page: the cursor it ended with.")] = None,
    json: Json = False,
) -> None:
    """List conversations, pinned ones first, then the latest.

    For example:

        keryx sessions list
        keryx sessions list --surface cli --since 7d
        keryx sessions list --state running --json
        keryx sessions list --filter 'is:failed tag:"to do" after:7d'
        keryx sessions list --filter is:deleted
    """
    async with open_hub() as access:
        listing = SessionFilter(
            query=filter_,
            surface=surface,
            owner=await _find_owner(access, owner) if owner else None,
            project=(await access.hub.projects.find(access.viewer, project)).id if project else None,
            pinned=True if pinned else None,
            archived=None if all_ else archived,
            activity=state,
            cwd=cwd,
            since=parse_since(since_) if since_ else None,
            jobs=all_,
            after=page,
            limit=check_positive(limit, "--limit"),
        )
        found, more = await access.hub.list_sessions(access.viewer, listing)
        everything = msgspec.structs.replace(listing, archived=None, jobs=True, limit=1)
        hidden = not (found or archived) and (await access.hub.list_sessions(access.viewer, everything))[0]
    if json:
        output.write_json(SessionListReport(sessions=found, next=more))
    elif found:
        _print_list(found, more)
    elif hidden:
        output.write("Only archived conversations or scheduled runs here. `--all` shows them.")
    else:
        output.write("No conversations here. `keryx chat` starts one.")


async def _find_owner(access: HubAccess, who: str) -> PrincipalId:
    if who == OPERATOR:
        return OPERATOR
    return (await access.hub.people.find(access.viewer, *parse_person(who))).principal.id


async def show(
    ref: SessionRef,
    /,
    *,
    limit: Annotated[int, Parameter(help="How many of the last messages.")] = 50,
    all_: Annotated[bool, FLAG, Parameter(name="--all", help="Every message.")] = False,
    json: Json = False,
) -> None:
    """Show a conversation with everything in it, undone and interrupted messages marked.

    For example:

        keryx sessions show 01jd0abc
        keryx sessions show "trip to oslo" --all
    """
    async with open_hub() as access:
        session = await access.find_session(ref)
        window = MessageRange(limit=check_positive(limit, "--limit"))
        snapshot = await access.hub.open(access.viewer, session.id, window)
        messages, earlier = snapshot.messages, snapshot.earlier
        while all_ and earlier:
            window = MessageRange(limit=_PAGE_SIZE, before=messages[0].seq)
            page = await access.hub.page(access.viewer, session.id, window)
            messages, earlier = [*page.messages, *messages], page.earlier
    if json:
        output.write_json(SessionReport(session=session, messages=messages, earlier=earlier))
        return
    output.write(terminal.format_heading(session, ENGLISH))
    if earlier:
        output.write(output.style_text("… earlier messages: --all shows them", "dim"))
    for message in messages:
        terminal.print_message(message, ENGLISH)
    if snapshot.activity in (Activity.RUNNING, Activity.WAITING):
        output.write(output.style_text(f"A turn is {snapshot.activity.value}.", "mark"))


def _print_list(found: list[SessionListItem], more: str | None) -> None:
    rows = [
        (
            entry.session.id,
            ("★ " if entry.session.pinned else "") + (entry.session.title or "untitled"),
            entry.session.surface,
            str(entry.session.messages),
            output.format_time(entry.session.active_at),
            "" if entry.activity is Activity.IDLE else entry.activity.value,
        )
        for entry in found
    ]
    output.write_table(("id", "title", "from", "msgs", "last", "state"), rows, flexible=1, right=(3,))
    if more:
        output.write(output.style_text(f"More: --page {more}", "dim"))


class SearchHitReport(msgspec.Struct, frozen=True, kw_only=True):
    session: SessionId
    title: str
    message: str | None  # null if the title matched
    role: str | None
    mark: str | None  # what became of the message, such as "withdrawn"
    snippet: str
    spans: list[tuple[int, int]]  # the matches within `snippet`
    before: str | None
    after: str | None
    score: float


async def search(
    *words: Annotated[str, Parameter(allow_leading_hyphen=True, help="What to look for.")],
    limit: Annotated[int, Parameter(help="How many at most.")] = 10,
    skip: Annotated[int, Parameter(help="Leave out this many of the best.")] = 0,
    json: Json = False,
) -> None:
    """Search everything that was said: words, "phrases", begin*, OR, -not, from: before: after: has:

    Any input is a valid search. The best come first.

        keryx sessions search oslo hotel
        keryx sessions search '"night train" after:2026-01-01'
    """
    async with open_hub() as access:
        hits = await access.hub.search(
            access.viewer, " ".join(words), limit=check_positive(limit, "--limit"), offset=max(0, skip)
        )
    if json:
        reports = [
            SearchHitReport(
                session=hit.session.id,
                title=hit.session.title,
                message=hit.message.id if hit.message else None,
                role=hit.message.role.value if hit.message else None,
                mark=hit.message.mark.value if hit.message and hit.message.mark else None,
                snippet=hit.snippet.text,
                spans=list(hit.snippet.spans),
                before=hit.before.text if hit.before else None,
                after=hit.after.text if hit.after else None,
                score=hit.score,
            )
            for hit in hits
        ]
        output.write_json({"hits": reports})
        return
    for hit in hits:
        _print_hit(hit)
    if not hits:
        output.write("Nothing found.")


def _print_hit(hit: SearchHit) -> None:
    who = terminal.format_speaker(hit.message, ENGLISH) if hit.message else "title"
    when = output.format_time(hit.message.at if hit.message else hit.session.active_at)
    mark = f" · {ENGLISH.say(f'mark.{hit.message.mark}')}" if hit.message and hit.message.mark else ""
    facts = f" · {hit.message.id if hit.message else hit.session.id} · {who} · {when}{mark}"
    title = output.truncate(hit.session.title or "untitled", max(20, output.terminal_width() - len(facts)))
    output.write(output.style_text(title, "bold") + output.style_text(facts, "dim"))
    text, at = "", 0
    for begin, end in hit.snippet.spans:
        before, match = hit.snippet.text[at:begin], hit.snippet.text[begin:end]
        text += output.sanitize(before) + output.style_text(output.sanitize(match), "hit")
        at = end
    output.write(f"  {text}{output.sanitize(hit.snippet.text[at:])}")


async def rename(
    ref: SessionRef, title: Annotated[str, Parameter(help="The new title.")], /, *, json: Json = False
) -> None:
    """Give a conversation a title. It is never overwritten by an automatic one. An empty title removes it.

    For example:

        keryx sessions rename 01jd0abc "Trip to Oslo"
        keryx sessions rename oslo ""
    """
    async with open_hub() as access:
        id_ = await access.find_id(ref)
        new_title = await access.hub.rename(access.viewer, id_, title)
    text = (
        f"Now called “{new_title}”." if new_title else "It has no title now; the next answer may give it one."
    )
    report(text, json, session=id_)


async def fork(
    ref: SessionRef,
    /,
    *,
    at: Annotated[int | None, Parameter(help="The number of the last message to copy.")] = None,
    title: Annotated[str | None, Parameter(help="The title of the copy.")] = None,
    json: Json = False,
) -> None:
    """Copy a conversation, up to its last complete turn or up to a message; the copy goes its own way.

    For example:

        keryx sessions fork oslo --at 12 --title "Oslo by train"
    """
    async with open_hub() as access:
        child = await access.hub.fork(
            access.viewer, await access.find_id(ref), surface="cli", through=at, title=title
        )
    report(
        f"Copied to {child.id}, called “{child.title}”. `keryx chat --resume {child.id}` goes on there.",
        json,
        session=child.id,
    )


async def undo(
    ref: SessionRef,
    /,
    *,
    turns: Annotated[int, Parameter(name=["--turns", "-n"], help="How many turns.")] = 1,
    message: Annotated[
        int | None,
        Parameter(
            help="The number of a message, as `sessions show --json` has it: its turn and all later ones."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Take back the last turns. Nothing is lost: `redo` brings them back.

    For example:

        keryx sessions undo oslo
        keryx sessions undo oslo -n 3
        keryx sessions undo oslo --message 7
    """
    async with open_hub() as access:
        id_ = await access.find_id(ref)
        undone = await access.hub.undo(access.viewer, id_, turns, message=message)
    count = output.format_count(undone.turns, "turn")
    report(f"Took back {count}. The message was: {output.truncate(undone.text, 200)}", json, session=id_)


async def redo(ref: SessionRef, /, *, json: Json = False) -> None:
    """Bring back what the last undo took.

    For example:

        keryx sessions redo oslo
    """
    async with open_hub() as access:
        id_ = await access.find_id(ref)
        count = await access.hub.redo(access.viewer, id_)
    report(f"{output.format_count(count, 'message')} back.", json, session=id_)


async def retry(ref: SessionRef, /, *, json: Json = False) -> None:
    """Ask the last question again.

    For example:

        keryx sessions retry oslo
    """
    async with open_hub() as access:
        id_ = await access.find_id(ref)
        receipt = await access.hub.retry(access.viewer, id_, surface="cli")
        nodes = await access.hub.list_nodes()
    report(f"Asked again as turn {receipt.turn}.", json, session=id_)
    warn_without_node(nodes)


async def stop(
    ref: SessionRef,
    /,
    *,
    queue: Annotated[bool, FLAG, Parameter(help="Drop what waits too.")] = False,
    json: Json = False,
) -> None:
    """Stop the running turn; what was said so far stays.

    For example:

        keryx sessions stop oslo --queue
    """
    async with open_hub() as access:
        id_ = await access.find_id(ref)
        turn = await access.hub.stop(access.viewer, id_, queue=queue)
    report("Stopping." if turn else "Nothing is running.", json, session=id_)


async def model(
    ref: SessionRef,
    name: Annotated[str | None, Parameter(help="A model, or `default`.")] = None,
    /,
    *,
    json: Json = False,
) -> None:
    """Show or set the model of a conversation.

    For example:

        keryx sessions model oslo
        keryx sessions model oslo gpt-5
        keryx sessions model oslo default
    """
    async with open_hub() as access:
        session = await access.find_session(ref)
        settings = session.settings
        if name is not None:
            chosen = SettingsChange(model=None if name == "default" else name)
            await access.hub.change(access.viewer, session.id, SessionChange(settings=chosen))
            settings = chosen.apply(settings)
    output.write_result(
        f"Model: {settings.model or 'default'}.", {"session": session.id, "model": settings.model}, json
    )


async def delete(
    ref: SessionRef,
    /,
    *,
    now: Annotated[bool, FLAG, Parameter(help="Erase it at once and for good.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete a conversation: hidden now, erased after a grace period.

    For example:

        keryx sessions delete oslo
        keryx sessions delete 01jd0abc --now --yes
    """
    async with open_hub() as access:
        session = await _find_to_delete(access, ref, now=now)
        how = "for good" if now else "(it can be brought back for a while)"
        confirm(
            f"Delete “{session.title or session.id}”, {output.format_count(session.messages, 'message')}, {how}?",
            yes,
        )
        await access.hub.delete(access.viewer, session.id, erase=now)
    report(
        "Erased." if now else f"Deleted. `keryx sessions undelete {session.id}` brings it back.",
        json,
        session=session.id,
    )


async def _find_to_delete(access: HubAccess, ref: str, *, now: bool) -> Session:
    """A session by any name; with `now`, also one in the trash, by its whole id."""
    try:
        return await access.find_session(ref)
    except NotFound:
        if not now:
            raise
    listed, _ = await access.hub.views.get_listed(access.viewer, SessionId(ref))
    return listed.session


async def prune(
    *,
    older_than: Annotated[
        str | None,
        Parameter(help="Without a message for this long: 90d. Without it, the rules of `keep` count."),
    ] = None,
    surface: Annotated[str | None, Parameter(help="Only those that began here.")] = None,
    owner: Annotated[
        str | None, Parameter(help="Only those of this person: PLATFORM:ID, or operator.")
    ] = None,
    filter_: Annotated[str, Parameter(name="--filter", help=_FILTER_HELP)] = "",
    delete: Annotated[bool, FLAG, Parameter(help="Delete them instead of archiving them.")] = False,
    dry_run: Annotated[bool, FLAG, Parameter(help="Only show what would go.")] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Archive or delete old conversations. Pinned ones, and those with something to do, stay.

    Without options it shows what `keep.archive` and `keep.sessions` will take, and takes it now.

        keryx sessions prune --older-than 90d --surface web --dry-run
        keryx sessions prune --older-than 2y --delete
        keryx sessions prune --filter 'tag:done surface:web' --dry-run
    """
    async with open_hub() as access:
        if older_than or filter_:
            person = await _find_owner(access, owner) if owner else None
            before = parse_since(older_than) if older_than else datetime.now(UTC)
            rules = [PruneRule(before=before, delete=delete, surface=surface, owner=person, query=filter_)]
        else:
            rules = config.read().keep.list_prune_rules(datetime.now(UTC))
        if not rules:
            raise Invalid(
                "say which: --older-than 90d, --filter, or set keep.archive or keep.sessions in keryx.toml"
            )
        counts = {"archived": 0, "deleted": 0}
        preview: dict[str, list[str]] = {"archive": [], "delete": []}
        for rule in rules:
            old = await access.hub.list_prunable(access.viewer, rule, limit=_MAX_PRUNED)
            if not old:
                continue
            verb = "Delete" if rule.delete else "Archive"
            preview[verb.lower()] += [session.id for session in old]
            if not json:
                output.write(f"{verb} {output.format_count(len(old), 'conversation')}:")
                for session in old[:_MAX_SHOWN]:
                    output.write(output.sanitize(f"  {session.id}  {session.title}", one_line=True))
                if len(old) > _MAX_SHOWN:
                    output.write(f"  … and {len(old) - _MAX_SHOWN} more")
            if not dry_run:
                confirm(f"{verb} them?", yes)
                for session in old:
                    if await access.hub.prune(access.viewer, session.id, rule):
                        counts["deleted" if rule.delete else "archived"] += 1
    if dry_run:
        output.write_result("Nothing was done.", preview, json)
    else:
        output.write_result(f"{counts['archived']} archived, {counts['deleted']} deleted.", counts, json)


async def undelete(
    session: Annotated[str, Parameter(help="The whole id of the session.")], /, *, json: Json = False
) -> None:
    """Bring back a deleted conversation before it is erased.

    For example:

        keryx sessions undelete 01jd0abcdefghjkmnp
    """
    async with open_hub() as access:
        await access.hub.undelete(access.viewer, SessionId(session))
    report("It is back.", json, session=session)


async def move_to_project(
    ref: SessionRef,
    project: Annotated[str, Parameter(help="The project, or `none`.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Put a conversation into a project, or into none.

    For example:

        keryx sessions move-to-project oslo travel
        keryx sessions move-to-project oslo none
    """
    result = "In no project now." if project == "none" else f"Now in {project}."
    await _change_session(
        ref,
        result,
        json,
        lambda a, id_: a.hub.projects.assign(a.viewer, id_, None if project == "none" else project),
    )


_Tags = Annotated[str, Parameter(help="The names of tags.")]


async def tag(ref: SessionRef, /, *names: _Tags, json: Json = False) -> None:
    """Put tags on a conversation. Those that do not exist are made.

    For example:

        keryx sessions tag oslo travel "to do"
    """
    await _change_tags(ref, SessionChange(add_tags=names), json)


async def untag(ref: SessionRef, /, *names: _Tags, json: Json = False) -> None:
    """Take tags from a conversation.

    For example:

        keryx sessions untag oslo "to do"
    """
    await _change_tags(ref, SessionChange(remove_tags=names), json)


async def _change_tags(ref: str, change: SessionChange, json: bool) -> None:
    async with open_hub() as access:
        id_ = await access.find_id(ref)
        await access.hub.change(access.viewer, id_, change)
        names = [found.name for found in await access.hub.tags.list_for_session(access.viewer, id_)]
    output.write_result(f"Tags: {', '.join(names) or 'none'}.", {"session": id_, "tags": names}, json)


async def set_directory(
    ref: SessionRef,
    directory: Annotated[Path, Parameter(help="The directory.")],
    /,
    *,
    json: Json = False,
) -> None:
    """Let a conversation work in another directory, from its next turn on.

    For example:

        keryx sessions set-directory oslo ~/projects/site
    """
    folder = directory.expanduser().absolute()
    if not folder.is_dir():
        raise Invalid(f"{folder} is not a directory: name one that exists")
    change = SessionChange(cwd=str(folder))
    await _change_session(
        ref, f"It works in {folder} now.", json, lambda a, id_: a.hub.change(a.viewer, id_, change)
    )


_Change: TypeAlias = Callable[[HubAccess, SessionId], Awaitable[object]]


# Commands that only set one state of a session: the help, the text when it is done, and the change.
_SWITCHES: dict[str, tuple[str, str, _Change]] = {
    "pin": (
        "Keep a conversation at the top of every list.",
        "Pinned.",
        lambda a, id_: a.hub.pin(a.viewer, id_, True),
    ),
    "unpin": (
        "Let a conversation take its place in the list again.",
        "Unpinned.",
        lambda a, id_: a.hub.pin(a.viewer, id_, False),
    ),
    "archive": (
        "Take a conversation out of the list; it is kept and found.",
        "Archived.",
        lambda a, id_: a.hub.archive(a.viewer, id_, True),
    ),
    "unarchive": (
        "Bring a conversation back into the list.",
        "Back from the archive.",
        lambda a, id_: a.hub.archive(a.viewer, id_, False),
    ),
    "end": (
        "Mark a conversation as ended.",
        "Ended.",
        lambda a, id_: a.hub.end(a.viewer, id_, EndReason.PERSON),
    ),
    "reopen": (
        "Open an ended conversation again.",
        "Open again.",
        lambda a, id_: a.hub.end(a.viewer, id_, None),
    ),
}


def _build_switch(name: str) -> Callable[..., Awaitable[None]]:
    about, result, change = _SWITCHES[name]

    async def command(ref: SessionRef, /, *, json: Json = False) -> None:
        await _change_session(ref, result, json, change)

    command.__doc__ = f"{about}\n\nFor example:\n\n    keryx sessions {name} oslo\n"
    return command


async def _change_session(ref: str, result: str, json: bool, change: _Change) -> None:
    async with open_hub() as access:
        id_ = await access.find_id(ref)
        await change(access, id_)
    report(result, json, session=id_)


# In the order of the reference. Commands of other modules are imported when they are used.
for name, command in {
    "search": search,
    "rename": rename,
    "fork": fork,
    "undo": undo,
    "redo": redo,
    "retry": retry,
    "stop": stop,
    "model": model,
    "pin": _build_switch("pin"),
    "unpin": _build_switch("unpin"),
    "archive": _build_switch("archive"),
    "unarchive": _build_switch("unarchive"),
    "delete": delete,
    "undelete": undelete,
    "prune": prune,
    "end": _build_switch("end"),
    "reopen": _build_switch("reopen"),
    "move-to-project": move_to_project,
    "tag": tag,
    "untag": untag,
    "set-directory": set_directory,
    "export": "keryx.cli.commands.export_import:export",
    "import": "keryx.cli.commands.export_import:import_",
    "stats": "keryx.cli.commands.store:stats",
    "list": list_,
    "show": show,
}.items():
    app.command(command, name=name)
