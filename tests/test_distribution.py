"""Files for other ways to install and run Surefoot: the compose example, the conda-forge recipe, the Dockerfile."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import yaml

import surefoot
from surefoot.cli.main import load_command
from surefoot.families import find_models

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
CONDA_NAMES = {"huggingface-hub": "huggingface_hub", "torch": "pytorch"}


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_the_service_of_the_compose_example_names_the_vllm_servers() -> None:
    """And its command is one that `surefoot serve` accepts after the entry point of the image."""
    services = read("examples/serve/compose.yml")["services"]
    dockerfile = (ROOT / services["surefoot"]["build"]["dockerfile"]).read_text(encoding="utf-8")
    program, command, *fixed = yaml.safe_load(re.findall(r"^ENTRYPOINT (.*)$", dockerfile, re.MULTILINE)[0])
    assert (program, command) == ("surefoot", "serve")
    options = load_command("serve").make_context("serve", [*fixed, *services["surefoot"]["command"]]).params
    hosts = {re.fullmatch(r"\w+=vllm\+http://([\w-]+):8000", model)[1] for model in options["model"]}  # type: ignore[index]
    vllm = {name for name, service in services.items() if service.get("image", "").startswith("vllm/")}
    assert hosts == vllm == set(services["surefoot"]["depends_on"])
    assert len(vllm) == 2
    for name in vllm:
        model = services[name]["command"][1]
        assert {row.family for row in find_models(model)} == {"qwen"}, "what vLLM computes for us"
        assert services[name]["command"][2:] == ["--runner", "pooling"]


def test_the_workflow_and_the_page_run_the_image_as_the_dockerfile_says() -> None:
    commands = (ROOT / ".github/workflows/docker.yml").read_text() + (ROOT / "docs/installation.md").read_text()
    assert commands.count(":/run/key:ro") == 2
    assert commands.count("examples/serve/Dockerfile .") == 2


def test_the_conda_recipe_has_the_requirements_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    recipe = read("packaging/conda-forge/recipe.yaml")
    expected = {"python": ">=${{ python_min }}"}
    for requirement in project["project"]["dependencies"]:
        name, bounds = re.fullmatch(r"([\w-]+)([^;]*)(?:;.*)?", requirement).groups()  # type: ignore[union-attr]
        expected[CONDA_NAMES.get(name, name)] = ",".join(sorted(bounds.split(","), reverse=True))
    assert dict(line.split(" ", 1) for line in recipe["requirements"]["run"]) == expected
    built = {re.split("[<>=]", each)[0] for each in project["build-system"]["requires"]}
    assert built <= {line.split(" ")[0] for line in recipe["requirements"]["host"]}
    assert recipe["context"]["version"] == surefoot.__version__
    assert recipe["about"]["license"] == project["project"]["license"]
    assert recipe["about"]["license_file"] == project["project"]["license-files"]


def test_the_source_distribution_has_what_its_makefile_runs() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    scripts = re.findall(r"^\t\$\(BIN\)/python (\S+)/\S+\.py", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert ".ci" in scripts
    assert {f"/{folder}" for folder in scripts} <= set(included)
