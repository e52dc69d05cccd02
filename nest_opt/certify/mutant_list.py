"""The mutants: small errors in DP, integer programs, CP-SAT model and evaluator, as data.

A mutant replaces pieces of the source of one module; each piece stands there exactly once. There is
at least one for every term of section 4 of the placement model on each side, for the order of plans
(section 5), for the list of cells and the closed-form bounds, and three kinds for every constraint
family of all formulations: dropped, weakened, off by one. A strengthening row only repeats what
families say together, so it goes with the family that it repeats.

No mutant is listed that computes the same as the original.
"""

# ruff: noqa: E501 - pieces of source stand on one line

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nest_opt.certify.cp_sat_mutants import CP_SAT

Engine = Literal["dp", "milp", "evaluator", "cp-sat"]
Formulation = Literal["runs", "assignment", "arcs", "boundaries"]

#: (text that stands once in the module, text to put there)
Edit = tuple[str, str]


@dataclass(frozen=True)
class Mutant:
    """One error to be noticed.

    ``term`` is what it breaks, in the words of the placement model. ``family`` is the constraint
    family that it is about, "" for others. ``formulations`` are those whose models are asked.
    """

    name: str
    term: str
    engine: Engine
    module: str
    edits: tuple[Edit, ...]
    family: str = ""
    formulations: tuple[Formulation, ...] = ()


#: (name, term, text that stands once in the module, text to put there)
_Row = tuple[str, str, str, str]


def _of(engine: Engine, prefix: str, module: str, rows: Iterable[_Row]) -> list[Mutant]:
    asked: dict[Engine, tuple[Formulation, ...]] = {"milp": ("runs",), "cp-sat": ("boundaries",)}
    formulations = asked.get(engine, ())
    return [
        Mutant(f"{prefix}: {name}", term, engine, module, ((old, new),), formulations=formulations)
        for name, term, old, new in rows
    ]


# --- DP: what a stage costs -----------------------------------------------------------------------

