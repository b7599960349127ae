"""Export of sessions as JSONL, Markdown or HTML."""
