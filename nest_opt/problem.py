"""What is asked: model, cluster, training and search space, validated and frozen.

The classes here are the file format. Units are in the field names; a bandwidth is per device and
per direction. :func:`nest_opt.library.load_problem` reads files and names; this module knows
nothing of either.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import prod
from typing import Annotated, Any, Literal, Self

import networkx as nx
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from nest_opt.constraints import Constraint, known, parse
from nest_opt.plan import Layout, Recomputation, Template, ZeroStage
from nest_opt.record import Record

FORMAT = "nest-opt/problem/1"

_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Count = Annotated[int, Field(ge=1, le=10**6)]
_Degree = Annotated[int, Field(ge=1, le=2**20)]
_Amount = Annotated[float, Field(ge=0, le=1e24, allow_inf_nan=False)]
_Rate = Annotated[float, Field(gt=0, le=1e24, allow_inf_nan=False)]
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Efficiency = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
_ByMicrobatch = Annotated[
    dict[Annotated[str, Field(pattern=r"^[1-9][0-9]{0,5}$")], _Amount], Field(min_length=1)
]

#: A number per sequence, which scales with the microbatch, or one for each microbatch size.
Quantity = _Amount | _ByMicrobatch

MAX_LAYERS = 4096
MAX_DEVICES = 2**20
#: A network that is no hierarchy is held as a matrix.
MAX_NETWORK_DEVICES = 4096
#: Devices and switches of a graph; likewise.
MAX_NODES = 8192


def exact(value: float | int) -> Fraction:
    """The decimal number that a file says, exactly; never the binary float nearest to it.

    >>> exact(0.1)
    Fraction(1, 10)
    """
    return Fraction(value) if isinstance(value, int) else Fraction(repr(value))


def _distinct(values: tuple[Any, ...], what: str) -> tuple[Any, ...]:
    repeated = sorted(str(value) for value, times in Counter(values).items() if times > 1)
    if repeated:
        raise ValueError(f"{what} must be different; repeated: {', '.join(repeated[:5])}")
    return values


# --- model ----------------------------------------------------------------------------------------


class Collective(Record):
    """Calls that a layer makes per microbatch; ``bytes`` is the full buffer per sequence."""

    kind: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "ring_pass"]
    axis: Literal["tensor", "context", "expert"]
    direction: Annotated[Literal["forward", "backward"], Field(alias="pass")]
    bytes: Quantity
    count: Annotated[int, Field(ge=1, le=10**4)] = 1

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, populate_by_name=True
    )


class LayerCosts(Record):
    """One layer under one template, per device. Times are per microbatch of one sequence.

    ``recompute_seconds`` left out means ``forward_seconds``; ``selective_activation_bytes`` left
    out means ``activation_bytes`` less ``attention_core_bytes``. ``cut_bytes``, given for all
    layers or for none, says what crosses the cut before the layer (before each copy of a repeated
    one) and stands in for the ``output_bytes`` of all layers; before the very first layer it has no
    effect.
    """

    template: Template = Template()
    forward_seconds: Quantity
    backward_seconds: Quantity
    recompute_seconds: Quantity | None = None
    selective_recompute_seconds: Quantity = 0.0
    weight_bytes: _Amount = 0.0
    expert_weight_bytes: _Amount = 0.0
    activation_bytes: Quantity = 0.0
    selective_activation_bytes: Quantity | None = None
    checkpoint_bytes: Quantity = 0.0
    attention_core_bytes: Quantity = 0.0
    output_bytes: Quantity = 0.0
    cut_bytes: Quantity | None = None
    collectives: tuple[Collective, ...] = ()


class Layer(Record):
    """A layer, or ``count`` equal ones in a chain.

    ``inputs`` names the layers whose output it needs (the last copy of a repeated one); left out,
    it is the layer listed before. Listed order is execution order where the inputs allow it.
    """

    name: _Name
    count: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = 1
    inputs: tuple[_Name, ...] | None = None
    costs: Annotated[tuple[LayerCosts, ...], Field(min_length=1)]

    @field_validator("costs")
    @classmethod
    def _one_per_template(cls, costs: tuple[LayerCosts, ...]) -> tuple[LayerCosts, ...]:
        _distinct(tuple(c.template.label for c in costs), "templates of one layer")
        return costs


class TiedWeight(Record):
    """A weight that the first and last layer share: its bytes per device at each template."""

    template: Template = Template()
    weight_bytes: _Amount


class LayersModel(Record):
    """A model given as a table of layers."""

    kind: Literal["layers"]
    name: _Name
    description: str = ""
    source: str = ""
    sequence_length: _Count | None = None
    layers: Annotated[tuple[Layer, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    tied_weights: tuple[TiedWeight, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = tuple(layer.name for layer in self.layers)
        _distinct(names, "layer names")
        total = sum(layer.count for layer in self.layers)
        if total > MAX_LAYERS:
            raise ValueError(f"{total} layers; at most {MAX_LAYERS} are allowed")
        known = set(names)
        for layer in self.layers:
            for name in layer.inputs or ():
                if name not in known:
                    raise ValueError(f"layer {layer.name!r}: unknown input {name!r}")
        cycle = self.find_cycle()
        if cycle:
            raise ValueError(f"the layers form a cycle: {' -> '.join(cycle)}; remove one input")
        offered = [{c.template for c in layer.costs} for layer in self.layers]
        for layer, templates in zip(self.layers, offered, strict=True):
            missing = offered[0] - templates
            surplus = templates - offered[0]
            if missing or surplus:
                label = min(missing or surplus).label
                raise ValueError(
                    f"layer {layer.name!r} {'lacks' if missing else 'alone has'} costs for "
                    f"template {label}; every layer needs the same templates as "
                    f"{self.layers[0].name!r}"
                )
        self._check_cuts()
        if self.tied_weights:
            _distinct(tuple(t.template.label for t in self.tied_weights), "tied templates")
            self._check_tied(total)
        return self

    def _check_cuts(self) -> None:
        """Cuts are given for every layer and template, and no outputs besides, or not at all."""
        every = [(layer, costs) for layer in self.layers for costs in layer.costs]
        given = [layer.name for layer, costs in every if costs.cut_bytes is not None]
        missing = [layer.name for layer, costs in every if costs.cut_bytes is None]
        if given and missing:
            raise ValueError(
                f"layer {given[0]!r} gives cut_bytes and layer {missing[0]!r} does not; give it "
                "for every layer and template, or for none"
            )
        both = [layer.name for layer, costs in every if given and costs.output_bytes]
        if both:
            raise ValueError(
                f"layer {both[0]!r} gives output_bytes besides cut_bytes; the cuts follow from the "
                "outputs, or are given: leave out one of the two"
            )

    def _check_tied(self, total: int) -> None:
        if total < 2:
            raise ValueError("a tied weight needs a first and a last layer; there is one layer")
        tied = {t.template: t.weight_bytes for t in self.tied_weights}
        order = self.execution_order()
        for end in (self.layers[order[0]], self.layers[order[-1]]):
            for costs in end.costs:
                if costs.template not in tied:
                    raise ValueError(f"tied_weights lacks template {costs.template.label}")
                if tied[costs.template] > costs.weight_bytes:
                    raise ValueError(
                        f"the tied weight has {tied[costs.template]:g} bytes at template "
                        f"{costs.template.label}, more than layer {end.name!r} holds "
                        f"({costs.weight_bytes:g})"
                    )

    def inputs_of(self, index: int) -> tuple[str, ...]:
        """Names of the layers whose output listed layer ``index`` needs."""
        inputs = self.layers[index].inputs
        if inputs is not None:
            return inputs
        return (self.layers[index - 1].name,) if index else ()

    def graph(self) -> nx.DiGraph[int]:
        """The DAG over listed layers (a repeated layer is one node)."""
        graph: nx.DiGraph[int] = nx.DiGraph()
        graph.add_nodes_from(range(len(self.layers)))
        position = {layer.name: i for i, layer in enumerate(self.layers)}
        graph.add_edges_from(
            (position[name], i) for i in range(len(self.layers)) for name in self.inputs_of(i)
        )
        return graph

    def find_cycle(self) -> list[str]:
        """Names along one cycle, first repeated at the end; empty if there is none."""
        try:
            edges = nx.find_cycle(self.graph())
        except nx.NetworkXNoCycle:
            return []
        return [self.layers[edges[0][0]].name] + [self.layers[edge[1]].name for edge in edges]

    def execution_order(self) -> list[int]:
        """Listed layers in execution order: topological, listed order among the free ones."""
        return list(nx.lexicographical_topological_sort(self.graph()))


class Device(Record):
    """An accelerator. The roofline fields are needed only for models given by a config.

    ``kernel_seconds`` is the least time of a kernel, whatever it computes: launching it costs the
    host that long. Up to ``cache_bytes`` of what a kernel reads and writes never reach the memory,
    because the kernel before left them in the last cache. Both are 0, and change nothing, unless
    given.
    """

    name: _Name
    source: str = ""
    memory_bytes: Annotated[int, Field(ge=1, le=2**60)]
    peak_flops_per_second: _Rate | None = None
    memory_bytes_per_second: _Rate | None = None
    matmul_efficiency: _Efficiency = 1.0
    memory_efficiency: _Efficiency = 1.0
    kernel_seconds: _Amount = 0.0
    cache_bytes: Annotated[int, Field(ge=0, le=2**60)] = 0


class ProfileRow(Record):
    """Measured times of one layer under one template, per microbatch, collectives not included.

    ``layer`` is a name (``block.3``) or a kind (``embedding``, ``block``, ``head``; in halves
    ``block.attention`` and ``block.mlp``); the name wins. ``recompute_seconds`` left out means
    ``forward_seconds``.
    """

    layer: _Name
    tensor: _Degree = 1
    context: _Degree = 1
    expert: _Degree = 1
    sequence_parallel: bool = False
    microbatch: _Count
    forward_seconds: _Amount
    backward_seconds: _Amount
    recompute_seconds: _Amount | None = None

    @property
    def template(self) -> Template:
        """The template under which it was measured."""
        return Template(self.tensor, self.context, self.expert, self.sequence_parallel)

    @model_validator(mode="after")
    def _parallel(self) -> Self:
        if self.sequence_parallel and self.tensor == 1:
            raise ValueError("sequence_parallel needs a tensor degree above 1")
        return self


class ConfigModel(Record):
    """A model given by its published configuration; its layers are estimated.

    ``config`` is a Hugging Face ``config.json`` as it stands. ``device`` prices the layers; left
    out, it is the cluster's. ``capacity_factor`` scales the tokens that the routed experts compute:
    1 is a balanced, dropless mixture, more pads, less drops. With ``granularity`` ``half``,
    attention and MLP of a block are layers of their own. Measured times in ``profile`` replace the
    estimated ones (:mod:`nest_opt.estimate.profile`); in a file it may be the path of a CSV file.
    """

    kind: Literal["config"]
    name: _Name
    description: str = ""
    source: str = ""
    sequence_length: _Count
    config: dict[str, Any]
    device: Device | None = None
    flash_attention: bool = False
    capacity_factor: Annotated[float, Field(gt=0, le=1e3, allow_inf_nan=False)] = 1.0
    granularity: Literal["block", "half"] = "block"
    profile: Annotated[tuple[ProfileRow, ...], Field(max_length=10**5)] = ()

    @field_validator("profile")
    @classmethod
    def _measured_once(cls, rows: tuple[ProfileRow, ...]) -> tuple[ProfileRow, ...]:
        _distinct(
            tuple(f"{r.layer} {r.template.label} microbatch {r.microbatch}" for r in rows),
            "rows of a profile",
        )
        return rows


Model = Annotated[LayersModel | ConfigModel, Field(discriminator="kind")]


# --- cluster --------------------------------------------------------------------------------------


class Level(Record):
    """One level of the hierarchy: a block of ``size`` blocks of the level below.

    A level oversubscribed 1:n leaves an n-th of the bandwidth when all devices talk at once, as
    they do in training; that is what is priced.
    """

    name: str = ""
    size: _Degree
    bandwidth_bytes_per_second: _Rate
    latency_seconds: _Amount = 0.0
    oversubscription: Annotated[float, Field(ge=1, le=1e6, allow_inf_nan=False)] = 1.0


class Reduction(Record):
    """How the paths between devices are reduced to link classes (:mod:`nest_opt.network`).

    Paths are compared, and classes ordered, by what ``reference_bytes`` take. More than
    ``max_classes`` different paths are merged into that many classes.
    """

    reference_bytes: Annotated[int, Field(ge=1, le=2**50)] = 64 * 2**20
    max_classes: Annotated[int, Field(ge=1, le=64)] = 16


class Torus(Reduction):
    """A grid of devices, numbered with the last dimension fastest, joined to their neighbours.

    With ``wraparound``, which may be given for each dimension, its ends are joined as well. The
    bandwidth is that of one link in one direction.
    """

    kind: Literal["torus"]
    shape: Annotated[tuple[_Degree, ...], Field(min_length=1, max_length=8)]
    wraparound: bool | tuple[bool, ...] = True
    link_bandwidth_bytes_per_second: _Rate
    link_latency_seconds: _Amount = 0.0

    @model_validator(mode="after")
    def _one_for_each_dimension(self) -> Self:
        if len(self.wraps) != len(self.shape):
            raise ValueError(
                f"wraparound has {len(self.wraps)} entries and shape {len(self.shape)}; give one "
                "for each dimension, or a single one for all"
            )
        return self

    @property
    def wraps(self) -> tuple[bool, ...]:
        """Whether the ends of a dimension are joined, for each."""
        if isinstance(self.wraparound, bool):
            return (self.wraparound,) * len(self.shape)
        return self.wraparound

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return prod(self.shape)


class Link(Record):
    """A link between two nodes of a graph; in both directions unless ``directed``."""

    source: _Name
    target: _Name
    bandwidth_bytes_per_second: _Rate
    latency_seconds: _Amount = 0.0
    directed: bool = False


class Graph(Reduction):
    """Devices, in the order of their numbers, and the links between them; other nodes are switches.

    Paths may lead through switches and devices. In a file it may be the path of a GraphML,
    node-link JSON or CSV file (:mod:`nest_opt.network_files`).
    """

    kind: Literal["graph"]
    devices: Annotated[tuple[_Name, ...], Field(min_length=1)]
    links: tuple[Link, ...]

    @field_validator("devices")
    @classmethod
    def _different(cls, devices: tuple[str, ...]) -> tuple[str, ...]:
        return _distinct(devices, "devices")

    @model_validator(mode="after")
    def _few_nodes(self) -> Self:
        ends = (end for link in self.links for end in (link.source, link.target))
        nodes = len({*self.devices, *ends})
        if nodes > MAX_NODES:
            raise ValueError(
                f"has {nodes} devices and switches; at most {MAX_NODES} are allowed, because it is "
                "held pair by pair: give levels"
            )
        return self

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return len(self.devices)


class Matrix(Reduction):
    """What was measured from each device (row) to each (column); the diagonal is ignored.

    In a file each may be the path of a CSV file.
    """

    kind: Literal["matrix"]
    latency_seconds: Annotated[tuple[tuple[_Amount, ...], ...], Field(min_length=1)]
    bandwidth_bytes_per_second: Annotated[tuple[tuple[_Amount, ...], ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _square(self) -> Self:
        count = len(self.latency_seconds)
        for name in ("latency_seconds", "bandwidth_bytes_per_second"):
            rows = getattr(self, name)
            lengths = [len(rows), *map(len, rows)]
            wrong = [length for length in lengths if length != count]
            if wrong:
                raise ValueError(
                    f"{name} has {len(rows)} rows, one of {wrong[0]} entries; both matrices need a "
                    f"row and a column for each of the {count} devices"
                )
        for x, row in enumerate(self.bandwidth_bytes_per_second):
            for y, bandwidth in enumerate(row):
                if x != y and bandwidth == 0:
                    raise ValueError(f"bandwidth_bytes_per_second[{x}][{y}] is 0; measure it")
        return self

    @property
    def device_count(self) -> int:
        """Number of devices."""
        return len(self.latency_seconds)


class Cluster(Record):
    """Equal devices and their network: nested ``levels``, or any ``network``.

    Devices are numbered along the hierarchy, or in the network's own order. A stage gets
    consecutive devices, so the order matters: number devices that are near to each other one after
    the other.
    """

    name: _Name
    description: str = ""
    source: str = ""
    device: Device
    devices: Annotated[int, Field(ge=1, le=MAX_DEVICES)]
    levels: Annotated[tuple[Level, ...], Field(max_length=16)] = ()
    network: Annotated[Torus | Graph | Matrix, Field(discriminator="kind")] | None = None

    @model_validator(mode="after")
    def _one_network(self) -> Self:
        if self.levels and self.network is not None:
            raise ValueError("gives levels and a network; the links are the one or the other")
        if self.network is None:
            if not self.levels:
                raise ValueError("levels: must not be empty; or give a network")
            return self
        if self.network.device_count != self.devices:
            raise ValueError(
                f"the network has {self.network.device_count} devices, but devices is "
                f"{self.devices}"
            )
        if self.devices > MAX_NETWORK_DEVICES:
            raise ValueError(
                f"{self.devices} devices; a network without levels may have "
                f"{MAX_NETWORK_DEVICES}, because it is held pair by pair: give levels"
            )
        return self

    @model_validator(mode="after")
    def _multiplies_up(self) -> Self:
        if not self.levels:
            return self
        product = 1
        for level in self.levels:
            product *= level.size
        if product != self.devices:
            sizes = " * ".join(str(level.size) for level in self.levels)
            raise ValueError(
                f"the level sizes multiply to {sizes} = {product}, but devices is {self.devices}"
            )
        return self


# --- training -------------------------------------------------------------------------------------


class OptimizerBytes(Record):
    """Bytes per weight held for the weights, their gradients and the optimizer's state."""

    weights: Annotated[float, Field(gt=0, le=1e3)]
    gradients: Annotated[float, Field(gt=0, le=1e3)]
    optimizer: Annotated[float, Field(ge=0, le=1e3)]


