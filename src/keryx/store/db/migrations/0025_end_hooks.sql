alter table finals add column done text not null default '[]';
