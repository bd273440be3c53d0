"""Learning with the weights as they will be stored.

The rule: while gradients are computed, every weight that the file will hold in few bits has the value that will be read
back; afterwards it is again what it was, and the optimiser moves that. So the model learns to live with the rounding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from surefoot.train.export import as_stored


class Rounding:
    """The rounding of one model's weights to the format `dtype`; without a format, none."""

    def __init__(self, model: nn.Module, dtype: str | None) -> None:
        self._model, self._dtype = model, dtype
        self._frozen: dict[str, Tensor] = {}
        """Rounded weights that do not learn."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Inside, the weights are rounded."""
        if self._dtype is None:
            yield
            return
        own = {name: parameter.data for name, parameter in self._model.named_parameters()}
        try:
            for name, parameter in self._model.named_parameters():
                parameter.data = self._rounded(name, parameter)
            yield
        finally:
            for name, parameter in self._model.named_parameters():
                parameter.data = own[name]

    def _rounded(self, name: str, parameter: nn.Parameter) -> Tensor:
        if name in self._frozen:
            return self._frozen[name]
        found = as_stored({name: parameter.data}, self._dtype or "float32")[name]
        if not parameter.requires_grad:
            self._frozen[name] = found
        return found
