-- What a model thought before an answer or a call, as far as its provider shows that: for people, never for a prompt.
create table thoughts (
  message_id bigint primary key references messages on delete cascade,
  principal_id uuid not null references principals,
  label smallint not null,
  text text not null,
  tokens int not null,
  ms int not null,
  created_at timestamptz not null default now()
);
create index thoughts_by_time on thoughts (created_at);
alter table thoughts enable row level security;
create policy own on thoughts to supaclaw_member using (principal_id = (select member()));

-- Parts of requests that a model doesn't take; the source is a digest of its address, key and name.
create table model_refusals (
  source text not null,
  part text not null,
  model text not null,
  refused_at timestamptz not null,
  primary key (source, part)
);
alter table model_refusals enable row level security;

alter table addresses add column model text, add column thinking text;
alter table task_steps add column tokens_thinking int not null default 0,
  add column thinking_usd double precision not null default 0;
