"""The Telegram adapter: one bot. Found by the entry point `telegram` of the group `keryx.adapters`."""

from keryx.surfaces.gateway.telegram.adapter import TelegramAdapter, TelegramSettings, make

__all__ = ["TelegramAdapter", "TelegramSettings", "make"]
