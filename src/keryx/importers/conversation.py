"""Conversations of other programs, as their readers return them, and the log of what a reader folded or could not keep."""

import base64
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, cast
from urllib.parse import unquote_to_bytes

import msgspec

from keryx.core import codec
from keryx.core.errors import Invalid
from keryx.core.messages import Mark, Part, Parts, Reasoning, Role, Text, ToolCall, ToolResult
from keryx.core.sessions import TitleBy
from keryx.core.source import Source
from keryx.core.text import replace_unwritable, to_short_line
from keryx.core.usage import MILLION, Tokens

MAX_DAMAGES = 1_000
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)
# Numbers above it are milliseconds.
_LARGEST_SECONDS = 100_000_000_000
_LONGEST_NAME = 200

Json: TypeAlias = dict[str, Any]


class ForeignUsage(Tokens, frozen=True, kw_only=True, omit_defaults=True):
    """The usage of one call of a model, or the total of a session."""

    model: str = ""
    # In millionths of the currency, `None` if unknown.
    cost: int | None = None
    estimated: bool = True
    task: str = "answer"


class ForeignFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a message."""

    name: str
    mime: str = ""
    # Returns the bytes. Raises `Invalid` with the reason if there are none.
    load: Callable[[], bytes]


class ForeignMessage(msgspec.Struct, frozen=True, kw_only=True):
    # The id of the record in its session. Importing again finds the message by it.
    id: str
    role: Role
    parts: Parts
    at: datetime
    # On a branch that is not the current one, or taken back.
    undone: bool = False
    # It continues the message before it: both are records of one answer.
    joins: bool = False
    # The text for the model, where it differs from what people saw.
    exact: str | None = None
    author: str = ""
    platform_id: str = ""
    mark: Mark | None = None
    observed: bool = False
    files: tuple[ForeignFile, ...] = ()
    usage: tuple[ForeignUsage, ...] = ()


class ForeignCompaction(msgspec.Struct, frozen=True, kw_only=True):
    """From here on the model sees the summary instead of what was before."""

    id: str
    summary: str
    at: datetime
    # The id of the first message that the model still sees; empty if it sees none of those before.
    first_kept: str = ""


class ForeignCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a model that is recorded apart from its answer."""

    id: str
    at: datetime
    usage: ForeignUsage


ForeignEntry: TypeAlias = ForeignMessage | ForeignCompaction | ForeignCall


class ForeignSession(msgspec.Struct, frozen=True, kw_only=True):
    # The id in the program. It becomes an alias.
    id: str
    # Where it was read, for reports.
    place: str
    created_at: datetime
    # When it was changed last, where the program keeps that.
    active_at: datetime | None = None
    # Equal as long as the session does not change. An imported session with an equal fingerprint is not read again.
    fingerprint: str
    # Reads the messages in the order of their arrival.
    entries: Callable[[], Iterator[ForeignEntry]]
    # The surface that the session is listed under.
    surface: str
    title: str = ""
    title_by: TitleBy | None = None
    cwd: str = ""
    pinned: bool = False
    archived: bool = False
    # The name of its project.
    project: str = ""
    origin: Source | None = None
    # The id of the session that it was forked from, or that started it as a sub-agent. It is read before this one.
    parent: str = ""
    # The last record that it shares with its parent.
    parent_record: str = ""
    subagent: bool = False
    # The program may write its messages anew under other ids. They are known by their roles and times then.
    rewritten: bool = False
    # It adds what another reader of the same session cannot know: pin, archive, project, and the title of a person.
    supplement: bool = False
    # Further old ids.
    aliases: tuple[str, ...] = ()
    # The usage of the whole session by model, where single calls are not recorded. Each total only grows.
    totals: tuple[ForeignUsage, ...] = ()


class LossCount(msgspec.Struct, kw_only=True):
    """What a reader did not keep, and where it found the first of them."""

    what: str
    count: int = 0
    place: str = ""