#: Named conventions, bytes per weight. zero16: Rajbhandari et al. 2020 (arXiv 1910.02054), section
#: 3.1, fp16 weights and gradients, fp32 master weights and two Adam moments. megatron18: the same
#: with gradients accumulated in fp32, Megatron-LM without distributed optimizer. sgd4: no state.
OPTIMIZERS: dict[str, OptimizerBytes] = {
    "zero16": OptimizerBytes(weights=2, gradients=2, optimizer=12),
    "megatron18": OptimizerBytes(weights=2, gradients=4, optimizer=12),
    "sgd4": OptimizerBytes(weights=2, gradients=2, optimizer=0),
}


class Exposed(Record):
    """The share of each communication that does not overlap with computation."""

    collectives: _Share = 1.0
    transfers: _Share = 1.0
    synchronisation: _Share = 1.0


class CostModel(Record):
    """Every option of how a plan is priced (formulations/README.md, section 4, says what each is).

    The second value of ``transfer``, ``transfer_link``, ``recomputation``, ``in_flight`` and
    ``synchronisation`` is how the published NEST artifact prices, and there to reproduce it.
    """

    synchronisation: Literal["slowest_stage", "first_stage"] = "slowest_stage"
    transfer: Literal["direct", "up_and_down"] = "direct"
    transfer_link: Literal["worst_pair", "first_devices"] = "worst_pair"
    recomputation: Literal["forward_again", "backward_again"] = "forward_again"
    in_flight: Literal["at_most_microbatches", "stages_behind"] = "at_most_microbatches"
    exposed: Exposed = Exposed()