_DP_TABLES: tuple[_Row, ...] = (
    ("no forward", "forward time", "x.forward + x.backward for", "x.backward for"),
    ("no backward", "backward time", "x.forward + x.backward for", "x.forward for"),
    (
        "selective is free",
        "selective recomputation time",
        '"selective": _run_sums(x.recompute_selective for x in layers)',
        '"selective": None',
    ),
    (
        "selective costs a full pass",
        "selective recomputation time",
        '"selective": _run_sums(x.recompute_selective',
        '"selective": _run_sums(x.recompute',
    ),
    (
        "layer recomputes for free",
        "layer recomputation time",
        '"layer": _run_sums(x.recompute for x in layers)',
        '"layer": None',
    ),
    (
        "stage recomputes for free",
        "stage recomputation time",
        '"stage": _run_sums(x.recompute for x in layers)',
        '"stage": None',
    ),
    (
        "layer repeats no collectives",
        "forward collectives again",
        'if recomputation in ("layer", "stage"):',
        'if recomputation == "stage":',
    ),
    (
        "stage repeats no collectives",
        "forward collectives again",
        'if recomputation in ("layer", "stage"):',
        'if recomputation == "layer":',
    ),
    (
        "selective repeats collectives",
        "forward collectives again",
        'if recomputation in ("layer", "stage"):',
        'if recomputation != "none":',
    ),
    (
        "backward collectives again, too",
        "forward collectives again",
        'if not forward_only or call.direction == "forward"',
        "if True",
    ),
    (
        "no backward collectives",
        "collectives",
        'if not forward_only or call.direction == "forward"',
        'if call.direction == "forward"',
    ),
    ("calls counted once", "collectives", "                call.count\n", "                1\n"),
    (
        "tensor calls by the context group",
        "axis group",
        '"tensor": signature.tensor,',
        '"tensor": signature.context,',
    ),
    (
        "context calls by the expert group",
        "axis group",
        '"context": signature.context,',
        '"context": signature.expert,',
    ),
    (
        "expert calls by the tensor group",
        "axis group",
        '"expert": signature.expert,',
        '"expert": signature.tensor,',
    ),
    (
        "best group of a stage",
        "worst group",
        "return max(price(shape) for shape in shapes)",
        "return min(map(price, shapes))",
    ),
    (
        "no forward transfer",
        "forward transfer",
        "self._transfers(signature.before)[:, None]",
        "self._transfers(-1)[:, None]",
    ),
    (
        "no backward transfer",
        "backward transfer",
        "self._transfers(signature.behind)[None, :]",
        "self._transfers(-1)[None, :]",
    ),
    (
        "forward transfer inside a node",
        "transfer class",
        "self._transfers(signature.before)[:, None]",
        "self._transfers(min(signature.before, 0))[:, None]",
    ),
    (
        "backward transfer inside a node",
        "transfer class",
        "self._transfers(signature.behind)[None, :]",
        "self._transfers(min(signature.behind, 0))[None, :]",
    ),
    (
        "forward transfer at the class behind",
        "transfer class",
        "self._transfers(signature.before)[:, None]",
        "self._transfers(signature.behind)[:, None]",
    ),
    (
        "forward transfer of the next cut",
        "cut",
        "self._transfers(signature.before)[:, None]",
        "np.roll(self._transfers(signature.before), -1)[:, None]",
    ),
    (
        "backward again: no recomputation",
        "backward_again",
        "np.maximum(extra, back) if signature",
        "back if signature",
    ),
    (
        "backward again: transfer besides",
        "backward_again",
        "np.maximum(extra, back) if signature",
        "extra + back if signature",
    ),
    (
        "backward again: no transfer",
        "backward_again",
        "np.maximum(extra, back) if signature",
        "extra if signature",
    ),
    (
        "backward again: last stage recomputes",
        "backward_again",
        "(np.maximum(extra, back) if signature.behind >= 0 else 0)",
        "np.maximum(extra, back)",
    ),
    (
        "stages behind: at most m",
        "in_flight: stages_behind",
        'if self.compiled.cost_model.in_flight == "stages_behind":',
        "if False:",
    ),
    ("best replica", "worst replica", "np.maximum(known, load)", "np.minimum(known, load)"),
    ("one replica for all", "worst replica", "np.maximum(known, load)", "known"),
    (
        "no gradients scattered",
        "ZeRO 2 and 3 load",
        'ticks = self._worst(lambda s: price("reduce_scatter", state.gradients, s), shapes)',
        "ticks = 0",
    ),
    (
        "weights scattered for gradients",
        "ZeRO 2 and 3 load",
        'price("reduce_scatter", state.gradients, s)',
        'price("reduce_scatter", state.weights, s)',
    ),
    ("weights gathered once", "ZeRO 3 load", "ticks += 2 * self._worst(", "ticks += self._worst("),
    ("weights never gathered", "ZeRO 3 load", "if zero == 3:", "if zero == 4:"),
    (
        "ZeRO 2 gathers weights",
        "ZeRO 2 load",
        "            if zero == 3:\n",
        "            if zero >= 2:\n",
    ),
    (
        "no expert weights in ZeRO's load",
        "dense and expert groups",
        "of(dense, position.dense) + of(expert, position.expert)",
        "of(dense, position.dense)",
    ),
    (
        "no dense weights in ZeRO's load",
        "dense and expert groups",
        "of(dense, position.dense) + of(expert, position.expert)",
        "of(expert, position.expert)",
    ),
    (
        "expert weights over dense groups in ZeRO's load",
        "dense and expert groups",
        "of(dense, position.dense) + of(expert, position.expert)",
        "of(dense, position.dense) + of(expert, position.dense)",
    ),
    (
        "ZeRO 2 free per microbatch",
        "ZeRO 2 load",
        "zero_load.get(choice.zero, np.int64(0))",
        "zero_load.get(choice.zero // 3 * 3, np.int64(0))",
    ),
    (
        "ZeRO's load remembered without its groups",
        "dense and expert groups",
        "key = (signatures, position if needs_groups else None)",
        "key = (signatures, None)",
    ),
    (
        "ZeRO 0 synchronises like 2",
        "synchronisation of ZeRO 0",
        "sync_share_ticks(zero, s, shape)",
        "sync_share_ticks(zero or 2, s, shape)",
    ),
    (
        "ZeRO 1 synchronises like 0",
        "synchronisation of ZeRO 1",
        "sync_share_ticks(zero, s, shape)",
        "sync_share_ticks(0 if zero == 1 else zero, s, shape)",
    ),
    (
        "ZeRO 1 synchronises like 2",
        "synchronisation of ZeRO 1",
        "sync_share_ticks(zero, s, shape)",
        "sync_share_ticks(2 if zero == 1 else zero, s, shape)",
    ),
    (
        "ZeRO 2 synchronises like 1",
        "synchronisation of ZeRO 2",
        "sync_share_ticks(zero, s, shape)",
        "sync_share_ticks(1 if zero == 2 else zero, s, shape)",
    ),
    (
        "ZeRO 3 synchronises like 2",
        "synchronisation of ZeRO 3",
        "sync_share_ticks(zero, s, shape)",
        "sync_share_ticks(min(zero, 2), s, shape)",
    ),
    ("no latency", "synchronisation latency", "total = total + holds * ", "total = total + 0 * "),
    (
        "latency per layer",
        "latency once per stage",
        "holds = _run_sums(int(state.weights > 0) for state in states) > 0",
        "holds = _run_sums(int(state.weights > 0) for state in states)",
    ),
    (
        "latency without bytes",
        "latency only with bytes",
        "holds = _run_sums(int(state.weights > 0) for state in states) > 0",
        "holds = _run_sums(1 for state in states) > 0",
    ),
    (
        "latency of ZeRO 0 for all",
        "synchronisation latency",
        "sync_latency_ticks(zero, shape)",
        "sync_latency_ticks(0, shape)",
    ),
    (
        "last group instead of the worst",
        "worst group",
        "np.maximum(worst, total, out=worst)",
        "worst = total",
    ),
    (
        "expert weights over dense groups",
        "dense and expert groups",
        "self._sync_kind(zero, self.expert, expert)",
        "self._sync_kind(zero, self.expert, dense)",
    ),
    (
        "dense weights over expert groups",
        "dense and expert groups",
        "self._sync_kind(zero, self.dense, dense)",
        "self._sync_kind(zero, self.dense, expert)",
    ),
    (
        "expert weights not synchronised",
        "dense and expert groups",
        "+ self._sync_kind(zero, self.expert, expert)",
        "+ 0",
    ),
    (
        "dense weights not synchronised",
        "dense and expert groups",
        "zero: self._sync_kind(zero, self.dense, dense)\n",
        "zero: 0\n",
    ),
    (
        "first_stage ignored",
        "first_stage",
        'if self.compiled.cost_model.synchronisation == "first_stage":',
        "if False:",
    ),
    (
        "first_stage always",
        "slowest_stage",
        'if self.compiled.cost_model.synchronisation == "first_stage":',
        "if True:",
    ),
    (
        "tied weight counted twice",
        "tied weight once in one stage",
        "table.dense_state(i, stages)",
        "table.dense_state(i, 2)",
    ),
    (
        "tied weight counted once everywhere",
        "tied weight once in one stage",
        "table.dense_state(i, stages)",
        "table.dense_state(i, 1)",
    ),
    (
        "no weights held",
        "memory: weights",
        "quanta(state.weights, shards if zero >= 3 else 1)",
        "0",
    ),
    (
        "no gradients held",
        "memory: gradients",
        "quanta(state.gradients, shards if zero >= 2 else 1)",
        "0",
    ),
    (
        "no optimizer state held",
        "memory: optimizer state",
        "quanta(state.optimizer, shards if zero >= 1 else 1)",
        "0",
    ),
    (
        "ZeRO 3 shards no weights",
        "memory: ZeRO sharding",
        "quanta(state.weights, shards if zero >= 3 else 1)",
        "quanta(state.weights)",
    ),
    (
        "ZeRO 2 shards weights",
        "memory: ZeRO sharding",
        "shards if zero >= 3 else 1",
        "shards if zero >= 2 else 1",
    ),
    (
        "ZeRO 2 shards no gradients",
        "memory: ZeRO sharding",
        "quanta(state.gradients, shards if zero >= 2",
        "quanta(state.gradients, shards if zero >= 3",
    ),
    (
        "ZeRO 1 shards gradients",
        "memory: ZeRO sharding",
        "quanta(state.gradients, shards if zero >= 2",
        "quanta(state.gradients, shards if zero >= 1",
    ),
    (
        "ZeRO 1 shards no optimizer state",
        "memory: ZeRO sharding",
        "quanta(state.optimizer, shards if zero >= 1",
        "quanta(state.optimizer, shards if zero >= 2",
    ),
    (
        "ZeRO 0 shards optimizer state",
        "memory: ZeRO sharding",
        "quanta(state.optimizer, shards if zero >= 1",
        "quanta(state.optimizer, shards if zero >= 0",
    ),
    (
        "sharded sizes rounded down",
        "memory: divided first, rounded up then",
        "quanta(state.optimizer, shards if zero >= 1 else 1)",
        "int(state.optimizer / (shards if zero >= 1 else 1) / self.compiled.quantum_bytes)",
    ),
    (
        "dense weights sharded over replicas and context only",
        "memory: who shares",
        '"dense": replicas * template.context * template.expert',
        '"dense": replicas * template.context',
    ),
    (
        "dense weights sharded over replicas and expert only",
        "memory: who shares",
        '"dense": replicas * template.context * template.expert',
        '"dense": replicas * template.expert',
    ),
    (
        "dense weights sharded inside a replica only",
        "memory: who shares",
        '"dense": replicas * template.context * template.expert',
        '"dense": template.context * template.expert',
    ),
    (
        "dense weights sharded over tensor ranks too",
        "memory: who shares",
        '"dense": replicas * template.context * template.expert',
        '"dense": replicas * template.width',
    ),
    (
        "expert weights sharded over replicas only",
        "memory: who shares",
        '"expert": replicas * template.context,',
        '"expert": replicas,',
    ),
    (
        "expert weights sharded over expert ranks too",
        "memory: who shares",
        '"expert": replicas * template.context,',
        '"expert": replicas * template.context * template.expert,',
    ),
    (
        "nothing added back",
        "memory: ZeRO 3 adds back",
        "        if zero >= 3:\n            total",
        "        if zero >= 4:\n            total",
    ),
    (
        "dense weights alone added back",
        "memory: ZeRO 3 adds back",
        "quanta(dense.weights) + quanta(expert.weights)",
        "quanta(dense.weights)",
    ),
    (
        "expert weights alone added back",
        "memory: ZeRO 3 adds back",
        "quanta(dense.weights) + quanta(expert.weights)",
        "quanta(expert.weights)",
    ),
    (
        "all layers added back",
        "memory: ZeRO 3 adds back",
        "total = total + _run_maxima(",
        "total = total + _run_sums(",
    ),
    (
        "none: one microbatch",
        "memory: none",
        "static + in_flight * self._activations",
        "static + self._activations",
    ),
    (
        "none: selective activations",
        "memory: none",
        "static + in_flight * self._activations",
        "static + in_flight * self._selective",
    ),
    (
        "selective: one microbatch",
        "memory: selective",
        "static + in_flight * self._selective",
        "static + self._selective",
    ),
    (
        "selective: all activations",
        "memory: selective",
        "static + in_flight * self._selective",
        "static + in_flight * self._activations",
    ),
    (
        "selective: no attention core",
        "memory: working, selective",
        "self._selective + self._largest_core",
        "self._selective",
    ),
    (
        "selective: every attention core",
        "memory: working, selective",
        "self._largest_core = _run_maxima(",
        "self._largest_core = _run_sums(",
    ),
    (
        "layer: one checkpoint",
        "memory: layer",
        "static + in_flight * self._checkpoints",
        "static + self._checkpoints",
    ),
    (
        "layer: no working memory",
        "memory: working, layer",
        "self._checkpoints + self._largest_activations",
        "self._checkpoints",
    ),
    (
        "layer: activations of all layers",
        "memory: working, layer",
        "self._largest_activations = _run_maxima(",
        "self._largest_activations = _run_sums(",
    ),
    (
        "stage: f inputs",
        "memory: stage, f - 1",
        "(in_flight - 1) * self._input",
        "in_flight * self._input",
    ),
    ("stage: no inputs", "memory: stage", "static + (in_flight - 1) * self._input + ", "static + "),
    (
        "stage: no activations",
        "memory: working, stage",
        "* self._input + self._activations",
        "* self._input",
    ),
    (
        "stage: largest layer only",
        "memory: working, stage",
        "* self._input + self._activations",
        "* self._input + self._largest_activations",
    ),
    (
        "stage 0 keeps nothing",
        "memory: first layer's checkpoint",
        "inputs[0] = layers[0].checkpoint",
        "inputs[0] = 0",
    ),
    (
        "stage keeps a checkpoint for its cut",
        "memory: stage's cut",
        "inputs = list(table.cut_quanta)",
        "inputs = [x.checkpoint for x in layers]",
    ),
    (
        "in flight: s - j",
        "in flight min(s - j, m)",
        "return min(q + 1, self.microbatches)",
        "return q + 1",
    ),
    (
        "in flight: m",
        "in flight min(s - j, m)",
        "return min(q + 1, self.microbatches)",
        "return self.microbatches",
    ),
    (
        "in flight: one less",
        "in flight min(s - j, m)",
        "return min(q + 1, self.microbatches)",
        "return min(max(q, 1), self.microbatches)",
    ),
    (
        "in flight: one more",
        "in flight min(s - j, m)",
        "return min(q + 1, self.microbatches)",
        "return min(q + 2, self.microbatches)",
    ),
    ("a quantum too much", "usable memory", "<= limit) & self._runs", "<= limit + 1) & self._runs"),
    ("a quantum too little", "usable memory", "<= limit) & self._runs", "< limit) & self._runs"),
    (
        "stronger recomputation first",
        "order: recomputation",
        "        for recomputation in RECOMPUTATIONS\n",
        "        for recomputation in reversed(RECOMPUTATIONS)\n",
    ),
    (
        "higher ZeRO stage first",
        "order: ZeRO",
        "for zero in sorted(search.zero)",
        "for zero in sorted(search.zero, reverse=True)",
    ),
)

