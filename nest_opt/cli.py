"""The command line: ``nest-opt`` and ``python -m nest_opt``.

Each command prints a table for people or, with ``--json``, one JSON object for machines. Results
go to standard output, progress and complaints to standard error. Exit status: 0 for success, 1 for
a negative answer (infeasible, refuted, refused), 2 for input that cannot be used, 130 when
interrupted.

Nothing heavy is imported before a command needs it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from nest_opt.errors import CertificateError, InputError, NestOptError

if TYPE_CHECKING:
    from fractions import Fraction

    from nest_opt.certify import Certificate
    from nest_opt.certify.extension import ConstraintCertificate
    from nest_opt.compile import Compiled
    from nest_opt.estimate.fit import Errors, Fit
    from nest_opt.estimate.profile import LayerTime
    from nest_opt.evaluate import Evaluation, LoadParts, SyncParts
    from nest_opt.infeasibility import Infeasibility
    from nest_opt.plan import Plan
    from nest_opt.problem import Problem
    from nest_opt.report.constraint_costs import ConstraintCost
    from nest_opt.report.explanation import Explanation

OK, NEGATIVE, BAD_INPUT, INTERNAL, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141

#: Columns of everything meant for people.
WIDTH = 80
#: Of violations, refusals and notes, so many are shown, each cut at so many characters.
LISTED, LISTED_LENGTH = 6, 300
#: A complaint fills at most one screen.
SCREEN_LINES = 22

Json = dict[str, Any]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command, ``sys.argv`` unless given; returns the exit status."""
    if sys.stdout is None or sys.stderr is None:  # closed by the caller
        devnull = open(os.devnull, "w")  # noqa: SIM115 - open as long as the process
        sys.stdout, sys.stderr = sys.stdout or devnull, sys.stderr or devnull
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        arguments = _parser().parse_args(argv)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except NestOptError as error:
        _complain(str(error))
        return error.exit_status
    except SystemExit as stop:  # argparse has said what is wrong, or printed its help
        return stop.code if isinstance(stop.code, int) else OK
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            _complain(f"standard output cannot be written: {error.strerror or error}")
            _abandon_output()
            return BAD_INPUT
        # The reader has left. Keep the interpreter from flushing into the broken pipe once more.
        _abandon_output()
        return BROKEN_PIPE
    except MemoryError:
        _complain("out of memory; narrow the search space or use a machine with more memory")
        return INTERNAL
    except Exception:
        traceback.print_exc()
        _complain("this is a bug in nest-opt; please report it with the lines above")
        return INTERNAL


def _abandon_output() -> None:
    """Keep the interpreter from flushing once more what cannot be written."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# --- arguments ------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints fit on a line and suggest what was meant."""

    options: tuple[str, ...] = ()

    def __init__(self, *args: Any, **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        super().__init__(*args, **settings)

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message, re.DOTALL)
        unknown = re.match(r"unrecognized arguments: (\S+)", message)
        if choice:
            known = re.findall(r"[A-Za-z0-9][\w.-]*", choice[2])
            hint = _did_you_mean(choice[1], known)
            message = (
                f"{message[: choice.start()]}unknown: {choice[1]!r}{hint} "
                f"(one of {', '.join(known)})"
            )
        elif unknown:
            message += _did_you_mean(unknown[1].partition("=")[0], self.options)
        _complain(f"{message}\nsee '{self.prog} --help'")
        raise SystemExit(BAD_INPUT)


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _parser() -> _Parser:
    parser = _Parser(
        prog="nest-opt",
        description="Provably optimal placement of deep-learning training on a cluster.",
        epilog="PROBLEM is a problem file, a shipped name, or MODEL@CLUSTER: try 'nest-opt list' "
        "and 'nest-opt solve llama2-7b@h100-64'. Exit status: 0 success, 1 negative answer "
        "(infeasible, not certified, refused), 2 bad input.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, dest="command")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], summary: str, out: str = ""
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=summary)
        sub.set_defaults(run=run)
        sub.add_argument("--json", action="store_true", help="print one JSON object")
        sub.add_argument("-q", "--quiet", action="store_true", help="no progress, no remarks")
        if out:
            sub.add_argument("--out", type=Path, metavar="FILE", help=out)
        return sub

    sub = command("list", _list, "List shipped models, devices, clusters, problems and plans.")
    sub.add_argument(
        "family",
        nargs="?",
        choices=("models", "devices", "clusters", "problems", "plans", "suites", "constraints"),
        help="only this family",
    )

    sub = command("solve", _solve, "Find the optimal plan.", "write the plan as JSON")
    _add_problem(sub)
    _add_bounds(sub)

    sub = command("evaluate", _evaluate, "Price an explicit plan, whoever made it.")
    _add_problem(sub)
    sub.add_argument(
        "plan", metavar="PLAN", help="a plan file, the output of 'solve --json', or a shipped name"
    )

    sub = command("explain", _explain, "Show where a plan's memory and time go, and what binds.")
    _add_problem(sub)
    sub.add_argument(
        "plan",
        metavar="PLAN",
        nargs="?",
        help="a plan as for 'evaluate'; the optimal one if left out",
    )
    _add_bounds(sub)

    sub = command(
        "simulate", _simulate, "Run a plan's schedule on a clock, and compare the formulas."
    )
    _add_problem(sub)
    sub.add_argument(
        "plan",
        metavar="PLAN",
        nargs="?",
        help="a plan as for 'evaluate'; the optimal one if left out",
    )
    sub.add_argument(
        "--transfers",
        choices=("waiting", "overlapping"),
        default="waiting",
        help="waiting: stages wait for transfers, as the load counts them (default); overlapping: "
        "transfers run besides computation and share ports",
    )
    sub.add_argument(
        "--trace", type=Path, metavar="FILE", help="write events for Perfetto or chrome://tracing"
    )

    sub = command("certify", _certify, "Solve and prove the optimum.", "write the certificate")
    _add_problem(sub, optional=True)
    sub.add_argument("--suite", metavar="NAME", help="certify a suite instead of one problem")
    sub.add_argument(
        "--sample", type=_positive, metavar="N", help="with --suite: a spread of N of its problems"
    )
    sub.add_argument(
        "--time-limit", type=_seconds_argument, metavar="S", help="give up after S seconds"
    )
    _add_engines(sub, "ask these as well")
    sub.add_argument(
        "--disputes",
        type=Path,
        metavar="DIR",
        help="where to write models and answers on which engines disagree (default: disputes/ "
        "beside --out)",
    )
    _add_jobs(sub)
    _add_bounds(sub)

    sub = command(
        "witness", _witness, "Solve, and write tables from which the optimum can be re-checked.",
        "write the witness (else it is printed)",
    )  # fmt: skip
    _add_problem(sub)

    sub = command("verify", _verify, "Check a certificate or a witness without believing it.")
    sub.add_argument(
        "certificate",
        metavar="FILE",
        help="a file written by 'certify --out' or 'witness --out'",
    )
    sub.add_argument("--resolve", action="store_true", help="run its integer programs again")
    _add_engines(sub, "with --resolve: ask these as well")
    _add_constraint(sub)
    _add_jobs(sub)

    sub = command(
        "price-of-structure", _price_of_structure,
        "Prove how much faster a batch could be if stages lay on any devices.",
        "write each price as it is proven; a run with the same file goes on where it ended",
    )  # fmt: skip
    sub.add_argument(
        "problems",
        metavar="PROBLEM",
        nargs="*",
        help="problem files or shipped names; templates of width one, up to about 20 devices",
    )
    sub.add_argument("--suite", metavar="NAME", help="all problems of a suite, as 'structure'")
    sub.add_argument(
        "--solve-limit",
        type=_seconds_argument,
        default=120.0,
        metavar="S",
        help="wall clock of one solve (default %(default)s)",
    )
    _add_jobs(sub)

    sub = command(
        "doctor", _doctor, "Ask the installed solver models on which others failed.",
        "write the diagnosis as JSON",
    )  # fmt: skip
    _add_jobs(sub)

    sub = command(
        "fuzz", _fuzz, "Draw random problems, compare all engines, shrink what disagrees.",
        "write what was found as JSON",
    )  # fmt: skip
    sub.add_argument(
        "--seconds", type=_seconds_argument, default=60.0, metavar="S", help="how long (default 60)"
    )
    sub.add_argument(
        "--seed", type=_integer, default=1, metavar="N", help="which problems (default 1)"
    )
    sub.add_argument(
        "--folder",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where shrunk problems and their tests are written (default: here)",
    )
    _add_jobs(sub)

    sub = command(
        "certify-constraint", _certify_constraint,
        "Prove that a constraint means the same to every engine.", "write the certificate",
    )  # fmt: skip
    sub.add_argument(
        "spec",
        metavar="CONSTRAINT",
        help="FILE.py:CLASS, whose code is run, or the name of a known constraint",
    )
    sub.add_argument(
        "--seconds", type=_seconds_argument, default=110.0, metavar="S",
        help="give up after S seconds (default 110)",
    )  # fmt: skip
    sub.add_argument(
        "--problems", type=_positive, default=40, metavar="N", help="how many (default 40)"
    )
    sub.add_argument(
        "--seed", type=_integer, default=1, metavar="N", help="which problems (default 1)"
    )
    sub.add_argument(
        "--folder",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="where a shrunk problem and its test are written (default: here)",
    )
    _add_jobs(sub)

    sub = command(
        "mutants", _mutants, "Break each cost term and constraint; show which problems notice.",
        "write the table as JSON",
    )  # fmt: skip
    sub.add_argument(
        "--fuzz",
        action="store_true",
        help="find each by fuzzing and shrink it, in place of asking the suite",
    )
    sub.add_argument(
        "--name", default="", metavar="TEXT", help="only mutants whose name contains this"
    )
    sub.add_argument(
        "--seconds",
        type=_seconds_argument,
        default=None,
        metavar="S",
        help="processor time to find and shrink each, with --fuzz (default 60)",
    )
    _add_jobs(sub)

    sub = command(
        "compile", _compile, "Show a problem as the integers that everything else reads.",
        "write the integers as JSON",
    )  # fmt: skip
    _add_problem(sub)

    sub = command(
        "fit", _fit, "Fit a device's efficiency to measured iterations, and show the error.",
        "write the fitted device as JSON",
    )  # fmt: skip
    sub.add_argument("measured", metavar="MEASURED", help="a CSV file of measured iterations")
    sub.add_argument("--cluster", required=True, metavar="CLUSTER", help="a shipped name or a file")
    sub.add_argument(
        "--cross-validate", action="store_true", help="price each model by a fit to the others"
    )

    sub = command(
        "import", _import, "Read another program's input as a problem.",
        "write the problem as JSON (else it is printed)",
    )  # fmt: skip
    sub.add_argument("format", choices=("nest",), help="nest: the NEST artifact's placement input")
    sub.add_argument("file", metavar="FILE", help="the file to read")
    sub.add_argument("--name", metavar="NAME", help="name of the problem (default: of the file)")
    sub.add_argument(
        "--synchronisation",
        choices=("first_stage", "slowest_stage"),
        default="first_stage",
        help="whose synchronisation counts (default: first_stage, as in the artifact)",
    )

    sub = command("schema", _schema, "Print the JSON Schema of problem files.", "write it")
    sub.add_argument("--plan", action="store_true", help="the schema of plan files instead")

    parser.options = tuple(
        sorted({o for p in commands.choices.values() for a in p._actions for o in a.option_strings})
    )
    return parser


