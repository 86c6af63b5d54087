create schema if not exists supaclaw;
revoke all on schema supaclaw from public;
create table if not exists supaclaw.migrations (
  number int primary key,
  name text not null,
  sha256 text not null,
  applied_at timestamptz not null default now()
);
alter table supaclaw.migrations enable row level security;
