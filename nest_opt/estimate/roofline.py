"""Time of kernels: the roofline (Williams et al. 2009, doi 10.1145/1498765.1498785)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from nest_opt.errors import Complaint
from nest_opt.problem import Device, exact

#: Bytes of a weight, activation or gradient in fp16 or bf16.
HALF = 2
#: Bytes of a logit, of a log-sum-exp and of what the vocabulary-parallel loss reduces.
SINGLE = 4
#: Bytes of an entry of a dropout mask.
MASK = 1
#: Bytes of a token's number.
TOKEN_ID = 8


class Work(NamedTuple):
    """One kernel: floating-point operations, and bytes to and from the device's memory."""

    flops: int | Fraction
    bytes: int


class Operator(NamedTuple):
    """The kernels of one operator in each direction."""

    forward: tuple[Work, ...]
    backward: tuple[Work, ...]


def matmul(rows: int, inner: int, columns: int, matrices: int = 1) -> Operator:
    """(rows x inner) times (inner x columns); backward, one such product for each factor.

    With several ``matrices`` the rows are dealt out to them, in one grouped kernel.
    """
    traffic = rows * inner + matrices * inner * columns + rows * columns
    work = Work(2 * rows * inner * columns, HALF * traffic)
    return Operator((work,), (work, work))


def elementwise(forward_bytes: int, backward_bytes: int) -> Operator:
    """A memory-bound operator, by the bytes it reads and writes."""
    return Operator((Work(0, forward_bytes),), (Work(0, backward_bytes),))


def norm(elements: int) -> Operator:
    """Forward reads x, writes y; backward reads dy and x, writes dx."""
    return elementwise(2 * HALF * elements, 3 * HALF * elements)


def total(elements: int) -> Operator:
    """Sum of two tensors: read two, write one; backward, their gradients meet at the fork."""
    return elementwise(3 * HALF * elements, 3 * HALF * elements)


@dataclass(frozen=True)
class Roofline:
    """A kernel takes the longest of its arithmetic, its memory traffic and its launch.

    The host launches kernels while others run, so that launching shows only where it takes longer
    than computing. ``cache_bytes`` of a kernel's traffic are left in the cache by the one before.
    """

    seconds_per_flop: Fraction
    seconds_per_byte: Fraction
    kernel_seconds: Fraction = Fraction(0)
    cache_bytes: int = 0

    def forward(self, operators: Iterable[Operator]) -> Fraction:
        """Seconds of the forward pass."""
        return sum((self._kernel(w) for op in operators for w in op.forward), Fraction(0))

    def backward(self, operators: Iterable[Operator]) -> Fraction:
        """Seconds of the backward pass."""
        return sum((self._kernel(w) for op in operators for w in op.backward), Fraction(0))

    def _kernel(self, work: Work) -> Fraction:
        if not work.flops and not work.bytes:
            return Fraction(0)
        traffic = max(work.bytes - self.cache_bytes, 0)
        return max(
            work.flops * self.seconds_per_flop, traffic * self.seconds_per_byte, self.kernel_seconds
        )


def roofline_of(device: Device, field: str, complaints: list[Complaint]) -> Roofline | None:
    """The device's roofline; None, with complaints, where it lacks the numbers."""
    flops, memory = device.peak_flops_per_second, device.memory_bytes_per_second
    for name, value in (("peak_flops_per_second", flops), ("memory_bytes_per_second", memory)):
        if value is None:
            complaints.append(
                Complaint(f"{field}.{name}", "missing; a model given by a config needs it")
            )
    if flops is None or memory is None:
        return None
    return Roofline(
        1 / (exact(flops) * exact(device.matmul_efficiency)),
        1 / (exact(memory) * exact(device.memory_efficiency)),
        exact(device.kernel_seconds),
        device.cache_bytes,
    )
