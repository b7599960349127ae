-- Requests to the hook of an account that were not taken in: not signed with its secret, malformed or too large.
alter table connections add column rejected integer not null default 0;
