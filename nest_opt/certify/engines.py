"""The engines that may be asked, by name and by what they can do.

HiGHS is always asked, and a certificate rests on it. Every other engine answers besides: nothing is
certified by it, but where it contradicts, the verdict is ``disputed``. ``cp-sat`` has a model of
its own (:mod:`nest_opt.certify.cp_sat`); the others get the same integer programs as HiGHS, through
Pyomo.

An engine is added by one entry of :data:`ENGINES`. A test runs all of them through the same
questions, those that are not installed excepted, and fails for an entry that it does not know.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from nest_opt.errors import EngineError

#: Seconds that an executable has to say which it is.
_VERSION_SECONDS = 10.0


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do, and be asked to do, through the interface that is used here.

    ``computes_in_integers``: no tolerances anywhere. ``pyomo_models``: it takes any linear Pyomo
    model, not only cells. ``reports_bound``: a bound on the optimum comes with each answer to a
    model with an objective. ``switches_presolve``: presolve can be switched off. ``takes_seed``: a
    second run can differ from the first. ``tells_unbounded``: it calls no unbounded model
    infeasible. ``fractional_bounds``: integer variables may have them. ``reads_options_back``: its
    options are read back after the solve, and an option that is not as asked is a ``fault``.
    ``own_process``: it is a program of its own, and reads and writes files.
    """

    computes_in_integers: bool = False
    pyomo_models: bool = True
    reports_bound: bool = True
    switches_presolve: bool = True
    takes_seed: bool = True
    tells_unbounded: bool = True
    fractional_bounds: bool = True
    reads_options_back: bool = True
    own_process: bool = False


@dataclass(frozen=True)
class Engine:
    """One engine: its name here, its own name, what it can do, and how it is found and installed.

    ``find`` returns the installed version; it raises :class:`EngineError` saying what is missing.
    """

    name: str
    title: str
    capabilities: Capabilities
    find: Callable[[], str]
    install: str

    @property
    def version(self) -> str | None:
        """The installed version; None where the engine cannot be used."""
        try:
            return self.find()
        except EngineError:
            return None


# --- finding them ---------------------------------------------------------------------------------


def _distribution(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise EngineError(f"the package {name} is not installed") from None


def _highs() -> str:
    from nest_opt.certify.highs import engine_versions

    return engine_versions()["highs"]


def _cp_sat() -> str:
    return _distribution("ortools")


@lru_cache
def _scip() -> str:
    package = _distribution("pyscipopt")
    try:
        import pyscipopt

        return f"{pyscipopt.Model().version()} (PySCIPOpt {package})"
    except Exception as error:
        raise EngineError(f"pyscipopt cannot be used: {error}") from error


def _gurobi() -> str:
    return _distribution("gurobipy")


def _cplex() -> str:
    return _distribution("cplex")


def executable(name: str) -> str:
    """The program of an engine that is one: CBC's from the package cbcbox, else from the path.

    Raises :class:`EngineError` where there is none.
    """
    if name == "cbc" and importlib.util.find_spec("cbcbox"):
        import cbcbox

        return str(cbcbox.cbc_bin_path())
    program = {"glpk": "glpsol"}.get(name, name)
    found = shutil.which(program)
    if found is None:
        raise EngineError(f"there is no {program} on the path")
    return found


@lru_cache
def _said_by(program: str, argument: str, pattern: str) -> str:
    """The version that a program tells; raises :class:`EngineError` if it does not run."""
    try:
        done = subprocess.run(
            [program, argument],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(f"{program} does not run: {error}") from error
    if done.returncode != 0:
        raise EngineError(f"{program} does not run: {(done.stderr or done.stdout).strip()[:200]}")
    found = re.search(pattern, done.stdout)
    return found[1].strip() if found else "unknown"


def _cbc() -> str:
    program = executable("cbc")
    told = _said_by(program, "-quit", r"(?:Version:|CBC)\s+(devel \([^)]*\)|[\w.]+)")
    if "cbcbox" in program:
        return f"{told} (cbcbox {_distribution('cbcbox')})"
    return told


def _glpk() -> str:
    return _said_by(executable("glpk"), "--version", r"Solver\D*([\d.]+)")


#: All engines by name; the first is the one that certificates rest on.
ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            Engine("highs", "HiGHS", Capabilities(), _highs, "pip install nest-opt"),
            Engine(
                "cp-sat",
                "OR-Tools CP-SAT",
                Capabilities(computes_in_integers=True, pyomo_models=False),
                _cp_sat,
                "pip install 'nest-opt[cp-sat]'",
            ),
            Engine("scip", "SCIP", Capabilities(), _scip, "pip install pyscipopt"),
            Engine(
                "cbc",
                "CBC",
                Capabilities(tells_unbounded=False, reads_options_back=False, own_process=True),
                _cbc,
                "pip install cbcbox, or put cbc on the path",
            ),
            Engine(
                "glpk",
                "GLPK",
                Capabilities(fractional_bounds=False, reads_options_back=False, own_process=True),
                _glpk,
                "put glpsol on the path (package glpk-utils)",
            ),
            Engine("gurobi", "Gurobi", Capabilities(), _gurobi, "pip install gurobipy"),
            Engine(
                "cplex",
                "CPLEX",
                Capabilities(reads_options_back=False),
                _cplex,
                "pip install cplex",
            ),
        )
    }
)

#: The engine that certificates rest on.
FIRST_ENGINE = "highs"


def engine_of(name: str) -> Engine:
    """An engine that is installed.

    Raises :class:`EngineError` for an unknown name, and for one that cannot be used.
    """
    if name not in ENGINES:
        from difflib import get_close_matches

        close = get_close_matches(name, ENGINES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise EngineError(f"{hint}there is no engine {name!r}; known: {', '.join(ENGINES)}")
    engine = ENGINES[name]
    try:
        engine.find()
    except EngineError as error:
        raise EngineError(f"{engine.title} cannot be asked: {error}; {engine.install}") from None
    return engine


def besides(names: Iterable[str]) -> tuple[str, ...]:
    """The engines among ``names`` that are asked besides HiGHS, each once, all installed.

    Raises :class:`EngineError` for an unknown name, and for one that cannot be used.
    """
    asked = dict.fromkeys(name.strip() for name in names)
    return tuple(name for name in asked if engine_of(name).name != FIRST_ENGINE)


def load(names: Iterable[str]) -> None:
    """Import what engines need, so that processes that are forked later need not."""
    modules = {"cp-sat": "ortools.sat.python.cp_model", "scip": "pyscipopt"}
    modules |= {"gurobi": "gurobipy", "cplex": "cplex"}
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(modules.get(name, "nest_opt.certify.highs"))


def installed() -> dict[str, str]:
    """Versions of the engines that can be used, by name."""
    found = {name: engine.version for name, engine in ENGINES.items()}
    return {name: version for name, version in found.items() if version is not None}
