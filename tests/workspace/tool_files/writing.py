"""Tool files as tests write them."""

from pathlib import Path
from textwrap import indent

WEATHER = """\
base_url: https://api.example.org/v1
endpoints:
  - name: forecast
    path: /cities/{city}/forecast
    description: The forecast of a city.
    parameters:
      - {name: city, required: true}
      - {name: days, type: integer}
  - name: report
    method: POST
    path: /reports
    parameters:
      - {name: text, required: true}
  - {name: forget, method: DELETE, path: /reports}
"""


def tool_md(
    slug: str = "weather", config: str = WEATHER, *, type: str = "http_api", more: str = "", body: str = "Ask it."
) -> str:
    nested = f"config:\n{indent(config, '  ')}" if config else ""
    head = f"name: The weather\nslug: {slug}\ndescription: Knows the weather.\ntype: {type}\n{more}{nested}"
    return f"---\n{head}---\n\n{body}\n"


def put(root: Path, slug: str = "weather", text: str = "", **files: str) -> Path:
    """A tool file in a workspace; `x__json` is the file `x.json`."""
    folder = root / ".agents" / "tools" / slug
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "TOOL.md").write_text(text or tool_md(slug))
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)
    return folder
