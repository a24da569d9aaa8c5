"""Bugs that users of other engines reported, as tests of their whole kind, through the front door on a tiny model.

Each test names the report it stands for (project and issue number). Terminal conditions inside a draft (their largest
group) are tests/unit/test_engine.py; the law of sampled text is tests/exact.
"""

from __future__ import annotations

import collections

import pytest

from wager.errors import OptionError, PromptError, VocabularyError
from wager.llm import LLM
from wager.types import Sampling

EMOJI = "😀日本語 it's 👩‍👩‍👧 ok"


@pytest.fixture(scope="module")
def llms(tiny_llama, tmp_path_factory):
    """One LLM per drafter, in one WAGER_HOME (the second finds the measurements of the first)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAGER_HOME", str(tmp_path_factory.mktemp("home")))
        draft = tiny_llama.parent / "tiny-llama-b"
        yield {
            "none": LLM(tiny_llama, drafter="none", kv_cache_gb=0.1),
            "auto": LLM(tiny_llama, kv_cache_gb=0.1),
            "lookup": LLM(tiny_llama, drafter="lookup", num_draft_tokens=5, kv_cache_gb=0.1),
            "model": LLM(tiny_llama, drafter=f"model:{draft}", num_draft_tokens=4, kv_cache_gb=0.1),
            "tree": LLM(tiny_llama, drafter=f"model:{draft}", tree_width=3, kv_cache_gb=0.1),
            "gsd": LLM(tiny_llama, drafter=f"gsd:{draft}", tree_width=3, tree_levels=2, kv_cache_gb=0.1),
            "delayed": LLM(tiny_llama, drafter=f"model:{draft}", policy="delayed", kv_cache_gb=0.1),
            "adaedl": LLM(tiny_llama, drafter=f"model:{draft}", policy="adaedl", num_draft_tokens=6, kv_cache_gb=0.1),
        }


DRAFTERS = ["auto", "lookup", "model", "tree", "gsd", "delayed", "adaedl"]


def text(llm, prompt, **options):
    options.setdefault("max_tokens", 32)
    return llm.generate(prompt, llm.sampling(**options), chat=False)


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize(
    "prompt",
    ["serving" * 12, "\nQ: what?\n", "Einstein's theory of relativity states", EMOJI, "a", "the the the the"],
)
def test_greedy_text_is_that_of_plain_decoding(llms, drafter, prompt):
    """vllm 7627, 41758; mlx-lm 1423; transformers 30413; optimum 1924."""
    a, b = text(llms["none"], prompt), text(llms[drafter], prompt)
    assert (a.tokens, a.text, a.finish) == (b.tokens, b.text, b.finish)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_every_option_is_honoured_while_drafting(llms, drafter):
    """sglang 28180, 33643; vllm 42744, 38202: penalties, bias and min_p on every token, drafted ones included."""
    common = llms["none"].generate("abab" * 8, llms["none"].sampling(max_tokens=40), chat=False).tokens
    banned = collections.Counter(common).most_common(1)[0][0]
    for options in (
        {"repetition_penalty": 1.15},
        {"frequency_penalty": 0.8, "min_tokens": 10},
        {"presence_penalty": 1.0, "temperature": 0.7, "seed": 3},
        {"logit_bias": {banned: float("-inf")}},
        {"temperature": 1.0, "min_p": 0.2, "top_k": 5, "top_p": 0.8, "seed": 4},
    ):
        a = text(llms["none"], "abab" * 8, max_tokens=40, **options)
        b = text(llms[drafter], "abab" * 8, max_tokens=40, **options)
        assert a.tokens == b.tokens, options
        if "logit_bias" in options:
            assert banned not in b.tokens


@pytest.mark.parametrize("drafter", ["none", *DRAFTERS])
def test_seeds(llms, drafter):
    """vllm 6038, 9441; mlx-vlm 1818: a seed repeats, no seed does not, and neighbours do not matter."""
    llm = llms[drafter]
    seeded = [text(llm, "once", temperature=2.0, seed=42).tokens for _ in range(2)]
    assert seeded[0] == seeded[1]
    free = [text(llm, "once", temperature=2.0) for _ in range(2)]
    assert free[0].tokens != free[1].tokens
    assert text(llm, "once", temperature=2.0, seed=free[0].seed).tokens == free[0].tokens
    both = llm.generate(["once", "upon"], llm.sampling(temperature=2.0, seed=42, max_tokens=32), chat=False)
    assert both[0].tokens == seeded[0]


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_logprobs_are_there_for_every_token_and_equal_plain_ones(llms, drafter):
    """llama.cpp 27972; sglang 10660; openvino.genai's score without accepted tokens; vllm 47616."""
    a = text(llms["none"], "abab" * 8, logprobs=3)
    b = text(llms[drafter], "abab" * 8, logprobs=3)
    assert len(b.logprobs) == len(b.tokens)
    assert a.logprobs == b.logprobs
    assert sum(entry.logprob for entry in b.logprobs) < 0
    assert all(len(entry.top) == 3 for entry in b.logprobs)


