"""The editor: Keryx as an agent of the Agent Client Protocol, version 1, over stdio."""
