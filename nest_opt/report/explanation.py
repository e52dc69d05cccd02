"""Where a plan's memory and time go, what binds, and what would help where it does not fit."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from nest_opt.compile import Compiled, compile_problem
from nest_opt.evaluate import Evaluation, Evaluator
from nest_opt.plan import RECOMPUTATIONS, Plan
from nest_opt.problem import Problem, exact

#: What a device holds besides, and what a step takes besides; the reserve has to cover the first.
NOT_MODELLED = (
    "fragmentation and caching of the allocator",
    "communication buffers (NCCL, all-to-all staging, pipeline receive buffers)",
    "the CUDA context, libraries and kernels",
    "temporary copies of an optimizer step",
)


@dataclass(frozen=True)
class StageMemory:
    """Bytes of each component on each device of a stage; the last two are what is left.

    ``activations`` is what all microbatches in flight leave behind, ``working`` what the one being
    worked on needs besides, ``gather`` the full weights of the largest layer under ZeRO 3. ``free``
    is negative where the stage does not fit.
    """

    weights: int
    gradients: int
    optimizer: int
    activations: int
    working: int
    gather: int
    reserve: int
    free: int

    @property
    def used(self) -> int:
        """Bytes of everything that the stage itself needs."""
        return (
            self.weights
            + self.gradients
            + self.optimizer
            + self.activations
            + self.working
            + self.gather
        )

    def to_dict(self) -> dict[str, int]:
        """JSON-ready form, in bytes."""
        return {
            "weights_bytes": self.weights,
            "gradients_bytes": self.gradients,
            "optimizer_bytes": self.optimizer,
            "activations_bytes": self.activations,
            "working_bytes": self.working,
            "gather_bytes": self.gather,
            "used_bytes": self.used,
            "reserve_bytes": self.reserve,
            "free_bytes": self.free,
        }


@dataclass(frozen=True)
class Remedy:
    """One change that makes one stage fit, all else as it is, and what it makes of T.

    ``searched`` says whether the problem's search lists hold the choice.
    """

    stage: int
    recomputation: str
    zero: int
    memory_bytes: int
    batch_ticks: int
    searched: bool

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return dict(vars(self))


@dataclass(frozen=True)
class Explanation:
    """Where memory and time of a plan go.

    ``stages`` has the memory of each stage; loads and synchronisation by component are in
    ``evaluation``. ``tightest`` is the stage with the least free memory, None without a price, as
    for :class:`nest_opt.evaluate.Evaluation`. ``remedies`` has for each stage that does not fit the
    choice under which it does and the batch takes least, if there is one; ``all_fit_ticks`` is T
    with all of them, None if some stage has none. ``needed_bytes`` is the device memory with which
    the plan would fit as it is, the same share of it reserved.
    """

    evaluation: Evaluation
    device_bytes: int
    reserve_bytes: int
    stages: tuple[StageMemory, ...]
    tightest: int | None
    remedies: tuple[Remedy, ...]
    all_fit_ticks: int | None
    needed_bytes: int | None

    @property
    def pipeline_share(self) -> float | None:
        """The share of T that is (m + s - 1) tau; the rest is synchronisation."""
        evaluation = self.evaluation
        if not evaluation.batch_ticks or evaluation.sigma_ticks is None:
            return None
        return 1 - evaluation.sigma_ticks / evaluation.batch_ticks

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form: bytes and ticks."""
        return {
            "evaluation": self.evaluation.to_dict(),
            "device_memory_bytes": self.device_bytes,
            "reserve_bytes": self.reserve_bytes,
            "memory": [stage.to_dict() for stage in self.stages],
            "tightest_stage": self.tightest,
            "pipeline_share": self.pipeline_share,
            "needed_device_memory_bytes": self.needed_bytes,
            "remedies": [remedy.to_dict() for remedy in self.remedies],
            "batch_ticks_with_all_remedies": self.all_fit_ticks,
            "not_modelled": list(NOT_MODELLED),
        }


def explain(problem: Problem, plan: Plan) -> Explanation:
    """Where memory and time of ``plan`` go, and what would help where it does not fit.

    Raises what :func:`nest_opt.compile.compile_problem` raises.

    >>> from nest_opt import load_problem, solve
    >>> problem = load_problem("worked-example-160")
    >>> explanation = explain(problem, solve(problem).plan)
    >>> [stage.free // 2**20 for stage in explanation.stages], explanation.tightest
    ([8, 40], 0)
    """
    compiled = compile_problem(problem)
    evaluator = Evaluator(compiled)
    evaluation = evaluator.evaluate(plan)
    device = problem.cluster.device.memory_bytes
    limit = evaluation.memory_limit_bytes
    usable_share = 1 - exact(problem.training.reserve_fraction)
    quantum = compiled.quantum_bytes
    stages = []
    for stage in evaluation.stages:
        held = stage.memory_parts_quanta
        stages.append(
            StageMemory(
                weights=held.weights * quantum,
                gradients=held.gradients * quantum,
                optimizer=held.optimizer * quantum,
                activations=held.activations * quantum,
                working=held.working * quantum,
                gather=held.gather * quantum,
                reserve=device - limit,
                free=limit - stage.memory_bytes,
            )
        )
    over = [j for j, stage in enumerate(stages) if stage.free < 0]
    remedies = [r for j in over if (r := _remedy(compiled, evaluator, plan, j))]
    all_fit = None
    if over and len(remedies) == len(over):
        mended = plan
        for remedy in remedies:
            mended = _changed(mended, remedy.stage, remedy.recomputation, remedy.zero)
        evaluated = evaluator.evaluate(mended)
        all_fit = evaluated.batch_ticks if evaluated.feasible else None
    return Explanation(
        evaluation=evaluation,
        device_bytes=device,
        reserve_bytes=device - limit,
        stages=tuple(stages),
        tightest=min(range(len(stages)), key=lambda j: stages[j].free) if stages else None,
        remedies=tuple(remedies),
        all_fit_ticks=all_fit,
        needed_bytes=ceil(max(stage.used for stage in stages) / usable_share) if stages else None,
    )


def _changed(plan: Plan, stage: int, recomputation: str, zero: int) -> Plan:
    """The plan with another choice at one stage, and without claims about it."""
    update = {
        "recomputation": recomputation,
        "zero": zero,
        "load_ticks": None,
        "memory_bytes": None,
    }
    stages = tuple(
        s.model_copy(update=update) if j == stage else s for j, s in enumerate(plan.stages)
    )
    return plan.model_copy(update={"stages": stages})


def _remedy(compiled: Compiled, evaluator: Evaluator, plan: Plan, stage: int) -> Remedy | None:
    """The choice with which a stage fits: searched ones first, then the shortest batch."""
    search = compiled.search
    kinds = RECOMPUTATIONS
    if compiled.cost_model.recomputation == "backward_again":
        kinds = ("none", "stage")
    found = []
    for recomputation in kinds:
        for zero in range(4):
            evaluated = evaluator.evaluate(_changed(plan, stage, recomputation, zero))
            memory = evaluated.stages[stage].memory_bytes
            if memory <= evaluated.memory_limit_bytes and evaluated.batch_ticks is not None:
                searched = recomputation in search.recomputation and zero in search.zero
                found.append(
                    Remedy(stage, recomputation, zero, memory, evaluated.batch_ticks, searched)
                )
    return min(found, key=lambda r: (not r.searched, r.batch_ticks), default=None)
