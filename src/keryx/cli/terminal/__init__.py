"""What a person reads and types in a terminal: transcripts, live answers, the input line."""
