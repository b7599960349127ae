-- Which session a conversation of another program was imported into. The fingerprint is set when all of it is there.
create table imports (
  session text primary key references sessions (id) on delete cascade,
  profile text not null,
  owner text not null,
  program text not null,
  source text not null,
  fingerprint text not null default '',
  totals text not null default '{}',
  constraint imports_source unique (profile, owner, program, source)
) strict;

-- The records of a conversation that were imported, in batches: for each a hash of its id, and the number of its message.
create table import_records (
  session text not null references imports (session) on delete cascade,
  n integer not null,
  records text not null,
  primary key (session, n)
) strict;
