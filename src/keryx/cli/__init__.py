"""The command line: one module for each noun, all of them on top of the hub."""
