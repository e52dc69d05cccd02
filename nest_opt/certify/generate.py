"""Generates the suite ``small``: problems small enough to be checked in every way there is.

Every problem has an aim: one option of the search space (a kind of recomputation, a ZeRO stage, a
layout, an axis) that must be *decisive*, which means that the optimal batch time is another one,
or that no plan is left, once the option is taken off the search lists; or a part of the order among
plans of equal batch time, which must decide between them; or a corner of the rules that hardly any
other problem visits. A problem is drawn at random around its
aim, its device memory is set to where the aim is decisive (ample, exactly what the reference plan
needs, one quantum less than a better plan needs, or one quantum less than any plan needs), and it
is drawn again until that succeeds. Problem n of a seed depends on (seed, n) alone.

Run as a program, ``python -m nest_opt.certify.generate``, it writes the suite or counts the
decisive options of a suite; see ``instances/suites/README.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, TypeVar

from tabulate import tabulate

from nest_opt.bounds import Bounds
from nest_opt.cells import list_cells
from nest_opt.certify.processes import Outcome, run_all
from nest_opt.compile import Compiled, compile_problem
from nest_opt.dp.recurrence import Family, Pipelines
from nest_opt.dp.tables import INFINITE
from nest_opt.enumerate import all_plans, best_plan, count_plans, preference
from nest_opt.errors import CompileError, NestOptError, OverflowGuardError
from nest_opt.evaluate import Evaluator, axis_groups
from nest_opt.files import canonical_json, read_json, write_text
from nest_opt.geometry import Geometry
from nest_opt.library import instances_folder, load_problem
from nest_opt.plan import LAYOUTS, RECOMPUTATIONS, Plan, Template
from nest_opt.solve import Progress, Solution, solve

SUITE_FORMAT = "nest-opt/suite/1"
#: What ``--seed`` is unless given; the shipped suite has it.
SEED = 20260
PROBLEMS = 412
#: The first problems, which are about options and the order of plans; the next are about corners,
#: and the rest about other cost models, networks and layers than those of the rest.
_ORDINARY = 320
_WITH_CORNERS = 356
#: Problems with at most this many plans are enumerated.
ENUMERABLE = 20_000

#: Options that must each be decisive in some problems, in the order of the table.
OPTIONS = (
    *RECOMPUTATIONS,
    *(f"zero {zero}" for zero in range(4)),
    *LAYOUTS,
    "tensor",
    "context",
    "expert",
    "sequence parallelism",
)

#: Parts of the order among plans of equal batch time, as in ``enumerate.preference``. The expert
#: degree is not among them: it follows from the number of devices and the degrees before it.
TIE_BREAKS = {
    "sum of loads": 1,
    "devices": 2,
    "stages": 3,
    "replicas": 4,
    "microbatch": 5,
    "tensor degree": 6,
    "context degree": 7,
    "sequence parallelism last": 9,
    "layout": 10,
    "stage ends": 11,
    "order of recomputation": 12,
    "order of zero": 13,
}

#: More memory than any plan here needs, in quanta.
_AMPLE = 10**9
_ATTEMPTS = 4000
_MAX_BATCH_TICKS = 10**6
_MIN_CELLS, _MAX_CELLS, _MAX_CELLS_LARGE = 2, 16, 24

T = TypeVar("T")


class Dice:
    """Random choices made of ``random.random()`` alone.

    Its sequence is the one that Python promises to keep from version to version.
    """

    def __init__(self, *key: int) -> None:
        seed = 0
        for part in key:
            seed = seed * 1_000_003 + part
        self._random = random.Random(seed).random

    def below(self, count: int) -> int:
        """0 .. count - 1."""
        return int(self._random() * count)

    def between(self, low: int, high: int) -> int:
        """Low .. high, both included."""
        return low + self.below(high - low + 1)

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred cases."""
        return self.below(100) < percent

    def pick(self, items: Sequence[T]) -> T:
        """One of the items; repeat an item to make it more likely."""
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """``count`` different items, in their order."""
        left = list(range(len(items)))
        while len(left) > count:
            del left[self.below(len(left))]
        return [items[i] for i in left]


# --- what makes an option decisive ----------------------------------------------------------------


def without(compiled: Compiled, option: str) -> Compiled | None:
    """The same problem with an option taken off its search lists.

    None where the lists do not offer the option, or offer nothing else.
    """
    search = compiled.search

    def shorter(name: str, entry: object) -> Compiled | None:
        entries = getattr(search, name)
        left = tuple(x for x in entries if x != entry)
        if entry not in entries or not left:
            return None
        return replace(compiled, search=search.model_copy(update={name: left}))

    def fewer(keep: Callable[[Template], bool]) -> Compiled | None:
        tables = {key: table for key, table in compiled.tables.items() if keep(key[0])}
        if not tables or len(tables) == len(compiled.tables):
            return None
        kept = {template for template, _ in tables}
        gone = tuple((t, "left out") for t in compiled.templates if t not in kept)
        return replace(compiled, tables=tables, skipped=compiled.skipped + gone)

    if option in RECOMPUTATIONS:
        return shorter("recomputation", option)
    if option in LAYOUTS:
        return shorter("layouts", option)
    if option.startswith("zero "):
        return shorter("zero", int(option.removeprefix("zero ")))
    if option == "sequence parallelism":
        return fewer(lambda template: not template.sequence_parallel)
    return fewer(lambda template: bool(getattr(template, option) == 1))


def is_decisive(compiled: Compiled, option: str, batch_ticks: int) -> bool:
    """Whether the optimum ``batch_ticks`` is lost once the option is taken away."""
    rest = without(compiled, option)
    return rest is not None and _best(rest).batch_ticks != batch_ticks


def decisive_options(compiled: Compiled, batch_ticks: int | None) -> list[str]:
    """Every option that decides the optimum; none where there is no plan anyway."""
    if batch_ticks is None:
        return []
    return [option for option in OPTIONS if is_decisive(compiled, option, batch_ticks)]


def decides_ties(compiled: Compiled, part: str, *, turn: int = -1) -> bool:
    """Whether the reference plan is another one when a part of the order of plans is reversed.

    ``turn=0`` leaves it out instead. Enumerates: for problems of few plans only.
    """
    evaluator = Evaluator(compiled)
    keys = []
    for plan in all_plans(compiled):
        evaluation = evaluator.evaluate(plan)
        if evaluation.feasible:
            keys.append(preference(evaluation, plan))
    place = TIE_BREAKS[part]

    def reversed_there(key: tuple[Any, ...]) -> tuple[Any, ...]:
        entry = key[place]
        turned = tuple(turn * x for x in entry) if isinstance(entry, tuple) else turn * entry
        return (*key[:place], turned, *key[place + 1 :])

    return bool(keys) and min(keys) != min(keys, key=reversed_there)


# --- corners of the rules -------------------------------------------------------------------------


