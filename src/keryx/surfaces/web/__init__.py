"""The web surface: the page, the HTTP API, the event stream and the health pages, as one ASGI app."""
