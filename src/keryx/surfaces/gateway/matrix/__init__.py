"""The Matrix adapter: one account on one homeserver, over the client-server API."""
