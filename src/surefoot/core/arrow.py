"""Turns results into Arrow tables and pandas data frames.

Invariant: equal results give equal tables. A missing number is null, never NaN or 0. `seconds` is left out, because it
differs between runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from surefoot.core.aggregation import AGGREGATIONS
from surefoot.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    import pandas
    import pyarrow

BATCH_ROWS = 1000
"""Rows per record batch. Arrow's strings hold 2 GiB per batch, and the longest solution has a million characters."""


class ScoredSolution(Protocol):
    """What a table needs of a `SolutionScore`."""

    def to_dict(self) -> dict[str, Any]:
        """Returns everything as plain data."""


@dataclass(frozen=True)
class Column:
    """A column of a table. `type` is the name of an Arrow type, `list<...>` of one, `steps` or `members`."""

    name: str
    type: str
    description: str
    nullable: bool = True


MEMBER_COLUMNS = (
    Column("model", "string", "The name of the member."),
    Column("score", "double", "The member's score of the step; null if it gave none."),
    Column("reason", "string", "Why the member gave no score; null if it gave one."),
)

STEP_COLUMNS = (
    Column("text", "string", "The text of the step."),
    Column("start", "int64", "Where the step starts in the solution, in characters."),
    Column("end", "int64", "Where the step ends in the solution, in characters."),
    Column("score", "double", "The score of the step; null if it has none."),
    Column("status", "string", "scored, or why the step has no score, such as over_length, not_finite or no_verdict."),
    Column("kind", "string", "body, or answer for the closing step that states the final answer."),
    Column("raw", "double", "The model's score before calibration; null if the score is not calibrated."),
    Column("spread", "double", "Standard deviation over heads, members or votes; null if there is only one."),
    Column("members", "members", "What each member of an ensemble or each vote gave for the step; may be empty."),
    Column("label_mass", "double", "The probability of a critic's two labels together; null for other models."),
)

INDEX_COLUMN = Column("index", "int64", "Position among all pieces of the solution, including dropped empty ones.")

SOLUTION_COLUMNS = (
    Column("status", "string", "scored, partial or unscored.", nullable=False),
    Column("reason", "string", "Why a step or the whole solution is unscored; null if every step has a score."),
    *(
        Column(each.name, "double", f"Aggregation of the step scores ({each.label}); null if it is undefined.")
        for each in AGGREGATIONS.values()
        if each.in_results
    ),
    Column("first_error", "int32", "Index of the first incorrect step, -1 if there is none; null if it is unknown."),
    Column("correct_prefix", "double", "Fraction of the steps before the first incorrect one; null if it is unknown."),
    Column("answer", "string", "The final answer that the solution states."),
    Column("step_scores", "list<double>", "One score per step; null for a step without a score."),
    Column("steps", "steps", "The steps with their spans and scores."),
    Column("warnings", "list<string>", "Notes about the solution, such as text that looks like a marker."),
    Column("unscored_chars", "int64", "Number of characters that no score covers."),
    Column("tokens", "int64", "Number of prompt tokens that were read."),
    Column("generated_tokens", "int64", "Number of tokens that a critic wrote."),
    Column("calls", "int64", "Number of requests to a critic's generator."),
    Column("model", "string", "The name of the model."),
    Column("scale", "string", "What a score is: probability, margin or log_ratio."),
    Column("calibration", "string", "The name of the calibration; null if the scores are not calibrated."),
)


def score_schema(*, prefix: str = "", step_text: bool = True) -> pyarrow.Schema:
    """Returns the schema of `score_table`. Every field has a description in its metadata."""
    pa = _pyarrow()
    steps = [column for column in STEP_COLUMNS if step_text or column.name != "text"]
    return pa.schema([_field(column, steps, prefix) for column in SOLUTION_COLUMNS])


def score_table(results: Iterable[ScoredSolution], *, prefix: str = "", step_text: bool = True) -> pyarrow.Table:
    """Returns a table with one row per solution and exactly the schema `score_schema`.

    `prefix` is put in front of every column name. Without `step_text`, the steps have no texts.
    """
    pa = _pyarrow()
    schema = score_schema(prefix=prefix, step_text=step_text)
    rows = (_solution_row(result) for result in _checked(results))
    batches = [
        pa.record_batch(_arrays(some, [column.name for column in SOLUTION_COLUMNS], schema), schema=schema)
        for some in iter(lambda: list(islice(rows, BATCH_ROWS)), [])
    ]
    return pa.Table.from_batches(batches, schema)


