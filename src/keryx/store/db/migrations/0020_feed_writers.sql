-- Readers of the feed wait for the sessions of Keryx only, which they know by name. An entry of a session that they do
-- not wait for could be skipped, so it is refused. A dump brings its numbers along and is not affected.
--@postgres
alter table changes alter column xid set default (
  case when current_setting('application_name') like 'keryx%' then pg_current_xact_id()::text::bigint end
);
