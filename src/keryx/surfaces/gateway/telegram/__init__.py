"""Telegram: one bot as an adapter. Found by the entry point `telegram` of the group `keryx.adapters`."""

from keryx.surfaces.gateway.telegram.adapter import TelegramAdapter, make
from keryx.surfaces.gateway.telegram.settings import TelegramSettings

__all__ = ["TelegramAdapter", "TelegramSettings", "make"]
