create table connections (
  platform text not null,
  account text not null,
  worker text not null references workers (id) on delete cascade,
  link text not null check (link in ('connecting', 'connected', 'throttled', 'refused', 'broken')),
  detail text not null,
  since integer not null,
  received integer not null default 0,
  sent integer not null default 0,
  failed integer not null default 0,
  throttled integer not null default 0,
  primary key (platform, account, worker)
) strict;

create index connections_worker on connections (worker);
