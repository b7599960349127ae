"""Runs any program that speaks the Agent Client Protocol as an agent of Keryx."""
