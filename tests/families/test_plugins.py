"""Families from other packages: found when installed, harmless when broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

import surefoot
from surefoot.core.plugins import Plugins
from surefoot.errors import OptionError, PluginError
from surefoot.families import FAMILIES, Family, all_families, all_models, find_family, registry
from surefoot.families.registry import GROUP, load_families

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "family-package"
FAMILY = """
from dataclasses import dataclass
from surefoot.families import CatalogEntry, Family, Size
SIZE = Size(32, 64, 2, 16, 256)

@dataclass(frozen=True)
class Other(Family):
    name = "other"
    readout = "nothing"
    ATTRIBUTES

    def head_shapes(self, config): return {}
    def render(self, tokenizer, question, steps, system=None): raise NotImplementedError
    def read(self, head, hidden): return hidden
"""
Install = Callable[..., Plugins[Family]]


def run(*arguments: str | Path, path: Path) -> str:
    """The output of a Python process that finds the packages in `path`."""
    paths = [str(path), str(Path(surefoot.__file__).parent.parent)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    child = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stdout + child.stderr
    return child.stdout + child.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the example package."""
    source = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("source") / "package")
    target = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, source], check=True)
    return target


def test_the_example_package_passes_its_own_tests(installed: Path, tmp_path: Path) -> None:
    tests = shutil.copy(EXAMPLE / "test_surefoot_closing.py", tmp_path)
    output = run("-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, tests, path=installed)
    assert "3 passed" in output


def test_commands_find_an_installed_family(installed: Path, tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_surefoot_closing import write_checkpoint
from surefoot.cli.main import main

folder = write_checkpoint(Path(sys.argv[2]))
assert main(["models", "--json"]) == 0
call = ["score", "--model", str(folder), "--question", "1+1?", "--solution", "It is 2.", "--json"]
assert main([*call, "--family", "closing"]) == 0
assert main(call) != 0
"""
    output = run("-c", script, EXAMPLE, tmp_path / "model", path=installed)
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    (listed,) = [row for row in rows if row.get("id") == "example/closing-1b-long"]
    assert (listed["family"], listed["options"]) == ("closing", {"lead": "Question: "})
    assert rows[-1]["status"] == "scored"
    assert "one of: actprm, babelscape, closing, " in output


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package as pip would: a module, and the metadata of its distribution."""

    def install(
        code: str, value: str = "Other", name: str = "other", package: str = "surefoot-other"
    ) -> Plugins[Family]:
        module = package.replace("-", "_") + "_" + tmp_path.name
        (tmp_path / f"{module}.py").write_text(code)
        information = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {module}:{value}\n")
        found = sorted(distributions(path=[str(tmp_path)]), key=lambda each: each.name)
        return load_families(point for each in found for point in each.entry_points.select(group=GROUP))

    monkeypatch.syspath_prepend(tmp_path)
    return install


def family(attributes: str = "") -> str:
    return FAMILY.replace("ATTRIBUTES", attributes)


def test_a_class_or_an_instance(install: Install) -> None:
    plugins = install(family("lead: str = ''") + "\nother = Other('Q: ')")
    assert plugins.errors == {}
    assert plugins.found["other"].identity() == '{"family": "other", "options": {"lead": ""}}'
    plugins = install(family("lead: str = ''") + "\nother = Other('Q: ')", "other", package="surefoot-instance")
    assert "used by 'surefoot-instance' and by 'surefoot-other'" in plugins.errors["other"]


@pytest.mark.parametrize(
    ("code", "value", "name", "problem"),
    [
        ("import no_such_module", "Other", "other", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", "Other", "other", "ZeroDivisionError"),
        (family(), "Missing", "other", "AttributeError.*Missing"),
        ("class Other: pass", "Other", "other", "Other is not a subclass of surefoot.families.Family"),
        (FAMILY.split("    ATTRIBUTES")[0], "Other", "other", "TypeError.*abstract"),
        (family(), "Other", "another", "entry point is called 'another', but the family 'other'"),
        (family('models = (CatalogEntry("a/b", "qwen", SIZE),)'), "Other", "other", "a/b under the family 'qwen'"),
        (
            family('models = (CatalogEntry("a/b", "other", SIZE, options={"lead": ""}),)'),
            "Other",
            "other",
            "no option 'lead'",
        ),
        (
            family('models = (CatalogEntry("qwen/qwen2.5-math-prm-7b", "other", SIZE),)'),
            "Other",
            "other",
            "qwen/qwen2.5-math-prm-7b already belongs to the family 'qwen'",
        ),
        (
            family('architectures = ("Qwen2ForPrmModel",)'),
            "Other",
            "other",
            "architecture Qwen2ForPrmModel already belongs to the family 'skywork'",
        ),
    ],
)
def test_a_family_that_cannot_be_used_is_reported_with_its_package(
    install: Install, code: str, value: str, name: str, problem: str
) -> None:
    plugins = install(code, value, name)
    assert plugins.found == {}
    with pytest.raises(
        PluginError, match=f"family '{name}' of the package 'surefoot-other' cannot be used .*{problem}"
    ):
        raise PluginError(plugins.errors[name])


def test_a_broken_package_does_not_disturb_others(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("import no_such_module", name="broken", package="surefoot-broken")
    good = 'models = (CatalogEntry("a/model", "other", SIZE),)\n    architectures = ("OtherForPRM",)'
    plugins = install(family(good))
    monkeypatch.setattr(registry, "installed_plugins", lambda: plugins)
    assert all_families().keys() == FAMILIES.keys() | {"other"}
    assert "a/model" in {row.id for row in all_models()}
    assert find_family([], model="a/model").name == "other"
    assert find_family(["OtherForPRM"], model="any name").name == "other"
    assert find_family([], "other", model="any name").name == "other"
    assert find_family([], model="Qwen/Qwen2.5-Math-PRM-7B").name == "qwen"
    with pytest.raises(PluginError, match="package 'surefoot-broken' cannot be used"):
        find_family([], "broken", model="any name")
    with pytest.raises(OptionError, match="known to belong to the family 'qwen'"):
        find_family([], "other", model="Qwen/Qwen2.5-Math-PRM-7B")


def test_a_name_that_is_taken_is_an_error_for_that_name_only(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = install(family().replace('"other"', '"qwen"'), name="qwen")
    monkeypatch.setattr(registry, "installed_plugins", lambda: plugins)
    message = "The family name 'qwen' is used by 'surefoot' and by 'surefoot-other'. Uninstall one of them."
    for architectures, name, model in (
        ([], "qwen", "any name"),
        ([], None, "Qwen/Qwen2.5-Math-PRM-7B"),
        (["Qwen2ForProcessRewardModel"], None, "any name"),
    ):
        with pytest.raises(PluginError) as caught:
            find_family(architectures, name, model=model)
        assert str(caught.value) == message
    assert "qwen" not in all_families()
    assert "Qwen/Qwen2.5-Math-PRM-7B" not in {row.id for row in all_models()}
    assert find_family([], model="mini").name == "mini"


def test_a_broken_package_is_named_in_one_warning(install: Install, tmp_path: Path) -> None:
    install("import no_such_module", name="broken", package="surefoot-broken")
    script = """
import surefoot

assert surefoot.load().score("1+1?", ["It is 2."]).status == "scored"
try:
    surefoot.load("mini", family="broken")
except surefoot.SurefootError as error:
    print(type(error).__name__)
"""
    output = run("-c", script, path=tmp_path)
    warning = "The family 'broken' of the package 'surefoot-broken' cannot be used"
    assert output.count(warning) == 1
    assert "PluginError" in output


def test_a_family_object_needs_no_registration(checkpoint: Path) -> None:
    given = FAMILIES["qwen"]
    loaded = surefoot.load(checkpoint, family=given, family_options={"default_system": "Be strict."})
    named = surefoot.load(checkpoint, family="qwen", family_options={"default_system": "Be strict."})
    assert loaded.fingerprint == named.fingerprint
