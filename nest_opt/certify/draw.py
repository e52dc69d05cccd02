"""Random problems for fuzzing: small, valid, and each drawn for a reason.

The reasons (``AIMS``) take turns. Some are corners: memory that is exactly enough or a quantum
short, a batch of one, equal prices, empty lists, single layers, classes that cost the same, huge
beside tiny numbers. Others are small families that make one term of the cost model decide: which of
two templates that cost the same, whose synchronisation is paid, which of several groups is the
worst, what a stage keeps in memory. Each starts from the tools of :mod:`nest_opt.certify.generate`
and is narrowed to few cells, so that all engines can be asked quickly.

Problem n of a seed depends on (seed, n) alone: neither the DP nor a solver has a part in it, only
the compiler, and enumeration, which chooses the memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Literal

from nest_opt.certify.generate import (
    CORNERS,
    COST_OPTIONS,
    ESTIMATED,
    NETWORKS,
    OPTIONS,
    TIE_BREAKS,
    VARIANTS,
    Dice,
    Draft,
    Recipe,
    vary,
)
from nest_opt.certify.own_bounds import own_cells
from nest_opt.compile import Compiled, compile_problem
from nest_opt.enumerate import all_plans, count_plans, preference
from nest_opt.errors import NestOptError
from nest_opt.evaluate import Evaluator
from nest_opt.files import canonical_json
from nest_opt.library import load_problem
from nest_opt.plan import LAYOUTS, RECOMPUTATIONS, Template

#: Problems with more plans or cells than this are drawn again.
MAX_PLANS, MAX_CELLS = 200, 8
#: Ample memory, in quanta.
_AMPLE = 4096
_DRAWS = 200

Memory = Literal["any", "edge", "some plan", "ample"]


@dataclass(frozen=True)
class Drawn:
    """A problem, what it was drawn for, and which corners it visits.

    ``programs`` says that the integer programs are what it was drawn for.
    """

    number: int
    aim: str
    data: dict[str, Any]
    compiled: Compiled
    corners: frozenset[str]
    programs: bool


@dataclass(frozen=True)
class Aim:
    """A reason to draw problems, and how.

    ``memory``: ``edge`` problems have exactly enough for one of the best plans or a quantum less,
    ``some plan`` problems exactly enough for some plan, ``ample`` ones enough for all, and ``any``
    is one of these or hardly any.
    """

    name: str
    build: Callable[[Dice], dict[str, Any]]
    memory: Memory = "any"
    programs: bool = False


def draw(seed: int, number: int) -> Drawn:
    """Problem ``number`` of a seed; always valid, not always feasible.

    Raises :class:`NestOptError` if no draw is small enough.
    """
    aim = aim_of(number)
    for attempt in range(_DRAWS):
        dice = Dice(seed, number, attempt)
        data = aim.build(dice)
        data["name"] = f"fuzz-{seed}-{number}"
        data["description"] = f"drawn for: {aim.name}"
        data["cluster"]["device"]["memory_bytes"] = max(
            _AMPLE * data["units"].get("quantum_bytes", 64), 1
        )
        try:
            compiled = compile_problem(load_problem(data))
        except NestOptError:
            continue
        plans = count_plans(compiled)
        few = plans < 5 and not dice.chance(10)
        if few or plans > MAX_PLANS or len(own_cells(compiled)) > MAX_CELLS:
            continue
        priced = _priced(compiled)
        quanta = _memory(priced, aim.memory, dice)
        if quanta is not None:
            data["training"]["reserve_fraction"] = 0.0
            data["cluster"]["device"]["memory_bytes"] = max(quanta * compiled.quantum_bytes, 1)
            data["units"]["quantum_bytes"] = compiled.quantum_bytes
        # Through text and back, so that what is compared is what is written.
        data = json.loads(canonical_json(data))
        compiled = compile_problem(load_problem(data))
        corners = frozenset(_corners(data, compiled, priced))
        return Drawn(number, aim.name, data, compiled, corners, aim.programs)
    raise NestOptError(f"fuzz: no draw of problem {number} is small enough")


def aim_of(number: int) -> Aim:
    """What problem ``number`` is drawn for."""
    # One further in each round: of two workers, each takes every other problem.
    return AIMS[(number + number // len(AIMS)) % len(AIMS)]


# --- memory ---------------------------------------------------------------------------------------

#: A plan's place in the total order, and the quanta that its fullest device holds.
_Priced = tuple[tuple[Any, ...], int]


def _priced(compiled: Compiled) -> list[_Priced]:
    """Every plan with a price, the best first."""
    evaluator = Evaluator(compiled)
    found = []
    for plan in all_plans(compiled):
        evaluation = evaluator.evaluate(plan)
        if evaluation.batch_ticks is not None:
            needed = max(stage.memory_bytes for stage in evaluation.stages)
            found.append((preference(evaluation, plan), needed // compiled.quantum_bytes))
    return sorted(found)


def _memory(priced: Sequence[_Priced], kind: Memory, dice: Dice) -> int | None:
    """Quanta: ample (None), what one of the best plans needs, a quantum less, or far too little."""
    choice = dice.below(10)
    if not priced or kind == "ample" or (kind == "any" and choice < 3):
        return None
    if kind == "some plan":
        needs = sorted({need for _, need in priced})
        return dice.pick(needs[:-1] or needs)
    needed = priced[0][1]
    for _ in range(dice.pick((0, 0, 1, 2, 3))):
        needed = next((need for _, need in priced if need < needed), needed)
    if choice == 9 and kind == "any":
        return needed // 2
    return max(needed - (choice > 5), 0)


# --- which corners a problem visits ---------------------------------------------------------------

#: What is counted, in the order of the report.
CORNER_NAMES = (
    "ties", "exact fits", "a quantum over", "d does not divide N", "m < s", "empty search spaces",
    "no feasible plan", "single layers", "classes of equal cost", "huge against tiny numbers",
    "batch of one", "tied weights", "expert weights", "ZeRO 2 or 3", "context ranks",
    "other networks", "other cost models",
)  # fmt: skip


def _corners(data: dict[str, Any], compiled: Compiled, priced: Sequence[_Priced]) -> list[str]:
    memory = compiled.memory_quanta
    fitting = [(key, need) for key, need in priced if need <= memory]
    best = fitting[0][0][0] if fitting else None
    cells = own_cells(compiled)
    layers = [layer for table in compiled.tables.values() for layer in table.layers]
    times = [time for layer in layers for time in (layer.forward, layer.backward) if time]
    links = [
        (level["bandwidth_bytes_per_second"], level["latency_seconds"])
        for level in data["cluster"].get("levels", ())
    ]
    slots = [
        (cell.stages, compiled.microbatches(cell.microbatch, cell.replicas, cell.template.expert))
        for cell in cells
    ]
    cost_model = data["training"].get("cost_model", {})
    holds = {
        "ties": sum(key[0] == best for key, _ in fitting) > 1,
        "exact fits": bool(fitting) and fitting[0][1] == memory,
        "a quantum over": any(
            need == memory + 1 and (best is None or key[0] < best) for key, need in priced
        ),
        "d does not divide N": any(compiled.devices % cell.replicas for cell in cells),
        "m < s": any(m < s for s, m in slots),
        "empty search spaces": not cells,
        "no feasible plan": bool(cells) and not fitting,
        "single layers": compiled.layer_count == 1,
        "classes of equal cost": len(set(links)) < len(links),
        "huge against tiny numbers": bool(times) and max(times) >= 200 * min(times),
        "batch of one": compiled.global_batch == 1,
        "tied weights": any(table.has_tied_weight for table in compiled.tables.values()),
        "expert weights": any(layer.expert.weights for layer in layers),
        "ZeRO 2 or 3": max(compiled.search.zero, default=0) > 1,
        "context ranks": any(template.context > 1 for template, _ in compiled.tables),
        "other networks": "network" in data["cluster"],
        "other cost models": any(isinstance(value, str) for value in cost_model.values()),
    }
    return [name for name in CORNER_NAMES if holds[name]]


# --- building blocks ------------------------------------------------------------------------------


def _draft(
    dice: Dice,
    aim: str = "",
    *,
    levels: Sequence[tuple[int, ...]] = (),
    degrees: Sequence[tuple[int, int, int]] = (),
    experts: bool = False,
) -> Draft:
    """A draft on some of the levels and with one of the templates, if they are given."""
    draft = Draft(dice, Recipe(aim, "ample", (0, MAX_PLANS)))
    if levels:
        draft.levels = dice.pick(levels)
        draft.devices = 1
        for size in draft.levels:
            draft.devices *= size
    if degrees:
        t, c, e = dice.pick(degrees)
        draft.tensor, draft.context, draft.expert, draft.sequence = [t], [c], [e], [False]
        draft.templates = [Template(t, c, e, False)]
    draft.has_experts = draft.has_experts or experts
    return draft


def _narrowed(data: dict[str, Any], dice: Dice) -> dict[str, Any]:
    """One microbatch, one or two cells, few choices: small enough for every engine."""
    search = data["search"]
    search["microbatch"] = [dice.pick(search["microbatch"])]
    replicas = search["data_parallel"]
    if isinstance(replicas, str):
        replicas = [d for d in (1, 2, 2, 3) if d <= data["cluster"]["devices"]]
    search["data_parallel"] = [dice.pick(replicas)]
    search["stages"] = dice.pick(([2], [2], [3], [1, 2], [2, 3]))
    if dice.chance(70):
        search["layouts"] = [dice.pick(search["layouts"])]
    for name in ("recomputation", "zero"):
        search[name] = dice.some(search[name], 2)
    return data


def _few_microbatches(data: dict[str, Any], dice: Dice) -> None:
    """So that synchronisation weighs: one to three microbatches for each replica."""
    search = data["search"]
    replicas = search["data_parallel"]
    d = replicas[0] if isinstance(replicas, list) else 1
    together = d * search["microbatch"][0] * search["expert"][0]
    data["training"]["global_batch"] = together * dice.pick((1, 1, 2, 3))


def _costs(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [costs for layer in data["model"]["layers"] for costs in layer["costs"]]


def _scale(costs: dict[str, Any], name: str, factor: int) -> None:
    """Multiply one of a layer's costs, in either way of writing it."""
    value = costs.get(name)
    if isinstance(value, dict):
        costs[name] = {key: number * factor for key, number in value.items()}
    elif value:
        costs[name] = value * factor