class Damage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the source that could not be read."""

    place: str
    text: str


class ImportLog:
    """Counts what readers fold into other records, what they leave out, and what they cannot read."""

    def __init__(self) -> None:
        self.folded: Counter[str] = Counter()
        self.losses: dict[str, LossCount] = {}
        self.damages: list[Damage] = []
        # Damages that are not listed because there are too many.
        self.more_damages = 0
        self._links: set[Path] = set()

    def fold(self, what: str, count: int = 1) -> None:
        """Count records that are part of something else that was imported, or that only repeat it."""
        self.folded[what] += count

    def lose(self, what: str, place: str, count: int = 1) -> None:
        """Count records that are understood, or unknown, and not kept."""
        loss = self.losses.setdefault(what, LossCount(what=what, place=place))
        loss.count += count

    def skip_link(self, path: Path) -> None:
        """Count a symbolic link that is not followed, once however often it is found."""
        if path not in self._links:
            self._links.add(path)
            self.lose("symbolic links, which are not followed", str(path))

    def damage(self, place: str, text: str) -> None:
        """Report a part that cannot be read, once however often it is read."""
        found = Damage(place=place, text=text)
        if found in self.damages:
            return
        if len(self.damages) < MAX_DAMAGES:
            self.damages.append(found)
        else:
            self.more_damages += 1


def parse_time(value: object) -> datetime | None:
    """Return the UTC time of an ISO text, or of seconds or milliseconds since 1970. A text without a zone is UTC."""
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value.strip())
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1000 if abs(value) > _LARGEST_SECONDS else value
            moment = datetime.fromtimestamp(seconds, UTC)
        else:
            return None
    except (ValueError, OverflowError, OSError):
        return None
    return moment if _EARLIEST <= moment <= _LATEST else None


class TimeLine:
    """Supplies the times of messages. A message without one has the time of the message before it."""

    def __init__(self, start: object = None) -> None:
        self._last = parse_time(start) or _EARLIEST

    def read(self, value: object) -> datetime:
        self._last = parse_time(value) or self._last
        return self._last


def as_dict(value: object) -> Json:
    """Return a JSON object, an empty one for anything else."""
    return cast(Json, value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """Return a JSON array, an empty one for anything else."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_text(value: object) -> str:
    """Return a text, an empty one for anything that is neither text nor number."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""


def as_count(value: object) -> int:
    """Return a number that is not negative, 0 for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 60:
        return 0
    return int(value)


