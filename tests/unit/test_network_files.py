"""Networks read from files, the same one in every format, and files that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from nest_opt import InputError, load_problem
from nest_opt.files import canonical_json, read_numbers
from nest_opt.library import load_cluster
from nest_opt.network import network_of
from nest_opt.network_files import read_network


def graph() -> nx.Graph[str]:
    """Two devices on a switch; numbered against the order of the nodes."""
    found: nx.Graph[str] = nx.Graph()
    found.add_node("far", device=1)
    found.add_node("switch")
    found.add_node("near", device=0)
    found.add_edge("near", "switch", bandwidth_bytes_per_second=10.0, latency_seconds=0.5)
    found.add_edge("switch", "far", bandwidth_bytes_per_second=5.0)
    return found


def cluster_file(folder: Path, network: Any, devices: int = 2) -> Path:
    path = folder / "cluster.json"
    device = {"name": "device", "memory_bytes": 1000}
    data = {"name": "mine", "devices": devices, "device": device, "network": network}
    path.write_text(json.dumps(data))
    return path


def test_graphml_node_link_and_inline_are_one_network(tmp_path: Path) -> None:
    nx.write_graphml(graph(), tmp_path / "net.graphml")
    for edges in ("links", "edges"):
        data = nx.node_link_data(graph(), edges=edges)
        (tmp_path / f"{edges}.json").write_text(json.dumps(data))
    found = [
        load_cluster(str(cluster_file(tmp_path, name))).network
        for name in ("net.graphml", "links.json", "edges.json")
    ]
    assert found[0] == found[1] == found[2]
    assert found[0] is not None and found[0].kind == "graph"
    assert found[0].devices == ("near", "far")
    inline = json.loads(canonical_json(found[0].model_dump(mode="json")))
    assert load_cluster(str(cluster_file(tmp_path, inline))).network == found[0]
    (tmp_path / "own.json").write_text(json.dumps(inline))
    assert load_cluster(str(cluster_file(tmp_path, "own.json"))).network == found[0]
    assert len(network_of(load_cluster(str(cluster_file(tmp_path, inline)))).classes) == 1


def test_a_file_is_named_relative_to_the_cluster_that_mentions_it(tmp_path: Path) -> None:
    inner = tmp_path / "clusters"
    inner.mkdir()
    nx.write_graphml(graph(), inner / "net.graphml")
    cluster_file(inner, "net.graphml")
    data = load_problem("worked-example-160").to_dict()
    data["cluster"] = "clusters/cluster.json"
    data["training"]["all_reduce"] = "ring"
    (tmp_path / "problem.json").write_text(json.dumps(data))
    problem = load_problem(str(tmp_path / "problem.json"))
    assert problem.cluster.devices == 2
    # The problem holds the network itself, and needs the file no more.
    assert load_problem(problem.to_dict()) == problem


def test_a_csv_of_links(tmp_path: Path) -> None:
    path = tmp_path / "net.csv"
    path.write_bytes(
        b"\xef\xbb\xbfsource,target,bandwidth_bytes_per_second,latency_seconds\r\n"
        b"device.1,switch,5,0\r\n device.0 , switch,1e1,0.5\r\n\r\n"
    )
    assert read_network(path) == {
        "kind": "graph",
        "devices": ["device.0", "device.1"],
        "links": [
            {
                "source": "device.1",
                "target": "switch",
                "bandwidth_bytes_per_second": 5.0,
                "latency_seconds": 0.0,
            },
            {
                "source": "device.0",
                "target": "switch",
                "bandwidth_bytes_per_second": 10.0,
                "latency_seconds": 0.5,
            },
        ],
    }


def test_measured_matrices_in_csv_files(tmp_path: Path) -> None:
    (tmp_path / "latency.csv").write_text("0,1e-6\n2e-6,0\n")
    (tmp_path / "bandwidth.csv").write_text("0,1e9\n5e8,0\n")
    network = {
        "kind": "matrix",
        "latency_seconds": "latency.csv",
        "bandwidth_bytes_per_second": "bandwidth.csv",
    }
    cluster = load_cluster(str(cluster_file(tmp_path, network)))
    (link,) = network_of(cluster).classes
    assert (float(link.latency), float(link.seconds_per_byte)) == (2e-6, 2e-9)


def test_matrices_lie_beside_the_network_that_mentions_them(tmp_path: Path) -> None:
    inner = tmp_path / "measured"
    inner.mkdir()
    (inner / "latency.csv").write_text("0,1\n2,0\n")
    network = {
        "kind": "matrix",
        "latency_seconds": "latency.csv",
        "bandwidth_bytes_per_second": [[0, 1], [1, 0]],
    }
    (inner / "network.json").write_text(json.dumps(network))
    found = load_cluster(str(cluster_file(tmp_path, "measured/network.json"))).network
    assert found is not None and found.kind == "matrix"
    assert found.latency_seconds == ((0, 1), (2, 0))


def test_devices_that_are_marked_and_not_numbered_keep_their_order(tmp_path: Path) -> None:
    marked = graph()
    marked.nodes["far"]["device"] = marked.nodes["near"]["device"] = True
    (tmp_path / "net.json").write_text(json.dumps(nx.node_link_data(marked, edges="edges")))
    assert read_network(tmp_path / "net.json")["devices"] == ["far", "near"]


def test_directed_and_parallel_links_are_kept(tmp_path: Path) -> None:
    multi: nx.MultiDiGraph[str] = nx.MultiDiGraph()
    multi.add_node("a", device=0)
    multi.add_node("b", device=1)
    for rate in (1.0, 2.0):
        multi.add_edge("a", "b", bandwidth_bytes_per_second=rate)
    multi.add_edge("b", "a", bandwidth_bytes_per_second=3.0)
    (tmp_path / "net.json").write_text(json.dumps(nx.node_link_data(multi, edges="edges")))
    links = read_network(tmp_path / "net.json")["links"]
    assert [link["bandwidth_bytes_per_second"] for link in links] == [1, 2, 3]
    assert all(link["directed"] for link in links)


def test_a_csv_may_give_each_direction_a_row(tmp_path: Path) -> None:
    # One way 5, the other 7: the worse direction counts. Undirected, the rows would be two links
    # side by side, the faster of which serves both ways.
    path = tmp_path / "net.csv"
    head = "source,target,bandwidth_bytes_per_second,directed\n"
    for directed, rate in (("true", 5), ("", 7)):
        rows = f"device.0,device.1,5,{directed}\ndevice.1,device.0,7,{directed}\n"
        path.write_text(head + rows)
        (link,) = network_of(load_cluster(str(cluster_file(tmp_path, "net.csv")))).classes
        assert 1 / link.seconds_per_byte == rate


@pytest.mark.parametrize("declared", ["", '"multigraph": false, '])
def test_edges_between_the_same_nodes_are_all_kept(declared: str, tmp_path: Path) -> None:
    # networkx would keep the last alone where the file calls itself no multigraph.
    (tmp_path / "net.json").write_text(
        "{" + declared + '"nodes": [{"id": "a", "device": 0}, {"id": "b", "device": 1}], "edges": ['
        '{"source": "a", "target": "b", "bandwidth_bytes_per_second": 7},'
        '{"source": "b", "target": "a", "bandwidth_bytes_per_second": 5}]}'
    )
    links = read_network(tmp_path / "net.json")["links"]
    assert sorted(link["bandwidth_bytes_per_second"] for link in links) == [5, 7]


#: Two devices, and an edge with more: networkx reads what follows without a word and loses some.
PAIR = '{"id": "a", "device": 0}, {"id": "b", "device": 1}'
EDGE = '{"source": "a", "target": "b", "bandwidth_bytes_per_second": 5%s}'


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (f'{PAIR}, {{"id": "a", "device": 2}}', EDGE % "", "node a: is the name of 2 nodes"),
        (
            PAIR,
            EDGE % ', "key": 0' + ", " + EDGE % ', "key": 0',
            "of 2, 1 were read; give edges between the same nodes different ids",
        ),
        (
            PAIR,
            EDGE % "" + ', {"source": "a", "target": "B", "bandwidth_bytes_per_second": 5}',
            "node B: has an edge, but is not among the nodes",
        ),
        (PAIR, EDGE % ', "latency": 1', "edge a - b: latency would not be read"),
        (PAIR, EDGE % ', "bandwidth": 1', "edge a - b: bandwidth would not be read"),
        (PAIR, EDGE % ', "directed": true', "edge a - b: directed would not be read"),
    ],
)
def test_nothing_is_passed_over_in_silence(
    nodes: str, edges: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "net.json").write_text(f'{{"nodes": [{nodes}], "edges": [{edges}]}}')
    with pytest.raises(InputError) as caught:
        read_network(tmp_path / "net.json")
    assert message in str(caught.value)


HEAD = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d" for="node" attr.name="device" attr.type="boolean"><default>%s</default></key>
<key id="b" for="edge" attr.name="bandwidth_bytes_per_second" attr.type="double"/>
<key id="l" for="edge" attr.name="latency_seconds" attr.type="double"><default>2</default></key>
"""
NODES = '<node id="a"/><node id="b"/><node id="s"><data key="d">false</data></node>'


