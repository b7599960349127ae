create table bindings (
  session text not null references sessions (id) on delete cascade,
  agent text not null,
  body text not null,
  bound_at integer not null,
  seen_at integer not null,
  primary key (session, agent)
) strict;
