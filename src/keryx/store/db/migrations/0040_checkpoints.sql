--@sqlite
-- A checkpoint has what tasks have written to it; only what comes before it waits in `graph_writes`. It is found by its id, and
-- numbers within threads take four bytes: on PostgreSQL rows and indexes took more space than what was in them.
create table graph_smaller_checkpoints (
  thread integer not null references graph_threads (number) on delete cascade,
  namespace text not null,
  id blob not null,
  parent blob,
  run blob,
  body blob not null,
  writes blob,
  primary key (thread, namespace, id)
) strict, without rowid;

insert into graph_smaller_checkpoints (thread, namespace, id, parent, run, body)
select thread, namespace, id, parent, run, body from graph_checkpoints;

drop table graph_checkpoints;
alter table graph_smaller_checkpoints rename to graph_checkpoints;
create index graph_checkpoints_run on graph_checkpoints (run) where run is not null;

--@postgres
alter table graph_checkpoints drop constraint graph_checkpoints_pkey;
alter table graph_checkpoints add constraint graph_checkpoints_pkey primary key using index graph_checkpoints_id;
alter table graph_checkpoints drop column n, alter column thread type int4, add column writes bytea;
alter table graph_writes alter column thread type int4;
alter table graph_items
  alter column thread type int4, alter column list type int4, alter column position type int4;
alter table graph_texts alter column thread type int4, alter column n type int4;
