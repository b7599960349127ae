-- Why a queued turn waits until `not_before`: the model whose limit resets then. Null for any other turn.
alter table turns add column hold text;
