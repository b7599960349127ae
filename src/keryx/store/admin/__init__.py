"""Work on the whole store: verify, backup, copy, statistics, export and import."""
