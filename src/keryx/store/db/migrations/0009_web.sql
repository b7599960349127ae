create table reads (
  profile text not null,
  principal text not null,
  session text not null references sessions (id) on delete cascade,
  seq integer not null,
  primary key (profile, principal, session)
) strict;

create index reads_session on reads (session);

create table composers (
  profile text not null,
  principal text not null,
  place text not null,
  session text references sessions (id) on delete cascade,
  body text not null,
  saved_at integer not null,
  primary key (profile, principal, place)
) strict;

create index composers_session on composers (session) where session is not null;

create table preferences (
  profile text not null,
  principal text not null,
  body text not null,
  since integer not null,
  primary key (profile, principal)
) strict;

create table sign_ins (
  id text primary key,
  profile text not null,
  principal text not null,
  digest text not null,
  browser text not null default '',
  created_at integer not null,
  seen_at integer not null,
  expires_at integer not null
) strict;

create index sign_ins_principal on sign_ins (profile, principal, created_at desc);
create index sign_ins_age on sign_ins (expires_at);
