"""What both sides of the Agent Client Protocol share: its version, text blocks, and the kinds of permission options."""

from keryx.core.questions import Consent
from keryx.jsonrpc.values import Json

PROTOCOL_VERSION = 1

CONSENT_KINDS = {
    Consent.ALLOW_ONCE: "allow_once",
    Consent.ALLOW_ALWAYS: "allow_always",
    Consent.DENY_ONCE: "reject_once",
    Consent.DENY_ALWAYS: "reject_always",
}
KIND_CONSENTS = {kind: consent for consent, kind in CONSENT_KINDS.items()}


def build_text_block(text: str) -> Json:
    return {"type": "text", "text": text}
