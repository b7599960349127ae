"""Values and rules without I/O. Imports the standard library, msgspec and cronsim only."""
