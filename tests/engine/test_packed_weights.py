"""Weights in 4 or 8 bits: how exactly they are restored, and that loading handles them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from surefoot.engine.packed_weights import GROUP, LARGEST, can_pack, pack, unpack
from surefoot.errors import CheckpointError, OptionError
from surefoot.scoring.local import load_local
from surefoot.testing import write_qwen_checkpoint


@pytest.mark.parametrize("bits", [4, 8])
def test_the_error_of_a_weight_is_bounded_by_its_group(bits: int) -> None:
    weight = torch.randn(6, 3 * GROUP, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 2, 6)[:, None]
    codes, scales = pack(weight, bits)
    assert codes.numel() * codes.element_size() * 8 == weight.numel() * bits
    groups = weight.view(len(weight), -1, GROUP)
    error = (unpack(codes, scales) - weight).view(6, -1, GROUP).abs().amax(-1)
    peak = groups.abs().amax(-1)
    # Half a step, or the cost of clipping to 0.7 of the peak; the scale itself has 11 bits, fewer if it is tiny.
    allowed = torch.maximum(peak / LARGEST[bits] / 2, torch.full_like(peak, 0.0 if bits == 8 else 0.3) * peak)
    assert (error <= allowed * 1.01 + LARGEST[bits] * 2.0**-24).all()


def test_representable_weights_are_restored_exactly() -> None:
    weight = torch.arange(-7, 9).repeat(2, 4).clamp(-7, 7) * 0.25
    assert unpack(*pack(weight, 4)).equal(weight)
    assert unpack(*pack(torch.zeros(2, GROUP), 8)).equal(torch.zeros(2, GROUP))


def test_a_chosen_scale_is_never_worse_than_the_plain_one() -> None:
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(1))
    groups = weight.view(len(weight), -1, GROUP)
    step = groups.abs().amax(-1, keepdim=True) / LARGEST[4]
    plain = ((groups / step).round() * step).flatten(1)
    assert (unpack(*pack(weight, 4)) - weight).square().sum() < (plain - weight).square().sum()


def test_what_cannot_be_packed_is_an_error() -> None:
    assert not can_pack((64,))
    with pytest.raises(OptionError, match=r"multiple of 32.*\(4, 33\)"):
        pack(torch.zeros(4, 33), 8)
    with pytest.raises(OptionError, match="bits=5"):
        pack(torch.zeros(4, 32), 5)
    with pytest.raises(CheckpointError, match="do not belong together"):
        unpack(torch.zeros(4, 32, dtype=torch.int8), torch.ones(4, 2, dtype=torch.float16))


def test_a_packed_checkpoint_scores_like_one_with_the_rounded_weights(tmp_path: Path) -> None:
    packed = write_qwen_checkpoint(tmp_path / "packed", dtype="float32")
    rounded = write_qwen_checkpoint(tmp_path / "rounded", dtype="float32")
    stored: dict[str, torch.Tensor] = {}
    plain: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(packed / "model.safetensors").items():
        if can_pack(tuple(tensor.shape)):
            codes, scales = pack(tensor, 4)
            stored |= {f"{name}.codes": codes, f"{name}.scales": scales}
            plain[name] = unpack(codes, scales)
        else:
            stored[name] = plain[name] = tensor
    save_file(stored, packed / "model.safetensors")
    save_file(plain, rounded / "model.safetensors")
    question, steps = "What is 2 + 3?", ["2 + 3 = 5.", "The answer is 5."]
    a, b = load_local(packed), load_local(rounded)
    assert a.score(question, steps).step_scores == b.score(question, steps).step_scores
    assert a.fingerprint != b.fingerprint


def test_codes_without_scales_are_an_error(tmp_path: Path) -> None:
    folder = write_qwen_checkpoint(tmp_path / "half", dtype="float32")
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    tensors[f"{name}.codes"], _ = pack(tensors.pop(name), 8)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=rf"missing: {name}.*unexpected: {name}.codes"):
        load_local(folder)
    assert json.loads((folder / "config.json").read_text())
