"""The manifests in docker/kubernetes: whether a cluster would take them, and whether what they ask for exists."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from gateway.cli.main import COMMANDS
from gateway.config.data.keys import read_keyring
from gateway.domain.ids import TaskId
from gateway.domain.principals import Role
from gateway.domain.work.tasks import SLOTS, Lane
from gateway.secrets.encryption import Keyring, MasterKey
from gateway.store.connection.pool import Connection, Database
from gateway.store.people import principals
from gateway.store.work import tasks

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docker" / "kubernetes"
OLDEST = "1.33"
Manifest = dict[str, Any]


def manifests() -> list[Manifest]:
    return [each for file in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(file.read_text("utf-8"))]


BUILT_IN = [each for each in manifests() if "." not in each["apiVersion"].partition("/")[0]]
PODS = [each["spec"]["template"]["spec"] for each in BUILT_IN if "template" in each["spec"]]


def the(kind: str) -> Manifest:
    [found] = [each for each in manifests() if each["kind"] == kind]
    return found


@pytest.mark.parametrize("manifest", BUILT_IN, ids=lambda each: f"{each['kind']}-{each['metadata']['name']}")
def test_a_cluster_takes_it(manifest: Manifest) -> None:
    kubernetes_validate.validate(manifest, OLDEST, strict=True)
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    if "template" in manifest["spec"]:
        labels = manifest["spec"]["template"]["metadata"]["labels"]
        assert manifest["spec"]["selector"]["matchLabels"] == labels


@pytest.mark.parametrize("pod", PODS, ids=lambda pod: pod["containers"][0]["args"][0])
def test_a_pod_is_confined_and_has_what_it_mounts(pod: Manifest) -> None:
    [container] = pod["containers"]
    assert container["args"][0] in COMMANDS
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert pod["securityContext"]["runAsNonRoot"]
    assert not pod["automountServiceAccountToken"]
    assert "memory" in container["resources"]["limits"]
    volumes = {each["name"] for each in pod["volumes"]}
    own = {each["metadata"]["name"] for each in the("StatefulSet")["spec"]["volumeClaimTemplates"]}
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounts.keys() in (volumes, volumes | own)
    variables = {each["name"]: each for each in container["env"]}
    assert variables["SUPACLAW_MASTER_KEY_FILE"]["value"].startswith(mounts["keys"] + "/")
    assert variables["SUPACLAW_DATABASE_URL"]["valueFrom"]["secretKeyRef"] == {"name": "supaclaw-db-app", "key": "uri"}


def test_no_two_gateways_share_a_data_folder() -> None:
    [gateway] = [each for each in BUILT_IN if each["metadata"]["name"] == "supaclaw-gateway"]
    assert (gateway["spec"]["replicas"], gateway["spec"]["strategy"]) == (1, {"type": "Recreate"})


def test_the_scaler_names_the_workers_and_how_many_tasks_each_runs() -> None:
    scaled = the("ScaledObject")["spec"]
    [workers] = [each for each in BUILT_IN if each["metadata"]["name"] == scaled["scaleTargetRef"]["name"]]
    [trigger] = scaled["triggers"]
    [container] = workers["spec"]["template"]["spec"]["containers"]

    assert "replicas" not in workers["spec"]
    assert trigger["type"] == "postgresql"
    assert trigger["metadata"]["connectionFromEnv"] in {each["name"] for each in container["env"]}
    assert int(trigger["metadata"]["targetQueryValue"]) == SLOTS[Lane.AGENTS]
    assert all(isinstance(value, str) for value in trigger["metadata"].values())


async def test_the_scaler_counts_the_tasks_that_wait_and_run(database: Database) -> None:
    [trigger] = the("ScaledObject")["spec"]["triggers"]

    async def create(tx: Connection) -> list[TaskId | None]:
        owner = await principals.add(tx, Role.OWNER, "Ada", [])
        return [await tasks.create(tx, owner, "agent", lane) for lane in (*[Lane.AGENTS] * 4, Lane.CPU)]

    running, later, over, *_ = await database.run(create)
    changes = {running: "status = 'running'", later: "run_at = now() + interval '1 hour'", over: "status = 'completed'"}
    async with database.transaction() as tx:
        for task, change in changes.items():
            await tx.execute(f"update tasks set {change} where id = $1", task)

    async with database.connection() as conn:
        assert await conn.fetchval(trigger["metadata"]["query"]) == 2


def test_the_database_is_made_with_what_the_schema_needs() -> None:
    spec = the("Cluster")["spec"]
    made = spec["bootstrap"]["initdb"]
    assert (made["encoding"], made["database"], made["owner"]) == ("UTF8", "supaclaw", "supaclaw")
    assert made["postInitApplicationSQL"] == [
        "create extension vector",
        "create role supaclaw_member nologin",
        "grant supaclaw_member to supaclaw",
    ]
    assert "standard" in spec["imageName"]


def test_the_master_key_is_read_as_kubernetes_mounts_it(tmp_path: Path) -> None:
    """A link to a link, readable by the group."""
    keys = Keyring((MasterKey.fresh(),))
    (tmp_path / "..2026").mkdir()
    (tmp_path / "..2026" / "master").write_text(keys.text)
    (tmp_path / "..2026" / "master").chmod(0o440)
    (tmp_path / "..data").symlink_to("..2026")
    (tmp_path / "master").symlink_to("..data/master")
    read = read_keyring(tmp_path, {"SUPACLAW_MASTER_KEY_FILE": str(tmp_path / "master")})
    assert read.text == keys.text
