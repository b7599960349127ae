"""Commands for the chat platforms: their adapters, chats, deliveries and pairings, and the relay."""
