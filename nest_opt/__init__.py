"""Provably optimal placement of deep-learning training on a cluster.

A problem (a model, a cluster, a training run and a search space) is compiled to integers, solved
exactly by a dynamic program, and certified by mixed-integer programs that share no code with it.

>>> import nest_opt
>>> problem = nest_opt.load_problem("worked-example-160")
>>> solution = nest_opt.solve(problem)
>>> solution.status, solution.batch_ticks
('optimal', 454)
>>> [stage.layers for stage in solution.plan.stages]
[(0, 2), (2, 4)]
>>> nest_opt.evaluate(problem, solution.plan).batch_ticks
454

Everything is loaded when it is first used, so that ``import nest_opt`` costs next to nothing.
``nest_opt.solve``, ``nest_opt.evaluate`` and ``nest_opt.certify`` are always the functions,
whatever was imported before; the modules behind them are reached with
``from nest_opt.solve import ...``.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nest_opt.certify import Certificate, certify, verify
    from nest_opt.compile import Compiled, compile_problem
    from nest_opt.errors import (
        CertificateError,
        CompileError,
        Complaint,
        EngineError,
        InputError,
        NestOptError,
        OverflowGuardError,
        PlanError,
    )
    from nest_opt.evaluate import Evaluation, evaluate
    from nest_opt.infeasibility import Infeasibility, explain_infeasibility
    from nest_opt.library import load_problem
    from nest_opt.plan import Plan, Template
    from nest_opt.problem import Problem
    from nest_opt.report.explanation import Explanation, explain
    from nest_opt.simulate import Simulation, simulate
    from nest_opt.solve import Solution, solve

    __version__: str

__all__ = [
    "Certificate",
    "CertificateError",
    "CompileError",
    "Compiled",
    "Complaint",
    "EngineError",
    "Evaluation",
    "Explanation",
    "Infeasibility",
    "InputError",
    "NestOptError",
    "OverflowGuardError",
    "Plan",
    "PlanError",
    "Problem",
    "Simulation",
    "Solution",
    "Template",
    "__version__",
    "certify",
    "compile_problem",
    "evaluate",
    "explain",
    "explain_infeasibility",
    "load_problem",
    "simulate",
    "solve",
    "verify",
]

#: Where each public name lives.
_HOMES = {
    "Certificate": "certify",
    "CertificateError": "errors",
    "CompileError": "errors",
    "Compiled": "compile",
    "Complaint": "errors",
    "EngineError": "errors",
    "Evaluation": "evaluate",
    "Explanation": "report.explanation",
    "Infeasibility": "infeasibility",
    "InputError": "errors",
    "NestOptError": "errors",
    "OverflowGuardError": "errors",
    "Plan": "plan",
    "PlanError": "errors",
    "Problem": "problem",
    "Simulation": "simulate",
    "Solution": "solve",
    "Template": "plan",
    "certify": "certify",
    "compile_problem": "compile",
    "evaluate": "evaluate",
    "explain": "report.explanation",
    "explain_infeasibility": "infeasibility",
    "load_problem": "library",
    "simulate": "simulate",
    "solve": "solve",
    "verify": "certify",
}


class _Package(ModuleType):
    """This package as an object: public names on demand, and never hidden by a module."""

    def __getattr__(self, name: str) -> object:
        if name == "__version__":
            value: object = _version()
        elif name in _HOMES:
            from importlib import import_module

            value = getattr(import_module(f"{self.__name__}.{_HOMES[name]}"), name)
        else:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        super().__setattr__(name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # The import system binds each sub-module it loads as an attribute of its package. Where a
        # public function has the name, the function stays.
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("nest-opt")
    except PackageNotFoundError:
        return "0+unknown"  # a checkout on the path, not installed


sys.modules[__name__].__class__ = _Package
