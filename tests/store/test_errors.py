import asyncpg
import pytest
from asyncpg import exceptions

from gateway.domain.errors import DatabaseDown, OwnerMustAct, RunLost, SupaclawError
from gateway.store.errors import reaching, translated


def of_state(state: str, text: str = "said the server") -> asyncpg.PostgresError:
    return asyncpg.PostgresError.new({"C": state, "M": text, "S": "ERROR"})


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [
        (exceptions.ConnectionDoesNotExistError("gone"), DatabaseDown),
        (of_state("57P01"), DatabaseDown),
        (of_state("57P03"), DatabaseDown),
        (of_state("53300"), DatabaseDown),
        (of_state("53100", "No space left on device"), DatabaseDown),
        (of_state("25006"), DatabaseDown),
        (exceptions.InterfaceError("connection is closed"), DatabaseDown),
        (exceptions.InterfaceError("pool is closing"), DatabaseDown),
        (ConnectionResetError("reset"), DatabaseDown),
        (TimeoutError(), DatabaseDown),
        (of_state("28000", "role may not log in"), DatabaseDown),
        (of_state("28P01"), DatabaseDown),
        (of_state("3D000"), DatabaseDown),
        (of_state("42501", "permission denied for table inbox"), DatabaseDown),
        (of_state("42P01"), DatabaseDown),
        (of_state("0A000"), DatabaseDown),
        (of_state("XX000", "server_login_retry"), DatabaseDown),
        (of_state("57014"), DatabaseDown),
        (exceptions.TargetServerAttributeNotMatched("None of the hosts match read-write"), DatabaseDown),
        (exceptions.ProtocolError("garbage"), DatabaseDown),
        (of_state("08P01", "unsupported startup parameter: search_path"), OwnerMustAct),
        (of_state("SW001", "run lost"), RunLost),
        (of_state("SW002", "run this"), OwnerMustAct),
    ],
)
def test_what_asyncpg_raises_becomes_ours(foreign: Exception, ours: type[SupaclawError]) -> None:
    with pytest.raises(ours) as caught, translated():
        raise foreign
    assert type(caught.value) is ours
    assert caught.value.__cause__ is foreign


@pytest.mark.parametrize(
    "bug",
    [
        of_state("22021"),
        of_state("42601"),
        of_state("P0001"),
        of_state("23505"),
        of_state("54000"),
        exceptions.InterfaceError("another operation is in progress"),
        OSError("disk"),
    ],
)
def test_our_own_bugs_stay_what_they_are(bug: Exception) -> None:
    with pytest.raises(type(bug)) as caught, translated():
        raise bug
    assert caught.value is bug


@pytest.mark.parametrize(
    "foreign",
    [
        FileNotFoundError(2, "No such file"),
        AssertionError(),
        UnicodeDecodeError("utf-8", b"", 0, 0, ""),
        of_state("22023"),
    ],
)
def test_whatever_fails_before_the_first_statement_counts_as_down(foreign: Exception) -> None:
    with pytest.raises(DatabaseDown), reaching():
        raise foreign


def test_what_a_server_says_in_many_lines_is_told_in_one() -> None:
    with (
        pytest.raises(
            DatabaseDown, match=r"^The database refuses the request: no.* DETAIL.*; check database.url"
        ) as told,
        reaching(),
    ):
        raise asyncpg.PostgresError.new({"C": "42501", "M": "no", "D": "for no reason", "S": "ERROR"})
    assert "\n" not in str(told.value)
