-- A running gateway keeps streams open for a credential; whoever ends or shortens its right, tells it.
create trigger api_tokens_told after update on api_tokens
  for each row when (old.revoked_at is distinct from new.revoked_at
    or old.expires_at is distinct from new.expires_at or old.scopes <> new.scopes)
  execute function people_told();

-- Until now browsers sent the page's cookie to every port of this machine: whatever has such a cookie loses its right.
update api_tokens set revoked_at = now() where kind = 'cookie' and revoked_at is null;
