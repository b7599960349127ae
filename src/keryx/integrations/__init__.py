"""The store of Keryx as the memory of agent frameworks, in whatever program they run."""
