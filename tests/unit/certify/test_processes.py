"""Tasks in child processes: results, limits, crashes, and nothing left behind."""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nest_opt.certify import processes
from nest_opt.certify.processes import Outcome, Task, run_all, run_each


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """After every test: no child, dead or alive, and no open pipe."""
    before = descriptors()
    yield
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    assert len(descriptors()) == len(before)


def give(value: Any) -> Task:
    return lambda: {"value": value}


def hang() -> dict[str, Any]:
    time.sleep(600)
    return {}


def stubborn() -> dict[str, Any]:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(0.01)


def shoot(number: int) -> Task:
    def task() -> dict[str, Any]:
        faulthandler.disable()
        os.kill(os.getpid(), number)
        time.sleep(600)
        return {}

    return task


def fail(error: BaseException) -> Task:
    def task() -> dict[str, Any]:
        raise error

    return task


def one(task: Task, seconds: float = 30.0, grace: float = 1.0) -> Outcome:
    (outcome,) = run_all([task], jobs=1, seconds=seconds, grace=grace)
    return outcome


def test_results_come_in_the_order_of_the_tasks() -> None:
    def later(index: int) -> Task:
        def task() -> dict[str, Any]:
            time.sleep(0.1 * (3 - index))
            return {"index": index, "pid": os.getpid()}

        return task

    seen: list[int] = []
    outcomes = run_all(
        [later(i) for i in range(4)],
        jobs=4,
        seconds=30,
        on_done=lambda index, outcome: seen.append(index),
    )
    assert [o.status for o in outcomes] == ["done"] * 4
    assert [o.value["index"] for o in outcomes if o.value] == [0, 1, 2, 3]
    assert seen == [3, 2, 1, 0]
    assert len({o.value["pid"] for o in outcomes if o.value} | {os.getpid()}) == 5
    assert all(0 <= o.seconds < 10 for o in outcomes)


def test_no_tasks_no_outcomes() -> None:
    assert run_all([], jobs=2, seconds=None) == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_at_most_so_many_at_once(jobs: int) -> None:
    def task() -> dict[str, Any]:
        started = time.monotonic()
        time.sleep(0.05)
        return {"from": started, "to": time.monotonic()}

    values = [o.value for o in run_all([task] * 5, jobs=jobs, seconds=30) if o.value]
    assert len(values) == 5
    for value in values:
        at_once = [v for v in values if v["from"] <= value["from"] < v["to"]]
        assert len(at_once) <= jobs


def test_each_task_has_a_process_of_its_own() -> None:
    state = {"count": 0}

    def task() -> dict[str, Any]:
        state["count"] += 1
        return dict(state)

    assert [o.value for o in run_all([task] * 3, jobs=1, seconds=30)] == [{"count": 1}] * 3
    assert state == {"count": 0}


def test_a_result_of_many_megabytes_arrives_whole() -> None:
    text = "0123456789" * 500_000
    outcomes = run_all([give(text)] * 3, jobs=3, seconds=30)
    assert all(o.value == {"value": text} for o in outcomes)


@pytest.mark.parametrize("task", [hang, stubborn])
def test_a_task_that_hangs_is_killed(task: Task) -> None:
    started = time.monotonic()
    outcome = one(task, 0.2, grace=0.1)
    assert outcome.status == "timeout"
    assert outcome.value is None
    assert "out of time" in outcome.message
    assert 0.3 <= outcome.seconds <= time.monotonic() - started < 5


def test_a_hung_task_does_not_hold_up_the_others() -> None:
    outcomes = run_all([hang, give(1), give(2), give(3)], jobs=2, seconds=0.4, grace=0.1)
    assert [o.status for o in outcomes] == ["timeout", "done", "done", "done"]


def test_the_grace_lets_a_task_report_its_own_limit() -> None:
    def task() -> dict[str, Any]:
        time.sleep(0.3)
        return {"limit": "hit"}

    assert one(task, 0.2, grace=5.0).value == {"limit": "hit"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGINT])
def test_death_by_signal_is_a_crash_that_names_the_signal(number: signal.Signals) -> None:
    outcome = one(shoot(number))
    assert (outcome.status, outcome.value) == ("crashed", None)
    assert number.name in outcome.message


def test_leaving_without_a_result_is_a_crash() -> None:
    def task() -> dict[str, Any]:
        os._exit(7)

    outcome = one(task)
    assert outcome.status == "crashed"
    assert "exit status 7" in outcome.message


def test_dying_amid_the_result_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(sender: int, message: bytes) -> None:
        os.write(sender, message[: len(message) // 2])

    monkeypatch.setattr(processes, "_send", half)
    assert one(give("x" * 1000)).status == "crashed"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (fail(RuntimeError("no such thing")), "RuntimeError: no such thing"),
        (fail(SystemExit(3)), "SystemExit: 3"),
        (fail(KeyboardInterrupt()), "KeyboardInterrupt"),
        (lambda: [1], "TypeError: a task must return a dict, not list"),
        (give(object()), "TypeError: Object of type object is not JSON serializable"),
        (give(math.nan), "ValueError: Out of range float values are not JSON compliant"),
    ],
)
def test_an_exception_is_an_error_with_its_last_line(task: Task, message: str) -> None:
    outcome = one(task)
    assert (outcome.status, outcome.value) == ("error", None)
    assert outcome.message.startswith(message)