# --- families in which one term decides -----------------------------------------------------------


#: By which part of the order they are about: (tensor, context, expert) degrees of the templates
#: (what is missing of their product has no costs), and which search lists have two entries.
_TIES: dict[str, tuple[tuple[tuple[int, int, int], ...], tuple[str, ...]]] = {
    "devices": (((1, 1, 1), (4, 1, 1)), ("stages",)),
    "stages": (((1, 1, 1), (2, 1, 1)), ("stages",)),
    "replicas": (((1, 1, 1), (2, 1, 1)), ("data_parallel",)),
    "tensor degree": (((1, 2, 1), (2, 1, 1)), ()),
    "context degree": (((1, 1, 2), (1, 2, 1)), ()),
    "sequence parallelism": (((2, 1, 1),), ()),
    "anything": (((1, 1, 1),), ("data_parallel", "microbatch", "stages", "recomputation", "zero")),
}


def _ties(part: str) -> Callable[[Dice], dict[str, Any]]:
    return lambda dice: _tied_plans(dice, part)


def _tied_plans(dice: Dice, part: str) -> dict[str, Any]:
    """Plans that cost the same: in time, mostly, and those that need the least memory in that."""
    degrees, among = _TIES[part]
    pair = len(degrees) == 2
    longer = dice.some(among, dice.pick((1, 2)))
    draft = _draft(dice, "replicas", levels=((2,), (4,), (2, 2)))
    if pair:
        draft.levels = (max(t * c * e for t, c, e in degrees),)
        draft.devices = draft.levels[0]
    draft.tensor, draft.context, draft.expert = (
        sorted({entry[axis] for entry in degrees}) for axis in range(3)
    )
    draft.sequence = [False, True] if part == "sequence parallelism" else [False]
    draft.templates = sorted(
        {Template(t, c, e, sp and t > 1) for t, c, e in degrees for sp in draft.sequence}
    )
    draft.microbatches = [1, 2] if "microbatch" in longer else [1]
    data = draft.problem()
    model = data["model"]
    model.pop("tied_weights", None)
    if pair or dice.chance(30):
        model["layers"] = [{**model["layers"][0], "count": 2}]
        model["layers"][0].pop("inputs", None)
    recompute = dice.pick((0.0, 0.001))
    for layer in model["layers"]:
        slow = 2 if dice.chance(20) else 1
        for costs in layer["costs"]:
            names = ("template", "weight_bytes", "expert_weight_bytes")[: 2 if pair else 3]
            kept = {name: costs[name] for name in names if name in costs}
            if part in ("tensor degree", "context degree", "sequence parallelism"):
                kept["weight_bytes"] = layer["costs"][0].get("weight_bytes", 0)
            elif dice.chance(30) and "activation_bytes" in costs:
                kept["activation_bytes"] = costs["activation_bytes"]
            costs.clear()
            costs |= kept
            for name, time in (
                ("forward_seconds", 0.02 * slow),
                ("backward_seconds", 0.04),
                ("recompute_seconds", recompute),
            ):
                costs[name] = {str(b): time for b in draft.microbatches}
    data["search"] |= {
        "data_parallel": [1, 2] if "data_parallel" in longer else [dice.pick((1, 1, 2))],
        "stages": [1, 2] if "stages" in longer else [dice.pick((1, 2, 2))],
        "recomputation": (
            dice.some(RECOMPUTATIONS, 2) if "recomputation" in longer else [RECOMPUTATIONS[0]]
        ),
        "zero": dice.some((0, 1, 2, 3), 2) if "zero" in longer else [dice.pick((0, 1, 1))],
        "layouts": list(LAYOUTS) if dice.chance(40) else [dice.pick(LAYOUTS)],
    }
    if pair:
        data["search"]["stages"] = [1, 2] if "stages" in longer else [1]
    if part == "replicas":
        data["search"]["zero"] = [1]
        data["training"]["optimizer"] = "zero16"
    data["training"]["global_batch"] = 1 if dice.chance(70) else dice.pick((2, 3))
    return data


