-- Keys with which programs call the HTTP API, each with the rights of one person. Only a hash of the key is stored.
create table api_keys (
  id text primary key,
  profile text not null,
  principal text not null,
  name text not null,
  digest text not null unique,
  created_at integer not null,
  seen_at integer
) strict;

create index api_keys_principal on api_keys (profile, principal, created_at desc);

-- Turns that were asked for through the OpenAI-compatible API. The hashes recognise a repeated request, the conversation that a
-- request continues, and the conversation that a client names.
create table api_turns (
  position integer primary key autoincrement,
  turn text not null unique references turns (id) on delete cascade,
  session text not null references sessions (id) on delete cascade,
  fingerprint text not null,
  prefix text not null,
  thread text not null,
  options text not null,
  echo text not null,
  temporary integer not null default 0,
  created_at integer not null,
  taken_at integer
) strict;

create index api_turns_fingerprint on api_turns (fingerprint, position desc);
create index api_turns_prefix on api_turns (prefix, position desc);
create index api_turns_thread on api_turns (thread, position desc);
create index api_turns_session on api_turns (session, position);
create index api_turns_temporary on api_turns (created_at) where temporary = 1;

-- Conversations that were created through the OpenAI-compatible API. Their session begins with the first item.
create table api_conversations (
  session text primary key,
  profile text not null,
  owner text not null,
  metadata text not null,
  created_at integer not null
) strict;

create index api_conversations_owner on api_conversations (profile, owner);