def step_table(result: ScoredSolution) -> pyarrow.Table:
    """Returns a table with one row per step of a solution."""
    pa = _pyarrow()
    schema = pa.schema([_field(column) for column in (INDEX_COLUMN, *STEP_COLUMNS)])
    return pa.table(_arrays(result.to_dict()["steps"], schema.names, schema), schema=schema)


def to_arrow(results: Iterable[ScoredSolution]) -> pyarrow.Table:
    """Returns results as an Arrow table with one row per solution. Needs pyarrow.

    >>> results = surefoot.load("mini").score_many([("What is 2 + 3?", "2 + 3 = 6."), ("What is 2 + 3?", "")])
    >>> table = surefoot.to_arrow(results)
    >>> table.select(["status", "first_error"]).to_pylist()
    [{'status': 'scored', 'first_error': 0}, {'status': 'unscored', 'first_error': None}]

    The columns are the fields of a result and its aggregations, without `seconds`, so that equal results give equal
    tables. The metadata of each field describes it. For the steps of one solution use `SolutionScore.to_arrow`.
    """
    return score_table(results)


def to_pandas(results: Iterable[ScoredSolution]) -> pandas.DataFrame:
    """Returns results as a data frame with one row per solution. Needs pyarrow and pandas.

    >>> results = surefoot.load("mini").score_many([("What is 2 + 3?", "2 + 3 = 6."), ("What is 2 + 3?", "")])
    >>> frame = surefoot.to_pandas(results)
    >>> frame["first_error"].tolist()
    [0, <NA>]

    The columns are those of `to_arrow`, with pandas' nullable dtypes: a missing number is `pandas.NA`. Cells of list
    columns are Python lists, in which a missing number is None.
    """
    return data_frame(score_table(results))


def data_frame(table: pyarrow.Table) -> pandas.DataFrame:
    """Returns a table of this module as a data frame in which null stays null."""
    pa = _pyarrow()
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingDependencyError(
            f'A data frame needs the package pandas ({error}). Run: pip install "surefoot[bulk]" pandas'
        ) from error
    dtypes = {
        pa.string(): pd.StringDtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
    }
    # pandas would turn a list into an array in which a missing number is NaN.
    return pd.DataFrame(
        {
            name: pd.Series(column.to_pylist(), dtype=object)
            if pa.types.is_list(column.type)
            else column.to_pandas(types_mapper=dtypes.get)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise MissingDependencyError(
            f'An Arrow table needs the package pyarrow ({error}). Run: pip install "surefoot[bulk]"'
        ) from error
    return pyarrow


def _field(column: Column, steps: Iterable[Column] = (), prefix: str = "") -> Any:
    pa = _pyarrow()
    if column.type in ("steps", "members"):
        inner = steps if column.type == "steps" else MEMBER_COLUMNS
        kind = pa.list_(pa.struct([_field(each) for each in inner]))
    elif column.type.startswith("list<"):
        kind = pa.list_(pa.type_for_alias(column.type[len("list<") : -1]))
    else:
        kind = pa.type_for_alias(column.type)
    return pa.field(prefix + column.name, kind, column.nullable, {"description": column.description})


def _arrays(rows: list[dict[str, Any]], names: Iterable[str], schema: Any) -> list[Any]:
    """Returns one array per field. `from_pandas` makes NaN null."""
    pa = _pyarrow()
    return [
        pa.array([row[name] for row in rows], field.type, from_pandas=True)
        for name, field in zip(names, schema, strict=True)
    ]


def _solution_row(result: ScoredSolution) -> dict[str, Any]:
    data = result.to_dict()
    return data | {"step_scores": [step["score"] for step in data["steps"]]}


def _checked(results: Iterable[ScoredSolution]) -> Iterator[ScoredSolution]:
    if not isinstance(results, Iterable):
        raise InputError(
            f"Expected a list of results, got {type(results).__name__}. For the steps of one result call its method "
            "to_arrow() or to_pandas()."
        )
    return iter(results)
