"""The facade for surfaces. Each verb names its viewer and runs one unit of work."""