class Training(Record):
    """Batch, optimizer, schedule and cost model."""

    global_batch: Annotated[int, Field(ge=1, le=10**7)]
    optimizer: Literal["zero16", "megatron18", "sgd4"] | OptimizerBytes = "zero16"
    all_reduce: Literal["hierarchical", "ring", "tree"] = "hierarchical"
    schedule: Literal["1f1b"] = "1f1b"
    reserve_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.05
    cost_model: CostModel = CostModel()

    @property
    def bytes_per_weight(self) -> OptimizerBytes:
        """The optimizer convention in numbers."""
        if isinstance(self.optimizer, OptimizerBytes):
            return self.optimizer
        return OPTIMIZERS[self.optimizer]


# --- search space ---------------------------------------------------------------------------------


class _KnownConstraints:
    """The JSON Schema of a constraint: one branch for each that is known, and one for others."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        classes = known()
        branches = [c.model_json_schema() | {"required": ["constraint"]} for c in classes.values()]
        other = {
            "type": "object",
            "description": "A constraint of your own, loaded with --constraint FILE.py:CLASS.",
            "required": ["constraint"],
            "properties": {"constraint": {"type": "string", "not": {"enum": [*classes]}}},
        }
        return {"anyOf": [*branches, other]}


#: An object with the name of a constraint, built in or registered, and its parameters.
_Constraint = Annotated[SerializeAsAny[Constraint], BeforeValidator(parse), _KnownConstraints]


class Search(Record):
    """The lists that span the search space; what is optimal is optimal among these.

    ``sequence_parallel`` applies where the tensor degree exceeds one; elsewhere it is off.
    ``data_parallel`` is ``any`` (1 to min(devices, ceil(batch / (microbatch * expert)))), ``even``
    (those for which replicas * microbatch * expert divides the batch) or a list.
    """

    microbatch: Annotated[tuple[_Count, ...], Field(min_length=1, max_length=64)] = (1, 2, 4)
    tensor: Annotated[tuple[_Degree, ...], Field(min_length=1, max_length=64)] = (1, 2, 4, 8)
    context: Annotated[tuple[_Degree, ...], Field(min_length=1, max_length=64)] = (1,)
    expert: Annotated[tuple[_Degree, ...], Field(min_length=1, max_length=64)] = (1,)
    sequence_parallel: Annotated[tuple[bool, ...], Field(min_length=1)] = (True,)
    data_parallel: Literal["any", "even"] | Annotated[tuple[_Degree, ...], Field(min_length=1)] = (
        "even"
    )
    stages: Literal["any"] | Annotated[tuple[_Count, ...], Field(min_length=1)] = "any"
    recomputation: Annotated[tuple[Recomputation, ...], Field(min_length=1)] = (
        "none",
        "selective",
        "layer",
        "stage",
    )
    zero: Annotated[tuple[ZeroStage, ...], Field(min_length=1)] = (0, 1)
    layouts: Annotated[tuple[Layout, ...], Field(min_length=1)] = ("pipeline-inner", "data-inner")
    shared_template: Literal[True] = True
    objective: Literal["batch_time"] = "batch_time"
    constraints: Annotated[tuple[_Constraint, ...], Field(max_length=64)] = ()

    @field_validator("*")
    @classmethod
    def _no_repeats(cls, value: Any) -> Any:
        return _distinct(value, "list entries") if isinstance(value, tuple) else value

    @model_serializer(mode="wrap")
    def _without_empty(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without constraints a problem is written, and has its digest, as if there were none."""
        data: dict[str, Any] = handler(self)
        if not self.constraints:
            data.pop("constraints", None)
        return data

    def templates(self) -> tuple[Template, ...]:
        """Every template that the lists span, in the order of the tie-break."""
        found = {
            Template(t, c, e, sp and t > 1)
            for t in self.tensor
            for c in self.context
            for e in self.expert
            for sp in self.sequence_parallel
        }
        return tuple(sorted(found))


