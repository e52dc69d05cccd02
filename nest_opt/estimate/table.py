"""The layer table: what a model costs, layer by layer, in exact numbers, before any rounding.

Both kinds of model end here: an explicit table is scaled to each microbatch, a config is estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from nest_opt.collectives import CollectiveKind
from nest_opt.errors import Complaint, InputError
from nest_opt.plan import Template
from nest_opt.problem import LayersModel, Quantity, exact

Axis = Literal["tensor", "context", "expert"]
Pass = Literal["forward", "backward"]


@dataclass(frozen=True)
class Call:
    """``count`` equal collective calls of a layer per microbatch; ``bytes`` is the full buffer."""

    kind: CollectiveKind
    axis: Axis
    direction: Pass
    bytes: Fraction
    count: int = 1


@dataclass(frozen=True)
class LayerCost:
    """One layer, one template, one microbatch size. Seconds and bytes per device.

    ``recompute`` and ``recompute_selective`` are extra seconds if the layer is recomputed fully or
    only in its attention core. ``activation_bytes``, ``selective_bytes`` and ``checkpoint_bytes``
    are what one microbatch leaves behind without recomputation, with selective recomputation, and
    as a checkpoint (the layer's input). ``output_bytes`` is the tensor it hands on; ``cut_bytes``,
    where given, is what crosses the cut before the layer, and then so for all layers.
    """

    forward: Fraction
    backward: Fraction
    recompute: Fraction
    recompute_selective: Fraction
    weight_bytes: Fraction
    expert_weight_bytes: Fraction
    activation_bytes: Fraction
    selective_bytes: Fraction
    checkpoint_bytes: Fraction
    attention_core_bytes: Fraction
    output_bytes: Fraction
    calls: tuple[Call, ...] = ()
    cut_bytes: Fraction | None = None


@dataclass(frozen=True)
class LayerTable:
    """A model's layers in execution order.

    ``costs[template, microbatch]`` has one entry per layer (equal layers share one object).
    ``consumers[i]`` is the last layer that needs the output of layer i (i itself if none does).
    ``tied_bytes[template]`` is the weight shared by the first and last layer, 0 if there is none.
    ``skipped`` lists templates of the search space that the model cannot use, with the reason.
    """

    names: tuple[str, ...]
    consumers: tuple[int, ...]
    costs: Mapping[tuple[Template, int], tuple[LayerCost, ...]]
    tied_bytes: Mapping[Template, Fraction]
    skipped: tuple[tuple[Template, str], ...]

    def cut_bytes(self, template: Template, microbatch: int) -> tuple[Fraction, ...]:
        """Bytes per device alive across the cut before each layer; entry 0 is 0.

        As given; or every output produced before the cut and still needed behind it, counted once.
        """
        costs = self.costs[template, microbatch]
        if costs[0].cut_bytes is not None:
            return (Fraction(0), *(cost.cut_bytes or Fraction(0) for cost in costs[1:]))
        change = [Fraction(0)] * (len(costs) + 1)
        for i, last in enumerate(self.consumers):
            if last > i:
                change[i + 1] += costs[i].output_bytes
                change[last + 1] -= costs[i].output_bytes
        alive, cuts = Fraction(0), []
        for i in range(len(costs)):
            alive += change[i]
            cuts.append(alive)
        return tuple(cuts)


def table_of_layers(
    model: LayersModel, templates: tuple[Template, ...], microbatches: tuple[int, ...]
) -> LayerTable:
    """The layer table of an explicit model.

    Raises :class:`InputError` where a quantity given by microbatch lacks one of ``microbatches``.
    """
    offered = {costs.template for costs in model.layers[0].costs}
    usable = tuple(t for t in templates if t in offered)
    absent = "the layer table has no costs for it"
    skipped = tuple((t, absent) for t in templates if t not in offered)

    order = model.execution_order()
    listed = [i for i in order for _ in range(model.layers[i].count)]
    names, last_copy = [], {}
    for i in order:
        layer = model.layers[i]
        names += (
            [layer.name]
            if layer.count == 1
            else [f"{layer.name}.{copy}" for copy in range(layer.count)]
        )
        last_copy[layer.name] = len(names) - 1
    consumers = list(range(len(names)))
    position = 0
    for i in order:
        count = model.layers[i].count
        for producer in model.inputs_of(i):
            consumers[last_copy[producer]] = max(consumers[last_copy[producer]], position)
        for copy in range(position, position + count - 1):
            consumers[copy] = copy + 1
        position += count

    complaints: list[Complaint] = []

    def scaled(quantity: Quantity, microbatch: int, field: str) -> Fraction:
        if not isinstance(quantity, dict):
            return exact(quantity) * microbatch
        if str(microbatch) not in quantity:
            complaints.append(
                Complaint(field, f"has no entry for microbatch {microbatch}", str(list(quantity)))
            )
            return Fraction(0)
        return exact(quantity[str(microbatch)])

    def cost_of(index: int, template: Template, b: int) -> LayerCost:
        layer = model.layers[index]
        k, costs = next((k, c) for k, c in enumerate(layer.costs) if c.template == template)

        def value(field: str) -> Fraction:
            return scaled(getattr(costs, field), b, f"model.layers[{index}].costs[{k}].{field}")

        forward, activations, core = (
            value(f) for f in ("forward_seconds", "activation_bytes", "attention_core_bytes")
        )
        return LayerCost(
            forward=forward,
            backward=value("backward_seconds"),
            recompute=forward if costs.recompute_seconds is None else value("recompute_seconds"),
            recompute_selective=value("selective_recompute_seconds"),
            weight_bytes=exact(costs.weight_bytes),
            expert_weight_bytes=exact(costs.expert_weight_bytes),
            activation_bytes=activations,
            selective_bytes=max(activations - core, Fraction(0))
            if costs.selective_activation_bytes is None
            else value("selective_activation_bytes"),
            checkpoint_bytes=value("checkpoint_bytes"),
            attention_core_bytes=core,
            output_bytes=value("output_bytes"),
            cut_bytes=None if costs.cut_bytes is None else value("cut_bytes"),
            calls=tuple(
                Call(
                    call.kind,
                    call.axis,
                    call.direction,
                    scaled(
                        call.bytes, b, f"model.layers[{index}].costs[{k}].collectives[{n}].bytes"
                    ),
                    call.count,
                )
                for n, call in enumerate(costs.collectives)
            ),
        )

    table = {}
    for template in usable:
        for b in microbatches:
            distinct = [cost_of(i, template, b) for i in range(len(model.layers))]
            table[template, b] = tuple(distinct[i] for i in listed)
    if complaints:
        raise InputError(model.name, complaints)
    tied = {t.template: exact(t.weight_bytes) for t in model.tied_weights}
    return LayerTable(
        names=tuple(names),
        consumers=tuple(consumers),
        costs=table,
        tied_bytes={t: tied.get(t, Fraction(0)) for t in usable},
        skipped=skipped,
    )
