create table previews (
  turn text primary key references turns (id) on delete cascade,
  target text not null,
  state text not null check (state in ('sending', 'shown', 'lost')),
  receipt text not null default '',
  revision integer not null default 0,
  token text not null,
  worker text not null,
  delivery text,
  at integer not null,
  check ((state = 'shown') = (receipt <> ''))
) strict;

create index previews_age on previews (at);