def _axis_order_matters(compiled: Compiled, solution: Solution) -> bool:
    """The reference plan would have another price with the tensor index slowest."""
    plan = solution.plan
    assert plan is not None
    t = plan.template

    def turned(devices: tuple[int, ...]) -> tuple[int, ...]:
        at = {
            (x, y, z): devices[z + t.expert * (y + t.context * x)]
            for x in range(t.tensor)
            for y in range(t.context)
            for z in range(t.expert)
        }
        return tuple(at[x, y, z] for z, y, x in sorted((z, y, x) for x, y, z in at))

    stages = tuple(
        stage.model_copy(update={"devices": tuple(map(turned, stage.devices))})
        for stage in plan.stages
    )
    other = plan.model_copy(update={"layout": "explicit", "stages": stages})
    return Evaluator(compiled).evaluate(other).tau_ticks != solution.tau_ticks


def _groups_are_unequal(compiled: Compiled, solution: Solution) -> bool:
    """In the bottleneck stage of the reference plan, some call is dearer in one of its groups."""
    plan = solution.plan
    assert plan is not None
    bottleneck = Evaluator(compiled).evaluate(plan).bottleneck
    assert bottleneck is not None
    table = compiled.tables[plan.template, plan.microbatch]
    stage = plan.stages[bottleneck]
    for layer in table.layers[slice(*stage.layers)]:
        for call in layer.calls:
            groups = axis_groups(plan.template, stage.devices[0], call.axis)
            shapes = map(compiled.network.shape_of, groups)
            if len({compiled.collective_ticks(call.kind, call.bytes, s) for s in shapes}) > 1:
                return True
    return False


def _experts_decide(compiled: Compiled, solution: Solution) -> bool:
    """Expert weights are what the slowest synchronisation is mostly about, over context ranks."""
    plan = solution.plan
    assert plan is not None
    parts = [s.sync_parts_ticks for s in Evaluator(compiled).evaluate(plan).stages]
    slowest = max(parts, key=lambda part: part.total)
    return plan.template.expert > 1 and slowest.expert > 0 and slowest.total == solution.sigma_ticks


def _tied_rings_differ(compiled: Compiled, solution: Solution) -> bool:
    """The ring of a tied weight is what sigma is, and replicas have it at different classes."""
    plan = solution.plan
    assert plan is not None
    ends = zip(plan.stages[0].devices, plan.stages[-1].devices, strict=True)
    classes = {compiled.network.class_of(first + last) for first, last in ends}
    return len(plan.stages) > 1 and len(classes) > 1 and bool(solution.sigma_ticks)


def _corner_is_inner(compiled: Compiled, solution: Solution) -> bool:
    """The optimum has neither the least load nor the least synchronisation of its cell."""
    plan = solution.plan
    assert plan is not None
    cell = next(
        cell
        for cell in list_cells(compiled)
        if (cell.microbatch, cell.replicas, cell.template, cell.stages, cell.layout)
        == (plan.microbatch, plan.replicas, plan.template, len(plan.stages), plan.layout)
    )
    pipelines = Pipelines(compiled, Geometry.of(compiled), Family.of(cell), cell.stages)
    free = int(INFINITE)
    least_load = pipelines.least_bottleneck(cell.stages, free)
    least_sync = pipelines.least_sync(cell.stages, free)
    ends = (least_load, least_sync)
    return solution.tau_ticks != ends[0] and solution.sigma_ticks != ends[1]


def _padding_would_win(compiled: Compiled, solution: Solution) -> bool:
    """Data-parallel degrees that need padding, with more than one expert rank, would be better."""
    free = compiled.search.model_copy(update={"data_parallel": "any"})
    padded = _best(replace(compiled, search=free))
    if padded.plan is None or padded.batch_ticks == solution.batch_ticks:
        return False
    microbatch, expert = padded.plan.microbatch, padded.plan.template.expert
    whole, rest = divmod(compiled.global_batch, microbatch * expert)
    return (
        expert > 1
        and rest > 0
        and compiled.global_batch % microbatch == 0
        and whole > 0 == whole % padded.plan.replicas
    )


def _work_bound_is_tight(compiled: Compiled, solution: Solution) -> bool:
    """The work bound misses the optimum by less than a quarter of the synchronisation."""
    bounds = Bounds(compiled, Geometry.of(compiled))
    bound = max(bounds.work(cell) for cell in list_cells(compiled))
    ticks, sync = solution.batch_ticks, solution.sigma_ticks
    assert ticks is not None and sync is not None
    return 4 * (ticks - bound) < sync


def _transfers_weigh(compiled: Compiled, solution: Solution) -> bool:
    """The bottleneck transfers longer than it computes, so that an empty stage would be welcome."""
    plan = solution.plan
    assert plan is not None
    evaluation = Evaluator(compiled).evaluate(plan)
    assert evaluation.bottleneck is not None
    parts = evaluation.stages[evaluation.bottleneck].load_parts_ticks
    return parts.transfer_forward + parts.transfer_backward > parts.compute


#: Corners of the rules that hardly any ordinary problem visits, and how to tell.
CORNERS: dict[str, Callable[[Compiled, Solution], bool]] = {
    "axis order": _axis_order_matters,
    "unequal groups": _groups_are_unequal,
    "expert and context ranks": _experts_decide,
    "unequal tied rings": _tied_rings_differ,
    "several corners": _corner_is_inner,
    "devices before stages": lambda compiled, _: decides_ties(compiled, "devices", turn=0),
    "padding with experts": _padding_would_win,
    "equal layers": _work_bound_is_tight,
    "costly cuts": _transfers_weigh,
}
#: Options of the cost model that must decide, as (record of ``training``, field, value).
COST_OPTIONS: dict[str, tuple[str, str, str]] = {
    "transfers up and down": ("cost_model", "transfer", "up_and_down"),
    "first devices' link": ("cost_model", "transfer_link", "first_devices"),
    "backward again": ("cost_model", "recomputation", "backward_again"),
    "backward again, long transfers": ("cost_model", "recomputation", "backward_again"),
    "in flight by stages behind": ("cost_model", "in_flight", "stages_behind"),
    "first stage's synchronisation": ("cost_model", "synchronisation", "first_stage"),
    "tree all-reduce": ("", "all_reduce", "tree"),
}
#: Networks without levels, and models whose layers are estimated from a configuration.
NETWORKS = ("torus", "graph", "matrix", "scattered pairs")
ESTIMATED = ("dense", "mixture of experts", "context ranks")
VARIANTS = (*COST_OPTIONS, *NETWORKS, *ESTIMATED)
_WITH_MANY_PLANS = ("axis order", "unequal groups", "expert and context ranks", "costly cuts")


