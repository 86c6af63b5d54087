-- What a channel has to remember lies here, so that any machine can take the channel over.
create table channel_facts (
  channel text not null,
  name text not null,
  value text not null,
  saved_at timestamptz not null default clock_timestamp(),  -- differs within a statement: what is oldest makes room
  primary key (channel, name)
);
alter table channel_facts enable row level security;
delete from homes where thing = 'slack';                    -- its file is imported when it is next opened where it lies