class _Version(argparse.Action):
    """Prints the version; looks it up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from nest_opt import __version__

        print(f"nest-opt {__version__}")
        parser.exit()


def _add_jobs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--jobs",
        type=_positive,
        default=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1,
        metavar="N",
        help="processes at a time (default: one for each core, %(default)s)",
    )


def _add_engines(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--engine",
        type=_words,
        default=[],
        metavar="NAME[,NAME...]",
        help=f"{what}, besides HiGHS: cp-sat, scip, cbc, glpk, gurobi, cplex ('nest-opt doctor' "
        "lists those that are installed)",
    )


def _add_bounds(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-bounds", action="store_true", help="no closed-form bounds: work on every cell"
    )


def _add_problem(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument(
        "problem",
        metavar="PROBLEM",
        nargs="?" if optional else None,
        help="a problem file, a shipped name, or MODEL@CLUSTER",
    )
    group = parser.add_argument_group(
        "overrides", "replace parts of the problem; a LIST is separated by commas"
    )

    def override(
        flag: str, field: str, kind: Callable[[str], Any], metavar: str, text: str
    ) -> None:
        group.add_argument(
            flag,
            dest="overrides",
            action="append",
            type=lambda word: (field, kind(word)),
            metavar=metavar,
            help=text,
        )

    override("--microbatch", "search.microbatch", _integers, "LIST", "sequences per microbatch")
    override("--tensor", "search.tensor", _integers, "LIST", "tensor-parallel degrees")
    override("--context", "search.context", _integers, "LIST", "context-parallel degrees")
    override("--expert", "search.expert", _integers, "LIST", "expert-parallel degrees")
    override(
        "--sequence-parallel", "search.sequence_parallel", _switch, "on|off|both",
        "sequence parallelism where the tensor degree exceeds 1",
    )  # fmt: skip
    override(
        "--data-parallel", "search.data_parallel", _integers_or("any", "even"), "any|even|LIST",
        "replicas of the pipeline",
    )  # fmt: skip
    override("--stages", "search.stages", _integers_or("any"), "any|LIST", "pipeline stages")
    override(
        "--recomputation", "search.recomputation", _words, "LIST", "none,selective,layer,stage"
    )
    override("--zero", "search.zero", _integers, "LIST", "ZeRO stages, 0 to 3")
    override("--layout", "search.layouts", _words, "LIST", "pipeline-inner,data-inner")
    override(
        "--global-batch", "training.global_batch", _integer, "N", "sequences per optimizer step"
    )
    override(
        "--sequence-length", "model.sequence_length", _integer, "N",
        "tokens per sequence (models given by their configuration)",
    )  # fmt: skip
    override(
        "--optimizer", "training.optimizer", _optimizer, "NAME|W,G,O",
        "zero16, megatron18, sgd4, or bytes per weight for weights, gradients, state",
    )  # fmt: skip
    override("--all-reduce", "training.all_reduce", str, "NAME", "hierarchical, ring or tree")
    override(
        "--reserve-fraction", "training.reserve_fraction", _number, "X",
        "share of device memory kept free",
    )  # fmt: skip
    override(
        "--synchronisation", "training.cost_model.synchronisation", str, "NAME",
        "slowest_stage or first_stage",
    )  # fmt: skip
    _add_constraint(group)
    group.add_argument(
        "--set",
        dest="overrides",
        action="append",
        type=_assignment,
        metavar="FIELD=JSON",
        help="any field by its dotted path, such as search.zero=[1] or cluster=h100-128",
    )


def _add_constraint(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--constraint",
        dest="constraints",
        action="append",
        metavar="SPEC",
        help="NAME (see 'list constraints') or FILE.py:CLASS, whose code is run; parameters follow "
        'as JSON: layers_per_stage:{"at_most": 8}',
    )


def _integer(word: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", word, re.ASCII):
        raise argparse.ArgumentTypeError(f"{word!r} is not a whole number")
    return int(word)


def _positive(word: str) -> int:
    number = _integer(word)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{word} is below 1")
    return number


def _integers(word: str) -> list[int]:
    parts = word.split(",")
    if not all(re.fullmatch(r"-?[0-9]{1,18}", part, re.ASCII) for part in parts):
        raise argparse.ArgumentTypeError(f"{word!r} is not a list of whole numbers such as 1,2,4")
    return [int(part) for part in parts]


def _integers_or(*special: str) -> Callable[[str], str | list[int]]:
    def convert(word: str) -> str | list[int]:
        if word in special:
            return word
        try:
            return _integers(word)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}, nor {' or '.join(special)}") from None

    return convert


def _words(word: str) -> list[str]:
    return word.split(",")


def _switch(word: str) -> list[bool]:
    choices = {"on": [True], "off": [False], "both": [False, True]}
    if word not in choices:
        raise argparse.ArgumentTypeError(f"{word!r} is not one of {', '.join(choices)}")
    return choices[word]


def _number(word: str) -> float | int:
    try:
        value = json.loads(word)
    except ValueError:
        value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise argparse.ArgumentTypeError(f"{word!r} is not a number")
    return value


def _seconds_argument(word: str) -> float:
    value = _number(word)
    if not 0 < value <= 10**9:
        raise argparse.ArgumentTypeError(f"{word} is not a sensible number of seconds")
    return float(value)


def _optimizer(word: str) -> str | Json:
    if "," not in word:
        return word
    parts = word.split(",")
    if len(parts) != 3:
        raise argparse.ArgumentTypeError(f"{word!r}: give three numbers, such as 2,4,12")
    return dict(zip(("weights", "gradients", "optimizer"), map(_number, parts), strict=True))


def _assignment(word: str) -> tuple[str, Any]:
    from nest_opt.files import parse_json

    field, equals, text = word.partition("=")
    if not equals or not field:
        raise argparse.ArgumentTypeError(f"{word!r} is not of the form FIELD=JSON")
    constants = ("true", "false", "null", "NaN", "Infinity")
    if re.fullmatch(r"[A-Za-z_./~][\w./@~+-]*", text) and text not in constants:
        return field, text
    try:
        return field, parse_json(text.encode(errors="surrogateescape"), "value")
    except InputError as error:
        raise argparse.ArgumentTypeError(f"{field}: {error}") from None


# --- commands -------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    from nest_opt.constraints import known
    from nest_opt.library import FAMILIES, names

    families = [f for f in FAMILIES if arguments.family in (None, f)]
    found = {family: names(family) for family in families}
    constraints = known() if arguments.family in (None, "constraints") else {}
    if arguments.json:
        _print_json(found | ({"constraints": sorted(constraints)} if constraints else {}))
        return OK
    for family, members in found.items():
        print(family)
        left = WIDTH - max(map(len, members), default=0) - 4
        rows = [(f"  {name}", _clip(_description(family, name), left)) for name in members]
        _print_table(rows or [("  (none)", "")])
    if constraints:
        print("constraints")
        wide = max(map(len, constraints)) + 4
        for name, constraint in constraints.items():
            parameters = [f for f in constraint.model_fields if f != "constraint"]
            text = constraint.meaning + (f" ({', '.join(parameters)})" if parameters else "")
            lines = textwrap.wrap(text, WIDTH - wide)
            print(f"  {name:{wide - 4}}  " + f"\n{'':{wide}}".join(lines))
    return OK


def _solve(arguments: argparse.Namespace) -> int:
    problem, compiled = _compiled_problem(arguments)
    _check_writable(arguments.out, getattr(arguments, "problem", None) or "")
    from nest_opt.solve import solve

    with _Progress(arguments.quiet) as progress:
        solution = solve(compiled, use_bounds=not arguments.no_bounds, progress=progress)
    if arguments.out and solution.plan is not None:
        _write(arguments, solution.plan.to_dict())
    from nest_opt.certify.manifest import standing

    encoding = standing()
    if arguments.json:
        _print_json(solution.to_dict() | {"encoding": encoding.to_dict()})
    else:
        _print_heading(solution.problem, solution.status, solution.digest)
        if solution.plan is None or solution.batch_ticks is None:
            _print_infeasible(problem, compiled, arguments.quiet)
        else:
            rows = _price_rows(
                problem, compiled, solution.batch_ticks, solution.tau_ticks, solution.sigma_ticks
            )
            _print_plan(compiled, solution.plan, rows)
            print()
            counts = ", ".join(f"{n:,} {what}" for what, n in solution.cells.items())
            print(f"cells: {counts}; {_duration(solution.wall_seconds)}")
            _print_estimate(problem, compiled)
            _print_loss(compiled, above=0.01)
            if compiled.search.constraints:
                kept = "; ".join(map(str, compiled.search.constraints))
                print(textwrap.fill(_printable(f"constraints kept: {kept}"), WIDTH))
            _print_relative_to(compiled, "Optimal")
        print(textwrap.fill(str(encoding), WIDTH))
    return OK if solution.plan is not None else NEGATIVE


def _evaluate(arguments: argparse.Namespace) -> int:
    from nest_opt.evaluate import evaluate
    from nest_opt.library import load_plan

    problem, compiled = _compiled_problem(arguments)
    plan = load_plan(arguments.plan)

    evaluation = evaluate(compiled, plan)
    if arguments.json:
        head = {"problem": compiled.name, "digest": compiled.digest}
        _print_json(head | evaluation.to_dict())
    else:
        _print_evaluation(problem, compiled, plan, evaluation)
    return OK if evaluation.feasible else NEGATIVE


def _explain(arguments: argparse.Namespace) -> int:
    from nest_opt.library import load_plan
    from nest_opt.report.constraint_costs import constraint_costs
    from nest_opt.report.explanation import explain
    from nest_opt.solve import solve

    problem, compiled = _compiled_problem(arguments)
    if arguments.plan is not None:
        plan = load_plan(arguments.plan)
    else:
        with _Progress(arguments.quiet) as progress:
            solution = solve(compiled, use_bounds=not arguments.no_bounds, progress=progress)
        if solution.plan is None:
            if arguments.json:
                _print_json(_infeasibility(problem, arguments.quiet).to_dict())
            else:
                _print_infeasible(problem, compiled, arguments.quiet)
            return NEGATIVE
        plan = solution.plan
    explanation = explain(problem, plan)
    costs: list[ConstraintCost] = []
    batch = explanation.evaluation.batch_ticks
    if arguments.plan is None and batch is not None:  # the optimum
        costs = constraint_costs(compiled, batch)
    if arguments.json:
        head = {"problem": compiled.name, "digest": compiled.digest}
        times = [time.to_dict() for time in _layer_times(problem, compiled)]
        more: Json = {"times": times} if times else {}
        if costs:
            more["constraints"] = [cost.to_dict() for cost in costs]
        _print_json(head | explanation.to_dict() | more)
    else:
        _print_explanation(problem, compiled, plan, explanation)
        if costs:
            print("\nwhat constraints cost, each by itself")
            _print_list(_costs_said(compiled, costs))
    return OK if explanation.evaluation.feasible else NEGATIVE


def _simulate(arguments: argparse.Namespace) -> int:
    from nest_opt.files import write_text
    from nest_opt.library import load_plan
    from nest_opt.simulate import simulate
    from nest_opt.solve import solve

    _, compiled = _compiled_problem(arguments)
    _check_writable(arguments.trace, arguments.problem)
    if arguments.plan is not None:
        plan = load_plan(arguments.plan)
    else:
        with _Progress(arguments.quiet) as progress:
            solution = solve(compiled, progress=progress)
        if solution.plan is None:
            raise InputError(compiled.name, "has no plan to simulate; 'solve' says why")
        plan = solution.plan
    simulation = simulate(compiled, plan, transfers=arguments.transfers)
    if arguments.trace:
        write_text(arguments.trace, json.dumps(simulation.trace()) + "\n")
    if arguments.json:
        head = {"problem": compiled.name, "digest": compiled.digest}
        _print_json(head | simulation.to_dict())
        return OK

    def row(name: str, ticks: int, error: float | None) -> tuple[str, str, str]:
        said = _duration(float(ticks * compiled.tick_seconds))
        return name, f"{ticks:,} ticks = {said}", "" if error is None else f"{100 * error:+.2f} %"

    print(_clip(_printable(f"{compiled.name}: transfers {simulation.transfers}"), WIDTH))
    _print_table(
        [
            row("the clock", simulation.makespan_ticks, None),
            row("T = (m + s - 1) tau + sigma", simulation.batch_ticks, simulation.error),
            row("sum of loads + (m - 1) tau + sigma", simulation.sum_ticks, simulation.sum_error),
        ]
    )
    print("\nhow long each stage is busy")
    total = simulation.makespan_ticks or 1
    _print_table(
        [
            (f"stage {j}", f"{busy:,} ticks", f"{100 * busy / total:.1f} %")
            for j, busy in enumerate(simulation.busy_ticks)
        ],
        right=(1, 2),
    )
    return OK


def _certify(arguments: argparse.Namespace) -> int:
    if arguments.suite is not None:
        return _certify_suite(arguments)
    if arguments.problem is None:
        raise InputError("certify", "give a PROBLEM, or --suite NAME")
    if arguments.sample is not None:
        raise InputError("certify", "--sample goes with --suite")
    problem = _problem(arguments)
    _check_writable(arguments.out, getattr(arguments, "problem", None) or "")
    from nest_opt.certify import certify

    with _Progress(arguments.quiet) as progress:
        certificate = certify(
            problem,
            time_limit=arguments.time_limit,
            jobs=arguments.jobs,
            use_bounds=not arguments.no_bounds,
            progress=progress,
            engines=arguments.engine,
        )
    if arguments.out:
        _write(arguments, certificate.to_dict())
    if arguments.json:
        _print_json(certificate.to_dict())
    else:
        _print_certificate(problem, certificate, arguments.quiet)
    if certificate.verdict == "disputed":
        _write_disputes(arguments, certificate)
    return OK if certificate.verdict == "certified" else NEGATIVE


def _write_disputes(arguments: argparse.Namespace, certificate: Certificate) -> None:
    """Everything that is needed to look into a dispute, in a folder."""
    from nest_opt.certify.disputes import write_disputes

    beside = arguments.out.parent if arguments.out else Path()
    folder = arguments.disputes or beside / "disputes"
    try:
        written = write_disputes(certificate, folder)
    except OSError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror or error}") from None
    _complain(f"what the engines disagree about is in {written}")


def _certify_suite(arguments: argparse.Namespace) -> int:
    if arguments.problem is not None or arguments.overrides:
        raise InputError("certify", "--suite takes neither a PROBLEM nor overrides")
    if arguments.time_limit is not None:
        raise InputError("certify", "--time-limit is for one problem, not for a suite")
    if arguments.disputes is not None:
        raise InputError("certify", "--disputes is for one problem, not for a suite")
    _check_writable(arguments.out)
    from nest_opt.certify.suite import run_suite

    with _Progress(arguments.quiet) as progress:
        report = run_suite(
            arguments.suite,
            jobs=arguments.jobs,
            use_bounds=not arguments.no_bounds,
            sample=arguments.sample,
            progress=progress,
            engines=arguments.engine,
        )
    return _report(arguments, report)


def _verify(arguments: argparse.Namespace) -> int:
    from nest_opt.files import read_json

    _constraints(arguments)
    data = read_json(Path(arguments.certificate))
    if not isinstance(data, dict):
        raise InputError(arguments.certificate, "is not a certificate: not a JSON object")
    if str(data.get("format", "")).startswith("nest-opt/witness/"):
        return _verify_witness(arguments, data)
    from nest_opt.certify import verify

    if arguments.engine and not arguments.resolve:
        raise InputError("verify", "--engine goes with --resolve, which asks engines again")
    try:
        with _Progress(arguments.quiet) as progress:
            verification = verify(
                data,
                resolve=arguments.resolve,
                jobs=arguments.jobs,
                engines=arguments.engine,
                progress=progress,
            )
    except CertificateError as error:
        raise CertificateError(f"{arguments.certificate}: {error}") from None
    name = _clip(_printable(Path(arguments.certificate).name), WIDTH - 24)
    if arguments.json:
        _print_json(verification.to_dict())
    elif verification.ok:
        best = data["batch_ticks"]
        claim = "no plan exists" if best is None else f"T = {best:,} ticks"
        print(textwrap.fill(_printable(f"{name}: verified: {data['name']}, {claim}"), WIDTH))
        print(_clip(f"digest {data['digest']}", WIDTH))
        print("checked: digest, price, cells and bounds anew; the solver finds no better plan")
        trusted = verification.checked.get("not_re_solved", 0)
        if trusted:
            print(f"{trusted} answers of HiGHS taken as recorded; --resolve asks again")
        elif arguments.resolve:
            print("every answer of HiGHS that it rests on was obtained again")
        for name, count in verification.checked.get("asked_besides", {}).items():
            print(f"{name}: {count}, none contradicts")
    else:
        count = len(verification.refusals)
        print(f"{name}: refused, {count} reason{'s' if count > 1 else ''}")
        _print_list(verification.refusals)
    return OK if verification.ok else NEGATIVE


def _witness(arguments: argparse.Namespace) -> int:
    problem = _problem(arguments)
    _check_writable(arguments.out, getattr(arguments, "problem", None) or "")
    from nest_opt.certify.witness import write_witness

    with _Progress(arguments.quiet) as progress:
        witness = write_witness(problem, progress=progress)
    data = witness.data
    if arguments.out:
        from nest_opt.files import write_text

        write_text(arguments.out, json.dumps(data, separators=(",", ":")) + "\n")
    if arguments.json or not arguments.out:
        _print_json(data)
    elif not arguments.quiet:
        best = data["batch_ticks"]
        claim = "no plan exists" if best is None else f"T = {best:,} ticks"
        print(_clip(_printable(f"{problem.name}: {claim}"), WIDTH))
        print(f"cells: {witness.cells:,}, {witness.in_tables:,} of them closed by tables")
        print(_clip(_printable(f"check with: nest-opt verify {arguments.out}"), WIDTH))
    return OK


def _verify_witness(arguments: argparse.Namespace, data: Json) -> int:
    from nest_opt.certify.check_witness import check_witness

    try:
        with _Progress(arguments.quiet) as progress:
            verification = check_witness(data, progress=progress)
    except CertificateError as error:
        raise CertificateError(f"{arguments.certificate}: {error}") from None
    name = _clip(_printable(Path(arguments.certificate).name), WIDTH - 24)
    if arguments.json:
        _print_json(verification.to_dict())
    elif verification.ok:
        best, done = data["batch_ticks"], verification.checked
        claim = "no plan exists" if best is None else f"T = {best:,} ticks"
        said = f"{name}: verified: {data['problem']['name']}, {claim}"
        print(textwrap.fill(_printable(said), WIDTH))
        print(_clip(f"digest {data['digest']}", WIDTH))
        print(
            f"checked: the plan's price; {done['cells']:,} cells, {done['bounded']:,} closed by a "
            f"bound,\n{done['in_tables']:,} by tables of {done['entries']:,} values; no solver "
            "was asked"
        )
    else:
        count = len(verification.refusals)
        print(f"{name}: refused, {count} reason{'s' if count > 1 else ''}")
        _print_list(verification.refusals)
    return OK if verification.ok else NEGATIVE


def _price_of_structure(arguments: argparse.Namespace) -> int:
    _check_writable(arguments.out)
    if bool(arguments.problems) == bool(arguments.suite):
        raise InputError("price-of-structure", "give PROBLEM files or names, or --suite NAME")
    from nest_opt.certify.structure import measure, summary, table
    from nest_opt.certify.suite import load_suite
    from nest_opt.library import load_problem

    problems: Sequence[Any] = arguments.problems
    if arguments.suite:
        problems = [entry.data for entry in load_suite(arguments.suite).entries]
    with _Progress(arguments.quiet) as progress:
        prices = measure(
            [load_problem(problem) for problem in problems],
            jobs=arguments.jobs,
            solve_limit=arguments.solve_limit,
            out=arguments.out,
            progress=progress,
        )
    if arguments.json:
        _print_json({"prices": [price.to_dict() for price in prices], **summary(prices)})
    else:
        print(_printable(table(prices)))
    return OK if all(price.is_decided for price in prices) else NEGATIVE


def _doctor(arguments: argparse.Namespace) -> int:
    _check_writable(arguments.out)
    from nest_opt.certify.canaries import diagnose, every_canary, option_sets
    from nest_opt.certify.engines import ENGINES, FIRST_ENGINE
    from nest_opt.certify.highs import engine_versions

    diagnoses = {d.engine: d for d in diagnose(jobs=arguments.jobs)}
    first = diagnoses[FIRST_ENGINE]
    missing = {name: engine for name, engine in ENGINES.items() if name not in diagnoses}
    data = {
        "ok": first.ok,
        "versions": engine_versions(),
        "engines": {name: diagnosis.to_dict() for name, diagnosis in diagnoses.items()},
        "not_installed": {name: engine.install for name, engine in missing.items()},
    }
    if arguments.out:
        _write(arguments, data)
    if arguments.json:
        _print_json(data)
        return OK if first.ok else NEGATIVE
    rows = []
    for canary in every_canary():
        row = [canary.name]
        for diagnosis in diagnoses.values():
            said = [
                "wrong" if s.wrong else "ok" for s in diagnosis.songs if s.canary == canary.name
            ]
            row.append("wrong" if "wrong" in said else "ok" if said else "-")
        rows.append(row)
    _print_table(rows, ("canary", *diagnoses))
    for name, diagnosis in diagnoses.items():
        used = "certify" if name == FIRST_ENGINE else "answer besides"
        may = f"may {used}" if diagnosis.ok else f"may NOT {used}"
        told = f"{ENGINES[name].title} {diagnosis.version} {may}"
        options = "; ".join(option_sets(name))
        print(textwrap.fill(_printable(f"{told} ({options})"), WIDTH, subsequent_indent="  "))
        _print_list(diagnosis.reasons)
    for engine in missing.values():
        print(_clip(f"{engine.title} is not installed: {engine.install}", WIDTH))
    return OK if first.ok else NEGATIVE


def _fuzz(arguments: argparse.Namespace) -> int:
    _check_writable(arguments.out)
    if not arguments.folder.is_dir():
        raise InputError(str(arguments.folder), "is no folder; --folder needs one that exists")
    from nest_opt.certify.fuzz import fuzz, table, write_finding

    with _Progress(arguments.quiet) as progress:
        report = fuzz(
            seconds=arguments.seconds,
            seed=arguments.seed,
            jobs=arguments.jobs,
            progress=progress,
        )
    written = [path for found in report.findings for path in write_finding(found, arguments.folder)]
    if arguments.out:
        _write(arguments, report.to_dict())
    if arguments.json:
        _print_json(report.to_dict())
    else:
        print(_printable(table(report, written)))
    return OK if report.ok else NEGATIVE


def _certify_constraint(arguments: argparse.Namespace) -> int:
    _check_writable(arguments.out)
    if not arguments.folder.is_dir():
        raise InputError(str(arguments.folder), "is no folder; --folder needs one that exists")
    from nest_opt.certify.extension import certify_constraint, write_finding
    from nest_opt.constraints import known, load_class

    spec = arguments.spec
    classes = known()
    if spec in classes:
        constraint = classes[spec]
    elif ":" in spec:
        constraint = load_class(spec)
    else:
        hint = _did_you_mean(spec, classes)
        raise InputError(spec, f"is no constraint{hint} (FILE.py:CLASS, or {', '.join(classes)})")
    with _Progress(arguments.quiet) as progress:
        report = certify_constraint(
            constraint,
            problems=arguments.problems,
            seconds=arguments.seconds,
            seed=arguments.seed,
            jobs=arguments.jobs,
            progress=progress,
        )
    written = write_finding(report, spec, arguments.folder)
    if arguments.out:
        _write(arguments, report.to_dict())
    if arguments.json:
        _print_json(report.to_dict())
    else:
        _print_constraint_certificate(report)
        if written:
            print(f"the smallest problem found, and a test of it: {written[0]}, {written[1]}")
    return OK if report.verdict == "certified" else NEGATIVE


def _print_constraint_certificate(report: ConstraintCertificate) -> None:
    print(f"{report.constraint}: {report.verdict}")
    print(textwrap.fill(f"meaning: {report.meaning}", WIDTH))
    print(
        textwrap.fill(
            f"{report.problems} problems, {report.plans:,} plans: the constraint changes "
            f"{report.binding} answers, leaves {report.slack} as they are and "
            f"{report.impossible} problems without a plan",
            WIDTH,
        )
    )
    print(
        textwrap.fill(
            f"compared: every plan through the check, the dynamic program with bounds and without; "
            f"on {report.with_programs} problems all integer programs, cell by cell; "
            f"{report.whole_cells} cells of which the check says that no plan keeps it",
            WIDTH,
        )
    )
    noticed = sum(found not in ("survived", "time ran out") for found in report.mutants.values())
    print(f"mutants of its faces: {noticed} of {len(report.mutants)} noticed")
    if report.finding:
        print(textwrap.fill(_printable(f"disagreement: {report.finding['complaint']}"), WIDTH))
    if report.reasons:
        print("what stands in the way")
        _print_list(report.reasons)
    print(f"seed {report.seed}; {_duration(report.wall_seconds)}")


def _mutants(arguments: argparse.Namespace) -> int:
    _check_writable(arguments.out)
    if arguments.seconds is not None and not arguments.fuzz:
        raise InputError("--seconds", "is for --fuzz; give that as well, or leave it out")
    from nest_opt.certify.mutant_list import MUTANTS

    chosen = [mutant for mutant in MUTANTS if arguments.name in mutant.name]
    report: Any
    with _Progress(arguments.quiet) as progress:
        if arguments.fuzz:
            from nest_opt.certify.fuzz_mutants import ENGINES, SECONDS, hunt_mutants

            chosen = [mutant for mutant in chosen if mutant.engine in ENGINES]
            _check_chosen(arguments.name, chosen)
            seconds = SECONDS if arguments.seconds is None else arguments.seconds
            report = hunt_mutants(
                jobs=arguments.jobs, seconds=seconds, only=chosen, progress=progress
            )
        else:
            from nest_opt.certify.mutants import run_mutants

            _check_chosen(arguments.name, chosen)
            report = run_mutants(jobs=arguments.jobs, only=chosen, progress=progress)
    return _report(arguments, report)


def _check_chosen(name: str, chosen: Sequence[Any]) -> None:
    if not chosen:
        raise InputError("--name", f"no mutant's name contains {name!r}; try a shorter text")


def _report(arguments: argparse.Namespace, report: Any) -> int:
    if arguments.out:
        _write(arguments, report.to_dict())
    if arguments.json:
        _print_json(report.to_dict())
    else:
        print(report.table())
    return OK if report.ok else NEGATIVE


def _compile(arguments: argparse.Namespace) -> int:
    problem, compiled = _compiled_problem(arguments)
    _check_writable(arguments.out, getattr(arguments, "problem", None) or "")
    if arguments.out:
        _write(arguments, compiled.to_dict())
    if arguments.json:
        times = [time.to_dict() for time in _layer_times(problem, compiled)]
        _print_json(compiled.to_dict() | ({"times": times} if times else {}))
    elif not arguments.out:
        _print_compiled(compiled)
        _print_estimate(problem, compiled, every=True)
    return OK


def _fit(arguments: argparse.Namespace) -> int:
    from nest_opt.library import load_cluster

    _check_writable(arguments.out)
    cluster = load_cluster(arguments.cluster)
    from nest_opt.estimate.fit import fit, read_measurements

    rows = read_measurements(Path(arguments.measured))
    with _Progress(arguments.quiet) as progress:
        made = fit(rows, cluster, cross_validate=arguments.cross_validate, progress=progress)
    if arguments.out:
        said = f"fitted by nest-opt fit to {len(rows)} measured iterations on {cluster.name}"
        before = cluster.device.source.partition("; efficiencies")[0]
        said = f"{before}; efficiencies and kernel_seconds: {said}" if before else said
        device = made.device.model_dump(mode="json", exclude_none=True)
        _write(arguments, device | {"source": said})
    if arguments.json:
        _print_json(made.to_dict())
    else:
        _print_fit(made)
    return OK


def _import(arguments: argparse.Namespace) -> int:
    from nest_opt.importers.nest import import_nest
    from nest_opt.library import load_problem

    _check_writable(arguments.out, arguments.file)
    data = import_nest(
        Path(arguments.file), name=arguments.name, synchronisation=arguments.synchronisation
    )
    problem = load_problem(data)  # what is written can be read
    if arguments.out:
        _write(arguments, data)
    else:
        _print_json(data)
    if not arguments.quiet:
        model, search, training = data["model"], data["search"], data["training"]
        options = ", ".join(f"{key} {value}" for key, value in training["cost_model"].items())
        said = (
            f"{problem.name}: {len(model['layers'])} layers, {problem.cluster.devices} devices, "
            f"batch {problem.training.global_batch}, tensor degrees {search['tensor']}, "
            f"{search['expert'][0]} shards besides, recomputation {search['recomputation'][0]}; "
            f"priced as the artifact does: all_reduce {training['all_reduce']}, {options}"
        )
        if data["description"]:
            said += f". Otherwise than the artifact: {data['description']}"
        print(textwrap.fill(_printable(f"nest-opt: {said}"), WIDTH), file=sys.stderr)
    return OK


def _schema(arguments: argparse.Namespace) -> int:
    if arguments.plan:
        from nest_opt.plan import Plan

        schema = Plan.model_json_schema(by_alias=True)
    else:
        schema = problem_file_schema()
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema
    if arguments.out:
        _check_writable(arguments.out)
        _write(arguments, schema)
    else:
        _print_json(schema)
    return OK


def problem_file_schema() -> Json:
    """JSON Schema of a problem file, in which model, cluster and device may be names or files."""
    from nest_opt.problem import Problem

    schema = Problem.model_json_schema(by_alias=True)
    places = {
        "model": schema["properties"],
        "cluster": schema["properties"],
        "Cluster": schema["$defs"]["Cluster"]["properties"],
        "ConfigModel": schema["$defs"]["ConfigModel"]["properties"],
    }
    for place, properties in places.items():
        field = place if place in properties else "device"
        reference = {
            "type": "string",
            "minLength": 1,
            "description": f"Name of a shipped {field} (see 'nest-opt list {field}s'), or a file "
            "relative to this one.",
        }
        inline = properties[field]
        branches = inline.pop("anyOf", None) or [inline]
        properties[field] = {"anyOf": [*branches, reference]}
        if "default" in inline:
            properties[field]["default"] = inline["default"]
    files = {
        (
            "ConfigModel",
            "profile",
        ): "A CSV file relative to this one, the fields of a row its columns.",
        ("Cluster", "network"): "A GraphML, node-link JSON or CSV file relative to this one.",
        ("Matrix", "latency_seconds"): "A CSV file relative to this one, a row for each device.",
        ("Matrix", "bandwidth_bytes_per_second"): "A CSV file relative to this one, as above.",
    }
    for (record, field), said in files.items():
        properties = schema["$defs"][record]["properties"]
        file = {"type": "string", "minLength": 1, "description": said}
        inline = properties[field]
        properties[field] = {"anyOf": [inline, file]}
        if "default" in inline:
            properties[field]["default"] = inline["default"]
    return schema


# --- input and output -----------------------------------------------------------------------------


def _problem(arguments: argparse.Namespace) -> Problem:
    from nest_opt.library import load_problem

    overrides = dict(arguments.overrides or ())
    added = _constraints(arguments)
    problem = load_problem(arguments.problem, overrides)
    if added:
        # What a problem file names already is only registered here.
        listed = problem.to_dict()["search"].get("constraints", [])
        names = {constraint["constraint"] for constraint in listed}
        more = [c for c in added if c["constraint"] not in names or len(c) > 1]
        problem = load_problem(
            arguments.problem, {**overrides, "search.constraints": [*listed, *more]}
        )
    return problem


def _constraints(arguments: argparse.Namespace) -> list[Json]:
    """Constraints given as ``--constraint``; those of files are known from here on."""
    if not arguments.constraints:
        return []
    from nest_opt.constraints import from_spec

    return [from_spec(spec) for spec in arguments.constraints]


def _compiled_problem(arguments: argparse.Namespace) -> tuple[Problem, Compiled]:
    problem = _problem(arguments)
    from nest_opt.compile import compile_problem

    return problem, compile_problem(problem)


def _check_writable(path: Path | None, source: str = "") -> None:
    """Refuse a bad ``--out`` before minutes of work, not after; ``source`` is what is read."""
    if path is None:
        return
    with contextlib.suppress(OSError, ValueError):
        if source and path.is_file() and path.samefile(source):
            raise InputError(str(path), "is the problem file itself; name another file for --out")
    if str(path) == "-":
        raise InputError("-", "is no file; for standard output use --json, or --out /dev/stdout")
    if path.is_dir():
        raise InputError(str(path), "is a folder; --out needs the name of a file")
    if not path.parent.is_dir():
        raise InputError(str(path), f"cannot be written: no such folder as {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(str(path), "cannot be written: permission denied")


def _write(arguments: argparse.Namespace, data: Any) -> None:
    from nest_opt.files import write_json

    write_json(arguments.out, data)
    if not arguments.quiet:
        print(f"nest-opt: wrote {_printable(str(arguments.out))}", file=sys.stderr)


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=1, ensure_ascii=True, allow_nan=False))


def _printable(text: str) -> str:
    """Text that cannot move the cursor or change the colours of a terminal."""
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )


def _complain(text: str) -> None:
    """An error message of at most one screen, on standard error."""
    lines: list[str] = []
    for line in _printable(text).split("\n"):
        line = line if len(line) <= 600 else line[:597] + "..."
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        lines += textwrap.wrap(
            line, 100, subsequent_indent=indent, break_on_hyphens=False, drop_whitespace=True
        ) or [""]
    if len(lines) > SCREEN_LINES:
        lines[SCREEN_LINES - 1 :] = [f"  ... and {len(lines) - SCREEN_LINES + 1} more lines"]
    with contextlib.suppress(OSError, ValueError):
        print(f"nest-opt: {chr(10).join(lines)}", file=sys.stderr, flush=True)


class _Progress:
    """Says how far a command is once it has taken two seconds.

    On a terminal, one line updated in place and removed at the end; elsewhere a line every ten
    seconds at most.
    """

    FIRST_SECONDS = 2.0
    TERMINAL_SECONDS = 0.1
    OTHER_SECONDS = 10.0

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._started = time.monotonic()
        self._last = -1e9
        self._drawn = False
        self._terminal = bool(getattr(sys.stderr, "isatty", bool)())

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn and self._terminal:
            self._say("\r\x1b[K")

    def __call__(self, done: int, total: int, label: str) -> None:
        now = time.monotonic()
        elapsed = now - self._started
        every = self.TERMINAL_SECONDS if self._terminal else self.OTHER_SECONDS
        if self._quiet or elapsed < self.FIRST_SECONDS or now - self._last < every:
            return
        self._last, self._drawn = now, True
        share = f"{done:,} of {total:,}" if total else f"{done:,}"
        text = _clip(_printable(f"{label}: {share}, {elapsed:.0f} s"), WIDTH - 1)
        self._say(f"\r{text}\x1b[K" if self._terminal else f"{text}\n")

    @staticmethod
    def _say(text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


# --- tables ---------------------------------------------------------------------------------------


def _print_table(
    rows: Sequence[Sequence[str]], headers: Sequence[str] = (), right: Iterable[int] = ()
) -> None:
    import tabulate

    if not rows:
        return
    tabulate.MIN_PADDING = 0
    numbers = set(right)
    align = ["right" if i in numbers else "left" for i in range(len(rows[0]))]
    text = tabulate.tabulate(
        [[_printable(cell) for cell in row] for row in rows],
        headers=headers,
        tablefmt="simple" if headers else "plain",
        colalign=align,
        disable_numparse=True,
        preserve_whitespace=True,
    )
    print("\n".join(line.rstrip() for line in text.split("\n")))


def _print_list(items: Iterable[object]) -> None:
    every = list(items)
    for item in every[:LISTED]:
        text = _printable(str(item))
        print(
            textwrap.fill(
                text if len(text) <= LISTED_LENGTH else f"{text[:LISTED_LENGTH]} ...",
                WIDTH,
                initial_indent="  - ",
                subsequent_indent="    ",
                break_on_hyphens=False,
            )
        )
    if len(every) > LISTED:
        print(f"  - ... and {len(every) - LISTED} more (--json lists them all)")


def _print_heading(name: str, status: str, digest: str) -> None:
    print(_clip(_printable(f"{name}: {status}"), WIDTH))
    print(_clip(f"digest {digest}", WIDTH))
    print()


def _print_plan(compiled: Compiled, plan: Plan, rows: list[tuple[str, str]]) -> None:
    """The table of a plan: what it costs, how it is sharded, and its stages."""
    rows = [
        *rows,
        *_shape_rows(plan, plan.microbatches),
        ("layout", plan.layout),
        ("devices", f"{plan.devices_used:,} used of {compiled.devices:,}"),
    ]
    _print_table(rows)
    print()
    usable = compiled.memory_quanta * compiled.quantum_bytes
    unit, scale = _memory_unit(usable)
    table = []
    for j, stage in enumerate(plan.stages):
        load, memory = stage.load_ticks, stage.memory_bytes
        share = f" ({100 * memory / usable:3.0f}%)" if memory is not None and usable else ""
        table.append(
            (
                str(j),
                _layer_range(compiled, stage.layers, 21),
                str(stage.layers[1] - stage.layers[0]),
                stage.recomputation,
                str(stage.zero),
                "?" if load is None else _milliseconds(load, compiled.tick_seconds),
                "?" if memory is None else f"{memory / scale:.2f}{share}",
                _ranges(stage.devices[0] if stage.devices else (), 10),
            )
        )
    _print_table(
        table,
        ("#", "layers", "n", "recomp.", "ZeRO", "load ms", f"mem. {unit}", "devices"),
        right=(0, 2, 4, 5, 6),
    )
    print(
        textwrap.fill(
            f"load: per microbatch; memory: per device, and its share of the usable "
            f"{usable / scale:.2f} {unit}; devices: those of replica 0 of {plan.replicas}",
            WIDTH,
        )
    )


def _price_rows(
    problem: Problem, compiled: Compiled, batch: int, tau: int | None, sigma: int | None
) -> list[tuple[str, str]]:
    tick = compiled.tick_seconds
    seconds = float(batch * tick)
    rows = [("batch time T", f"{batch:,} ticks = {_duration(seconds)} (tick {float(tick):g} s)")]
    if seconds:
        rate = compiled.global_batch / seconds
        length = problem.model.sequence_length
        tokens = f", {rate * length:,.0f} tokens/s" if length else ""
        rows.append(("throughput", f"{rate:,.2f} sequences/s{tokens}"))
    for name, value, what in (
        ("bottleneck tau", tau, "per microbatch"),
        ("synchronisation sigma", sigma, "per batch"),
    ):
        if value is not None:
            rows.append((name, f"{value:,} ticks = {_duration(float(value * tick))} {what}"))
    return rows


def _shape_rows(plan: Plan, microbatches: int) -> list[tuple[str, str]]:
    template = plan.template
    sequences = "sequence" if plan.microbatch == 1 else "sequences"
    return [
        ("replicas d", f"{plan.replicas:,}"),
        ("stages s", f"{len(plan.stages):,}"),
        ("microbatches m", f"{microbatches:,} of {plan.microbatch} {sequences}, in each replica"),
        (
            "template",
            f"tensor {template.tensor}, context {template.context}, expert {template.expert}, "
            f"sequence parallel {'on' if template.sequence_parallel else 'off'}",
        ),
    ]


def _print_relative_to(compiled: Compiled, word: str) -> None:
    layouts = " or ".join(compiled.search.layouts)
    print(
        textwrap.fill(
            f"{word} among contiguous stages on consecutive devices ({layouts}), within the "
            "listed search space and under this cost model.",
            WIDTH,
            break_on_hyphens=False,
        )
    )


def _infeasibility(problem: Problem, quiet: bool) -> Infeasibility:
    from nest_opt.infeasibility import explain_infeasibility

    with _Progress(quiet) as progress:
        why = explain_infeasibility(problem, progress=progress)
    assert why is not None  # it was solved just now, and had no plan
    return why


def _print_infeasible(problem: Problem, compiled: Compiled, quiet: bool) -> None:
    """Why there is no plan, and what would help."""
    why = _infeasibility(problem, quiet)
    if why.conflict:
        together = "demand excludes" if len(why.conflict) == 1 else "demands exclude"
        print(f"on {compiled.devices:,} devices, {len(why.conflict)} {together} every plan")
        _print_list(map(str, why.conflict))
    else:
        print(
            textwrap.fill(
                f"No combination of the degrees fits on the {compiled.devices:,} devices with a "
                f"global batch of {compiled.global_batch:,}.",
                WIDTH,
            )
        )
    if why.relaxations:
        print("each of these alone would help")
        _print_list(map(str, why.relaxations))
    elif why.complete:
        print("no single change would help: memory, devices, a longer list, a weaker constraint")
    if not why.complete:
        print("time ran out before every single change was tried")
    _print_list(f"template {t.label} was skipped: {why}" for t, why in compiled.skipped)


def _verdict_on(evaluation: Evaluation) -> str:
    priced = evaluation.batch_ticks is not None
    status = "feasible" if evaluation.feasible else "infeasible" if priced else "refused"
    return f"the plan is {status}"


def _print_evaluation(
    problem: Problem, compiled: Compiled, plan: Plan, evaluation: Evaluation
) -> None:
    _print_heading(compiled.name, _verdict_on(evaluation), compiled.digest)
    if evaluation.batch_ticks is not None:
        rows = _price_rows(
            problem,
            compiled,
            evaluation.batch_ticks,
            evaluation.tau_ticks,
            evaluation.sigma_ticks,
        )
        rows += [
            *_shape_rows(plan, evaluation.microbatches),
            ("devices", f"{evaluation.devices_used:,} used of {compiled.devices:,}"),
            ("bottleneck", f"stage {evaluation.bottleneck}"),
        ]
        _print_table(rows)
        _print_components(compiled, evaluation)
    if evaluation.violations:
        print("\nviolations")
        _print_list(evaluation.violations)
    _print_remarks(evaluation)


def _print_remarks(evaluation: Evaluation) -> None:
    """What is worth knowing about a plan besides its price and what it breaks."""
    for title, items in (
        (
            "claims of the plan that do not hold",
            [
                f"{c.where}: {c.field} is {c.computed:,}, not {c.claimed:,}"
                for c in evaluation.claims
            ],
        ),
        ("notes", evaluation.notes),
    ):
        if items:
            print(f"\n{title}")
            _print_list(items)
    if evaluation.stale:
        print()
        print(
            textwrap.fill(
                "The plan is stale: it was made for a problem with another digest. The numbers "
                "above are computed anew for this one.",
                WIDTH,
            )
        )


def _print_components(compiled: Compiled, evaluation: Evaluation) -> None:
    unit, scale = _memory_unit(evaluation.memory_limit_bytes)

    def size(quanta: int) -> str:
        return f"{quanta * compiled.quantum_bytes / scale:.2f}"

    _print_loads(compiled, evaluation)
    memories = []
    for j, stage in enumerate(evaluation.stages):
        held = stage.memory_parts_quanta
        quanta = (
            held.weights,
            held.gradients,
            held.optimizer,
            held.activations,
            held.working + held.gather,
            stage.memory_quanta,
        )
        memories.append([str(j), str(stage.in_flight), *map(size, quanta)])
    usable = evaluation.memory_limit_bytes / scale
    print(f"\nmemory, {unit} per device (usable {usable:.2f} {unit})")
    _print_table(
        memories,
        ("#", "in flight", "weights", "gradients", "optimizer", "activ.", "working", "total"),
        right=range(8),
    )


def _print_loads(compiled: Compiled, evaluation: Evaluation) -> None:
    def ms(ticks: int) -> str:
        return _milliseconds(ticks, compiled.tick_seconds)

    loads = []
    for j, stage in enumerate(evaluation.stages):
        part = stage.load_parts_ticks
        ticks = (
            part.compute,
            part.recomputation,
            part.collectives,
            part.transfer_forward + part.transfer_backward,
            part.zero,
            stage.load_ticks,
            stage.sync_ticks,
        )
        marked = str(j) + ("*" if j == evaluation.bottleneck else "")
        loads.append([marked, _layer_range(compiled, stage.layers, 12), *map(ms, ticks)])
    print("\nload, ms per microbatch, and synchronisation, ms per batch (*: bottleneck)")
    _print_table(
        loads,
        ("#", "layers", "comp.", "recomp.", "coll.", "transf.", "ZeRO", "load", "sync"),
        right=(0, *range(2, 9)),
    )


def _print_synchronisation(compiled: Compiled, evaluation: Evaluation) -> None:
    """What each synchronisation is made of, if some stage's is of more than dense weights."""
    parts = [stage.sync_parts_ticks for stage in evaluation.stages]
    if not any(part.expert or part.tied for part in parts):
        return
    print("\nsynchronisation, ms per batch")
    _print_table(
        [
            [str(j)]
            + [
                _milliseconds(ticks, compiled.tick_seconds)
                for ticks in (part.dense, part.expert, part.tied, part.total)
            ]
            for j, part in enumerate(parts)
            if part.total
        ],
        ("#", "dense weights", "expert weights", "tied weight", "total"),
        right=range(5),
    )


