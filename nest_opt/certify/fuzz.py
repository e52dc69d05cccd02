"""Random problems until two engines disagree, and the smallest problem on which they do.

A problem is drawn with the tools of :mod:`nest_opt.certify.generate`, without any aim but small
size, and then bent towards corners: memory that is exactly enough or a quantum short, a batch of
one, all prices equal, empty lists, single layers, classes that cost the same, huge beside tiny
numbers, other cost models and networks. Compared are

- enumeration through the evaluator with the DP, with bounds and without: T, reference plan, claims;
- two listings of the cells, and every closed-form bound with the optimum of its cell;
- the witness of the optimum with its checker;
- for a share of the problems every question to both integer programs.

Problem n of a seed depends on (seed, n) alone. A problem on which something disagrees is shrunk: as
long as the same kind of disagreement remains, pieces are taken away and numbers made simpler.
"""

from __future__ import annotations

import contextlib
import copy
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nest_opt.cells import list_cells
from nest_opt.certify.check_witness import check_witness
from nest_opt.certify.generate import (
    ESTIMATED,
    OPTIONS,
    TIE_BREAKS,
    VARIANTS,
    Dice,
    Draft,
    Recipe,
    outline,
    vary,
)
from nest_opt.certify.own_bounds import own_cells
from nest_opt.certify.processes import run_each
from nest_opt.certify.suite import (
    Entry,
    bound_complaints,
    program_complaints,
    solution_complaints,
)
from nest_opt.certify.witness import write_witness
from nest_opt.compile import Compiled, compile_problem
from nest_opt.enumerate import best_plan, count_plans
from nest_opt.errors import NestOptError
from nest_opt.evaluate import Evaluator
from nest_opt.files import canonical_json, write_text
from nest_opt.library import load_problem
from nest_opt.solve import solve

#: Called now and then with (done, total, what is being done); the total is in seconds.
Progress = Callable[[int, int, str], None]

#: Problems with more plans or cells than this are drawn again.
MAX_PLANS, MAX_CELLS = 250, 8
#: The integer programs are asked about the best cell of a problem, and every few times about so
#: many of the best.
_PROGRAMS_CELLS, _MORE_CELLS_EVERY = 3, 4
#: One problem in so many is put to the integer programs, and one in so many to the witness.
_PROGRAMS_EVERY, _WITNESS_EVERY = 6, 5
#: Wall clock of shrinking one problem, seconds.
SHRINK_SECONDS = 40.0
_DRAWS = 200


@dataclass(frozen=True)
class Finding:
    """A disagreement: what was said, on which problem, and on the smallest one found."""

    number: int
    complaint: str
    problem: dict[str, Any]
    shrunk: dict[str, Any]
    shrunk_complaint: str


@dataclass
class FuzzReport:
    """What was compared, and what disagreed."""

    seed: int
    problems: int = 0
    infeasible: int = 0
    plans: int = 0
    with_programs: int = 0
    with_witness: int = 0
    wall_seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether something was compared, and nothing disagreed or broke."""
        return self.problems > 0 and not self.findings and not self.faults

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form."""
        return {
            "ok": self.ok,
            "seed": self.seed,
            "problems": self.problems,
            "infeasible": self.infeasible,
            "plans_enumerated": self.plans,
            "with_integer_programs": self.with_programs,
            "with_witness": self.with_witness,
            "wall_seconds": round(self.wall_seconds, 3),
            "findings": [vars(finding) for finding in self.findings],
            "faults": self.faults,
        }


# --- drawing --------------------------------------------------------------------------------------


def draw(seed: int, number: int) -> dict[str, Any]:
    """Problem ``number`` of a seed, as JSON data; always valid, not always feasible.

    Raises :class:`NestOptError` if no draw is small enough.
    """
    for attempt in range(_DRAWS):
        dice = Dice(seed, number, attempt)
        data = _one_draw(dice)
        try:
            compiled = compile_problem(load_problem(data))
        except NestOptError:
            continue
        few = count_plans(compiled) < 5 and not dice.chance(10)
        if few or count_plans(compiled) > MAX_PLANS or _cell_count(compiled) > MAX_CELLS:
            continue
        data = _with_memory(data, compiled, dice)
        data["name"] = f"fuzz-{seed}-{number}"
        result: dict[str, Any] = json.loads(canonical_json(data))
        return result
    raise NestOptError(f"fuzz: no draw of problem {number} is small enough")


def _cell_count(compiled: Compiled) -> int:
    return sum(1 for _ in list_cells(compiled))


