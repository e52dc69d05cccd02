"""Independent tasks, each in a freshly forked process of its own, each with a hard wall clock.

A solver may hang, crash or grow without bound, and its own time limit is a request, not a
guarantee. So every solve runs in a child that is forked from a parent which has done the imports
but never solved anything, and is killed from outside (SIGKILL) once its time is up.

What crosses the border is JSON over a pipe, never a pickle: a result is a dictionary of plain
values, or there is none. A child never returns into the code of its parent: it ends with
``os._exit``, whatever happens in it. It leads a process group: an engine that is a program of
its own is killed with the child that started it.

    parent                              child
    ------                              -----
    pipe, fork ------------------------> default signals, stdin and stdout to /dev/null
    poll pipes, enforce deadlines        task()
    read until the pipe closes <-------- one JSON message, os._exit
    reap, decide the outcome
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

Task = Callable[[], dict[str, Any]]
Status = Literal["done", "timeout", "crashed", "error"]

#: Seconds between the limit of a task and its SIGKILL, for a task that keeps the limit itself.
GRACE = 1.0

#: A child also sets an alarm on itself, this much after its SIGKILL was due: a parent that was
#: killed cannot kill any more.
_ORPHAN_SECONDS = 5.0

#: Once the first bytes of a result have arrived, the rest has at least this long to follow.
_SENDING_SECONDS = 10.0

#: Longest wait between two looks at the children, in case one died without closing its pipe.
_LOOK_SECONDS = 0.25

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Outcome:
    """How one task ended.

    ``done``: it returned, and ``value`` is what it returned, after a round trip through JSON.
    ``timeout``: its wall clock, or that of the whole run, ended first (it may never have started).
    ``crashed``: its process died without a complete result; ``message`` names the signal or status.
    ``error``: it raised, or its result is not a JSON dictionary; ``message`` is the last line of
    the traceback.

    ``seconds`` is wall-clock time: of the task itself if it ended, else until it was given up.
    """

    status: Status
    value: dict[str, Any] | None
    message: str
    seconds: float


@dataclass
class _Child:
    """A running child as its parent sees it."""

    pid: int
    pipe: int
    started: float
    deadline: float | None
    received: bytearray = field(default_factory=bytearray)
    exit_status: int | None = None
    gone: bool = False

    def drain(self) -> bool:
        """Read what is there without waiting; true once the other end is closed."""
        while True:
            try:
                chunk = os.read(self.pipe, _CHUNK)
            except BlockingIOError:
                return False
            if not chunk:
                return True
            if not self.received and self.deadline is not None:
                self.deadline = max(self.deadline, time.monotonic() + _SENDING_SECONDS)
            self.received += chunk

    def reap(self, *, wait: bool) -> bool:
        """Collect the exit status; true once the process is gone."""
        if not self.gone:
            try:
                pid, status = os.waitpid(self.pid, 0 if wait else os.WNOHANG)
            except ChildProcessError:  # somebody else collected it, or SIGCHLD is ignored
                self.gone = True
            else:
                if pid == self.pid:
                    self.gone, self.exit_status = True, status
        return self.gone

    def strike(self) -> None:
        """Send SIGKILL to the process and whatever it has started, unless it is gone."""
        if not self.reap(wait=False):
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    kill(self.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the process at once, collect it and close its pipe."""
        self.strike()
        self.reap(wait=True)
        if self.pipe >= 0:
            os.close(self.pipe)
            self.pipe = -1


