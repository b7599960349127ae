"""Search over message texts: tokens, query syntax and result snippets."""
