-- Browsers that are told of what happens while the page is closed. One that signed in is forgotten with its sign-in. A
-- subscription belongs to the key of the node where it was made: `server_key` is the public half.
create table push_subscriptions (
  id text primary key,
  profile text not null,
  principal text not null,
  sign_in text references sign_ins (id) on delete cascade,
  prefix text not null,
  endpoint text not null,
  public_key text not null,
  secret text not null,
  server_key text not null,
  language text not null,
  with_text integer not null,
  created_at integer not null,
  unique (endpoint, profile)
) strict;

create index push_subscriptions_person on push_subscriptions (profile, principal, created_at);
create index push_subscriptions_sign_in on push_subscriptions (sign_in);

-- What such a browser is to be told, or was told: a row that is done has no `due_at`, and keeps its event from being told
-- again. `subject` is the turn or the question.
create table pushes (
  id text primary key,
  subscription text not null references push_subscriptions (id) on delete cascade,
  session text not null references sessions (id) on delete cascade,
  kind text not null,
  subject text not null,
  attempts integer not null,
  created_at integer not null,
  due_at integer
) strict;

create index pushes_due on pushes (due_at) where due_at is not null;
create index pushes_session on pushes (session, subscription);
create index pushes_subscription on pushes (subscription);
create index pushes_age on pushes (created_at);
