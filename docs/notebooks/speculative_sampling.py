# %% [markdown]
# # Speculative sampling with a K/V cache, on a CPU
#
# A language model writes one token per forward, and on a CPU most of a forward's time goes into fetching its weights
# from memory. Checking *several* tokens in one forward fetches them once. So somebody cheap guesses the next tokens
# (the **drafter**), the model checks all of them at once (the **target**), keeps those that it would have chosen itself
# and adds one of its own. That is speculative sampling (Leviathan et al. 2211.17192, Chen et al. 2302.01318).
#
# Barad, Aidova and Gorbachev (2311.04951) showed it on OpenVINO together with K/V caching and quantised weights: three
# savings that do not get in each other's way. This notebook walks the same way with `wager`, on a real
# model of 135 million parameters, and then goes on to drafts of several branches (SpecTr, 2310.15141).
#
# **Every time below is of one machine, the one that ran this notebook last.** Run it on yours: `make notebook`. The
# model runs on one thread, and the clock counts processor seconds, which hardly depend on what else the machine was
# doing. Texts and acceptance repeat, times do not.

# %%
import os
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from wager import LLM
from wager.machine import cpu

QUICK = os.environ.get("WAGER_NOTEBOOK") == "quick"  # a smaller setting of the same cells, for CI
N_TOKENS = 24 if QUICK else 56
clock = time.process_time  # processor seconds; time.perf_counter is the clock on the wall
PROMPTS = [
    "Put this list into alphabetical order, one word a line: pear, apple, fig, cherry, banana, apple pie, fig tree.",
    "What is the difference between a list and a tuple in Python? Give an example of each.",
    "Write a short story about a lighthouse keeper who finds a message in a bottle.",
][: 1 if QUICK else 3]

llm = LLM("smollm2-135m", drafter="none", threads=1)
print(f"{cpu()['name']}, {cpu()['n_cores']} cores")
print(f"profile {llm.info['profile']}: {llm.info['exactness']}")

# %% [markdown]
# ## One token at a time
#
# `answer` below drives an engine step by step. A step is exactly one forward of the target, with or without a draft.
# `seed` fixes the noise that tokens are chosen with: the same seed gives the same text. The model goes on after the end
# of its answer, so that all texts here have the same length (`ignore_eos`).


# %%
def answer(engine, prompt, *, seed=1, n_tokens=N_TOKENS, cached=True):
    """Sample an answer. Returns its tokens, a row (seconds, tokens) per step, the events, and what was counted."""
    sampling = llm.sampling(temperature=0.7, top_p=0.95, max_tokens=n_tokens, ignore_eos=True)
    chat = llm.text.chat([{"role": "user", "content": prompt}])
    seq = engine.submit(chat, sampling, seed=seed)
    stats, steps, events = engine.stats(seq.id), [], []
    while engine.has_work:
        if not cached:
            engine.evict(seq.id)  # forget all keys and values: the whole text is read again
        start = clock()
        new = engine.step()
        steps.append((clock() - start, sum(len(event.tokens) for event in new)))
        events += new
    return seq.output, np.array(steps), events, stats


def speed(runs):
    """Tokens a second after the step that read the prompt, over several answers."""
    return sum(steps[1:, 1].sum() for _, steps, *_ in runs) / sum(steps[1:, 0].sum() for _, steps, *_ in runs)


plain = llm.make_engine(drafter=None, prefix_caching=False)
answer(plain, PROMPTS[0], n_tokens=8)  # warm up
plain_text, plain_steps, _, _ = answer(plain, PROMPTS[0])
print(llm.text.decode(plain_text))
print(f"\n{len(plain_text)} tokens in {len(plain_steps)} forwards, {speed([(plain_text, plain_steps)]):.1f} tokens/s")

# %% [markdown]
# ## A drafter beside it
#
# Two drafters, at the two ends of the scale:
#
# - `copy:int4` is a real draft model: the target's own weights, rounded to four bits while loading. It is right very
#   often, and a token of it costs a good part of a token of the target. (The paper's advice is a draft model ten times
#   smaller. There is none for a model as small as this one.)
# - `lookup` is not a model at all. It looks for the last few tokens further up in the text and proposes what followed
#   them there. It is right less often, and costs next to nothing.
#
# ⟦Brackets⟧ show which parts of the text came out of a draft; what stands between them the target added itself, one
# token per forward.

# %%
DRAFTED = 4
copy = llm.make_engine(drafter="copy:int4", num_draft_tokens=DRAFTED, prefix_caching=False)
lookup = llm.make_engine(drafter="lookup", num_draft_tokens=DRAFTED, prefix_caching=False)


