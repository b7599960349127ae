-- What a turn was asked and wrote is found without reading the conversation around it.
create index messages_of_turn on messages (turn, seq) where turn is not null;
