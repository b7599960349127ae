"""The web: HTTP in and out of the hub."""
