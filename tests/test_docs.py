"""Whatever a person can set, type, call or read about is described, and every link leads somewhere."""

import importlib
import pkgutil
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from gateway import commands, tools, web
from gateway.cli.main import COMMANDS, Group
from gateway.config.channels import channel_names, settings_model
from gateway.config.model import Config
from gateway.config.problems import dotted, known_keys
from gateway.domain.settings import ProviderSettings
from gateway.llm.vendors import VENDORS
from gateway.tools import Services
from gateway.workspace.files.tree import Workspace

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
NOT_AN_API = ("gateway.web.screens", "gateway.web.auth.sign_in")


def undescribed(names: Iterable[str], mark: str = "`{}`") -> list[str]:
    return [name for name in names if mark.format(name) not in TEXT]


def test_every_configuration_key() -> None:
    leaves = {dotted(path) for path in known_keys(Config)}
    sections = {name for name in leaves if any(other.startswith(f"{name}.") for other in leaves)}

    assert undescribed(sorted(leaves - sections - {"channels"})) == []


def test_every_setting_of_a_provider_and_of_a_channel() -> None:
    settings = [f"models.providers.<prefix>.{name}" for name in ProviderSettings.model_fields]
    settings += [f"channels.{name}.{field}" for name in channel_names() for field in settings_model(name).model_fields]

    assert undescribed(settings) == []


def test_every_environment_variable() -> None:
    sources = (path.read_text("utf-8") for top in ("gateway", "integrations") for path in (ROOT / top).rglob("*.py"))
    names = {name for source in sources for name in re.findall(r'"(SUPACLAW_[A-Z_]+)"', source)}

    assert "SUPACLAW_DATA" in names
    assert undescribed(sorted(names)) == []


def test_every_model_that_auto_may_take_and_its_key() -> None:
    taken = [vendor for vendor in VENDORS if vendor.model]

    assert undescribed(name for vendor in taken for name in (vendor.model or "", *vendor.keys)) == []


def test_every_terminal_command() -> None:
    assert undescribed(f"supaclaw {name}" for name in COMMANDS) == []


@pytest.mark.parametrize("name", [name for name, entry in COMMANDS.items() if isinstance(entry, Group)])
def test_every_command_of_a_group_beside_its_name(name: str) -> None:
    group = COMMANDS[name]
    assert isinstance(group, Group)

    (line,) = [line for line in TEXT.splitlines() if line.startswith(f"| `supaclaw {name}`")]

    assert [command for command in group.targets if f"`{command}" not in line] == []


def test_every_slash_command() -> None:
    assert undescribed(f"/{name}" for name in commands.discover()) == []


def test_every_tool(tmp_path: Path) -> None:
    services = Services(Workspace(tmp_path))

    assert undescribed(tool.name for family in tools.discover() for tool in family(services)) == []


def test_every_http_endpoint() -> None:
    found = sorted({f"{method} {route.path}" for route in routes() for method in route.methods})

    assert "GET /health" in found
    assert [name for name in found if not re.search(rf"`{re.escape(name)}[`?]", TEXT)] == []


def test_every_link_between_pages_leads_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text("utf-8"))]
    broken = [link for page, link in links if ":" not in link and not (page.parent / link).exists()]

    assert broken == []


def routes() -> Iterator[APIRoute]:
    for module in pkgutil.walk_packages(web.__path__, "gateway.web."):
        if module.name.startswith(NOT_AN_API):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, APIRouter):
                yield from (route for route in value.routes if isinstance(route, APIRoute))
