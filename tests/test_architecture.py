"""docs/architecture.md describes the code as it is: its paths, its names, its packages, its layers."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import surefoot

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "surefoot"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```\w*\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.DOTALL | re.MULTILINE)
PLANNED = ("critics", "searching", "labelling", "jobs", "generate")

FILE = re.compile(r"[\w./-]+\.(?:py|md|toml)|[\w.-]+(?:/[\w.-]+)*/")
"""A file, or a folder, which ends with a slash."""
NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")


def code(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


def find(path: str) -> Path | None:
    """Paths are relative to the package or to the repository. In `families/NAME.py`, NAME is any name."""
    for root in (PACKAGE, ROOT):
        if next(root.glob(path.replace("NAME", "*").rstrip("/")), None) is not None:
            return root / path
    return None


def is_planned(path: str) -> bool:
    return path.split("/")[0] in PLANNED and find(path.split("/")[0]) is None


def entries() -> list[str]:
    """The paths in the tree, relative to the package, as its indentation says. Folders end with a slash."""
    tree = next(block for block in BLOCKS if block.startswith("src/surefoot/\n"))
    found: list[str] = []
    parents: list[str] = []
    for line in tree.splitlines()[1:]:
        indent, name = len(line) - len(line.lstrip()), line.split()[0]
        del parents[indent // 2 - 1 :]
        found.append("".join([*parents, name]))
        parents.append(name)
        # Other files that the line describes stand in the same folder.
        folder = "".join(parents) if name.endswith("/") else "".join(parents[:-1])
        found += [folder + other for other in re.findall(r"(?<!\S)\w+\.py\b", line[indent + len(name) :])]
    return found


@cache
def defined(file: Path) -> frozenset[str]:
    """The names that a module defines at its top level, and `Class.member`."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        names.update(_bound(node))
        if isinstance(node, ast.ClassDef):
            names.update(f"{node.name}.{name}" for member in node.body for name in _bound(member))
            names.update(name for member in node.body for name in _bound(member))
    return frozenset(names)


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return [node.name]
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets if isinstance(node, ast.Assign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def passages() -> list[str]:
    """Paragraphs, list items and table rows: the units in which a name and its file stand together."""
    return [part for part in re.split(r"\n\n|\n(?=\d+\. |- |\| )", PROSE) if "`" in part]


def test_the_tree_lists_files_that_exist() -> None:
    missing = [path for path in entries() if find(path) is None and not is_planned(path)]
    assert not missing


def test_the_tree_lists_every_package_and_module_at_the_top() -> None:
    packages = {file.parent.relative_to(PACKAGE).as_posix() + "/" for file in PACKAGE.rglob("__init__.py")} - {"./"}
    modules = {file.name for file in PACKAGE.glob("*.py")} - {"__init__.py"}
    assert packages | modules <= set(entries())


@pytest.mark.parametrize("name", PLANNED)
def test_a_planned_package_is_marked_until_it_exists(name: str) -> None:
    (line,) = [line for block in BLOCKS for line in block.splitlines() if line.strip().startswith(f"{name}/ ")]
    assert ("planned" in line) == (not (PACKAGE / name).exists())


def test_paths_in_the_text_exist() -> None:
    paths = [word for word in code(PROSE) if FILE.fullmatch(word)]
    assert len(paths) > 80
    missing = [path for path in paths if find(path) is None and not is_planned(path)]
    assert not missing


def test_names_are_defined_in_the_files_named_beside_them() -> None:
    checked = 0
    for passage in passages():
        words = code(passage)
        files = [found for word in words if word.endswith(".py") and (found := find(word)) and found.is_file()]
        known = frozenset().union(*map(defined, files))
        for word in words:
            if FILE.fullmatch(word) or not NAME.fullmatch(word) or word in ("surefoot", "score_many"):
                continue
            if word.startswith("surefoot."):
                value: object = surefoot
                for part in word.split(".")[1:]:
                    value = getattr(value, part)
            else:
                assert word in known, f"`{word}` is in none of {[file.name for file in files]}:\n{passage}"
            checked += 1
    assert checked > 60


def test_the_layers_are_those_of_import_linter() -> None:
    contracts = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[tool.importlinter]")[2]
    # Arrays of strings are written alike in TOML and in Python.
    layers, torchless = (
        ast.literal_eval(re.findall(rf"^{name} = (\[.*?\])$", contracts, re.DOTALL | re.MULTILINE)[0])
        for name in ("layers", "source_modules")
    )
    (diagram,) = [block for block in BLOCKS if block.startswith("imports ")]
    assert [line.strip(" v").removeprefix("|").strip() for line in diagram.splitlines()[1:]] == layers
    (rule,) = [passage for passage in passages() if passage.startswith("- No torch")]
    assert [f"surefoot.{word.rstrip('/')}" for word in code(rule)] == torchless
    assert "ignore_imports" not in contracts


def test_every_guarantee_is_listed_with_its_tests() -> None:
    listed = {word for word in code(PROSE) if word.startswith("tests/promises/")}
    assert listed == {f"tests/promises/{file.name}" for file in (ROOT / "tests" / "promises").glob("test_*.py")}


def test_every_benchmark_is_listed() -> None:
    scripts = {file.name for file in (ROOT / "bench").glob("*.py") if "argparse" in file.read_text(encoding="utf-8")}
    assert scripts == {word.removeprefix("bench/") for word in code(PROSE) if re.fullmatch(r"bench/\w+\.py", word)}
