-- The workspace on an object store: which content each path has, compared and set here, for a store may know no conditions.
-- A row stays when its file is deleted: no row means that a path was never known, and nothing is deleted for that.
create table synced_files (
  principal_id uuid not null references principals,
  place text not null,                                  -- the store, its bucket and the prefix in it
  path text not null,
  sha256 text,                                          -- the object's name; null: deleted
  size bigint not null default 0,
  executable boolean not null default false,
  version bigint not null default 1,                    -- one more with each change
  changed_at timestamptz not null default now(),
  primary key (principal_id, place, path)
);
create index synced_files_by_content on synced_files (place, sha256);

create table swept_objects (                            -- deleted from the store, for no path has them
  place text not null,
  sha256 text not null,
  gone_at timestamptz,                                  -- null: about to be; what was stored before then is gone, too
  primary key (place, sha256)
);

alter table synced_files enable row level security;
alter table swept_objects enable row level security;
create policy own on synced_files to supaclaw_member using (principal_id = (select member()));