# --- DP: chaining stages --------------------------------------------------------------------------

_DP_RECURRENCE: tuple[_Row, ...] = (
    ("tied ring not in the first stage", "tied ring in sigma_0", "sync[0] += ring", "sync[0] += 0"),
    (
        "tied ring not in the last stage",
        "tied ring in sigma_(s-1)",
        "sync[1:] += ring",
        "sync[1:] += 0",
    ),
    (
        "tied ring at the class of neighbours",
        "class of the tied ring",
        "int(classes[s - 1])",
        "int(classes[1])",
    ),
    (
        "no tied ring between two stages",
        "tied ring",
        "for s in range(2, longest + 1):",
        "for s in range(3, longest + 1):",
    ),
    (
        "tied weight counted twice in one stage",
        "tied weight once in one stage",
        "family.microbatches, stages=1)",
        "family.microbatches, stages=2)",
    ),
    (
        "sum of loads for the bottleneck",
        "tau is the largest load",
        "            np.maximum,\n            longest,",
        "            add,\n            longest,",
    ),
    (
        "smallest synchronisation for sigma",
        "sigma is the largest sigma_j",
        "alone=False), np.maximum, longest",
        "alone=False), np.minimum, longest",
    ),
    (
        "later stage ends first",
        "order: stage ends",
        "k = int(np.argmin(add(least[q][i], values[q - 1])))",
        "k = self.layers - int(np.argmin(add(least[q][i], values[q - 1])[::-1]))",
    ),
    (
        "load limit of a corner ignored",
        "reference plan keeps tau",
        "np.where(table.load <= max_load, table.load, INFINITE)",
        "table.load.copy()",
    ),
    (
        "load limit too strict",
        "reference plan keeps tau",
        "np.where(table.load <= max_load, ",
        "np.where(table.load < max_load, ",
    ),
    (
        "synchronisation limit of a corner ignored",
        "reference plan keeps sigma",
        "self._allowed_loads(q, ring, max_load, max_sync, alone) for q",
        "self._allowed_loads(q, ring, max_load, int(INFINITE), alone) for q",
    ),
    (
        "memory claimed for one microbatch less",
        "in flight min(s - j, m)",
        "pricer.in_flight(q)",
        "pricer.in_flight(max(q - 1, 0))",
    ),
)

_DP_FRONTIER: tuple[_Row, ...] = (
    (
        "no synchronisation in T",
        "T = (m + s - 1) tau + sigma",
        "        batch_ticks = slots * tau + sigma\n",
        "        batch_ticks = slots * tau\n",
    ),
    (
        "least synchronisation in T",
        "T = (m + s - 1) tau + sigma",
        "        batch_ticks = slots * tau + sigma\n",
        "        batch_ticks = slots * tau + least_sync\n",
    ),
    (
        "one slot less",
        "T = (m + s - 1) tau + sigma",
        "        batch_ticks = slots * tau + sigma\n",
        "        batch_ticks = (slots - 1) * tau + sigma\n",
    ),
    (
        "ends of the frontier only",
        "non-dominated pairs",
        "max_sync = sigma - 1",
        "max_sync = min(sigma - 1, least_sync)",
    ),
    ("least load only", "non-dominated pairs", "max_sync = sigma - 1", "break"),
    (
        "stops at a tie",
        "cells that tie are solved",
        "slots * tau + least_sync > best",
        "slots * tau + least_sync >= best",
    ),
)

_DP_GEOMETRY: tuple[_Row, ...] = (
    (
        "first devices: the union",
        "transfer_link: first_devices",
        "        if self.first_devices:\n",
        "        if False:\n",
    ),
    (
        "first devices: of every replica",
        "transfer_link: first_devices",
        "return np.repeat(first, replicas, axis=1)",
        "return self._classes(starts[:-1], starts[1:], 1)",
    ),
    (
        "any network: links inside a stage do not count",
        "class of a set",
        "in ((low, low), (low, high), (high, high)):",
        "in ((low, high),):",
    ),
    (
        "any network: a group is as far apart as its ends",
        "class of a set",
        "int(matrix[np.ix_(row, row)].max()) for row in groups",
        "int(matrix[row[0], row[-1]]) for row in groups",
    ),
    (
        "replicas at floor(r N / d)",
        "pipeline-inner interval",
        "r * (devices // replicas) + q * width",
        "r * devices // replicas + q * width",
    ),
    (
        "replicas packed",
        "pipeline-inner interval",
        "r * (devices // replicas) + q * width",
        "r * (len(q) * width) + q * width",
    ),
    (
        "replicas side by side",
        "pipeline-inner interval",
        'if layout == "pipeline-inner":',
        "if False:",
    ),
    ("replicas far apart", "data-inner interval", 'if layout == "pipeline-inner":', "if True:"),
    (
        "stages shifted by one device",
        "data-inner interval",
        "q * (replicas * width) + r * width",
        "q * (replicas * width) + r * width + (q > 0) * (devices - len(q) * replicas * width > 0)",
    ),
    (
        "tensor index slowest for calls",
        "axis groups",
        "index = start + np.arange(t * c * e).reshape(e, c, t)",
        "index = start + np.arange(t * c * e).reshape(t, c, e).transpose(2, 1, 0)",
    ),
    (
        "tensor index slowest for synchronisation",
        "dense and expert groups",
        "np.arange(t * c * e).reshape(1, e, c, t)",
        "np.arange(t * c * e).reshape(1, t, c, e).transpose(0, 3, 2, 1)",
    ),
    (
        "expert groups leave out the context ranks",
        "expert groups",
        "index.transpose(1, 3, 0, 2).reshape(e * t, -1)",
        "index.transpose(1, 3, 2, 0).reshape(e * t * c, -1)",
    ),
    (
        "link class of one end",
        "class of a union",
        "!= (high + width - 1) // size",
        "!= high // size",
    ),
    (
        "smallest branching",
        "n_k is the largest number of blocks",
        "branching.append((seen - before_parent).max(axis=1))",
        "branching.append((seen - before_parent)[:, -1])",
    ),
    (
        "shapes repeat from node to node",
        "class of a set",
        "return block[-2] if len(block) > 1 else 1",
        "return block[0] if len(block) > 1 else 1",
    ),
    (
        "tied ring in the best replica",
        "worst replica of the tied ring",
        "template.width).max(axis=1)",
        "template.width).min(axis=1)",
    ),
    (
        "first replica stands for all",
        "worst replica",
        "for offset, link_before, link_behind in rows.tolist():",
        "for offset, link_before, link_behind in rows.tolist()[:1]:",
    ),
    (
        "neighbours swapped",
        "transfer class",
        "later.add(Signature(*shapes, link_before, link_behind))",
        "later.add(Signature(*shapes, link_behind, link_before))",
    ),
)

# --- DP: order of plans, cells, bounds ------------------------------------------------------------


def _order(name: str, term: str, line: str) -> _Row:
    """A part of the order of plans, reversed."""
    return (f"{name} reversed", f"order: {term}", f"        {line},\n", f"        -({line}),\n")


_DP_SOLVE: tuple[_Row, ...] = (
    (
        "sum of loads left out",
        "order: sum of loads",
        "        sum(stage.load for stage in stages),\n",
        "        0,\n",
    ),
    _order("sum of loads", "sum of loads", "sum(stage.load for stage in stages)"),
    _order("devices used", "devices", "cell.replicas * cell.stages * template.width"),
    _order("number of stages", "stages", "cell.stages"),
    _order("replicas", "d", "cell.replicas"),
    _order("microbatch", "b", "cell.microbatch"),
    _order("tensor degree", "t", "template.tensor"),
    _order("context degree", "c", "template.context"),
    _order("sequence parallelism", "sequence parallelism", "template.sequence_parallel"),
    _order("layout", "layout", "LAYOUTS.index(cell.layout)"),
    (
        "devices used left out",
        "order: devices",
        "        cell.replicas * cell.stages * template.width,\n",
        "        0,\n",
    ),
    (
        "cells at T* skipped by the work bound",
        "cells that tie are solved",
        "if bound <= best and",
        "if bound < best and",
    ),
    (
        "cells at T* skipped by counting",
        "cells that tie are solved",
        "bounds.may_reach(cell, best)",
        "bounds.may_reach(cell, best - 1)",
    ),
    (
        "first of the winning corners",
        "order of plans",
        "key=lambda candidate: candidate.key",
        "key=lambda candidate: 0",
    ),
)

