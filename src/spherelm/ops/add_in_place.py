"""A torch.compile pass that adds a product to its addend in place.

In the backward of an nGPT block, the gradient of h is that passed on by the update, plus a product.
PyTorch's addmm first copies the addend to the result, then adds the product: 1.5 of the 189 ms of a
step of the 0.5B model on an H200. The copy is unnecessary if the addend is a fresh result of our
own operator that nothing else reads.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node


@torch.library.custom_op("spherelm::add_product_", mutates_args=("total",))
def add_product_(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b.  total: (N, M), a: (N, K), b: (K, M)"""
    total.addmm_(a, b)


class AddInPlace(CustomGraphPass):
    """Turns addmm(c, a, b) into `add_product_(c, a, b)` if nothing else reads c."""

    def __call__(self, graph: Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default):
            total = node.args[0]
            if node.kwargs or not _is_fresh(total, node):
                continue
            with graph.inserting_before(node):
                graph.call_function(torch.ops.spherelm.add_product_.default, node.args)
            node.replace_all_uses_with(total)
            graph.erase_node(node)

    def uuid(self) -> Any:
        """The key of this pass in the compiler's cache."""
        return get_hash_for_files((__file__,))


def _is_fresh(total: Any, node: Node) -> bool:
    """Whether `total` is a result of our operators, of the sum's shape, and read only here."""
    if not isinstance(total, Node) or total.target is not operator.getitem:
        return False
    made_by = total.args[0]
    if not isinstance(made_by, Node) or getattr(made_by.target, "namespace", "") != "spherelm":
        return False
    same = total.meta["val"].shape == node.meta["val"].shape
    return same and set(total.users) == {node}


ADD_IN_PLACE = AddInPlace()