def _meets(compiled: Compiled, aim: str, batch_ticks: int) -> bool:
    """Whether what a problem aims at is decisive."""
    if aim in TIE_BREAKS:
        return decides_ties(compiled, aim)
    if aim in CORNERS:
        return CORNERS[aim](compiled, _best(compiled))
    if aim in VARIANTS:
        return True  # seen to where the problem is at hand, :func:`_variant_counts`
    return is_decisive(compiled, aim, batch_ticks)


def _best(compiled: Compiled) -> Solution:
    return solve(compiled, use_bounds=False)


# --- what is wanted of each problem ---------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """What one problem of the suite is drawn for.

    ``aim`` is the option or the part of the order to be decisive, or the corner of the rules to be
    visited, or the variant to be, "" for none. ``memory`` is ``ample``, ``exact``, ``below`` or
    ``impossible``. ``plans`` are the least and largest number of plans.
    """

    aim: str
    memory: str
    plans: tuple[int, int]


#: Numbers of plans of the problems that are enumerated: about 5,000 on average.
_WINDOWS = (
    (40, 1_500),
    (1_500, 5_000),
    (4_000, 9_000),
    (9_000, ENUMERABLE),
    (100, 3_000),
    (2_000, 6_000),
    (6_000, 12_000),
)
_LARGE = (ENUMERABLE + 1, 10**12)


def recipe_of(index: int) -> Recipe:
    """The recipe of problem ``index``.

    Of the ordinary ones, two of three are enumerable, one of ten has no plan, one of twenty is
    about the order of plans. Then come those about corners of the rules, then the variants.
    """
    if index >= _WITH_CORNERS:
        turn, number = divmod(index - _WITH_CORNERS, len(VARIANTS))
        variant = VARIANTS[number]
        memory = ("ample", "exact", "below")[turn % 3]
        if memory == "ample" and variant.startswith(("backward again", "in flight")):
            memory = "exact"  # They need a plan that is short of memory.
        return Recipe(variant, memory, (8, 6_000))
    if index >= _ORDINARY:
        corners = tuple(CORNERS)
        turn, number = divmod(index - _ORDINARY, len(corners))
        aim = corners[number]
        many = turn % 2 == 1 and aim in _WITH_MANY_PLANS
        return Recipe(aim, "ample", (3_000, 14_000) if many else (8, 6_000))
    if index % 20 == 4:
        ties = tuple(TIE_BREAKS)
        aim = ties[index // 20 % len(ties)]
        # With memory for just one plan, few others that cost the same are left.
        memory = "ample" if aim in ("devices", "stages", "replicas", "microbatch") else "exact"
        return Recipe(aim, memory, (8, 600))
    window = _LARGE if index % 3 == 2 else _WINDOWS[index % len(_WINDOWS)]
    if index % 10 == 9:
        return Recipe("", "impossible", window)
    aim = OPTIONS[(index + index // len(OPTIONS)) % len(OPTIONS)]
    memory = ("exact", "below", "exact", "ample", "below")[index // len(OPTIONS) % 5]
    if memory == "ample" and aim in RECOMPUTATIONS[1:]:
        memory = "exact"  # Recomputation buys nothing but memory.
    return Recipe(aim, memory, window)


# --- drawing a problem ----------------------------------------------------------------------------

_LEVELS: tuple[tuple[int, ...], ...] = (
    (4,),
    (8,),
    (2, 2),
    (2, 2),
    (4, 2),
    (2, 4),
    (2, 3),
    (3, 2),
    (4, 3),
    (4, 4),
    (2, 2, 2),
    (2, 2, 2),
    (2, 2, 3),
    (2, 3, 2),
    (4, 2, 2),
    (2, 4, 2),
    (8, 2),
    (5, 2),
    (6,),
    (7,),
    (1, 5),
    (16,),
)
_TINY_LEVELS: tuple[tuple[int, ...], ...] = ((1,), (2,), (3,), (2, 1), (1, 2))


def _seconds(tenths: int) -> float:
    """Tenths of a millisecond tick, as the decimal number of seconds nearest to what is meant."""
    return float(f"{tenths}e-4")


def _drop_zeros(costs: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in costs.items() if value not in (0, 0.0, [])}


@dataclass
class Draft:
    """One attempt at a problem: the draws that its parts have in common."""

    dice: Dice
    recipe: Recipe

    def __post_init__(self) -> None:
        dice, aim = self.dice, self.recipe.aim
        axes = ("tensor", "context", "expert", "sequence parallelism")
        self.large = self.recipe.plans == _LARGE
        #: Whatever the template and microbatch, a layer takes (almost) the same time, and nothing
        #: is paid for communication: many plans cost the same.
        self.ties = aim in TIE_BREAKS or aim == "devices before stages"
        tiny = aim not in axes and aim not in LAYOUTS and not self.large and dice.chance(12)
        self.levels = dice.pick(_TINY_LEVELS if tiny else _LEVELS)
        self.devices = prod(self.levels)
        self.microbatches = dice.pick(([1], [1], [2], [1, 2], [1, 2], [1, 3], [2, 4], [3]))
        self.fractional = dice.chance(25)
        self.has_experts = aim == "expert" or dice.chance(25)
        if aim in CORNERS:
            self._visit(aim)
        if aim == "scattered pairs":
            self.levels = dice.pick(((4,), (2, 2), (8,), (2, 4)))
            self.devices = prod(self.levels)
        self.templates = self._templates()
        self.auto_tick = not self.ties and dice.chance(3)
        self.quantum = dice.pick((1, 1, 8, 10, 16, 48))

    def _visit(self, aim: str) -> None:
        """Levels, microbatches and experts that lead to a corner of the rules."""
        dice = self.dice
        levels = {
            "axis order": ((2, 2, 2), (2, 3), (4, 2), (2, 4)),
            "unequal groups": ((3, 2), (3, 3), (3, 4), (5, 2)),
            "expert and context ranks": ((2, 2), (2, 4), (4, 2), (2, 2, 2)),
            "unequal tied rings": ((2, 3), (2, 5), (2, 3, 2), (4, 3)),
            "padding with experts": ((4,), (2, 2), (4, 2)),
            "equal layers": ((4,), (8,), (6,)),
            "costly cuts": ((4,), (2, 2), (4, 2), (2, 4)),
        }
        self.levels = dice.pick(levels.get(aim, _LEVELS))
        self.devices = prod(self.levels)
        if aim == "expert and context ranks":
            self.has_experts = True
        if aim == "padding with experts":
            self.microbatches = dice.pick(([1, 2], [2, 4], [1, 2]))
            self.has_experts = True

    def _templates(self) -> list[Template]:
        dice, aim = self.dice, self.recipe.aim
        degrees = [x for x in (2, 2, 2, 3, 4) if x <= self.devices] or [1]
        self.tensor, self.context, self.expert = [1], [1], [1]
        self.sequence = [dice.chance(50)]
        if aim in ("tensor", "sequence parallelism") or dice.chance(25):
            self.tensor = sorted({1, dice.pick(degrees)})
        if aim == "context" or dice.chance(12):
            self.context = sorted({1, dice.pick(degrees)})
        if aim == "expert" or (self.has_experts and dice.chance(50)):
            self.expert = sorted({1, dice.pick(degrees)})
        if aim == "sequence parallelism":
            self.sequence = [False, True]
            self.context, self.expert = [1], [1]
        elif self.tensor != [1] and dice.chance(20):
            self.sequence = [False, True]
        if self.ties:
            self.tensor, self.context = dice.pick((([1, 2], [1, 2]), ([1], [1, 2]), ([1, 2], [1])))
            self.sequence = [False, True] if aim.startswith("sequence") else [False]
            if aim.startswith("sequence"):
                self.tensor = [1, 2]
            elif aim == "context degree":
                self.tensor, self.context, self.expert = [1], [1, 2], [1, 2]
        if aim == "scattered pairs":
            self.tensor, self.context, self.expert = [2], [1], [1]
        if aim in CORNERS:
            axes = {
                "axis order": dice.pick((([2], [2], [1]), ([2], [1], [2]), ([1, 2], [2], [1]))),
                "unequal groups": dice.pick((([2], [2], [1]), ([2], [1], [2]), ([1], [2], [2]))),
                "expert and context ranks": ([1], [2], [1, 2]),
                "devices before stages": ([1], dice.pick(([1, 3], [1, 4])), [1]),
                "padding with experts": ([1], [1], [1, 2]),
            }
            self.tensor, self.context, self.expert = axes.get(aim, ([1], [1], [1]))
            self.sequence = [False]
        for name in ("tensor", "context", "expert") if aim not in CORNERS else ():
            # Now and then no stage of width one, to have every stage on several devices.
            if aim != name and len(getattr(self, name)) == 2 and dice.chance(30):
                setattr(self, name, getattr(self, name)[1:])
        found = {
            Template(t, c, e, sp and t > 1)
            for t in self.tensor
            for c in self.context
            for e in self.expert
            for sp in self.sequence
        }
        return sorted(found)

    # --- model ------------------------------------------------------------------------------------

    def model(self) -> dict[str, Any]:
        """A model of 2 to 8 layers: some repeated, some with skip connections."""
        dice = self.dice
        count = dice.pick((4, 5, 6, 6, 7, 8)) if self.large else dice.pick((2, 3, 3, 4, 4, 5, 5, 6))
        if self.ties:
            count = dice.pick((2, 3, 4))
        counts: list[int] = []
        while sum(counts) < count:
            run = dice.pick((1, 1, 2, 3, 4, 5)) if dice.chance(60) else 1
            counts.append(min(run, count - sum(counts)))
        even = dice.chance(25)
        if self.recipe.aim == "equal layers":
            even, counts = True, [dice.pick((2, 4, 6))]
        if self.recipe.aim == "costly cuts":
            counts = [1] * dice.pick((4, 5))
        bases = [self._base(even) for _ in counts]
        if self.recipe.aim == "costly cuts":
            for base in dice.some(bases[:-1], 2):
                base["output"] = base["output"] * 20 + 30 * self.quantum
        plain = self.recipe.aim in CORNERS
        if dice.chance(15) and len(bases) > 1 and not plain:
            heavy = dice.pick(bases)
            for key in ("forward", "backward", "recompute"):
                heavy[key] *= dice.pick((10, 60, 200))
        tied = count > 1 and dice.chance(22) and self.recipe.aim != "equal layers"
        tied = tied or self.recipe.aim == "unequal tied rings"
        if tied:
            for base in (bases[0], bases[-1]):
                base["weights"] = max(base["weights"], 12)
        layers = [
            {
                "name": f"layer.{n}",
                "count": counts[n],
                "costs": [self._costs(base, template) for template in self.templates],
            }
            for n, base in enumerate(bases)
        ]
        for layer in layers:
            if layer["count"] == 1:
                del layer["count"]
        self._connect(layers)
        model: dict[str, Any] = {"kind": "layers", "name": "generated", "layers": layers}
        if tied:
            model["tied_weights"] = self._tied(layers)
        return model

    def _base(self, even: bool) -> dict[str, int]:
        """One layer on one device: tenths of ticks, and bytes, per sequence."""
        dice, aim = self.dice, self.recipe.aim
        unit = self.quantum
        forward = 200 if even or self.ties else dice.between(2, 40) * 10
        core = dice.between(0, 12) if aim != "selective" else dice.between(8, 24)
        activations = core + dice.between(2, 20)
        large_weights = aim in ("zero 1", "zero 2", "zero 3", "tensor", "expert")
        weights = dice.between(3, 16) * (3 if large_weights else 1)
        base = {
            "forward": forward,
            "backward": forward * 2 + dice.between(0, 20) * 10,
            "recompute": forward + dice.between(0, 10) * 10,
            "selective": dice.between(0, 4 if aim == "selective" else 12) * 10,
            "weights": weights * unit,
            "expert": dice.between(2, 20) * unit if self.has_experts and dice.chance(70) else 0,
            "activations": activations * unit,
            "core": core * unit,
            "kept": max(activations - core - dice.between(0, 3), 1) * unit,
            "checkpoint": dice.between(1, 8 if aim == "stage" else 4) * unit,
            "output": dice.between(0, 6) * unit,
            "call": dice.between(1, 8) * unit,
        }
        if dice.chance(10) and aim not in CORNERS:
            base["weights"] = 0
        if aim == "equal layers":
            base["output"] = 0
        if aim in ("axis order", "unequal groups"):
            base["call"] *= 8
        if self.fractional:
            for key in ("forward", "backward", "recompute", "selective"):
                base[key] += dice.below(10)
            for key in ("weights", "expert", "activations", "core", "checkpoint", "output"):
                base[key] += dice.below(unit) if base[key] else 0
        return base

    def _costs(self, base: dict[str, int], template: Template) -> dict[str, Any]:
        dice = self.dice
        t, c, e = template.tensor, template.context, template.expert
        sharded = t * c
        kept_whole = c if not template.sequence_parallel else sharded

        def share(amount: int, ranks: int, least: int = 0) -> int:
            return max(-(-amount // ranks), least)

        def jitter(amount: int) -> int:
            return amount * dice.between(8, 12) // 10

        pieces = {
            "forward_seconds": share(jitter(base["forward"]), sharded, 1),
            "backward_seconds": share(jitter(base["backward"]), sharded, 1),
            "recompute_seconds": share(base["recompute"], sharded, 1),
            "selective_recompute_seconds": share(base["selective"], sharded),
            "activation_bytes": share(base["activations"] - base["core"], kept_whole)
            + share(base["core"], sharded),
            "selective_activation_bytes": share(base["kept"], kept_whole),
            "checkpoint_bytes": share(base["checkpoint"], kept_whole),
            "attention_core_bytes": share(base["core"], sharded),
            "output_bytes": share(base["output"], kept_whole),
        }
        costs: dict[str, Any] = {"template": _template(template)}
        for key, amount in pieces.items():
            costs[key] = self._quantity(amount, key.endswith("_seconds"))
        if dice.chance(15):
            del costs["recompute_seconds"]
        if dice.chance(30):
            del costs["selective_activation_bytes"]
        costs["weight_bytes"] = share(base["weights"], t)
        costs["expert_weight_bytes"] = share(base["expert"], t * e)
        costs["collectives"] = self._collectives(base["call"], template)
        if self.ties:
            self._level(costs)
        required = {k: costs[k] for k in ("forward_seconds", "backward_seconds")}
        return {**_drop_zeros(costs), **required}

    def _level(self, costs: dict[str, Any]) -> None:
        """Times of a layer that hardly depend on the template and the microbatch."""
        dice = self.dice

        def one_of(*tenths: int) -> dict[str, float]:
            return {str(b): _seconds(dice.pick(tenths)) for b in self.microbatches}

        costs["forward_seconds"] = one_of(200, 200, 200, 210)
        costs["backward_seconds"] = one_of(400)
        costs["recompute_seconds"] = one_of(0, 0, 10)
        costs["selective_recompute_seconds"] = one_of(0, 0, 10)

    def _quantity(self, amount: int, is_time: bool) -> Any:
        """A number per sequence, or (now and then) one for each microbatch size."""
        write = _seconds if is_time else int
        if not self.dice.chance(8):
            return write(amount)
        return {
            str(b): write(amount * b - (amount * (b - 1)) // (4 if is_time else 10))
            for b in self.microbatches
        }

    def _collectives(self, size: int, template: Template) -> list[dict[str, Any]]:
        dice = self.dice
        kinds: dict[str, tuple[str, ...]] = {
            "tensor": ("all_gather", "reduce_scatter")
            if template.sequence_parallel
            else ("all_reduce",),
            "context": ("ring_pass", "ring_pass", "all_gather", "all_reduce"),
            "expert": ("all_to_all", "all_to_all", "reduce_scatter"),
        }
        calls = []
        for axis, usual in kinds.items():
            if getattr(template, axis) == 1:
                continue
            for direction in ("forward", "backward"):
                if dice.chance(85):
                    call = {
                        "kind": dice.pick(usual),
                        "axis": axis,
                        "pass": direction,
                        "bytes": self._quantity(max(1, size * dice.between(5, 15) // 10), False),
                        "count": dice.pick((1, 1, 2, 3)),
                    }
                    calls.append(call)
        return calls

    def _connect(self, layers: list[dict[str, Any]]) -> None:
        """Skip connections, and now and then layers listed out of execution order."""
        dice = self.dice
        if len(layers) < 3 or not dice.chance(35):
            return
        for n in range(1, len(layers)):
            inputs = {n - 1}
            if n > 1 and dice.chance(50):
                inputs.add(dice.below(n - 1))
            layers[n]["inputs"] = [f"layer.{k}" for k in sorted(inputs)]
        layers[0]["inputs"] = []
        if dice.chance(25):
            n = dice.between(1, len(layers) - 1)
            layers[n - 1], layers[n] = layers[n], layers[n - 1]

    def _tied(self, layers: list[dict[str, Any]]) -> list[dict[str, Any]]:
        ends = {layer["name"]: layer for layer in layers}
        first, last = ends["layer.0"], ends[f"layer.{len(layers) - 1}"]
        whole = self.dice.chance(40)
        tied = []
        for n, template in enumerate(self.templates):
            most = min(layer["costs"][n].get("weight_bytes", 0) for layer in (first, last))
            size = most if whole else most * self.dice.between(3, 9) // 10
            tied.append({"template": _template(template), "weight_bytes": size})
        return tied

    # --- the rest ---------------------------------------------------------------------------------

    def cluster(self) -> dict[str, Any]:
        """Levels whose links get slower outwards, mostly."""
        dice = self.dice
        # Bytes per tick at the innermost level.
        speed = dice.between(2, 24) * self.quantum
        slow = self.recipe.aim in LAYOUTS or dice.chance(50)
        same_latency = dice.chance(25)
        latency = dice.between(0, 2) * 10
        levels = []
        for k, size in enumerate(self.levels):
            if k:
                speed = max(1, speed * 10 // dice.between(*((20, 80) if slow else (8, 20))))
                latency += 0 if same_latency else dice.between(-5, 40)
            levels.append(
                {
                    "size": size,
                    "bandwidth_bytes_per_second": speed * 1000,
                    "latency_seconds": _seconds(max(latency, 0)),
                }
            )
        if self.recipe.aim == "equal layers":
            levels[0]["latency_seconds"] = 0.0
        return {
            "name": "generated",
            "device": {"name": "generated", "memory_bytes": 1},
            "devices": self.devices,
            "levels": levels,
        }

    def training(self) -> dict[str, Any]:
        """Batch, optimizer and cost model."""
        dice, aim = self.dice, self.recipe.aim
        batch = dice.pick((1, 2, 3, 4, 4, 6, 6, 8, 8, 12, 12, 16, 24))
        if self.ties:
            batch = dice.pick((1, 1, 2, 3))
        if aim in ("layer", "stage", "selective") and batch < 6:
            batch *= 4
        if self.auto_tick:
            batch = min(batch, 4)
        optimizer: Any = dice.pick(("zero16", "zero16", "megatron18", "sgd4"))
        if aim == "zero 2":
            optimizer = {"weights": 1, "gradients": dice.pick((2, 4)), "optimizer": dice.below(3)}
        elif aim == "zero 0" and dice.chance(60):
            optimizer = {"weights": 4, "gradients": 2, "optimizer": dice.between(0, 6)}
        elif aim == "zero 1":
            optimizer = "zero16"
        elif aim == "zero 3":
            optimizer = {"weights": 2, "gradients": dice.pick((1, 2)), "optimizer": dice.below(4)}
        cost_model: dict[str, Any] = {}
        if dice.chance(20):
            cost_model["synchronisation"] = "first_stage"
        if self.ties:
            names = ("collectives", "transfers", "synchronisation")
            cost_model["exposed"] = dict.fromkeys(names, 0.0)
        elif dice.chance(20):
            cost_model["exposed"] = {
                name: dice.pick((0.25, 0.3, 0.5, 0.75, 0.9, 1.0, 0.0))
                for name in dice.some(
                    ("collectives", "transfers", "synchronisation"), dice.between(1, 3)
                )
            }
        training: dict[str, Any] = {
            "global_batch": batch,
            "optimizer": optimizer,
            "all_reduce": "ring" if dice.chance(25) else "hierarchical",
            "reserve_fraction": dice.pick((0.0, 0.0, 0.0, 0.05, 0.1)),
        }
        if cost_model:
            training["cost_model"] = cost_model
        return training

    def search(self) -> dict[str, Any]:
        """Search lists, short enough for few cells, and the aim among them."""
        dice, aim = self.dice, self.recipe.aim
        recomputation = dice.some(RECOMPUTATIONS, dice.between(2, 4 if self.large else 3))
        zero = dice.some((0, 1, 2, 3), dice.pick((1, 2, 2, 3)))
        layouts = list(LAYOUTS) if dice.chance(50) else [dice.pick(LAYOUTS)]
        if aim in RECOMPUTATIONS:
            recomputation = [r for r in RECOMPUTATIONS if r == aim or r in recomputation]
            if dice.chance(70):
                zero = [dice.pick((0, 1, 1, 2, 3))]
        elif dice.chance(35):
            recomputation = [dice.pick(RECOMPUTATIONS)]
        if aim.startswith("zero"):
            wanted = int(aim[-1])
            zero = sorted({wanted, *zero, (wanted + dice.between(1, 3)) % 4})
        if aim in LAYOUTS:
            layouts = list(LAYOUTS)
        replicas: Any = dice.pick(("any", "any", "even"))
        if dice.chance(60):
            most = max(1, min(self.devices, 8))
            replicas = dice.some(range(1, most + 1), dice.pick((1, 2, 2, 3)))
            if self.ties:
                replicas = [1, 2]
            if aim.startswith("zero") or aim in LAYOUTS:
                replicas = dice.some(range(min(2, most), most + 1), dice.pick((1, 2)))
        stages: Any = "any"
        if dice.chance(50):
            stages = dice.some((1, 2, 3, 4, 5), dice.pick((1, 2, 2, 3)))
        if aim == "unequal tied rings":
            zero, replicas, stages = [3], [2, 3], [2]
            layouts = ["pipeline-inner"]
        elif aim == "several corners":
            zero, replicas = [0, 2, 3], [2, 3]
        elif aim == "devices before stages":
            replicas, stages = [1, 2, 3], [1, 2]
        elif aim == "padding with experts":
            replicas = "even"
        elif aim == "costly cuts":
            replicas, stages = [1, 2], dice.pick(([3], [3, 4], [4]))
        elif aim == "equal layers":
            zero, replicas, stages, recomputation = [0], [2], [2], ["none", "layer"]
        tensor = list(self.tensor)
        if dice.chance(6):
            tensor.append(5)  # The layer table has no costs for it: skipped, and listed as such.
        return {
            "microbatch": self.microbatches,
            "tensor": tensor,
            "context": self.context,
            "expert": self.expert,
            "sequence_parallel": self.sequence,
            "data_parallel": replicas,
            "stages": stages,
            "recomputation": recomputation,
            "zero": zero,
            "layouts": layouts,
        }

    def problem(self) -> dict[str, Any]:
        """Everything but the device's memory."""
        dice = self.dice
        units: dict[str, Any] = {}
        if not self.auto_tick:
            units["tick_seconds"] = 0.001
        if dice.chance(85):
            units["quantum_bytes"] = self.quantum
        if dice.chance(10):
            units["synchronisation_multiple_ticks"] = dice.pick((5, 10))
        return {
            "format": "nest-opt/problem/1",
            "name": "generated",
            "model": self.model(),
            "cluster": self.cluster(),
            "training": self.training(),
            "search": self.search(),
            "units": units,
        }


