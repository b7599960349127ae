"""One adapter per chat platform. An adapter parses and sends; it never decides."""
