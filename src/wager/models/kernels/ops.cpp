// The kernels as operations of OpenVINO graphs. Weights, keys and values are not inputs: they stay where Python has them,
// once for all graphs, and a graph names them by address (openvino.py keeps them alive as long as its graphs).

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include <openvino/core/extension.hpp>
#include <openvino/core/op_extension.hpp>
#include <openvino/op/op.hpp>

#include "attention.hpp"
#include "packing.hpp"
#include "product.hpp"

namespace wager {

constexpr int MANY_ROWS = 64;  // from here on, work per row is shared among threads too
constexpr int64_t LITTLE = 1 << 17;  // multiplications that are done before other threads are awake

// A thread that waits here takes on nothing but this work: another call would use the buffers that this one still reads.
template <class... How>
void isolated(int n, const How&... how) {
    tbb::this_task_arena::isolate([&] { tbb::parallel_for(0, n, how...); });
}

template <class Work>
void side_by_side(int n, const Work& work) {
    if (n == 1) work(0);
    else isolated(n, work, tbb::static_partitioner());
}

template <class Work>
void row_by_row(int n, const Work& work) {
    if (n >= MANY_ROWS) isolated(n, work);
    else for (int row = 0; row < n; ++row) work(row);
}

template <template <class> class Of>
auto of_form(int bits, bool offsets, bool half) {
    static constexpr decltype(&Of<Form<4, false, false>>::run) all[] = {
        Of<Form<4, false, false>>::run, Of<Form<4, false, true>>::run, Of<Form<4, true, false>>::run, Of<Form<4, true, true>>::run,
        Of<Form<8, false, false>>::run, Of<Form<8, false, true>>::run, Of<Form<8, true, false>>::run, Of<Form<8, true, true>>::run,
    };
    return all[(bits == 8) * 4 + offsets * 2 + half];
}

template <class F>
struct Multiply {
    static void run(const uint8_t* weights, int first, int last, const Rounded& x, int n, float* out, size_t stride) {
        tiles<F>(weights, first, last, x, n, out, stride);
    }
};

template <class F>
struct Pack {
    static void run(const uint8_t* codes, const float* scales, const float* offsets, int rows, int n, uint8_t* to) {
        side_by_side(rows / TILE, [&](int t) {
            const size_t at = (size_t)t * TILE * n;
            pack_tile<F>(codes + at * GROUP, scales + at, F::offsets ? offsets + at : nullptr, n, to + (size_t)t * n * F::group_bytes);
        });
    }
};

// x (..., K) f32 -> (..., rows) f32; `weights` is the address of packed tiles in the form that `bits` (4, 8), `offsets`
// and `half` name. `gated`: x is (..., 2 K), and silu of its first half times its second is what is multiplied. `in_use` is
// the address of an int32: no more rows than that are computed, the others of the result are anything (0: all are).
class Product : public ov::op::Op {
public:
    OPENVINO_OP("WagerProduct", "wager");
    Product() = default;
    explicit Product(const ov::OutputVector& inputs) : Op(inputs) {}

    void validate_and_infer_types() override {
        auto shape = get_input_partial_shape(0);
        shape[shape.size() - 1] = rows_;
        set_output_type(0, ov::element::f32, shape);
    }
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override {
        auto made = std::make_shared<Product>(inputs);
        made->weights_ = weights_, made->rows_ = rows_, made->bits_ = bits_, made->offsets_ = offsets_, made->half_ = half_;
        made->gated_ = gated_, made->in_use_ = in_use_;
        made->constructor_validate_and_infer_types();
        return made;
    }
    bool visit_attributes(ov::AttributeVisitor& visitor) override {
        visitor.on_attribute("weights", weights_);
        visitor.on_attribute("rows", rows_);
        visitor.on_attribute("bits", bits_);
        visitor.on_attribute("offsets", offsets_);
        visitor.on_attribute("half", half_);
        visitor.on_attribute("gated", gated_);
        visitor.on_attribute("in_use", in_use_);
        return true;
    }
    bool has_evaluate() const override { return true; }

