"""Requests to the running gateway, over HTTP."""

import json
import os
from collections.abc import Mapping
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from pydantic import JsonValue, TypeAdapter

from gateway.cli.progress import slow
from gateway.config.data.files import read_regular
from gateway.config.data.instance import running_address as address_on_record
from gateway.config.data.instance import running_pid
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.config.model import WebSettings
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater

_OBJECT = TypeAdapter(dict[str, JsonValue])


def ask(
    path: str, *, method: str = "GET", body: Mapping[str, JsonValue] | None = None, timeout: float
) -> dict[str, JsonValue]:
    """Send a request to the gateway of this data directory; raises `SupaclawError` with the reason if it fails."""
    environment = Environment.read(os.environ)
    address = gateway_address(environment)
    headers = {"Authorization": f"Bearer {local_token(environment)}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        request = Request(f"{address}{path}", data, headers, method=method)
        with slow("waiting for the gateway …"), urlopen(request, timeout=timeout) as answer:
            return _OBJECT.validate_json(answer.read() or b"{}")
    except HTTPError as error:
        with error:
            raise _gateway_error(error) or _refused(environment, address, error.code) from error
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


def _refused(environment: Environment, address: str, code: int) -> SupaclawError:
    if code >= 500 and running_pid(environment.data):
        return OwnerMustAct(f"the gateway at {address} failed ({code}); its log says why: {environment.data / 'logs'}")
    return _not_a_gateway(address, f"answers {code}")


def _not_a_gateway(address: str, what: str) -> SupaclawError:
    return OwnerMustAct(f"{address} {what}; another program may have that port, see `supaclaw doctor`")
