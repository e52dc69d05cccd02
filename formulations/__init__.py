"""Mixed-integer programs of one cell, one file per formulation.

Each formulation module offers

``build_decision(compiled, cell, limit)``
    a model of "a plan of this cell with T <= limit exists";
``build_minimum(compiled, cell)``
    a model that minimises T over the plans of this cell;
``decode(compiled, cell, values)``
    the plan that a solution stands for;
``fix_plan(model, compiled, cell, plan)``
    the same model, restricted to one plan;
``FAMILIES`` and ``STRENGTHENING``
    tags of its constraint families: a component belongs to the family whose tag its name starts
    with. Every family is needed; a strengthening row only repeats, more tightly, what families
    say together, so whoever drops a family to see what happens drops the strengthening as well.

Nothing here calls a solver, reads a file, or knows of any other engine.
"""

from __future__ import annotations

from types import ModuleType

from formulations import arcs, assignment, runs

FORMULATIONS: dict[str, ModuleType] = {
    "arcs": arcs,
    "assignment": assignment,
    "runs": runs,
}

__all__ = ["FORMULATIONS", "arcs", "assignment", "runs"]
