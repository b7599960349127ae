"""The rules of the source tree: each name is used once, no folder is too wide, the public names are a list, and what should be
rare is counted."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import keryx

SOURCE = Path(keryx.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# Nouns that run through the layers: the value, its table, its units of work, its routes and its commands.
NOUNS = {
    "access",
    "agent",
    "api_turns",
    "changes",
    "compaction",
    "deliveries",
    "downloads",
    "frameworks",
    "jobs",
    "lanes",
    "media",
    "messages",
    "metrics",
    "people",
    "platforms",
    "projects",
    "questions",
    "relay",
    "search",
    "sessions",
    "setup",
    "shares",
    "tools",
    "turns",
    "usage",
    "users",
    "watched_sessions",
    "workers",
}
# Every adapter has these parts, so that a reader of one finds them in all.
ADAPTER_MODULES = {"event_parser", "event_receiver", "message_sender", "payloads"}
# Packages that share their name with the module of a command, such as `keryx acp` in cli/commands/acp.py.
PACKAGES = {"acp", "agents", "commands", "config", "gateway", "store"}

# What the source tree may hold of each, a little more than it does. Less is better: lower a figure with what it counts.
SMALL_MODULES = 20
FUNCTION_IMPORTS = 35
ATTRIBUTES_BY_NAME = 13
HELPERS_WITH_ONE_USE = 0.152
PECULIAR_TEXTS = 0.03
# Turns of phrase that make a colleague read a sentence twice.
PECULIAR = re.compile(
    r"^let "
    r"|\b(gives|stands?|for ever|as far as|is told|bec[ao]mes? of)\b"
    r"|\b(who|whom|what)ever\b"
    r"|\b(some|no|every)body\b"
    r"|\b(is|are|was|were) no (?!longer|more)"
    r"|\b(by|from|in|of|to) (which|whom)\b",
    re.IGNORECASE,
)
# Marks for tools, which are not prose.
TOOL_COMMENTS = ("noqa", "pyright", "fmt:", "type:")
SQL = re.compile(r"\s*(create table|delete from|insert into|select .* from|update .* set)\b", re.I | re.S)

PUBLIC_NAMES = {
    "application": ["App", "Settings", "Secret"],
    "agents": [
        "Agent",
        "TurnContext",
        "Compactor",
        "Titler",
        "Message",
        "Role",
        "ToolCall",
        "ToolResult",
        "Usage",
        "Question",
    ],
    "events": [
        "AgentEvent",
        "TextDelta",
        "ReasoningDelta",
        "ToolCallEvent",
        "ToolCallUpdateEvent",
        "ToolResultEvent",
        "UsageEvent",
        "NoticeEvent",
        "FileEvent",
        "CompactionEvent",
        "CompactionFailedEvent",
        "BindingEvent",
    ],
    "adapters": [
        "Adapter",
        "AdapterContext",
        "AdapterSetup",
        "Capabilities",
        "InboundMessage",
        "Receipt",
        "OutgoingPart",
        "RenderedPart",
        "Source",
        "Target",
        "Webhook",
        "WebhookRequest",
        "WebhookResponse",
        "Attachment",
        "AttachmentKind",
        "AttachmentLimits",
        "Button",
        "ChatType",
        "IdFormat",
        "Idempotency",
        "InboundDeletion",
        "InboundEvent",
        "InboundFailure",
        "InboundReaction",
        "LengthUnit",
        "LinkState",
        "MenuItem",
        "PlatformIds",
        "RemoteFile",
        "ReplyContext",
        "StepState",
        "Streaming",
        "SupportsDownloads",
        "SupportsReactions",
        "SupportsReconciliation",
        "SupportsRemoval",
        "SupportsRoles",
        "SupportsSendKeys",
        "SupportsThreads",
        "ToolStep",
        "PlatformSetup",
        "SetupDialog",
        "SetupField",
        "SetupOutcome",
        "SupportsQuestions",
    ],
    "errors": [
        "KeryxError",
        "Invalid",
        "NotFound",
        "Forbidden",
        "Conflict",
        "CredentialsRefused",
        "LeaseLost",
        "Ambiguous",
        "CursorExpired",
        "AgentFailed",
        "AgentRefused",
        "ModelUnavailable",
        "QuotaReached",
        "SendError",
        "NotSent",
        "TargetGone",
        "Throttled",
        "Held",
        "Refused",
        "MessageGone",
        "Uncertain",
        "Unavailable",
        "Retryable",
        "StoreBroken",
        "StoreDamaged",
        "DiskFull",
    ],
}


def path(module: Path) -> str:
    return str(module.relative_to(SOURCE))


@dataclass
class ModuleFacts:
    classes: list[str] = field(default_factory=list[str])
    # Of asynchronous functions, the names of those that take a transaction.
    holding: list[str] = field(default_factory=list[str])
    # By the line of a lambda over a transaction, how many calls it makes.
    lambdas: dict[int, int] = field(default_factory=dict[int, int])
    # Functions of the module itself, without methods.
    functions: list[str] = field(default_factory=list[str])
    names: Counter[str] = field(default_factory=Counter[str])
    # Lines of imports inside functions.
    imports: set[int] = field(default_factory=set[int])
    sql: bool = False
    # Docstrings and comments.
    texts: list[str] = field(default_factory=list[str])


@cache
def read(module: Path) -> ModuleFacts:
    source = module.read_text(encoding="utf-8")
    tree, facts = ast.parse(source), ModuleFacts()
    facts.functions = [f.name for f in tree.body if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef():
                facts.classes.append(node.name)
            case ast.Lambda() if [a.arg for a in node.args.args[:1]] == ["tx"]:
                facts.lambdas[node.lineno] = sum(isinstance(n, ast.Call) for n in ast.walk(node.body))
            case ast.Name():
                facts.names[node.id] += 1
            case ast.Constant(value=str(text)):
                facts.sql = facts.sql or SQL.match(text) is not None
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                facts.imports |= {
                    n.lineno for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)
                }
                if isinstance(node, ast.AsyncFunctionDef) and "tx" in [a.arg for a in node.args.args]:
                    facts.holding.append(node.name)
            case _:
                pass
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            facts.texts.append(" ".join((ast.get_docstring(node) or "").split()))
    facts.texts += [
        token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not any(mark in token.string for mark in TOOL_COMMENTS)
    ]
    return facts


def test_a_class_name_is_used_once() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for name in read(module).classes:
            places[name].append(path(module))
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_a_module_name_is_used_once_except_for_the_nouns() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        places[module.parent.name if module.stem == "__init__" else module.stem].append(path(module))
    repeated = {name: where for name, where in places.items() if len(where) > 1}
    allowed = NOUNS | PACKAGES | ADAPTER_MODULES
    assert not {name: where for name, where in repeated.items() if name not in allowed}
    assert not allowed - set(repeated), "these names repeat nothing any more"


def test_no_folder_has_more_than_25_modules() -> None:
    widths = Counter(path(module.parent) for module in MODULES)
    assert not {folder: width for folder, width in widths.items() if width > 25}


def test_no_function_of_a_loop_takes_a_transaction() -> None:
    loops = [module for module in MODULES if module.parent == SOURCE / "engine/loops"]
    assert loops
    assert not [path(m) for m in loops if "Transaction" in m.read_text(encoding="utf-8")]


def test_nothing_that_awaits_holds_a_transaction() -> None:
    engine = [module for module in MODULES if SOURCE / "engine" in module.parents]
    assert not {path(m): read(m).holding for m in engine if read(m).holding and m.stem != "verbs"}


def test_a_loop_passes_a_transaction_to_one_function() -> None:
    """More than one call belongs into a unit of work, where it has a name and tests."""
    awaiting = [
        m for m in MODULES if SOURCE / "engine" in m.parents and SOURCE / "engine/hub" not in m.parents
    ]
    found = [(f"{path(m)}:{line}", calls) for m in awaiting for line, calls in read(m).lambdas.items()]
    assert found
    assert not [where for where, calls in found if calls != 1]


def test_few_modules_are_small() -> None:
    small = [path(m) for m in MODULES if m.read_text(encoding="utf-8").count("\n") <= 60]
    assert len(small) <= SMALL_MODULES, small


def test_few_functions_have_one_use() -> None:
    """A private function with one use costs a reader a jump. Some are worth it."""
    found = [(read(m), name) for m in MODULES for name in read(m).functions]
    once = [name for facts, name in found if name.startswith("_") and facts.names[name] == 1]
    assert len(once) <= HELPERS_WITH_ONE_USE * len(found), f"{len(once)} of {len(found)}"


def test_few_imports_are_inside_functions() -> None:
    inside = [f"{path(m)}:{line}" for m in MODULES for line in read(m).imports]
    assert len(inside) <= FUNCTION_IMPORTS, inside


def test_few_attributes_are_read_by_name() -> None:
    """Only those of foreign objects: a renamed field of an own type is an error that the types show."""
    named = {path(m): read(m).names["getattr"] + read(m).names["hasattr"] for m in MODULES}
    assert sum(named.values()) <= ATTRIBUTES_BY_NAME, {where: n for where, n in named.items() if n}


def test_few_texts_are_in_a_peculiar_voice() -> None:
    said = [(path(m), text) for m in MODULES for text in read(m).texts if text]
    peculiar = [f"{where}: {text}" for where, text in said if PECULIAR.search(text)]
    assert len(peculiar) <= PECULIAR_TEXTS * len(said), peculiar


def test_sql_is_in_the_store() -> None:
    """The readers of foreign databases ask copies of these which tables they have."""
    found = {path(m) for m in MODULES if SOURCE / "store" not in m.parents and read(m).sql}
    assert found <= {"importers/source_files.py"}


def test_the_public_names_are_these() -> None:
    expected = [name for names in PUBLIC_NAMES.values() for name in names]
    assert sorted(keryx.__all__) == sorted(expected)
    for name in expected:
        assert getattr(keryx, name) is not None


def test_every_error_is_public() -> None:
    assert set(PUBLIC_NAMES["errors"]) == set(read(SOURCE / "core/errors.py").classes)


def test_a_public_name_loads_what_it_needs_and_no_more() -> None:
    program = "import sys, keryx; keryx.TextDelta; sys.stdout.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stdout.split()
    assert "keryx.core.ports.agent" in loaded
    assert not {"keryx.app", "keryx.store", "keryx.engine", "starlette", "httpx"} & set(loaded)
