"""Rendering: one Markdown tree, and for each platform the parts it can take."""
