alter table sessions add column compact_failures integer not null default 0;
alter table sessions add column compact_after integer not null default 0;

alter table usage add column asker text not null default '';

create index usage_asker on usage (profile, asker, at);