def _print_explanation(
    problem: Problem, compiled: Compiled, plan: Plan, explanation: Explanation
) -> None:
    from nest_opt.report.explanation import NOT_MODELLED

    evaluation = explanation.evaluation
    _print_heading(compiled.name, _verdict_on(evaluation), compiled.digest)
    if evaluation.batch_ticks is None:
        print("\nviolations")
        _print_list(evaluation.violations)
        _print_remarks(evaluation)
        return
    rows = _price_rows(
        problem, compiled, evaluation.batch_ticks, evaluation.tau_ticks, evaluation.sigma_ticks
    )
    _print_table([*rows, *_shape_rows(plan, evaluation.microbatches)])
    _print_memory_shares(explanation)
    _print_loads(compiled, evaluation)
    _print_synchronisation(compiled, evaluation)
    print("\nwhat binds")
    _print_list(_binding(compiled, explanation))
    if evaluation.violations:
        print("\nwhat would help")
        _print_list(_helpful(compiled, explanation))
        _print_list(_helpful_altogether(compiled, explanation))
    _print_remarks(evaluation)
    reserve = explanation.reserve_bytes
    said = (
        f"Not modelled: {'; '.join(NOT_MODELLED)}. The reserve has to cover them: "
        f"{reserve / 2**20:,.0f} MiB now; --reserve-fraction changes it."
    )
    print()
    print(textwrap.fill(said, WIDTH))
    _print_estimate(problem, compiled)


