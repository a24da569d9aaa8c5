"""Every rule on the real default model: greedy text is plain decoding's, sampled text has the target's law."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from wager.bench.rules_plan import Setting, drawing_of
from wager.bench.rules_run import Drafters
from wager.llm import LLM
from wager.types import Sampling
from wager.verify import LOSSY, RULES

pytestmark = [pytest.mark.model, pytest.mark.timeout(900)]

QUESTIONS = ["Count from one to ten in words.", "Why is the sky blue?", "Repeat: red, green, blue, red, green, blue."]
STORY = "Once"  # one token: every sample reads its prompt
N_SAMPLES = 900
N_TOGETHER = 12  # more would leave each other no rows for drafts
SEED = 11
TOP_K = 3


@pytest.fixture(scope="module")
def llm():
    return LLM("smollm2-135m", drafter="none", kv_cache_gb=0.5)


@pytest.fixture(scope="module")
def drafters(llm):
    """A draft that differs, and one that does not: it is the target itself."""
    made: dict[str, Drafters] = {}

    def get(draft):
        if draft not in made:
            made[draft] = Drafters(llm, "copy:int4" if draft == "copy" else str(llm.ir_dir))
        return made[draft]

    return get


def engine_for(llm, drafters, setting):
    return llm.make_engine(
        drafter=drafters(drawing_of(setting)),
        rule=setting.info,
        num_draft_tokens=setting.depth,
        tree_width=setting.tree.width,
    )


def finished(engine):
    while engine.has_work:
        engine.step()
        engine.cache.check()


@pytest.fixture(scope="module")
def greedy(llm):
    prompts = [llm.text.chat([{"role": "user", "content": question}]) for question in QUESTIONS]
    answers = llm.generate(prompts, Sampling(max_tokens=24), n=1, speculate=False)
    return prompts, [answer.tokens for answer in answers]


@pytest.mark.parametrize("rule", [*RULES, *LOSSY])
def test_greedy_text_is_that_of_plain_decoding(llm, drafters, greedy, rule):
    prompts, expected = greedy
    info = Setting(rule).info
    engine = engine_for(llm, drafters("copy"), Setting(rule, 2 if info.trees else 1, 3))
    seqs = [engine.submit(prompt, Sampling(max_tokens=24), seed=1) for prompt in prompts]
    stats = [engine.stats(seq.id) for seq in seqs]
    finished(engine)
    assert [seq.output for seq in seqs] == expected
    assert sum(s.n_accepted for s in stats) > 20, "else nothing was at stake"


@pytest.fixture(scope="module")
def law(llm):
    """The exact law of the first two tokens at temperature 1 and top_k 3, from the plain log-probabilities."""

    def after(tokens):
        sampling = Sampling(max_tokens=1, logprobs=TOP_K, seed=0)
        [entry] = llm.generate(tokens, sampling, speculate=False).logprobs
        ids, logs = zip(*entry.top, strict=True)
        p = np.exp(logs)
        return dict(zip(ids, (p / p.sum()).tolist(), strict=True))

    prompt = llm.text.encode(STORY)
    found = {(x, y): p * q for x, p in after(prompt).items() for y, q in after([*prompt, x]).items()}
    assert len(found) == TOP_K**2
    return prompt, found


def two_tokens(engine, prompt):
    """The first two tokens of N_SAMPLES samples of one request, and how many tokens were accepted for them."""
    sampling = Sampling(temperature=1.0, top_k=TOP_K, max_tokens=3, ignore_eos=True)
    counts, n_accepted = Counter(), 0
    for first in range(0, N_SAMPLES, N_TOGETHER):
        samples = range(first, min(first + N_TOGETHER, N_SAMPLES))
        seqs = [engine.submit(prompt, sampling, seed=SEED, sample=i) for i in samples]
        stats = [engine.stats(seq.id) for seq in seqs]
        while any(seq.n_output < 2 for seq in seqs):
            engine.step()
        for seq in seqs:
            engine.cancel(seq.id)
        counts.update(tuple(seq.output[:2]) for seq in seqs)
        n_accepted += sum(s.n_accepted for s in stats)
    return counts, n_accepted


def distance(counts, law):
    n = sum(counts.values())
    return sum(abs(counts[pair] / n - law.get(pair, 0.0)) for pair in {*counts, *law}) / 2


def bound(law, false_alarm=1e-4):
    """What the total variation of N_SAMPLES honest draws exceeds with that probability: by 200 000 simulations."""
    p = np.array(list(law.values()))
    counts = np.random.default_rng(0).multinomial(N_SAMPLES, p / p.sum(), 200_000)
    return float(np.quantile(np.abs(counts / N_SAMPLES - p).sum(axis=1) / 2, 1 - false_alarm))


@pytest.mark.parametrize(
    ("rule", "draft"),
    [*((rule, "copy") for rule in ("walk", "standard", "spectr", "traversal", "rrsw", "gls")), ("spectr", "target")],
)
def test_the_law_of_two_tokens(llm, drafters, law, rule, draft):
    """Total variation from the exact law: 900 samples of seed 11, K = 2 where the rule takes trees, depth 2.

    The bound, about .077, is what an honest sampler exceeds with probability 1e-4 (1e-3 for all tests here together).
    openvino-genai's sampled speculation is at .587 with draft = target; ways of drafting that bias are at .1 to .2.
    """
    prompt, expected = law
    limit = bound(expected)
    assert limit < 0.1
    setting = Setting(rule, 2 if Setting(rule).info.trees else 1, 2)
    counts, n_accepted = two_tokens(engine_for(llm, drafters(draft), setting), prompt)
    assert n_accepted > 0.4 * N_SAMPLES, "else drafts had no say"
    found = distance(counts, expected)
    assert found < limit, f"total variation {found:.3f}"


def test_the_law_test_can_fail(llm, drafters, law):
    """A rule that says it is lossy, with the same samples and bound."""
    prompt, expected = law
    counts, _ = two_tokens(engine_for(llm, drafters("copy"), Setting("lossy-cactus:0.5", 1, 2)), prompt)
    assert distance(counts, expected) > bound(expected)
