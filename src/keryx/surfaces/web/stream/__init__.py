"""The event stream of the API: server-sent events with cursors."""
