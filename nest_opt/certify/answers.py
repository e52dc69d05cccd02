"""What an engine answers, whichever it is, and what becomes of the process that asked it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from nest_opt.certify.processes import Outcome
from nest_opt.errors import EngineError

Status = Literal["infeasible", "optimal", "feasible", "limit", "fault"]
Option = bool | int | float | str

#: What a condition under which an engine stopped amounts to. ``stopped``: at a limit, with a
#: solution or without; ``empty``: at a limit, and what it hands over is no solution; ``broke``: no
#: answer at all.
Meaning = Literal["optimal", "infeasible", "stopped", "empty", "broke"]

#: Every condition of Pyomo's ``contrib.solver`` interface (HiGHS, SCIP, Gurobi), by name.
PYOMO_CONDITIONS: Mapping[str, Meaning] = {
    "convergenceCriteriaSatisfied": "optimal",
    "provenInfeasible": "infeasible",
    "maxTimeLimit": "stopped",
    "iterationLimit": "stopped",
    "objectiveLimit": "broke",  # none is ever set
    "minStepLength": "broke",
    "unbounded": "broke",
    "locallyInfeasible": "broke",
    "infeasibleOrUnbounded": "broke",
    "error": "broke",
    "interrupted": "broke",
    "licensingProblems": "broke",
    "emptyModel": "broke",
    "unknown": "broke",
}

#: Every condition of Pyomo's older interface (CBC, GLPK, CPLEX), by name.
PYOMO_OLD_CONDITIONS: Mapping[str, Meaning] = {
    "optimal": "optimal",
    "globallyOptimal": "optimal",
    "infeasible": "infeasible",
    "maxTimeLimit": "stopped",
    "maxIterations": "stopped",
    "maxEvaluations": "stopped",
    "feasible": "stopped",
    "noSolution": "empty",  # none was found, which proves nothing
    "intermediateNonInteger": "empty",  # CBC hands over a solution of the relaxation
    "resourceInterrupt": "stopped",
    "unknown": "broke",
    "minFunctionValue": "broke",
    "minStepLength": "broke",
    "locallyOptimal": "broke",
    "other": "broke",
    "unbounded": "broke",
    "infeasibleOrUnbounded": "broke",
    "invalidProblem": "broke",
    "solverFailure": "broke",
    "internalSolverError": "broke",
    "error": "broke",
    "userInterrupt": "broke",
    "licensingProblems": "broke",
}

#: Every status of CP-SAT, by name.
CP_SAT_CONDITIONS: Mapping[str, Meaning] = {
    "OPTIMAL": "optimal",
    "INFEASIBLE": "infeasible",
    "FEASIBLE": "stopped",
    "UNKNOWN": "stopped",
    "MODEL_INVALID": "broke",
}


class Refusal(Exception):
    """There is no answer that could be passed on."""


def status_of(conditions: Mapping[str, Meaning], condition: str, incumbent: bool) -> Status:
    """Condition and presence of a solution -> status.

    Raises :class:`Refusal` for one that is no answer, or where the two contradict each other.
    """
    meaning = conditions.get(condition, "broke")
    if meaning == "infeasible" and not incumbent:
        return "infeasible"
    if meaning == "optimal" and incumbent:
        return "optimal"
    if meaning == "stopped":
        return "feasible" if incumbent else "limit"
    if meaning == "empty":
        return "limit"
    held = "with an incumbent" if incumbent else "without an incumbent"
    raise Refusal(f"{condition}: no answer ({held})")


@dataclass(frozen=True)
class EngineAnswer:
    """What an engine answered.

    ``status``
        ``infeasible``: no solution, says the engine (or a constant contradiction in the model).
        ``optimal``: solved with gap zero; ``values`` holds the solution.
        ``feasible``: stopped at a limit, with an incumbent in ``values``.
        ``limit``: stopped at a limit, without.
        ``fault``: anything else; ``detail`` says what.
    ``detail``
        The termination condition (HiGHS: Pyomo's name of it); for a fault (or a contradiction found
        without the engine) a reason follows after a colon.
    ``values``
        Variable name -> value, as returned, for every variable that occurs in an active constraint
        or in the objective; :func:`decode` of the model reads them. Only with ``optimal`` and
        ``feasible``.
    ``bound``, ``objective``
        As reported; None where there is none or it is infinite. Never proof of anything.
    ``nodes``
        Branch-and-bound nodes (CP-SAT: branches); None for a model without integer variables.
    ``seconds``
        Wall clock of building and solving together.
    ``options``
        As read back from the engine after the solve.
    ``warnings``
        The warnings and errors that the engine logged.
    """

    status: Status
    detail: str
    seconds: float
    values: dict[str, float] | None = None
    bound: float | None = None
    objective: float | None = None
    nodes: int | None = None
    options: dict[str, Option] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    version: str = ""
    pyomo_version: str = ""

    def to_json(self) -> dict[str, Any]:
        """A dictionary of plain JSON values; :meth:`from_json` is its inverse."""
        return asdict(self) | {"warnings": list(self.warnings)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EngineAnswer:
        """The answer behind :meth:`to_json`; raises EngineError if there is none."""
        try:
            answer = cls(**{**data, "warnings": tuple(data["warnings"])})
        except (TypeError, KeyError) as error:
            raise EngineError(f"not an engine answer: {error}; solve again") from error
        if answer.status not in get_args(Status):
            raise EngineError(f"unknown engine status {answer.status!r}; solve again")
        return answer


def answer_of(outcome: Outcome, *, version: str = "", pyomo_version: str = "") -> EngineAnswer:
    """The answer of a solve that ran in a child and returned :meth:`EngineAnswer.to_json`.

    A child that had to be killed at its wall clock counts as ``limit``; one that crashed or
    raised, as ``fault``; both under the given versions.
    """
    if outcome.status == "done" and outcome.value is not None:
        return EngineAnswer.from_json(outcome.value)
    return EngineAnswer(
        status="limit" if outcome.status == "timeout" else "fault",
        detail=f"{outcome.status}: {outcome.message}",
        seconds=outcome.seconds,
        version=version,
        pyomo_version=pyomo_version,
    )
