-- A token speaks for an agent, whose rows of memory it may find and change; `shared`: the owner's, too, to be read.
-- No token is the owner's own agent, 'default'.
alter table api_tokens
  add agent text check (agent <> 'default'),
  add shared boolean not null default false;
update api_tokens set agent = case name when 'default' then 'token default' else name end where kind = 'bearer';

drop trigger api_tokens_told on api_tokens;
create trigger api_tokens_told after update on api_tokens
  for each row when (old.revoked_at is distinct from new.revoked_at or old.expires_at is distinct from new.expires_at
    or old.scopes <> new.scopes or old.shared <> new.shared)
  execute function people_told();
