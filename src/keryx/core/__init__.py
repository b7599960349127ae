"""Pure values and rules: no I/O, no clock, no randomness that is not passed in."""