def _idle_rest(dice: Dice) -> dict[str, Any]:
    """One layer is the bottleneck whatever the others do, so that the sum of loads decides."""
    draft = _draft(dice, "costly cuts", levels=((3,), (4,), (2, 2)), degrees=((1, 1, 1),))
    data = _narrowed(draft.problem(), dice)
    data["search"] |= {"data_parallel": [1], "stages": [3], "recomputation": ["none"]}
    data["training"].pop("cost_model", None)
    data["model"].pop("tied_weights", None)
    output = dice.between(2, 12)
    for layer in data["model"]["layers"]:
        layer.pop("inputs", None)
        for costs in layer["costs"]:
            costs["output_bytes"] = output * draft.quantum
            costs.pop("weight_bytes", None)
            costs.pop("expert_weight_bytes", None)
        output = dice.below(output + 1)  # Later cuts are cheaper, and come later in the order.
    for costs in data["model"]["layers"][0]["costs"]:
        costs["forward_seconds"] = 1.0
    if dice.chance(50):
        # Between cells: a larger microbatch that costs the same at the bottleneck, less elsewhere.
        data["search"]["microbatch"] = [1, 2]
        data["training"]["global_batch"] = 1
        for n, costs in enumerate(_costs(data)):
            costs.pop("collectives", None)
            costs["output_bytes"] = dict.fromkeys(("1", "2"), 2 * draft.quantum)
            costs["forward_seconds"] = {"1": 0.03, "2": 0.02} if n else dict.fromkeys("12", 1.0)
            costs["backward_seconds"] = dict.fromkeys("12", 0.04)
    return data


