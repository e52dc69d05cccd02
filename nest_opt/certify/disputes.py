"""A dispute between engines, written down: everything that is needed to look into it.

A folder for each disputed certificate holds the problem, the certificate, a README that says what
contradicts what and how to ask again, and a folder for each question on which engines differ::

    NAME-DIGEST/
        README.md
        problem.json
        certificate.json
        1-CELL-FORMULATION-QUESTION/
            model.mps, model.lp     the integer program, as the engines got it (runs, assignment)
            model.pbtxt             CP-SAT's own model, in its text form (boundaries)
            answers.json            all answers to it: engine, version, options, seed, status, plan

Models are built from the certificate anew. Building is deterministic, so they are those that were
asked.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nest_opt.certify.certificate import Answer, Certificate, QuestionKind
from nest_opt.certify.certificate import Formulation as FormulationName
from nest_opt.certify.engines import ENGINES
from nest_opt.compile import Compiled, compile_problem
from nest_opt.files import write_json, write_text
from nest_opt.plan import Plan

#: Questions that are written down; there may be as many as there are cells.
MOST = 20


@dataclass(frozen=True)
class _Asked:
    """One question and all answers to it."""

    cell: str
    formulation: FormulationName
    question: QuestionKind
    limit: int | None
    answers: tuple[Answer, ...]

    @property
    def slug(self) -> str:
        """The name of its folder."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.cell}-{self.formulation}-{self.question}".lower())

    @property
    def meaning(self) -> str:
        """The question in words."""
        bound = "" if self.limit is None else f" with T <= {self.limit}"
        return {
            "decision": f"is there a plan{bound}?",
            "minimum": "which plan is the best?",
            "fixed_plan": f"does the plan of the certificate satisfy the model{bound}?",
        }[self.question]


def write_disputes(certificate: Certificate, folder: Path) -> Path | None:
    """Write what a disputed certificate is about into a new folder inside ``folder``.

    Returns that folder, or None for a certificate that is not disputed. The folder appears when all
    of it is written; one of the same name gets a number behind it. Raises ``OSError`` where it
    cannot be written.
    """
    if certificate.verdict != "disputed":
        return None
    asked = list(_disputed(certificate))
    folder.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".disputes-", dir=folder))
    try:
        write_json(partial / "problem.json", certificate.problem.to_dict())
        write_json(partial / "certificate.json", certificate.to_dict())
        compiled = compile_problem(certificate.problem)
        names = []
        for number, one in enumerate(asked[:MOST], 1):
            names.append(f"{number}-{one.slug}")
            inside = partial / names[-1]
            inside.mkdir()
            _write_models(inside, compiled, one, certificate.plan)
            write_json(
                inside / "answers.json",
                {
                    "cell": one.cell,
                    "formulation": one.formulation,
                    "question": one.question,
                    "limit": one.limit,
                    "answers": [answer.model_dump(mode="json") for answer in one.answers],
                },
            )
        write_text(partial / "README.md", _readme(certificate, asked, names))
        return _rename(partial, folder / _name(certificate))
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _name(certificate: Certificate) -> str:
    word = re.sub(r"[^A-Za-z0-9._-]+", "-", certificate.name).strip("-.") or "problem"
    return f"{word[:80]}-{certificate.digest.rpartition(':')[2][:8]}"


def _rename(partial: Path, wanted: Path) -> Path:
    """Give a finished folder its name, or the first that is free behind it."""
    partial.chmod(0o755)
    number, target = 1, wanted
    while target.exists():
        number += 1
        target = wanted.with_name(f"{wanted.name}-{number}")
    return partial.rename(target)