def _costs_said(compiled: Compiled, costs: Iterable[ConstraintCost]) -> Iterable[str]:
    """What each constraint costs, one line each."""
    for cost in costs:
        if cost.cost_ticks:
            seconds = _duration(float(cost.cost_ticks * compiled.tick_seconds))
            percent = 100 * cost.cost_ticks / cost.without_ticks if cost.without_ticks else 0.0
            said = f"{seconds} ({percent:.2g} %); without it {cost.without_ticks:,} ticks"
        else:
            said = "nothing: the optimum is as fast without it"
        yield f"{cost.constraint}: {said}"


def _print_memory_shares(explanation: Explanation) -> None:
    device = explanation.device_bytes
    unit, scale = _memory_unit(max(device, *(held.used for held in explanation.stages)))

    def share(amount: int) -> str:
        times = amount / device
        told = f"{100 * times:3.0f}%" if -10 < times < 10 else ">10x" if times > 0 else "<-10x"
        return f"{amount / scale:.{2 if abs(amount) < 1000 * scale else 0}f} {told}"

    device_unit, device_scale = _memory_unit(device)
    print(f"\nmemory per device, {unit} and share of {device / device_scale:.2f} {device_unit}")
    rows = [
        [
            str(j) + ("*" if j == explanation.tightest else ""),
            *map(
                share,
                (
                    held.weights,
                    held.gradients,
                    held.optimizer,
                    held.activations,
                    held.working + held.gather,
                    held.free,
                ),
            ),
        ]
        for j, held in enumerate(explanation.stages)
    ]
    _print_table(
        rows,
        ("#", "weights", "gradients", "optimizer", "in flight", "working", "free"),
        right=range(7),
    )
    gathered = any(held.gather for held in explanation.stages)
    in_flight = [stage.in_flight for stage in explanation.evaluation.stages]
    counts = ", ".join(map(str, in_flight))
    if len(in_flight) > 8:
        counts = f"{in_flight[0]} (first stage) down to {in_flight[-1]} (last)"
    reserve = explanation.reserve_bytes
    print(
        textwrap.fill(
            f"*: least free; reserve: {reserve / scale:.2f} {unit} of each device "
            f"({100 * reserve / device:.0f}%); in flight: activations of "
            f"{counts} microbatches"
            + ("; working: with the largest layer's gathered weights" if gathered else ""),
            WIDTH,
        )
    )


