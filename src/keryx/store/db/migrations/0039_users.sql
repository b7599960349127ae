-- People who can sign in on the page, beside the operator. The password is a hash.
create table users (
  name text primary key,
  profile text not null,
  principal text not null,
  password text not null,
  created_at integer not null
) strict;

create index users_principal on users (profile, principal);

-- Passkeys of the operator and of users. The public key is no secret.
create table passkeys (
  id text primary key,
  profile text not null,
  principal text not null,
  name text not null,
  public_key text not null,
  uses integer not null,
  created_at integer not null,
  seen_at integer
) strict;

create index passkeys_principal on passkeys (profile, principal, created_at);
