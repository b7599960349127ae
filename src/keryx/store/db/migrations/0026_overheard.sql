create table overheard (
  position integer primary key autoincrement,
  profile text not null,
  platform text not null,
  account text not null,
  chat text not null,
  thread text not null,
  event text not null,
  platform_id text not null,
  author text not null,
  said_by text not null,
  text text not null,
  at integer not null
) strict;

create index overheard_chat on overheard (platform, account, chat, thread, profile, position);
create index overheard_event on overheard (platform, account, event);

alter table lanes add column overheard integer not null default 0;