def graphml_edge(source: str, target: str, more: str = "", data: str = "") -> str:
    return f'<edge source="{source}" target="{target}" {more}><data key="b">5</data>{data}</edge>'


def test_defaults_of_graphml_hold_where_nothing_is_said(tmp_path: Path) -> None:
    edges = graphml_edge("a", "s") + graphml_edge("s", "b", data='<data key="l">1</data>')
    body = f'<graph edgedefault="undirected">{NODES}{edges}</graph></graphml>'
    path = tmp_path / "net.GraphML"
    path.write_text(HEAD % "true" + body)
    found = read_network(path)
    assert found["devices"] == ["a", "b"]
    assert sorted(link["latency_seconds"] for link in found["links"]) == [1, 2]
    path.write_text(HEAD % "false" + body)
    with pytest.raises(InputError, match="has no devices"):
        read_network(path)


@pytest.mark.parametrize(
    ("graphs", "message"),
    [
        ([NODES + graphml_edge("a", "b", 'id="x"') * 2], "of 2, 1 were read"),
        ([NODES + graphml_edge("a", "b"), graphml_edge("a", "b")], "of 2, 1 were read"),
        ([NODES, '<node id="c"/>'], "node c: was not read; a file has one graph"),
        ([NODES + '<node id="b"/>'], "node b: is the name of 2 nodes"),
        ([NODES + graphml_edge("a", "c")], "node c: has an edge, but is not among the nodes"),
        ([NODES + "<hyperedge/>"], "hyperedges"),
        ([NODES + graphml_edge("a", "b", 'directed="true"')], "directed=true edge"),
    ],
)
def test_nothing_of_graphml_is_passed_over_in_silence(
    graphs: list[str], message: str, tmp_path: Path
) -> None:
    body = "".join(f'<graph edgedefault="undirected">{inside}</graph>' for inside in graphs)
    (tmp_path / "net.graphml").write_text(f"{HEAD % 'true'}{body}</graphml>")
    with pytest.raises(InputError) as caught:
        read_network(tmp_path / "net.graphml")
    assert message in str(caught.value)


