-- What a migration from another program has added or changed, so that it can be continued and taken back. A row of the kind
-- `before` names a session that was imported earlier and stays. The owner is the person whom a row is about, or the operator.
create table migration_items (
  profile text not null,
  program text not null,
  kind text not null,
  key text not null,
  owner text not null,
  data text not null,
  at integer not null,
  primary key (profile, program, kind, key)
) strict;

create index migration_items_owner on migration_items (profile, owner);
