-- What its person wants of a chat in their lists: first, apart from the others, or nowhere, not even in a search.
alter table sessions add column pinned_at timestamptz, add column archived_at timestamptz, add column deleted_at timestamptz;
create index sessions_pinned on sessions (principal_id) where pinned_at is not null;
