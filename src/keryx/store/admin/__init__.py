"""keryx.store.admin"""
