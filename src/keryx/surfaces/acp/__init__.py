"""Keryx as an agent of the Agent Client Protocol, version 1, for editors over standard streams."""
