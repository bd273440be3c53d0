"""Integrations are found by name, including those of other distributions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import surefoot
from surefoot import integrations
from surefoot.errors import MissingDependencyError, OptionError


def test_built_in_integrations() -> None:
    built_in = [each.name for each in integrations.available() if each.package == "surefoot"]
    files = {path.stem for path in (Path(surefoot.__file__).parent / "integrations").glob("*.py")}
    assert built_in == ["trl", "verl", "openrlhf", "verifiers", "skyrl", "prime_rl", "slime"]
    assert set(built_in) <= files
    module = integrations.get("trl")
    assert isinstance(module, ModuleType)
    assert module.reward_function.__module__ == "surefoot.integrations.trl"


def test_an_unknown_name_raises() -> None:
    with pytest.raises(OptionError, match="no integration 'tlr'. Choose one of: trl, verl, openrlhf, verifiers"):
        integrations.get("tlr")


@pytest.mark.parametrize(
    ("name", "command"), [("verl", "pip install .verl."), ("verifiers", "pip install .verifiers.")]
)
def test_a_missing_trainer_raises_with_the_command_to_install_it(name: str, command: str) -> None:
    integration = next(each for each in integrations.available() if each.name == name)
    if integration.trainer_installed:
        pytest.skip(f"{name} is installed")
    with pytest.raises(MissingDependencyError, match=f"needs the package {name}. Run: {command}"):
        integrations.get(name)


def install(site: Path, distribution: str, entry_points: str, **modules: str) -> None:
    """Install a distribution into a folder, as pip does: modules next to a .dist-info folder."""
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[surefoot.integrations]\n{entry_points}\n")
    for name, source in modules.items():
        (site / f"{name}.py").write_text(source)


PROGRAM = """
import json
from surefoot import integrations
from surefoot.errors import SurefootError

def outcome(name):
    try:
        return integrations.get(name).describe()
    except SurefootError as error:
        return f"{type(error).__name__}: {error}"

names = [(each.name, each.package) for each in integrations.available() if each.package != "surefoot"]
print(json.dumps({"names": names, **{name: outcome(name) for name, _ in names}}))
"""


def test_integrations_of_other_distributions(tmp_path: Path) -> None:
    """In a process of its own, with distributions installed in a folder on its path."""
    install(
        tmp_path, "surefoot-dummy", "dummy = surefoot_dummy", surefoot_dummy="def describe(): return 'dummy rewards'"
    )
    install(tmp_path, "surefoot-broken", "broken = surefoot_broken", surefoot_broken="import no_such_trainer")
    install(
        tmp_path,
        "surefoot-careful",
        "careful = surefoot_careful",
        surefoot_careful="from surefoot.errors import MissingDependencyError\n"
        "raise MissingDependencyError('Run: pip install careful')",
    )
    install(tmp_path, "surefoot-taken", "trl = surefoot_taken", surefoot_taken="")
    source = Path(surefoot.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(source)])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert sorted(found["names"]) == [
        ["broken", "surefoot-broken"],
        ["careful", "surefoot-careful"],
        ["dummy", "surefoot-dummy"],
        ["trl", "surefoot-taken"],
    ]
    assert found["dummy"] == "dummy rewards"
    assert found["broken"].startswith("PluginError: The integration 'broken' of the package 'surefoot-broken'")
    assert "No module named 'no_such_trainer'" in found["broken"]
    assert found["careful"] == "MissingDependencyError: Run: pip install careful"
    assert found["trl"] == (
        "PluginError: The integration 'trl' is provided by 'surefoot' and 'surefoot-taken'. Uninstall one of them."
    )