def _binding(compiled: Compiled, explanation: Explanation) -> list[str]:
    """The bottleneck of time and of memory, in a sentence each."""
    evaluation = explanation.evaluation
    assert evaluation.bottleneck is not None and explanation.tightest is not None
    j, slots = evaluation.bottleneck, evaluation.microbatches + len(evaluation.stages) - 1
    share = explanation.pipeline_share
    tight = explanation.stages[explanation.tightest]
    fullness = 100 * tight.used / (tight.used + tight.free) if tight.used + tight.free else 100
    said = [
        f"time: stage {j} is the bottleneck, paid {slots} times"
        + (f", {100 * share:.1f}% of the batch" if share is not None else "")
        + f"; its load: {_shares(evaluation.stages[j].load_parts_ticks)}",
        f"memory: stage {explanation.tightest} is the fullest, {fullness:.0f}% of what is usable",
    ]
    if evaluation.sigma_ticks and share is not None:
        synchronisation = [stage.sync_ticks for stage in evaluation.stages]
        first = compiled.cost_model.synchronisation == "first_stage"
        k = 0 if first else synchronisation.index(max(synchronisation))
        said.append(
            f"synchronisation: stage {k} {'alone counts' if first else 'is the slowest'}, "
            f"{_duration(float(synchronisation[k] * compiled.tick_seconds))} per batch, "
            f"{100 * (1 - share):.1f}% of it: {_shares(evaluation.stages[k].sync_parts_ticks)}"
        )
    return said


