create table principals (
  id text primary key,
  profile text not null,
  name text not null default '',
  created_at integer not null
) strict;

create table identities (
  profile text not null,
  platform text not null,
  person text not null,
  principal text not null references principals (id) on delete cascade,
  name text not null default '',
  created_at integer not null,
  primary key (profile, platform, person)
) strict;

create index identities_principal on identities (principal);

create table projects (
  id text primary key,
  profile text not null,
  owner text not null,
  name text not null,
  colour text not null default '',
  created_at integer not null,
  constraint projects_name unique (profile, owner, name)
) strict;

create table sessions (
  id text primary key,
  profile text not null,
  owner text not null,
  surface text not null,
  origin text,
  title text not null default '',
  title_by text check (title_by in ('person', 'model', 'rule')),
  title_key text,
  title_base text,
  parent text,
  parent_seq integer,
  project text references projects (id) on delete set null,
  pinned integer not null default 0,
  archived integer not null default 0,
  deleted_at integer,
  erase_at integer,
  ended_at integer,
  end_reason text,
  cwd text not null default '',
  settings text not null default '{}',
  epoch integer not null default 0,
  last_seq integer not null default 0,
  messages integer not null default 0,
  turns integer not null default 0,
  undo integer not null default 0,
  tokens_input integer not null default 0,
  tokens_output integer not null default 0,
  tokens_reasoning integer not null default 0,
  tokens_cache_read integer not null default 0,
  tokens_cache_write integer not null default 0,
  cost integer,
  cost_status text not null default 'unknown',
  context_used integer,
  context_limit integer,
  created_at integer not null,
  active_at integer not null,
  served_at integer not null default 0
) strict;

create index sessions_activity on sessions (profile, archived, pinned desc, active_at desc, id desc) where deleted_at is null;
create index sessions_owner on sessions (profile, owner, archived, pinned desc, active_at desc, id desc) where deleted_at is null;
create unique index sessions_title on sessions (profile, owner, title_key) where deleted_at is null and title_key is not null;
create index sessions_line on sessions (profile, title_base) where deleted_at is null and title_base is not null;
create index sessions_parent on sessions (parent) where parent is not null;
create index sessions_project on sessions (project) where project is not null;
create index sessions_erase on sessions (erase_at) where erase_at is not null;

create table aliases (
  profile text not null,
  alias text not null,
  session text not null references sessions (id) on delete cascade,
  primary key (profile, alias)
) strict;

create index aliases_session on aliases (session);

create table epochs (
  session text not null references sessions (id) on delete cascade,
  number integer not null,
  first_seq integer not null,
  summary text not null default '',
  created_at integer not null,
  primary key (session, number)
) strict;

create table messages (
  id integer primary key autoincrement,
  session text not null references sessions (id) on delete cascade,
  seq integer not null,
  role text not null check (role in ('user', 'assistant', 'tool', 'notice')),
  parts text not null,
  at integer not null,
  turn text,
  epoch integer not null default 0,
  author text not null default '',
  surface text not null default '',
  platform_id text not null default '',
  mark text,
  observed integer not null default 0,
  undone integer not null default 0,
  exact text,
  constraint messages_seq unique (session, seq)
) strict;

create table turns (
  position integer primary key autoincrement,
  id text not null,
  session text not null references sessions (id) on delete cascade,
  profile text not null,
  owner text not null,
  asker text not null,
  surface text not null,
  state text not null check (state in ('queued', 'running', 'done', 'failed', 'cancelled', 'parked', 'merged', 'expired')),
  mode text not null check (mode in ('queue', 'steer', 'collect', 'interrupt')),
  attempts integer not null default 0,
  blame integer not null default 0,
  input_seq integer not null,
  reply text,
  pin text,
  worker text,
  lease text,
  lease_until integer,
  cancelling integer not null default 0,
  error text,
  merged_into text,
  pieces integer not null default 0,
  created_at integer not null,
  ready_at integer,
  not_before integer not null default 0,
  started_at integer,
  finished_at integer,
  interrupted_at integer,
  constraint turns_id unique (id),
  check ((state = 'running') = (lease is not null))
) strict;

