-- Fields of a model's reply that only its provider understands and may want back: one row for a reply, with the
-- answer or its first call. The source is a digest of provider, address, key and model; nobody else gets them.
create table provider_fields (
  message_id bigint primary key references messages on delete cascade,
  principal_id uuid not null references principals,
  label smallint not null,
  source text not null,
  message text not null,
  calls text[] not null
);
alter table provider_fields enable row level security;
create policy own on provider_fields to supaclaw_member using (principal_id = (select member()));
