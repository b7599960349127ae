alter table turns add column source text;
alter table deliveries add column secret integer not null default 0;
alter table lanes add column target text;
alter table lanes add column instructions text not null default '';
alter table projects add column instructions text not null default '';

create index lanes_owner on lanes (profile, owner);

create table grants (
  profile text not null,
  platform text not null,
  person text not null,
  name text not null default '',
  operator integer not null default 0,
  granted_by text not null,
  granted_at integer not null,
  primary key (profile, platform, person)
) strict;

create table pairings (
  profile text not null,
  platform text not null,
  person text not null,
  name text not null default '',
  target text not null,
  salt text not null,
  digest text not null,
  told_at integer not null,
  expires_at integer not null,
  primary key (profile, platform, person)
) strict;

create index pairings_expiry on pairings (expires_at);

create table links (
  profile text not null,
  principal text not null,
  salt text not null,
  digest text not null,
  expires_at integer not null,
  primary key (profile, principal)
) strict;

create index links_expiry on links (expires_at);

create table guesses (
  key text primary key,
  wrong integer not null,
  last_at integer not null
) strict;

create table person_aliases (
  profile text not null,
  platform text not null,
  alias text not null,
  person text not null,
  learned_at integer not null,
  primary key (profile, platform, alias)
) strict;

create index person_aliases_person on person_aliases (profile, platform, person);

create table homes (
  profile text not null,
  platform text not null,
  target text not null,
  name text not null default '',
  set_by text not null,
  set_at integer not null,
  primary key (profile, platform)
) strict;

create index lanes_mirror on lanes (session) where mirror = 1;
