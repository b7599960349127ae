-- Whether a program may say something in a conversation by a tool, without a question to the owner.
alter table api_keys add column may_speak integer not null default 0;

-- The turns that programs asked for, by their last change: of everybody, and of one person.
create index turns_api on turns (profile, (coalesce(finished_at, started_at, created_at)) desc) where surface = 'api';
create index turns_api_owner on turns (profile, owner, (coalesce(finished_at, started_at, created_at)) desc) where surface = 'api';
