"""Critics from other packages: found when installed, harmless when broken."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

import surefoot
from helpers.critic_models import QUESTION, STEPS, YES_NO
from helpers.policies import write_table_policy
from surefoot.core.plugins import Plugins
from surefoot.critics import registry
from surefoot.critics.base import Critic
from surefoot.critics.registry import CRITICS, GROUP, all_critics, critic_of, find_critic, load_critics
from surefoot.errors import OptionError, PluginError

TERSE = """
from dataclasses import dataclass
from typing import ClassVar
from surefoot.critics.yes_no import YesNoCritic

@dataclass(frozen=True)
class Terse(YesNoCritic):
    name: ClassVar[str] = "terse"
    description: ClassVar[str] = "answers at once"
    models: ClassVar[tuple[str, ...]] = MODELS
    model_options: ClassVar[dict] = OPTIONS
    explain: bool = False
"""
Install = Callable[..., Plugins[Critic]]


def terse(models: str = '("a/terse-7b",)', options: str = "{}") -> str:
    return TERSE.replace("MODELS", models).replace("OPTIONS", options)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package as pip would: a module, and the metadata of its distribution."""

    def install(code: str, name: str = "terse", package: str = "surefoot-terse") -> Plugins[Critic]:
        module = package.replace("-", "_") + "_" + tmp_path.name
        (tmp_path / f"{module}.py").write_text(code)
        information = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {module}:Terse\n")
        found = sorted(distributions(path=[str(tmp_path)]), key=lambda each: each.name)
        plugins = load_critics(point for each in found for point in each.entry_points.select(group=GROUP))
        monkeypatch.setattr(registry, "installed_plugins", lambda: plugins)
        return plugins

    monkeypatch.syspath_prepend(tmp_path)
    return install


def test_a_critic_of_another_package_scores(install: Install, tmp_path: Path) -> None:
    install("import no_such_module", name="broken", package="surefoot-broken")
    install(terse(options='{"a/terse-7b": {"votes": 1}}'))
    assert all_critics().keys() == CRITICS.keys() | {"terse"}
    assert getattr(critic_of("a/Terse-7B"), "name", None) == "terse"
    scorer = surefoot.load(write_table_policy(tmp_path / "model", YES_NO), critic="terse")
    result = scorer.score(QUESTION, STEPS)
    assert result.step_scores == pytest.approx([0.55 / 0.9] * 3, abs=1e-5)
    assert result.generated_tokens == 0
    with pytest.raises(PluginError, match="package 'surefoot-broken' cannot be used"):
        find_critic("broken")
    with pytest.raises(OptionError, match="Choose one of: .*terse"):
        find_critic("no-such-critic")


@pytest.mark.parametrize(
    ("code", "name", "problem"),
    [
        ("1 / 0", "terse", "ZeroDivisionError"),
        ("class Terse: pass", "terse", "Terse is not a subclass of surefoot.critics.base.Critic"),
        (terse(), "other", "entry point is called 'other', but the critic 'terse'"),
        (terse(models='("genprm/genprm-7b",)'), "terse", "genprm/genprm-7b already belongs to the critic 'genprm'"),
        (terse(options='{"b/c": {}}'), "terse", "`model_options` has b/c"),
        (terse(options='{"a/terse-7b": {"lead": ""}}'), "terse", "no option 'lead'"),
    ],
)
def test_a_critic_that_cannot_be_used_is_reported_with_its_package(
    install: Install, code: str, name: str, problem: str
) -> None:
    assert install(code, name).found == {}
    with pytest.raises(
        PluginError, match=f"critic '{name}' of the package 'surefoot-terse' cannot be used .*{problem}"
    ):
        find_critic(name)


def test_a_name_that_two_packages_use_belongs_to_neither(install: Install) -> None:
    install(terse())
    install(terse(models="()"), package="surefoot-twin")
    with pytest.raises(PluginError, match="name 'terse' is used by 'surefoot-terse' and by 'surefoot-twin'"):
        find_critic("terse")
    assert critic_of("a/terse-7b") is None


def test_a_name_that_is_taken_is_an_error_for_that_name_only(install: Install) -> None:
    install(terse(models="()").replace('"terse"', '"dyve"'), name="dyve")
    with pytest.raises(PluginError, match="name 'dyve' is used by 'surefoot' and by 'surefoot-terse'"):
        find_critic("dyve")
    assert find_critic("genprm").name == "genprm"
