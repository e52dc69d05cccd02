"""What a certification leaves behind: everything that is needed to check it again.

A certificate holds the whole problem, the plan, and for every cell of the search space how it was
closed. It carries no signature: whoever doubts it recomputes it with
:func:`nest_opt.certify.verify`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from nest_opt.errors import CertificateError, InputError
from nest_opt.files import canonical_json, complaints_of, read_json
from nest_opt.plan import Plan
from nest_opt.problem import Problem
from nest_opt.record import Record

#: Since version 2, engines other than HiGHS answer besides; version 1 is read as well.
FORMAT = "nest-opt/certificate/2"

Verdict = Literal["certified", "refuted", "disputed", "open", "fault"]
Method = Literal["bounded", "refuted", "solved", "open"]
#: The first two are integer programs, ``boundaries`` is the model of CP-SAT.
Formulation = Literal["runs", "assignment", "arcs", "boundaries"]
QuestionKind = Literal["decision", "minimum", "fixed_plan"]

#: The release of HiGHS whose answers count: it passed the canaries, others did not.
CHECKED_HIGHS = "1.16.0"

#: Said wherever optimality is claimed.
RELATIVE_TO = (
    "optimal among contiguous stages on consecutive devices in one of two layouts, over the listed "
    "search space, under this cost model"
)


class OptionSet(NamedTuple):
    """Options of HiGHS in which two answers to one question have to differ."""

    presolve: bool
    seed: int


#: An answer counts if it holds under the first set and under the second, which differs in presolve
#: and seed. HiGHS 1.16.0 refuted feasible models with presolve on (tests/regression), so the first
#: is without. Where presolve breaks down ("solve error") or hits the limit, the stand-in replaces
#: the second; where it contradicts the first, nothing does.
FIRST, SECOND, STAND_IN = OptionSet(False, 1), OptionSet(True, 2), OptionSet(False, 3)

#: Engines that answer besides HiGHS are asked once, as they are used most.
BESIDES = OptionSet(False, 1)

_Natural = Annotated[int, Field(ge=0, le=2**63)]
_Ticks = Annotated[int, Field(ge=-1, le=2**63)]
_Seconds = Annotated[float, Field(ge=0)]
_Text = Annotated[str, Field(max_length=10**4)]


class Answer(Record):
    """One answer of an engine: to what, under which options, and what became of its plan.

    ``engine`` is its name (:data:`nest_opt.certify.engines.ENGINES`). ``limit`` is that of "a plan
    with T <= limit exists" (None: any plan at all). ``options`` are as read back from the engine,
    where it can be read; empty where a constant contradiction was found before it ran.
    ``priced_ticks`` is the batch time of the returned plan by the evaluator, if it is feasible;
    ``note`` says what is wrong with it otherwise. ``bound`` and ``objective`` are as reported, in
    units of the model, and prove nothing.
    """

    engine: Annotated[str, Field(max_length=20)] = "highs"
    formulation: Formulation
    question: QuestionKind
    limit: _Ticks | None
    status: Literal["infeasible", "optimal", "feasible", "limit", "fault"]
    detail: _Text = ""
    presolve: bool
    seed: _Natural
    options: dict[str, bool | int | float | str] = Field(default_factory=dict)
    bound: float | None = None
    objective: float | None = None
    nodes: _Natural | None = None
    seconds: _Seconds = 0.0
    warnings: tuple[str, ...] = ()
    version: str = ""
    pyomo_version: str = ""
    priced_ticks: _Natural | None = None
    note: _Text = ""

    @property
    def option_set(self) -> OptionSet:
        """What was asked of HiGHS besides the question."""
        return OptionSet(self.presolve, self.seed)

    @property
    def claims_plan(self) -> bool:
        """Whether the engine says that it has found a plan."""
        return self.status in ("optimal", "feasible")

    def complaint(self) -> str | None:
        """What makes this answer worthless as evidence, if something does.

        It must come from the release that was checked, with one thread and gaps of zero, under the
        options that were asked for.
        """
        if self.engine != "highs":
            return f"{self.engine} answered, not HiGHS"
        if self.version != CHECKED_HIGHS:
            return f"HiGHS {self.version or '(unknown)'} answered, not {CHECKED_HIGHS}"
        if self.status == "infeasible" and self.detail.startswith("contradiction:"):
            return None  # found while reading the model; no solve to read options back from
        if self.status == "infeasible" and "infeasible" not in self.detail.lower():
            return f"infeasible, it says, but HiGHS stopped with {self.detail!r}"
        wanted: dict[str, bool | int | float | str] = {
            "threads": 1,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 0.0,
            "mip_feasibility_tolerance": 1e-6,
            "presolve": "on" if self.presolve else "off",
            "random_seed": self.seed,
        }
        for name, value in wanted.items():
            if self.options.get(name) != value:
                return f"option {name} is {self.options.get(name)!r}, not {value!r}"
        return None


def confirmed(
    answers: Sequence[Answer], question: QuestionKind, limit: int | None, status: str
) -> tuple[Answer, Answer] | None:
    """Two answers of that status which together count, from one formulation; None without them."""
    for formulation in ("runs", "assignment", "arcs"):
        asked = {
            answer.option_set: answer
            for answer in answers
            if answer.engine == "highs"
            and (answer.formulation, answer.question, answer.limit)
            == (formulation, question, limit)
        }
        first, second = asked.get(FIRST), asked.get(SECOND)
        if second is None or second.status in ("limit", "fault"):
            second = asked.get(STAND_IN)
        if first and second and first.status == second.status == status:
            return first, second
    return None


def contradiction(
    answer: Answer, best: int | None, holds_plan: bool, optimum: int | None
) -> str | None:
    """What an answer besides contradicts, if something; a limit or a broken engine says nothing.

    ``best`` is T* (None: there is said to be no plan), ``holds_plan`` whether the plan of T* lies
    in the answer's cell, ``optimum`` the price that HiGHS found for the cell's best plan (None:
    none). A plan that is really better settles the matter before this is asked.
    """
    found = answer.note or f"the evaluator prices it at {answer.priced_ticks} ticks"
    if answer.question == "fixed_plan":
        if answer.status == "infeasible":
            return f"the plan of {best} ticks is infeasible, it says"
        if answer.claims_plan and answer.priced_ticks != best:
            return f"the plan comes back otherwise: {found}"
    elif answer.question == "decision":
        if answer.claims_plan:
            return f"it claims a plan with T <= {answer.limit}: {found}"
    elif answer.status == "infeasible":
        if holds_plan or optimum is not None:
            return "it says that the cell has no plan"
    elif answer.claims_plan:
        price = answer.priced_ticks
        if price is None or best is None or price < best:
            return f"it claims a plan: {found}"
        expected = best if holds_plan else optimum
        if answer.status == "optimal" and expected not in (None, price):
            return f"its optimum is {price}, not {expected}"
    return None


class Closure(Record):
    """How one cell was closed, or that it was not.

    ``bounded``: ``bound`` names the closed-form bound; ``value`` is the bound (``work``) or the
    limit on T that counting refutes (``counting``; None: memory alone refutes every plan). With
    ``constraint``, every plan of the cell breaks the constraint that ``reason`` names.
    ``refuted``: the decision models behind ``answers``, ``value`` their limit (None: no limit).
    ``solved``: the min-max models behind ``answers``, ``value`` the batch time of their plan.
    ``open``: ``reason`` says why, ``value`` is a proven lower bound on T in this cell.
    ``besides`` are the answers of engines on which nothing rests; none of them may contradict.
    """

    cell: Annotated[str, Field(max_length=200)]
    method: Method
    bound: Literal["work", "counting", "constraint"] | None = None
    value: _Ticks | None = None
    reason: _Text = ""
    answers: tuple[Answer, ...] = ()
    besides: tuple[Answer, ...] = ()


class CellCounts(Record):
    """How many cells were closed in which way."""

    total: _Natural
    bounded: _Natural
    refuted: _Natural
    solved: _Natural
    open: _Natural

    @classmethod
    def of(cls, closures: Iterable[Closure]) -> CellCounts:
        """Counts of a list of closures."""
        methods = [closure.method for closure in closures]
        return cls(
            total=len(methods),
            bounded=methods.count("bounded"),
            refuted=methods.count("refuted"),
            solved=methods.count("solved"),
            open=methods.count("open"),
        )


class CertificateUnits(Record):
    """The units of the compiled problem; ``tick_seconds`` is an exact fraction."""

    tick_seconds: Annotated[str, Field(pattern=r"^[0-9]+(/[0-9]+)?$", max_length=200)]
    synchronisation_multiple_ticks: Annotated[int, Field(ge=1)]
    quantum_bytes: Annotated[int, Field(ge=1)]
    memory_quanta: _Natural


class Enumeration(Record):
    """Every plan through the evaluator, where there are few.

    ``plans`` is how many there are (None: not counted); ``agreed`` is None where they were not
    priced, and ``reason`` says why.
    """

    plans: _Natural | None
    agreed: bool | None
    reason: _Text | None = None


class BetterPlan(Record):
    """A plan that beats the reported optimum, priced by the evaluator."""

    batch_ticks: _Natural
    found_by: str
    plan: Plan


class Options(Record):
    """With what the certification was run; ``engines`` are those that were asked besides HiGHS."""

    use_bounds: bool
    time_limit: float | None
    jobs: Annotated[int, Field(ge=1)]
    solve_limit: float
    enumeration_limit: _Natural
    cross_checks: _Natural
    engines: tuple[Annotated[str, Field(max_length=20)], ...] = ()


class Certificate(Record):
    """The verdict on a problem's optimum, and what it rests on. Made by :func:`nest_opt.certify`.

    ``status`` is what the solver of the problem said: an optimum, no plan at all, or ``unknown`` if
    it was cut off. ``batch_ticks``, ``tau_ticks`` (per microbatch), ``sigma_ticks`` and ``plan``
    are its answer. ``proven_bound_ticks`` is a lower bound on T that holds in every cell; ``gap``
    is how far it lies below ``batch_ticks``, relative to it. ``reasons`` says what stands in the
    way of ``certified``. ``relative_to`` says what a certified plan is optimal among.
    ``constraint_sources``: by name, the digest of the source of each constraint of the problem that
    is not built in.
    """

    format: Literal["nest-opt/certificate/1", "nest-opt/certificate/2"] = FORMAT  # type: ignore[assignment]
    nest_opt: str
    verdict: Verdict
    reasons: tuple[str, ...]
    relative_to: str = RELATIVE_TO
    name: str
    digest: str
    status: Literal["optimal", "infeasible", "unknown"]
    batch_ticks: _Natural | None
    batch_seconds: float | None
    tau_ticks: _Natural | None
    sigma_ticks: _Natural | None
    proven_bound_ticks: _Natural | None
    gap: float | None
    units: CertificateUnits
    cells: CellCounts
    plan: Plan | None
    better_plan: BetterPlan | None
    completeness: tuple[Answer, ...]
    enumeration: Enumeration
    engines: dict[str, str]
    constraint_sources: dict[str, str] = Field(default_factory=dict)
    options: Options
    wall_seconds: _Seconds
    problem: Problem
    closures: tuple[Closure, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form; :meth:`from_dict` reads it back."""
        data = self.model_dump(mode="json", exclude={"problem", "closures"})
        data["problem"] = self.problem.to_dict()
        # There may be a hundred thousand of these: only what is not a default is written.
        data["closures"] = [c.model_dump(mode="json", exclude_defaults=True) for c in self.closures]
        return data

    @classmethod
    def from_dict(cls, data: Any, source: str = "certificate") -> Certificate:
        """Validate ``data``; raises :class:`CertificateError` listing everything wrong with it."""
        if not isinstance(data, dict):
            raise CertificateError(f"{source}: a certificate is a JSON object")
        try:
            # JSON mode, so that strictness means JSON types.
            return cls.model_validate_json(canonical_json(data))
        except ValidationError as error:
            found = InputError(source, complaints_of(error, data))
            raise CertificateError(f"not a certificate: {found}") from None
        except InputError as error:
            raise CertificateError(f"not a certificate: {error}") from None

    @classmethod
    def from_file(cls, path: str | Path) -> Certificate:
        """Read a certificate file.

        Raises :class:`InputError` for a file that is no JSON, :class:`CertificateError` for JSON
        that is no certificate.
        """
        return cls.from_dict(read_json(Path(path)), str(path))
