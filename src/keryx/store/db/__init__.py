"""keryx.store.db"""