def _shares(parts: LoadParts | SyncParts) -> str:
    """What a load or a synchronisation is made of, the largest part first, in per cent."""
    total = parts.total or 1
    named = sorted(vars(parts).items(), key=lambda part: -part[1])
    shares = (
        f"{name.replace('_', ' ')} {100 * ticks / total:.0f}%"
        for name, ticks in named
        if 200 * ticks >= total
    )
    return ", ".join(shares) or "nothing"


def _helpful(compiled: Compiled, explanation: Explanation) -> list[str]:
    """What would make each stage fit that does not."""
    evaluation = explanation.evaluation
    said = []
    mended = {remedy.stage: remedy for remedy in explanation.remedies}
    for j, held in enumerate(explanation.stages):
        if held.free >= 0:
            continue
        missing = f"stage {j} lacks {-held.free / 2**20:,.1f} MiB"
        if -held.free < 2**20:
            missing = f"stage {j} lacks {-held.free:,} bytes"
        if j not in mended:
            said.append(f"{missing}; no recomputation or ZeRO stage saves that much")
            continue
        remedy, stage = mended[j], evaluation.stages[j]
        slower = max(remedy.batch_ticks - (evaluation.batch_ticks or 0), 0)
        said.append(
            f"{missing}; recomputation '{remedy.recomputation}' with ZeRO {remedy.zero} needs "
            f"{(stage.memory_bytes - remedy.memory_bytes) / 2**20:,.1f} MiB less and adds "
            f"{_duration(float(slower * compiled.tick_seconds))} to the batch"
            + ("" if remedy.searched else " (not in the search lists)")
        )
    return said