def _first_stage(dice: Dice) -> dict[str, Any]:
    """Only the first stage's synchronisation is paid, and it is light."""
    draft = _draft(dice, "first stage's synchronisation", levels=((4,), (2, 2), (6,), (2, 3)))
    data = draft.problem()
    vary(data, "first stage's synchronisation", draft)
    data["search"]["data_parallel"] = [2]
    _narrowed(data, dice)
    data["search"]["stages"] = [2]
    _few_microbatches(data, dice)
    layers = data["model"]["layers"]
    for n, layer in enumerate(layers):
        for costs in layer["costs"]:
            _scale(costs, "weight_bytes", 1 if n < len(layers) // 2 else 30)
    if dice.chance(70):
        data["search"] |= {"zero": [0], "recomputation": ["none"]}
    return data


def _equal_layers(dice: Dice) -> dict[str, Any]:
    """Bounds are tight: equal layers, nothing transferred, synchronisation in one stage alone."""
    draft = _draft(dice, "equal layers", levels=((2,), (4,)))
    data = _narrowed(draft.problem(), dice)
    data["search"] |= {"data_parallel": [dice.pick((1, 2))], "stages": [2], "zero": [0]}
    data["training"].setdefault("cost_model", {})["synchronisation"] = dice.pick(
        ("first_stage", "slowest_stage")
    )
    _few_microbatches(data, dice)
    layers = data["model"]["layers"]
    if dice.chance(50):
        split = json.loads(canonical_json(layers[0]))
        split["name"] = "last"
        for costs in split["costs"]:
            _scale(costs, "weight_bytes", 40)
        layers.append(split)
        layers[0].pop("inputs", None)
    return data


def _tied(dice: Dice) -> dict[str, Any]:
    """A tied weight's ring, with the weights of the first or of the last stage beside it."""
    draft = _draft(dice, "unequal tied rings")
    data = draft.problem()
    data["search"]["zero"] = dice.pick(([0], [0], [1], [3], [0, 3]))
    _narrowed(data, dice)
    if dice.chance(60):
        data["search"]["stages"] = [dice.pick((2, 3))]
    data["search"]["layouts"] = list(LAYOUTS) if dice.chance(30) else [dice.pick(LAYOUTS)]
    _few_microbatches(data, dice)
    heavy = dice.pick((0, -1))
    for costs in data["model"]["layers"][heavy]["costs"]:
        _scale(costs, "weight_bytes", dice.pick((1, 2, 5)))
    return data


_UNEVEN = ((3, 2), (2, 3), (5, 2), (3, 3), (3, 4))
#: Two replicas of two stages, two devices wide: of the first stage's two groups of two devices, the
#: first lies across nodes.
_FIRST_IS_WORST = ((5, 2),)
_EVEN = ((2, 2), (2, 2, 2), (4, 2), (2, 4), (4, 4))


def _expert_groups(dice: Dice) -> dict[str, Any]:
    """Expert weights whose groups are spread unequally, and which take long to synchronise."""
    draft = _draft(
        dice,
        "expert",
        levels=_UNEVEN if dice.chance(70) else _EVEN,
        degrees=((1, 1, 2), (1, 1, 2), (1, 2, 2), (2, 1, 2), (1, 1, 3)),
        experts=True,
    )
    data = draft.problem()
    data["search"]["data_parallel"] = [dice.pick((1, 2, 2, 3))]
    _narrowed(data, dice)
    data["search"]["stages"] = [dice.pick((1, 1, 2))]
    data["search"]["zero"] = dice.pick(([0], [1], [2], [3], [0, 2], [0, 3]))
    _few_microbatches(data, dice)
    for costs in _costs(data):
        _scale(costs, "expert_weight_bytes", dice.pick((4, 20)))
        costs.pop("collectives", None)
    return data


def _dense_groups(dice: Dice) -> dict[str, Any]:
    """Dense weights over replicas, context and expert ranks of one tensor index."""
    across = dice.chance(25)
    draft = _draft(
        dice,
        "tensor",
        levels=_FIRST_IS_WORST if across else (*_EVEN, (3, 2), (2, 2, 3)),
        degrees=((2, 1, 1),) if across else ((2, 1, 1), (2, 2, 1), (2, 2, 1), (2, 1, 2), (3, 1, 1)),
    )
    data = draft.problem()
    data["search"]["data_parallel"] = [dice.pick((1, 2, 3))]
    _narrowed(data, dice)
    data["search"]["stages"] = [dice.pick((1, 1, 2))]
    data["search"]["zero"] = dice.pick(([0], [1], [2], [3], [0, 1]))
    if dice.chance(60):  # Gradients and weights of different size tell ZeRO 1 from ZeRO 0.
        data["training"]["optimizer"] = {"weights": 2, "gradients": 5, "optimizer": 3}
    if across:
        data["search"] |= {"data_parallel": [2], "stages": [2], "layouts": ["data-inner"]}
    _few_microbatches(data, dice)
    for costs in _costs(data):
        _scale(costs, "weight_bytes", dice.pick((4, 20)))
        costs.pop("collectives", None)
    return data


def _calls_of_groups(dice: Dice) -> dict[str, Any]:
    """Collectives whose groups within one stage lie at different distances."""
    draft = _draft(
        dice,
        "unequal groups",
        levels=((3, 2), (3, 3), (5, 2)),
        degrees=((2, 2, 1), (2, 1, 2), (1, 2, 2)),
    )
    data = _narrowed(draft.problem(), dice)
    data["search"] |= {"data_parallel": [1], "stages": [dice.pick((1, 1, 2))]}
    data["training"].get("cost_model", {}).pop("exposed", None)
    return data


#: (levels, tensor degree, d, stages, layout) in which the first devices of two stages are nearer to
#: each other in the first replica than in another, or nearer than the stages are.
_NEAR_FIRST_DEVICES: tuple[tuple[tuple[int, ...], int, int, int, str], ...] = (
    ((2, 3), 1, 2, 2, "pipeline-inner"),
    ((2, 5), 1, 2, 2, "pipeline-inner"),
    ((3, 2), 1, 2, 2, "data-inner"),
    ((4, 2), 1, 3, 2, "data-inner"),
    ((3, 2), 2, 1, 2, "pipeline-inner"),
    ((3, 2), 2, 1, 2, "data-inner"),
    ((3, 3), 2, 1, 3, "pipeline-inner"),
)


def _first_devices(dice: Dice) -> dict[str, Any]:
    """Transfers at the link of first devices, where that is another link than the worst."""
    levels, tensor, replicas, stages, layout = dice.pick(_NEAR_FIRST_DEVICES)
    aim = "first devices' link"
    draft = _draft(dice, aim, levels=(levels,), degrees=((tensor, 1, 1),))
    data = draft.problem()
    vary(data, aim, draft)
    _narrowed(data, dice)
    data["search"] |= {"data_parallel": [replicas], "stages": [stages], "layouts": [layout]}
    data["search"]["recomputation"] = [dice.pick(RECOMPUTATIONS)]
    data["training"]["global_batch"] = replicas * data["search"]["microbatch"][0] * 2
    cost_model = data["training"]["cost_model"]
    cost_model.pop("exposed", None)
    if dice.chance(40):  # Then the worst replica's link is what counts.
        del cost_model["transfer_link"]
    data["cluster"]["levels"][-1]["bandwidth_bytes_per_second"] = 1000 * draft.quantum
    for costs in _costs(data):
        costs["output_bytes"] = dice.between(4, 30) * draft.quantum
    return data


def _backward_again(dice: Dice) -> dict[str, Any]:
    """Recomputation by a second backward pass, beside transfers of any length."""
    draft = _draft(dice, "backward again")
    data = draft.problem()
    vary(data, "backward again", draft)
    _narrowed(data, dice)
    data["search"]["recomputation"] = dice.pick((["stage"], ["stage"], ["none", "stage"]))
    data["search"]["stages"] = [dice.pick((2, 3))]
    for costs in _costs(data):
        costs["output_bytes"] = dice.pick((0, 3, 20, 60, 120, 200)) * draft.quantum
        if dice.chance(40):
            costs["backward_seconds"] = costs["forward_seconds"]
    if dice.chance(40):  # The stage in the middle waits longer for gradients than it computes.
        data["search"] |= {"recomputation": ["stage"], "stages": [3]}
        for costs in _costs(data):
            costs["output_bytes"] = dice.between(150, 250) * draft.quantum
            costs["backward_seconds"] = costs["forward_seconds"]
    return data


def _gathered(dice: Dice) -> dict[str, Any]:
    """ZeRO 3 holds the largest layer whole, and pays for it with every microbatch."""
    draft = _draft(dice, "zero 3", levels=((2,), (4,), (2, 2), (2, 3)))
    data = draft.problem()
    data["search"]["data_parallel"] = [dice.pick((2, 2, 3))]
    _narrowed(data, dice)
    data["search"]["zero"] = dice.pick(([3], [3], [2, 3], [0, 3]))
    data["search"]["recomputation"] = [dice.pick(("none", "layer"))]
    for costs in _costs(data):
        _scale(costs, "weight_bytes", dice.pick((1, 2, 5, 11)))
    return data


def _kept(recomputation: str) -> Callable[[Dice], dict[str, Any]]:
    """What a stage keeps under a kind of recomputation, where a quantum matters."""

    def build(dice: Dice) -> dict[str, Any]:
        draft = _draft(dice, recomputation, levels=((2,), (3,), (4,), (2, 2)))
        data = draft.problem()
        _narrowed(data, dice)
        search = data["search"]
        search["recomputation"] = [recomputation]
        if dice.chance(40):
            other = dice.pick(RECOMPUTATIONS)
            search["recomputation"] = [r for r in RECOMPUTATIONS if r in (recomputation, other)]
        search["zero"] = [dice.pick((0, 0, 1))]
        search["stages"] = dice.pick(([2], [2], [3], [1, 2]))
        search["data_parallel"] = [1]
        data["training"]["global_batch"] = search["microbatch"][0] * dice.pick((1, 2, 3, 4, 6))
        for costs in data["model"]["layers"][0]["costs"]:
            costs["checkpoint_bytes"] = dice.between(0, 30) * draft.quantum
        for costs in _costs(data):
            if dice.chance(50):
                costs["output_bytes"] = dice.between(0, 12) * draft.quantum
            if dice.chance(60):  # What weighs is then what is kept.
                costs["weight_bytes"] = draft.quantum
        data["model"].pop("tied_weights", None)
        return data

    return build


def _trade(dice: Dice) -> dict[str, Any]:
    """A ZeRO stage that pays with every microbatch against one that pays once."""
    draft = _draft(dice, "several corners", levels=((2,), (4,), (2, 2), (3, 2)))
    data = draft.problem()
    data["search"]["data_parallel"] = [2]
    _narrowed(data, dice)
    search = data["search"]
    search["zero"] = dice.pick(([0, 2], [0, 3], [0, 2, 3], [1, 3]))
    search["stages"] = [dice.pick((1, 2))]
    search["recomputation"] = [dice.pick(("none", "layer"))]
    together = 2 * search["microbatch"][0] * search["expert"][0]
    data["training"]["global_batch"] = together * dice.pick((2, 3, 4, 6))
    for costs in _costs(data):
        _scale(costs, "weight_bytes", dice.pick((2, 5, 10)))
    if dice.chance(60):  # ZeRO 2 then saves more, once, than it costs with one microbatch.
        data["training"]["optimizer"] = {"weights": 1, "gradients": 4, "optimizer": 1}
        search["zero"] = [0, 2]
    return data


def _costly_cuts(dice: Dice) -> dict[str, Any]:
    """Cuts so dear that a stage without layers would be welcome."""
    draft = _draft(dice, "costly cuts")
    data = _narrowed(draft.problem(), dice)
    data["search"]["data_parallel"] = [1]
    data["search"]["stages"] = [dice.pick((2, 3, 3))]
    data["search"]["recomputation"] = [dice.pick(RECOMPUTATIONS)]
    for costs in _costs(data):
        costs["output_bytes"] = dice.pick((0, 1, 60, 100)) * draft.quantum
    return data


def _stages_behind(dice: Dice) -> dict[str, Any]:
    """Fewer microbatches than stages, under both rules for how many are in flight."""
    data = _kept(dice.pick(RECOMPUTATIONS))(dice)
    data["search"]["stages"] = [dice.pick((2, 3))]
    data["training"]["global_batch"] = data["search"]["microbatch"][0] * dice.pick((1, 1, 2))
    if dice.chance(60):
        data["training"].setdefault("cost_model", {})["in_flight"] = "stages_behind"
    return data


# --- everything else ------------------------------------------------------------------------------


def _corner(dice: Dice) -> dict[str, Any]:
    """Anything, bent towards a corner."""
    draft = _draft(dice, dice.pick((*OPTIONS, *TIE_BREAKS)))
    data = draft.problem()
    if dice.chance(50):
        _narrowed(data, dice)
    training, search = data["training"], data["search"]
    layers = data["model"]["layers"]
    corner = dice.below(9)
    if corner == 0:
        training["global_batch"] = 1
    elif corner == 1 and "tied_weights" not in data["model"]:
        data["model"]["layers"] = [{k: v for k, v in layers[0].items() if k != "inputs"}]
        search["stages"] = "any"
    elif corner == 2:
        for level in data["cluster"]["levels"]:
            level |= {"bandwidth_bytes_per_second": 7000, "latency_seconds": 0.001}
    elif corner == 3:
        for costs in _costs(data):
            costs["output_bytes"] = 0
    elif corner == 4:
        search["stages"] = [dice.pick((7, 9, 64))]
    elif corner == 5:
        for costs in dice.pick(layers)["costs"]:
            costs["forward_seconds"] = 50.0
    elif corner == 6:
        for costs in _costs(data):
            costs |= {"forward_seconds": 0.02, "backward_seconds": 0.04}
    elif corner == 7:
        search["data_parallel"] = [d for d in (3, 5, 7) if d <= data["cluster"]["devices"]] or [1]
    else:
        names = ("collectives", "transfers", "synchronisation")
        training["cost_model"] = {
            **training.get("cost_model", {}),
            "exposed": dict.fromkeys(names, 0.0),
        }
    return data


def _ordinary(aim: str) -> Callable[[Dice], dict[str, Any]]:
    """What the suite of generated problems is drawn for, mostly narrowed."""

    def build(dice: Dice) -> dict[str, Any]:
        draft = _draft(dice, aim)
        data = draft.problem()
        if aim in VARIANTS:
            vary(data, aim, draft)
        if aim not in ESTIMATED and aim not in TIE_BREAKS and dice.chance(60):
            wanted = data["search"]["recomputation"], data["search"]["zero"]
            _narrowed(data, dice)
            if aim in (*COST_OPTIONS, *RECOMPUTATIONS):
                data["search"]["recomputation"] = wanted[0][-2:]
            if aim.startswith("zero"):
                data["search"]["zero"] = wanted[1]
        if aim in NETWORKS and dice.chance(30):
            _few_microbatches(data, dice)
        return data

    return build


_FAMILIES = (
    *(Aim(f"ties: {part}", _ties(part), memory="some plan") for part in _TIES),
    Aim("ties: sum of loads", _idle_rest, memory="ample"),
    Aim("first stage's synchronisation alone", _first_stage, programs=True),
    Aim("equal layers", _equal_layers),
    Aim("tied weight's ring", _tied, programs=True),
    Aim("expert groups", _expert_groups, programs=True),
    Aim("backward again", _backward_again, programs=True),
    Aim("dense groups", _dense_groups, programs=True),
    Aim("groups of a stage", _calls_of_groups, programs=True),
    Aim("first devices", _first_devices, programs=True),
    Aim("gathered weights", _gathered, memory="edge", programs=True),
    Aim("kept under none", _kept("none"), memory="edge", programs=True),
    Aim("kept under selective", _kept("selective"), memory="edge", programs=True),
    Aim("kept under layer", _kept("layer"), memory="edge", programs=True),
    Aim("kept under stage", _kept("stage"), memory="edge", programs=True),
    Aim("load against synchronisation", _trade, programs=True),
    Aim("empty stages", _costly_cuts, programs=True),
    Aim("stages behind", _stages_behind, memory="edge", programs=True),
    Aim("corner", _corner),
)
_ORDINARY = (
    *(Aim(name, _ordinary(name)) for name in (*OPTIONS, *CORNERS, *VARIANTS, *TIE_BREAKS)),
    Aim("corner", _corner),
)
#: Taken in turns; the families come up three times as often as the rest.
AIMS: tuple[Aim, ...] = tuple(
    aim for aim in chain.from_iterable(zip_longest(_FAMILIES * 3, _ORDINARY)) if aim is not None
)