_DP_CELLS: tuple[_Row, ...] = (
    (
        "m rounded down",
        "m = ceil(G / (d b e))",
        "m = compiled.microbatches(b, d, template.expert)",
        "m = max(1, compiled.global_batch // (d * b * template.expert))",
    ),
    (
        "m without the expert degree",
        "m = ceil(G / (d b e))",
        "m = compiled.microbatches(b, d, template.expert)",
        "m = compiled.microbatches(b, d, 1)",
    ),
    (
        "m + s",
        "m + s - 1",
        "self.microbatches + self.stages - 1",
        "self.microbatches + self.stages",
    ),
    ("m", "m + s - 1", "self.microbatches + self.stages - 1", "self.microbatches"),
    (
        "any: no padding",
        "data-parallel degrees, any",
        "-(-batch // (microbatch * expert))",
        "batch // (microbatch * expert)",
    ),
    ("even: padding", "data-parallel degrees, even", "if each % d == 0", "if True"),
    (
        "even: whatever e is",
        "data-parallel degrees, even",
        "if batch % (microbatch * expert):",
        "if batch % microbatch:",
    ),
    (
        "list: largest degree left out",
        "data-parallel degrees, a list",
        "return sorted(d for d in choice if d <= compiled.devices)",
        "return sorted(d for d in choice if d <= compiled.devices)[:-1]",
    ),
    (
        "one stage per device at most",
        "stages that fit",
        "compiled.devices // (replicas * width))",
        "(compiled.devices - 1) // (replicas * width))",
    ),
    (
        "no stage of one layer each",
        "stages that fit",
        "most = min(compiled.layer_count, ",
        "most = min(compiled.layer_count - 1, ",
    ),
    ("one layout only", "both layouts", "for layout in LAYOUTS:", "for layout in LAYOUTS[:1]:"),
)

_DP_BOUNDS: tuple[_Row, ...] = (
    (
        "work bound too strong by one",
        "work bound",
        "return max(separate, ",
        "return 1 + max(separate, ",
    ),
    ("work bound: dearest recomputation", "work bound", "load + min(extra[", "load + max(extra["),
    (
        "work bound: dearest place for a call",
        "work bound",
        "        return min(\n            max(price(kind, size, shape)",
        "        return max(\n            max(price(kind, size, shape)",
    ),
    (
        "work bound: every stage has two transfers",
        "work bound",
        "2 * (s - 1) * transfer",
        "2 * s * transfer",
    ),
    (
        "work bound: largest cut",
        "work bound",
        "transfer=tuple(min((row[i]",
        "transfer=tuple(max((row[i]",
    ),
    (
        "work bound: synchronisation of one stage",
        "work bound",
        "(-sync // (s * multiple * denominator)) * multiple",
        "(-sync // (multiple * denominator)) * multiple",
    ),
    (
        "work bound: gradients carried three times",
        "work bound",
        "reduced = 2 * gradients",
        "reduced = 3 * gradients",
    ),
    (
        "work bound: first_stage ignored",
        "work bound",
        '        if compiled.cost_model.synchronisation == "first_stage":\n',
        "        if False:\n",
    ),
    (
        "counting: one layer more",
        "counting bound",
        "return int(most.sum()) >= self.needed",
        "return int(most.sum()) > self.needed",
    ),
    (
        "counting: load limit too strict",
        "counting bound",
        "(self.load <= max_load)",
        "(self.load < max_load)",
    ),
    (
        "counting: synchronisation limit too strict",
        "counting bound",
        "(self.sync <= max_sync)",
        "(self.sync < max_sync)",
    ),
    (
        "counting: a quantum too little",
        "counting bound",
        "np.stack(fits) <= limit",
        "np.stack(fits) < limit",
    ),
    (
        "counting: largest cut kept",
        "counting bound",
        "else min(self.table.cut_quanta[1:], default=0)",
        "else max(self.table.cut_quanta[1:], default=0)",
    ),
    (
        "counting: tied weight twice in one stage",
        "counting bound",
        "self.table.dense_state(i, 1 if alone else 2)",
        "self.table.dense_state(i, 2)",
    ),
    (
        "counting: in flight s - j",
        "counting bound",
        "min(q + 1, self.microbatches) if capped else q + 1",
        "q + 1",
    ),
    (
        "work bound: backward again recomputes everywhere",
        "work bound",
        "full = 0  #",
        "full = layer.recompute  #",
    ),
    (
        "counting: backward again adds the transfer",
        "counting bound",
        "np.maximum(self._sum(fixed, lambda i: table.layers[i].recompute), back)",
        "self._sum(fixed, lambda i: table.layers[i].recompute) + back",
    ),
    (
        "counting: backward again in the last stage",
        "counting bound",
        "if backward_again and signature.behind >= 0:",
        "if backward_again:",
    ),
    (
        "work bound: dearest link of any network",
        "work bound",
        "int(joins.min())",
        "int(joins.max())",
    ),
    (
        "counting: tries one part only",
        "counting bound",
        "parts += [(low, middle), (middle + 1, high)]",
        "parts += [(low, middle)]",
    ),
)

# --- integer programs: cost terms -----------------------------------------------------------------

