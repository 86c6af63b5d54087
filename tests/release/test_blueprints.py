"""The blueprints in deploy/: whether the gateway starts with exactly what each platform gives it."""

import json
import re
import tomllib
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path

import pytest
import yaml
from dotenv import dotenv_values

from gateway.app.local import listen_as_configured
from gateway.config.environment import Environment
from gateway.config.load import parse

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
CODE = "0123456789abcdef" * 4
ADDRESSES = {"render": "10.214.3.7", "railway": "100.64.0.4", "fly": "172.19.1.2", "compose": "172.20.0.3"}
PROXY = {name: ip_address(address) for name, address in ADDRESSES.items()}


def render() -> Mapping[str, str]:
    [service] = yaml.safe_load((DEPLOY / "render.yaml").read_text("utf-8"))["services"]
    values = {each["key"]: CODE if each.get("generateValue") else each.get("value", "") for each in service["envVars"]}
    return {**values, "PORT": "10000", "RENDER_EXTERNAL_URL": "https://supaclaw-1a2b.onrender.com"}


def railway() -> Mapping[str, str]:
    values = dotenv_values(DEPLOY / "railway.env", interpolate=False)
    domain = {"${{RAILWAY_PUBLIC_DOMAIN}}": "supaclaw.up.railway.app"}
    filled = {name: re.sub(r"\$\{\{secret\(.*\)\}\}", CODE, value or "") for name, value in values.items()}
    return {name: re.sub(r"\$\{\{RAIL\w+\}\}", lambda found: domain[found[0]], text) for name, text in filled.items()}


def fly() -> Mapping[str, str]:
    app = tomllib.loads((DEPLOY / "fly.toml").read_text("utf-8"))
    assert int(app["env"]["SUPACLAW_PORT"]) == app["http_service"]["internal_port"]
    return {**app["env"], "SUPACLAW_SIGN_IN_CODE": CODE}


def compose() -> Mapping[str, str]:
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))["services"]["supaclaw"]
    given = {"SUPACLAW_PUBLIC_URL": "https://claw.example.org", "SUPACLAW_SIGN_IN_CODE": CODE}

    def fill(found: re.Match[str]) -> str:
        return given.get(found[1]) or (found[2] or "").removeprefix(":-")

    variable = re.compile(r"\$\{(\w+)(:-[^}]*|:\?[^}]*)?\}")
    return {name: variable.sub(fill, text) for name, text in service["environment"].items()}


BLUEPRINTS = {"render": render, "railway": railway, "fly": fly, "compose": compose}


@pytest.mark.parametrize("platform", BLUEPRINTS)
def test_it_starts_with_the_platforms_variables_and_not_without_the_code(platform: str, tmp_path: Path) -> None:
    environ = {**BLUEPRINTS[platform](), "SUPACLAW_DATA": str(tmp_path)}
    assert environ["SUPACLAW_SIGN_IN_CODE"] == CODE
    web = parse("{}", environ).web

    assert str(web.public_url).startswith("https://")
    assert web.port == int(environ.get("PORT", "8787"))
    assert any(PROXY[platform] in network for network in web.proxies)
    free = web.model_copy(update={"port": 0})
    with listen_as_configured(free, Environment.read(environ).first_code) as listening:
        assert listening.getsockname()[0] == "0.0.0.0"
    with pytest.raises(Exception, match="SUPACLAW_SIGN_IN_CODE"):
        listen_as_configured(free, "")


def test_each_has_one_instance_a_health_check_a_volume_and_a_minute_to_stop() -> None:
    [service] = yaml.safe_load((DEPLOY / "render.yaml").read_text("utf-8"))["services"]
    railway = json.loads((DEPLOY / "railway.json").read_text("utf-8"))["deploy"]
    app = tomllib.loads((DEPLOY / "fly.toml").read_text("utf-8"))
    [check] = app["http_service"]["checks"]

    assert (service["numInstances"], railway["numReplicas"], app["deploy"]["strategy"]) == (1, 1, "immediate")
    assert {service["healthCheckPath"], railway["healthcheckPath"], check["path"]} == {"/health"}
    assert {service["disk"]["mountPath"], railway["requiredMountPath"], app["mounts"]["destination"]} == {"/data"}
    assert (service["maxShutdownDelaySeconds"], railway["drainingSeconds"], app["kill_timeout"]) == (60, 60, "60s")
