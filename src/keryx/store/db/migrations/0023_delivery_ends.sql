-- How many processes in a row ended while they were sending a delivery.
alter table deliveries add column ends integer not null default 0;