def _disputed(certificate: Certificate) -> Iterator[_Asked]:
    """The questions on which engines differ: those of disputed cells, and of the plan's own."""
    plan = certificate.plan
    for closure in certificate.closures:
        own = plan is not None and closure.cell == _label(plan)
        answers = (*closure.answers, *closure.besides)
        if own:
            answers += certificate.completeness
        if closure.method == "open" and closure.reason.startswith("disputed:"):
            kinds: tuple[QuestionKind, ...] = ("decision", "minimum", "fixed_plan")
        elif own:
            kinds = ("fixed_plan",)  # that the plan is admitted may be what is disputed
        else:
            continue
        keys = {(a.formulation, a.question, a.limit): None for a in answers if a.question in kinds}
        for formulation, question, limit in keys:
            same = tuple(
                a
                for a in answers
                if (a.formulation, a.question, a.limit) == (formulation, question, limit)
            )
            yield _Asked(closure.cell, formulation, question, limit, same)


def _label(plan: Plan) -> str:
    return (
        f"b{plan.microbatch} d{plan.replicas} {plan.template.label} "
        f"s{len(plan.stages)} {plan.layout}"
    )


def _write_models(folder: Path, compiled: Compiled, asked: _Asked, plan: Plan | None) -> None:
    """The model of a question, in every form that its engines read."""
    from nest_opt.certify.certificate import FIRST
    from nest_opt.certify.questions import Question, cells_by_label

    cell = cells_by_label(compiled)[asked.cell]
    fixed = plan if asked.question == "fixed_plan" else None
    if asked.formulation == "boundaries":
        from nest_opt.certify import cp_sat

        if cp_sat.version() is None:
            return  # a certificate made elsewhere; the README says how to get it
        minimise = asked.question == "minimum"
        model = cp_sat.Model(compiled, cell, limit=asked.limit, minimise=minimise)
        if fixed is not None:
            model.fix(fixed)
        write_text(folder / "model.pbtxt", str(model.solver_model.proto))
        return
    from nest_opt.certify.models import complete

    question = Question(cell, asked.formulation, asked.question, asked.limit, FIRST, fixed)
    program = question.build(compiled)
    complete(program)
    for name in ("model.mps", "model.lp"):
        program.write(str(folder / name), io_options={"symbolic_solver_labels": True})


def _readme(certificate: Certificate, asked: list[_Asked], names: list[str]) -> str:
    """What is disputed, between whom, and how to ask again."""
    engines = certificate.options.engines
    more = f" --engine {','.join(engines)}" if engines else ""
    lines = [
        f"# Disputed: {certificate.name}",
        "",
        f"nest-opt {certificate.nest_opt}, digest {certificate.digest}.",
        f"Reported optimum: {certificate.batch_ticks} ticks"
        if certificate.batch_ticks is not None
        else "Reported: there is no plan.",
        "",
        "## What contradicts what",
        "",
        *(f"- {reason}" for reason in certificate.reasons),
        "",
        "## Versions",
        "",
        *(f"- {name} {version}" for name, version in certificate.engines.items()),
        "",
        "## To ask again",
        "",
        "```sh",
        f"nest-opt certify problem.json{more} --out again.json",
        f"nest-opt verify certificate.json --resolve{more}",
        "```",
        "",
        "## The questions",
        "",
    ]
    for one, name in zip(asked, names, strict=False):
        lines += [
            f"### {name}",
            "",
            f"Cell {one.cell}, model `{one.formulation}`: {one.meaning}",
            "",
            "| engine | presolve | seed | answer | price by the evaluator | note |",
            "|---|---|---|---|---|---|",
        ]
        for answer in one.answers:
            title = ENGINES[answer.engine].title if answer.engine in ENGINES else answer.engine
            note = (answer.note or answer.detail).replace("|", "/").replace("\n", " ")[:200]
            lines.append(
                f"| {title} {answer.version} | {'on' if answer.presolve else 'off'} | "
                f"{answer.seed} | {answer.status} | {answer.priced_ticks} | {note} |"
            )
        lines.append("")
    if len(asked) > len(names):
        lines += [f"{len(asked) - len(names)} more questions are in `certificate.json`.", ""]
    lines += [
        "`answers.json` holds every option as it was read back. `model.mps` and `model.lp` are the",
        "same program, for any solver; `model.pbtxt` is CP-SAT's (where OR-Tools is installed).",
        "",
    ]
    return "\n".join(lines)