def _one_draw(dice: Dice) -> dict[str, Any]:
    variant = dice.pick(VARIANTS) if dice.chance(35) else ""
    aim = dice.pick((*OPTIONS, *TIE_BREAKS))
    draft = Draft(dice, Recipe(aim, "ample", (0, MAX_PLANS)))
    data = draft.problem()
    if variant:
        vary(data, variant, draft)
    data["cluster"]["device"]["memory_bytes"] = 4096 * draft.quantum
    if variant not in ESTIMATED and dice.chance(60):
        _bend(data, dice)
    return data


def _bend(data: dict[str, Any], dice: Dice) -> None:
    """Towards a corner."""
    training, search = data["training"], data["search"]
    levels = data["cluster"].get("levels", [])
    layers = data["model"]["layers"]
    corner = dice.below(9)
    if corner == 0:
        training["global_batch"] = 1
    elif corner == 1 and "tied_weights" not in data["model"]:
        data["model"]["layers"] = [{k: v for k, v in layers[0].items() if k != "inputs"}]
    elif corner == 2:
        for level in levels:
            level |= {"bandwidth_bytes_per_second": 7000, "latency_seconds": 0.001}
    elif corner == 3:
        for layer in layers:
            for costs in layer["costs"]:
                costs["output_bytes"] = 0
    elif corner == 4:
        search["stages"] = [dice.pick((7, 9, 64))]
    elif corner == 5:
        for costs in dice.pick(layers)["costs"]:
            costs["forward_seconds"] = 50.0
    elif corner == 6:
        for layer in layers:
            for costs in layer["costs"]:
                costs |= {"forward_seconds": 0.02, "backward_seconds": 0.04}
    elif corner == 7:
        search["data_parallel"] = [d for d in (3, 5, 7) if d <= data["cluster"]["devices"]] or [1]
    else:
        training["cost_model"] = {
            **training.get("cost_model", {}),
            "exposed": {"collectives": 0.0, "transfers": 0.0, "synchronisation": 0.0},
        }


def _with_memory(data: dict[str, Any], compiled: Compiled, dice: Dice) -> dict[str, Any]:
    """Ample memory, or exactly what the best plan needs, or a quantum less, or far too little."""
    choice = dice.below(10)
    plan = solve(compiled, use_bounds=False).plan
    if choice < 3 or plan is None:
        return data
    needed = max(stage.memory_bytes or 0 for stage in plan.stages)
    if choice == 9:
        needed = needed // 2
    elif choice > 5:
        needed -= compiled.quantum_bytes
    data["training"]["reserve_fraction"] = 0.0
    data["cluster"]["device"]["memory_bytes"] = max(needed, 1)
    data["units"]["quantum_bytes"] = compiled.quantum_bytes
    return data


# --- comparing ------------------------------------------------------------------------------------


def exact_complaints(data: dict[str, Any]) -> list[str]:
    """What disagrees on a problem without asking a solver; empty if nothing does.

    Each complaint starts with the kind of disagreement, up to the first colon.
    """
    return _exact_complaints(_entry(data), witness=True)


def programs_complaints(data: dict[str, Any]) -> list[str]:
    """What the integer programs say that the DP does not, likewise."""
    return _programs_complaints(_entry(data))


def _exact_complaints(entry: Entry, *, witness: bool) -> list[str]:
    compiled = entry.compiled
    wrong = []
    if {c.label for c in list_cells(compiled)} != {c.label for c in own_cells(compiled)}:
        wrong.append("cells: two listings differ")
    evaluator = Evaluator(compiled)
    for how, use_bounds in (("with bounds", True), ("without bounds", False)):
        solution = solve(compiled, use_bounds=use_bounds)
        for text in solution_complaints(entry, solution, evaluator):
            wrong.append(f"the DP {how}: {text}")
    wrong += [f"bounds: {text}" for text in bound_complaints(entry)]
    if witness and not wrong:
        data = write_witness(load_problem(entry.data)).data
        result = check_witness(json.loads(canonical_json(data)))
        wrong += [f"witness: {text}" for text in result.refusals]
    return wrong


def _programs_complaints(entry: Entry, cells: int = _PROGRAMS_CELLS) -> list[str]:
    complaints = program_complaints(entry, ("runs", "assignment"), cells)
    return [f"programs: {text}" for text in complaints]


def _entry(data: dict[str, Any]) -> Entry:
    """What enumeration finds is what is expected of every engine."""
    compiled = compile_problem(load_problem(data))
    best = best_plan(compiled)
    return Entry(
        data,
        best.evaluation.batch_ticks if best.evaluation else None,
        best.plans,
        compiled.digest,
        outline(best.plan),
    )


