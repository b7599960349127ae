-- Which delivery a message of a chat belongs to, by the platform's id of the message: for threads that hang on it, and for reactions.
create table receipts (
  message text not null,
  chat text not null,
  account text not null,
  platform text not null,
  delivery text not null references deliveries (id) on delete cascade,
  primary key (message, chat, account, platform)
) strict;

create index receipts_delivery on receipts (delivery);