_MILP_COSTS: tuple[_Row, ...] = (
    (
        "no forward",
        "forward time",
        "ticks = layer.forward + layer.backward",
        "ticks = layer.backward",
    ),
    (
        "no backward",
        "backward time",
        "ticks = layer.forward + layer.backward",
        "ticks = layer.forward",
    ),
    (
        "selective is free",
        "selective recomputation time",
        "ticks += layer.recompute_selective",
        "ticks += 0",
    ),
    (
        "layer and stage recompute for free",
        "layer and stage recomputation time",
        "                ticks += layer.recompute\n",
        "                ticks += 0\n",
    ),
    (
        "stage recomputes for free",
        "stage recomputation time",
        "elif again:",
        'elif again and recomputation == "layer":',
    ),
    (
        "layer recomputes for free",
        "layer recomputation time",
        "elif again:",
        'elif again and recomputation == "stage":',
    ),
    (
        "layer repeats no collectives",
        "forward collectives again",
        'again = recomputation in ("layer", "stage") and',
        'again = recomputation == "stage" and',
    ),
    (
        "stage repeats no collectives",
        "forward collectives again",
        'again = recomputation in ("layer", "stage") and',
        'again = recomputation == "layer" and',
    ),
    (
        "selective repeats collectives",
        "forward collectives again",
        'again = recomputation in ("layer", "stage") and',
        'again = recomputation != "none" and',
    ),
    (
        "backward collectives again, too",
        "forward collectives again",
        ' and call.direction == "forward"',
        "",
    ),
    ("calls counted once", "collectives", "ticks += call.count * once", "ticks += once"),
    ("best group of a stage", "worst group", "once = max(\n", "once = min(\n"),
    (
        "tensor groups for every axis",
        "axis group",
        "signature.groups[AXES.index(call.axis)]",
        "signature.groups[0]",
    ),
    (
        "context groups for every axis",
        "axis group",
        "signature.groups[AXES.index(call.axis)]",
        "signature.groups[1]",
    ),
    (
        "context and expert groups swapped",
        "axis group",
        "signature.groups[AXES.index(call.axis)]",
        "signature.groups[(0, 2, 1)[AXES.index(call.axis)]]",
    ),
    (
        "no forward transfer",
        "forward transfer",
        "link(before, r) if before else None",
        "None",
    ),
    (
        "no backward transfer",
        "backward transfer",
        "link(after, r) if after else None",
        "None",
    ),
    (
        "forward transfer inside a node",
        "transfer class",
        "link(before, r) if before",
        "0 if before",
    ),
    (
        "backward transfer inside a node",
        "transfer class",
        "link(after, r) if after",
        "0 if after",
    ),
    (
        "forward transfer from another replica",
        "transfer class",
        "network.class_of([*here[r], *others[r]])",
        "network.class_of([*here[r], *others[0]])",
    ),
    (
        "first devices: of every replica",
        "transfer_link: first_devices",
        "network.class_of([here[0][0], others[0][0]])",
        "network.class_of([here[r][0], others[r][0]])",
    ),
    (
        "first devices: the union",
        "transfer_link: first_devices",
        "if first_devices:",
        "if False:",
    ),
    (
        "backward again: no recomputation",
        "backward_again",
        "if self.backward_again and signature.send_class is not None:",
        "if False:",
    ),
    (
        "backward again: last stage recomputes",
        "backward_again",
        "if self.backward_again and signature.send_class is not None:",
        "if self.backward_again:",
    ),
    (
        "backward again: transfer besides",
        "backward_again",
        "rows.append(LoadRow(instead, receive, nothing))",
        "rows.append(LoadRow(instead, receive, send))",
    ),
    (
        "backward again: no transfer",
        "backward_again",
        "rows.append(LoadRow(instead, receive, nothing))",
        "rows[-1] = LoadRow(instead, receive, nothing)",
    ),
    (
        "stages behind: at most m",
        "in_flight: stages_behind",
        'if self.compiled.cost_model.in_flight == "at_most_microbatches":',
        "if True:",
    ),
    (
        "first replica stands for all",
        "worst replica",
        "return list(found)",
        "return list(found)[:1]",
    ),
    (
        "no gradients scattered",
        "ZeRO 2 and 3 load",
        'ticks = max(price("reduce_scatter", state.gradients, shape) for shape in shapes)',
        "ticks = 0",
    ),
    ("weights gathered once", "ZeRO 3 load", "ticks += 2 * max(price(", "ticks += max(price("),
    (
        "weights never gathered",
        "ZeRO 3 load",
        "            if zero == 3:\n",
        "            if zero == 4:\n",
    ),
    (
        "ZeRO 2 free per microbatch",
        "ZeRO 2 load",
        "        if zero < 2:\n",
        "        if zero < 3:\n",
    ),
    (
        "no expert weights in ZeRO's load",
        "dense and expert groups",
        " + of_kind(layer.expert, expert_shapes)",
        "",
    ),
    (
        "no dense weights in ZeRO's load",
        "dense and expert groups",
        "of_kind(dense, dense_shapes) + ",
        "",
    ),
    (
        "expert weights over dense groups in ZeRO's load",
        "dense and expert groups",
        "of_kind(layer.expert, expert_shapes)",
        "of_kind(layer.expert, dense_shapes)",
    ),
    (
        "ZeRO 1 synchronises like 0",
        "synchronisation of ZeRO 1",
        "share(zero, dense, dense_shape)",
        "share(0 if zero == 1 else zero, dense, dense_shape)",
    ),
    (
        "ZeRO 2 synchronises like 1",
        "synchronisation of ZeRO 2",
        "share(zero, dense, dense_shape)",
        "share(1 if zero == 2 else zero, dense, dense_shape)",
    ),
    (
        "ZeRO 3 synchronises like 2",
        "synchronisation of ZeRO 3",
        "share(zero, dense, dense_shape)",
        "share(min(zero, 2), dense, dense_shape)",
    ),
    (
        "ZeRO 0 synchronises like 2",
        "synchronisation of ZeRO 0",
        "share(zero, dense, dense_shape)",
        "share(zero or 2, dense, dense_shape)",
    ),
    (
        "expert weights not synchronised",
        "dense and expert groups",
        " + share(zero, layer.expert, expert_shape)",
        "",
    ),
    (
        "dense weights not synchronised",
        "dense and expert groups",
        "share(zero, dense, dense_shape) + ",
        "",
    ),
    (
        "expert weights over dense groups",
        "dense and expert groups",
        "share(zero, layer.expert, expert_shape)",
        "share(zero, layer.expert, dense_shape)",
    ),
    (
        "no dense latency",
        "synchronisation latency",
        "dense_latency={z: latency(z, dense_shape) for z in zeros}",
        "dense_latency={z: 0 for z in zeros}",
    ),
    (
        "no expert latency",
        "synchronisation latency",
        "expert_latency={z: latency(z, expert_shape) for z in zeros}",
        "expert_latency={z: 0 for z in zeros}",
    ),
    (
        "latency of ZeRO 0 for all",
        "synchronisation latency",
        "latency(z, dense_shape)",
        "latency(0, dense_shape)",
    ),
    (
        "dense latency without bytes",
        "latency only with bytes",
        "has_dense=tuple(self.dense(i).weights > 0 for i in layers)",
        "has_dense=tuple(True for i in layers)",
    ),
    (
        "expert latency without bytes",
        "latency only with bytes",
        "has_expert=tuple(self.expert(i).weights > 0 for i in layers)",
        "has_expert=tuple(True for i in layers)",
    ),
    (
        "one dense group stands for all",
        "worst group",
        "for dense_shape in sorted(self.dense_shapes(position))",
        "for dense_shape in sorted(self.dense_shapes(position))[:1]",
    ),
    (
        "one expert group stands for all",
        "worst group",
        "for expert_shape in sorted(self.expert_shapes(position))",
        "for expert_shape in sorted(self.expert_shapes(position))[:1]",
    ),
    (
        "first_stage ignored",
        "first_stage",
        "synchronised=(0,) if first_only else tuple(stages)",
        "synchronised=tuple(stages)",
    ),
    (
        "first_stage always",
        "slowest_stage",
        "synchronised=(0,) if first_only else tuple(stages)",
        "synchronised=(0,)",
    ),
    (
        "tied weight counted twice",
        "tied weight once in one stage",
        "self.table.dense_state(layer, self.cell.stages)",
        "self.table.dense_state(layer, 2)",
    ),
    (
        "tied weight counted once everywhere",
        "tied weight once in one stage",
        "self.table.dense_state(layer, self.cell.stages)",
        "self.table.dense_state(layer, 1)",
    ),
    (
        "tied ring not in the first stage",
        "tied ring in sigma_0",
        "if position in (0, self.cell.stages - 1) else 0",
        "if position == self.cell.stages - 1 else 0",
    ),
    (
        "tied ring not in the last stage",
        "tied ring in sigma_(s-1)",
        "if position in (0, self.cell.stages - 1) else 0",
        "if position == 0 else 0",
    ),
    (
        "tied ring in every stage",
        "tied ring in sigma_0 and sigma_(s-1)",
        "if position in (0, self.cell.stages - 1) else 0",
        "if True else 0",
    ),
    (
        "tied ring in the best replica",
        "worst replica of the tied ring",
        "        return max(\n            self.compiled.tied_ring_ticks(",
        "        return min(\n            self.compiled.tied_ring_ticks(",
    ),
    (
        "tied ring inside a node",
        "class of the tied ring",
        "self.compiled.network.class_of([*first, *last])",
        "0",
    ),
    ("no weights held", "memory: weights", "quanta(state.weights, ranks if zero >= 3 else 1)", "0"),
    (
        "no gradients held",
        "memory: gradients",
        "quanta(state.gradients, ranks if zero >= 2 else 1)",
        "0",
    ),
    (
        "no optimizer state held",
        "memory: optimizer state",
        "quanta(state.optimizer, ranks if zero >= 1 else 1)",
        "0",
    ),
    (
        "ZeRO 3 shards no weights",
        "memory: ZeRO sharding",
        "quanta(state.weights, ranks if zero >= 3 else 1)",
        "quanta(state.weights)",
    ),
    (
        "ZeRO 2 shards no gradients",
        "memory: ZeRO sharding",
        "ranks if zero >= 2 else 1",
        "ranks if zero >= 3 else 1",
    ),
    (
        "ZeRO 1 shards gradients",
        "memory: ZeRO sharding",
        "ranks if zero >= 2 else 1",
        "ranks if zero >= 1 else 1",
    ),
    (
        "ZeRO 1 shards no optimizer state",
        "memory: ZeRO sharding",
        "ranks if zero >= 1 else 1",
        "ranks if zero >= 2 else 1",
    ),
    (
        "dense weights sharded over replicas and context only",
        "memory: who shares",
        "dense_ranks = expert_ranks * cell.template.expert",
        "dense_ranks = expert_ranks",
    ),
    (
        "weights sharded over replicas only",
        "memory: who shares",
        "expert_ranks = cell.replicas * cell.template.context",
        "expert_ranks = cell.replicas",
    ),
    (
        "weights sharded inside a replica only",
        "memory: who shares",
        "expert_ranks = cell.replicas * cell.template.context",
        "expert_ranks = cell.template.context",
    ),
    (
        "expert weights sharded over expert ranks too",
        "memory: who shares",
        "kept(layer.expert, expert_ranks)",
        "kept(layer.expert, dense_ranks)",
    ),
    (
        "nothing added back",
        "memory: ZeRO 3 adds back",
        "gathered=gathered if c.zero == 3 else nothing",
        "gathered=nothing",
    ),
    (
        "added back by ZeRO 2",
        "memory: ZeRO 3 adds back",
        "gathered=gathered if c.zero == 3 else nothing",
        "gathered=gathered if c.zero >= 2 else nothing",
    ),
    (
        "dense weights alone added back",
        "memory: ZeRO 3 adds back",
        " + self.compiled.quanta(layer.expert.weights)",
        "",
    ),
    (
        "none: one microbatch",
        "memory: none",
        '"none": lambda layer, _: in_flight * layer.activations',
        '"none": lambda layer, _: layer.activations',
    ),
    (
        "selective: one microbatch",
        "memory: selective",
        "in_flight * layer.selective",
        "layer.selective",
    ),
    (
        "selective: all activations",
        "memory: selective",
        "in_flight * layer.selective",
        "in_flight * layer.activations",
    ),
    (
        "selective: no attention core",
        "memory: working, selective",
        "lambda layer, _: layer.attention_core",
        "lambda layer, _: 0",
    ),
    ("layer: one checkpoint", "memory: layer", "in_flight * layer.checkpoint", "layer.checkpoint"),
    (
        "layer: no working memory",
        "memory: working, layer",
        '    if recomputation == "layer":\n        return lambda layer, _: layer.activations',
        '    if recomputation == "layer":\n        return lambda layer, _: 0',
    ),
    (
        "stage: f inputs",
        "memory: stage, f - 1",
        "(in_flight - 1) * (cut if i",
        "in_flight * (cut if i",
    ),
    (
        "stage: no inputs",
        "memory: stage",
        'entry=entry if c.recomputation == "stage" else nothing',
        "entry=nothing",
    ),
    (
        "stage: no activations",
        "memory: working, stage",
        '"stage": lambda layer, _: layer.activations',
        '"stage": lambda layer, _: 0',
    ),
    (
        "stage 0 keeps nothing",
        "memory: first layer's checkpoint",
        "(cut if i else self.table.layers[0].checkpoint)",
        "cut",
    ),
    (
        "in flight: s - j",
        "in flight min(s - j, m)",
        "in_flight = min(in_flight, self.cell.microbatches)",
        "pass",
    ),
    (
        "in flight: one less",
        "in flight min(s - j, m)",
        "in_flight = min(in_flight, self.cell.microbatches)",
        "in_flight = max(1, min(in_flight - 1, self.cell.microbatches))",
    ),
    (
        "in flight: j + 1",
        "in flight min(s - j, m)",
        "in_flight = min(in_flight, self.cell.microbatches)",
        "in_flight = min(position + 1, self.cell.microbatches)",
    ),
    (
        "a quantum too much",
        "usable memory",
        "memory=self.compiled.memory_quanta,",
        "memory=self.compiled.memory_quanta + 1,",
    ),
    (
        "a quantum too little",
        "usable memory",
        "memory=self.compiled.memory_quanta,",
        "memory=self.compiled.memory_quanta - 1,",
    ),
    ("one slot less", "m + s - 1", "slots=self.cell.slots,", "slots=max(self.cell.slots - 1, 1),"),
    ("one slot more", "m + s - 1", "slots=self.cell.slots,", "slots=self.cell.slots + 1,"),
    (
        "replicas at floor(r N / d)",
        "pipeline-inner interval",
        "replica * (compiled.devices // cell.replicas) + offset",
        "replica * compiled.devices // cell.replicas + offset",
    ),
    (
        "replicas packed",
        "pipeline-inner interval",
        "replica * (compiled.devices // cell.replicas) + offset",
        "replica * width * cell.stages + offset",
    ),
    (
        "replicas one after the other",
        "data-inner interval",
        "start = cell.replicas * offset + replica * width",
        "start = offset + replica * width * cell.stages",
    ),
    (
        "offsets from the first stage",
        "intervals from the last stage",
        "offset = width * (cell.stages - 1 - position)",
        "offset = width * position",
    ),
    (
        "tensor index slowest",
        "axis groups",
        "devices[tensor + t * (context + c * expert)]",
        "devices[expert + e * (context + c * tensor)]",
    ),
    (
        "dense groups one after the other",
        "dense groups",
        "for devices in intervals for x in devices[index::t]] for index in range(t)]",
        "for devices in intervals for x in devices[index * len(devices) // t :][: len(devices) // t]] for index in range(t)]",
    ),
    (
        "expert groups over expert ranks",
        "expert groups",
        "devices[block * z : block * (z + 1)][index::t]",
        "devices[index::t]",
    ),
    (
        "corner pairs: load bound one too high",
        "corner pairs",
        "load = min((limit - sync) // self.slots, self.load_ceiling)",
        "load = min((limit - sync) // self.slots + 1, self.load_ceiling)",
    ),
    (
        "corner pairs: load bound one too low",
        "corner pairs",
        "load = min((limit - sync) // self.slots, self.load_ceiling)",
        "load = min((limit - sync) // self.slots - 1, self.load_ceiling)",
    ),
    (
        "corner pairs: least synchronisation only",
        "corner pairs",
        "            pairs.append((load, sync))\n",
        "            pairs = pairs or [(load, sync)]\n",
    ),
    (
        "corner pairs: largest synchronisation only",
        "corner pairs",
        "            if pairs and pairs[-1][0] == load:\n",
        "            if pairs:\n",
    ),
    (
        "corner pairs: heaviest layer one heavier",
        "corner pairs",
        "return max(heaviest, -(-together // self.stages))",
        "return max(heaviest, -(-together // self.stages)) + 1",
    ),
    (
        "identical layers: room for one less",
        "load, synchronisation and memory of identical layers",
        "        return min(caps)\n",
        "        return min(caps) - 1\n",
    ),
    (
        "objective without slots",
        "T = (m + s - 1) tau + sigma",
        "self.slots * self.load_unit, self.sync_unit",
        "self.load_unit, self.sync_unit",
    ),
)