# --- running --------------------------------------------------------------------------------------


def fuzz(
    *, seconds: float, seed: int = 1, jobs: int = 1, progress: Progress | None = None
) -> FuzzReport:
    """Draw and compare problems for so many seconds, in ``jobs`` processes.

    Shrinking what was found may take longer. Engines that break are faults of the report.
    """
    started = time.monotonic()
    report = FuzzReport(seed)
    wrong: list[tuple[int, str]] = []

    # Workers are forked before anything here has asked a solver.
    until = started + seconds
    tasks = [lambda worker=worker: _worker(seed, worker, jobs, until) for worker in range(jobs)]
    running = run_each(tasks, jobs=jobs, seconds=seconds + 600)
    with contextlib.closing(running):
        for _, outcome in running:
            if outcome.value is None:
                report.faults.append(f"{outcome.status}: {outcome.message}"[:500])
                continue
            for name in ("problems", "infeasible", "plans", "with_programs", "with_witness"):
                setattr(report, name, getattr(report, name) + outcome.value[name])
            wrong += [tuple(pair) for pair in outcome.value["wrong"]]
            if progress:
                progress(min(int(time.monotonic() - started), int(seconds)), int(seconds), "fuzz")
    for number, complaint in wrong[:5]:
        report.findings.append(_finding(seed, number, complaint))
    report.wall_seconds = time.monotonic() - started
    return report


def _worker(seed: int, worker: int, jobs: int, until: float) -> dict[str, Any]:
    """Every ``jobs``-th problem until the time is over; JSON-ready counts."""
    found: dict[str, Any] = {
        "problems": 0, "infeasible": 0, "plans": 0, "with_programs": 0, "with_witness": 0,
        "wrong": [],
    }  # fmt: skip
    number = worker
    while time.monotonic() < until and len(found["wrong"]) < 3:
        try:
            data = draw(seed, number)
        except NestOptError:
            number += jobs
            continue
        turn = number // jobs
        witness = turn % _WITNESS_EVERY == 0
        entry = _entry(data)
        complaints = _exact_complaints(entry, witness=witness)
        if turn % _PROGRAMS_EVERY == 0 and not complaints:
            more = turn % (_PROGRAMS_EVERY * _MORE_CELLS_EVERY) == 0
            complaints = _programs_complaints(entry, _PROGRAMS_CELLS if more else 1)
            found["with_programs"] += 1
        found["problems"] += 1
        found["with_witness"] += witness
        found["plans"] += entry.plans
        found["infeasible"] += entry.batch_ticks is None
        found["wrong"] += [[number, text] for text in complaints[:1]]
        number += jobs
    return found


# --- shrinking ------------------------------------------------------------------------------------


def _finding(seed: int, number: int, complaint: str) -> Finding:
    data = draw(seed, number)
    kind = complaint.partition(":")[0]
    complaints = programs_complaints if kind == "programs" else exact_complaints

    def still(candidate: dict[str, Any]) -> str | None:
        try:
            found = complaints(candidate)
        except NestOptError:
            return None
        return next((text for text in found if text.partition(":")[0] == kind), None)

    shrunk, said = shrink(data, still, SHRINK_SECONDS)
    return Finding(number, complaint, data, shrunk, said or complaint)


def shrink(
    data: dict[str, Any],
    still: Callable[[dict[str, Any]], str | None],
    seconds: float,
) -> tuple[dict[str, Any], str | None]:
    """A smaller problem on which ``still`` says something, and what it says.

    Tries simpler problems, the boldest changes first, and goes on from the first that will do,
    until none does or the time is over.
    """
    until = time.monotonic() + seconds
    said = still(data)
    changed = True
    while changed and time.monotonic() < until:
        changed = False
        for candidate in simpler(data):
            if time.monotonic() > until:
                break
            found = still(candidate)
            if found is not None:
                data, said, changed = candidate, found, True
                break
    return data, said


