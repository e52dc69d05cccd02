"""The shipped clusters: what each is, in numbers that its sources state."""

from __future__ import annotations

import pytest

from nest_opt import compile_problem, load_problem
from nest_opt.library import load_cluster, names
from nest_opt.network import GeneralNetwork, network_of

CLUSTERS = names("clusters")
GB = 10**9
GIB = 2**30


@pytest.mark.parametrize("name", CLUSTERS)
def test_the_name_ends_with_the_devices_and_every_number_has_a_source(name: str) -> None:
    cluster = load_cluster(name)
    assert cluster.name == name
    assert name.endswith(f"-{cluster.devices}")
    assert cluster.source and cluster.description
    assert cluster.device.source or name.startswith("nest/")
    assert all(level.size > 1 for level in cluster.levels)


@pytest.mark.parametrize(
    ("name", "sizes", "each_way"),
    [
        # "900 GB/s NVLink" is 450 each way; HDR 200 Gb/s is 25 GB/s, NDR 400 Gb/s is 50 GB/s.
        ("a100-64", (8, 8), (300 * GB, 25 * GB)),
        ("h100-1024", (8, 128), (450 * GB, 50 * GB)),
        ("dgx-a100-superpod-160", (8, 20), (300 * GB, 25 * GB)),
        ("dgx-a100-superpod-1120", (8, 20, 7), (300 * GB, 25 * GB, 25 * GB)),
        ("dgx-h100-superpod-256", (8, 32), (450 * GB, 50 * GB)),
        ("dgx-h100-superpod-1024", (8, 32, 4), (450 * GB, 50 * GB, 50 * GB)),
        ("gb200-nvl72-72", (72,), (900 * GB,)),
        ("gb200-nvl72-576", (72, 8), (900 * GB, 50 * GB)),
        ("h100-roce-6144", (8, 2, 192, 2), (450 * GB, 50 * GB, 50 * GB, 50 * GB / 7)),
        ("h100-roce-24576", (8, 2, 192, 8), (450 * GB, 50 * GB, 50 * GB, 50 * GB / 7)),
        ("paper-fat-tree-64", (8, 4, 2), (450 * GIB, 100 * GIB, 400 * GIB)),
        ("paper-spine-leaf-1024", (8, 4, 32), (450 * GIB, 12.5 * GIB, 50 * GIB)),
    ],
)
def test_levels(name: str, sizes: tuple[int, ...], each_way: tuple[float, ...]) -> None:
    levels = load_cluster(name).levels
    assert tuple(level.size for level in levels) == sizes
    rates = [level.bandwidth_bytes_per_second / level.oversubscription for level in levels]
    assert rates == pytest.approx(each_way)
    latencies = [level.latency_seconds for level in levels]
    assert latencies == sorted(latencies) and latencies[0] > 0


@pytest.mark.parametrize("name", [n for n in CLUSTERS if n.startswith("paper-")])
def test_latencies_of_the_paper_are_milliseconds(name: str) -> None:
    # 0.0001, 0.0002 and 0.0003 in its artifact.
    latencies = [level.latency_seconds for level in load_cluster(name).levels]
    assert latencies == [1e-7, 2e-7, 3e-7]


#: The set-ups of NEST give the outermost level more than the one below it.
WIDER_OUTSIDE = ("paper-", "nest/")


@pytest.mark.parametrize("name", CLUSTERS)
def test_no_traffic_is_faster_further_out(name: str) -> None:
    network = network_of(load_cluster(name))
    seconds = [link.seconds_per_byte for link in network.classes]
    assert seconds == sorted(seconds)
    levels = load_cluster(name).levels
    given = [level.oversubscription / level.bandwidth_bytes_per_second for level in levels]
    assert (given == sorted(given)) is not name.startswith(WIDER_OUTSIDE)
    latencies = [link.latency for link in network.classes]
    assert latencies == sorted(latencies)


@pytest.mark.parametrize(
    ("name", "gibibytes", "teraflops", "gigabytes_per_second"),
    [
        ("a100-64", 80, 312, 2039),
        ("h100-64", 80, 989.4, 3350),
        ("gb200-nvl72-72", 186e9 / GIB, 2500, 8000),
        ("tpuv4-torus-64", 32, 275, 1200),
        ("paper-fat-tree-64", 64, 275, 1200),
        ("paper-spine-leaf-64", 90, 989.4, 3350),
    ],
)
def test_devices(
    name: str, gibibytes: float, teraflops: float, gigabytes_per_second: float
) -> None:
    device = load_cluster(name).device
    assert device.memory_bytes == gibibytes * GIB
    assert device.peak_flops_per_second == teraflops * 10**12
    assert device.memory_bytes_per_second == gigabytes_per_second * GB
    assert 0.5 < device.matmul_efficiency < device.memory_efficiency < 1


def test_rails() -> None:
    network = network_of(load_cluster("h100-rail-64"))
    assert isinstance(network, GeneralNetwork)
    in_node, same_rail = network.class_of([0, 7]), network.class_of([0, 8])
    other_rail = network.class_of([0, 9])
    assert in_node < same_rail < other_rail
    cost = [network.classes[k] for k in (in_node, same_rail, other_rail)]
    assert [float(1 / c.seconds_per_byte) for c in cost] == pytest.approx([450e9, 50e9, 50e9])
    # Over two rails and the spine, 2 us + 2 * 0.3 us + 2 us; over NVLink it would be 5.9 us.
    assert [float(c.latency) for c in cost] == pytest.approx([1.9e-6, 4e-6, 4.6e-6])
    assert network.loss.largest == 0


def test_torus() -> None:
    network = network_of(load_cluster("tpuv4-torus-64"))
    # In rings of four no two devices are more than two hops apart, in three dimensions six.
    assert [round(float(c.latency) * 1e6) for c in network.classes] == [1, 2, 3, 4, 5, 6]
    assert {float(1 / c.seconds_per_byte) for c in network.classes} == {50e9}
    assert network.class_of([0, 1]) == 0 and network.class_of([0, 3]) == 0  # around the end
    assert network.class_of([0, 42]) == 5  # (2, 2, 2)


@pytest.mark.parametrize("name", [name for name in CLUSTERS if not name.startswith("nest/")])
def test_a_model_can_be_placed_on_it(name: str) -> None:
    compiled = compile_problem(load_problem(f"bert-large@{name}"))
    assert compiled.devices == load_cluster(name).devices
    assert compiled.all_reduce == ("hierarchical" if load_cluster(name).levels else "ring")
