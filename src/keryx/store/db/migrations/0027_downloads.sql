-- Files of stored messages that are still on their platform. Their turn is not in the line of turns until they are fetched.
create table downloads (
  position integer primary key autoincrement,
  session text not null references sessions (id) on delete cascade,
  seq integer not null,
  part integer not null,
  turn text not null,
  platform text not null,
  account text not null,
  file text not null,
  attempts integer not null default 0,
  worker text,
  not_before integer not null default 0,
  created_at integer not null
) strict;

create index downloads_account on downloads (platform, account, position);
create index downloads_turn on downloads (turn);
create index downloads_message on downloads (session, seq);
