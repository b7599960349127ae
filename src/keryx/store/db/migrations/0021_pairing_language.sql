alter table pairings add column language text;