LAUGHS = """<?xml version="1.0"?>
<!DOCTYPE lolz [<!ENTITY lol "lol"><!ENTITY lol2 "&lol;&lol;&lol;&lol;&lol;&lol;&lol;&lol;">]>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><graph edgedefault="directed">
<node id="&lol2;"/></graph></graphml>"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_no_encoding_hides_an_entity(encoding: str, tmp_path: Path) -> None:
    text = LAUGHS.replace('version="1.0"', f'version="1.0" encoding="{encoding}"')
    (tmp_path / "net.graphml").write_bytes(text.encode(encoding))
    with pytest.raises(InputError, match="DOCTYPE or ENTITY"):
        read_network(tmp_path / "net.graphml")


def test_a_comment_about_entities_is_no_entity(tmp_path: Path) -> None:
    nx.write_graphml(graph(), tmp_path / "net.graphml")
    text = (tmp_path / "net.graphml").read_text()
    (tmp_path / "net.graphml").write_text(f"{text}<!-- no <!DOCTYPE or <!ENTITY here -->")
    assert read_network(tmp_path / "net.graphml")["devices"] == ["near", "far"]


@pytest.mark.parametrize("rate", ["nan", "inf"])
def test_graphml_without_a_finite_bandwidth_is_refused(rate: str, tmp_path: Path) -> None:
    bad = graph()
    bad.edges["near", "switch"]["bandwidth_bytes_per_second"] = float(rate)
    nx.write_graphml(bad, tmp_path / "net.graphml")
    with pytest.raises(InputError, match=r"edge (switch - near|near - switch):") as caught:
        read_network(tmp_path / "net.graphml")
    assert f"bandwidth_bytes_per_second must be a number (found {rate})" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("net.graphml", LAUGHS, "DOCTYPE or ENTITY"),
        ("net.graphml", "not xml", "is not GraphML"),
        ("net.graphml", "<graphml></graphml>", "is not GraphML"),
        ("net.graphml", "", "is not GraphML"),
        ("net.json", "[]", "is neither a network nor a graph"),
        ("net.json", '{"nodes": 3, "links": []}', "node-link form"),
        ("net.json", '{"nodes": [{}], "edges": []}', "node-link form: 'id' is missing"),
        ("net.json", '{"nodes": [{"id": true}], "edges": []}', "node True: an id must be text"),
        ("net.json", '{"nodes": [], "edges": [], "links": []}', "keep one of the two"),
        ("net.json", '{"nodes": [], "edges": [], "directed": "no"}', "must be true or false"),
        ("net.json", '{"nodes": [{"id": 1}], "edges": []}', "has no devices"),
        (
            "net.json",
            '{"nodes": [{"id": "a", "device": 1}, {"id": "b", "device": true}], "edges": []}',
            "node a: device must be true, as at node b, or all must be numbers (found 1)",
        ),
        (
            "net.json",
            '{"nodes": [{"id": 1, "device": true}], "edges": [{"source": 1}]}',
            "node-link",
        ),
        ("net.json", '{"nodes": [{"id": 1, "device": 1}], "edges": []}', "none with number 0"),
        (
            "net.json",
            '{"nodes": [{"id": 1, "device": "a"}], "edges": []}',
            "must be true, or a num",
        ),
        ("net.json", '{"nodes": [{"id": 1, "device": -1}], "edges": []}', "from 0 on"),
        (
            "net.json",
            '{"nodes": [{"id": 1, "device": 0}, {"id": 2, "device": 0}], "edges": []}',
            "is device 0, and so is node 1",
        ),
        (
            "net.json",
            '{"nodes": [{"id": 1, "device": 0}, {"id": "1", "device": 1}], "edges": []}',
            "node 1: is the name of 2 nodes",
        ),
        (
            "net.json",
            '{"nodes": [{"id": 1, "device": true}], "edges": [{"source": 1, "target": 1}]}',
            "edge 1 - 1: bandwidth_bytes_per_second must be a number",
        ),
        ("net.csv", "", "is empty"),
        ("net.csv", "from,to,rate\n", "column from: unknown"),
        ("net.csv", "source,target,bandwidth_bytes_per_second\na,b\n", "line 2: has 2 cells"),
        ("net.csv", "source,target,bandwidth_bytes_per_second\na,b,nan\n", "must be a number"),
        ("net.csv", "source,target,bandwidth_bytes_per_second\na,b,1_0\n", "must be a number"),
        ("net.csv", "source,target,bandwidth_bytes_per_second\na,b,5\n", "has no devices"),
        (
            "net.csv",
            "source,target,bandwidth_bytes_per_second\ndevice.0,device.01,5\n",
            "device.01: is no number of a device",
        ),
        (
            "net.csv",
            "source,target,bandwidth_bytes_per_second,directed\ndevice.0,device.1,5,maybe\n",
            "directed: must be true or false",
        ),
        ("net.csv", 'source,target,bandwidth_bytes_per_second\n"a,b,5\n', "is not CSV"),
    ],
)
def test_refused_with_a_reason(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError) as caught:
        read_network(tmp_path / name)
    assert message in str(caught.value) and name in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "has no rows"), ("1,two\n", "line 1, column 2"), ("1,inf\n", "must be a number")],
)
def test_matrices_that_are_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_numbers(tmp_path / "m.csv")


@pytest.mark.parametrize("network", ["none.graphml", "none.csv", "none.json", "."])
def test_files_that_are_missing_are_named_with_their_field(network: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_cluster(str(cluster_file(tmp_path, network)))
    assert "network: " in str(caught.value)


def test_negative_bandwidth_is_refused_where_the_cluster_is_read(tmp_path: Path) -> None:
    bad = graph()
    bad.edges["near", "switch"]["bandwidth_bytes_per_second"] = -1.0
    nx.write_graphml(bad, tmp_path / "net.graphml")
    with pytest.raises(InputError, match=r"network.links\[\d\].bandwidth_bytes_per_second"):
        load_cluster(str(cluster_file(tmp_path, "net.graphml")))