    bool evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const override {
        auto shape = inputs[0].get_shape();
        const size_t width = shape.back(), size = gated_ ? width / 2 : width;
        const size_t there = inputs[0].get_size() / width;
        const size_t n = in_use_ ? std::min<size_t>(there, *reinterpret_cast<const int32_t*>(in_use_)) : there;
        const size_t n_groups = size / GROUP;
        shape.back() = rows_;
        outputs[0].set_shape(shape);
        thread_local std::vector<int8_t> codes;
        thread_local std::vector<float> scales;
        thread_local std::vector<int32_t> sums;
        codes.resize(n * size), scales.resize(n * n_groups), sums.resize(n * n_groups);
        const Rounded rounded{codes.data(), scales.data(), sums.data(), (int)n_groups};
        const float* x = inputs[0].data<const float>();
        const auto run = gated_ ? round_row<true> : round_row<false>;
        const auto round = [&, codes = codes.data(), scales = scales.data(), sums = sums.data()](int row) {
            const float* from = x + row * width;
            run(from, from + size, n_groups, codes + row * size, scales + row * n_groups, sums + row * n_groups);
        };
        row_by_row(n, round);
        multiply(rounded, n, outputs[0].data<float>());
        return true;
    }

private:
    void multiply(const Rounded& x, int n, float* out) const {
        const auto run = of_form<Multiply>(bits_, offsets_ != 0, half_ != 0);
        const int n_tiles = rows_ / TILE, n_parts = std::min(tbb::this_task_arena::max_concurrency(), n_tiles);
        const auto* weights = reinterpret_cast<const uint8_t*>(weights_);
        side_by_side(n_parts, [&](int part) {
            run(weights, n_tiles * part / n_parts, n_tiles * (part + 1) / n_parts, x, n, out, rows_);
        });
    }

    int64_t weights_ = 0, rows_ = 0, bits_ = 8, offsets_ = 0, half_ = 0, gated_ = 0, in_use_ = 0;
};

// What passes.py `layout_of` writes, all int32: B, past (B), row starts (B + 1), block starts (B + 1), mask starts (B + 1,
// in bytes), blocks, and the bytes of masks (n, n; none: causal).
struct Layout {
    int n_seqs;
    const int32_t *past, *rows, *block_starts, *mask_starts, *blocks;
    const uint8_t* masks;

    explicit Layout(const int32_t* p)
        : n_seqs(p[0]), past(p + 1), rows(past + n_seqs), block_starts(rows + n_seqs + 1),
          mask_starts(block_starts + n_seqs + 1), blocks(mask_starts + n_seqs + 1),
          masks((const uint8_t*)(blocks + block_starts[n_seqs])) {}

    int n_rows(int seq) const { return rows[seq + 1] - rows[seq]; }
    bool is_tree(int seq) const { return mask_starts[seq + 1] > mask_starts[seq]; }
    int block(int seq, int number) const { return blocks[block_starts[seq] + number]; }
};

// q (T, heads * size), k and v (T, kv_heads * size) f32, layout -> (T, heads * size) f32. Writes k and v first into the
// caches at the addresses `keys` and `values`: blocks of (kv_heads, size, 32) and (kv_heads, 32, size) f16. `window` 0: all
// that came before.
class Attention : public ov::op::Op {
public:
    OPENVINO_OP("WagerAttention", "wager");
    Attention() = default;
    explicit Attention(const ov::OutputVector& inputs) : Op(inputs) {}

    void validate_and_infer_types() override { set_output_type(0, ov::element::f32, get_input_partial_shape(0)); }
    std::shared_ptr<ov::Node> clone_with_new_inputs(const ov::OutputVector& inputs) const override {
        auto made = std::make_shared<Attention>(inputs);
        made->heads_ = heads_, made->kv_heads_ = kv_heads_, made->size_ = size_, made->window_ = window_, made->scale_ = scale_;
        made->keys_ = keys_, made->values_ = values_;
        made->constructor_validate_and_infer_types();
        return made;
    }
    bool visit_attributes(ov::AttributeVisitor& visitor) override {
        visitor.on_attribute("heads", heads_);
        visitor.on_attribute("kv_heads", kv_heads_);
        visitor.on_attribute("size", size_);
        visitor.on_attribute("window", window_);
        visitor.on_attribute("scale", scale_);
        visitor.on_attribute("keys", keys_);
        visitor.on_attribute("values", values_);
        return true;
    }
    bool has_evaluate() const override { return true; }

