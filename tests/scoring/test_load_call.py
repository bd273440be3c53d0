"""Pickled scorers: a pickle is the call of `load` with a fingerprint, equal in every process and without secrets."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import surefoot
from helpers.serving import QUESTION, SOLUTION, served
from surefoot.client.api_key import KEY_VARIABLE
from surefoot.core.calibration import Calibration, FittedOn, Logistic
from surefoot.core.shared import forget_shared
from surefoot.errors import LoadError, OptionError, ServiceError
from surefoot.families.qwen import Qwen
from surefoot.scoring.local import load_local
from surefoot.scoring.score_cache import ScoreCache
from surefoot.scoring.scorer import Scorer
from surefoot.serve import Settings
from surefoot.testing import byte_tokenizer_json, write_qwen_checkpoint

CALIBRATION = Calibration(Logistic(2.0), "any", None, FittedOn(1, 1, "")).for_any_model()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_qwen_checkpoint(tmp_path_factory.mktemp("pickled") / "model", vocab_size=300)
    (folder / "tokenizer.json").write_text(byte_tokenizer_json("<|im_start|>", "<|im_end|>", "<extra_0>"))
    return folder


@pytest.fixture(autouse=True)
def own_models() -> Iterator[None]:
    yield
    forget_shared()


@pytest.fixture(scope="module")
def url(scorer: surefoot.Scorer) -> Iterator[str]:
    with served([scorer]) as (url, _):
        yield url


def change_a_weight(folder: Path) -> None:
    (file,) = folder.glob("*.safetensors")
    tensors = load_file(file)
    name = min(name for name in tensors if "weight" in name)
    tensors[name].view(-1)[0] += 1.0
    save_file(tensors, file)


def unpickled(content: bytes) -> surefoot.Scorer:
    found = pickle.loads(content)
    assert isinstance(found, Scorer)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"max_tokens": 300, "name": "small", "strict": True},
        {"dtype": "bfloat16", "device": "cpu", "attention": "eager", "compile": False},
        {"family": "qwen", "family_options": {"default_system": "Be strict."}},
        {"family": Qwen(default_system="Be strict.")},
        {"calibration": CALIBRATION},
        {"cache": "scores.sqlite"},
    ],
    ids=lambda options: " ".join(options) or "none",
)
def test_a_scorer_is_loaded_again_as_it_was(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    scorer = surefoot.load(tiny, **options)
    content = pickle.dumps(scorer)
    assert pickle.dumps(surefoot.load(str(tiny), **options)) == content
    if options:
        assert pickle.dumps(surefoot.load(tiny)) != content
    assert pickle.loads(content) is scorer
    assert copy.deepcopy(scorer) is scorer
    expected, info = scorer.score(QUESTION, SOLUTION), scorer.info
    del scorer
    monkeypatch.chdir(tmp_path.parent)
    again = unpickled(content)
    assert again is unpickled(content), "loaded once"
    assert again.info == info
    found = again.score(QUESTION, SOLUTION)
    assert (found.step_scores, found.model, found.calibration) == (
        expected.step_scores,
        expected.model,
        expected.calibration,
    )
    assert None not in found.step_scores
    assert pickle.dumps(again) == content
    if "cache" in options:
        assert again.cache is not None
        assert (again.cache.path, again.cache.hits) == (tmp_path / "scores.sqlite", 1)


def test_the_embedded_model_has_one_name_everywhere() -> None:
    content = pickle.dumps(surefoot.load())
    assert content == pickle.dumps(surefoot.load("mini"))
    assert os.fsencode(Path(surefoot.__file__).parent) not in content


def test_a_relative_folder_works_elsewhere(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tiny.parent)
    content = pickle.dumps(surefoot.load("model"))
    monkeypatch.chdir(tmp_path)
    assert unpickled(content).name == "model"


def test_another_model_in_the_same_folder_is_refused(tiny: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny, tmp_path / "model")
    content = pickle.dumps(surefoot.load(folder))
    change_a_weight(folder)
    assert pickle.dumps(surefoot.load(folder)) != content
    for _ in range(2):
        with pytest.raises(LoadError, match="is not the model that was pickled: its fingerprint is"):
            pickle.loads(content)


def test_a_calibration_is_pickled_with_its_content(tiny: Path, tmp_path: Path) -> None:
    """Not as its file, which may change."""
    file = tmp_path / "calibration.json"
    scorer = surefoot.load(tiny)
    contents = []
    for slope in (2.0, 3.0):
        Calibration(Logistic(slope), "model", scorer.fingerprint, FittedOn(1, 1, "")).write(file)
        contents.append(pickle.dumps(surefoot.load(tiny, calibration=file)))
    assert contents[0] != contents[1]
    file.unlink()
    names = [unpickled(content).calibration for content in contents]
    assert len({*names, None}) == 3


def test_another_cache_is_pickled_too(tiny: Path, tmp_path: Path) -> None:
    scorer = unpickled(pickle.dumps(surefoot.load(tiny)))
    with ScoreCache(tmp_path / "scores.sqlite") as cache:
        content = pickle.dumps(scorer.with_cache(cache))
    assert content != pickle.dumps(scorer)
    again = unpickled(content)
    assert again.cache is not None
    assert again.cache.path == cache.path


def test_scorers_that_cannot_be_pickled(tiny: Path) -> None:
    class Local(Qwen):
        pass

    built = load_local(tiny)
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(OptionError, match=r"not loaded with surefoot.load.* Pass the model's name or folder"):
            copying(built)
    with pytest.raises(OptionError, match="Define the class at the top level of a module"):
        pickle.dumps(surefoot.load(tiny, family=Local()))


@pytest.mark.parametrize("kind", ["service", "vllm"])
def test_keys_are_never_pickled(
    kind: str, scorer: surefoot.Scorer, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served([scorer], Settings(api_key="sesame-42")) as (address, _):
        call: tuple[str, dict[str, Any]] = (address, {})
        if kind == "vllm":
            call = (f"vllm+{address}", {"tokenizer": checkpoint})
        given = surefoot.load(call[0], **call[1], api_key="sesame-42")
        with pytest.raises(OptionError, match=f"The API key is not part of a pickle.*{KEY_VARIABLE}"):
            pickle.dumps(given)
        monkeypatch.setenv(KEY_VARIABLE, "sesame-42")
        content = pickle.dumps(surefoot.load(call[0], **call[1]))
        assert pickle.dumps(given) == content
        assert b"sesame" not in content
        del given
        assert pickle.loads(content).score(QUESTION, SOLUTION).status == "scored"
        forget_shared()
        monkeypatch.delenv(KEY_VARIABLE)
        with pytest.raises(OptionError, match=f"needs an API key. Set the variable {KEY_VARIABLE}"):
            pickle.loads(content)


def test_a_vllm_server(url: str, checkpoint: Path, scorer: surefoot.Scorer) -> None:
    content = pickle.dumps(surefoot.load(f"vllm+{url}", tokenizer=checkpoint, timeout=9.0, max_tokens=1000))
    again = unpickled(content)
    assert again.max_tokens == 1000
    assert pickle.dumps(again) == content
    expected = scorer.score(QUESTION, SOLUTION).step_scores
    assert again.score(QUESTION, SOLUTION).step_scores == pytest.approx(expected, abs=1e-5)


def test_a_service_with_another_model_is_refused(scorer: surefoot.Scorer, tiny: Path) -> None:
    with served([scorer]) as (url, _):
        content = pickle.dumps(surefoot.load(url))
        assert content == pickle.dumps(surefoot.load(url))
        assert content != pickle.dumps(surefoot.load(url, patience=7.0))
    other = load_local(tiny, name=scorer.name)
    with served([other]) as (new, _):
        moved = content.replace(url.encode(), new.encode())
        assert len(url) == len(new), "ports have five digits"
        with pytest.raises(ServiceError, match="does not serve the model that it served when the client was pickled"):
            pickle.loads(moved)


PROGRAM = """
import os, sys
import datasets, torch
import surefoot
from datasets.fingerprint import Hasher