def _template(template: Template) -> dict[str, Any]:
    written: dict[str, Any] = {
        axis: getattr(template, axis)
        for axis in ("tensor", "context", "expert")
        if getattr(template, axis) > 1
    }
    if template.sequence_parallel:
        written["sequence_parallel"] = True
    return written


# --- other cost models, networks and layers -------------------------------------------------------


def vary(data: dict[str, Any], variant: str, draft: Draft) -> None:
    """Make a drawn problem one of a variant, in place."""
    if variant in COST_OPTIONS:
        _set_cost_option(data, variant)
        if variant.startswith("backward again"):
            data["search"]["recomputation"] = draft.dice.pick((["stage"], ["none", "stage"]))
        if variant.endswith("long transfers"):
            for layer in data["model"]["layers"]:
                for costs in layer["costs"]:
                    costs["output_bytes"] = 120 * draft.quantum
        if variant == "in flight by stages behind":
            data["training"]["global_batch"] = draft.dice.pick((1, 2, 3))
            data["search"]["stages"] = [2, 3, 4]
    elif variant in NETWORKS:
        data["training"]["all_reduce"] = "ring"
        cluster = data["cluster"]
        del cluster["levels"]
        cluster["network"] = _network(variant, draft)
    else:
        _estimate(data, variant, draft)