def test_the_run_as_a_whole_has_a_wall_clock_too() -> None:
    outcomes = run_all([give(1), hang, give(2), hang], jobs=1, seconds=30, overall_seconds=0.5)
    assert [o.status for o in outcomes] == ["done", "timeout", "timeout", "timeout"]
    assert [o.message.startswith("not started") for o in outcomes] == [False, False, True, True]
    assert outcomes[3].seconds == 0.0


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def marked(path: Path) -> Task:
    def task() -> dict[str, Any]:
        path.write_text(str(os.getpid()))
        return hang()

    return task


def wait_for(paths: list[Path]) -> list[int]:
    until = time.monotonic() + 10
    while not all(path.exists() and path.read_text() for path in paths):
        assert time.monotonic() < until
        time.sleep(0.005)
    return [int(path.read_text()) for path in paths]


def test_closing_the_iterator_kills_the_rest(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]

    def after() -> dict[str, Any]:
        wait_for(paths)
        return {"first": True}

    each = run_each([marked(paths[0]), marked(paths[1]), after], jobs=3, seconds=None)
    index, outcome = next(each)
    assert (index, outcome.value) == (2, {"first": True})
    pids = wait_for(paths)
    assert all(alive(pid) for pid in pids)
    each.close()
    assert not any(alive(pid) for pid in pids)


def test_an_iterator_never_started_starts_nothing(tmp_path: Path) -> None:
    run_each([marked(tmp_path / "a")], jobs=1, seconds=1).close()
    assert not (tmp_path / "a").exists()


def test_ctrl_c_in_the_parent_kills_the_children(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    pids: list[int] = []

    def interrupt() -> None:
        pids.extend(wait_for(paths))
        # The second child may run before its parent has left fork(), whose hooks swallow what is
        # raised in them. Ctrl-C is blocked there, but a signal raised by this thread is not.
        time.sleep(0.5)
        signal.raise_signal(signal.SIGINT)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run_all([marked(path) for path in paths], jobs=2, seconds=30)
    finally:
        thread.join()
        signal.signal(signal.SIGINT, previous)
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_an_exception_in_the_callback_kills_the_children(tmp_path: Path) -> None:
    path = tmp_path / "a"

    def after() -> dict[str, Any]:
        wait_for([path])
        return {}

    def stop(index: int, outcome: Outcome) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        run_all([marked(path), after], jobs=2, seconds=30, on_done=stop)
    assert not alive(int(path.read_text()))


def test_a_consumer_that_pauses_loses_no_result() -> None:
    text = "x" * 5_000_000
    each = run_each([give(0), give(text)], jobs=2, seconds=0.5, grace=0.0)
    with contextlib.closing(each):
        first = next(each)
        time.sleep(0.8)
        rest = dict([first, *each])
    assert rest[1].value == {"value": text}
    assert rest[1].seconds < 0.5


def test_a_child_whose_parent_stopped_looking_ends_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(processes, "_ORPHAN_SECONDS", 0.1)
    monkeypatch.setattr(processes._Child, "strike", lambda child: None)
    outcome = one(marked(tmp_path / "a"), 0.2, grace=0.0)
    assert outcome.status == "timeout"
    assert not alive(int((tmp_path / "a").read_text()))


def test_a_child_neither_reads_the_terminal_nor_writes_to_it(capfd: Any) -> None:
    def task() -> dict[str, Any]:
        print("to stdout", flush=True)
        os.write(1, b"to descriptor 1")
        return {"read": os.read(0, 10).decode()}

    assert one(task).value == {"read": ""}
    assert capfd.readouterr().out == ""


def test_a_child_has_default_signal_handling() -> None:
    handlers: dict[int, Any] = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        outcome = one(
            lambda: {
                "defaults": [signal.getsignal(n) == signal.SIG_DFL for n in handlers],
                "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
            }
        )
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert outcome.value == {"defaults": [True, True], "blocked": 0}


def test_a_failed_fork_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refuse)
    outcome = one(give(1))
    assert (outcome.status, outcome.message) == ("error", "fork: no more processes")


def test_works_from_a_thread_with_other_threads_about() -> None:
    found: list[Outcome] = []
    thread = threading.Thread(target=lambda: found.append(one(give(5))))
    thread.start()
    thread.join()
    assert found[0].value == {"value": 5}


@pytest.mark.parametrize(
    "call",
    [
        lambda: run_each([], jobs=0, seconds=1),
        lambda: run_each([], jobs=1, seconds=0),
        lambda: run_each([], jobs=1, seconds=math.nan),
        lambda: run_each([], jobs=1, seconds=1, overall_seconds=-1),
        lambda: run_each([], jobs=1, seconds=1, grace=-1),
    ],
)
def test_senseless_arguments_are_refused_at_the_call(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match="must"):
        call()