# --- integer programs: constraint families --------------------------------------------------------


def _family(formulation: Formulation, family: str, kind: str, *edits: Edit) -> Mutant:
    return Mutant(
        name=f"{formulation}: {family} {kind}",
        term=f"constraint family {family}",
        engine="milp",
        module=f"formulations.{formulation}",
        edits=edits,
        family=family,
        formulations=(formulation,),
    )


#: The calls that add strengthening rows: whatever they repeat, they go with a dropped family.
_NO_STRENGTHENING: dict[str, tuple[Edit, ...]] = {
    "assignment": (
        ("    _strengthen(model, costs, most_load, most_sync)\n", ""),
        ("    _strengthen(model, costs, costs.load_ceiling, most_sync)\n", ""),
    ),
    "runs": (),
    "arcs": (),
}


def _dropped(formulation: Formulation, family: str, *edits: Edit) -> Mutant:
    return _family(formulation, family, "dropped", *edits, *_NO_STRENGTHENING[formulation])


_A: Formulation = "assignment"
_ASSIGNMENT: tuple[Mutant, ...] = (
    _dropped(_A, "C1_start", ("    _start(model, costs)\n", "")),
    _family(
        _A,
        "C1_start",
        "weakened",
        ("linear(model, terms) == 1\n\n    model.C1", "linear(model, terms) <= 1\n\n    model.C1"),
    ),
    _family(
        _A,
        "C1_start",
        "off by one",
        ("linear(model, terms) == 1\n\n    model.C1", "linear(model, terms) == 2\n\n    model.C1"),
    ),
    _dropped(_A, "C2_run", ("    _run(model, costs)\n", "")),
    _family(
        _A,
        "C2_run",
        "weakened",
        (
            "return linear(model, held + before + _var(model.starts, (i, j, *index), -1)) <= 0",
            "return linear(model, held + before + _var(model.starts, (i, j, *index), -1)) <= i // 2",
        ),
        *_NO_STRENGTHENING[_A],
    ),
    _family(
        _A,
        "C2_run",
        "off by one",
        ("before = _var(model.holds, (i - 1, j", "before = _var(model.holds, (i - 2, j"),
    ),
    _dropped(_A, "C3_nonempty", ("    _nonempty(model)\n", "")),
    _family(
        _A,
        "C3_nonempty",
        "weakened",
        ("*_var(model.holds, index, -1)]) <= 0", "*_var(model.holds, index, -1)]) <= j % 2"),
    ),
    _family(
        _A,
        "C3_nonempty",
        "off by one",
        (
            "        index = (i, j, kind, zero)\n        return linear(model, [(1, model.starts[index]), *_var(model.holds, index, -1)]) <= 0",
            "        index = (i, j, kind, zero)\n        return linear(model, [(1, model.starts[index]), *_var(model.holds, (i + 1, j, kind, zero), -1)]) <= 0",
        ),
    ),
    _dropped(_A, "C4_order", ("    _order(model, costs)\n", "")),
    _family(
        _A,
        "C4_order",
        "weakened",
        ("linear(model, ends + begins) == 0", "linear(model, ends + begins) >= 0"),
    ),
    _family(
        _A,
        "C4_order",
        "off by one",
        ("_var(model.starts, (k, j + 1, *c), -1)]", "_var(model.starts, (k + 1, j + 1, *c), -1)]"),
    ),
    _dropped(
        _A,
        "C5_pair",
        (
            "    model.C5_pair = Constraint(expr=linear(model, [(1, p) for p in model.pair.values()]) == 1)\n",
            "",
        ),
    ),
    _family(
        _A,
        "C5_pair",
        "weakened",
        ("in model.pair.values()]) == 1)", "in model.pair.values()]) <= 2)"),
    ),
    _family(
        _A,
        "C5_pair",
        "off by one",
        ("in model.pair.values()]) == 1)", "in model.pair.values()]) == 0)"),
    ),
    _dropped(_A, "C6_load", ("    _load(model, costs, load_bound)\n", "")),
    _family(
        _A,
        "C6_load",
        "weakened",
        (
            "        if j + 1 < costs.stages:\n            send",
            "        if False:\n            send",
        ),
        *_NO_STRENGTHENING[_A],
    ),
    _family(
        _A,
        "C6_load",
        "off by one",
        ("terms + _minus(bound)) <= 0", "terms + _minus(bound)) <= 1"),
        *_NO_STRENGTHENING[_A],
    ),
    _family(
        _A,
        "C6_load",
        "off by one the other way",
        ("terms + _minus(bound)) <= 0", "terms + _minus(bound)) <= -1"),
    ),
    _dropped(_A, "C7_sync", ("    _sync(model, costs, sync_bound)\n", "")),
    _family(_A, "C7_sync", "weakened", ("<= -(row.tied // unit)", "<= 0")),
    _family(_A, "C7_sync", "off by one", ("<= -(row.tied // unit)", "<= 1 - (row.tied // unit)")),
    _family(
        _A,
        "C7_sync",
        "off by one the other way",
        ("<= -(row.tied // unit)", "<= -1 - (row.tied // unit)"),
    ),
    _dropped(_A, "C8_memory", ("    _memory(model, costs)\n", "")),
    _family(
        _A,
        "C8_memory",
        "weakened",
        (
            "linear(model, terms) <= costs.memory",
            "linear(model, terms) <= costs.memory + max(costs.memory // 8, 2)",
        ),
        *_NO_STRENGTHENING[_A],
    ),
    _family(
        _A,
        "C8_memory",
        "off by one",
        ("linear(model, terms) <= costs.memory", "linear(model, terms) <= costs.memory + 1"),
        *_NO_STRENGTHENING[_A],
    ),
    _family(
        _A,
        "C8_memory",
        "off by one the other way",
        ("linear(model, terms) <= costs.memory", "linear(model, terms) <= costs.memory - 1"),
    ),
    _dropped(_A, "C9_working", ("    _working(model, costs)\n", "")),
    _family(
        _A,
        "C9_working",
        "weakened",
        (
            '_largest(model, costs, "working", model.WORKING)',
            '_largest(model, costs, "working", list(model.WORKING)[:1])',
        ),
    ),
    _family(
        _A,
        "C9_working",
        "off by one",
        ("(i, j, *c), term[i] - least)", '(i, j, *c), term[i] - least - (name == "working"))'),
    ),
    _dropped(_A, "C10_gathered", ("    _gathered(model, costs)\n", "")),
    _family(
        _A,
        "C10_gathered",
        "weakened",
        (
            '_largest(model, costs, "gathered", model.GATHERED)',
            '_largest(model, costs, "gathered", list(model.GATHERED)[:1])',
        ),
    ),
    _family(
        _A,
        "C10_gathered",
        "off by one",
        ("(i, j, *c), term[i] - least)", '(i, j, *c), term[i] - least - (name == "gathered"))'),
    ),
    _dropped(_A, "C11_latency", ("    _latency(model, costs)\n", "")),
    _family(
        _A,
        "C11_latency",
        "weakened",
        (
            "for j, zero, kind in model.TOUCHES\n",
            'for j, zero, kind in model.TOUCHES\n            if kind == "expert"\n',
        ),
    ),
    _family(
        _A,
        "C11_latency",
        "off by one",
        (
            "choices = [c for c in costs.choices if c.zero == zero]",
            "choices = [c for c in costs.choices if c.zero == zero + 1]",
        ),
    ),
    _family(
        _A,
        "S1_identical",
        "off by one",
        ("-costs.most(run, j, c, load, sync))", "1 - costs.most(run, j, c, load, sync))"),
    ),
)

