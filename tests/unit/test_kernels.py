"""Our kernels against numpy, and their promise: a row's bits depend on that row alone, on either instruction set."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov
import pytest
from openvino import opset13 as op

from places import KERNELS
from wager.compiled import compile_to
from wager.machine import cpu
from wager.models.kernels import Kernels, kernels, passes
from wager.models.kernels.build import CODE
from wager.types import F32, Batch

BLOCK = 32


@pytest.fixture(scope="module", params=["native", "haswell"])
def own(request: pytest.FixtureRequest) -> Kernels:
    """The kernels for this processor, and those for one with AVX2 only."""
    patch = pytest.MonkeyPatch()
    patch.setenv("WAGER_KERNELS", str(KERNELS))
    found, reason = kernels()
    patch.undo()
    if found is None:
        pytest.skip(str(reason))
    if request.param == "native":
        return found
    if not {"avx2", "f16c"} <= set(cpu()["flags"]):
        pytest.skip("no AVX2")
    path = found.path.with_name(f"{found.key}-{request.param}.so")
    if not path.is_file():
        made = path.with_name(f"{path.name}.{id(path)}")
        compile_to(made, CODE, "c++", march=request.param)
        made.replace(path)
    return Kernels(path, request.param)


def rounded(x: F32) -> tuple[npt.NDArray[np.float64], F32]:
    """Activations (n, cols) as the kernel rounds them: whole numbers (n, groups, 32) and their scales."""
    groups = x.reshape(len(x), -1, 32)
    most = np.abs(groups).max(-1, keepdims=True)
    inverse = np.where(most > 0, np.float32(127) / np.where(most > 0, most, 1), 0).astype(np.float32)
    return np.rint(groups * inverse).astype(np.float64), most / np.float32(127)


def weights_graph(
    kind: str, rows: int, cols: int, size: int, *, zero: bool, half: bool, seed: int
) -> tuple[ov.Model, F32]:
    """x (?, cols) times weights in ``kind`` in groups of ``size``; and the weights (rows, cols)."""
    rng = np.random.default_rng(seed)
    shape = [rows, cols // size, size]
    low, high = {"u4": (0, 16), "i4": (-8, 8), "u8": (0, 256), "i8": (-128, 128)}[kind]
    codes = rng.integers(low, high, shape)
    element = {"u4": ov.Type.u4, "i4": ov.Type.i4, "u8": ov.Type.u8, "i8": ov.Type.i8}[kind]
    tensor = ov.Tensor(element, ov.Shape(shape))
    flat = (codes & 255).astype(np.uint8).reshape(-1)
    raw = flat if kind in ("u8", "i8") else (flat[0::2] & 15) | (flat[1::2] & 15) << 4
    tensor.data.view(np.uint8).reshape(-1)[:] = raw
    scale = rng.uniform(0.001, 0.01, (rows, cols // size, 1)).astype(np.float16 if half else np.float32)
    zeros = rng.uniform(low, high, scale.shape).astype(np.float32)
    node = op.convert(ov.op.Constant(tensor), "f32")
    if zero:
        node = op.subtract(node, op.constant(zeros))
    node = op.multiply(node, op.convert(op.constant(scale), "f32"))
    x = op.parameter([-1, cols], np.float32, name="x")
    product = op.matmul(x, op.reshape(node, op.constant(np.array([rows, cols])), False), False, True)
    values = (codes - (zeros if zero else 0)) * scale.astype(np.float32)
    return ov.Model([product], [x]), values.reshape(rows, cols).astype(np.float32)


def compiled(own: Kernels, graph: ov.Model, threads: int = 2) -> Any:
    core = ov.Core()
    own.extend(core)
    return core.compile_model(graph, "CPU", {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads})


FORMS = [
    ("i8", 32, False, True),
    ("i8", 32, False, False),
    ("i8", 96, True, True),
    ("u8", 32, True, False),
    ("u8", 64, False, True),
    ("u4", 32, True, True),
    ("u4", 64, True, False),
    ("i4", 32, False, True),
    ("i4", 192, False, False),
]


@pytest.mark.parametrize(("kind", "size", "zero", "half"), FORMS)
def test_a_product_is_what_numpy_makes_of_the_same_rounding(
    own: Kernels, kind: str, size: int, zero: bool, half: bool
) -> None:
    graph, weights = weights_graph(kind, 48, 192, size, zero=zero, half=half, seed=1)
    packed: dict[passes.Stored, passes.Packed] = {}
    assert passes.own_products(graph, own, packed) == 1
    run = compiled(own, graph)
    x = np.random.default_rng(2).normal(size=(70, 192)).astype(np.float32)
    x[3, :32] = 0
    codes, scales = rounded(x)
    expected = (codes * scales).reshape(70, 192) @ weights.T.astype(np.float64)
    assert np.abs(run(x)[0] - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize(("kind", "size", "zero", "half"), FORMS[::4])
def test_bits_of_a_row_do_not_depend_on_rows_beside_it_or_threads(
    own: Kernels, kind: str, size: int, zero: bool, half: bool
) -> None:
    graph, _ = weights_graph(kind, 80, 384, size, zero=zero, half=half, seed=3)
    packed: dict[passes.Stored, passes.Packed] = {}
    passes.own_products(graph, own, packed)
    rng = np.random.default_rng(4)
    x = rng.normal(size=(150, 384)).astype(np.float32)
    whole = compiled(own, graph)(x)[0].copy()
    one = compiled(own, graph, threads=1)
    for n in (*range(1, 19), 64, 65):
        picked = rng.integers(0, len(x), n)
        assert np.array_equal(one(x[picked])[0], whole[picked]), n


def test_eight_bits_that_came_from_four_are_four_again(own: Kernels) -> None:
    """Exactly where the levels are whole codes apart, to a code where they are not, and not at all for other codes."""
    rng = np.random.default_rng(10)
    q = rng.integers(0, 16, (60, 5, 32))
    k, shift = rng.integers(1, 17, (60, 5, 1)), rng.integers(-127, 0, (60, 5, 1))
    codes = k * q + np.minimum(shift, 127 - 15 * k)
    codes[7, 2] = -5  # all the same
    found = own.levels(codes.astype(np.int8))
    assert found is not None
    q4, steps, starts = found
    assert q4.max() <= 15
    assert np.array_equal(starts[..., None] + steps[..., None] * q4, codes)
    uneven = np.rint(rng.uniform(-127, -120, (60, 5, 1)) + rng.uniform(15, 16, (60, 5, 1)) * q).astype(np.int8)
    found = own.levels(uneven)
    assert found is not None
    assert np.abs(found[2][..., None] + found[1][..., None] * found[0] - uneven).max() <= 1
    assert own.levels(rng.integers(-127, 128, (60, 5, 32)).astype(np.int8)) is None
    codes[3, 1] = rng.integers(-127, 128, 32)
    assert own.levels(codes.astype(np.int8)) is None


def test_a_product_of_such_weights_takes_half_the_bytes(own: Kernels) -> None:
    rng = np.random.default_rng(11)
    codes = (9 * rng.integers(0, 16, (48, 6, 32)) - 60).astype(np.int8)
    scale = rng.uniform(0.001, 0.01, (48, 6, 1)).astype(np.float16)
    node = op.multiply(op.convert(op.constant(codes), "f32"), op.convert(op.constant(scale), "f32"))
    x = op.parameter([-1, 192], np.float32, name="x")
    graph = ov.Model([op.matmul(x, op.reshape(node, op.constant(np.array([48, 192])), False), False, True)], [x])
    packed: dict[passes.Stored, passes.Packed] = {}
    assert passes.own_products(graph, own, packed) == 1
    assert [p.bits for p in packed.values()] == [4]
    values = rng.normal(size=(5, 192)).astype(np.float32)
    whole, scales = rounded(values)
    weights = (codes * scale.astype(np.float64)).reshape(48, 192)
    expected = (whole * scales).reshape(5, 192) @ weights.T
    assert np.abs(compiled(own, graph)(values)[0] - expected).max() < 1e-3 * np.abs(expected).max()


def test_a_gated_product_is_silu_of_one_half_times_the_other(own: Kernels) -> None:
    graph, weights = weights_graph("i8", 48, 192, 32, zero=False, half=True, seed=12)
    x = op.parameter([-1, 384], np.float32, name="both")
    halves = op.variadic_split(x, op.constant(np.array(-1)), op.constant(np.array([192, 192])))
    gated = op.multiply(op.swish(halves.output(0)), halves.output(1))
    product = graph.get_results()[0].input_value(0).get_node()
    product.input(0).replace_source_output(gated.output(0))
    made = ov.Model([product], [x])
    packed: dict[passes.Stored, passes.Packed] = {}
    assert passes.own_products(made, own, packed) == 1
    assert {node.get_type_name() for node in made.get_ops()} == {"Parameter", "WagerProduct", "Result"}
    run = compiled(own, made)
    values = np.random.default_rng(13).normal(size=(9, 384), scale=4).astype(np.float32)
    values[2, :5] = (-100, 100, 0, -1e30, 1e-30)
    gate, up = values[:, :192].astype(np.float64), values[:, 192:]
    codes, scales = rounded((gate * np.exp(-np.logaddexp(0, -gate)) * up).astype(np.float32))
    expected = (codes * scales).reshape(9, 192) @ weights.T.astype(np.float64)
    found = run(values)[0]
    assert np.abs(found - expected).max() < 5e-3 * np.abs(expected).max()  # a rounding that falls the other way
    assert np.median(np.abs(found - expected)) < 1e-5 * np.abs(expected).max()
    assert np.array_equal(run(values[4:5])[0], found[4:5])


def test_what_the_kernel_does_not_know_stays_with_the_plugin(own: Kernels) -> None:
    odd, _ = weights_graph("i8", 40, 64, 32, zero=False, half=True, seed=5)  # 40 outputs are no whole tiles
    x = op.parameter([-1, 64], np.float32)
    plain = ov.Model([op.matmul(x, op.constant(np.ones((16, 64), np.float32)), False, True)], [x])
    packed: dict[passes.Stored, passes.Packed] = {}
    assert [passes.own_products(graph, own, packed) for graph in (odd, plain)] == [0, 0]
    assert not packed


@dataclass(frozen=True)
class Heads:
    n: int
    kv: int
    size: int
    window: int = 0


class Attention:
    """One layer of the attention kernel over its own K/V memory."""

    def __init__(self, own: Kernels, heads: Heads, n_blocks: int = 24, threads: int = 2) -> None:
        self.heads = heads
        width, kv_width = heads.n * heads.size, heads.kv * heads.size
        inputs = [
            op.parameter([-1, w], np.float32, name=name)
            for name, w in zip("qkv", (width, kv_width, kv_width), strict=True)
        ]
        shape = [n_blocks, heads.kv, BLOCK, 2 * heads.size]
        self._caches = [np.full(shape, 0xFF, np.uint8) for _ in "kv"]  # f16 NaN wherever nothing was written
        layout = op.parameter([-1], np.int32, name="layout")
        attributes = {"heads": heads.n, "kv_heads": heads.kv, "size": heads.size, "window": heads.window, "scale": 0.3}
        at = dict(zip(("keys", "values"), (int(c.ctypes.data) for c in self._caches), strict=True))
        node = own.make("WagerAttention", [p.output(0) for p in (*inputs, layout)], {**attributes, **at})
        self._request = compiled(own, ov.Model([node.output(0)], [*inputs, layout]), threads)

    def __call__(self, q: F32, k: F32, v: F32, batch: Batch) -> F32:
        return np.array(self._request([q, k, v, passes.layout_of(batch)])[0])


def batch_of(*seqs: tuple[int, int, list[int]], masks: tuple[npt.NDArray[np.uint8] | None, ...] | None = None) -> Batch:
    """Subsequences of (rows, past, blocks)."""
    starts = np.cumsum([0, *(n for n, _, _ in seqs)])
    blocks = [blocks[: -(-(past + n) // BLOCK)] for n, past, blocks in seqs]
    return Batch(
        tokens=np.zeros(starts[-1], np.int64),
        positions=np.zeros(starts[-1], np.int64),
        past=np.array([past for _, past, _ in seqs], np.int32),
        starts=starts.astype(np.int32),
        blocks=np.array([b for table in blocks for b in table], np.int32),
        block_starts=np.cumsum([0, *map(len, blocks)]).astype(np.int32),
        rows=np.zeros(0, np.int64),
        masks=masks,
    )


def reference(q: F32, k: F32, v: F32, heads: Heads) -> npt.NDArray[np.float64]:
    """Attention of a whole sequence (n, …) in float64 over keys and values rounded to f16."""
    n, group = len(q), heads.n // heads.kv
    keys, values = (x.astype(np.float16).astype(np.float64).reshape(n, heads.kv, heads.size) for x in (k, v))
    queries = q.astype(np.float64).reshape(n, heads.n, heads.size)
    out = np.zeros_like(queries)
    for i in range(n):
        first = max(0, i + 1 - heads.window) if heads.window else 0
        for h in range(heads.n):
            scores = keys[first : i + 1, h // group] @ queries[i, h] * 0.3
            weights = np.exp(scores - scores.max())
            out[i, h] = weights / weights.sum() @ values[first : i + 1, h // group]
    return out.reshape(n, -1)


def qkv(heads: Heads, n: int, seed: int) -> tuple[F32, F32, F32]:
    rng = np.random.default_rng(seed)
    widths = (heads.n * heads.size, heads.kv * heads.size, heads.kv * heads.size)
    q, k, v = (rng.normal(size=(n, width)).astype(np.float32) for width in widths)
    return q, k, v


SHAPES = [Heads(9, 3, 64), Heads(4, 2, 16), Heads(4, 1, 256, window=40), Heads(7, 7, 80), Heads(6, 3, 64, window=7)]


@pytest.mark.parametrize("heads", SHAPES, ids=str)
def test_attention_is_what_numpy_makes_of_it(own: Kernels, heads: Heads) -> None:
    q, k, v = qkv(heads, 100, seed=6)
    out = Attention(own, heads)(q, k, v, batch_of((100, 0, [5, 2, 9, 3])))
    assert np.abs(out - reference(q, k, v, heads)).max() < 2e-5


@pytest.mark.parametrize("heads", SHAPES, ids=str)
def test_bits_do_not_depend_on_how_a_sequence_is_fed(own: Kernels, heads: Heads) -> None:
    """In chunks of any width, one row included, beside another sequence, with one thread; NaN where nothing is."""
    q, k, v = qkv(heads, 100, seed=7)
    whole = Attention(own, heads)(q, k, v, batch_of((100, 0, [5, 2, 9, 3])))
    other = qkv(heads, 40, seed=8)
    for width, beside in ((1, False), (2, True), (7, True), (33, False)):
        layer, at, rows = Attention(own, heads, threads=1 + beside), 0, []
        while at < 100:
            n = min(width, 100 - at)
            seqs = [(n, at, [5, 2, 9, 3])]
            parts = [x[at : at + n] for x in (q, k, v)]
            if beside:
                seqs.insert(0, (40, 0, [0, 1]))
                parts = [np.concatenate([o, x]) for o, x in zip(other, parts, strict=True)]
            rows.append(layer(*parts, batch_of(*seqs))[-n:])
            at += n
        assert np.array_equal(np.concatenate(rows), whole), (width, beside)


@pytest.mark.parametrize("heads", SHAPES, ids=str)
@pytest.mark.parametrize("past", [5, 31, 60])
def test_a_node_of_a_tree_gets_the_bits_of_its_path_as_a_chain(own: Kernels, heads: Heads, past: int) -> None:
    parents = [-1, 0, 1, 0, 3, -1, 5, 4]
    paths = []
    for i, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), i])
    mask = np.zeros((len(parents), len(parents)), np.uint8)
    for i, path in enumerate(paths):
        mask[i, path] = 1
    n = past + len(parents)
    q, k, v = qkv(heads, n, seed=9)
    layer = Attention(own, heads)
    layer(q[:past], k[:past], v[:past], batch_of((past, 0, [1, 2, 3])))
    tree = layer(q[past:], k[past:], v[past:], batch_of((len(parents), past, [1, 2, 3]), masks=(mask,)))
    for i, path in enumerate(paths):
        at = [*range(past), *(past + j for j in path)]
        chain = Attention(own, heads)(q[at], k[at], v[at], batch_of((len(at), 0, [4, 5, 6])))
        assert np.array_equal(tree[i], chain[-1]), i


def test_products_of_one_name_have_their_own_weights(own: Kernels) -> None:
    """A merged product is named by a counter, and may be named like one that the file holds."""
    graphs = [weights_graph("i8", 48, 64, 32, zero=False, half=True, seed=seed) for seed in (14, 15)]
    x = op.parameter([-1, 64], np.float32, name="x")
    products = [graph.get_results()[0].input_value(0).get_node() for graph, _ in graphs]
    for product in products:
        product.set_friendly_name("MatMul_1")
        product.input(0).replace_source_output(x.output(0))
    both = ov.Model([product.output(0) for product in products], [x])
    packed: dict[passes.Stored, passes.Packed] = {}
    assert passes.own_products(both.clone(), own, packed) == passes.own_products(both, own, packed) == 2
    assert len(packed) == 2  # shared by both graphs
    values = np.random.default_rng(16).normal(size=(3, 64)).astype(np.float32)
    codes, scales = rounded(values)
    found = compiled(own, both)(values)
    for i, (_, weights) in enumerate(graphs):
        assert np.allclose(found[i], (codes * scales).reshape(3, 64) @ weights.T, atol=1e-4)


def test_scales_of_inputs_are_not_taken_for_scales_of_outputs(own: Kernels) -> None:
    rng = np.random.default_rng(17)
    node = op.convert(op.constant(rng.integers(-128, 128, (64, 64)).astype(np.int8)), "f32")
    node = op.multiply(node, op.constant(rng.uniform(0.1, 1, 64).astype(np.float32)))
    x = op.parameter([-1, 64], np.float32)
    assert passes.own_products(ov.Model([op.matmul(x, node, False, True)], [x]), own, {}) == 0


def test_two_requests_at_once_do_not_disturb_each_other(own: Kernels) -> None:
    graph, _ = weights_graph("u4", 256, 512, 32, zero=True, half=True, seed=18)
    packed: dict[passes.Stored, passes.Packed] = {}
    passes.own_products(graph, own, packed)
    run = compiled(own, graph)
    rng = np.random.default_rng(19)
    inputs = [rng.normal(size=(n, 512)).astype(np.float32) for n in (70, 90, 65)]
    expected = [run(x)[0].copy() for x in inputs]

    def again(i: int) -> bool:
        request = run.create_infer_request()
        return all(np.array_equal(request.infer([inputs[i]])[0], expected[i]) for _ in range(40))

    with ThreadPoolExecutor(3) as pool:
        assert all(pool.map(again, range(3)))


def test_activations_too_small_to_divide_by_are_nothing(own: Kernels) -> None:
    graph, _ = weights_graph("i8", 16, 64, 32, zero=False, half=True, seed=20)
    packed: dict[passes.Stored, passes.Packed] = {}
    passes.own_products(graph, own, packed)
    assert not compiled(own, graph)(np.full((1, 64), 1e-40, np.float32))[0].any()
