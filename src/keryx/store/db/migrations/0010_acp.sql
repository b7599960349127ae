create index sessions_cwd on sessions (profile, cwd, archived, pinned desc, active_at desc, id desc) where deleted_at is null;
