"""The gateway: one adapter per platform. An adapter parses and sends; it never decides."""
