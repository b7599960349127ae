-- The last message of a turn whose text was sent to the chat that asked.
alter table turns add column sent_seq integer not null default 0;
-- The idempotency key of the first send, and until when the answer takes the place of the preview.
alter table previews add column key text not null default '';
alter table previews add column replace_until integer not null default 0;