    bool evaluate(ov::TensorVector& outputs, const ov::TensorVector& inputs) const override {
        outputs[0].set_shape(inputs[0].get_shape());
        const Call call{
            Layout(inputs[3].data<const int32_t>()), inputs[0].data<const float>(), inputs[1].data<const float>(),
            inputs[2].data<const float>(), outputs[0].data<float>(), reinterpret_cast<uint16_t*>(keys_),
            reinterpret_cast<uint16_t*>(values_)};
        thread_local std::vector<Task> tasks;
        tasks.clear();
        const int group = heads_ / kv_heads_;
        int64_t seen = 0;
        for (int seq = 0; seq < call.layout.n_seqs; ++seq) {
            const int n = call.layout.n_rows(seq), step = call.layout.is_tree(seq) ? group : queries_a_task(n * group);
            seen += (int64_t)n * (call.layout.past[seq] + n);
            row_by_row(n, [&](int row) { keep(call, seq, row); });
            for (int head = 0; head < kv_heads_; ++head)
                for (int first = 0; first < n * group; first += step)
                    tasks.push_back({seq, head, first, std::min(step, n * group - first)});
        }
        const Task* all = tasks.data();
        const auto work = [&](int i) {
            if (call.layout.is_tree(all[i].seq)) attend_node(call, all[i]);
            else attend_chain(call, all[i]);
        };
        if (seen * heads_ * size_ < LITTLE) for (size_t i = 0; i < tasks.size(); ++i) work(i);
        else side_by_side(tasks.size(), work);
        return true;
    }

private:
    struct Call {
        Layout layout;
        const float *q, *k, *v;
        float* out;
        uint16_t *keys, *values;
    };
    struct Task {  // `n` queries from `first` on, of those that share a head of keys, counted row by row
        int seq, head, first, n;
    };

    // As many as share a pass over the keys, or half of those there are where threads would be left without a task.
    int queries_a_task(int n) const {
        const int n_tasks = kv_heads_ * ((n + MOST_QUERIES - 1) / MOST_QUERIES);
        return n_tasks < 2 * tbb::this_task_arena::max_concurrency() ? std::min((n + 1) / 2, MOST_QUERIES) : MOST_QUERIES;
    }

    size_t head_size() const { return (size_t)BLOCK * size_; }
    Block block(const Call& call, const Task& task, int number) const {
        const size_t at = ((size_t)call.layout.block(task.seq, number) * kv_heads_ + task.head) * head_size();
        return {call.keys + at, call.values + at};
    }

    void keep(const Call& call, int seq, int row) const {
        const int position = call.layout.past[seq] + row, slot = position % BLOCK;
        const size_t from = (size_t)(call.layout.rows[seq] + row) * kv_heads_ * size_;
        for (int head = 0; head < kv_heads_; ++head) {
            const Block to = block(call, {seq, head, 0, 0}, position / BLOCK);
            auto* keys = const_cast<uint16_t*>(to.keys) + slot;
            auto* values = const_cast<uint16_t*>(to.values) + (size_t)slot * size_;
            for (int d = 0; d < size_; d += LANES) {
                uint16_t key[LANES];
                store_half(values + d, load(call.v + from + head * size_ + d));
                store_half(key, load(call.k + from + head * size_ + d));
                for (int e = 0; e < LANES; ++e) keys[(size_t)(d + e) * BLOCK] = key[e];
            }
        }
    }

