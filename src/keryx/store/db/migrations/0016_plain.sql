alter table messages add column plain integer not null default 0 check (
  -- 1: it has no more to tell than its words, role, time, turn and surface. Reading thousands of such messages is
  -- quicker without six empty columns. 0: perhaps it has.
  plain = 0
  or (author = '' and platform_id = '' and mark is null and observed = 0 and undone = 0 and exact is null)
);

update messages set plain = 1
where author = '' and platform_id = '' and mark is null and observed = 0 and undone = 0 and exact is null;
