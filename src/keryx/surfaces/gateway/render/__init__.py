"""Rendering: one Markdown tree, and for each platform the parts it can take.

Each platform is a module with `parts(markdown)`. A part fits the platform's limit and carries its own plain
text, which fits too. An adapter that needs more than a string for one part packs it with `part.dumps`.
"""
