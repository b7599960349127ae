-- The Keryx instances for which this one holds the bots. The key is stored as a hash.
create table relay_instances (
  name text primary key,
  key_id text not null,
  digest text not null,
  created_at integer not null,
  connected_at integer,
  left_at integer not null,
  address text not null default '',
  evicted_at integer
) strict;

create unique index relay_instances_key on relay_instances (key_id);

-- Which chats belong to which instance. An empty column matches everything.
create table relay_rules (
  platform text not null,
  account text not null,
  chat text not null,
  person text not null,
  instance text not null references relay_instances (name) on delete cascade,
  primary key (platform, account, chat, person)
) strict;

create index relay_rules_instance on relay_rules (instance);

-- The chats of which an instance got events, and what their people were told while it was away.
create table relay_chats (
  instance text not null references relay_instances (name) on delete cascade,
  platform text not null,
  account text not null,
  chat text not null,
  told text not null default '',
  told_at integer not null default 0,
  primary key (instance, platform, account, chat)
) strict;

create index relay_chats_place on relay_chats (platform, account, chat);

-- The queue of events for each instance. A row stays without its body after the instance has taken the event.
create table relay_events (
  position integer primary key autoincrement,
  instance text not null references relay_instances (name) on delete cascade,
  platform text not null,
  account text not null,
  event text not null,
  kind text not null,
  chat text not null,
  reply text,
  language text,
  body text not null,
  files text not null,
  size integer not null,
  state text not null,
  error text not null default '',
  created_at integer not null,
  settled_at integer
) strict;

create index relay_events_waiting on relay_events (instance, position, size) where state = 'waiting';
create index relay_events_event on relay_events (platform, account, event);
create index relay_events_age on relay_events (created_at);

-- Files in the store that belong to an event of the queue.
create table relay_files (
  media text not null,
  position integer not null references relay_events (position) on delete cascade,
  primary key (media, position)
) strict;

create index relay_files_event on relay_files (position);

-- What an instance has asked to send, by its key, so that a repetition is recognised.
create table relay_sends (
  instance text not null references relay_instances (name) on delete cascade,
  key text not null,
  delivery text not null,
  target text not null,
  send_key text not null,
  state text not null,
  receipt text not null default '',
  created_at integer not null,
  primary key (instance, key)
) strict;

create index relay_sends_marked on relay_sends (instance, target) where state = 'marked';
create index relay_sends_delivery on relay_sends (delivery);
create index relay_sends_receipt on relay_sends (receipt);
create index relay_sends_age on relay_sends (created_at);