def marked(events):
    """The text with accepted drafts in brackets."""
    parts = []
    for event in events:
        accepted, own = event.tokens[: event.n_drafted], event.tokens[event.n_drafted :]
        parts.append(f"⟦{llm.text.decode(list(accepted))}⟧" if accepted else "")
        parts.append(llm.text.decode(list(own)))
    return "".join(parts)


for engine in (copy, lookup):
    answer(engine, PROMPTS[0], n_tokens=8)
    text, steps, events, stats = answer(engine, PROMPTS[0])
    assert text == plain_text, "speculation must not change the text"
    print(f"--- {engine.drafter.name}: the same {len(text)} tokens in {len(steps)} forwards")
    print(f"    {stats.acceptance_rate:.0%} of drafted tokens accepted, {speed([(text, steps)]):.1f} tokens/s")
    print(marked(events), "\n")

# %% [markdown]
# The text is the same, token by token, although it is *sampled*. In `wager` the target chooses every token with noise
# that depends only on the seed, the position and the token; a draft decides only how many of these choices one forward
# yields. (`verify/walk.py` is thirty lines.) The drafter uses the same noise on its own distribution, and so mostly
# makes the same choice.
#
# The rule of the two papers promises less: accept a drafted token $x$ with probability $\min(1, p(x)/q(x))$, else draw
# from what $q$ left over of $p$. That text has exactly the right *law*, but which text comes out depends on the drafts.
# It is here too:

# %%
standard = llm.make_engine(drafter="copy:int4", rule="standard", num_draft_tokens=DRAFTED, prefix_caching=False)
answer(standard, PROMPTS[0], n_tokens=8)
text, steps, events, stats = answer(standard, PROMPTS[0])
print(f"rule standard: {stats.acceptance_rate:.0%} accepted, the text of plain decoding: {text == plain_text}\n")
print(llm.text.decode(text))

# %% [markdown]
# ## The K/V cache: on and off
#
# Attention needs keys and values of all former tokens. With a cache a forward computes those of new tokens only;
# without, it reads the whole text again for every step, and the time of a step grows with the text. Speculation makes
# fewer forwards of either kind. Both on: the title of the paper. When the cache is off a forward reads the whole text
# anyway and a few drafted tokens more hardly count, so it gains from every accepted one; with the cache on it has to
# earn the rows that it adds.

# %%
combinations = {
    "one token at a time, no cache": (plain, False),
    "speculative, no cache": (lookup, False),
    "one token at a time, cache": (plain, True),
    "speculative, cache": (lookup, True),
}
runs = {name: [] for name in combinations}
for prompt in PROMPTS[:2]:
    for name, (engine, cached) in combinations.items():  # in turns: a machine that slows down favours nobody
        runs[name].append(answer(engine, prompt, cached=cached))
assert len({tuple(some[-1][0]) for some in runs.values()}) == 1, "neither may change the text"

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
for name, some in runs.items():
    _, steps, *_ = some[-1]
    left.plot(steps[1:, 1].cumsum(), 1e3 * steps[1:, 0], label=name)
left.set(xlabel="tokens written", ylabel="ms of a step", yscale="log", title="a step")
left.legend(fontsize=8)
speeds = {name: speed(some) for name, some in runs.items()}
bars = right.barh(list(speeds), list(speeds.values()), color=[f"C{i}" for i in range(4)])
right.bar_label(bars, fmt="%.1f", padding=3)
right.margins(x=0.15)
right.set(xlabel="tokens/s", title="the whole")
plt.show()

# %% [markdown]
# ## How long a draft?
#
# Let $a_k$ be the chance that the token at depth $k$ is accepted, given that those before it were. A draft of $n$
# tokens gives $1 + a_1 + a_1 a_2 + \dots + a_1 \cdots a_n$ tokens per forward. The sum grows more and more slowly,
# while the time of a step grows with every drafted token: there is a best length, and it depends on the drafter, the
# text and the machine.

# %%
LENGTHS = [1, 3] if QUICK else [1, 2, 3, 5, 7]
sweep = {
    (engine.drafter.name, n): llm.make_engine(drafter=engine.drafter, num_draft_tokens=n, prefix_caching=False)
    for engine in (copy, lookup)
    for n in LENGTHS
}
results = {key: [] for key in sweep}
plain_runs = []
for prompt in PROMPTS:
    plain_runs.append(answer(plain, prompt))
    for key, engine in sweep.items():
        results[key].append(answer(engine, prompt))
        assert results[key][-1][0] == plain_runs[-1][0]


