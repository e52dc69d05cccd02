"""Three numbers of a cluster, fitted to measured iterations.

What is fitted, by least squares on the logarithm of predicted over measured time:

- **efficiency**: the share of its peak rate and of its memory bandwidth that the device reaches;
- **kernel_seconds**: the least time of a kernel, which makes small microbatches and thin shards
  less efficient than large ones;
- **exposure**: the share of all communication that shows, which also makes up for bandwidths that
  are not what the cluster says.

Every measured iteration becomes a problem and an explicit plan, priced by
:func:`nest_opt.evaluate.evaluate`: blocks split evenly over the stages, the embedding with the
first stage and the head with the last, every layer recomputed, 1F1B, gradients of 2 bytes reduced
over the replicas, no sequence parallelism; devices in the order tensor, data, pipeline (Narayanan
et al. 2021, arXiv 2104.04473, section 3). Each of the t devices of a stage sends a t-th of what
stages exchange (their section 4.1), which enters as exposure / t for transfers; gathering it again
in the node is neglected.

The search is Gauss-Newton on the logarithms of the three numbers, from a fixed start and with
Broyden's update of the slopes: the same numbers come out wherever it runs, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from nest_opt.compile import compile_problem
from nest_opt.errors import Complaint, InputError, NestOptError
from nest_opt.evaluate import evaluate
from nest_opt.files import read_rows
from nest_opt.plan import Plan, StagePlan, Template
from nest_opt.problem import (
    Cluster,
    ConfigModel,
    CostModel,
    Device,
    Exposed,
    Level,
    Problem,
    Search,
    Training,
    Units,
)
from nest_opt.record import Record

#: Words of the measured GPT models: GPT-2's 50257, padded as in Megatron-LM.
VOCABULARY = 51200

#: Called with the number of iterations priced, how many are expected (0: unknown), and a label.
Progress = Callable[[int, int, str], None]


class Measurement(Record):
    """One measured iteration of a GPT model."""

    parameters_billion: float = Field(gt=0, le=1e6)
    devices: int = Field(ge=1, le=2**20)
    global_batch: int = Field(ge=1, le=10**7)
    microbatch: int = Field(ge=1, le=10**6)
    hidden_size: int = Field(ge=1, le=10**6)
    attention_heads: int = Field(ge=1, le=10**5)
    layers: int = Field(ge=1, le=4000)
    sequence_length: int = Field(ge=1, le=10**6)
    tensor: int = Field(ge=1, le=2**20)
    data: int = Field(ge=1, le=2**20)
    pipeline: int = Field(ge=1, le=4000)
    iteration_milliseconds: float = Field(gt=0, le=1e12)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        used = self.tensor * self.data * self.pipeline
        if used > self.devices:
            raise ValueError(
                f"tensor * data * pipeline is {used}, more than the {self.devices} devices"
            )
        if self.pipeline > self.layers:
            raise ValueError(f"{self.pipeline} stages for {self.layers} layers")
        return self

    @property
    def seconds(self) -> float:
        """The measured time of one iteration."""
        return self.iteration_milliseconds / 1000

    @property
    def model(self) -> str:
        """Iterations of one model compare with each other."""
        return f"{self.parameters_billion:g}B"

    @property
    def label(self) -> str:
        """The configuration in a word."""
        return f"t{self.tensor} d{self.data} p{self.pipeline} b{self.microbatch}"


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """Measured iterations from a CSV file with the fields of :class:`Measurement` as columns.

    Raises :class:`InputError`, listing everything that is wrong.
    """
    columns = {
        name: (float if field.annotation is float else int, False)
        for name, field in Measurement.model_fields.items()
    }
    complaints: list[Complaint] = []
    rows = []
    for number, cells in enumerate(read_rows(path, columns), 1):
        try:
            rows.append(Measurement.model_validate(cells))
        except ValidationError as error:
            for item in error.errors():
                where = ".".join(["", *map(str, item["loc"])])
                text = item["msg"].removeprefix("Value error, ")
                complaints.append(Complaint(f"row {number}{where}", text))
    if complaints:
        raise InputError(str(path), complaints)
    if not rows:
        raise InputError(str(path), "has no rows")
    return tuple(rows)


class Numbers(NamedTuple):
    """What is fitted."""

    efficiency: float
    kernel_seconds: float
    exposure: float


#: Where the search starts.
START = Numbers(0.7, 1e-4, 0.8)
#: What the numbers may be: shares at most 1, a kernel between 10 ns and 10 ms.
LEAST = Numbers(0.01, 1e-8, 0.01)
MOST = Numbers(1.0, 1e-2, 1.0)
#: Relative step of the difference quotients, and the relative gain that is worth another step.
_STEP, _CONVERGED = 0.02, 1e-4
_ITERATIONS, _HALVINGS = 30, 4
#: Fine enough for smooth prices; fixed, so that no time goes into choosing units.
_UNITS = Units(tick_seconds=1e-8, quantum_bytes=2**20, synchronisation_multiple_ticks=1)


# --- one measured iteration as a problem and a plan -----------------------------------------------


def fitted_device(device: Device, numbers: Numbers) -> Device:
    """``device`` with the fitted numbers that belong to it."""
    return device.model_copy(
        update={
            "matmul_efficiency": numbers.efficiency,
            "memory_efficiency": numbers.efficiency,
            "kernel_seconds": numbers.kernel_seconds,
        }
    )


def cluster_of(cluster: Cluster, devices: int) -> Cluster:
    """``cluster`` with another number of devices: inner levels stay, the outermost one gives way.

    Raises :class:`InputError` where ``devices`` does not fill the inner levels.
    """
    if not cluster.levels:
        raise InputError(cluster.name, "has no levels to resize; fit needs a cluster with levels")
    levels: list[Level] = []
    left = devices
    for level in cluster.levels[:-1]:
        size = min(level.size, left)
        if left % size:
            raise InputError(
                cluster.name, f"{devices} devices do not fill its levels of {level.size}"
            )
        levels.append(level.model_copy(update={"size": size}))
        left //= size
    levels.append(cluster.levels[-1].model_copy(update={"size": left}))
    return cluster.model_copy(update={"devices": devices, "levels": tuple(levels)})


def problem_of(row: Measurement, cluster: Cluster, numbers: Numbers) -> Problem:
    """The problem whose search space holds the measured configuration alone."""
    resized = cluster_of(cluster, row.devices)
    config = {
        "model_type": "gpt2",
        "n_embd": row.hidden_size,
        "n_head": row.attention_heads,
        "n_layer": row.layers,
        "n_positions": row.sequence_length,
        "vocab_size": VOCABULARY,
    }
    exposed = Exposed(
        collectives=numbers.exposure,
        transfers=numbers.exposure / row.tensor,
        synchronisation=numbers.exposure,
    )
    return Problem(
        name=f"{row.model} {row.label}",
        model=ConfigModel(
            kind="config", name=row.model, sequence_length=row.sequence_length, config=config
        ),
        cluster=resized.model_copy(update={"device": fitted_device(cluster.device, numbers)}),
        training=Training(global_batch=row.global_batch, cost_model=CostModel(exposed=exposed)),
        search=Search(
            microbatch=(row.microbatch,),
            tensor=(row.tensor,),
            sequence_parallel=(False,),
            data_parallel=(row.data,),
            stages=(row.pipeline,),
            recomputation=("layer",),
            zero=(0,),
            layouts=("data-inner",),
        ),
        units=_UNITS,
    )


def plan_of(row: Measurement) -> Plan:
    """The measured plan: even stages, longer ones first; tensor, data, pipeline."""
    width, replicas, stages = row.tensor, row.data, row.pipeline
    each, longer = divmod(row.layers, stages)
    bounds = [0]
    for j in range(stages):
        bounds.append(bounds[-1] + each + (j < longer) + (j == 0) + (j == stages - 1))
    made = []
    for j in range(stages):
        offset = replicas * width * (stages - 1 - j)
        made.append(
            StagePlan(
                layers=(bounds[j], bounds[j + 1]),
                recomputation="layer",
                devices=tuple(
                    tuple(range(offset + r * width, offset + (r + 1) * width))
                    for r in range(replicas)
                ),
            )
        )
    return Plan(
        microbatch=row.microbatch,
        replicas=replicas,
        microbatches=-(-row.global_batch // (replicas * row.microbatch)),
        layout="data-inner",
        template=Template(width),
        stages=tuple(made),
    )


def predicted_seconds(row: Measurement, cluster: Cluster, numbers: Numbers) -> float:
    """The price of a measured configuration, memory disregarded.

    Raises :class:`NestOptError` where it has none.
    """
    try:
        compiled = compile_problem(problem_of(row, cluster, numbers))
        ticks = evaluate(compiled, plan_of(row)).require_price()
    except InputError:
        raise
    except NestOptError as error:
        raise InputError(f"{row.model} {row.label}", str(error)) from None
    return float(ticks * compiled.tick_seconds)


# --- the fit --------------------------------------------------------------------------------------


class _Pricer:
    """Prices rows, remembers what it priced, and says how far it is."""

    def __init__(self, cluster: Cluster, progress: Progress | None) -> None:
        self._cluster, self._progress, self._count = cluster, progress, 0
        self._known: dict[tuple[Measurement, Numbers], float] = {}

    def __call__(self, rows: Sequence[Measurement], numbers: Numbers) -> np.ndarray[Any, Any]:
        """Predicted seconds."""
        return np.array([self._one(row, numbers) for row in rows])

    def _one(self, row: Measurement, numbers: Numbers) -> float:
        key = (row, numbers)
        if key not in self._known:
            self._known[key] = predicted_seconds(row, self._cluster, numbers)
            self._count += 1
            if self._progress:
                self._progress(self._count, 0, "iterations priced")
        return self._known[key]

    def residuals(self, rows: Sequence[Measurement], numbers: Numbers) -> np.ndarray[Any, Any]:
        """Logarithms of predicted over measured time."""
        measured = [row.seconds for row in rows]
        return np.array([log(p / m) for p, m in zip(self(rows, numbers), measured, strict=True)])


def _clipped(logs: Sequence[float]) -> Numbers:
    """Numbers from their logarithms, within bounds, to six significant digits."""
    return Numbers(
        *(
            float(f"{min(max(exp(x), low), high):.6g}")
            for x, low, high in zip(logs, LEAST, MOST, strict=True)
        )
    )


def _slopes(
    pricer: _Pricer,
    rows: Sequence[Measurement],
    here: Numbers,
    residuals: np.ndarray[Any, Any],
) -> np.ndarray[Any, Any]:
    """Difference quotients of the residuals by the logarithm of each number (rows x numbers).

    Differences go down, so that a number at its upper bound still has a slope.
    """
    logs = [log(x) for x in here]
    columns = []
    for k in range(len(here)):
        moved = _clipped([x - _STEP * (i == k) for i, x in enumerate(logs)])
        width = logs[k] - log(moved[k])
        change = residuals - pricer.residuals(rows, moved)
        columns.append(change / width if width else np.zeros(len(rows)))
    return np.column_stack(columns)


def _step(
    slopes: np.ndarray[Any, Any], residuals: np.ndarray[Any, Any], here: Numbers
) -> np.ndarray[Any, Any]:
    """The Gauss-Newton step in logarithms; a number that would leave its bounds is held."""
    step = np.linalg.lstsq(slopes, -residuals, rcond=None)[0]
    held = [
        k
        for k, x in enumerate(here)
        if (x >= MOST[k] and step[k] > 0) or (x <= LEAST[k] and step[k] < 0)
    ]
    if held:
        free = slopes.copy()
        free[:, held] = 0
        step = np.linalg.lstsq(free, -residuals, rcond=None)[0]
    return np.asarray(np.clip(step, -1, 1))


def _search(
    pricer: _Pricer,
    rows: Sequence[Measurement],
    here: Numbers,
    slopes: np.ndarray[Any, Any] | None = None,
) -> tuple[Numbers, np.ndarray[Any, Any]]:
    """The numbers with the least squares, and the slopes there, from ``here`` on.

    Slopes are carried along by Broyden's update and taken anew where they no longer help; the
    search ends when fresh ones do not help either. ``slopes`` given count as fresh.
    """
    residuals = pricer.residuals(rows, here)
    fresh = slopes is not None
    for _ in range(_ITERATIONS):
        if slopes is None:
            slopes, fresh = _slopes(pricer, rows, here, residuals), True
        step = _step(slopes, residuals, here)
        before = float(residuals @ residuals)
        gain = 0.0
        for _ in range(_HALVINGS if fresh else 1):
            there = _clipped([log(x) + float(d) for x, d in zip(here, step, strict=True)])
            new = pricer.residuals(rows, there)
            gain = before - float(new @ new)
            if gain > 0:
                break
            step = step / 2
        if gain > 0:
            moved = np.array([log(b / a) for a, b in zip(here, there, strict=True)])
            miss = new - residuals - slopes @ moved
            slopes = slopes + np.outer(miss, moved) / float(moved @ moved)
            here, residuals = there, new
        if gain <= _CONVERGED * before:
            if fresh:
                break
            slopes = None
        else:
            fresh = False
    return here, slopes if slopes is not None else _slopes(pricer, rows, here, residuals)


# --- how good it is -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelErrors:
    """How the prices of one model's configurations compare with its measurements.

    ``rank_correlation`` is Spearman's, None for fewer than two different times. ``regret`` is how
    much slower than the fastest measured configuration the one is that has the lowest price.
    """

    model: str
    rows: int
    mean_absolute_error: float
    rank_correlation: float | None
    chosen: str
    regret: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "model": self.model,
            "rows": self.rows,
            "mean_absolute_error": self.mean_absolute_error,
            "rank_correlation": self.rank_correlation,
            "chosen": self.chosen,
            "regret": self.regret,
        }


@dataclass(frozen=True)
class Errors:
    """Errors of all rows and of each model; shares, not per cent."""

    mean_absolute_error: float
    mean_rank_correlation: float | None
    largest_regret: float
    models: tuple[ModelErrors, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "mean_absolute_error": self.mean_absolute_error,
            "mean_rank_correlation": self.mean_rank_correlation,
            "largest_regret": self.largest_regret,
            "models": [model.to_dict() for model in self.models],
        }


@dataclass(frozen=True)
class Fit:
    """A fit: its numbers, the prices of the rows, and how far they are off.

    ``held_out`` has the errors of each model priced with numbers fitted to all other models, and
    ``held_out_numbers`` those numbers; both None without cross-validation.
    """

    cluster: str
    device: Device
    numbers: Numbers
    rows: tuple[Measurement, ...]
    predicted: tuple[float, ...]
    errors: Errors
    held_out: Errors | None = None
    held_out_numbers: tuple[tuple[str, Numbers], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        cross = None
        if self.held_out is not None:
            cross = {
                "errors": self.held_out.to_dict(),
                "numbers": {model: n._asdict() for model, n in self.held_out_numbers},
            }
        return {
            "cluster": self.cluster,
            "device": self.device.model_dump(mode="json", exclude_none=True),
            "fitted": self.numbers._asdict(),
            "errors": self.errors.to_dict(),
            "cross_validation": cross,
            "rows": [
                {
                    "model": row.model,
                    "configuration": row.label,
                    "measured_seconds": row.seconds,
                    "predicted_seconds": seconds,
                }
                for row, seconds in zip(self.rows, self.predicted, strict=True)
            ],
        }


def fit(
    rows: Iterable[Measurement],
    cluster: Cluster,
    cross_validate: bool = False,
    progress: Progress | None = None,
) -> Fit:
    """Fit the three numbers of a cluster to measured iterations.

    ``cluster`` gives network, memory and nominal rates; its outermost level is resized to the
    devices of each row. Raises :class:`InputError` for rows that cannot be priced.
    """
    rows = tuple(rows)
    pricer = _Pricer(cluster, progress)
    numbers, slopes = _search(pricer, rows, START)
    predicted = tuple(float(x) for x in pricer(rows, numbers))
    made = Fit(
        cluster=cluster.name,
        device=fitted_device(cluster.device, numbers),
        numbers=numbers,
        rows=rows,
        predicted=predicted,
        errors=errors_of(rows, predicted),
    )
    return _cross_validated(made, pricer, slopes) if cross_validate else made


def _cross_validated(made: Fit, pricer: _Pricer, slopes: np.ndarray[Any, Any]) -> Fit:
    models = tuple(dict.fromkeys(row.model for row in made.rows))
    if len(models) < 2:
        raise InputError("fit", "cross-validation needs the iterations of two models or more")
    held = []
    prices: dict[int, float] = {}
    for model in models:
        kept = [i for i, row in enumerate(made.rows) if row.model != model]
        rest = [made.rows[i] for i in kept]
        numbers, _ = _search(pricer, rest, made.numbers, slopes[kept])
        held.append((model, numbers))
        for i, row in enumerate(made.rows):
            if row.model == model:
                prices[i] = float(pricer([row], numbers)[0])
    predicted = [prices[i] for i in range(len(made.rows))]
    return replace(made, held_out=errors_of(made.rows, predicted), held_out_numbers=tuple(held))


def errors_of(rows: Sequence[Measurement], predicted: Sequence[float]) -> Errors:
    """Errors of predicted seconds, over all rows and by model."""
    by_model: dict[str, list[tuple[Measurement, float]]] = {}
    for row, seconds in zip(rows, predicted, strict=True):
        by_model.setdefault(row.model, []).append((row, seconds))
    models = tuple(_model_errors(model, pairs) for model, pairs in by_model.items())
    ranks = [m.rank_correlation for m in models if m.rank_correlation is not None]
    return Errors(
        mean_absolute_error=sum(m.mean_absolute_error * m.rows for m in models) / len(rows),
        mean_rank_correlation=sum(ranks) / len(ranks) if ranks else None,
        largest_regret=max(m.regret for m in models),
        models=models,
    )


def _model_errors(model: str, pairs: Sequence[tuple[Measurement, float]]) -> ModelErrors:
    measured = [row.seconds for row, _ in pairs]
    predicted = [seconds for _, seconds in pairs]

    def order(pair: tuple[Measurement, float]) -> tuple[float, ...]:
        """Lowest price first, then as the solver breaks ties."""
        row, seconds = pair
        used = row.tensor * row.data * row.pipeline
        return (seconds, used, row.pipeline, row.data, row.microbatch, row.tensor)

    chosen, _ = min(pairs, key=order)
    return ModelErrors(
        model=model,
        rows=len(pairs),
        mean_absolute_error=sum(abs(p / m - 1) for p, m in zip(predicted, measured, strict=True))
        / len(pairs),
        rank_correlation=rank_correlation(predicted, measured),
        chosen=chosen.label,
        regret=chosen.seconds / min(measured) - 1,
    )


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation, equal values sharing their mean rank; None if one is constant.

    >>> rank_correlation([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    """
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    a, b = _ranks(first), _ranks(second)
    middle = (len(a) + 1) / 2
    joint = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    spread = sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b)
    return float(joint / spread**0.5)


def _ranks(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value for other in values) + (values.count(value) + 1) / 2
        for value in map(float, values)
    ]
