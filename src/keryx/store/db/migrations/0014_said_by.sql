alter table messages add column said_by text;

update messages set said_by = (select t.asker from turns t where t.id = messages.turn)
where role = 'user' and turn is not null;

create index messages_said_by on messages (said_by) where said_by is not null;