    // Queries of a task; those of row r see positions up to `seen(r)`.
    template <class Seen>
    void queries(const Call& call, const Task& task, const Seen& seen, Query* to) const {
        const int group = heads_ / kv_heads_;
        for (int i = 0; i < task.n; ++i) {
            const int row = (task.first + i) / group, head = task.head * group + (task.first + i) % group;
            const size_t at = ((size_t)(call.layout.rows[task.seq] + row) * heads_ + head) * size_;
            const int last = seen(row);
            to[i] = {call.q + at, call.out + at, window_ > 0 ? std::max(0, last - (int)window_) : 0, last};
        }
    }

    void attend_chain(const Call& call, const Task& task) const {
        Query of[MOST_QUERIES];
        queries(call, task, [&](int row) { return call.layout.past[task.seq] + row + 1; }, of);
        attend(of, task.n, size_, scale_ * LOG2_E, [&](int number) { return block(call, task, number); });
    }

    // A node of a tree, with all query heads of its key head: its path is gathered behind the last whole block.
    void attend_node(const Call& call, const Task& task) const {
        const int group = heads_ / kv_heads_, row = task.first / group, n = call.layout.n_rows(task.seq);
        const int past = call.layout.past[task.seq], whole = past / BLOCK;
        const uint8_t* sees = call.layout.masks + call.layout.mask_starts[task.seq] + (size_t)row * n;
        thread_local std::vector<uint16_t> keys, values;
        keys.assign((size_t)(n / BLOCK + 2) * head_size(), 0), values.assign(keys.size(), 0);
        const auto gather = [&](int from, int to) {
            const Block of = block(call, task, from / BLOCK);
            const size_t at = (to / BLOCK - whole) * head_size();
            for (int d = 0; d < size_; ++d) keys[at + d * BLOCK + to % BLOCK] = of.keys[d * BLOCK + from % BLOCK];
            std::copy_n(of.values + (size_t)(from % BLOCK) * size_, size_, values.data() + at + (size_t)(to % BLOCK) * size_);
        };
        for (int position = whole * BLOCK; position < past; ++position) gather(position, position);
        int last = past;
        for (int other = 0; other < n; ++other)
            if (sees[other]) gather(past + other, last++);
        std::vector<Query> of(task.n);
        queries(call, task, [&](int) { return last; }, of.data());
        attend(of.data(), task.n, size_, scale_ * LOG2_E, [&](int number) {
            if (number < whole) return block(call, task, number);
            const size_t at = (number - whole) * head_size();
            return Block{keys.data() + at, values.data() + at};
        });
    }

    int64_t heads_ = 1, kv_heads_ = 1, size_ = LANES, window_ = 0, keys_ = 0, values_ = 0;
    float scale_ = 1.0f;
};

}  // namespace wager

#define SHOWN extern "C" __attribute__((visibility("default")))

// Of groups (n, 32) of eight-bit codes, their four-bit ones (n, 32), steps and starts (n): 1, or 0 where some group has
// none.
SHOWN int wager_levels(const int8_t* codes, int64_t n, uint8_t* q, float* steps, float* starts) {
    constexpr int64_t PART = 4096;
    std::atomic<bool> all{true};
    tbb::parallel_for(int64_t{0}, (n + PART - 1) / PART, [&](int64_t part) {
        for (int64_t g = part * PART; g < std::min(n, (part + 1) * PART) && all; ++g)
            if (!wager::on_levels(codes + g * wager::GROUP, q + g * wager::GROUP, steps + g, starts + g)) all = false;
    });
    return all;
}

// Codes (rows, n, 32), scales and offsets (rows, n; null: none) into `to`: passes.py knows how large it is.
SHOWN void wager_pack(const uint8_t* codes, const float* scales, const float* offsets, int rows, int n, int bits, int half, uint8_t* to) {
    wager::of_form<wager::Pack>(bits, offsets != nullptr, half != 0)(codes, scales, offsets, rows, n, to);
}

OPENVINO_CREATE_EXTENSIONS(std::vector<ov::Extension::Ptr>({
    std::make_shared<ov::OpExtension<wager::Product>>(),
    std::make_shared<ov::OpExtension<wager::Attention>>(),
}));
