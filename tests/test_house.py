"""The rules of the source tree: each name is used once, no folder is too wide, and the public names are a list."""

import ast
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import keryx

SOURCE = Path(keryx.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))

# Nouns that run through the layers: the value, its table, its units of work, its routes and its commands.
NOUNS = {
    "access",
    "adapter",
    "agent",
    "api_turns",
    "changes",
    "compaction",
    "deliveries",
    "downloads",
    "errors",
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
    "sign_ins",
    "tools",
    "turns",
    "usage",
    "users",
    "viewer_state",
    "watched_sessions",
    "workers",
}
# `keryx acp` is in cli/commands/acp.py, whatever the package of its surface is called; and a hub is in hub/hub.py.
# Every adapter has these parts, so that a reader of one finds them in all.
ADAPTER_MODULES = {"event_parser", "event_receiver", "message_sender", "payloads"}
PACKAGES = {"acp", "agents", "commands", "config", "gateway", "hub", "mcp", "store"}

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


def classes(module: Path) -> Iterator[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return (node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def test_a_class_name_is_used_once() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        for name in classes(module):
            places[name].append(path(module))
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_a_module_name_is_used_once_except_for_the_nouns() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        places[module.parent.name if module.stem == "__init__" else module.stem].append(path(module))
    repeated = {name: where for name, where in places.items() if len(where) > 1}
    assert not {
        name: where for name, where in repeated.items() if name not in NOUNS | PACKAGES | ADAPTER_MODULES
    }


def test_no_folder_has_more_than_25_modules() -> None:
    widths = Counter(path(module.parent) for module in MODULES)
    assert not {folder: width for folder, width in widths.items() if width > 25}


def test_no_function_of_a_loop_takes_a_transaction() -> None:
    loops = [module for module in MODULES if module.parent == SOURCE / "engine/loops"]
    assert loops
    assert not [path(m) for m in loops if "Transaction" in m.read_text(encoding="utf-8")]


def test_the_public_names_are_these() -> None:
    expected = [name for names in PUBLIC_NAMES.values() for name in names]
    assert sorted(keryx.__all__) == sorted(expected)
    for name in expected:
        assert getattr(keryx, name) is not None


def test_every_error_is_public() -> None:
    assert set(PUBLIC_NAMES["errors"]) == set(classes(SOURCE / "core/errors.py"))


def test_a_public_name_loads_what_it_needs_and_no_more() -> None:
    program = "import sys, keryx; keryx.TextDelta; sys.stdout.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = done.stdout.split()
    assert "keryx.core.ports.agent" in loaded
    assert not {"keryx.app", "keryx.store", "keryx.engine", "starlette", "httpx"} & set(loaded)