folder, data, calls = sys.argv[1:4]
datasets.disable_progress_bars()


def scoring(scorer):
    def score(row):
        with open(calls, "a") as file:
            file.write(f"{os.getpid()}\\n")
        return {"scores": scorer.score(row["question"], row["steps"]).step_scores}

    return score


def called():
    return open(calls).read().split() if os.path.exists(calls) else []


scorer = surefoot.load(folder)
function = scoring(scorer)
rows = datasets.load_from_disk(data)
before = len(called())
scored = rows.map(function)
print(Hasher.hash(function), len(called()) - before)
"""
SEVERAL = """
# Large enough that torch really starts its threads, which do not survive a fork.
torch.set_num_threads(2)
torch.ones(2000, 2000) @ torch.ones(2000, 2000)
before = len(called())
several = rows.map(function, num_proc=2, load_from_cache_file=False)
processes = called()[before:]
assert len(processes) == len(rows) and str(os.getpid()) not in processes, processes
for one, other in zip(scored["scores"], several["scores"], strict=True):
    assert max(abs(a - b) for a, b in zip(one, other, strict=True)) < 1e-5
for row, scores in zip(rows, scored["scores"], strict=True):
    assert scores == scorer.score(row["question"], row["steps"]).step_scores
"""
OTHERS = """
print(Hasher.hash(scoring(surefoot.load(folder, max_tokens=4000))))
os.rename(folder + "-changed", folder + "/model.safetensors")
print(Hasher.hash(scoring(surefoot.load(folder))))
"""


def test_map_of_datasets_caches_and_runs_in_several_processes(tiny: Path, tmp_path: Path) -> None:
    """The hash of a function with a scorer is the same in another process, until a weight or an option changes."""
    # The package does not import next to the older hub client of transformers 4.
    datasets = pytest.importorskip("datasets", exc_type=ImportError)
    folder = shutil.copytree(tiny, tmp_path / "model")
    change_a_weight(shutil.copytree(tiny, tmp_path / "other"))
    (tmp_path / "other" / "model.safetensors").rename(tmp_path / "model-changed")
    rows = [{"question": f"What is {n} + 1?", "steps": [f"{n} + 1 = {n + 1}.", "Done."]} for n in range(4)]
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "rows")

    def run(program: str) -> list[str]:
        child = subprocess.run(
            [sys.executable, "-c", program, str(folder), str(tmp_path / "rows"), str(tmp_path / "calls")],
            env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert child.returncode == 0, child.stderr
        return child.stdout.split()

    first, calls = run(PROGRAM + (SEVERAL if hasattr(os, "fork") else ""))
    assert calls == "4"
    again, calls, *others = run(PROGRAM + OTHERS)
    assert (again, calls) == (first, "0"), "read from the cache"
    assert len({first, *others}) == 3
