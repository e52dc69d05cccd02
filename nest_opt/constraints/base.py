"""What a constraint is: parameters, a sentence of meaning, and three faces.

A constraint is one class in one file. It restricts the plans of a problem, and says so three times,
each time for a reader that knows nothing of the other two:

- :meth:`Constraint.check` is the meaning: what is wrong with an explicit plan, whoever made it;
- the face for the dynamic program: :meth:`~Constraint.allows_cell`,
  :meth:`~Constraint.allows_stage` and :meth:`~Constraint.carry` filter cells, stages, and what
  stages together may do;
- :meth:`Constraint.restrict` is the face for the integer programs: rows on the variables that
  :class:`formulations.stages.StageModel` documents.

``nest-opt certify-constraint FILE:CLASS`` proves that the three say the same. A constraint that has
no face for the dynamic program leaves out all three of its methods, and only the integer programs
can then solve a problem that has it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from nest_opt.record import Record

if TYPE_CHECKING:
    from random import Random

    from formulations.stages import StageModel
    from nest_opt.cells import Cell
    from nest_opt.compile import Compiled
    from nest_opt.dp.stages import Places, Stages
    from nest_opt.estimate.table import Axis
    from nest_opt.evaluate import StageEvaluation
    from nest_opt.geometry import Ints
    from nest_opt.plan import Plan, Template

#: Numbers that all constraints of a problem together may carry from stage to stage.
MAX_CARRIED = 4096


@dataclass(frozen=True)
class Breach:
    """One thing about a plan that breaks a constraint: where, and what to do.

    ``excess`` is by how much, where that is a number. ``whole_cell`` says that every plan of the
    same microbatch, replicas, template, number of stages and layout breaks it likewise, whatever
    its stage boundaries and choices.
    """

    where: str
    message: str
    excess: int | None = None
    whole_cell: bool = False


class Placed:
    """A plan on its problem, as a constraint's ``check`` sees it.

    ``stages`` are its priced stages (:class:`nest_opt.evaluate.StageEvaluation`); they are computed
    when first asked for, and a check that does not need a price costs none.
    """

    def __init__(
        self,
        plan: Plan,
        compiled: Compiled,
        price: Callable[[], tuple[StageEvaluation, ...]],
        groups: Callable[[Template, Sequence[int], Axis], list[tuple[int, ...]]],
    ) -> None:
        self.plan = plan
        self.compiled = compiled
        self._price = price
        self._groups = groups

    @cached_property
    def stages(self) -> tuple[StageEvaluation, ...]:
        """One for each stage: load, synchronisation, memory."""
        return self._price()

    def stage_of(self, layer: int) -> int:
        """The stage that holds a layer."""
        return next(j for j, s in enumerate(self.plan.stages) if s.layers[0] <= layer < s.layers[1])

    def groups(self, stage: int, replica: int, axis: Axis) -> list[tuple[int, ...]]:
        """The groups of one axis in the devices of a stage of a replica."""
        return self._groups(self.plan.template, self.plan.stages[stage].devices[replica], axis)


class Constraint(Record):
    """Base of all constraints; a class in one file, its fields are its parameters.

    A subclass gives its name as the default of a field ``constraint``, and its meaning in one
    sentence:

    >>> from typing import Literal
    >>> class OddReplicas(Constraint):
    ...     '''The number of replicas is odd.'''
    ...     constraint: Literal["odd_replicas"] = "odd_replicas"
    ...     meaning = "the number of replicas is odd"
    ...     def check(self, placed):
    ...         if placed.plan.replicas % 2 == 0:
    ...             yield Breach("plan", "has an even number of replicas", whole_cell=True)
    ...     def allows_cell(self, cell, places):
    ...         return cell.replicas % 2 == 1
    ...     def restrict(self, stages):
    ...         if stages.cell.replicas % 2 == 0:
    ...             stages.forbid()
    >>> OddReplicas.name(), OddReplicas().has_dp_face
    ('odd_replicas', True)
    """

    constraint: str
    #: One sentence: what holds for every plan that keeps the constraint.
    meaning: ClassVar[str] = ""

    @classmethod
    def name(cls) -> str:
        """The name in problem files."""
        return str(cls.model_fields["constraint"].default)

    def __str__(self) -> str:
        given = self.model_dump(mode="json", exclude={"constraint"}, exclude_defaults=True)
        shown = ", ".join(f"{field} {value}" for field, value in given.items())
        return f"{self.constraint} ({shown})" if shown else self.constraint

    # --- does it fit the problem? -----------------------------------------------------------------

    def complaint(self, compiled: Compiled) -> str | None:
        """Why the parameters make no sense for this problem; None if they do."""
        return None

    @classmethod
    def sample(cls, compiled: Compiled, random: Random) -> Constraint:
        """Parameters drawn for a problem, some of which bind; without this, the defaults."""
        return cls()  # type: ignore[call-arg]

    def relaxations(self, compiled: Compiled) -> Iterable[tuple[str, Sequence[Any]]]:
        """Parameters that can be relaxed, each with ever weaker values, the smallest change first.

        Whatever plan one value allows, the values behind it allow as well.
        """
        return ()

    # --- the meaning ------------------------------------------------------------------------------

    @abstractmethod
    def check(self, placed: Placed) -> Iterator[Breach]:
        """What is wrong with a plan; nothing if it keeps the constraint.

        The plan covers the layers and uses existing devices, each once; its devices may be any, not
        only those of the two layouts.
        """
        raise NotImplementedError

    # --- the face for the dynamic program ---------------------------------------------------------

    def allows_cell(self, cell: Cell, places: Places) -> bool:
        """Whether a cell may hold plans that keep the constraint."""
        return True

    def allows_stage(self, stages: Stages) -> Any:
        """Which stages keep the constraint: true, false, or an array ``[first, stop]`` of both.

        ``stages`` are all stages that can lie at one position under one choice.
        """
        return True

    def carried(self, cell: Cell) -> int:
        """How many numbers 0, 1, ... may be carried from stage to stage in a cell; 1 carries none.

        Stages are laid from the last one to the first; 0 is carried into the last.
        """
        return 1

    def carry(self, value: int, stages: Stages) -> int | Ints:
        """The number carried on when stages are laid on ``value``, or -1 where that is forbidden.

        One number for all stages, or an array ``[first, stop]``.
        """
        return 0

    def accepts(self, value: int, cell: Cell) -> bool:
        """Whether a pipeline whose first stage carries ``value`` on keeps the constraint."""
        return True

    @property
    def filters_stages(self) -> bool:
        """Whether single stages, or stages together, can break the constraint."""
        own = type(self)
        return any(
            getattr(own, face) is not getattr(Constraint, face)
            for face in ("allows_stage", "carry", "accepts")
        )

    @property
    def has_dp_face(self) -> bool:
        """Whether the dynamic program can solve problems that have this constraint."""
        return self.filters_stages or type(self).allows_cell is not Constraint.allows_cell

    # --- the face for the integer programs --------------------------------------------------------

    @abstractmethod
    def restrict(self, stages: StageModel) -> None:
        """Add rows to a model, by what :class:`formulations.stages.StageModel` offers."""
        raise NotImplementedError

    def marked_layers(self, compiled: Compiled) -> Iterable[int]:
        """Layers that ``restrict`` asks about by number, so that no formulation merges them."""
        return ()


def layer_number(layer: int | str, names: tuple[str, ...]) -> int | None:
    """The number of a layer given by number or by name; negative numbers count from the end."""
    if isinstance(layer, str):
        return names.index(layer) if layer in names else None
    return layer % len(names) if -len(names) <= layer < len(names) else None


def layer_numbers(layers: Iterable[int | str], names: tuple[str, ...]) -> tuple[int, ...]:
    """The numbers of layers given by number or by name; those that do not exist are left out."""
    numbers = (layer_number(layer, names) for layer in layers)
    return tuple(number for number in numbers if number is not None)


def layer_complaint(layers: Iterable[int | str], names: tuple[str, ...]) -> str | None:
    """What is wrong with layers given by number or by name, and which there are."""
    from difflib import get_close_matches

    for layer in layers:
        if layer_number(layer, names) is None:
            close = get_close_matches(str(layer), names, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            return (
                f"layer {layer!r} does not exist; the model has layers 0..{len(names) - 1}, "
                f"{names[0]!r} to {names[-1]!r}{hint}"
            )
    return None
