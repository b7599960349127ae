"""The interfaces that plug-ins implement: agents and platform adapters."""
