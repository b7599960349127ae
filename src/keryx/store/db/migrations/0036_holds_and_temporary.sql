-- Why a queued turn waits until `not_before`: the model whose limit resets then. Null for any other turn.
alter table turns add column hold text;
-- Temporary sessions, whose ids begin so.
create index sessions_temporary on sessions (id) where substr(id, 1, 4) = 'tmp-';
