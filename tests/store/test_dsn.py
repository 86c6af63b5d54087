import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.store.dsn import parse_dsn


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:p@db.example.com/app",
        "postgres://u:p@db.example.com:5432/app?sslmode=require",
        "postgresql://u:p@/app?host=/run/postgres",
        "postgresql://u:p@ep-pooler.neon.tech/app?pool_mode=session",
        "postgresql://u:p@db.example.com/app?pgbouncer=false",
    ],
)
def test_an_ordinary_address_is_direct(text: str) -> None:
    assert parse_dsn(text).direct


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:p@aws-0-eu.pooler.supabase.com:6543/postgres",
        "postgresql://u:p@db.example.com:6543/app",
        "postgresql://u:p@one:5432,two:6543/app",
        "postgresql://u:p@/app?host=/run/bouncer&port=6543",
        "postgresql://u:p@ep-cool-pooler.eu.neon.tech/app?sslmode=require",
        "postgresql://u:p@pgbouncer/app",
        "postgresql://u:p@db.example.com/app?pgbouncer=true",
        "postgresql://u:p@db.example.com/app?pool_mode=transaction",
    ],
)
def test_a_transaction_pooler_is_not_direct(text: str) -> None:
    assert not parse_dsn(text).direct


def test_hints_about_the_pooler_are_not_passed_on_and_the_rest_is() -> None:
    url = "postgresql://u:p%40ss@h/app"
    assert parse_dsn(f"{url}?pool_mode=transaction").url == url
    assert parse_dsn(f"{url}?sslmode=require&pgbouncer=true").url == f"{url}?sslmode=require"


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(parse_dsn("postgresql://u:secret@h/app"))


@pytest.mark.parametrize("text", ["mysql://u@h/app", "h:5432", "", "postgresql://[u@h/app"])
def test_what_is_no_address_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(OwnerMustAct, match="database URL"):
        parse_dsn(text)
