"""Every plan of a tiny problem, one after the other, priced by the evaluator.

The list of plans and the order among plans of equal batch time are stated here once more, from the
placement model alone, so that a search and a certificate can be checked against something that has
nothing in common with them.

A plan is: a microbatch size b, a template (t, c, e, sequence-parallel or not) of width
w = t * c * e, d replicas, s stages, a layout in which they fit on N devices,

- ``pipeline-inner``: s * w <= floor(N / d), stage j of replica r at r * floor(N / d) + o_j,
- ``data-inner``: d * s * w <= N, stage j of replica r at d * o_j + r * w,

with o_j = w * (s - 1 - j), a split of the L layers into s non-empty runs, and for each stage a kind
of recomputation and a ZeRO stage. Where the two layouts use the same devices, both are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, product
from math import comb
from typing import Any

from nest_opt.compile import Compiled
from nest_opt.errors import InputError
from nest_opt.evaluate import Evaluation, Evaluator
from nest_opt.plan import Layout, Plan, StagePlan, Template

_LAYOUT_RANK = {"pipeline-inner": 0, "data-inner": 1, "explicit": 2}
_RECOMPUTATION_RANK = {"none": 0, "selective": 1, "layer": 2, "stage": 3}


@dataclass(frozen=True)
class Best:
    """What enumeration found: the reference plan, or None if no plan is feasible.

    ``plans`` is how many were priced, ``feasible`` how many of them were feasible.
    """

    plan: Plan | None
    evaluation: Evaluation | None
    plans: int
    feasible: int


@dataclass(frozen=True)
class _Frame:
    """Everything about a plan but its stage boundaries and the choices of each stage."""

    microbatch: int
    template: Template
    replicas: int
    stages: int
    layout: Layout

    def devices(self, count: int, stage: int) -> tuple[tuple[int, ...], ...]:
        """Devices of each replica of a stage on ``count`` devices."""
        width = self.template.width
        offset = width * (self.stages - 1 - stage)
        if self.layout == "pipeline-inner":
            starts = [r * (count // self.replicas) + offset for r in range(self.replicas)]
        else:
            starts = [self.replicas * offset + r * width for r in range(self.replicas)]
        return tuple(tuple(range(start, start + width)) for start in starts)


def _templates(compiled: Compiled) -> Iterator[Template]:
    """The templates of the search space that are valid for the model."""
    search = compiled.search
    skipped = {template for template, _ in compiled.skipped}
    for t, c, e in product(search.tensor, search.context, search.expert):
        # Sequence parallelism requires t > 1; elsewhere there is nothing to choose.
        for sequence_parallel in search.sequence_parallel if t > 1 else (False,):
            template = Template(t, c, e, sequence_parallel)
            if template not in skipped:
                yield template


def _replicas(compiled: Compiled, microbatch: int, expert: int) -> list[int]:
    """The data-parallel degrees: a list, or all (that divide evenly) up to the largest of use."""
    allowed, batch, together = (
        compiled.search.data_parallel,
        compiled.global_batch,
        microbatch * expert,
    )
    if isinstance(allowed, tuple):
        return list(allowed)
    most = min(compiled.devices, -(-batch // together))
    return [d for d in range(1, most + 1) if allowed == "any" or batch % (d * together) == 0]


def _frames(compiled: Compiled) -> Iterator[_Frame]:
    """Every frame that fits on the devices."""
    search, count, layers = compiled.search, compiled.devices, compiled.layer_count
    for microbatch, template in product(search.microbatch, _templates(compiled)):
        for d in _replicas(compiled, microbatch, template.expert):
            for s in range(1, layers + 1):
                if search.stages != "any" and s not in search.stages:
                    continue
                for layout in search.layouts:
                    if layout == "pipeline-inner":
                        fits = s * template.width <= count // d
                    else:
                        fits = d * s * template.width <= count
                    if fits:
                        yield _Frame(microbatch, template, d, s, layout)


def count_plans(compiled: Compiled) -> int:
    """How many plans the search space has, feasible or not, without listing them.

    A frame of s stages has C(L - 1, s - 1) splits, and each stage its own choices.
    O(microbatches * templates * degrees * layers).

    >>> from nest_opt.compile import compile_problem
    >>> from nest_opt.library import load_problem
    >>> count_plans(compile_problem(load_problem("worked-example-160")))
    456
    """
    choices = len(compiled.search.recomputation) * len(compiled.search.zero)
    return sum(
        comb(compiled.layer_count - 1, frame.stages - 1) * choices**frame.stages
        for frame in _frames(compiled)
    )


def all_plans(compiled: Compiled) -> Iterator[Plan]:
    """Every plan of the search space, feasible or not, each once, in no order that means anything.

    Plans carry the problem's digest and make no claims.
    """
    search, count = compiled.search, compiled.layer_count
    choices = tuple(product(search.recomputation, search.zero))
    for frame in _frames(compiled):
        microbatches = compiled.microbatches(
            frame.microbatch, frame.replicas, frame.template.expert
        )
        devices = [frame.devices(compiled.devices, j) for j in range(frame.stages)]
        # Plans are values that were just listed from a validated problem: no second validation.
        made: dict[tuple[Any, ...], StagePlan] = {}
        for inner in combinations(range(1, count), frame.stages - 1):
            runs = tuple(pairwise((0, *inner, count)))
            options = [
                [
                    _stage(made, (j, run, recomputation, zero), devices[j])
                    for recomputation, zero in choices
                ]
                for j, run in enumerate(runs)
            ]
            for stages in product(*options):
                yield Plan.model_construct(
                    digest=compiled.digest,
                    microbatch=frame.microbatch,
                    replicas=frame.replicas,
                    microbatches=microbatches,
                    layout=frame.layout,
                    template=frame.template,
                    stages=stages,
                )


def _stage(
    made: dict[tuple[Any, ...], StagePlan],
    key: tuple[Any, ...],
    devices: tuple[tuple[int, ...], ...],
) -> StagePlan:
    if key not in made:
        _, run, recomputation, zero = key
        made[key] = StagePlan.model_construct(
            layers=run, recomputation=recomputation, zero=zero, devices=devices
        )
    return made[key]


def preference(evaluation: Evaluation, plan: Plan) -> tuple[Any, ...]:
    """What plans are compared by: the smaller key is the better plan. Total on a search space.

    In this order: batch time; sum over the stages of their largest load; devices used; stages; d;
    b; t; c; e; without before with sequence parallelism; ``pipeline-inner`` before ``data-inner``
    (before explicit lists); earlier stage ends; weaker recomputation; lower ZeRO stage, the last
    three as lists from stage 0 on. Raises :class:`nest_opt.errors.PlanError` for a plan without a
    price. It does not look at feasibility.
    """
    return (
        evaluation.require_price(),
        evaluation.total_load_ticks,
        evaluation.devices_used,
        len(plan.stages),
        plan.replicas,
        plan.microbatch,
        plan.template.tensor,
        plan.template.context,
        plan.template.expert,
        plan.template.sequence_parallel,
        _LAYOUT_RANK[plan.layout],
        tuple(stage.layers[1] for stage in plan.stages),
        tuple(_RECOMPUTATION_RANK[stage.recomputation] for stage in plan.stages),
        tuple(stage.zero for stage in plan.stages),
    )


def best_plan(
    compiled: Compiled, limit: int | None = None, evaluator: Evaluator | None = None
) -> Best:
    """The reference plan: the feasible plan that is first in :func:`preference`.

    ``limit`` is the largest number of plans to price; with more, nothing is priced and
    :class:`nest_opt.errors.InputError` is raised. ``evaluator`` is one to reuse, of the same
    problem.

    >>> from nest_opt.compile import compile_problem
    >>> from nest_opt.library import load_problem
    >>> best = best_plan(compile_problem(load_problem("worked-example-110")), limit=1000)
    >>> best.evaluation.batch_ticks, [stage.recomputation for stage in best.plan.stages]
    (584, ['layer', 'layer'])
    """
    if limit is not None:
        count = count_plans(compiled)
        if count > limit:
            raise InputError(
                compiled.name,
                f"has {count} plans, more than the limit of {limit}; raise the limit, or shorten "
                "the lists of the search space",
            )
    evaluator = evaluator or Evaluator(compiled)
    best_key: tuple[Any, ...] | None = None
    best: tuple[Plan, Evaluation] | None = None
    plans = feasible = 0
    for plan in all_plans(compiled):
        plans += 1
        evaluation = evaluator.evaluate(plan)
        if not evaluation.feasible:
            continue
        feasible += 1
        if best_key is not None and evaluation.require_price() > best_key[0]:
            continue
        key = preference(evaluation, plan)
        if best_key is None or key < best_key:
            best_key, best = key, (plan, evaluation)
    if best is None:
        return Best(None, None, plans, feasible)
    return Best(*best, plans, feasible)
