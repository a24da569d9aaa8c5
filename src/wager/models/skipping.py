"""Modules left out of a paged graph, or multiplied by a gate: what layer-skip drafters and their search are made of.

A module is an attention or an MLP with its norms: what a residual sum adds to the stream. Module 2i is the attention of
layer i, 2i + 1 its MLP. Skipping one passes the stream by (SWIFT, 2410.06916).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import openvino as ov
from openvino import opset13 as op

from wager.errors import ModelError

GATES = "gates"
STREAM = "stream"  # what the first module reads; module i's result is output "module.i"
_ATTENTION = "PagedAttentionExtension"
_CACHES = ("key_cache.", "value_cache.")


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """A residual sum: ``node`` adds a module's result to its input ``side``, the stream."""

    node: Any
    side: int
    is_attention: bool

    @property
    def stream(self) -> Any:
        return self.node.input_value(self.side)

    @property
    def result(self) -> Any:
        return self.node.input_value(1 - self.side)


def skip(model: ov.Model, modules: Iterable[int]) -> None:
    """Leave modules out, with the K/V inputs of the attentions among them. Raises ModelError as ``residual_sums``."""
    sums = residual_sums(model)
    for i in modules:
        stream = sums[i].stream
        for reader in sums[i].node.output(0).get_target_inputs():
            reader.replace_source_output(stream)
    read = {node.get_name() for node in model.get_ordered_ops()}
    for parameter in model.get_parameters():
        readers = {reader.get_node().get_name() for reader in parameter.output(0).get_target_inputs()}
        if parameter.output(0).get_any_name().startswith(_CACHES) and not readers & read:
            model.remove_parameter(parameter)
    model.validate_nodes_and_infer_types()


def gate(model: ov.Model) -> None:
    """Multiply every module's result by an entry of the new input ``gates`` (modules,) f32: 1 keeps it, 0 skips it.

    New outputs (T, …, H): the stream before the first module, and every module's result before its gate. Raises
    ModelError as ``residual_sums``.
    """
    sums = residual_sums(model)
    gates = op.parameter([len(sums)], np.float32, name=GATES)
    gates.output(0).set_names({GATES})
    outputs = [(STREAM, sums[0].stream), *((f"module.{i}", each.result) for i, each in enumerate(sums))]
    for i, each in enumerate(sums):
        own = op.gather(gates, op.constant(np.array([i], np.int64)), op.constant(np.array(0, np.int64)))
        each.node.input(1 - each.side).replace_source_output(op.multiply(each.result, own).output(0))
    results = []
    for name, value in outputs:
        result = op.result(op.convert(value, "f32"))
        result.output(0).set_names({name})
        results.append(result)
    model.add_parameters([gates])
    model.add_results(results)
    model.validate_nodes_and_infer_types()


def residual_sums(model: ov.Model) -> list[_Sum]:
    """The sums that add modules to the residual stream, in order, attention and MLP in turn.

    Found from the last one back along the stream: of a sum's two inputs the stream is the one that the other is
    computed from. Raises ModelError where a graph is made in another way.
    """
    nodes = list(model.get_ordered_ops())
    place = {node.get_name(): i for i, node in enumerate(nodes)}
    sums = {node.get_name(): found for node in nodes if (found := _as_sum(node, place)) is not None}
    chain: list[_Sum] = []
    last = next(reversed(sums), None)
    while last in sums:
        chain.append(sums[last])
        last = chain[-1].stream.get_node().get_name()
    chain.reverse()
    n_attentions = sum(node.get_type_name() == _ATTENTION for node in nodes)
    if not chain or [each.is_attention for each in chain] != [True, False] * n_attentions:
        raise ModelError(
            f"this model has {n_attentions} attention layers and {len(chain)} residual sums in a row, where attention "
            "and MLP must take turns: its modules cannot be skipped, choose another drafter"
        )
    return chain


def _as_sum(node: Any, place: dict[str, int]) -> _Sum | None:
    terms = {value.get_node().get_type_name() for value in node.input_values()}
    if node.get_type_name() != "Add" or "Constant" in terms:
        return None
    for side in (0, 1):
        kinds = _between(node.input_value(side).get_node(), node.input_value(1 - side).get_node(), place)
        if kinds is not None:
            return _Sum(node, side, _ATTENTION in kinds)
    return None


def _between(source: Any, end: Any, place: dict[str, int]) -> set[str] | None:
    """Types of the nodes behind ``source`` that ``end`` is computed from; None where it does not depend on it."""
    first, found, kinds = place[source.get_name()], False, set[str]()
    waiting, seen = [end], {end.get_name()}
    while waiting:
        node = waiting.pop()
        kinds.add(node.get_type_name())
        for value in node.input_values():
            before = value.get_node()
            name = before.get_name()
            found = found or name == source.get_name()
            if name not in seen and place[name] > first:
                seen.add(name)
                waiting.append(before)
    return kinds if found else None
