"""Surfaces: the ways in. Each speaks to the hub alone."""
