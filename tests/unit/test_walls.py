"""The walls between the parts of the package: who may import whom, and who may print."""

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def module_names() -> list[str]:
    names = []
    for package in ("nest_opt", "formulations"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            if parts[-1] == "__main__":
                continue
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


MODULES = module_names()


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@cache
def loaded_by(module: str) -> frozenset[str]:
    """Every module that is loaded after ``import module``, in a process of its own."""
    code = f"import sys, json, {module}; print(json.dumps(list(sys.modules)))"
    return frozenset(json.loads(run(code)))


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == p or name.startswith(f"{p}.") for p in packages)


#: (those it holds for, what they must not load)
WALLS = [
    (("nest_opt.evaluate",), ("nest_opt.dp", "nest_opt.solve", "formulations", "nest_opt.certify")),
    (("formulations",), ("nest_opt.dp", "nest_opt.solve", "nest_opt.evaluate", "highspy")),
    (("nest_opt.dp", "nest_opt.solve"), ("pyomo", "highspy", "nest_opt.evaluate", "formulations")),
    (
        ("nest_opt.enumerate",),
        ("nest_opt.cells", "nest_opt.bounds", "nest_opt.dp", "nest_opt.solve", "formulations"),
    ),
    (
        ("nest_opt.problem", "nest_opt.plan", "nest_opt.files", "nest_opt.errors"),
        ("nest_opt.library", "nest_opt.compile", "numpy"),
    ),
    (
        ("nest_opt.certify.check_witness",),
        ("nest_opt.dp", "nest_opt.solve", "nest_opt.bounds", "nest_opt.geometry", "nest_opt.cells"),
    ),
    (
        ("nest_opt.constraints",),
        ("numpy", "pyomo", "formulations", "nest_opt.dp", "nest_opt.evaluate", "nest_opt.compile"),
    ),
    (
        ("nest_opt.certify.cp_sat",),
        (
            "nest_opt.dp",
            "nest_opt.solve",
            "nest_opt.bounds",
            "nest_opt.geometry",
            "nest_opt.evaluate",
            "formulations",
            "pyomo",
            "highspy",
        ),
    ),
    (("nest_opt.compile", "nest_opt.estimate"), ("nest_opt.library", "nest_opt.cells", "pyomo")),
]


@pytest.mark.parametrize("module", MODULES)
def test_walls(module: str) -> None:
    forbidden: set[str] = set()
    for inside, outside in WALLS:
        if within(module, inside):
            forbidden.update(outside)
    if not within(module, ("nest_opt.certify", "nest_opt.cli")):
        forbidden.add("nest_opt.certify")  # nothing below knows that a certificate exists
    if module != "nest_opt.cli":
        forbidden.add("nest_opt.cli")
    breaches = sorted(name for name in loaded_by(module) if within(name, tuple(forbidden)))
    assert not breaches, f"{module} loads {breaches}"


def imported_in(path: Path) -> set[str]:
    """Modules that the text of a file imports, anywhere in it but for the types alone."""
    found = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_no_forbidden_import_hides_in_a_function(module: str) -> None:
    path = ROOT / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    forbidden: set[str] = set()
    for inside, outside in WALLS:
        if within(module, inside):
            forbidden.update(outside)
    found = sorted(name for name in imported_in(path) if within(name, tuple(forbidden)))
    assert not found, f"{module} imports {found}"


#: Commands; the last is run with python -m, to make the shipped suite.
COMMANDS = (
    "nest_opt/cli.py",
    "nest_opt/__main__.py",
    "nest_opt/certify/combinations.py",
    "nest_opt/certify/fuzz_mutants.py",
    "nest_opt/certify/generate.py",
    "nest_opt/certify/generate_constraints.py",
    "nest_opt/certify/generate_structure.py",
    "nest_opt/certify/manifest.py",
    "nest_opt/certify/mutants.py",
)


def test_nothing_below_the_command_line_prints() -> None:
    offenders = []
    for package in ("nest_opt", "formulations"):
        for path in (ROOT / package).rglob("*.py"):
            if str(path.relative_to(ROOT)) in COMMANDS:
                continue
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                    "print",
                    "sys.stdout.write",
                    "sys.stderr.write",
                ):
                    offenders.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not offenders


HEAVY = ("numpy", "pydantic", "networkx", "pyomo", "highspy", "tabulate")


@pytest.mark.parametrize("module", ["nest_opt", "nest_opt.cli", "nest_opt.errors"])
def test_light_to_import(module: str) -> None:
    assert not sorted(name for name in loaded_by(module) if within(name, HEAVY))


def test_solving_never_loads_a_solver() -> None:
    code = (
        "import sys, json, io, contextlib\n"
        "from nest_opt.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        "    assert main(['solve', 'worked-example-160']) == 0\n"
        "print(json.dumps(list(sys.modules)))"
    )
    loaded = json.loads(run(code))
    assert not [name for name in loaded if within(name, ("pyomo", "highspy", "formulations"))]
