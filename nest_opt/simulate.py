"""A plan on a clock: the 1F1B schedule, microbatch by microbatch, in integer ticks.

The batch time T is a formula: (m + s - 1) times the largest load, + sigma. Here every forward and
backward pass, every transfer between stages and the final synchronisation is an event with a start
and an end, so that what the formula adds can be seen.

Schedule (Narayanan et al. 2021, arXiv 2104.04473): stage j of s first runs min(s - 1 - j, m)
forward passes, then one forward and one backward pass in turn, then the backward passes that are
left. A pass starts when its input is there and the pass before it is done.

Two ways to treat transfers:

- ``waiting``, as the load counts them: the receiving stage spends the transfer's time before the
  pass that needs it, and the sender goes on;
- ``overlapping``: a transfer runs besides computation, and shares the sender's outgoing and the
  receiver's incoming port with others; both directions of a port are independent.

Recomputation and the exchanges of ZeRO 2 and 3 belong to the backward pass, but for one all-gather
of ZeRO 3, which belongs to the forward pass. A stage synchronises when all its replicas have run
their last backward pass.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from nest_opt.compile import Compiled, compile_problem
from nest_opt.errors import PlanError
from nest_opt.evaluate import Evaluator, StageTimes
from nest_opt.plan import Plan
from nest_opt.problem import Problem

Transfers = Literal["waiting", "overlapping"]


@dataclass(frozen=True)
class Event:
    """One thing that takes time: ticks [start, end) of a stage of a replica.

    ``kind`` is ``forward``, ``backward``, ``send_forward`` and ``send_backward`` (on the link into
    ``stage``) or ``synchronise``; ``microbatch`` counts from 0, -1 for the synchronisation.
    """

    kind: str
    stage: int
    replica: int
    microbatch: int
    start: int
    end: int


@dataclass(frozen=True)
class Simulation:
    """What the clock says. Ticks are integers.

    ``makespan_ticks`` is when the last stage has synchronised. ``batch_ticks`` is T and
    ``sum_ticks`` the other closed form, (m - 1) times the largest load + the sum of all stages'
    loads + sigma. ``busy_ticks[j]`` is how long stage j of its slowest replica computes, transfers
    that it waits for included. Replicas that lie alike run alike: ``events`` has one of each kind,
    ``alike[r]`` says which.
    """

    transfers: Transfers
    makespan_ticks: int
    batch_ticks: int
    sum_ticks: int
    tick_seconds: Fraction
    busy_ticks: tuple[int, ...]
    alike: tuple[int, ...]
    events: tuple[Event, ...]

    @property
    def error(self) -> float:
        """How much T is above the clock, relative to the clock."""
        return self.batch_ticks / self.makespan_ticks - 1 if self.makespan_ticks else 0.0

    @property
    def sum_error(self) -> float:
        """How much the sum formula is above the clock, relative to the clock."""
        return self.sum_ticks / self.makespan_ticks - 1 if self.makespan_ticks else 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, without the events."""
        return {
            "transfers": self.transfers,
            "makespan_ticks": self.makespan_ticks,
            "makespan_seconds": float(self.makespan_ticks * self.tick_seconds),
            "batch_ticks": self.batch_ticks,
            "batch_error": self.error,
            "sum_ticks": self.sum_ticks,
            "sum_error": self.sum_error,
            "tick_seconds": float(self.tick_seconds),
            "busy_ticks": list(self.busy_ticks),
        }

    def trace(self) -> dict[str, Any]:
        """The events in the Trace Event Format, which Perfetto and Chrome open.

        One process for each kind of replica, one thread for each stage and one for its incoming
        links; times in microseconds.
        """
        microseconds = 1_000_000 * self.tick_seconds
        events: list[dict[str, Any]] = []
        stages = len(self.busy_ticks)
        for replica in sorted(set(self.alike)):
            count = self.alike.count(replica)
            name = f"replica {replica}" + (f" and {count - 1} alike" if count > 1 else "")
            events.append(_named("process_name", replica, 0, name))
            for j in range(stages):
                events.append(_named("thread_name", replica, 2 * j, f"stage {j}"))
                events.append(_named("thread_name", replica, 2 * j + 1, f"into stage {j}"))
        for event in self.events:
            number = "" if event.microbatch < 0 else f" {event.microbatch}"
            events.append(
                {
                    "name": f"{event.kind}{number}",
                    "cat": event.kind,
                    "ph": "X",
                    "pid": event.replica,
                    "tid": 2 * event.stage + event.kind.startswith("send"),
                    "ts": float(event.start * microseconds),
                    "dur": float((event.end - event.start) * microseconds),
                }
            )
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def simulate(
    problem: Problem | Compiled, plan: Plan, *, transfers: Transfers = "waiting"
) -> Simulation:
    """Run a plan's schedule on a clock. O(m * s) events for each kind of replica.

    Raises :class:`PlanError` for a plan that is no placement of the problem. A plan that does not
    fit into memory is simulated all the same.

    >>> import nest_opt
    >>> problem = nest_opt.load_problem("worked-example-1000")
    >>> simulation = simulate(problem, nest_opt.solve(problem).plan)
    >>> simulation.makespan_ticks, simulation.batch_ticks
    (352, 352)
    """
    compiled = problem if isinstance(problem, Compiled) else compile_problem(problem)
    evaluator = Evaluator(compiled)
    evaluation = evaluator.evaluate(plan)
    batch = evaluation.require_price()
    assert evaluation.tau_ticks is not None and evaluation.sigma_ticks is not None
    m = evaluation.microbatches
    times = evaluator.stage_times(plan)
    kinds: dict[tuple[StageTimes, ...], int] = {}
    alike = []
    for r in range(plan.replicas):
        alike.append(kinds.setdefault(tuple(stage[r] for stage in times), r))
    events: list[Event] = []
    finished = [0] * len(plan.stages)
    busy = [0] * len(plan.stages)
    for stages, replica in kinds.items():
        run = _Clock(stages, m, replica, transfers).run()
        events += run
        for event in run:
            if event.kind in ("forward", "backward"):
                finished[event.stage] = max(finished[event.stage], event.end)
        for j in range(len(plan.stages)):
            ticks = sum(e.end - e.start for e in run if e.stage == j and e.kind in _PASSES)
            busy[j] = max(busy[j], ticks)
    makespan = max(finished)
    for j, stage in enumerate(evaluation.stages):
        if j > 0 and compiled.cost_model.synchronisation == "first_stage":
            break
        end = finished[j] + stage.sync_ticks
        for replica in kinds.values():
            events.append(Event("synchronise", j, replica, -1, finished[j], end))
        makespan = max(makespan, end)
    tau, sigma = evaluation.tau_ticks, evaluation.sigma_ticks
    return Simulation(
        transfers=transfers,
        makespan_ticks=makespan,
        batch_ticks=batch,
        sum_ticks=(m - 1) * tau + evaluation.total_load_ticks + sigma,
        tick_seconds=compiled.tick_seconds,
        busy_ticks=tuple(busy),
        alike=tuple(alike),
        events=tuple(sorted(events, key=lambda e: (e.start, e.end, e.replica, e.stage, e.kind))),
    )


