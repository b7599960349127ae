"""Benchmarks: what Keryx costs, each figure beside what the bare database costs for the same rows."""
