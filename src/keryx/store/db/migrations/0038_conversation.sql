-- Turns that are versions of each other: an edit or a retry of a question begins another version of its turn. `first` is the
-- turn of the first version, `seq` the number of the first question of the turn.
create table versions (
  session text not null references sessions (id) on delete cascade,
  turn text not null,
  first text not null,
  seq integer not null,
  primary key (session, turn)
) strict;

-- Links that show one conversation to anybody who has them, up to a message. Only a hash of the token is stored.
create table shares (
  id text primary key,
  session text not null references sessions (id) on delete cascade,
  digest text not null unique,
  through integer not null,
  created_at integer not null
) strict;

create index shares_session on shares (session, created_at);
create index usage_turn on usage (turn);

-- The model of one turn, where it is not that of the session.
alter table turns add column model text;