_R: Formulation = "runs"
_RUNS: tuple[Mutant, ...] = (
    _dropped(_R, "C1_count", ("    _count(model, costs, runs)\n", "")),
    _family(
        _R,
        "C1_count",
        "weakened",
        ("(-1, model.filled[g, j])]) == 0", "(-1, model.filled[g, j])]) <= 0"),
    ),
    _family(
        _R,
        "C1_count",
        "off by one",
        ("before = _var(model.filled, (g, j - 1))", "before = _var(model.filled, (g, j - 2))"),
    ),
    _dropped(_R, "C2_full", ("    _full(model, runs)\n", "")),
    _family(
        _R,
        "C2_full",
        "weakened",
        (
            "(-runs[g].size, model.full[g, j])]\n        return linear(model, terms) >= 0",
            "(-1, model.full[g, j])]\n        return linear(model, terms) >= 0",
        ),
    ),
    _family(
        _R,
        "C2_full",
        "off by one",
        (
            "(-runs[g].size, model.full[g, j])]\n        return linear(model, terms) >= 0",
            "(1 - runs[g].size, model.full[g, j])]\n        return linear(model, terms) >= 0",
        ),
    ),
    _dropped(_R, "C3_unfull", ("    _unfull(model, runs)\n", "")),
    _family(
        _R,
        "C3_unfull",
        "weakened",
        (
            "return linear(model, terms) <= runs[g].size - 1",
            "return linear(model, terms) <= runs[g].size - j % 2",
        ),
    ),
    _family(
        _R,
        "C3_unfull",
        "off by one",
        (
            "return linear(model, terms) <= runs[g].size - 1",
            "return linear(model, terms) <= runs[g].size - 2",
        ),
    ),
    _dropped(_R, "C4_order", ("    _order(model, runs)\n", "")),
    _family(
        _R,
        "C4_order",
        "weakened",
        ("for g, j in model.full if g > 0]", "for g, j in model.full if g > 0 and j == 0]"),
    ),
    _family(
        _R,
        "C4_order",
        "off by one",
        ("(-runs[g].size, model.full[g - 1, j])]", "(1 - runs[g].size, model.full[g - 1, j])]"),
    ),
    _dropped(_R, "C5_start", ("    _start(model, costs, runs)\n", "")),
    _family(
        _R,
        "C5_start",
        "weakened",
        (
            "return linear(model, terms) == (1 if g == 0 else 0)",
            "return linear(model, terms) >= (1 if g == 0 else 0)",
        ),
    ),
    _family(
        _R,
        "C5_start",
        "off by one",
        (
            "terms += _var(model.full, (g - 1, j - 1), -1)",
            "terms += _var(model.full, (g - 1, j), -1)",
        ),
    ),
    _dropped(_R, "C6_touch", ("    _touch(model, costs, runs)\n", "")),
    _family(
        _R,
        "C6_touch",
        "weakened",
        (
            "return linear(model, terms) <= 0\n\n    model.C6",
            "return linear(model, terms) <= 1\n\n    model.C6",
        ),
    ),
    _family(
        _R,
        "C6_touch",
        "off by one",
        (
            "(-model.most[index], model.touches[index])]",
            "(1 - model.most[index], model.touches[index])]",
        ),
    ),
    _dropped(_R, "C7_choice", ("    _choose(model, costs, runs)\n", "")),
    _family(
        _R,
        "C7_choice",
        "weakened",
        ("*chosen]) <= 0\n\n    model.C7", "*chosen]) <= g % 2\n\n    model.C7"),
    ),
    _family(
        _R,
        "C7_choice",
        "off by one",
        ("*chosen]) <= 0\n\n    model.C7", "*chosen]) <= -1\n\n    model.C7"),
    ),
    _dropped(_R, "C8_nonempty", ("    _nonempty(model, costs, runs)\n", "")),
    _family(
        _R,
        "C8_nonempty",
        "weakened",
        (
            "for index in every for t in _var(model.count, index)]) >= 1",
            "for index in every for t in _var(model.count, index)]) >= int(j == 0)",
        ),
    ),
    _family(
        _R,
        "C8_nonempty",
        "off by one",
        (
            "for index in every for t in _var(model.count, index)]) >= 1",
            "for index in every for t in _var(model.count, index)]) >= 2",
        ),
    ),
    _dropped(
        _R,
        "C9_pair",
        (
            "    model.C9_pair = Constraint(expr=linear(model, [(1, p) for p in model.pair.values()]) == 1)\n",
            "",
        ),
    ),
    _family(
        _R,
        "C9_pair",
        "weakened",
        ("in model.pair.values()]) == 1)", "in model.pair.values()]) <= 2)"),
    ),
    _family(
        _R,
        "C9_pair",
        "off by one",
        ("in model.pair.values()]) == 1)", "in model.pair.values()]) == 0)"),
    ),
    _dropped(_R, "C10_load", ("    _load(model, costs, runs, load_bound)\n", "")),
    _family(
        _R,
        "C10_load",
        "weakened",
        ("terms += _var(model.starts, (g, j + 1, *c), ticks)", "terms += []"),
        *_NO_STRENGTHENING[_R],
    ),
    _family(
        _R,
        "C10_load",
        "off by one",
        ("terms + _minus(bound)) <= 0", "terms + _minus(bound)) <= 1"),
        *_NO_STRENGTHENING[_R],
    ),
    _family(
        _R,
        "C10_load",
        "off by one the other way",
        ("terms + _minus(bound)) <= 0", "terms + _minus(bound)) <= -1"),
    ),
    _dropped(_R, "C11_sync", ("    _sync(model, costs, runs, sync_bound)\n", "")),
    _family(_R, "C11_sync", "weakened", ("<= -(row.tied // unit)", "<= 0")),
    _family(_R, "C11_sync", "off by one", ("<= -(row.tied // unit)", "<= 1 - (row.tied // unit)")),
    _family(
        _R,
        "C11_sync",
        "off by one the other way",
        ("<= -(row.tied // unit)", "<= -1 - (row.tied // unit)"),
    ),
    _dropped(_R, "C12_memory", ("    _memory(model, costs, runs)\n", "")),
    _family(
        _R,
        "C12_memory",
        "weakened",
        (
            "linear(model, terms) <= costs.memory",
            "linear(model, terms) <= costs.memory + max(costs.memory // 8, 2)",
        ),
        *_NO_STRENGTHENING[_R],
    ),
    _family(
        _R,
        "C12_memory",
        "off by one",
        ("linear(model, terms) <= costs.memory", "linear(model, terms) <= costs.memory + 1"),
        *_NO_STRENGTHENING[_R],
    ),
    _family(
        _R,
        "C12_memory",
        "off by one the other way",
        ("linear(model, terms) <= costs.memory", "linear(model, terms) <= costs.memory - 1"),
    ),
    _dropped(_R, "C13_working", ("    _working(model, costs, runs)\n", "")),
    _family(
        _R,
        "C13_working",
        "weakened",
        (
            '_largest(model, costs, runs, "working", model.WORKING)',
            '_largest(model, costs, runs, "working", list(model.WORKING)[:1])',
        ),
    ),
    _family(
        _R,
        "C13_working",
        "off by one",
        ("term[runs[g].first] - least, ", 'term[runs[g].first] - least - (name == "working"), '),
    ),
    _dropped(_R, "C14_gathered", ("    _gathered(model, costs, runs)\n", "")),
    _family(
        _R,
        "C14_gathered",
        "weakened",
        (
            '_largest(model, costs, runs, "gathered", model.GATHERED)',
            '_largest(model, costs, runs, "gathered", list(model.GATHERED)[:1])',
        ),
    ),
    _family(
        _R,
        "C14_gathered",
        "off by one",
        ("term[runs[g].first] - least, ", 'term[runs[g].first] - least - (name == "gathered"), '),
    ),
    _dropped(_R, "C15_latency", ("    _latency(model, costs, runs)\n", "")),
    _family(
        _R,
        "C15_latency",
        "weakened",
        (
            "for j, zero, kind in model.PAYS\n",
            'for j, zero, kind in model.PAYS\n            if kind == "expert"\n',
        ),
    ),
    _family(
        _R,
        "C15_latency",
        "off by one",
        (
            "choices = [c for c in costs.choices if c.zero == zero]",
            "choices = [c for c in costs.choices if c.zero == zero + 1]",
        ),
    ),
)

