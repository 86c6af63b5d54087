-- Owner ids come from `owner` in config.json, `supaclaw owner set` and /link alone. Those of before may come from the
-- first entry of an allow list, so the owner is asked about each that config.json does not name.
alter table principals add column unconfirmed text[] not null default '{}';
update principals set unconfirmed = identities where role = 'owner';