_PASSES = ("forward", "backward")


def order_1f1b(stage: int, stages: int, microbatches: int) -> list[tuple[str, int]]:
    """The passes of one stage in order: (``forward`` or ``backward``, microbatch).

    >>> [f"{kind[0]}{i}" for kind, i in order_1f1b(0, 2, 3)]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    ahead = min(stages - 1 - stage, microbatches)
    order = [("forward", i) for i in range(ahead)]
    for i in range(microbatches - ahead):
        order += [("forward", ahead + i), ("backward", i)]
    return order + [("backward", i) for i in range(microbatches - ahead, microbatches)]


class _Clock:
    """One replica: passes in their order, transfers as their ports allow."""

    def __init__(
        self, stages: Sequence[StageTimes], microbatches: int, replica: int, transfers: Transfers
    ) -> None:
        self.stages, self.replica = stages, replica
        self.overlapping = transfers == "overlapping"
        count = len(stages)
        self.todo = [deque(order_1f1b(j, count, microbatches)) for j in range(count)]
        self.free = [0] * count
        #: When the input of a pass is there; what has no entry is not there yet.
        self.ready = {("forward", 0, i): 0 for i in range(microbatches)}
        #: A port sends or receives until then.
        self.sends, self.receives = [0] * count, [0] * count
        self.waiting: list[tuple[int, int, str, int, int]] = []
        self.events: list[Event] = []
        self.ends: list[tuple[int, int, str, int, int]] = []

    def run(self) -> list[Event]:
        """All events of the replica."""
        self._start_passes()
        while self.ends:
            now, _, kind, stage, i = heapq.heappop(self.ends)
            self._ended(now, kind, stage, i)
            while self.ends and self.ends[0][0] == now:
                _, _, kind, stage, i = heapq.heappop(self.ends)
                self._ended(now, kind, stage, i)
            self._start_transfers(now)
            self._start_passes()
        if any(self.todo):
            raise PlanError("the schedule does not end; the plan's stages wait for each other")
        return self.events

    def _start_passes(self) -> None:
        for j, todo in enumerate(self.todo):
            while todo:
                kind, i = todo[0]
                there = self.ready.get((kind, j, i))
                if there is None:
                    break
                todo.popleft()
                start = max(there, self.free[j])
                end = start + self._pass_ticks(kind, j)
                self.free[j] = end
                self._happens(kind, j, i, start, end)
                break  # the next one is looked at when this one has ended

    def _pass_ticks(self, kind: str, stage: int) -> int:
        """A pass, with the transfer that it waits for where transfers do not overlap."""
        times = self.stages[stage]
        if kind == "forward":
            return times.forward + (0 if self.overlapping else times.receive_forward)
        return times.backward + (0 if self.overlapping else times.receive_backward)

    def _happens(self, kind: str, stage: int, i: int, start: int, end: int) -> None:
        self.events.append(Event(kind, stage, self.replica, i, start, end))
        heapq.heappush(self.ends, (end, len(self.events), kind, stage, i))

    def _ended(self, now: int, kind: str, stage: int, i: int) -> None:
        """What an event makes possible."""
        last = len(self.stages) - 1
        if kind == "forward":
            if stage < last:
                self._send("forward", stage + 1, i, now)
            else:
                self.ready["backward", stage, i] = now
        elif kind == "backward":
            if stage > 0:
                self._send("backward", stage - 1, i, now)
        else:
            self.ready[kind.removeprefix("send_"), stage, i] = now

    def _send(self, kind: str, into: int, i: int, now: int) -> None:
        if self.overlapping:
            self.waiting.append((now, len(self.events), kind, into, i))
        else:
            self.ready[kind, into, i] = now

    def _start_transfers(self, now: int) -> None:
        """Transfers whose ports are free, those that have waited longest first."""
        left = []
        for transfer in sorted(self.waiting):
            _, _, kind, into, i = transfer
            sender = into - 1 if kind == "forward" else into + 1
            if self.sends[sender] > now or self.receives[into] > now:
                left.append(transfer)
                continue
            times = self.stages[into]
            ticks = times.receive_forward if kind == "forward" else times.receive_backward
            self.sends[sender] = self.receives[into] = now + ticks
            self._happens(f"send_{kind}", into, i, now, now + ticks)
        self.waiting = left
