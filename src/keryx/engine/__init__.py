"""The engine: the hub for surfaces, units of work, background loops and slash commands."""
