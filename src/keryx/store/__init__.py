"""The only place with SQL. Store functions are plain functions that take a transaction."""
