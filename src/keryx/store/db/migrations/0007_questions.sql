create table questions (
  id text primary key,
  profile text not null,
  owner text not null,
  session text not null references sessions (id) on delete cascade,
  turn text not null,
  asker text not null,
  shared integer not null default 0,
  key text not null,
  body text not null,
  state text not null check (state in ('open', 'answered', 'expired', 'cancelled')),
  answer text,
  answered_by text,
  taken integer not null default 0,
  created_at integer not null,
  expires_at integer not null,
  closed_at integer,
  constraint questions_key unique (turn, key),
  check ((state = 'open') = (closed_at is null))
) strict;

create index questions_open on questions (profile, created_at) where state = 'open';
create index questions_waiting on questions (session) where state = 'open';
create index questions_session on questions (session, created_at);

create table consents (
  session text not null references sessions (id) on delete cascade,
  tool text not null,
  consent text not null check (consent in ('allow_always', 'deny_always')),
  given_by text not null,
  given_at integer not null,
  primary key (session, tool)
) strict;
