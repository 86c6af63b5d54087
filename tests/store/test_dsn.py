import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.store.connection.dsn import as_user, parse_dsn


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


@pytest.mark.parametrize(
    ("copied", "kept", "direct"),
    [
        ("h/app?sslmode=require&channel_binding=require", "h/app?sslmode=require", True),
        (
            "h-pooler.eu.neon.tech/app?sslmode=require&connect_timeout=10",
            "h-pooler.eu.neon.tech/app?sslmode=require",
            False,
        ),
        ("h:5432/app?schema=public&connection_limit=5&pool_timeout=0&sslaccept=strict", "h:5432/app", True),
        ("h:6543/app?pgbouncer=true&connection_limit=1&supa=base-pooler.x", "h:6543/app", False),
        ("h/app?sslmode=prefer&keepalives=1", "h/app?sslmode=prefer", True),
        (
            "h/app?options=endpoint%3Dep-x&statement_timeout=1000",
            "h/app?options=endpoint%3Dep-x&statement_timeout=1000",
            True,
        ),
        ("h/app?sslmode=verify-full&client_encoding=", "h/app?sslmode=verify-full", True),
        ("h/app#main", "h/app", True),
    ],
)
def test_an_address_copied_from_a_host_or_another_client_is_taken(copied: str, kept: str, direct: bool) -> None:
    dsn = parse_dsn(f" postgresql://u:p@{copied}\n")
    assert (dsn.url, dsn.direct) == (f"postgresql://u:p@{kept}", direct)


@pytest.mark.parametrize("password", ["se#cret", "se/cret", "se?cret", "se@cret", "1/cret", "a?b=cret"])
def test_a_password_that_is_not_encoded_is_refused_without_repeating_any_of_it(password: str) -> None:
    with pytest.raises(OwnerMustAct, match="write @ as %40") as refused:
        parse_dsn(f"postgresql://u:{password}@h/app?sslmode=require")
    assert "cret" not in str(refused.value)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(parse_dsn("postgresql://u:secret@h/app"))


@pytest.mark.parametrize("text", ["mysql://u@h/app", "h:5432", "", "postgresql://[u@h/app"])
def test_what_is_no_address_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(OwnerMustAct, match="database URL"):
        parse_dsn(text)


@pytest.mark.parametrize(
    ("url", "other"),
    [
        ("postgresql://u:p@h:5432/app?sslmode=require", "postgresql://tools:a%2Fb@h:5432/app?sslmode=require"),
        ("postgresql://u:p@/app?host=/run/pg", "postgresql://tools:a%2Fb@/app?host=%2Frun%2Fpg"),
        ("postgresql://h/app?user=u&password=p", "postgresql://tools:a%2Fb@h/app"),
        (
            "postgresql://postgres.abcd:p@eu.pooler.supabase.com:6543/postgres",
            "postgresql://tools.abcd:a%2Fb@eu.pooler.supabase.com:6543/postgres",
        ),
    ],
)
def test_another_role_reaches_the_same_database(url: str, other: str) -> None:
    dsn = parse_dsn(url)
    assert as_user(dsn, "tools", "a/b").url == other
    assert as_user(dsn, "tools", "a/b").direct is dsn.direct


def test_the_password_of_members_is_ours_and_never_shown() -> None:
    dsn = parse_dsn("postgresql://u:p@h/app?member_password=hush&sslmode=require")
    assert (dsn.url, dsn.member_password) == ("postgresql://u:p@h/app?sslmode=require", "hush")
    assert "hush" not in repr(dsn)
