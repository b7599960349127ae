alter table deliveries add column send_key text not null default '';

--@postgres
alter table deliveries drop constraint deliveries_state_check;
alter table deliveries add constraint deliveries_state_check check (
  state in ('ready', 'sending', 'sent', 'unknown', 'held', 'failed', 'dead', 'discarded')
);

--@sqlite
-- SQLite cannot change a check, so the table is made anew.
create table deliveries_with_held (
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
  state text not null check (state in ('ready', 'sending', 'sent', 'unknown', 'held', 'failed', 'dead', 'discarded')),
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
  media text not null default '[]',
  secret integer not null default 0,
  send_key text not null default '',
  constraint deliveries_id unique (id)
) strict;

insert into deliveries_with_held
  (position, id, profile, owner, session, turn, target, target_key, platform, account, body, state, attempts, parts_sent,
   again, receipts, error, worker, lease, lease_until, created_at, not_before, sent_at, media, secret, send_key)
select position, id, profile, owner, session, turn, target, target_key, platform, account, body, state, attempts, parts_sent,
  again, receipts, error, worker, lease, lease_until, created_at, not_before, sent_at, media, secret, send_key
from deliveries;

-- Positions of deliveries that were erased are not used again.
delete from sqlite_sequence where name = 'deliveries_with_held';
insert into sqlite_sequence (name, seq)
select 'deliveries_with_held', seq from sqlite_sequence where name = 'deliveries';

drop table deliveries;
alter table deliveries_with_held rename to deliveries;

create index deliveries_open on deliveries (target_key, position) where state in ('ready', 'sending');
create index deliveries_ready on deliveries (platform, account, position) where state = 'ready';
create index deliveries_held on deliveries (not_before) where state = 'ready' and not_before > 0;
create index deliveries_lease on deliveries (lease_until) where state = 'sending';
create index deliveries_session on deliveries (session);
create index deliveries_turn on deliveries (turn) where turn is not null;
create index deliveries_bad on deliveries (profile, position) where state in ('unknown', 'failed', 'dead');

--@both
create index deliveries_until_reply on deliveries (target_key, position) where state = 'held';