@pytest.mark.parametrize("drafter", ["none", *DRAFTERS])
def test_ids_logprobs_and_usage_end_with_the_stop_string(llms, drafter):
    """vllm 47616; ik_llama.cpp 2358."""
    whole = text(llms["none"], "abab" * 8)
    stop = whole.text[5:8]
    got = text(llms[drafter], "abab" * 8, stop=(stop,), logprobs=2)
    assert got.text == whole.text[: whole.text.index(stop)]
    assert got.finish == "stop"
    assert len(got.tokens) == len(got.logprobs) == got.stats.n_tokens
    assert whole.tokens[: len(got.tokens)] == got.tokens


@pytest.mark.parametrize("drafter", ["none", *DRAFTERS])
def test_lengths_up_to_the_last_slot(llms, drafter):
    """lorax 474; ArcticInference 60; exllamav2 274; transformers 46993."""
    llm = llms[drafter]
    context = llm.info["context_length"]
    full = llm.generate([5] * (context - 9), llm.sampling(max_tokens=100, ignore_eos=True))
    assert len(full.tokens) == 9
    assert full.finish == "length"
    assert len(text(llm, "abab" * 8, max_tokens=2, ignore_eos=True).tokens) == 2
    with pytest.raises(PromptError, match="shorten"):
        llm.generate([5] * context, llm.sampling())


def test_a_drafter_with_another_vocabulary_is_refused_by_name(tiny_llama, tmp_path, monkeypatch):
    """vllm 5203; llama.cpp 3812; mlx-engine 280; Qwen3 326: pieces are compared, not sizes."""
    monkeypatch.setenv("WAGER_HOME", str(tmp_path))
    with pytest.raises(VocabularyError, match="token `"):
        LLM(tiny_llama, drafter=f"model:{tiny_llama.parent / 'tiny-qwen3'}", kv_cache_gb=0.1)


@pytest.mark.parametrize("drafter", ["none", *DRAFTERS])
def test_a_prefix_hit_changes_neither_text_nor_acceptance(llms, drafter):
    """vllm 47930."""
    llm, prompt = llms[drafter], "a long prompt " * 12
    before = llm._engine.cache.n_prefix_hits
    first, second = text(llm, prompt), text(llm, prompt)
    assert llm._engine.cache.n_prefix_hits > before
    assert first.tokens == second.tokens
    if drafter not in ("auto", "delayed", "adaedl"):  # their policies go on learning
        assert first.stats.n_accepted == second.stats.n_accepted


@pytest.mark.parametrize("prompt", ["", []])
def test_an_empty_prompt_is_refused_and_the_engine_lives(llms, prompt):
    """vllm 7283; llama.cpp 5246."""
    llm = llms["auto"]
    with pytest.raises(PromptError, match="empty"):
        llm.generate(prompt, chat=False)
    with pytest.raises(PromptError, match="empty"):
        llm.generate(["fine", prompt], llm.sampling(max_tokens=3), chat=False)
    assert text(llm, "fine").tokens


