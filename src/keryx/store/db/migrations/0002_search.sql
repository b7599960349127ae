--@postgres
create table search (
  id bigint not null,
  part integer not null,
  session text not null,
  split boolean not null,
  vector tsvector not null,
  primary key (id, part)
);

create index search_session on search (session);
create index search_vector on search using gin (vector) with (fastupdate = off);
create sequence search_titles;
