create schema if not exists supaclaw;
revoke all on schema supaclaw from public;
create table if not exists supaclaw.migrations (
  number int primary key,
  name text not null,
  sha256 text not null,
  applied_at timestamptz not null default now()
);
alter table supaclaw.migrations enable row level security;
alter table supaclaw.migrations add column if not exists compatible_from int not null default 0;