@pytest.mark.parametrize("drafter", ["none", *DRAFTERS])
def test_streamed_pieces_join_to_the_text(llms, drafter):
    """TGI 333; vllm 937: no U+FFFD, nothing shrinks, whatever max_tokens cuts."""
    llm = llms[drafter]
    for max_tokens in (1, 2, 3, 5, 9, 17, 33):
        pieces: list[str] = []
        options = llm.sampling(max_tokens=max_tokens, temperature=3.0, seed=max_tokens)
        done = llm.stream(EMOJI, options, chat=False, on_event=lambda event, to=pieces: to.append(event.text))
        assert "".join(pieces) == done.text
        assert "\ufffd" not in done.text


@pytest.mark.parametrize("drafter", ["none", *DRAFTERS])
def test_short_and_long_prompts_in_one_batch_equal_their_solo_runs(llms, drafter):
    """unsloth 3699; transformers 29769."""
    llm = llms[drafter]
    prompts = ["a", "a long prompt " * 10, "b" * 30, "zz"]
    options = llm.sampling(max_tokens=20, temperature=0.8, seed=9)
    together = llm.generate(prompts, options, chat=False)
    assert [c.tokens for c in together] == [llm.generate(p, options, chat=False).tokens for p in prompts]


@pytest.mark.parametrize("drafter", ["none", *DRAFTERS])
def test_an_interrupt_leaves_a_clean_engine(llms, drafter):
    """vllm 46283: aborted requests leak nothing."""
    llm = llms[drafter]
    expected = text(llm, "abab" * 8).tokens

    def stop(event):
        raise KeyboardInterrupt

    n_free = llm._engine.cache.n_free
    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            llm.stream("abab" * 8, llm.sampling(max_tokens=32), chat=False, on_event=stop)
        assert llm._engine.cache.n_free == n_free
        assert not llm._engine.has_work
    assert text(llm, "abab" * 8).tokens == expected


def test_speculation_can_be_switched_off_per_request(llms):
    """vllm 6993."""
    llm = llms["lookup"]
    sampling = llm.sampling(max_tokens=32)
    on = llm.generate("abab" * 8, sampling, chat=False)
    off = llm.generate("abab" * 8, sampling, chat=False, speculate=False)
    assert on.tokens == off.tokens
    assert on.stats.n_drafted > 0 == off.stats.n_drafted


def test_unknown_options_are_errors(llms):
    with pytest.raises(OptionError, match="temprature"):
        llms["none"].sampling(temprature=1.0)
    with pytest.raises(TypeError):
        Sampling(do_sample=True)  # type: ignore[call-arg]
    for options in (
        {"seed": 1.5},
        {"logprobs": 1.5},
        {"max_tokens": "5"},
        {"max_tokens": 2.5},
        {"top_k": 1.5},
        {"stop": (5,)},
        {"stop_token_ids": ("a",)},
        {"logit_bias": {"5": 1.0}},
    ):
        with pytest.raises(OptionError, match=next(iter(options))):
            Sampling(**options)
    with pytest.raises(OptionError, match="tree_width"):
        LLM(llms["none"].ir_dir, drafter="lookup", tree_width=3)
    with pytest.raises(OptionError, match="num_draft_tokens"):
        LLM(llms["none"].ir_dir, drafter="none", num_draft_tokens=5)
    with pytest.raises(OptionError, match="tells none"):
        LLM("no-such-model", drafter="lookup", policy="threshold")
    assert {llm.info["policy"] for llm in llms.values()} == {"cost", "fixed", "delayed", "adaedl"}
    for options in ({"num_draft_tokens": -1}, {"tree_width": 0}, {"kv_cache_gb": 0.0}, {"profile": "fastest"}):
        with pytest.raises(OptionError, match=next(iter(options))):
            LLM(llms["none"].ir_dir, **options)
