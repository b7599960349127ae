-- Imported sessions that are watched in their program: on which machine, in which file, what the program does with it, and when
-- a person took it over here although the program was open. The stamp of the file is set when all of it was imported. What was
-- pushed by another machine can only be continued there, whatever name it gives.
create table watched_sessions (
  session text primary key references imports (session) on delete cascade,
  machine text not null,
  pushed integer not null,
  file text not null,
  stamp text not null default '',
  state text not null default 'idle',
  wrote_at integer not null,
  seen_at integer not null,
  taken_at integer
) strict;
