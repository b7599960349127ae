"""Background tasks of a process. They await, and run units of work through the database."""
