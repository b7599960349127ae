"""The commands of `keryx`, one module for each noun as the user types it."""
