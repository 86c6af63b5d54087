"""What `supaclaw up` says to a database that another version has been at."""

from tests.journeys.process import GatewayProcess


async def test_a_newer_database_is_left_alone_and_told_in_one_line(process: GatewayProcess) -> None:
    async with process.connected() as connection:
        await connection.execute(
            "insert into migrations (number, name, sha256) select max(number) + 1, 'later', '' from migrations"
        )

    ended = await process.refused()

    assert ended.code == 1
    assert "A newer SupaClaw wrote this database" in ended.told
    assert "update SupaClaw" in ended.told
    assert "Traceback" not in ended.told