def _set_cost_option(data: dict[str, Any], variant: str) -> None:
    record, field, value = COST_OPTIONS[variant]
    training = data["training"]
    (training.setdefault(record, {}) if record else training)[field] = value


def _variant_counts(data: dict[str, Any], variant: str, best: Solution) -> bool:
    """Whether what makes a variant matters: to the optimum, or at least to what its plan does."""
    if variant in COST_OPTIONS:
        usual = json.loads(canonical_json(data))
        record, field, _ = COST_OPTIONS[variant]
        training = usual["training"]
        del (training[record] if record else training)[field]
        if _best(compile_problem(load_problem(usual))).batch_ticks == best.batch_ticks:
            return False
        return not variant.endswith("long transfers") or _waits_for_gradients(data, best)
    plan = best.plan
    assert plan is not None
    if variant == "scattered pairs":
        return _stages_are_spread(compile_problem(load_problem(data)), plan)
    if variant in NETWORKS:
        return len(plan.stages) > 1 and plan.replicas * plan.template.width > 1
    if variant == "dense":
        return plan.template.tensor > 1 or len(plan.stages) > 1
    return (plan.template.context if variant == "context ranks" else plan.template.expert) > 1


def _stages_are_spread(compiled: Compiled, plan: Plan) -> bool:
    """Somewhere two devices of one stage are farther apart than any of it and of its neighbour."""
    table = compiled.tables[plan.template, plan.microbatch]
    class_of = compiled.network.class_of
    for one, other in pairwise(plan.stages):
        for here, there in zip(one.devices, other.devices, strict=True):
            between = max(class_of((x, y)) for x in here for y in there)
            ticks = [table.transfer_ticks[k][one.layers[1]] for k in (between, class_of(here))]
            if ticks[1] > ticks[0]:
                return True
    return False