def simpler(data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Problems with a piece less, or with a simpler number."""

    def changed(*path: Any, to: Any) -> dict[str, Any]:
        other = copy.deepcopy(data)
        place = other
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to
        return other

    model, search, training = data["model"], data["search"], data["training"]
    if model["kind"] == "layers":
        yield from _fewer_layers(data, changed)
    for name, entries in search.items():
        if isinstance(entries, list) and len(entries) > 1:
            for n in range(len(entries)):
                yield changed("search", name, to=entries[:n] + entries[n + 1 :])
    if model.get("tied_weights"):
        yield changed("model", "tied_weights", to=[])
    for name in ("cost_model", "all_reduce", "reserve_fraction", "optimizer"):
        if name in training:
            other = copy.deepcopy(data)
            del other["training"][name]
            yield other
    if training["global_batch"] > 1:
        for batch in {1, training["global_batch"] // 2, training["global_batch"] - 1}:
            yield changed("training", "global_batch", to=batch)
    levels = data["cluster"].get("levels", [])
    for n in range(len(levels)):
        if len(levels) > 1:
            other = copy.deepcopy(data)
            del other["cluster"]["levels"][n]
            other["cluster"]["devices"] = data["cluster"]["devices"] // levels[n]["size"]
            yield other
        if levels[n]["size"] > 1:
            other = changed("cluster", "levels", n, "size", to=levels[n]["size"] - 1)
            other["cluster"]["devices"] = (
                data["cluster"]["devices"] // levels[n]["size"] * (levels[n]["size"] - 1)
            )
            yield other
    if model["kind"] == "layers":
        yield from _plainer_costs(data, changed)


def _fewer_layers(data: dict[str, Any], changed: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    layers = data["model"]["layers"]
    for n, layer in enumerate(layers):
        if len(layers) > 1:
            rest = [
                {key: value for key, value in other.items() if key != "inputs"}
                for k, other in enumerate(layers)
                if k != n
            ]
            yield changed("model", "layers", to=rest)
        if layer.get("count", 1) > 1:
            yield changed("model", "layers", n, "count", to=layer["count"] - 1)
        if "inputs" in layer:
            rest = copy.deepcopy(layers)
            for other in rest:
                other.pop("inputs", None)
            yield changed("model", "layers", to=rest)
    if len(layers[0]["costs"]) > 1:
        for n in range(len(layers[0]["costs"])):
            rest = copy.deepcopy(layers)
            for other in rest:
                del other["costs"][n]
            yield changed("model", "layers", to=rest)


def _plainer_costs(data: dict[str, Any], changed: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    needed = ("template", "forward_seconds", "backward_seconds")
    for n, layer in enumerate(data["model"]["layers"]):
        for k, costs in enumerate(layer["costs"]):
            for name, value in costs.items():
                if name in needed:
                    continue
                rest = {key: entry for key, entry in costs.items() if key != name}
                yield changed("model", "layers", n, "costs", k, to=rest)
                if isinstance(value, int | float) and value > 1:
                    yield changed("model", "layers", n, "costs", k, name, to=1)


# --- what is written ------------------------------------------------------------------------------


def write_finding(finding: Finding, folder: Path) -> tuple[Path, Path]:
    """The shrunk problem as a file, and a test that fails while the engines disagree on it."""
    name = finding.problem["name"]
    problem = folder / f"{name}.json"
    shrunk = {**finding.shrunk, "name": name, "description": finding.shrunk_complaint[:500]}
    write_text(problem, json.dumps(shrunk, indent=1) + "\n")
    test = folder / f"test_{name.replace('-', '_')}.py"
    kind = "programs" if finding.shrunk_complaint.startswith("programs") else "exact"
    write_text(test, _TEST.format(name=name, kind=kind, complaint=finding.shrunk_complaint[:200]))
    return problem, test


_TEST = '''"""Found by fuzzing: {complaint!r}."""

import json
from pathlib import Path

from nest_opt.certify.fuzz import {kind}_complaints

DATA = json.loads(Path(__file__).with_name("{name}.json").read_text())


def test_the_engines_agree() -> None:
    assert {kind}_complaints(DATA) == []
'''


def table(report: FuzzReport, written: Sequence[Path] = ()) -> str:
    """For people: what was compared, and every disagreement."""
    rate = report.problems / report.wall_seconds if report.wall_seconds else 0.0
    lines = [
        f"fuzz, seed {report.seed}: {report.problems:,} problems in {report.wall_seconds:.0f} s "
        f"({rate:.1f} a second), {report.infeasible:,} of them infeasible",
        f"enumeration = DP on all ({report.plans:,} plans), both integer programs on "
        f"{report.with_programs:,}, witness on {report.with_witness:,}",
    ]
    for finding in report.findings:
        lines.append(f"problem {finding.number}: {finding.complaint}")
        lines.append(f"  shrunk: {finding.shrunk_complaint}")
    lines += [f"fault: {fault}" for fault in report.faults]
    lines += [f"wrote {path}" for path in written]
    verdict = "all engines agree" if report.ok else "NOT all engines agree"
    return "\n".join([*lines, verdict])
