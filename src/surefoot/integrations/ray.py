"""Scores batches inside pipelines of Ray Data.

Ray Data hands out the batches, repeats them after faults and writes the results, so its guarantees hold. For a job that
continues after a crash with each row exactly once, use `surefoot.bulk(..., on="ray")`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from surefoot.core.arrow import score_schema, score_table
from surefoot.core.options import DEFAULT_OPTIONS, ReadOptions
from surefoot.core.protocols import Item
from surefoot.core.result import SolutionScore
from surefoot.data.columns import Columns
from surefoot.errors import InputError, OptionError
from surefoot.rewards.source import ScorerLike, find_scorer

if TYPE_CHECKING:
    import pyarrow


class ScoreBatch:
    """Adds columns with scores to batches of Ray Data.

        scored = ds.map_batches(
            ScoreBatch,
            fn_constructor_kwargs={"model": "mini", "columns": {"question": "problem", "solution": "response"}},
            batch_format="pyarrow",
            concurrency=2,
        )

    Each actor loads the model once. `columns` says where the question and the solution are: see `Columns`. The new
    columns are those of `surefoot.to_arrow`, and their names start with `prefix`. `options` say how solutions are
    read; `load` holds options for `surefoot.load`.

    A row never raises: one that cannot be read has the status "unscored" and the reason. A model that cannot be loaded
    raises, and so does a batch without the columns. Solutions to one question share work if they are in one batch.
    """

    def __init__(
        self,
        model: ScorerLike | None = None,
        columns: Columns | Mapping[str, str] | None = None,
        *,
        prefix: str = "prm_",
        step_text: bool = False,
        options: ReadOptions = DEFAULT_OPTIONS,
        load: Mapping[str, Any] | None = None,
    ) -> None:
        self._columns = columns if isinstance(columns, Columns) else Columns(**(columns or {}))
        if self._columns.completions is not None:
            raise OptionError(
                "ScoreBatch adds columns to rows, so a row has one solution. Divide rows with several completions "
                'before (flat_map), or use surefoot.bulk(..., on="ray").'
            )
        self._prefix, self._step_text, self._options = prefix, step_text, options
        self._scorer = find_scorer(model, **(load or {}))

    def __call__(self, batch: pyarrow.Table) -> pyarrow.Table:
        """Return the batch with the columns of its scores."""
        import pyarrow as pa

        if not isinstance(batch, pa.Table):
            raise OptionError(f'A batch is {type(batch).__name__}. Pass batch_format="pyarrow" to map_batches.')
        schema = score_schema(prefix=self._prefix, step_text=self._step_text)
        if taken := [name for name in batch.column_names if name in schema.names]:
            raise OptionError(f"The data has a column {taken[0]!r}, too. Choose other names with prefix=...")
        if batch.num_columns:  # Ray Data passes empty blocks without columns
            self._columns.require(batch.column_names)
        scores = score_table(self._score(batch), prefix=self._prefix, step_text=self._step_text)
        for field, column in zip(schema, scores.columns, strict=True):
            batch = batch.append_column(field, column)
        return batch

    def _score(self, batch: pyarrow.Table) -> list[SolutionScore]:
        read = [self._read(row) for row in _rows(batch.select(self._inputs(batch)))]
        items = [each for each in read if not isinstance(each, str)]
        scores = iter(self._scorer.score_stream(items, self._options, window=max(1, len(items))))
        return [self._unscored(each) if isinstance(each, str) else next(scores) for each in read]

    def _unscored(self, reason: str) -> SolutionScore:
        scorer = self._scorer
        return SolutionScore((), scorer.name, reason=reason, scale=scorer.scale, calibration=scorer.calibration)

    def _inputs(self, batch: pyarrow.Table) -> list[str]:
        columns = self._columns
        names = [columns.question, columns.solution, columns.steps, "solution", "steps"]
        wanted = {part for name in names if name is not None for part in (name, name.partition(".")[0])}
        return [name for name in batch.column_names if name in wanted]

    def _read(self, row: dict[str, Any] | str) -> Item | str:
        """Return question and solution, or why there are none."""
        if isinstance(row, str):
            return row
        try:
            return self._columns.items(row)[0]
        except InputError as error:
            return str(error)


def _rows(table: pyarrow.Table) -> list[dict[str, Any] | str]:
    """Return rows as objects, or why one has no object: Arrow does not check that texts are UTF-8."""
    try:
        return table.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        return [_row(table.slice(at, 1)) for at in range(len(table))]


def _row(table: pyarrow.Table) -> dict[str, Any] | str:
    try:
        return table.to_pylist()[0]  # type: ignore[no-any-return]
    except UnicodeDecodeError as error:
        return f"The row contains text that is not UTF-8: {error}"
