create table listeners (
  platform text not null,
  account text not null,
  worker text not null references workers (id) on delete cascade,
  since integer not null,
  primary key (platform, account)
) strict;

create index listeners_worker on listeners (worker);

--@postgres
alter table connections drop constraint connections_link_check;
alter table connections add constraint connections_link_check check (
  link in ('connecting', 'connected', 'standby', 'throttled', 'refused', 'broken')
);

--@sqlite
-- SQLite cannot change a check. Running processes report their connections again.
drop table connections;
create table connections (
  platform text not null,
  account text not null,
  worker text not null references workers (id) on delete cascade,
  link text not null check (link in ('connecting', 'connected', 'standby', 'throttled', 'refused', 'broken')),
  detail text not null,
  since integer not null,
  received integer not null default 0,
  sent integer not null default 0,
  failed integer not null default 0,
  throttled integer not null default 0,
  primary key (platform, account, worker)
) strict;

create index connections_worker on connections (worker);
