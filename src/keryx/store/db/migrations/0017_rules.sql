create table rules (
  platform text primary key,
  rule text not null,
  published_at integer not null
) strict;
