"""The public interface: names, laziness, every import order, runnable examples."""

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import nest_opt

ROOT = Path(__file__).resolve().parents[2]
SETTING = "from nest_opt.library import load_problem; p = load_problem('worked-example-160')\n"


def run(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("name", sorted(nest_opt.__all__))
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    value = getattr(nest_opt, name)
    assert name in dir(nest_opt)
    if name != "__version__":
        assert value.__doc__
        assert value.__name__ == name


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'solv'"):
        nest_opt.solv  # type: ignore[attr-defined]  # noqa: B018


def test_errors_are_one_family() -> None:
    for name in nest_opt.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(nest_opt, name), nest_opt.NestOptError)


#: The functions stay functions, whatever was imported before and in whatever order.
ORDERS = [
    "from nest_opt import solve; s = solve(p)",
    "import nest_opt; s = nest_opt.solve(p)",
    "import nest_opt; import nest_opt.solve; s = nest_opt.solve(p)",
    "import nest_opt.solve; import nest_opt; s = nest_opt.solve(p)",
    "from nest_opt.solve import solve; s = solve(p)",
    "from nest_opt.solve import solve; import nest_opt; s = nest_opt.solve(p)",
    "from nest_opt import solve; from nest_opt.solve import solve as other; s = other(p)\n"
    "assert solve is other",
    "import importlib; m = importlib.import_module('nest_opt.solve'); s = m.solve(p)\n"
    "import nest_opt; assert nest_opt.solve is m.solve",
    "import nest_opt, importlib; nest_opt.solve; importlib.import_module('nest_opt.solve')\n"
    "s = nest_opt.solve(p)",
    "from nest_opt import *; s = solve(p)",
]


@pytest.mark.parametrize("order", ORDERS)
def test_solve_in_every_import_order(order: str) -> None:
    run(f"{SETTING}{order}\nassert s.batch_ticks == 454")


@pytest.mark.parametrize("name", ["evaluate", "certify", "solve", "verify"])
def test_functions_are_not_hidden_by_modules(name: str) -> None:
    home = "certify" if name == "verify" else name
    run(
        f"import nest_opt.{home}; import nest_opt\n"
        f"assert callable(nest_opt.{name})\n"
        f"from nest_opt import {name}; from nest_opt.{home} import {name} as other\n"
        f"assert {name} is other is nest_opt.{name}"
    )


def test_functions_can_be_sent_to_other_processes() -> None:
    run("import pickle, nest_opt; assert pickle.loads(pickle.dumps(nest_opt.solve))")


MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in ("nest_opt", "formulations")
    for path in sorted((ROOT / package).rglob("*.py"))
    if path.name != "__main__.py"
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nest_opt", "--version"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout == f"nest-opt {nest_opt.__version__}\n"
