-- What a turn gathers: the group of its messages, empty if it has none. Null for a turn of a single message.
alter table turns add column gathers text;
-- The lease of an attempt that was given up because the turn began again. What that attempt says is not stored.
alter table turns add column ended_lease text;
