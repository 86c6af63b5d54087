import asyncpg
import pytest
from asyncpg import exceptions

from gateway.domain.errors import DatabaseDown, OwnerMustAct, RunLost, SupaclawError
from gateway.store.failures import translated


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
        (of_state("28P01"), OwnerMustAct),
        (of_state("3D000"), OwnerMustAct),
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
        of_state("42601"),
        of_state("23505"),
        exceptions.InterfaceError("another operation is in progress"),
        OSError("disk"),
    ],
)
def test_our_own_bugs_stay_what_they_are(bug: Exception) -> None:
    with pytest.raises(type(bug)) as caught, translated():
        raise bug
    assert caught.value is bug


def test_a_missing_socket_counts_as_down_while_connecting() -> None:
    with pytest.raises(DatabaseDown, match="cannot be reached"), translated(OSError):
        raise FileNotFoundError(2, "No such file")
