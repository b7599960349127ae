create table media (
  id text primary key,
  size integer not null,
  whole integer not null default 0,
  written_at integer not null
) strict;

create index media_written on media (written_at);

--@sqlite
create table media_chunks (
  media text not null references media (id) on delete cascade,
  n integer not null,
  body blob not null,
  primary key (media, n)
) strict;

--@postgres
create table media_chunks (
  media text not null references media (id) on delete cascade,
  n bigint not null,
  body bytea not null,
  primary key (media, n)
);

--@both
create table media_holders (
  media text not null references media (id) on delete cascade,
  profile text not null,
  owner text not null,
  mime text not null,
  name text not null,
  created_at integer not null,
  primary key (media, profile, owner)
) strict;

create index media_holders_age on media_holders (created_at);

create table media_links (
  session text not null references sessions (id) on delete cascade,
  media text not null references media (id),
  mime text not null,
  name text not null,
  primary key (session, media)
) strict;

create index media_links_media on media_links (media);

alter table pieces add column media text;
alter table deliveries add column media text not null default '[]';
