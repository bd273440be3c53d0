"""A real llama.cpp server on loopback, and checkpoints of the Qwen2 architecture as GGUF files for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIMIT = 180
"""Seconds after which a server ends by itself."""
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
RUN = """
import sys, threading, os, time
import xllamacpp
file, slots, context, key, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], float(sys.argv[5])
options = xllamacpp.CommonParams()
options.model.path, options.hostnames, options.port = file, ["127.0.0.1"], 0
options.n_parallel, options.n_ctx, options.use_jinja = slots, slots * context, True
options.cpuparams.n_threads = options.cpuparams_batch.n_threads = 1
options.cpuparams.poll = options.cpuparams_batch.poll = 0
options.flash_attn_type, options.fit_params = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED, False
options.cache_type_k = options.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
options.api_keys = [key] if key else []
server = xllamacpp.Server(options)
print("LISTENING", server.listening_address, flush=True)
threading.Thread(target=lambda: (time.sleep(limit), os._exit(1)), daemon=True).start()
sys.stdin.read()
os._exit(0)
"""
BLOCK = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@contextmanager
def llamacpp_server(file: Path, *, slots: int = 4, context: int = 256, key: str = "") -> Iterator[str]:
    """Run llama.cpp's server in a process of its own. Yield its address. The process ends with the block."""
    command = [sys.executable, "-c", RUN, str(file), str(slots), str(context), key, str(LIMIT)]
    log = file.with_suffix(".log").open("w")
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        for line in child.stdout:
            if line.startswith("LISTENING"):
                yield line.split()[1]
                break
        else:
            raise AssertionError(f"llama.cpp did not start: {file.with_suffix('.log').read_text()[-2000:]}")
    finally:
        child.stdin.close()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()
        log.close()


def words_tokenizer_json(*words: str, specials: tuple[str, ...] = SPECIAL) -> str:
    """A vocabulary of bytes and of these words, split as Llama 3 does. A word that is a token needs no merges.

    llama.cpp has the same rule under the name `llama-bpe`. Every word must be one piece of that split.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    from helpers.vocabulary import LLAMA_PATTERN

    spelled = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = pre_tokenizers.Split(Regex(LLAMA_PATTERN), "isolated")
    assert all(len(split.pre_tokenize_str(word)) == 1 for word in words)
    # llama.cpp wants at least one merge.
    names = [
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        "zq",
        *(spelled.pre_tokenize_str(word)[0][0] for word in words),
    ]
    vocabulary = {name: id for id, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[("z", "q")], ignore_merges=True))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence([split, spelled]), decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in specials])
    text: str = tokenizer.to_str()
    return text


def write_gguf(folder: Path, file: Path, *, kinds: dict[str, str] | None = None, pieces: Any = None) -> Path:
    """Write a Qwen2 checkpoint of transformers as GGUF, in float32, with its vocabulary and its chat template.

    `kinds` marks added tokens as `USER_DEFINED`, which llama.cpp finds in plain text, too. All others are `CONTROL`.
    `pieces` is the vocabulary as SentencePiece reads it, if it is of that kind.
    """
    from gguf import GGUFWriter, TokenType
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    layout = json.loads((folder / "tokenizer.json").read_text())
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    assert config["model_type"] == "qwen2"
    writer = GGUFWriter(str(file), "qwen2")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(float(config["rope_theta"]))
    writer.add_layer_norm_rms_eps(float(config["rms_norm_eps"]))
    if pieces is None:
        _write_vocabulary(writer, layout, config["vocab_size"], kinds or {}, TokenType)
    else:
        _write_pieces(writer, pieces, TokenType)
    writer.add_eos_token_id(_added(layout)[settings["eos_token"]])
    writer.add_add_bos_token(pieces is not None)
    writer.add_chat_template(settings["chat_template"])
    for name, tensor in load_file(folder / "model.safetensors").items():
        writer.add_tensor(_gguf_name(name), tensor.astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _added(layout: dict[str, Any]) -> dict[str, int]:
    return {token["content"]: token["id"] for token in layout["added_tokens"]}


def _write_vocabulary(writer: Any, layout: dict[str, Any], size: int, kinds: dict[str, str], types: Any) -> None:
    names = {id: name for name, id in layout["model"]["vocab"].items()}
    kind = dict.fromkeys(names, types.NORMAL)
    for name, id in _added(layout).items():
        names[id], kind[id] = name, types[kinds.get(name, "CONTROL")]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list([names.get(id, f"[UNUSED{id}]") for id in range(size)])
    writer.add_token_types([int(kind.get(id, types.UNUSED)) for id in range(size)])
    merges = [each if isinstance(each, str) else " ".join(each) for each in layout["model"]["merges"]]
    writer.add_token_merges(merges or ["z q"])


def _write_pieces(writer: Any, pieces: Any, types: Any) -> None:
    ids = range(pieces.get_piece_size())
    kinds = {types.UNKNOWN: pieces.is_unknown, types.CONTROL: pieces.is_control, types.BYTE: pieces.is_byte}
    writer.add_tokenizer_model("llama")
    writer.add_token_list([pieces.id_to_piece(id) for id in ids])
    writer.add_token_scores([pieces.get_score(id) for id in ids])
    writer.add_token_types(
        [int(next((kind for kind, is_it in kinds.items() if is_it(id)), types.NORMAL)) for id in ids]
    )
    writer.add_bos_token_id(pieces.bos_id())
    writer.add_add_space_prefix(True)


def _gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    if stem in WHOLE:
        return f"{WHOLE[stem]}.{kind}"
    _, _, number, part = stem.split(".", 3)
    return f"blk.{number}.{BLOCK[part]}.{kind}"
