"""What this version leaves behind, kept so that later ones can start on it: `python -m tests.upgrades.leave NAME`.

It writes `tests/upgrades/landings/NAME` (a date): a small backup with keys, the config.json and the .env of a gateway
that somebody used for a while. Run it once for each release, before the first change of the next one, and never again.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from gateway.app.storage.restore import unpack
from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, Json, until

LANDINGS = Path(__file__).with_name("landings")
BACKUP = "backup.tar.gz"

SUMMARY = "## Goal\nTalk about tea.\n## Decisions\nNone.\n## Worth remembering\n- Ada drinks green tea."
CONFIG: Json = {
    "owner": {"name": "Ada", "telegram": str(OWNER)},
    "channels": {"telegram": {"token": "$env:TELEGRAM_TOKEN", "api_base": "$env:TELEGRAM_API", "allow": [str(OWNER)]}},
    "models": {
        "primary": "openai/mock-model",
        "providers": {"openai": {"api_key": "$env:OPENAI_KEY", "base_url": "$env:OPENAI_BASE"}},
    },
    "compaction": {"at_tokens": 50},
    "heartbeat": {"every": None},
}
LEARNED = "- Ada wants her answers short."


def environ(telegram: FakeTelegram, models: FakeModels) -> dict[str, str]:
    """What stands in `.env`; where the two fakes listen is another place each time."""
    return {
        "TELEGRAM_TOKEN": telegram.token,
        "TELEGRAM_API": telegram.url,
        "OPENAI_KEY": "sk-of-the-owner",
        "OPENAI_BASE": models.base_url,
    }


def read_environ(path: Path) -> dict[str, str]:
    """A `.env` as docker compose reads it."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines) if value}


async def leave(name: str) -> None:
    """Use a gateway for a while, and keep what is left of that."""
    folder = LANDINGS / name
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as home:
        async with FakeTelegram() as telegram, FakeModels(Rule("the summary of this record", text=SUMMARY)) as models:
            gateway = GatewayProcess(Path(home), environ=environ(telegram, models))
            gateway.configure(CONFIG)
            (folder / "config.json").write_bytes((gateway.home / "config.json").read_bytes() + b"\n")
            env = "".join(f"{name}={value}\n" for name, value in gateway.environ.items())
            (folder / ".env").write_text(env, encoding="utf-8")
            try:
                await _use(gateway, telegram)
                done = await gateway.command("backup", str(folder / BACKUP), "--with-secrets")
                assert done.code == 0, done.told
                print(done.told)
            finally:
                await gateway.close()


async def _use(gateway: GatewayProcess, telegram: FakeTelegram) -> None:
    """A chat long enough to be summarised, a file, things to do later, a program, and files somebody edited."""
    await gateway.start()
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    letter = {**telegram.keep(b"Dear Ada"), "file_name": "letter.txt", "mime_type": "text/plain"}
    telegram.say(None, OWNER, document=letter, caption="what is in it? mk2x")
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)
    agents = gateway.workspace / "AGENTS.md"
    agents.write_text(agents.read_text(encoding="utf-8").replace("<!-- AI:OPEN -->", f"<!-- AI:OPEN -->\n{LEARNED}"))
    user = gateway.workspace / "USER.md"
    user.write_text(user.read_text(encoding="utf-8").replace("Time zone:", "Time zone: Europe/Berlin"))
    for schedule in (("bank", "--at", "2036-03-01T09:00"), ("list", "--cron", "30 8 * * 1-5")):
        done = await gateway.command("schedules", "add", *schedule, "--prompt", "Remind me.", "--to", "telegram")
        assert done.code == 0, done.told
    assert (await gateway.command("schedules", "pause", "list")).code == 0
    token = await gateway.command("token", "create", "laptop", "--scope", "chat")
    assert token.code == 0
    (gateway.workspace / "token.txt").write_text(token.told.strip())
    assert (await gateway.complete("request mk3x", key="kept")).status_code == 200

    async def nothing_is_open() -> bool:
        [row] = await gateway.rows(
            """select (select count(*) from tasks where status not in ('completed', 'failed', 'cancelled'))
                    + (select count(*) from outbox where state <> 'sent')
                    + (select (count(*) = 0)::int from memories) as n"""
        )
        return bool(row["n"] == 0)

    await until(nothing_is_open)


if __name__ == "__main__":
    asyncio.run(leave(sys.argv[1]))
    print(unpack(LANDINGS / sys.argv[1] / BACKUP, None))