def _waits_for_gradients(data: dict[str, Any], best: Solution) -> bool:
    """The bottleneck recomputes, and the gradients take longer than that to arrive."""
    assert best.plan is not None
    evaluation = Evaluator(compile_problem(load_problem(data))).evaluate(best.plan)
    assert evaluation.bottleneck is not None
    parts = evaluation.stages[evaluation.bottleneck].load_parts_ticks
    return parts.recomputation > 0 and parts.transfer_backward > 0


def _network(kind: str, draft: Draft) -> dict[str, Any]:
    """A torus, switches and links, or measured pairs, for the devices of a draft."""
    dice, devices = draft.dice, draft.devices

    def link(slower: int) -> tuple[int, float]:
        speed = max(1, dice.between(4, 24) * draft.quantum // slower)
        return speed * 1000, _seconds(dice.between(0, 3) * 10 * slower)

    if kind == "torus":
        bandwidth, latency = link(1)
        return {
            "kind": "torus",
            "shape": [size for size in draft.levels if size > 1] or [1],
            "wraparound": dice.chance(70),
            "link_bandwidth_bytes_per_second": bandwidth,
            "link_latency_seconds": latency,
        }
    if kind == "graph":
        names = [f"device.{x}" for x in range(devices)]
        switches = ["switch.0", "switch.1"]
        ends = [(name, switches[dice.below(2)], 1) for name in names]
        ends.append((switches[0], switches[1], 2))
        ends += [(a, b, 1) for a, b in pairwise(names) if dice.chance(30)]
        links = []
        for source, target, slower in ends:
            bandwidth, latency = link(slower)
            links.append(
                {
                    "source": source,
                    "target": target,
                    "bandwidth_bytes_per_second": bandwidth,
                    "latency_seconds": latency,
                }
            )
        return {"kind": "graph", "devices": names, "links": links, "reference_bytes": 6}

    def farther(x: int, y: int) -> int:
        if kind == "scattered pairs":
            return 6 if x // 2 == y // 2 else 1
        return 1 if abs(x - y) < 2 else 2

    near = {(x, y): link(farther(x, y)) for x in range(devices) for y in range(devices)}
    return {
        "kind": "matrix",
        "bandwidth_bytes_per_second": [
            [float(near[x, y][0]) for y in range(devices)] for x in range(devices)
        ],
        "latency_seconds": [[near[x, y][1] for y in range(devices)] for x in range(devices)],
        "reference_bytes": 6,
        "max_classes": dice.pick((2, 3, 16)),
    }


#: A configuration as Hugging Face publishes them, tiny.
_TINY_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "torch_dtype": "bfloat16",
}


