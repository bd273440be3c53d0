"""Generated pages and the picture are current, the API page and the table of extras are complete, and the site has all.

`python docs/scripts/write_reference.py` and `python docs/scripts/draw_picture.py` write them again.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import surefoot
from docstring_code import fenced
from draw_picture import FILE, QUESTION, SOLUTION, picture
from site_hooks import REPOSITORY, SOURCES, site_link, with_site_links, with_whole_options
from surefoot.cli.main import COMMANDS, load_command
from surefoot.families.catalog import CATALOG
from write_reference import FOLDER, PAGES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NUMBER = re.compile(r"\d\.\d{3}")


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "Run: python docs/scripts/write_reference.py"


def test_the_command_line_page_has_every_option() -> None:
    """Counted without the generator: from the parameters of the commands."""
    text = (FOLDER / "cli.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        command = load_command(name)
        section = text.split(f"\n## surefoot {name}\n")[1].split("\n## ")[0]
        for each in [command, *getattr(command, "commands", {}).values()]:
            for parameter in each.params:
                if not parameter.hidden:
                    assert parameter.opts[0] in section or str(parameter.metavar) in section, (name, parameter.opts)


def test_the_catalog_page_has_every_model() -> None:
    rows = re.findall(
        r"^\| (\S+) \| (?:probability|margin|log-ratio) \|", (FOLDER / "models.md").read_text(), re.MULTILINE
    )
    assert sorted(rows) == sorted(entry.id for entry in CATALOG)


def test_the_api_page_has_every_public_name() -> None:
    listed = re.findall(r"^::: surefoot\.(\w+)$", (FOLDER / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
    expected = set(surefoot.__all__) - {"__version__", "evaluate", "SurefootError"} | {"errors"}
    assert len(listed) == len(set(listed))
    assert set(listed) == expected


def test_the_names_of_modules_on_the_api_page_exist() -> None:
    from importlib import import_module

    for path in re.findall(r"^::: (surefoot\.\w+\.[\w.]+)$", (FOLDER / "api.md").read_text(), re.MULTILINE):
        module, _, name = path.rpartition(".")
        assert hasattr(import_module(module), name), path


def test_the_picture_shows_what_the_model_gives() -> None:
    drawn, now = FILE.read_text(encoding="utf-8"), picture(surefoot.load("mini").score(QUESTION, SOLUTION))
    assert NUMBER.sub("#", re.sub(r'fill="#\w+"', "", drawn)) == NUMBER.sub("#", re.sub(r'fill="#\w+"', "", now))
    assert list(map(float, NUMBER.findall(now))) == pytest.approx(list(map(float, NUMBER.findall(drawn))), abs=0.002)
    (wrong,) = re.findall(r'font-weight="600">([^✗<]+)<', drawn)
    assert wrong == "In total it earned $24 + $20 = $46.", "24 + 20 is 44"


def test_the_table_of_extras_is_complete() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    listed = re.findall(
        r"^\| `surefoot\[(\w+)\]` \|", (DOCS / "installation.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(listed) == sorted(extras)


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml has no types
        """Reads the file of mkdocs without running its Python tags."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)
    navigation = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"]
    files = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    listed = leaves(navigation)
    assert sorted(listed) == sorted(files | set(SOURCES))


def leaves(entry: Any) -> list[str]:
    """The files in the navigation."""
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [leaf for part in parts for leaf in leaves(part)]


@pytest.mark.parametrize(
    ("target", "page", "expected"),
    [
        ("docs/scoring.md#search", "index.md", "scoring.md#search"),
        ("docs/images/scored-solution.svg", "index.md", "images/scored-solution.svg"),
        ("CONTRIBUTING.md", "index.md", "contributing.md"),
        ("docs/quickstart.ipynb", "index.md", "quickstart.md"),
        ("../CONTRIBUTING.md", "architecture.md", "contributing.md"),
        ("../src/surefoot/families/mini/checkpoint/README.md", "scoring.md", "reference/mini.md"),
        ("../families.md#scales", "concepts/guarantees.md", "../families.md#scales"),
        ("../examples/serve", "serving.md", f"{REPOSITORY}examples/serve"),
        ("docs/versioning.md", "changelog.md", "versioning.md"),
    ],
)
def test_links_between_files_lead_to_pages(target: str, page: str, expected: str) -> None:
    assert site_link(target, page) == expected


def test_links_in_code_and_to_other_hosts_stay() -> None:
    text = "[a](../LICENSE) [b](https://x.org) [c](#d)\n\n```\n[e](../LICENSE)\n```\n"
    assert with_site_links(text, "faq.md") == text.replace("[a](../LICENSE)", f"[a]({REPOSITORY}LICENSE)")


def test_options_in_text_are_not_broken() -> None:
    text = "<p><code>eval --tune-on A -n 4</code> and <code>a-b</code>, <code>--x=1</code></p>"
    block = "<pre><code>surefoot eval --tune-on A\n</code></pre>"
    whole = '<p><code>eval <span class="option">--tune-on</span> A <span class="option">-n</span> 4</code> and '
    whole += '<code>a-b</code>, <code><span class="option">--x</span>=1</code></p>'
    assert with_whole_options(text + block) == whole + block


def test_doctests_and_trees_in_docstrings_become_code() -> None:
    assert fenced("Text.\n\n>>> a\n1\n>>> b\n\nMore.") == "Text.\n\n```pycon\n>>> a\n1\n>>> b\n```\n\nMore."
    assert fenced("Text.\n\nA\n├── B\n└── C\n") == "Text.\n\n```text\nA\n├── B\n└── C\n```"
