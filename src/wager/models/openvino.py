"""A target (or draft) model on OpenVINO's CPU plugin: paged graph, our own K/V tensors, few widths."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from weakref import proxy

import numpy as np
import numpy.typing as npt
import openvino as ov

from wager.errors import CapacityError, ModelError
from wager.models import graph
from wager.models.kernels import kernels, passes
from wager.models.lanes import OWN, PLUGIN, Lane, Lanes
from wager.models.profiles import Profile, profile_named
from wager.types import Batch, Forward, RowsRule
from wager.wide import prepare as prepare_wide

BLOCK_SIZE = 32  # fixed by the CPU plugin
_MIN_BLOCKS = 24  # what the self-check needs to read a block and a bit beside two other sequences
_FULL_CONTEXTS = 8  # that many are plenty unless kv_cache_gb asks for more
_PLUGIN_GRAPHS = (1, 2, 4, 8)  # that may get a graph of their own, where each graph holds the weights once more
_OWN_GRAPHS = (1, 8, 4, 16, 32, 64)  # rows; with our kernels they take fewer, too, at about the price of that number
_SMALL_MODEL_BYTES = 400 << 20  # above this such a graph takes too much memory, and saves too little (fact 11)
_LAYOUT_SIZE = 4096  # numbers that tell a graph of a fixed width where sequences lie; beyond, the one that takes any


class OpenVINOModel:
    """``types.Model`` over an IR folder, its profile by name or made to measure.

    ``prepare`` may change the graph, as it is in the folder, before anything else does.
    Raises ModelError where the folder cannot be read as a language model, CapacityError where K/V memory is too small.
    """

    def __init__(
        self,
        ir_dir: Path,
        *,
        profile: str | Profile = "fast",
        threads: int | None = None,
        kv_cache_bytes: int | None = None,
        context_length: int = 1 << 20,
        prepare: Callable[[ov.Model], object] | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self._core = ov.Core()
        self._graph = read_graph(self._core, ir_dir)
        if prepare is not None:
            prepare(self._graph)
        if isinstance(profile, str):
            profile = profile_named(profile, threads=threads, weights_group=graph.weights_group(self._graph))
        self._kernels, self.kernels_reason = (
            kernels(progress) if profile.kernels else (None, f"not in `{profile.name}`")
        )
        prepare_wide(progress)  # what samples of it need, while the user sees that something is made
        self._in_use = np.zeros(2, np.int32)  # rows of a forward, and those with logits: graphs read it
        self._packed: dict[passes.Stored, passes.Packed] = {}
        self.profile = profile if self._kernels is None else profile.with_kernels()
        merged = graph.merge_products(self._graph) if profile.merge_products else 0
        self.passes: dict[str, int] = {"merge_products": merged, **graph.page(self._graph, masks=profile.masks)}
        if not self.passes["paged_attention"]:
            raise ModelError(f"`{ir_dir}` has no attention this engine can page: export it with optimum-cli")
        self.context_length = context_length
        self.max_rows = 512
        self.kv_owner: object = None
        self._own_shapes = {} if self._kernels is None else passes.cache_shapes(self._graph)
        self._caches: list[Any] = []
        if self._own_shapes:
            blocks = [(ov.Type.u8, self._own_shapes[port.get_any_name()]) for port in _cache_ports(self._graph)]
            self._caches = self._allocate(blocks, kv_cache_bytes)
        wide = self._compile()
        self._promise_no_more(profile.rules)
        if not self._own_shapes:
            self._caches = self._allocate([_block_of(port) for port in _cache_ports(wide)], kv_cache_bytes)
        self.lanes_are_cheap = bool(self._packed and self._own_shapes)  # all graphs share weights and K/V
        small = (ir_dir / "openvino_model.bin").stat().st_size <= _SMALL_MODEL_BYTES
        self._lanes = self._lanes_of(self._lane(wide), _PLUGIN_GRAPHS if small else ())

    # -- what the engine asks ------------------------------------------------------------------------------------

    @property
    def block_size(self) -> int:
        return BLOCK_SIZE

    @property
    def vocab_size(self) -> int:
        return int(self._lanes.wide.request.model_outputs[0].get_partial_shape()[-1].get_length())

    @property
    def n_blocks(self) -> int:
        return int(self._caches[0].shape[0])

    @property
    def properties(self) -> dict[str, str]:
        """What the plugin was asked for."""
        return dict(self.profile.properties)

    @property
    def kv_bytes_per_token(self) -> int:
        """Memory that a token's keys and values take, scales and zero points included."""
        return sum(int(cache.byte_size) for cache in self._caches) // (self.n_blocks * self.block_size)

    def effective(self, name: str) -> str:
        """A property as the plugin runs it."""
        return str(self._lanes.wide.request.get_compiled_model().get_property(name))

    @property
    def kernels(self) -> str | None:
        """Which of our kernels it runs with, as a name of their code; None: the plugin's own (``kernels_reason``)."""
        return None if self._kernels is None else self._kernels.key

    @property
    def weight_bytes(self) -> int:
        """Of all weights that a forward multiplies with."""
        packed = sum(weights.data.nbytes for weights in self._packed.values())
        return packed or graph.weight_bytes(self._graph)

    @property
    def tree_masks(self) -> bool:
        return self.profile.masks

    @property
    def masks_are_exact(self) -> bool:
        return self.lanes_are_cheap and self.rows_rule == "any"

    @property
    def switches_are_free(self) -> bool:
        """Whether every width that may have a compiled graph of its own has one."""
        return self._lanes.complete

    @property
    def widths(self) -> tuple[int, ...]:
        """Held widths, ascending; one only under the rule "any": the plugin has other kernels for it (fact 5)."""
        return tuple(w for w in self.profile.widths if w > 1 or self.rows_rule == "any")

    def width_for(self, n_rows: int) -> int:
        """Rows a forward of ``n_rows`` is padded to, so that few widths occur (fact 11)."""
        return next((w for w in self.widths if w >= n_rows), -(-n_rows // 8) * 8)

    def warm_up(self) -> None:
        """Compile the graphs of all widths that may have one now."""
        self._lanes.add_all()

    def prepare(self, n_rows: int | None = None) -> bool:
        """Compile one of those graphs, half a second, where that is cheap: for so many rows, or the next.

        Returns whether there was one left to do.
        """
        return self.lanes_are_cheap and self._lanes.add_one(n_rows)

    def forward(self, batch: Batch) -> Forward:
        """One forward; writes K/V of every row. Logits and hidden states are views that the next forward overwrites."""
        n_rows, n_wanted = len(batch.tokens), len(batch.rows)
        if self.passes["own_attention"]:
            layout = passes.layout_of(batch, _LAYOUT_SIZE)
            lane = self._lanes.of(n_rows) if len(layout) == _LAYOUT_SIZE else self._lanes.wide
            lane.put(passes.LAYOUT, layout)
        else:
            lane = self._lanes.of(n_rows)
            _put_layout(lane, batch, masks=self.profile.masks)
        self._in_use[:] = n_rows, max(1, n_wanted)
        lane.put_rows("input_ids", batch.tokens)
        lane.put_rows("position_ids", batch.positions)
        if self.passes["logits_for_rows"]:
            lane.put_rows(graph.ROWS, _padded_rows(batch.rows, n_rows if lane.width else None))
        lane.request.infer()
        wanted = slice(n_wanted) if self.passes["logits_for_rows"] else batch.rows
        hidden = lane.output(1)[wanted] if self.passes["expose_hidden"] else None
        return Forward(lane.output(0)[wanted], hidden)

    def copy(self, src_blocks: ListLike[int], dst_blocks: ListLike[int]) -> None:
        """Copy the K/V of whole blocks; all sources are read before any block is written."""
        src, dst = np.asarray(src_blocks), np.asarray(dst_blocks)
        for cache in self._caches:
            data = cache.data
            data[dst] = data[src]

    # -- what drafters made of it ask ----------------------------------------------------------------------------

    def variant(self, change: Callable[[ov.Model], object]) -> OpenVINOModel:
        """A model over the same K/V memory; its paged graph is this one's after ``change``, which may drop layers.

        Layers find their K/V by number. Rows are laid out as anybody likes. Compiles: seconds, and memory for weights
        in the form that kernels want.
        """
        other = copy(self)
        other.passes = dict(self.passes)
        other._graph = self._graph.clone()
        change(other._graph)
        kept = {port.get_any_name() for port in _cache_ports(other._graph)}
        other._caches = [cache for name, cache in self._named_caches().items() if name in kept]
        other.rows_rule = "any"
        other._lanes = other._lanes_of(other._lane(other._compile()), ())  # drafts keep a width, and memory is dear
        return other

    def put(self, name: str, values: npt.NDArray[Any]) -> None:
        """Set an input that the engine knows nothing of, until it is set again."""
        for lane in self._lanes:
            lane.put(name, values)

    def output(self, name: str) -> npt.NDArray[Any]:
        """An output of a variant's last forward, by name; valid until the next."""
        data: npt.NDArray[Any] = self._lanes.wide.request.get_tensor(name).data
        return data

    @property
    def n_modules(self) -> int:
        """Attentions and MLPs that a drafter may skip. Raises ModelError where the graph does not tell them apart."""
        from wager.models.skipping import residual_sums

        return len(residual_sums(self._graph))

    # -- inside --------------------------------------------------------------------------------------------------

    def _promise_no_more(self, rules: tuple[RowsRule, ...]) -> None:
        """Rules as the profile has them, unless our kernels do all products and attention; else a row is any row."""
        done = [self.passes.get(name, 0) for name in ("own_products", "own_attention")]
        if done != [len(graph.products_with_weights(self._graph)), self.passes["paged_attention"]]:
            self.profile = replace(self.profile, rules=rules)
        if self._kernels is not None and not any(done):
            self._kernels, self.kernels_reason = None, "they do no product and no attention of this model"
        self.rows_rule: RowsRule = self.profile.rules[0] if self.profile.rules else "any"  # until the self-check

    def _compile(self, width: int | None = None) -> Any:
        """A graph for forwards of any number of rows, or of exactly ``width``: fixed shapes save their inference."""
        made = self._graph.clone()
        attention = 0
        if self._kernels is not None:
            addresses = {name: int(cache.data.ctypes.data) for name, cache in self._named_caches().items()}
            attention = passes.own_attention(made, self._kernels, addresses) if self._own_shapes else 0
            self.passes["own_products"] = passes.own_products(made, self._kernels, self._packed, self._in_use)
        self.passes["own_attention"] = attention
        if width is not None:
            inputs = ("input_ids", "position_ids", *([graph.ROWS] if self.passes["logits_for_rows"] else []))
            shapes: dict[str, list[int]] = {name: [width] for name in inputs}
            if attention:  # nothing is left to infer, which takes as long as the kernel itself
                shapes[passes.LAYOUT] = [_LAYOUT_SIZE]
            made.reshape(shapes)
        return self._core.compile_model(made, "CPU", self.profile.properties)

    def _lanes_of(self, wide: Lane, plugin_graphs: ListLike[int]) -> Lanes:
        me = proxy(self)  # which its graphs would keep alive, as long as no collector looks, with all its memory

        def make(width: int | None) -> Lane:
            return cast(Lane, me._lane(me._compile(width), width))

        if self.lanes_are_cheap:
            return Lanes(make, wide, _OWN_GRAPHS, OWN)
        return Lanes(make, wide, plugin_graphs, PLUGIN)

    def _lane(self, compiled: Any, width: int | None = None) -> Lane:
        request = compiled.create_infer_request()
        for port in _cache_ports(compiled):  # none where our kernels know them by address
            request.set_tensor(port, self._named_caches()[port.get_any_name()])
        return Lane(request, width)

    def _named_caches(self) -> dict[str, Any]:
        """K/V tensors by the name of their input in the paged graph."""
        names = [port.get_any_name() for port in _cache_ports(self._graph)]
        return dict(zip(names, self._caches, strict=True)) if self._caches else {}

    def _allocate(self, blocks: ListLike[tuple[Any, list[int]]], kv_cache_bytes: int | None) -> list[Any]:
        """K/V tensors of these types and shapes of a block; pages of memory are touched only when rows are written."""
        sizes = [int(np.prod(shape)) * element.size for element, shape in blocks]
        budget = default_kv_cache_bytes() if kv_cache_bytes is None else kv_cache_bytes
        n_blocks = budget // sum(sizes)
        n_plenty = _FULL_CONTEXTS * -(-self.context_length // BLOCK_SIZE)
        if n_blocks < _MIN_BLOCKS:
            raise CapacityError(
                f"`kv_cache_gb` of {budget / 2**30:.2g} holds {n_blocks * BLOCK_SIZE} tokens: "
                f"give at least {_MIN_BLOCKS * sum(sizes) / 2**30:.2g}"
            )
        if kv_cache_bytes is None:
            n_blocks = min(n_blocks, max(n_plenty, 64))
        try:
            return [ov.Tensor(element, ov.Shape([n_blocks, *shape])) for element, shape in blocks]
        except (RuntimeError, MemoryError) as error:
            raise CapacityError(f"`kv_cache_gb` of {budget / 2**30:.2f} is more than there is: give less") from error


def _put_layout(lane: Lane, batch: Batch, *, masks: bool) -> None:
    """Where sequences start and lie, as the plugin's attention wants to be told."""
    lane.put("max_context_len", np.array((batch.past + np.diff(batch.starts)).max(), np.int32))
    lane.put("past_lens", batch.past)
    lane.put("subsequence_begins", batch.starts)
    lane.put("block_indices", batch.blocks)
    lane.put("block_indices_begins", batch.block_starts)
    if masks:
        bits, starts = passes.flat_masks(batch)
        lane.put("qq_bias", bits)
        lane.put("qq_bias_begins", starts)


def read_graph(core: Any, ir_dir: Path) -> Any:
    """The IR of a folder. Raises ModelError with the remedy where it is missing or damaged."""
    path = ir_dir / "openvino_model.xml"
    if not path.is_file() or not path.with_suffix(".bin").is_file():
        raise ModelError(f"`{ir_dir}` has no openvino_model.xml and .bin: pull or export the model again")
    try:
        return core.read_model(path)
    except RuntimeError as error:
        raise ModelError(f"`{path}` cannot be read ({_first_line(error)}): pull or export the model again") from error


def default_kv_cache_bytes() -> int:
    """A quarter of the memory that is available now, at most 8 GiB: a bound, taken only as rows are written."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return int(min(available // 4, 8 << 30))


def _padded_rows(rows: Any, n_rows_held: int | None) -> Any:
    """Rows whose logits are computed: repeated up to a held count; elsewhere two and more, as the plugin's products
    take another kernel for one (fact 5).
    """
    n = len(rows)
    want = n_rows_held or max(2, 1 << max(0, n - 1).bit_length())
    if n >= want:
        return rows
    return np.concatenate([rows, np.full(want - n, rows[-1] if n else 0, np.int64)])


def _cache_ports(compiled: Any) -> list[Any]:
    """K/V inputs in a fixed order: key 0, value 0, key 1, …"""
    ports = [p for p in compiled.inputs if p.get_any_name().startswith(("key_cache.", "value_cache."))]
    return sorted(ports, key=lambda p: (int(p.get_any_name().split(".")[1]), p.get_any_name()))


def _block_of(port: Any) -> tuple[Any, list[int]]:
    """Type and shape of a block of a K/V input of the plugin's."""
    return port.get_element_type(), [d.get_length() for d in list(port.get_partial_shape())[1:]]


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1][:160] if lines else type(error).__name__


def load_model(
    ir_dir: Path,
    *,
    profile: str,
    threads: int | None,
    kv_cache_bytes: int | None = None,
    prepare: Callable[[ov.Model], object] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> OpenVINOModel:
    """The model of an IR folder (``catalog.resolve`` finds it) with the context length that the folder states.

    It runs as `wager tune` found best for the profile here, unless ``threads`` or a changed graph ask for another run.
    """
    from wager.models import catalog, tuned

    context_length = catalog.describe(ir_dir).context_length
    return OpenVINOModel(
        ir_dir,
        profile=tuned.profile_for(ir_dir, profile, threads=threads) if prepare is None else profile,
        threads=threads,
        kv_cache_bytes=kv_cache_bytes,
        context_length=context_length,
        prepare=prepare,
        progress=progress,
    )
