create table jobs (
  id text primary key,
  profile text not null,
  owner text not null,
  name text not null,
  name_key text not null,
  prompt text not null,
  schedule text not null,
  targets text not null,
  source text,
  project text references projects (id) on delete set null,
  state text not null check (state in ('active', 'paused', 'done')),
  why text not null default '',
  next_at integer,
  created_at integer not null,
  check ((state = 'active') = (next_at is not null))
) strict;

create unique index jobs_name on jobs (profile, owner, name_key) where state <> 'done';
create index jobs_due on jobs (next_at) where state = 'active';
create index jobs_owner on jobs (profile, owner, created_at);
create index jobs_project on jobs (project) where project is not null;

create table job_runs (
  job text not null references jobs (id) on delete cascade,
  due_at integer not null,
  profile text not null,
  owner text not null,
  outcome text not null check (outcome in ('started', 'skipped', 'refused')),
  at integer not null,
  session text references sessions (id) on delete set null,
  turn text,
  error text,
  primary key (job, due_at)
) strict;

create index job_runs_session on job_runs (session) where session is not null;
create index job_runs_recent on job_runs (profile, owner, at desc);

alter table turns add column also text;
