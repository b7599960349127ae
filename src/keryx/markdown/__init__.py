"""Markdown as one tree, and its rendering for each platform as parts that fit the length limit of a message."""
