"""Tools from MCP servers. Keep this file empty: the modules here need the optional `mcp` package."""