def _helpful_altogether(compiled: Compiled, explanation: Explanation) -> list[str]:
    """What all these changes make of a plan, and with which memory it needs none of them."""
    said = []
    if explanation.all_fit_ticks is not None:
        seconds = _duration(float(explanation.all_fit_ticks * compiled.tick_seconds))
        said.append(f"with all of that the plan fits, and a batch takes {seconds}")
    if explanation.needed_bytes is not None:
        said.append(
            f"as it is, the plan needs devices of {-(-explanation.needed_bytes // 2**20):,} MiB"
        )
    return said


def _print_certificate(problem: Problem, certificate: Certificate, quiet: bool) -> None:
    from nest_opt.compile import compile_problem

    compiled = compile_problem(problem)
    _print_heading(certificate.name, certificate.verdict, certificate.digest)
    batch, bound, cells = certificate.batch_ticks, certificate.proven_bound_ticks, certificate.cells
    if batch is not None and certificate.plan is not None:
        rows = _price_rows(problem, compiled, batch, certificate.tau_ticks, certificate.sigma_ticks)
        _print_plan(compiled, certificate.plan, rows)
        print()
    if certificate.verdict != "certified" and bound is not None:
        seconds = _duration(float(bound * compiled.tick_seconds))
        gap = f", {100 * certificate.gap:.3g} % below" if certificate.gap is not None else ""
        print(f"proven: no plan takes less than {bound:,} ticks = {seconds}{gap}")
    counts = ", ".join(
        f"{getattr(cells, what):,} {what}"
        for what in ("total", "bounded", "refuted", "solved", "open")
    )
    print(f"cells: {counts}; {_duration(certificate.wall_seconds)}")
    if certificate.enumeration.agreed:
        print(f"enumeration: all {certificate.enumeration.plans:,} plans priced, none better")
    engines = ", ".join(f"{name} {version}" for name, version in certificate.engines.items())
    print(textwrap.fill(_printable(f"engines: {engines}"), WIDTH, subsequent_indent="  "))
    answers = [answer for closure in certificate.closures for answer in closure.besides]
    for name in certificate.options.engines:
        own = [answer.status for answer in answers if answer.engine == name]
        silent = sum(status in ("limit", "fault") for status in own)
        print(
            f"{name}: asked {len(own):,} times besides"
            + (f", no answer to {silent:,}" if silent else "")
        )
    if certificate.reasons:
        print("\nwhat stands in the way")
        _print_list(certificate.reasons)
    if certificate.better_plan is not None:
        better = certificate.better_plan
        print(f"a better plan: {better.batch_ticks:,} ticks, found by {better.found_by}")
    if certificate.verdict == "certified":
        print()
        if batch is None:
            print("Certified: no plan exists.")
            _print_infeasible(problem, compiled, quiet)
        _print_relative_to(compiled, "Certified optimal" if batch is not None else "Infeasible")