create unique index turns_running on turns (session) where state = 'running';
create index turns_running_asker on turns (profile, asker) where state = 'running';
create index turns_lease on turns (lease_until) where state = 'running';
create index turns_queued on turns (session, position) where state = 'queued';
create index turns_parked on turns (session) where state = 'parked';
create index turns_ready on turns (ready_at, position) where state = 'queued' and ready_at is not null;
create index turns_held on turns (not_before) where state = 'queued' and not_before > 0;
create index turns_open on turns (profile, position) where state in ('queued', 'running');
create index turns_pinned on turns (position) where state = 'queued' and pin is not null;
create index turns_session on turns (session, position);

create table pieces (
  turn text not null,
  n integer not null,
  body text not null,
  thought integer not null default 0,
  opaque text not null default '',
  primary key (turn, n)
) strict;

create table usage (
  id integer primary key autoincrement,
  turn text not null,
  session text not null references sessions (id) on delete cascade,
  profile text not null,
  owner text not null,
  surface text not null,
  model text not null default '',
  task text not null default 'answer',
  input integer not null default 0,
  output integer not null default 0,
  reasoning integer not null default 0,
  cache_read integer not null default 0,
  cache_write integer not null default 0,
  cost integer,
  estimated integer not null default 1,
  at integer not null
) strict;

create index usage_session on usage (session);
create index usage_time on usage (profile, at);

create table inbox (
  platform text not null,
  account text not null,
  event text not null,
  receipt text not null,
  received_at integer not null,
  primary key (platform, account, event)
) strict;

create index inbox_age on inbox (received_at);

create table lanes (
  key text primary key,
  profile text not null,
  owner text not null,
  session text references sessions (id) on delete set null,
  source text not null,
  shared integer not null default 0,
  suspended integer not null default 0,
  mirror integer not null default 0,
  created_at integer not null,
  active_at integer not null,
  expires_at integer
) strict;

create index lanes_session on lanes (session) where session is not null;
create index lanes_expiry on lanes (expires_at) where expires_at is not null;
create index lanes_activity on lanes (profile, active_at desc);

create table lane_moves (
  id integer primary key autoincrement,
  lane text not null references lanes (key) on delete cascade,
  session text,
  why text not null,
  at integer not null
) strict;

create index lane_moves_lane on lane_moves (lane, id desc);

create table finals (
  session text primary key references sessions (id) on delete cascade,
  reason text not null,
  tries integer not null default 0,
  due_at integer not null,
  error text
) strict;

create index finals_due on finals (due_at);

create table deliveries (
  position integer primary key autoincrement,
  id text not null,
  profile text not null,
  owner text not null,
  session text references sessions (id) on delete cascade,
  turn text,
  target text not null,
  target_key text not null,
  platform text not null,
  account text not null,
  body text not null,
  state text not null check (state in ('ready', 'sending', 'sent', 'unknown', 'failed', 'dead', 'discarded')),
  attempts integer not null default 0,
  parts_sent integer not null default 0,
  again integer not null default 0,
  receipts text not null default '[]',
  error text,
  worker text,
  lease text,
  lease_until integer,
  created_at integer not null,
  not_before integer not null default 0,
  sent_at integer,
  constraint deliveries_id unique (id)
) strict;

create index deliveries_open on deliveries (target_key, position) where state in ('ready', 'sending');
create index deliveries_ready on deliveries (platform, account, position) where state = 'ready';
create index deliveries_held on deliveries (not_before) where state = 'ready' and not_before > 0;
create index deliveries_lease on deliveries (lease_until) where state = 'sending';
create index deliveries_session on deliveries (session);
create index deliveries_turn on deliveries (turn) where turn is not null;
create index deliveries_bad on deliveries (profile, position) where state in ('unknown', 'failed', 'dead');

create table gates (
  key text primary key,
  not_before integer not null,
  reason text not null default ''
) strict;

create index gates_opening on gates (not_before);

create table cursors (
  name text primary key,
  value text not null,
  moved_at integer not null
) strict;

create table workers (
  id text primary key,
  kind text not null,
  host text not null,
  pid integer not null,
  started_at integer not null,
  seen_at integer not null
) strict;

--@sqlite
create table changes (
  position integer primary key autoincrement,
  at integer not null,
  kind text not null,
  profile text not null,
  owner text not null,
  subject text not null,
  session text,
  turn text,
  n integer,
  note text not null default ''
) strict;

--@postgres
create table changes (
  xid bigint not null default (pg_current_xact_id()::text::bigint),
  position bigint generated by default as identity,
  at bigint not null,
  kind text not null,
  profile text not null,
  owner text not null,
  subject text not null,
  session text,
  turn text,
  n bigint,
  note text not null default '',
  primary key (xid, position)
);
