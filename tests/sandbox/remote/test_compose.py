"""What docker-compose.yml gives the service that runs commands, and what it doesn't."""

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    return found


@pytest.mark.parametrize("name", ["workshop", "folders"])
def test_it_has_no_network_no_rights_and_no_settings(compose: dict[str, Any], name: str) -> None:
    service = compose["services"][name]
    assert (service["network_mode"], service["read_only"], service["cap_drop"]) == ("none", True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert not {"ports", "env_file", "cap_add", "privileged", "devices", "pid", "ipc", "user"} & service.keys()
    assert set(service.get("environment", {})) <= {"HOME"}
    assert service["image"] == compose["services"]["supaclaw"]["image"]


def test_it_sees_the_workspace_and_the_sockets_alone(compose: dict[str, Any]) -> None:
    mounts = compose["services"]["workshop"]["volumes"]
    seen = {
        each["target"]: (each["source"], each["volume"]["subpath"], each.get("read_only", False))
        for each in mounts
        if isinstance(each, dict)
    }
    assert seen == {
        "/workspace": ("data", "workspace", False),
        "/workspace/sessions": ("data", "workspace/sessions", True),
        "/workspace/memory": ("data", "workspace/memory", True),
    }
    assert [each for each in mounts if isinstance(each, str)] == ["sockets:/sockets"]


def test_the_gateway_asks_at_the_socket_where_it_listens(compose: dict[str, Any]) -> None:
    gateway, workshop = (compose["services"][name] for name in ("supaclaw", "workshop"))
    assert gateway["environment"]["SUPACLAW_WORKSHOP"] == "/sockets/workshop.sock"
    assert "sockets:/sockets" in gateway["volumes"]
    assert workshop["entrypoint"][-3:] == ["gateway.sandbox.remote.service", "/sockets", "/workspace"]
    made = compose["services"]["folders"]["entrypoint"][-1]
    assert "/data/workspace/sessions /data/workspace/memory" in made
    assert workshop["depends_on"] == {"folders": {"condition": "service_completed_successfully"}}
    assert "workshop" not in gateway["depends_on"]


def test_a_worker_is_the_gateway_without_ports_and_with_the_same_rights(compose: dict[str, Any]) -> None:
    gateway, worker = (compose["services"][name] for name in ("supaclaw", "worker"))
    assert (worker["profiles"], worker["command"]) == (["workers"], ["worker"])
    assert not {"ports", "cap_add", "privileged", "container_name"} & worker.keys()
    for same in (
        "secrets",
        "image",
        "env_file",
        "volumes",
        "networks",
        "depends_on",
        "read_only",
        "cap_drop",
        "security_opt",
    ):
        assert worker[same] == gateway[same], same
    assert worker["environment"].items() <= gateway["environment"].items()


def test_gateway_and_workers_get_the_master_key_as_a_secret_and_nobody_else_does(compose: dict[str, Any]) -> None:
    assert compose["secrets"] == {"master_key": {"file": "${SUPACLAW_MASTER_KEY_FILE:-/dev/null}"}}
    given = "${SUPACLAW_MASTER_KEY_FILE:+/run/secrets/master_key}"
    for name, service in compose["services"].items():
        has = service.get("secrets"), service.get("environment", {}).get("SUPACLAW_MASTER_KEY_FILE")
        assert has == ((["master_key"], given) if name in ("supaclaw", "worker") else (None, None)), name
