"""Any agent that speaks the Agent Client Protocol, behind a conversation of Keryx."""
