create table tags (
  id text primary key,
  profile text not null,
  owner text not null,
  name text not null,
  colour text not null,
  created_at integer not null,
  constraint tags_name unique (profile, owner, name)
) strict;

create table session_tags (
  session text not null references sessions (id) on delete cascade,
  tag text not null references tags (id) on delete cascade,
  primary key (session, tag)
) strict;

create index session_tags_tag on session_tags (tag, session);

-- Each is in the order of the list. Those of projects and directories hold only the sessions that have one.
create index sessions_surface on sessions (profile, surface, archived, pinned desc, active_at desc, id desc) where deleted_at is null;
drop index sessions_project;
create index sessions_project on sessions (project, archived, pinned desc, active_at desc, id desc) where project is not null;
drop index sessions_cwd;
create index sessions_cwd on sessions (profile, cwd, archived, pinned desc, active_at desc, id desc) where deleted_at is null and cwd <> '';
create index sessions_deleted on sessions (profile, deleted_at desc, id desc) where deleted_at is not null;
create index turns_failed on turns (position) where state in ('failed', 'parked', 'expired');
create index principals_name on principals (profile, lower(name));
