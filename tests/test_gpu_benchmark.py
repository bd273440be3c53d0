"""`bench/gpu.py` on a CPU: every section runs for real, and a failed check is reported as such."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

BENCH = Path(__file__).parents[1] / "bench"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "gpu.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("gpu_checks")


def test_the_whole_report_on_a_cpu(tmp_path: Path) -> None:
    child = run("--device", "cpu", "--quick", "--out", str(tmp_path))
    assert child.returncode == 0, child.stdout + child.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["failures"] == []
    results = {(row["format"], row["attention"]): row["result"] for row in report["checks"]}
    assert len(results) == 6 * 4
    assert {results["float32", attention] for attention in ("sdpa", "eager", "flex")} == {"passed"}
    assert results["nf4, float32", "sdpa"] == results["int8", "sdpa"] == "passed"
    assert results["bfloat16", "flash_attention_2"] == "cannot run"
    for row in report["throughput"]:
        assert row["tokens_per_second"]["surefoot"] > 0
        assert row["ratios"]["surefoot, one at a time"]["smallest"] > 0
    plain = {row["format"]: row for row in report["throughput"] if "from_transformers" in row}
    assert plain.keys() == {"float32", "bfloat16", "float16"}
    assert plain["float32"]["from_transformers"] < 1e-5
    assert [row["format"] for row in report["cold_start"]] == ["float32", "nf4, float32"]
    assert all(row["process_s"]["median"] > row["load_s"]["median"] > 0 for row in report["cold_start"])
    assert [row["solutions"] for row in report["scaling"]] == [8, 16]
    assert all(row["seconds"] > 0 and row["peak_gb"] > 0.1 for row in report["scaling"])
    text = (tmp_path / "report.md").read_text()
    assert "All checks that can run here passed." in text
    assert "| float32 | sdpa | passed |" in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_to_do(tmp_path: Path) -> None:
    child = run("--out", str(tmp_path / "report"))
    assert child.returncode == 1
    assert "device cuda cannot be used: torch" in child.stderr
    assert "python bench/gpu.py --device cpu --quick" in child.stderr
    assert "Traceback" not in child.stderr
    assert not (tmp_path / "report").exists()


def test_a_difference_above_the_tolerance_fails(checkpoint: Path, checks: Any) -> None:
    """On some CPUs even bfloat16 gives equal bits, so no difference is below this tolerance."""
    row = checks.check_one(checkpoint, "cpu", "bfloat16", "sdpa", {"dtype": "bfloat16"}, tolerance=-1.0)
    assert row["result"] == "failed"
    assert 0 <= row["difference"] < 0.1
    assert "scores differ by" in row["detail"]


def test_scores_that_depend_on_the_company_are_found(
    checkpoint: Path, checks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its mask, a solution sees the others of its pack."""
    from surefoot.engine import attention

    masked = attention.dense_mask
    monkeypatch.setattr(attention, "dense_mask", lambda *given: torch.zeros_like(masked(*given)))
    row = checks.check_one(checkpoint, "cpu", "float32", "eager", {"dtype": "float32"}, tolerance=1e-5)
    assert row["result"] == "failed"
    assert row["difference"] > 1e-3


@pytest.mark.parametrize("found", [[[0.5, None]], [[0.5, float("nan")]]])
def test_a_missing_score_is_not_equal_to_anything(found: list[list[float | None]], checks: Any) -> None:
    assert not checks._largest([[0.5, 0.5]], found) <= 1.0
