"""The gateway on this machine: requests to the running one, or one started for as long as a command needs it."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import OK, HTTPException
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from pydantic import JsonValue

from gateway.cli.terminal.console import show_after_a_second
from gateway.config.data.files import read_regular
from gateway.config.data.instance import running_address as address_on_record
from gateway.config.data.instance import running_pid
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.config.model import WebSettings
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater
from gateway.domain.json import OBJECT


def ask_gateway(
    path: str, *, method: str = "GET", body: Mapping[str, JsonValue] | None = None, timeout: float
) -> dict[str, JsonValue]:
    """Send a request to the gateway of this data directory; raises `SupaclawError` with the reason if it fails."""
    environment = Environment.read(os.environ)
    address = gateway_address(environment)
    headers = {"Authorization": f"Bearer {local_token(environment)}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        request = Request(f"{address}{path}", data, headers, method=method)
        with show_after_a_second("waiting for the gateway …"), urlopen(request, timeout=timeout) as answer:
            return OBJECT.validate_json(answer.read() or b"{}")
    except HTTPError as error:
        with error:
            raise _gateway_error(error) or _unexpected_status(environment, address, error.code) from error
    except (ValueError, HTTPException) as error:
        raise _not_a_gateway(address, "does not answer like a gateway") from error
    except OSError as error:
        if (pid := running_pid(environment.data)) is None:
            raise OwnerMustAct(f"nothing runs at {address}; `supaclaw up` starts the gateway") from error
        raise TryAgainLater(f"the gateway (pid {pid}) does not answer at {address}; see `supaclaw doctor`") from error


def gateway_address(environment: Environment) -> str:
    """The URL of this data directory's gateway, running or not; raises `ConfigError`."""
    return address_on_record(environment.data) or web_address(load_early(environment, os.environ).web)


def web_address(web: WebSettings) -> str:
    """The URL of a gateway on this machine with these settings."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(web.host, web.host)
    return f"http://[{host}]:{web.port}" if ":" in host else f"http://{host}:{web.port}"


def local_token(environment: Environment) -> str:
    """The credential for programs on this machine; raises `OwnerMustAct` if it cannot be read."""
    path = environment.data / "keys" / "local-token"
    try:
        return read_regular(path, 100).decode().strip()
    except FileNotFoundError:
        raise OwnerMustAct(f"no gateway has run on {environment.data} yet; `supaclaw up` starts the gateway") from None
    except OSError as error:
        raise OwnerMustAct(f"{path} cannot be read: {error.strerror}; run this as the gateway's user") from error


def _gateway_error(error: HTTPError) -> SupaclawError | None:
    """The gateway's own error message, if the response holds one."""
    try:
        return OwnerMustAct(str(json.loads(error.read())["error"]["message"])) if error.code != 401 else None
    except (ValueError, KeyError, TypeError, OSError):
        return None


def _unexpected_status(environment: Environment, address: str, code: int) -> SupaclawError:
    if code >= 500 and running_pid(environment.data):
        return OwnerMustAct(f"the gateway at {address} failed ({code}); its log says why: {environment.data / 'logs'}")
    return _not_a_gateway(address, f"answers {code}")


def _not_a_gateway(address: str, problem: str) -> SupaclawError:
    return OwnerMustAct(f"{address} {problem}; another program may have that port, see `supaclaw doctor`")


START_SECONDS = 60.0
STOP_SECONDS = 30.0
LISTEN_SECONDS = 3.0
"""A gateway that holds its data folder listens well within this time, and answers that it is starting."""
HEALTH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class LocalGateway:
    """The gateway of a data directory, running or not, and its address."""

    environment: Environment
    url: str

    def health(self) -> int | None:
        """The status of `/health`, 200 if it is healthy; 0 for another answer; None if nothing listens."""
        try:
            with urlopen(f"{self.url}/health", timeout=HEALTH_SECONDS) as response:
                return int(response.status)
        except HTTPError as error:
            return error.code
        except URLError as error:
            return None if isinstance(error.reason, ConnectionRefusedError) else 0
        except (OSError, HTTPException):  # it accepted the connection, and then reset it, or answered late or nonsense
            return 0


@contextmanager
def ensure_gateway() -> Iterator[LocalGateway]:
    """Yield the running gateway, or one that is started for the block."""
    environment = Environment.read(os.environ)
    gateway = LocalGateway(environment, gateway_address(environment))
    if running_pid(environment.data) is not None:
        with show_after_a_second("waiting for the gateway …"):
            _wait_for(gateway)
        yield gateway
        return
    with tempfile.TemporaryFile() as errors, _started_gateway(environment, errors) as process:
        with show_after_a_second("starting the gateway …"):
            _wait_for(gateway, process, errors)
        yield gateway


@contextmanager
def _started_gateway(environment: Environment, errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a gateway in its own session, so that Ctrl-C does not reach it; stop it after the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway", "up"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
        env=os.environ | {f"SUPACLAW_{name.upper()}": str(path) for name, path in environment.place._asdict().items()},
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def _wait_for(
    gateway: LocalGateway, process: subprocess.Popen[bytes] | None = None, errors: IO[bytes] | None = None
) -> None:
    begun = time.monotonic()
    while (health := gateway.health()) != OK:
        if process and errors and process.poll() is not None:
            raise OwnerMustAct(f"the gateway did not start: {_last_error_line(errors)}")
        waited = time.monotonic() - begun
        if waited > START_SECONDS or (process is None and waited > LISTEN_SECONDS and health is None):
            raise TryAgainLater(f"the gateway does not answer at {gateway.url}; see `supaclaw doctor`")
        time.sleep(0.05)


def _last_error_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("supaclaw: ") if lines else "it printed nothing; see `supaclaw doctor`"
