"""Keryx: a session hub for AI agents.

The names in `__all__` are the public interface, for agents and adapters of other packages. Each is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keryx.app import App
    from keryx.config import Settings
    from keryx.core.deliveries import Idempotency, ReplyContext, Target
    from keryx.core.errors import (
        AgentFailed,
        AgentRefused,
        Ambiguous,
        Conflict,
        CursorExpired,
        DiskFull,
        Forbidden,
        Held,
        Invalid,
        KeryxError,
        LeaseLost,
        MessageGone,
        NotFound,
        NotSent,
        Refused,
        Retryable,
        SendError,
        StoreBroken,
        StoreDamaged,
        TargetGone,
        Throttled,
        Unavailable,
        Uncertain,
    )
    from keryx.core.media import Attachment, RemoteFile
    from keryx.core.messages import Message, Role, ToolCall, ToolResult
    from keryx.core.ports.adapter import (
        Adapter,
        AdapterContext,
        AttachmentKind,
        AttachmentLimits,
        Capabilities,
        IdFormat,
        InboundDeletion,
        InboundEvent,
        InboundFailure,
        InboundMessage,
        InboundReaction,
        LengthUnit,
        LinkState,
        MenuItem,
        OutgoingPart,
        PlatformIds,
        Receipt,
        RenderedPart,
        Streaming,
        SupportsDownloads,
        SupportsReactions,
        SupportsReconciliation,
        SupportsRemoval,
        SupportsRoles,
        SupportsSendKeys,
        Webhook,
        WebhookRequest,
        WebhookResponse,
    )
    from keryx.core.ports.agent import (
        Agent,
        AgentEvent,
        BindingEvent,
        CompactionEvent,
        CompactionFailedEvent,
        Compactor,
        FileEvent,
        NoticeEvent,
        ReasoningDelta,
        TextDelta,
        Titler,
        ToolCallEvent,
        ToolCallUpdateEvent,
        ToolResultEvent,
        TurnContext,
        UsageEvent,
    )
    from keryx.core.ports.setup import (
        PlatformSetup,
        SetupDialog,
        SetupField,
        SetupOutcome,
        SupportsQuestions,
    )
    from keryx.core.questions import Button, Question
    from keryx.core.source import ChatType, Source
    from keryx.core.usage import Usage
    from keryx.secrets import Secret
    from keryx.surfaces.gateway.adapter_settings import AdapterSetup

__version__ = "0.1.0"

__all__ = [
    "Adapter",
    "AdapterContext",
    "AdapterSetup",
    "Agent",
    "AgentEvent",
    "AgentFailed",
    "AgentRefused",
    "Ambiguous",
    "App",
    "Attachment",
    "AttachmentKind",
    "AttachmentLimits",
    "BindingEvent",
    "Button",
    "Capabilities",
    "ChatType",
    "CompactionEvent",
    "CompactionFailedEvent",
    "Compactor",
    "Conflict",
    "CursorExpired",
    "DiskFull",
    "FileEvent",
    "Forbidden",
    "Held",
    "IdFormat",
    "Idempotency",
    "InboundDeletion",
    "InboundEvent",
    "InboundFailure",
    "InboundMessage",
    "InboundReaction",
    "Invalid",
    "KeryxError",
    "LeaseLost",
    "LengthUnit",
    "LinkState",
    "MenuItem",
    "Message",
    "MessageGone",
    "NotFound",
    "NotSent",
    "NoticeEvent",
    "OutgoingPart",
    "PlatformIds",
    "PlatformSetup",
    "Question",
    "ReasoningDelta",
    "Receipt",
    "Refused",
    "RemoteFile",
    "RenderedPart",
    "ReplyContext",
    "Retryable",
    "Role",
    "Secret",
    "SendError",
    "Settings",
    "SetupDialog",
    "SetupField",
    "SetupOutcome",
    "Source",
    "StoreBroken",
    "StoreDamaged",
    "Streaming",
    "SupportsDownloads",
    "SupportsQuestions",
    "SupportsReactions",
    "SupportsReconciliation",
    "SupportsRemoval",
    "SupportsRoles",
    "SupportsSendKeys",
    "Target",
    "TargetGone",
    "TextDelta",
    "Throttled",
    "Titler",
    "ToolCall",
    "ToolCallEvent",
    "ToolCallUpdateEvent",
    "ToolResult",
    "ToolResultEvent",
    "TurnContext",
    "Unavailable",
    "Uncertain",
    "Usage",
    "UsageEvent",
    "Webhook",
    "WebhookRequest",
    "WebhookResponse",
]

# In the order of their cost: the composition root loads the engine and the store.
_MODULES = (
    "keryx.core.errors",
    "keryx.core.source",
    "keryx.core.usage",
    "keryx.core.messages",
    "keryx.core.media",
    "keryx.core.deliveries",
    "keryx.core.questions",
    "keryx.core.ports.agent",
    "keryx.core.ports.adapter",
    "keryx.core.ports.setup",
    "keryx.secrets",
    "keryx.surfaces.gateway.adapter_settings",
    "keryx.config",
    "keryx.app",
)


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in map(import_module, _MODULES):
            if name in vars(module):
                return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
