-- The daily consolidation of memories: how far it is, and what it leaves to a person.
alter table memory_stats
  add consolidated_at timestamptz not null default now(),
  add consolidated_to bigint not null default 0;        -- memories up to this one were looked at
alter table memories add doubted_by bigint;             -- a newer memory that may replace it
create index memories_doubted on memories (principal_id) where doubted_by is not null;