def as_cost(value: object) -> int | None:
    """Return an amount in millionths of the currency, `None` if there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        return None
    return round(value * MILLION)


def split_tokens(
    *,
    prompt: object,
    completion: object,
    cached: object = 0,
    written: object = 0,
    reasoning: object = 0,
    model: object = "",
    cost: int | None = None,
) -> ForeignUsage:
    """Return the usage of a call whose prompt includes the tokens of the cache, and whose completion includes reasoning."""
    sent, made = as_count(prompt), as_count(completion)
    read = min(as_count(cached), sent)
    write = min(as_count(written), sent - read)
    thought = min(as_count(reasoning), made)
    return ForeignUsage(
        input=sent - read - write,
        output=made - thought,
        reasoning=thought,
        cache_read=read,
        cache_write=write,
        model=clean_name(model),
        cost=cost,
    )


def parse_json(value: object) -> object:
    """Return the value of a column that holds JSON text; a value that is none stays as it is."""
    if not isinstance(value, str):
        return value
    try:
        return codec.loads(value, object)
    except Invalid:
        return value


def as_json(value: object) -> str:
    """Return JSON text; a text stays as it is."""
    return value if isinstance(value, str) else codec.dumps(value)


def clean_name(value: object) -> str:
    """Return foreign text as one short line that every database can store."""
    return to_short_line(as_text(value), _LONGEST_NAME)


def clean_path(value: object) -> str:
    """Return the path of a folder as text that every database can store."""
    return replace_unwritable(as_text(value)).replace("\0", "")[:4096]


def text_of(value: object, *, keys: tuple[str, ...] = ("text",)) -> str:
    """Return the text of a content: a text, an object with one, or a list of those."""
    if block := as_dict(value):
        return next((block[key] for key in keys if isinstance(block.get(key), str)), "")
    texts = (text_of(item, keys=keys) for item in as_list(value))
    return as_text(value) or "\n\n".join(filter(None, texts))


def build_parts(text: str, *, reasoning: str = "") -> Parts:
    """Return the parts of a message with reasoning and text, without empty ones."""
    parts: list[Reasoning | Text] = []
    if reasoning.strip():
        parts.append(Reasoning(reasoning))
    if text.strip():
        parts.append(Text(text))
    return tuple(parts)


def digest(*values: object) -> str:
    """Return a short digest of values, as a fingerprint."""
    return hashlib.blake2b(codec.dumps(values).encode(), digest_size=12).hexdigest()


def find_live(parents: dict[str, str], leaf: str) -> set[str]:
    """Return the ids on the way from a leaf of a tree to its root. A cycle ends it."""
    live: set[str] = set()
    while leaf and leaf not in live and leaf in parents:
        live.add(leaf)
        leaf = parents[leaf]
    return live


def parse_data_url(url: object, *, name: str = "image") -> ForeignFile | None:
    """Return the file that a `data:` URL contains, `None` if it is another address."""
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    head, _, body = url.partition(",")
    mime = head.removeprefix("data:").partition(";")[0]
    if not head.endswith(";base64"):
        return ForeignFile(name=name, mime=mime, load=lambda: unquote_to_bytes(body))
    return ForeignFile(name=name, mime=mime, load=lambda: decode_base64(body))


def decode_base64(body: str) -> bytes:
    """Return the bytes of base64 text. Raise `Invalid` if it is none."""
    try:
        return base64.b64decode(body, validate=False)
    except ValueError as exc:
        raise Invalid(f"it is not base64: {exc}") from exc


def build_file(body: object, mime: object, *, name: object = "") -> ForeignFile | None:
    """Return a file whose bytes are base64 text in a record, `None` if there is no text."""
    if not isinstance(body, str) or not body:
        return None
    return ForeignFile(name=as_text(name) or "file", mime=as_text(mime), load=lambda: decode_base64(body))


def keep_files(found: Iterable[ForeignFile | None], log: ImportLog, place: str) -> tuple[ForeignFile, ...]:
    """Return the files that are in a record. Those that it only refers to are named: nothing is fetched."""
    files = tuple(found)
    if missing := files.count(None):
        log.lose("files that are not in the source", place, missing)
    return tuple(file for file in files if file is not None)


def parse_arguments(value: object) -> str:
    """Return the input of a tool call as JSON text."""
    return "{}" if value is None or value == "" else as_json(value)


def parse_chat_calls(calls: object) -> tuple[ToolCall, ...]:
    """Return the tool calls of a message in the format of chat completions, as JSON text or a list."""
    found: list[ToolCall] = []
    for call in map(as_dict, as_list(parse_json(calls))):
        function = as_dict(call.get("function"))
        id_ = as_text(call.get("id")) or as_text(call.get("call_id"))
        if id_ or function:
            found.append(
                ToolCall(id_, as_text(function.get("name")), parse_arguments(function.get("arguments")))
            )
    return tuple(found)


class TreeNode(msgspec.Struct, frozen=True):
    """A message in a tree."""

    id: str
    parent: str
    at: datetime | None
    content: Json


def order_tree(nodes: dict[str, TreeNode], start: datetime) -> list[tuple[TreeNode, datetime]]:
    """Return the nodes in the order of their times, each after its parent, with the times. One without a time has that of its
    parent. A node in a cycle, or below a node that is missing, counts as a root."""
    known: dict[str, tuple[datetime, int]] = {}
    for node in nodes.values():
        line: dict[str, TreeNode] = {}
        current: TreeNode | None = node
        while current is not None and current.id not in known and current.id not in line:
            line[current.id] = current
            current = nodes.get(current.parent)
        at, depth = known.get(current.id, (start, 0)) if current else (start, 0)
        for member in reversed(line.values()):
            at, depth = max(member.at or at, at), depth + 1
            known[member.id] = at, depth
    ordered = sorted(nodes.values(), key=lambda node: known[node.id])
    return [(node, known[node.id][0]) for node in ordered]


def walk_tree(
    nodes: dict[str, TreeNode], leaf: str, start: datetime
) -> Iterator[tuple[TreeNode, datetime, bool]]:
    """Yield the nodes in the order of their times, each with its time and whether it is on another branch than the leaf.
    Without a leaf that exists, the newest node is the leaf."""
    ordered = order_tree(nodes, start)
    if not ordered:
        return
    parents = {node.id: node.parent for node in nodes.values()}
    live = find_live(parents, leaf if leaf in nodes else ordered[-1][0].id)
    for node, at in ordered:
        yield node, at, node.id not in live


def split_steps(parts: Iterable[Part], role: Role) -> list[tuple[Role, list[Part]]]:
    """Group the parts of one answer into messages: what the model said and called, the results, what it said then, and so on."""
    steps: list[tuple[Role, list[Part]]] = []
    for part in parts:
        wanted = Role.TOOL if isinstance(part, ToolResult) else role
        if not steps or steps[-1][0] is not wanted:
            steps.append((wanted, []))
        steps[-1][1].append(part)
    return steps