# --- evaluator ------------------------------------------------------------------------------------

_EVALUATOR: tuple[_Row, ...] = (
    (
        "one slot less",
        "T = (m + s - 1) tau + sigma",
        "(microbatches + len(stages) - 1) * tau",
        "(microbatches + len(stages) - 2) * tau",
    ),
    (
        "in flight: m",
        "in flight min(s - j, m)",
        "return min(to_the_end, microbatches)",
        "return microbatches",
    ),
    (
        "stages behind: at most m",
        "in_flight: stages_behind",
        'if self.compiled.cost_model.in_flight == "stages_behind":',
        "if False:",
    ),
    (
        "first devices: of every replica",
        "transfer_link: first_devices",
        "network.class_of((sender[0][0], receiver[0][0]))",
        "network.class_of((sender[replica][0], receiver[replica][0]))",
    ),
    (
        "first devices: the union",
        "transfer_link: first_devices",
        'if self.compiled.cost_model.transfer_link == "first_devices":',
        "if False:",
    ),
    (
        "backward again: transfer besides",
        "backward_again",
        "transfer_backward = max(0, transfer_backward - recompute)",
        "pass",
    ),
    (
        "backward again: no transfer",
        "backward_again",
        "transfer_backward = max(0, transfer_backward - recompute)",
        "transfer_backward = 0",
    ),
    (
        "backward again: last stage recomputes",
        "backward_again",
        "elif link_after is None:  #",
        "elif False:  #",
    ),
    (
        "first replica stands for all",
        "worst replica",
        "load = max(loads, key=lambda parts: parts.total)",
        "load = loads[0]",
    ),
    (
        "tied ring in the first stage only",
        "tied ring in sigma_(s-1)",
        "tied if j in (0, stages - 1) else 0",
        "tied if j == 0 else 0",
    ),
    (
        "stage: f inputs",
        "memory: stage, f - 1",
        "activations = (in_flight - 1) * stage_input",
        "activations = in_flight * stage_input",
    ),
)

# --- MILP: arcs -----------------------------------------------------------------------------------

_P: Formulation = "arcs"
_ARC_ROW = (
    "return linear(model, used + [(-bounds, variable) for bounds, variable in bound]) <= 0\n\n"
)
_ARC_ONE = _ARC_ROW.replace("<= 0", "<= 1")


def _arc_cost(name: str, term: str, old: str, new: str) -> Mutant:
    return Mutant(
        f"arcs: {name}", term, "milp", "formulations.arcs", ((old, new),), formulations=(_P,)
    )


_ARCS: tuple[Mutant, ...] = (
    _dropped(_P, "C1_source", ("    _source(model, costs)\n", "")),
    _family(
        _P, "C1_source", "weakened", ("linear(model, arcs) == 1)", "linear(model, arcs) <= 1)")
    ),
    _family(
        _P, "C1_source", "off by one", ("linear(model, arcs) == 1)", "linear(model, arcs) == 2)")
    ),
    _dropped(_P, "C2_flow", ("    _flow(model, costs)\n", "")),
    _family(
        _P, "C2_flow", "weakened", ("linear(m, ends[k, j]) == 0)", "linear(m, ends[k, j]) <= 0)")
    ),
    _family(
        _P,
        "C2_flow",
        "off by one",
        ("ends.setdefault((i, j - 1)", "ends.setdefault((i + 1, j - 1)"),
    ),
    _dropped(
        _P,
        "C3_pair",
        (
            "    model.C3_pair = Constraint(expr=linear(model, [(1, p) for p in model.pair.values()]) == 1)\n",
            "",
        ),
    ),
    _family(
        _P,
        "C3_pair",
        "weakened",
        ("in model.pair.values()]) == 1)", "in model.pair.values()]) <= 2)"),
    ),
    _family(
        _P,
        "C3_pair",
        "off by one",
        ("in model.pair.values()]) == 1)", "in model.pair.values()]) == 0)"),
    ),
    _dropped(_P, "C4_load", ("    _load(model, costs, arcs, load_bound)\n", "")),
    _family(
        _P,
        "C4_load",
        "weakened",
        (
            "    model.C4_load = Constraint(range(costs.stages)",
            "    model.C4_load = Constraint(range(costs.stages - 1)",
        ),
    ),
    _family(_P, "C4_load", "off by one", (f"{_ARC_ROW}    model.C4", f"{_ARC_ONE}    model.C4")),
    _dropped(_P, "C5_sync", ("    _sync(model, costs, arcs, sync_bound)\n", "")),
    _family(
        _P,
        "C5_sync",
        "weakened",
        ("Constraint(costs.synchronised, rule", "Constraint(costs.synchronised[1:], rule"),
    ),
    _family(_P, "C5_sync", "off by one", (f"{_ARC_ROW}    model.C5", f"{_ARC_ONE}    model.C5")),
    _arc_cost(
        "no forward transfer",
        "transfer in",
        "work[k] - work[i] + row.receive[i] +",
        "work[k] - work[i] +",
    ),
    _arc_cost(
        "no backward transfer", "transfer back", "(row.send[k] if k < self.layers else 0)", "0"
    ),
    _arc_cost(
        "first way for all",
        "worst replica",
        "for row, work in self.loads\n",
        "for row, work in self.loads[:1]\n",
    ),
    _arc_cost(
        "first groups for all",
        "worst groups",
        "for n, (row, _) in enumerate(self.syncs))",
        "for n, (row, _) in enumerate(self.syncs[:1]))",
    ),
    _arc_cost(
        "no tied ring", "tied ring", "self.sync(row, n, i, k) + row.tied", "self.sync(row, n, i, k)"
    ),
    _arc_cost("no dense latency", "latency once", "ticks += row.dense_latency[self.zero]", "pass"),
    _arc_cost(
        "no expert latency", "latency once", "ticks += row.expert_latency[self.zero]", "pass"
    ),
    _arc_cost(
        "no working memory", "memory: working", "            + max(self.memory.working[i:k])\n", ""
    ),
    _arc_cost(
        "nothing gathered", "memory: gathered", "            + max(self.memory.gathered[i:k])\n", ""
    ),
    _arc_cost("no kept inputs", "memory: stage", "            + self.memory.entry[i]\n", ""),
    _arc_cost("memory does not matter", "memory", " and arc.memory <= costs.memory", ""),
    _arc_cost(
        "a quantum too much",
        "memory",
        " and arc.memory <= costs.memory",
        " and arc.memory <= costs.memory + 1",
    ),
    _arc_cost("every stage pays", "first_stage", "sync if self.pays_sync else 0", "sync"),
)

MUTANTS: tuple[Mutant, ...] = (
    *_of("dp", "dp", "nest_opt.dp.tables", _DP_TABLES),
    *_of("dp", "dp", "nest_opt.dp.recurrence", _DP_RECURRENCE),
    *_of("dp", "dp", "nest_opt.dp.frontier", _DP_FRONTIER),
    *_of("dp", "geometry", "nest_opt.geometry", _DP_GEOMETRY),
    *_of("dp", "order", "nest_opt.solve", _DP_SOLVE),
    *_of("dp", "cells", "nest_opt.cells", _DP_CELLS),
    *_of("dp", "bounds", "nest_opt.bounds", _DP_BOUNDS),
    *_of("milp", "milp", "formulations.costs", _MILP_COSTS),
    *_ASSIGNMENT,
    *_RUNS,
    *_ARCS,
    *_of("evaluator", "evaluator", "nest_opt.evaluate", _EVALUATOR),
    *_of("cp-sat", "cp-sat", "nest_opt.certify.cp_sat", CP_SAT),
)
