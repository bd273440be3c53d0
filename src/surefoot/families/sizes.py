"""The dimensions of decoders, from which the catalog computes memory."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """The dimensions of a decoder that determine its memory."""

    hidden: int
    inner: int
    layers: int
    keys: int
    """The width of the keys, and of the values."""
    vocabulary: int

    @property
    def linear(self) -> int:
        """The number of weights in the linear layers."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.keys
        return self.layers * (attention + 3 * self.hidden * self.inner)

    @property
    def embeddings(self) -> int:
        """The number of embedding weights. The output layer has as many, but few families load it."""
        return self.vocabulary * self.hidden


QWEN_05B = Size(896, 4864, 24, 128, 151936)
QWEN_15B = Size(1536, 8960, 28, 256, 151936)
QWEN_3B = Size(2048, 11008, 36, 256, 151936)
QWEN_7B = Size(3584, 18944, 28, 512, 152064)
QWEN_72B = Size(8192, 29568, 80, 1024, 152064)
MISTRAL_7B = Size(4096, 14336, 32, 1024, 32000)
LLAMA_8B = Size(4096, 14336, 32, 1024, 128256)
LLAMA_3B = Size(3072, 8192, 28, 1024, 128256)
DEEPSEEK_7B = Size(4096, 11008, 30, 4096, 102400)
LLEMMA_7B = Size(4096, 11008, 32, 4096, 32016)
SMOLLM_16 = Size(576, 1536, 16, 192, 18_445)
CODELLAMA_34B = Size(8192, 22016, 48, 1024, 32000)
GRANITE_8B = Size(4096, 12800, 40, 1024, 49159)
QWEN_14B = Size(5120, 13824, 48, 1024, 152064)
QWEN3_8B = Size(4096, 12288, 36, 1024, 151936)
