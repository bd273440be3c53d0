"""Makes bitsandbytes believe that this CPU has AVX512-BF16, in every process with this folder in PYTHONPATH.

`PYTHONPATH=tests/avx512bf16 make test` runs the suite as such a CPU would, except for the kernel itself: on a CPU
without these instructions it would end the process.
"""

from __future__ import annotations

import ctypes

_load = ctypes.cdll.LoadLibrary


def _load_and_pretend(name: str) -> ctypes.CDLL:
    library = _load(name)
    if "libbitsandbytes" in str(name):
        library.has_avx512bf16_cpu = lambda: 1  # type: ignore[attr-defined]
    return library


ctypes.cdll.LoadLibrary = _load_and_pretend  # type: ignore[method-assign]
