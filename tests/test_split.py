"""A graph is cut where the device changes."""

import pytest

from helpers.plans import toy_graph
from syncscope.sched_core.graph import HOST
from syncscope.sched_core.split import split_graph


def test_a_split_is_a_maximal_run_of_one_device():
    splits = split_graph(toy_graph(HOST, HOST, 0, 0, 0, 1))
    assert [each.device for each in splits] == [HOST, 0, 1]
    assert [[node.site for node in each.nodes] for each in splits] == [
        ["n0", "n1"],
        ["n2", "n3", "n4"],
        ["n5"],
    ]


def test_splits_keep_every_node_in_order():
    graph = toy_graph(0, HOST, 0, 1, 1, HOST)
    nodes = tuple(node for each in split_graph(graph) for node in each.nodes)
    assert nodes == graph.nodes


def test_inputs_are_what_lives_elsewhere_once_each_in_the_order_of_first_use():
    host, device = split_graph(toy_graph(HOST, 0, 0))
    assert host.inputs == ()
    assert device.inputs == ("x0", "ids")


def test_a_host_split_needs_what_a_device_computed():
    assert split_graph(toy_graph(0, HOST))[1].inputs == ("x0",)


def test_what_another_device_computed_is_an_input():
    assert split_graph(toy_graph(0, 1))[1].inputs == ("x0", "ids")


@pytest.mark.parametrize("device", [HOST, 0])
def test_one_device_is_one_split(device):
    assert len(split_graph(toy_graph(device, device, device))) == 1


def test_an_empty_graph_has_no_split():
    assert split_graph(toy_graph()) == ()
