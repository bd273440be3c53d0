"""`surefoot models`: groups, filters, memory and what was checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from surefoot.cli.main import main
from surefoot.families import FAMILIES, MakersCode, registry
from surefoot.families.catalog import CATALOG


def listed(capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    assert main(["models", *options, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_models_are_grouped_by_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    headings = [line for line in lines if line.partition(":")[0] in FAMILIES and not line.startswith(" ")]
    with_models = [name for name in FAMILIES if name != "mini-lm"]  # only `surefoot train` makes models of that one
    assert [line.partition(":")[0] for line in headings] == with_models
    for row in CATALOG:
        (at,) = (number for number, line in enumerate(lines) if line.split()[:1] == [row.id])
        assert [line for line in lines[:at] if line in headings][-1].partition(":")[0] == row.family
        assert lines[at].endswith(row.licence)


def test_one_family(capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys, "--family", "skywork")
    assert [row["id"] for row in found] == [row.id for row in CATALOG if row.family == "skywork"]
    assert main(["models", "--family", "skywork"]) == 0
    shown = capsys.readouterr().out
    assert "Skywork Community License" in shown
    assert "qwen:" not in shown
    assert main(["models", "--family", "skywerk"]) == 2
    assert "--family skywerk is unknown. Choose one of: actprm," in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "model", "fits"),
    [
        # 14.1 GB in bfloat16 and 4.5 GB in nf4; 10% and 0.75 GB more are 16.3 and 5.7 GB.
        ("16.4GB", "Qwen/Qwen2.5-Math-PRM-7B", "bf16"),
        ("16.2 gb", "Qwen/Qwen2.5-Math-PRM-7B", "nf4"),
        ("5.8", "Qwen/Qwen2.5-Math-PRM-7B", "nf4"),
        ("5.5GB", "Qwen/Qwen2.5-Math-PRM-7B", None),
        ("5.5GiB", "Qwen/Qwen2.5-Math-PRM-7B", "nf4"),
        ("8GB", "PRIME-RL/EurusPRM-Stage1", None),
        ("14GB", "PRIME-RL/EurusPRM-Stage1", "nf4"),
        ("950MB", "mini", "bf16"),
    ],
)
def test_models_that_fit(capsys: pytest.CaptureFixture[str], size: str, model: str, fits: str | None) -> None:
    found = {row["id"]: row["fits"] for row in listed(capsys, "--fits", size)}
    assert found.get(model) == fits
    assert (model in found) == (fits is not None)


@pytest.mark.parametrize("size", ["much", "8TBs", "-8GB", "8,5GB", ""])
def test_sizes_that_cannot_be_read(capsys: pytest.CaptureFixture[str], size: str) -> None:
    assert main(["models", f"--fits={size}"]) == 2
    assert "give a size such as 8GB" in capsys.readouterr().err


def test_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--fits", "100MB"]) == 0
    assert capsys.readouterr().out == "No such model fits into 100MB: weights plus 10% and 0.75 GB.\n"


def with_makers(monkeypatch: pytest.MonkeyPatch, makers: Sequence[MakersCode | None]) -> None:
    """Give the first models of the catalog these makers' codes, and the others none."""
    given = [*makers, *[None] * (len(CATALOG) - len(makers))]
    rows = tuple(replace(row, makers=each) for row, each in zip(CATALOG, given, strict=True))
    monkeypatch.setattr(registry, "CATALOG", rows)


def test_what_was_checked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    differs = MakersCode(
        "a/repository, file.py", difference="Blank lines are left out, because training left them out."
    )
    exact = MakersCode("b/repository, file.py", "min", 0.4)
    with_makers(monkeypatch, [None, exact, differs, differs])
    found = {row["id"]: row for row in listed(capsys)}
    first, second, third, fourth, fifth, *_ = (row.id for row in CATALOG)
    checked = [found[model]["checked"] for model in (first, second, third, fourth, fifth)]
    assert checked == [None, "exact", "differs", "differs", None]
    assert found[second]["makers"] == {
        "source": "b/repository, file.py",
        "aggregation": "min",
        "threshold": 0.4,
        "difference": None,
        "assumes": None,
    }
    assert found[third]["makers"]["difference"] == differs.difference
    assert found[first]["makers"] is None
    assert main(["models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (shown,) = (line for line in lines if line.split()[:1] == [fourth])
    assert "differs [1]" in shown
    assert sum("exact" in line.split()[5:8] for line in lines) == 1
    assert f"[1] {differs.difference}" in lines
    assert not any(line.startswith("[2]") for line in lines)