def law(runs, n):
    """1 + a1 + a1 a2 + …, from the acceptance by depth that was counted in the runs of the longest draft."""
    counts = np.zeros((n, 2))
    for *_, stats in runs:
        here = np.array(stats.accepted_by_depth[:n])
        counts[: len(here)] += here
    return 1 + np.divide(counts[:, 0], counts[0, 1]).sum()


figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.6), layout="constrained")
for colour, name in zip(("C0", "C1"), (copy.drafter.name, lookup.drafter.name), strict=True):
    longest = results[name, LENGTHS[-1]]
    counted = [np.mean([stats.tokens_per_forward for *_, stats in results[name, n]]) for n in LENGTHS]
    left.plot(LENGTHS, counted, "o", color=colour, label=f"{name}, counted")
    left.plot(LENGTHS, [law(longest, n) for n in LENGTHS], color=colour, label=f"{name}, by its acceptance")
    right.plot(LENGTHS, [speed(results[name, n]) for n in LENGTHS], "o-", color=colour, label=name)
right.axhline(speed(plain_runs), color="grey", ls="--", label="one token at a time")
left.set(xlabel="draft length", ylabel="tokens per forward", title="what a forward yields")
right.set(xlabel="draft length", ylabel="tokens/s", title="what it is worth")
for axis in (left, right):
    axis.set_ylim(bottom=0)
    axis.legend(fontsize=8)
plt.show()
draft_share = np.mean([stats.draft_s / stats.total_s for *_, stats in results[copy.drafter.name, LENGTHS[-1]]])
print(f"of the time with {copy.drafter.name} and {LENGTHS[-1]} drafted tokens, {draft_share:.0%} went into drafting")

# %% [markdown]
# (Dots may lie off their line: `lookup` often finds nothing to draft, which the line does not count, and acceptance by
# depth is estimated from the longest drafts alone.)
#
# The left picture is the case for a good drafter, the right one for a cheap one. `copy:int4` has the longer runs, yet
# drafting eats most of the time: the ratio of costs decides, as the papers' formula for the speed-up $(1 - a^{n+1}) /
# ((1 - a)(1 + c\,n))$ says, with $c$ the cost of a drafted token relative to a target's forward. And the formula takes
# rows of the target for free. On one thread they are not: where the processor is busy computing rather than waiting for
# weights, eight rows cost nearly twice as much as two (`docs/scale.md`). So where the dashed line is the highest,
# **plain decoding is the right answer here**: a small model, one thread, sampled text that hardly repeats. Text that
# repeats what was said (code that is edited, documents that are quoted) is another matter: `docs/benchmarks.md` shows
# how to measure your own.
#
# Nobody has to choose a length: by default `wager` weighs the acceptance it has seen against the step times it has
# measured, step by step, and drafts nothing where nothing pays.

# %%
auto = llm.make_engine(drafter="auto", prefix_caching=False, remember=False)
answer(auto, PROMPTS[0], n_tokens=8)
auto_runs = []
for prompt, (expected, *_) in zip(PROMPTS, plain_runs, strict=True):
    auto_runs.append(answer(auto, prompt))
    assert auto_runs[-1][0] == expected
best = max(results, key=lambda key: speed(results[key]))
print(f"one token at a time       {speed(plain_runs):6.1f} tokens/s")
print(f"best of the sweep         {speed(results[best]):6.1f} tokens/s ({best[0]}, {best[1]} tokens)")
print(f"auto, nothing chosen      {speed(auto_runs):6.1f} tokens/s")

# %% [markdown]
# ## Quantised weights
#
# The third saving: smaller weights are fetched sooner. The model's file (GGUF, `Q4_1`) has four bits a weight, with a
# scale and an offset for every 32. Three imports of it:
#
# - `f16` holds what the file says, in 16 bits;
# - `int8-32` has eight bits, in the file's own groups of 32; this is the default;
# - `int4-sum` keeps the four bits, and corrects for the offsets with a small product of its own.
#
# KL is the mean distance of the next-token law to that of `f16` in exact arithmetic, on a text of a few hundred tokens.
# It is not zero because activations are rounded to eight bits in products (only where weights are quantised).
# `wager convert` makes other forms, of models from other sources.

# %%
from wager.models import catalog  # noqa: E402
from wager.models.fidelity import EXACT_PROPERTIES, divergence, imported_logits, probe_ids  # noqa: E402
from wager.models.gguf import import_gguf  # noqa: E402

place = tempfile.TemporaryDirectory()
source = catalog.source_of(llm.ir_dir)
folders = {"f16": Path(place.name) / "f16", "int8-32": llm.ir_dir, "int4-sum": Path(place.name) / "int4-sum"}
models = {}
for form, folder in folders.items():
    if folder != llm.ir_dir:
        import_gguf(source, folder, form=form)
    models[form] = llm if folder == llm.ir_dir else LLM(folder, drafter="none", threads=1)