def _estimate(data: dict[str, Any], variant: str, draft: Draft) -> None:
    """Layers from a tiny configuration, on a device and links slow enough for a coarse tick."""
    dice = draft.dice
    config = {
        **_TINY_CONFIG,
        "num_hidden_layers": dice.between(1, 3),
        "tie_word_embeddings": dice.chance(40),
    }
    if variant == "mixture of experts":
        config |= {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    data["model"] = {
        "kind": "config",
        "name": "generated",
        "sequence_length": dice.pick((32, 64)),
        "config": config,
        "flash_attention": dice.chance(30),
        "granularity": dice.pick(("block", "block", "half")),
    }
    data["cluster"]["device"] |= {
        "peak_flops_per_second": 1e9,
        "memory_bytes_per_second": dice.pick((1e8, 1e9)),
        "matmul_efficiency": 0.5,
    }
    for level in data["cluster"]["levels"]:
        level["bandwidth_bytes_per_second"] = 1e6 * dice.between(1, 20)
    data["training"]["optimizer"] = dice.pick(("zero16", "megatron18", "sgd4"))
    data["search"] |= {
        "microbatch": [1],
        "tensor": [1, 2] if variant == "dense" else [1],
        "context": [1, 2] if variant == "context ranks" else [1],
        "expert": [1, 2] if variant == "mixture of experts" else [1],
        "sequence_parallel": [dice.chance(50)],
    }
    data["units"] = {"tick_seconds": 0.001, "quantum_bytes": 1024}


# --- choosing the memory --------------------------------------------------------------------------


def _needed(compiled: Compiled, solution: Solution) -> int:
    """Quanta that the fullest device of a plan holds."""
    assert solution.plan is not None
    return max(stage.memory_bytes or 0 for stage in solution.plan.stages) // compiled.quantum_bytes


def _fits(compiled: Compiled, dice: Dice) -> list[tuple[int, Solution]]:
    """Optimal plans under less and less memory, each with exactly the memory that it needs."""
    found: list[tuple[int, Solution]] = []
    memory = _AMPLE
    while len(found) < 24:
        solution = _best(replace(compiled, memory_quanta=memory))
        if solution.plan is None:
            break
        memory = _needed(compiled, solution)
        found.append((memory, solution))
        memory -= 1 + (dice.below(1 + memory // 40) if len(found) > 4 else 0)
    return found


def _least_memory(compiled: Compiled, high: int) -> int:
    """The least memory with which any plan is feasible; ``high`` is enough for one."""
    low = 0
    while low < high:
        middle = (low + high) // 2
        if _best(replace(compiled, memory_quanta=middle)).plan is None:
            low = middle + 1
        else:
            high = middle
    return high


def _choose_memory(compiled: Compiled, recipe: Recipe, dice: Dice) -> int | None:
    """Quanta of memory under which the recipe is met; None if there are none."""
    if recipe.memory == "impossible":
        some = _best(replace(compiled, memory_quanta=_AMPLE))
        if some.plan is None:
            return None
        least = _least_memory(compiled, _needed(compiled, some))
        return least - 1 if dice.chance(75) else least // 2
    if recipe.memory == "ample":
        ample = _best(replace(compiled, memory_quanta=_AMPLE))
        choices = [_needed(compiled, ample) * 3] if ample.plan else []
    else:
        fits = _fits(compiled, dice)
        less = 1 if recipe.memory == "below" else 0
        choices = [memory - less for memory, _ in fits]
    while choices:
        memory = choices.pop(dice.below(len(choices)))
        limited = replace(compiled, memory_quanta=memory)
        best = _best(limited).batch_ticks
        if best is not None and _meets(limited, recipe.aim, best):
            return memory
    return None


def _memory_bytes(quanta: int, quantum: int, reserve: float) -> int:
    """The least memory of which so many quanta are usable."""
    tenths_of_percent = round(reserve * 1000)
    return -(-quanta * quantum * 1000 // (1000 - tenths_of_percent))


# --- one problem, and all of them -----------------------------------------------------------------


def _attempt(recipe: Recipe, dice: Dice) -> dict[str, Any] | None:
    """One draw; None if it does not meet the recipe."""
    draft = Draft(dice, recipe)
    data = draft.problem()
    if recipe.aim in VARIANTS:
        vary(data, recipe.aim, draft)
    data["cluster"]["device"]["memory_bytes"] = 4096 * draft.quantum
    try:
        compiled = compile_problem(load_problem(data))
    except (CompileError, OverflowGuardError):
        return None
    plans = count_plans(compiled)
    if not recipe.plans[0] <= plans <= recipe.plans[1]:
        return None
    cells = sum(1 for _ in list_cells(compiled))
    if not _MIN_CELLS <= cells <= (_MAX_CELLS_LARGE if draft.large else _MAX_CELLS):
        return None
    if recipe.aim in OPTIONS and without(compiled, recipe.aim) is None:
        return None
    quanta = _choose_memory(compiled, recipe, dice)
    if quanta is None or quanta < 1:
        return None
    memory = _memory_bytes(quanta, compiled.quantum_bytes, data["training"]["reserve_fraction"])
    data["cluster"]["device"]["memory_bytes"] = memory
    compiled = compile_problem(load_problem(data))
    if compiled.memory_quanta != quanta:
        return None  # The quantum follows from the memory, and another one was chosen.
    solution = _best(compiled)
    if recipe.memory == "impossible":
        return data if solution.plan is None else None
    if solution.batch_ticks is None or not _meets(compiled, recipe.aim, solution.batch_ticks):
        return None
    if recipe.aim in VARIANTS and not _variant_counts(data, recipe.aim, solution):
        return None
    tame = solution.batch_ticks <= _MAX_BATCH_TICKS or draft.auto_tick
    return data if tame else None


def expected_of(compiled: Compiled) -> dict[str, Any]:
    """What every engine must find: batch time, reference plan, number of plans, digest.

    Found by enumeration where there are few enough plans, else by the DP in every cell. Raises
    :class:`NestOptError` where the two differ.
    """
    solution = _best(compiled)
    reference = outline(solution.plan)
    plans = count_plans(compiled)
    if plans <= ENUMERABLE:
        best = best_plan(compiled)
        enumerated = best.evaluation.batch_ticks if best.evaluation else None
        if (enumerated, outline(best.plan)) != (solution.batch_ticks, reference):
            raise NestOptError(
                f"{compiled.name}: enumeration finds {enumerated} {outline(best.plan)}, "
                f"the DP {solution.batch_ticks} {reference}; one of them is wrong"
            )
    return {
        "batch_ticks": solution.batch_ticks,
        "plans": plans,
        "digest": compiled.digest,
        "reference": reference,
    }


def outline(plan: Plan | None) -> dict[str, Any] | None:
    """A plan of one of the two layouts in short; devices follow from the layout."""
    if plan is None:
        return None
    return {
        "microbatch": plan.microbatch,
        "replicas": plan.replicas,
        "layout": plan.layout,
        "template": _template(plan.template),
        "ends": [stage.layers[1] for stage in plan.stages],
        "recomputation": [stage.recomputation for stage in plan.stages],
        "zero": [stage.zero for stage in plan.stages],
    }


def generate_entry(index: int, seed: int = SEED) -> dict[str, Any]:
    """Problem ``index`` of a seed, with what is expected of it. Seconds to a minute.

    Raises :class:`NestOptError` if no draw meets the recipe.
    """
    recipe = recipe_of(index)
    for attempt in range(_ATTEMPTS):
        data = _attempt(recipe, Dice(seed, index, attempt))
        if data is None:
            continue
        data["name"] = f"small-{index:03d}"
        wanted = f"aim: {recipe.aim}; " if recipe.aim else ""
        data["description"] = f"{wanted}memory: {recipe.memory}"
        # Through text and back, so that what is checked is what is written.
        data = json.loads(canonical_json(data))
        compiled = compile_problem(load_problem(data))
        expected = expected_of(compiled)
        return {
            "problem": data,
            "expected": expected,
            "decisive": decisive_options(compiled, expected["batch_ticks"]),
        }
    raise NestOptError(f"problem {index}: no draw meets {recipe}; loosen the recipe")


def generate_suite(
    seed: int = SEED, *, jobs: int = 1, progress: Progress | None = None
) -> dict[str, Any]:
    """The whole suite. Raises :class:`NestOptError` if a problem cannot be made."""
    tasks = [lambda index=index: generate_entry(index, seed) for index in range(PROBLEMS)]

    done = 0

    def show(_: int, __: Outcome) -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, PROBLEMS, "drawing problems")

    outcomes = run_all(tasks, jobs=jobs, seconds=None, on_done=show)
    failed = [outcome.message for outcome in outcomes if outcome.value is None]
    if failed:
        raise NestOptError("; ".join(failed))
    return {
        "format": SUITE_FORMAT,
        "name": "small",
        "description": "Generated problems small enough to be checked in every way there is.",
        "source": f"python -m nest_opt.certify.generate --seed {seed}",
        "problems": [outcome.value for outcome in outcomes],
    }


def suite_text(suite: dict[str, Any]) -> str:
    """The file of a suite: one problem per line."""
    head = {key: value for key, value in suite.items() if key != "problems"}
    lines = ",\n".join(canonical_json(entry) for entry in suite["problems"])
    return f'{json.dumps(head, indent=1)[:-2]},\n "problems": [\n{lines}\n]}}\n'


# --- the command ----------------------------------------------------------------------------------


def decisive_table(suite: dict[str, Any]) -> str:
    """How many problems each option decides, counted anew with the DP; as text."""
    counts = dict.fromkeys(OPTIONS, 0)
    for entry in suite["problems"]:
        compiled = compile_problem(load_problem(entry["problem"]))
        for option in decisive_options(compiled, _best(compiled).batch_ticks):
            counts[option] += 1
    rows = [(option, count) for option, count in counts.items()]
    return tabulate(rows, headers=("option", "problems it decides"), tablefmt="github")


def summary(suite: dict[str, Any]) -> str:
    """Counts of a suite, as text."""
    expected = [entry["expected"] for entry in suite["problems"]]
    few = [e["plans"] for e in expected if e["plans"] <= ENUMERABLE]
    impossible = sum(e["batch_ticks"] is None for e in expected)
    return (
        f"{len(expected)} problems, {impossible} of them infeasible; {len(few)} have at most "
        f"{ENUMERABLE} plans, {sum(few) // max(len(few), 1)} on average"
    )


def _show(done: int, total: int, what: str) -> None:
    sys.stderr.write(f"\r{what} {done}/{total}" + ("\n" if done == total else ""))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a suite, or count the decisive options of one; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m nest_opt.certify.generate", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--out", type=Path, help="file to write the suite to")
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--decisive",
        action="store_true",
        help="count the options that decide a problem (of the shipped suite, without --out)",
    )
    options = parser.parse_args(arguments)
    if options.out is None and not options.decisive:
        parser.error("give --out, --decisive or both")
    try:
        if options.out is not None:
            suite = generate_suite(options.seed, jobs=options.jobs, progress=_show)
            write_text(options.out, suite_text(suite))
        else:
            suite = read_json(instances_folder() / "suites" / "small.json")
        sys.stdout.write(summary(suite) + "\n")
        if options.decisive:
            sys.stdout.write("\n" + decisive_table(suite) + "\n")
    except NestOptError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