def _print_compiled(compiled: Compiled) -> None:
    print(_clip(_printable(compiled.name), WIDTH))
    print(_clip(f"digest {compiled.digest}", WIDTH))
    print()
    errors = compiled.rounding_error()
    usable = compiled.memory_quanta * compiled.quantum_bytes
    unit, scale = _memory_unit(usable)
    microbatches = ", ".join(str(b) for b in compiled.microbatch_sizes)
    _print_table(
        [
            ("layers", f"{compiled.layer_count:,}"),
            ("devices", f"{compiled.devices:,}"),
            ("global batch", f"{compiled.global_batch:,} sequences"),
            ("microbatch", f"{microbatches} (sequences)"),
            ("tick", f"{float(compiled.tick_seconds):g} s"),
            ("synchronisation", f"rounded up to multiples of {compiled.sync_multiple:,} ticks"),
            ("quantum", f"{compiled.quantum_bytes:,} bytes"),
            (
                "usable memory",
                f"{compiled.memory_quanta:,} quanta = {usable / scale:.2f} {unit}",
            ),
        ]
    )
    print("\nrounding adds at most")
    _print_table(
        [
            ("  load", f"{_duration(errors['load_seconds'])} per microbatch"),
            ("  synchronisation", f"{_duration(errors['synchronisation_seconds'])} per batch"),
            ("  memory", f"{errors['memory_bytes'] / 2**20:,.3f} MiB per device"),
        ]
    )
    print()
    network = compiled.network
    blocks = getattr(network, "block", None)
    _print_table(
        [
            (
                str(k),
                f"{blocks[k] if blocks else _pairs_of(network, k):,}",
                f"{float(link.latency):g}",
                f"{float(1 / link.seconds_per_byte):.4g}" if link.seconds_per_byte else "any",
            )
            for k, link in enumerate(network.classes)
        ],
        (
            "link class",
            "devices in a block" if blocks else "pairs of devices",
            "latency s",
            "bandwidth bytes/s",
        ),
        right=range(4),
    )
    _print_loss(compiled)
    print()
    print(textwrap.fill(f"templates: {', '.join(t.label for t in compiled.templates)}", WIDTH))
    _print_list(f"template {t.label} was skipped: {why}" for t, why in compiled.skipped)


def _pairs_of(network: Any, link_class: int) -> int:
    """How many pairs of devices a class of a network without levels joins."""
    of_class = int((network.matrix == link_class).sum())
    return (of_class - (network.devices if link_class == 0 else 0)) // 2


def _print_loss(compiled: Compiled, *, above: float = -1.0) -> None:
    """What reducing a network without levels to link classes adds, if it is more than ``above``."""
    loss = getattr(compiled.network, "loss", None)
    if loss is None or loss.largest <= above:
        return
    first, second = loss.worst_pair
    dearer = (
        f"its paths dearer by {loss.mean:.2%} on average and {float(loss.largest):.2%} at most "
        f"(devices {first} and {second})"
        if loss.largest
        else "no path dearer"
    )
    said = f"reducing the network to {len(compiled.network.classes)} link classes makes {dearer}"
    print(textwrap.fill(f"{said}, at the reference size", WIDTH))


def _layer_times(problem: Problem, compiled: Compiled) -> tuple[LayerTime, ...]:
    """Where the times of an estimated model come from; nothing for a table of layers."""
    if problem.model.kind != "config":
        return ()
    from nest_opt.estimate.profile import layer_times

    return layer_times(problem.model, compiled.layer_names, compiled.tables.keys())


def _print_estimate(problem: Problem, compiled: Compiled, *, every: bool = False) -> None:
    """What an estimate rests on: measured or modelled times, and what was read but not modelled."""
    if problem.model.kind != "config":
        return
    from nest_opt.estimate.profile import summary
    from nest_opt.estimate.transformer import notes_of_config

    times = _layer_times(problem, compiled)
    print(f"times: {summary(times)}")
    if every and problem.model.profile:
        _print_table(
            [
                (
                    f"  {time.layers}",
                    time.template.label,
                    str(time.microbatch),
                    time.source + (f" from {time.measured_at}" if time.source == "scaled" else ""),
                )
                for time in times
            ],
            ("  layers", "template", "microbatch", "times"),
            right=(2,),
        )
    notes = notes_of_config(problem.model)
    if notes:
        print("notes on the model")
        _print_list(notes)


def _print_fit(made: Fit) -> None:
    numbers = made.numbers
    print(_clip(_printable(f"{made.cluster}: {len(made.rows):,} measured iterations"), WIDTH))
    print()
    _print_table(
        [
            ("efficiency", f"{numbers.efficiency:.4f}", "of peak rate and memory bandwidth"),
            ("kernel", f"{1e6 * numbers.kernel_seconds:.1f} us", "least time of a kernel"),
            ("exposure", f"{numbers.exposure:.4f}", "of communication"),
        ]
    )
    print()
    print(f"mean absolute error {100 * made.errors.mean_absolute_error:.1f} %")
    _print_errors(made.errors)
    if made.held_out is not None:
        error = made.held_out.mean_absolute_error
        print(f"\ncross-validation: mean absolute error {100 * error:.1f} %")
        print("each model priced with numbers fitted to the others")
        _print_errors(made.held_out)
    print()
    print(
        textwrap.fill(
            "rank: Spearman's correlation of predicted and measured times; regret: how much slower "
            "than the fastest measured configuration the one with the lowest price is",
            WIDTH,
        )
    )


def _print_errors(errors: Errors) -> None:
    def rank(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    rows = [
        (
            m.model,
            str(m.rows),
            f"{100 * m.mean_absolute_error:.1f} %",
            rank(m.rank_correlation),
            m.chosen,
            f"{100 * m.regret:.1f} %",
        )
        for m in errors.models
    ]
    everything = (
        "all",
        str(sum(m.rows for m in errors.models)),
        f"{100 * errors.mean_absolute_error:.1f} %",
        rank(errors.mean_rank_correlation),
        "",
        f"{100 * errors.largest_regret:.1f} %",
    )
    headers = ("model", "rows", "error", "rank", "chosen", "regret")
    _print_table([*rows, everything], headers, right=(1, 2, 3, 5))


# --- words and numbers ----------------------------------------------------------------------------


def _description(family: str, name: str) -> str:
    """The first words that a shipped file says of itself; nothing if it cannot be read."""
    from nest_opt.files import read_json
    from nest_opt.library import instances_folder

    try:
        data = read_json(instances_folder() / family / f"{name}.json")
    except InputError:
        return ""
    return str(data.get("description", "")) if isinstance(data, dict) else ""


def _clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _layer_range(compiled: Compiled, layers: tuple[int, int], width: int) -> str:
    """First and last layer by name, or by number where the names are too long."""
    first, last = layers[0], layers[1] - 1
    names = compiled.layer_names
    if not 0 <= first <= last < len(names):
        return f"[{first}, {last + 1})"
    text = names[first] if first == last else f"{names[first]}..{names[last]}"
    return text if len(text) <= width else _clip(f"{first}..{last}", width)


def _ranges(devices: Sequence[int], width: int) -> str:
    """Devices as runs: ``0-7`` or ``0,4,8-9``."""
    parts: list[str] = []
    start = previous = None
    for device in [*devices, None]:
        if start is None or previous is None or device is None or device != previous + 1:
            if start is not None:
                parts.append(str(start) if start == previous else f"{start}-{previous}")
            start = device
        previous = device
    return _clip(",".join(parts), width)


def _duration(seconds: float) -> str:
    """A duration with its unit, to four digits or so."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:,.3f} {unit}"
    return f"{seconds:.3g} s"


def _memory_unit(size_bytes: int) -> tuple[str, int]:
    """The unit in which ``size_bytes`` reads best, and its bytes."""
    return ("GiB", 2**30) if size_bytes >= 2**30 else ("MiB", 2**20)


def _milliseconds(ticks: int, tick_seconds: Fraction) -> str:
    """Ticks as milliseconds, without the unit, which stands in the heading."""
    value = float(1000 * ticks * tick_seconds)
    if value == 0:
        return "0"
    return f"{value:.3f}" if 1e-2 <= value < 1e5 else f"{value:.3g}"
