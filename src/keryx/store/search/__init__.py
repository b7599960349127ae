"""keryx.store.search"""
