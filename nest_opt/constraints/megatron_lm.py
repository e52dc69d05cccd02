"""Plans that Megatron-LM can be started with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

from nest_opt.constraints.base import Breach, Constraint, Placed

if TYPE_CHECKING:
    from random import Random

    from formulations.stages import StageModel
    from nest_opt.cells import Cell
    from nest_opt.compile import Compiled
    from nest_opt.dp.stages import Places, Stages
    from nest_opt.plan import Recomputation


class MegatronLm(Constraint):
    """Megatron-LM can be started with the plan: what its arguments say, they say for all ranks.

    - every device is used: data * tensor * context * expert * pipeline degrees give the world size;
    - the microbatches of all replicas divide the global batch (no padding);
    - one kind of recomputation for all stages, layer by layer or selectively, but not a stage as a
      whole: ``--recompute-granularity`` and ``--recompute-num-layers`` hold for every rank;
    - ZeRO 0 or 1 for all stages: ``--use-distributed-optimizer`` is on or off;
    - with tensor and expert parallelism, sequence parallelism.

    Stages of unequal length are fine (``--pipeline-model-parallel-layout``).
    Source: Megatron-LM, megatron/training/arguments.py, validate_args.
    """

    constraint: Literal["megatron_lm"] = "megatron_lm"

    meaning: ClassVar[str] = "Megatron-LM can be started with the plan"

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> MegatronLm:
        return cls()

    # --- meaning ----------------------------------------------------------------------------------

    def check(self, placed: Placed) -> Iterator[Breach]:
        plan, compiled = placed.plan, placed.compiled
        if plan.devices_used != compiled.devices:
            yield Breach(
                "plan",
                f"uses {plan.devices_used} of {compiled.devices} devices; the world size is the "
                "product of all degrees",
                compiled.devices - plan.devices_used,
                whole_cell=True,
            )
        together = plan.replicas * plan.microbatch * plan.template.expert
        if compiled.global_batch % together:
            yield Breach(
                "plan",
                f"passes {together} sequences at a time, which does not divide the batch of "
                f"{compiled.global_batch}",
                whole_cell=True,
            )
        template = plan.template
        if template.tensor > 1 and template.expert > 1 and not template.sequence_parallel:
            yield Breach(
                "plan",
                "has tensor and expert parallelism without sequence parallelism",
                whole_cell=True,
            )
        kinds = sorted({stage.recomputation for stage in plan.stages})
        if "stage" in kinds or len(kinds) > 1:
            yield Breach(
                "stages",
                f"recompute {', '.join(kinds)}; use one of none, selective, layer for all",
            )
        zeros = sorted({stage.zero for stage in plan.stages})
        if len(zeros) > 1 or zeros[0] > 1:
            yield Breach(
                "stages", f"have ZeRO {', '.join(map(str, zeros))}; use one of 0, 1 for all"
            )

    # --- the dynamic program ----------------------------------------------------------------------

    def allows_cell(self, cell: Cell, places: Places) -> bool:
        template, compiled = cell.template, places.compiled
        passes = cell.microbatches * cell.replicas * cell.microbatch * template.expert
        return (
            cell.replicas * cell.stages * template.width == compiled.devices
            and passes == compiled.global_batch
            and (template.sequence_parallel or min(template.tensor, template.expert) == 1)
        )

    def carried(self, cell: Cell) -> int:
        return 1 + len(_KINDS) * 2  # nothing laid yet, or what all stages so far have chosen

    def carry(self, value: int, stages: Stages) -> int:
        if stages.recomputation not in _KINDS or stages.zero > 1:
            return -1
        chosen = 1 + 2 * _KINDS.index(stages.recomputation) + stages.zero
        return chosen if value in (0, chosen) else -1

    # --- the integer programs ---------------------------------------------------------------------

    def restrict(self, stages: StageModel) -> None:
        cell, compiled = stages.cell, stages.compiled
        replicas = range(cell.replicas)
        used = {x for j in stages.numbers for r in replicas for x in stages.devices(j, r)}
        t, e = cell.template.tensor, cell.template.expert
        if (
            len(used) < compiled.devices
            or compiled.global_batch % (cell.replicas * cell.microbatch * e)
            or (t > 1 and e > 1 and not cell.template.sequence_parallel)
        ):
            stages.forbid()
        for j in stages.numbers:
            alike = [stages.chooses(j, recomputation=k, zero=z) for k in _KINDS for z in (0, 1)]
            stages.require(sum(alike) == 1)
            if j > 0:
                for n, (kind, zero) in enumerate((k, z) for k in _KINDS for z in (0, 1)):
                    first = stages.chooses(0, recomputation=kind, zero=zero)
                    stages.require(alike[n] == first)


_KINDS: tuple[Recomputation, ...] = ("none", "selective", "layer")
