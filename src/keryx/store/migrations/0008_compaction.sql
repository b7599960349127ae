alter table sessions add column compact_failures integer not null default 0;
alter table sessions add column compact_after integer not null default 0;
