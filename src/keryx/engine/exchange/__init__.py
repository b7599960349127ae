"""Exchange: sessions leave the store as JSONL, Markdown or HTML, and come back from JSONL."""