def run_each(
    tasks: Sequence[Task],
    *,
    jobs: int,
    seconds: float | None,
    overall_seconds: float | None = None,
    grace: float = GRACE,
) -> Generator[tuple[int, Outcome], None, None]:
    """Run every task in its own forked process and yield ``(index, outcome)`` as they end.

    At most ``jobs`` run at once, started in order. A task is killed ``grace`` seconds after its
    limit of ``seconds`` (None: no limit). ``overall_seconds`` after the first step of the iterator
    whatever runs is killed, and whatever has not started is reported as ``timeout`` without
    starting.

    Closing the iterator early, or an exception such as KeyboardInterrupt, kills and reaps the
    children that still run. Deadlines are enforced while the iterator is being advanced; a
    consumer that pauses does not lose results that were ready in time.

    Tasks are inherited by the fork, so closures are fine. Keys of a returned dictionary become
    strings, tuples become lists; NaN and infinity are refused (``error``).

    Raises ValueError if ``jobs`` < 1 or a number of seconds is not positive (``grace``: negative).
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    for name, limit in (("seconds", seconds), ("overall_seconds", overall_seconds)):
        if limit is not None and not limit > 0:
            raise ValueError(f"{name} must be positive or None, not {limit}")
    if not grace >= 0:
        raise ValueError(f"grace must not be negative, not {grace}")
    return _run_each(tasks, jobs, seconds, overall_seconds, grace)


def run_all(
    tasks: Sequence[Task],
    *,
    jobs: int,
    seconds: float | None,
    overall_seconds: float | None = None,
    grace: float = GRACE,
    on_done: Callable[[int, Outcome], None] | None = None,
) -> list[Outcome]:
    """Run every task as :func:`run_each` does; return one outcome per task, in their order.

    ``on_done(index, outcome)`` is called in the parent as each one ends; if it raises, the
    children that still run are killed.
    """
    outcomes: dict[int, Outcome] = {}
    each = run_each(tasks, jobs=jobs, seconds=seconds, overall_seconds=overall_seconds, grace=grace)
    with contextlib.closing(each):
        for index, outcome in each:
            outcomes[index] = outcome
            if on_done is not None:
                on_done(index, outcome)
    return [outcomes[index] for index in range(len(tasks))]


def _run_each(
    tasks: Sequence[Task],
    jobs: int,
    seconds: float | None,
    overall_seconds: float | None,
    grace: float,
) -> Generator[tuple[int, Outcome], None, None]:
    """The loop behind :func:`run_each`, which has checked the arguments."""
    end = None if overall_seconds is None else time.monotonic() + overall_seconds
    limit = None if seconds is None else seconds + grace
    running: dict[int, _Child] = {}
    waiting = iter(range(len(tasks)))
    ended: list[tuple[int, Outcome]] = []
    more = True
    try:
        while True:
            while more and len(running) < jobs:
                index = next(waiting, None)
                if index is None:
                    more = False
                elif end is not None and time.monotonic() >= end:
                    ended.append((index, Outcome("timeout", None, "not started: out of time", 0.0)))
                else:
                    try:
                        _start(tasks[index], index, running, limit, end)
                    except OSError as error:
                        ended.append((index, Outcome("error", None, f"fork: {error}", 0.0)))
            ended += _look(running, wait=not ended)
            while ended:
                yield ended.pop(0)
            if not more and not running:
                return
    finally:
        for child in running.values():
            child.strike()
        for child in running.values():
            child.kill()


def _look(running: dict[int, _Child], *, wait: bool) -> list[tuple[int, Outcome]]:
    """Wait a moment for news of the children, enforce deadlines; remove and report the ended."""
    if not running:
        return []
    poll = select.poll()
    for child in running.values():
        poll.register(child.pipe, select.POLLIN | select.POLLHUP)
    pause = 0.0
    if wait:
        now = time.monotonic()
        due = [child.deadline - now for child in running.values() if child.deadline is not None]
        pause = max(0.0, min([_LOOK_SECONDS, *due]))
    poll.poll(pause * 1000)

    ended: list[tuple[int, Outcome]] = []
    for index, child in list(running.items()):
        closed = child.drain()
        if child.reap(wait=False):
            child.drain()
            outcome = _outcome(child)
        elif child.deadline is not None and time.monotonic() >= child.deadline:
            outcome = Outcome("timeout", None, "killed: out of time", _age(child))
        elif closed:
            # It is about to exit: the next look finds it, without spinning on a closed pipe.
            time.sleep(0.0005)
            continue
        else:
            continue
        child.kill()
        del running[index]
        ended.append((index, outcome))
    return ended


def _outcome(child: _Child) -> Outcome:
    """What a child that has gone leaves behind."""
    status = child.exit_status
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGALRM:
            return Outcome("timeout", None, "killed by its own alarm: out of time", _age(child))
        return Outcome("crashed", None, f"killed by {_signal_name(number)}", _age(child))
    try:
        message = json.loads(child.received)
        kind, payload, elapsed = message["status"], message["payload"], message["seconds"]
    except (ValueError, TypeError, KeyError):
        code = "unknown" if status is None else str(os.waitstatus_to_exitcode(status))
        return Outcome("crashed", None, f"exit status {code} without a result", _age(child))
    if kind == "done":
        return Outcome("done", payload, "", elapsed)
    return Outcome("error", None, payload, elapsed)


def _age(child: _Child) -> float:
    return time.monotonic() - child.started


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _start(
    task: Task, index: int, running: dict[int, _Child], limit: float | None, end: float | None
) -> None:
    """Fork a child for the task and enter it in ``running``; raises OSError if there is none."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or replaced by something without flush
            stream.flush()
    # No Ctrl-C between the fork and the entry: the child would be nobody's to kill.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        receiver, sender = os.pipe()
        try:
            started = time.monotonic()
            deadlines = [x for x in (limit and started + limit, end) if x is not None]
            deadline = min(deadlines, default=None)
            with warnings.catch_warnings():
                # Python 3.12 warns where the parent has threads; the child uses none of them.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
            if pid == 0:
                others = [receiver, *(child.pipe for child in running.values())]
                _be_child(task, sender, others, deadline)
        except BaseException:
            os.close(receiver)
            raise
        finally:
            os.close(sender)
        _lead_group(pid)
        os.set_blocking(receiver, False)
        running[index] = _Child(pid, receiver, started, deadline)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _lead_group(pid: int) -> None:
    """Make a child the leader of a process group: what it starts can be killed with it.

    Parent and child both do this, since either may come first.
    """
    with contextlib.suppress(OSError):
        os.setpgid(pid, pid)