ids = probe_ids(llm.ir_dir)
exact = imported_logits(folders["f16"], ids, EXACT_PROPERTIES)
print("weights       MB   one at a time   speculative  ratio      KL")
table = {}
for form, model in models.items():
    one, several = (
        model.make_engine(drafter=drafter, num_draft_tokens=n, prefix_caching=False)
        for drafter, n in ((None, None), ("lookup", DRAFTED))
    )
    pairs = []
    for prompt in [PROMPTS[0], *PROMPTS[:2]]:  # the first twice: to warm up
        pairs.append((answer(one, prompt), answer(several, prompt)))
        assert pairs[-1][0][0] == pairs[-1][1][0], "the text is the same within each form"
    ones, severals = zip(*pairs[1:], strict=True)
    kl = divergence(exact, imported_logits(folders[form], ids, model.info["properties"])).mean()
    size = (folders[form] / "openvino_model.bin").stat().st_size / 1e6
    table[form] = size, speed(ones), speed(severals)
    ratio = speed(severals) / speed(ones)
    print(f"{form:<9} {size:6.0f} {speed(ones):11.1f}/s {speed(severals):11.1f}/s {ratio:6.2f} {kl:7.4f}")

# %%
figure, axis = plt.subplots(figsize=(6, 3.2), layout="constrained")
at = np.arange(len(table))
for i, name in enumerate(("one token at a time", "speculative")):
    bars = axis.bar(at + 0.4 * i - 0.2, [row[1 + i] for row in table.values()], 0.38, label=name)
    axis.bar_label(bars, fmt="%.0f", padding=2, fontsize=8)
axis.set_xticks(at, [f"{form}\n{row[0]:.0f} MB" for form, row in table.items()])
axis.set(ylabel="tokens/s", title="weights × speculation")
axis.margins(y=0.15)
axis.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## SpecTr: K drafts at once
#
# If one draft may be wrong at its first token, draw several. SpecTr (Sun et al. 2310.15141) verifies K independent
# sequences in one forward and accepts as if it could choose among them, still with exactly the target's law. More
# of what is drafted is in vain, but more of each forward is used: tokens per forward rise with K.

# %%
WIDTHS = [1, 4] if QUICK else [1, 2, 4, 8]
spectr = {
    k: llm.make_engine(
        drafter=standard.drafter, rule="spectr", tree_width=k, num_draft_tokens=DRAFTED, prefix_caching=False
    )
    for k in WIDTHS
}
many = {k: [] for k in WIDTHS}
for prompt in PROMPTS:
    for k, engine in spectr.items():
        many[k].append(answer(engine, prompt))

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.2), layout="constrained")
tokens = {k: [stats.tokens_per_forward for *_, stats in some] for k, some in many.items()}
spread = [2 * np.std(some) / len(some) ** 0.5 for some in tokens.values()]
left.errorbar(WIDTHS, [np.mean(some) for some in tokens.values()], spread, fmt="o-", capsize=3)
left.set(xlabel="K", ylabel="tokens per forward", title=f"{DRAFTED} tokens deep, ± 2 standard errors", xticks=WIDTHS)
right.plot(WIDTHS, [speed(some) for some in many.values()], "o-")
right.axhline(speed(plain_runs), color="grey", ls="--", label="one token at a time")
right.set(xlabel="K", ylabel="tokens/s", title="with a draft model of nearly the target's cost", xticks=WIDTHS)
right.set_ylim(bottom=0)
right.legend(fontsize=8)
plt.show()
for k, some in many.items():
    print(f"K = {k}: {np.mean(tokens[k]):.2f} tokens per forward, {speed(some):.1f} tokens/s")

# %% [markdown]
# Tokens per forward rise with K, and tokens per second do not: up to K times as many tokens are drafted and fed, and
# here both cost time. Several drafts pay where the target is large against its drafter, and rows of a forward are
# nearly free (`wager bench scale` measures whether they are, at any size).
#
# ## What to take home
#
# - A cache saves computing again, quantised weights save memory traffic, speculation saves forwards. None of them is in
#   the others' way, and none changes what speculation promises.
# - Sampled text need not change when speculation is switched on: `wager`'s default rule gives it back token by token.
# - How much is gained is decided by acceptance, by the cost of a draft and by the price of more rows in a forward.
#   The first can be counted anywhere, the others only on the machine at hand: `wager tune`, `wager bench`.
#
# More: `docs/rules.md` (rules and proofs), `docs/drafters.md`, `docs/policies.md` (how much to draft),
# `docs/numbers.md` (what every number means).
