"""Units of work: each runs inside one transaction, takes `tx` and never awaits."""