def _be_child(task: Task, sender: int, others: list[int], deadline: float | None) -> NoReturn:
    """The whole life of a child. Never returns and never raises into the parent's code."""
    code = 70
    try:
        _prepare_child(others, deadline)
        message = _perform(task)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(sender, message)
        code = 0
    finally:
        os._exit(code)


def _prepare_child(others: list[int], deadline: float | None) -> None:
    """Shed what was inherited: pipes of siblings, signal handlers, terminal input and output."""
    for descriptor in others:
        os.close(descriptor)
    _lead_group(os.getpid())
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if null > 2:
        os.close(null)
    # Whatever stands in for the streams in the parent (a notebook, a test runner) stays there.
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    if deadline is not None:
        left = deadline - time.monotonic() + _ORPHAN_SECONDS
        signal.setitimer(signal.ITIMER_REAL, max(left, 0.001))


def _perform(task: Task) -> bytes:
    """Run the task and encode how it went."""
    started = time.monotonic()
    try:
        value = task()
        if not isinstance(value, dict):
            raise TypeError(f"a task must return a dict, not {type(value).__name__}")
        elapsed = time.monotonic() - started
        return _encode("done", value, elapsed)
    except BaseException as error:  # SystemExit and KeyboardInterrupt end here too
        line = traceback.format_exception_only(error)[-1].strip()
        return _encode("error", line, time.monotonic() - started)


def _encode(status: str, payload: object, seconds: float) -> bytes:
    message = {"status": status, "payload": payload, "seconds": seconds}
    return json.dumps(message, allow_nan=False).encode()


def _send(sender: int, message: bytes) -> None:
    view = memoryview(message)
    while view:
        view = view[os.write(sender, view) :]
