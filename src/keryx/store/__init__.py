"""The SQL of Keryx's own tables. Store functions are plain functions that take a transaction. Only the importers have SQL beside
this: they ask copies of foreign databases which tables these have, and read them."""
