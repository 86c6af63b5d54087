"""What `supaclaw doctor` looks at; each check only looks, and answers with findings."""

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from gateway.config.channels import check_channels
from gateway.config.environment import Environment
from gateway.config.failpoints import Failpoints
from gateway.config.instance import holder
from gateway.config.load import load, parse
from gateway.config.model import Config
from gateway.domain.errors import ConfigError, SupaclawError

_GIB = 1024**3


class Level(StrEnum):
    """How bad it is; one `FAIL` makes the exit code 1."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check saw, and what to do about it."""

    level: Level
    check: str
    text: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined; `config` holds the defaults where config.json is wrong."""

    environment: Environment
    environ: Mapping[str, str]
    config: Config


def examine(environment: Environment, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Every finding, in the order a start would meet them."""
    yield check_python()
    config = parse("{}", environ)
    try:
        config = load(environment.config, environ)
    except ConfigError as error:
        yield from _wrong_config(error)
    else:
        known = environment.config if environment.config.exists() else "no config.json, the defaults are used"
        yield Finding(Level.OK, "config", str(known))
    patient = Patient(environment, environ, config)
    for check in (
        check_failpoint,
        check_data,
        check_disk,
        check_port,
        check_database,
        check_model,
        check_channel_settings,
    ):
        yield check(patient)


def check_python(version: tuple[int, int] = sys.version_info[:2]) -> Finding:
    """Python is new enough."""
    text = f"Python {version[0]}.{version[1]}"
    if version < (3, 11):
        return Finding(Level.FAIL, "python", text, "install Python 3.11 or newer")
    return Finding(Level.OK, "python", text)


def check_failpoint(patient: Patient) -> Finding:
    """No crash test is armed by mistake."""
    armed = patient.environment.fail
    try:
        Failpoints(armed)
    except ConfigError as error:
        return Finding(
            Level.FAIL, "failpoint", str(error), "unset SUPACLAW_FAIL, or see `supaclaw doctor --failpoints`"
        )
    if armed:
        return Finding(Level.WARN, "failpoint", f"the gateway will kill itself at {armed}", "unset SUPACLAW_FAIL")
    return Finding(Level.OK, "failpoint", "none armed")


def check_data(patient: Patient) -> Finding:
    """The data directory is ours alone and can be written."""
    data = patient.environment.data
    place = _existing(data)
    if not place.is_dir() or not _writable(place):
        return Finding(Level.FAIL, "data", f"{place} cannot be written", "chown it, or set SUPACLAW_DATA")
    if place != data:
        return Finding(Level.OK, "data", f"{data} will be made by the first start")
    if data.stat().st_mode & 0o077:
        return Finding(Level.WARN, "data", f"other users can look into {data}", f"chmod 700 {data}")
    return Finding(Level.OK, "data", str(data))


def check_disk(patient: Patient) -> Finding:
    """There is room for the database and the logs."""
    place = _existing(patient.environment.data)
    free = shutil.disk_usage(place).free
    level = Level.FAIL if free < _GIB / 5 else Level.WARN if free < _GIB else Level.OK
    fix = "" if level is Level.OK else "free some space: without it nothing can be stored, so nothing is accepted"
    return Finding(level, "disk", f"{free / _GIB:.1f} GiB free at {place}", fix)


def check_port(patient: Patient) -> Finding:
    """The page's port is free, or it is our own gateway that has it."""
    web = patient.config.web
    where = f"{web.host}:{web.port}"
    if pid := holder(patient.environment.data):
        return Finding(Level.OK, "port", f"the gateway runs (pid {pid}) and has {where}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(web.host, web.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return Finding(
            Level.FAIL, "port", f"{where} cannot be had: {error.strerror}", "set SUPACLAW_PORT to another port"
        )
    return Finding(Level.OK, "port", f"{where} is free")


def check_database(patient: Patient) -> Finding:
    """Postgres answers and its schema fits this program."""
    from gateway.app import open_database
    from gateway.store.postgres import EmbeddedPostgres

    kind = "external" if patient.config.database.url else "embedded"
    if kind == "embedded" and not EmbeddedPostgres(patient.environment.data).is_running:
        return Finding(Level.OK, "database", "the embedded Postgres is not running; `supaclaw up` starts it")

    async def ping() -> None:
        async with open_database(patient.environment, patient.config) as database, database.connection():
            pass

    try:
        asyncio.run(ping())
    except SupaclawError as error:
        return Finding(Level.FAIL, "database", str(error), "check database.url, or `supaclaw down` and `supaclaw up`")
    return Finding(Level.OK, "database", f"the {kind} Postgres answers, its schema is current")


def check_model(patient: Patient) -> Finding:
    """A model is connected; no key is tried."""
    from gateway.llm.auto import GUIDE, choose
    from gateway.llm.catalog import split
    from gateway.llm.endpoint import endpoint_of
    from gateway.llm.ollama import installed_models

    models = patient.config.models
    if models.primary != "auto":
        endpoint = endpoint_of(split(models.primary)[0], models.providers, patient.environ)
        if not endpoint.lacks_key:
            return Finding(Level.OK, "model", models.primary)
        fix = f"set {endpoint.vendor.keys[0]}; a key is made at {endpoint.vendor.keys_page}"
        return Finding(Level.WARN, "model", f"{models.primary} needs a key", fix)
    ollama = endpoint_of("ollama", models.providers, patient.environ)
    found = asyncio.run(installed_models(ollama.address))
    choice = choose(patient.environ, models.providers, found)
    if choice.model == GUIDE:
        return Finding(Level.WARN, "model", choice.reason, "set a provider's key, such as OPENAI_API_KEY")
    return Finding(Level.OK, "model", f"{choice.model} ({choice.reason})")


def check_channel_settings(patient: Patient) -> Finding:
    """Every configured messenger has settings that can work."""
    sections = patient.config.channels
    try:
        check_channels(sections)
    except ConfigError as error:
        return Finding(Level.FAIL, "channels", str(error), "mend config.json")
    if not sections:
        return Finding(
            Level.WARN, "channels", "no messenger, only the page and the terminal", "add one under `channels`"
        )
    return Finding(Level.OK, "channels", ", ".join(sections))


def _wrong_config(error: ConfigError) -> Iterator[Finding]:
    for line in str(error).splitlines():
        yield Finding(Level.FAIL, "config", line, "mend config.json")


def _existing(folder: Path) -> Path:
    """The folder itself, or where it would be made."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)
