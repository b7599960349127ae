"""The agents that come with Keryx, and the tools they can call."""
