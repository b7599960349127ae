"""Agents: they yield events and never write."""
