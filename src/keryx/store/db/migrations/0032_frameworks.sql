-- Threads of LangGraph. What belongs to one is numbered within it, so that a copy keeps its numbers.
create table graph_threads (
  number integer primary key autoincrement,
  profile text not null,
  owner text not null,
  name text not null,
  last_n integer not null default 0,
  changed_at integer not null,
  constraint graph_threads_name unique (profile, owner, name)
) strict;

--@sqlite
-- `id`, `parent` and `run` are packed: see store/frameworks/__init__.py.
create table graph_checkpoints (
  thread integer not null references graph_threads (number) on delete cascade,
  n integer not null,
  namespace text not null,
  id blob not null,
  parent blob,
  run blob,
  body blob not null,
  primary key (thread, n)
) strict, without rowid;

create table graph_writes (
  thread integer not null references graph_threads (number) on delete cascade,
  namespace text not null,
  checkpoint blob not null,
  task blob not null,
  body blob not null,
  primary key (thread, checkpoint, namespace, task)
) strict, without rowid;

-- `chain` is a hash of the list up to and with this item.
create table graph_items (
  thread integer not null references graph_threads (number) on delete cascade,
  list integer not null,
  position integer not null,
  chain blob not null,
  body blob not null,
  primary key (thread, list, position)
) strict, without rowid;

create table graph_texts (
  thread integer not null references graph_threads (number) on delete cascade,
  n integer not null,
  hash blob not null,
  body blob not null,
  primary key (thread, n)
) strict, without rowid;

--@postgres
create table graph_checkpoints (
  thread bigint not null references graph_threads (number) on delete cascade,
  n bigint not null,
  namespace text not null,
  id bytea not null,
  parent bytea,
  run bytea,
  body bytea not null,
  primary key (thread, n)
);

create table graph_writes (
  thread bigint not null references graph_threads (number) on delete cascade,
  namespace text not null,
  checkpoint bytea not null,
  task bytea not null,
  body bytea not null,
  primary key (thread, checkpoint, namespace, task)
);

create table graph_items (
  thread bigint not null references graph_threads (number) on delete cascade,
  list bigint not null,
  position bigint not null,
  chain bytea not null,
  body bytea not null,
  primary key (thread, list, position)
);

create table graph_texts (
  thread bigint not null references graph_threads (number) on delete cascade,
  n bigint not null,
  hash bytea not null,
  body bytea not null,
  primary key (thread, n)
);

--@both
create unique index graph_checkpoints_id on graph_checkpoints (thread, namespace, id);
create index graph_checkpoints_run on graph_checkpoints (run) where run is not null;
create index graph_texts_hash on graph_texts (thread, hash);

-- A list that another one continues up to a length.
create table graph_lists (
  thread integer not null references graph_threads (number) on delete cascade,
  n integer not null,
  parent integer not null,
  parent_length integer not null,
  primary key (thread, n)
) strict;

-- The long-term memory of graphs. Labels of a namespace are joined with a period, and it ends with one.
--@sqlite
create table graph_memories (
  profile text not null,
  owner text not null,
  namespace text not null,
  key text not null,
  value text not null,
  created_at integer not null,
  updated_at integer not null,
  lifetime integer,
  expires_at integer,
  primary key (profile, owner, namespace, key)
) strict, without rowid;

--@postgres
create table graph_memories (
  profile text not null,
  owner text not null,
  namespace text collate "C" not null,
  key text collate "C" not null,
  value text not null,
  created_at bigint not null,
  updated_at bigint not null,
  lifetime bigint,
  expires_at bigint,
  primary key (profile, owner, namespace, key)
);

--@both
create index graph_memories_end on graph_memories (expires_at) where expires_at is not null;

-- Sessions of the Agent Development Kit. Its times are kept in nanoseconds, so that they come back as they were.
create table adk_sessions (
  number integer primary key autoincrement,
  profile text not null,
  owner text not null,
  app text not null,
  person text not null,
  name text not null,
  state text not null,
  events integer not null default 0,
  created_at integer not null,
  updated_at integer not null,
  constraint adk_sessions_name unique (profile, owner, app, person, name)
) strict;

create table adk_events (
  session integer not null references adk_sessions (number) on delete cascade,
  n integer not null,
  id text not null,
  at integer not null,
  body text not null,
  primary key (session, n)
) strict;

create index adk_events_id on adk_events (session, id);

-- What all sessions of an app share, and with a person all sessions of that person in it.
create table adk_states (
  profile text not null,
  owner text not null,
  app text not null,
  person text not null,
  state text not null,
  primary key (profile, owner, app, person)
) strict;
