-- When somebody was offered a time zone, which is done once.
alter table principals add column zone_offered_at timestamptz;
