create table buttons (
  question text primary key references questions (id) on delete cascade,
  receipt text not null,
  delivery text
) strict;

create index buttons_delivery on buttons (delivery) where delivery is not null;
