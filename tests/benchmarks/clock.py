"""T and the sum formula against the simulated clock, over the suite ``small`` and real problems.

python tests/benchmarks/clock.py > tests/benchmarks/CLOCK.md
"""

from statistics import mean

from nest_opt.certify.suite import load_suite
from nest_opt.compile import compile_problem
from nest_opt.evaluate import Evaluator
from nest_opt.library import load_problem
from nest_opt.simulate import simulate
from nest_opt.solve import solve

REAL = (
    "bert-large@h100-64",
    "llama2-7b@h100-64",
    "mixtral-8x7b@h100-64",
    "llama3-70b@h100-64",
    "gpt3-175b@h100-64",
    "llama3-70b@h100-256",
    "gpt3-175b@h100-256",
)


def main() -> None:
    print("# The clock\n")
    print(
        "T = (m + s - 1) tau + sigma and the sum formula (m - 1) tau + sum of loads + sigma\n"
        "against the simulated 1F1B schedule of the optimal plan (`nest-opt simulate`), in ticks.\n"
        "Made by `python tests/benchmarks/clock.py`.\n"
    )
    rows = []
    for entry in load_suite("small").entries:
        plan = solve(entry.compiled).plan
        if plan is None:
            continue
        loads = {s.load_ticks for s in Evaluator(entry.compiled).evaluate(plan).stages}
        both = {t: simulate(entry.compiled, plan, transfers=t) for t in ("waiting", "overlapping")}
        rows.append((len(loads) > 1, both["waiting"], both["overlapping"]))
    waiting = [w for _, w, _ in rows]
    print(f"Suite `small`, {len(rows)} plans, stages waiting for transfers:\n")
    print("| | T | sum formula |\n|---|---|---|")
    errors = [[w.error for w in waiting], [w.sum_error for w in waiting]]

    def row(name: str, of: object) -> None:
        cells = " | ".join(of(e) for e in errors)  # type: ignore[operator]
        print(f"| {name} | {cells} |")

    row("below the clock", lambda e: str(sum(x < 0 for x in e)))
    row("exact", lambda e: str(sum(x == 0 for x in e)))
    row("more than 5 % above", lambda e: str(sum(x > 0.05 for x in e)))
    row("mean", lambda e: f"{100 * mean(e):.2f} %")
    row("largest", lambda e: f"{100 * max(e):.1f} %")
    unequal = sum(w.error > 0.05 and other for other, w, _ in rows)
    above = sum(w.error > 0.05 for w in waiting)
    print(
        f"\nOf the {above} plans where T is more than 5 % above, {unequal} have stages of unequal\n"
        "load: T pays the bottleneck in every slot, also while the pipeline fills and drains,\n"
        "when the clock pays each stage its own load; the fewer microbatches, the more that is.\n"
        "The sum formula does count each stage once, and errs where part of that, such as a\n"
        "transfer into a stage that is waited for anyway, hides behind the bottleneck."
    )
    faster = sum(o.makespan_ticks < w.makespan_ticks for _, w, o in rows)
    slower = sum(o.makespan_ticks > w.makespan_ticks for _, w, o in rows)
    print(
        f"\nWith transfers besides computation (ports shared), the clock is faster in {faster}\n"
        f"plans and slower in {slower}.\n"
    )
    print("| problem | clock, s | T | sum formula | overlapping, s |\n|---|---|---|---|---|")
    for name in REAL:
        compiled = compile_problem(load_problem(name))
        plan = solve(compiled).plan
        assert plan is not None
        w = simulate(compiled, plan)
        o = simulate(compiled, plan, transfers="overlapping")
        tick = float(compiled.tick_seconds)
        print(
            f"| `{name}` | {w.makespan_ticks * tick:.4f} | {100 * w.error:+.2f} % | "
            f"{100 * w.sum_error:+.2f} % | {o.makespan_ticks * tick:.4f} |"
        )


if __name__ == "__main__":
    main()