class Units(Record):
    """Units that a problem fixes; each left out is chosen by the rules of the model."""

    tick_seconds: Annotated[float, Field(gt=0, le=1e6)] | None = None
    quantum_bytes: Annotated[int, Field(ge=1, le=2**60)] | None = None
    synchronisation_multiple_ticks: Annotated[int, Field(ge=1, le=10**18)] | None = None


class Problem(Record):
    """A complete, self-contained problem.

    Obtained from :func:`nest_opt.load_problem`. Immutable; a variant is loaded with
    ``overrides``.
    """

    format: Literal["nest-opt/problem/1"] = FORMAT  # type: ignore[assignment]
    name: _Name
    description: str = ""
    source: str = ""
    model: Model
    cluster: Cluster
    training: Training
    search: Search = Search()
    units: Units = Units()

    @model_validator(mode="after")
    def _rings_without_levels(self) -> Self:
        if self.cluster.network is not None and self.training.all_reduce != "ring":
            raise ValueError(
                f"training.all_reduce is {self.training.all_reduce}, which climbs the levels of a "
                f"hierarchy, but cluster {self.cluster.name!r} has none; set it to ring"
            )
        return self

    @model_validator(mode="after")
    def _recomputation_has_a_rule(self) -> Self:
        priced = {"none", "stage"}
        if self.training.cost_model.recomputation == "backward_again":
            other = [kind for kind in self.search.recomputation if kind not in priced]
            if other:
                raise ValueError(
                    f"search.recomputation has {', '.join(other)}, but with "
                    "training.cost_model.recomputation 'backward_again' only none and stage have "
                    "a price; list those alone"
                )
        return self

    @model_validator(mode="after")
    def _weights_as_estimated(self) -> Self:
        weights = self.training.bytes_per_weight.weights
        if isinstance(self.model, ConfigModel) and weights != 2:
            raise ValueError(
                f"training.optimizer holds {weights:g} bytes per weight, but models given by a "
                "config are estimated at 2; use 2, or give the layers with their own weight_bytes"
            )
        return self

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready self-contained form, as ``load_problem`` reads it."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
