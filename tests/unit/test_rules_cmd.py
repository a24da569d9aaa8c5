"""`wager rules` in parts: the plan, what is seen of a rule, the arithmetic of the table; and LLM(rule=…)."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from wager import LLM
from wager.bench.rules_measure import Tally, measuring, output_law
from wager.bench.rules_plan import PLAIN, Setting, chosen_rules, drawing_of, settings, whole_numbers
from wager.bench.rules_report import markdown
from wager.bench.rules_run import drafter_spec
from wager.bench.rules_summary import _is_bound, mismatches, ratio_of_sums, summarise
from wager.drafters.lookup import Lookup
from wager.drafting import Tree, drawing_for
from wager.errors import IdentityError, OptionError
from wager.proof import outcomes
from wager.sampling import Noise
from wager.types import Draft, Law, Sampling, Sequence
from wager.verify import LOSSY, RULES, Rows, rule_named
from wager.verify.lossy import kl
from wager.verify.transport import optimum

# -- what is seen of a rule --------------------------------------------------------------------------------------------

P = np.array([0.3, 0.4, 0.08, 0.08, 0.08, 0.06])  # token 2 is typical by the entropy of six tokens, not of four
Q = Law(np.array([0, 1, 2]), np.array([0.6, 0.3, 0.1]))


def draft_of(tokens, parents, kind="iid") -> Draft:
    laws = (Q,) * len(tokens) if kind != "deterministic" else None
    return Draft(np.array(tokens, np.int32), np.array(parents, np.int32), laws, kind)


def rows_of(draft: Draft, temperature: float = 1.0, p=P) -> Rows:
    logits = np.tile(np.log(p), (len(draft) + 1, 1)).astype(np.float32)
    seq = Sequence(0, [0], 1, Sampling(temperature=temperature), seed=0)
    return Rows(logits, range(len(draft) + 1), seq, draft)


def look(name: str, draft: Draft, *, seed: int = 0, temperature: float = 1.0):
    tally = Tally()
    verdict = measuring(rule_named(name), tally).rule(rows_of(draft, temperature), draft, Noise(seed))
    return tally, verdict


def test_the_verdict_is_that_of_the_rule_itself():
    draft = draft_of([0, 1, 0, 0], [-1, 0, -1, 2])
    for seed in range(50):
        expected = rule_named("spectr").rule(rows_of(draft), draft, Noise(seed))
        assert look("spectr", draft, seed=seed)[1] == expected


def test_the_optimum_is_that_of_the_root_with_as_many_draws_as_there_are():
    draft = draft_of([0, 1, 0, 0], [-1, 0, -1, 2])
    tally, _ = look("spectr", draft)
    q = np.array([0.6, 0.3, 0.1, 0, 0, 0])
    assert tally.optimum == pytest.approx(optimum(P, q, 2), abs=1e-6)
    assert optimum(P, q, 2) > optimum(P, q, 1) + 0.05, "else k does not matter here"
    assert (tally.n_rounds, tally.n_drawn, tally.n_children, tally.n_optima) == (1, 4, 2, 1)
    assert look("top-k", draft_of([0, 1], [-1, -1], "deterministic"))[0].n_optima == 0


def test_the_first_token_counts_where_it_was_drafted_whether_or_not_the_path_says_so():
    """greedy-paths tries token 1, of law .96 among the two, and where it fails may draw its sibling 0."""
    law = Law(np.array([0, 1]), np.array([0.2, 0.8]))
    draft = Draft(np.array([0, 1], np.int32), np.array([-1, -1], np.int32), (law, law), "iid")
    off_path = missed = 0
    for seed in range(200):
        tally = Tally()
        rows = rows_of(draft, p=np.array([0.18, 0.72, 0.1]))
        verdict = measuring(rule_named("greedy-paths"), tally).rule(rows, draft, Noise(seed))
        assert tally.n_first == (bool(verdict.path) or verdict.token in (0, 1))
        off_path += not verdict.path and tally.n_first
        missed += not tally.n_first
    assert off_path > 0
    assert missed > 0


def test_nothing_is_seen_of_a_round_without_a_draft_but_its_time():
    tally, _ = look("standard", draft_of([], []))
    assert replace(tally, rule_s=0.0, own_s=0.0) == Tally()
    assert tally.rule_s > 0


@pytest.mark.parametrize("spec", LOSSY)
def test_the_law_of_a_lossy_rule_is_what_comes_out(spec):
    """Every answer of the dice, for every token that may be drafted; none of the defaults leaves p as it is."""
    info, out = rule_named(spec), np.zeros(len(P))
    for x, chance in zip(Q.ids, Q.probs, strict=True):
        draft = draft_of([x], [-1])
        for verdict, share in outcomes(info.decide, rows_of(draft), draft).items():
            out[draft.tokens[0] if verdict.path else verdict.token] += chance * share
    chain = draft_of([0], [-1])
    p, law = output_law(info, rows_of(chain), chain, -1, [0])
    out = out if len(law) == len(P) else np.append(out[:3], out[3:].sum())
    assert np.abs(law - out).max() < 1e-12
    assert np.abs(law - p).sum() > 0.05
    tally, _ = look(spec, chain)
    assert (tally.n_contexts, tally.kl) == (1, pytest.approx(kl(out, p)))
    assert tally.tv == pytest.approx(np.abs(out - p).sum() / 2)
    assert look(spec, chain, temperature=0.0)[0].n_contexts == 0, "greedy text is exact"


# -- the plan ----------------------------------------------------------------------------------------------------------


class FakeDrafter(Lookup):
    def __init__(self, drawing):
        super().__init__()
        self.kind, self.has_laws = drawing.kind, drawing.has_laws


def planned(names="", ks="1,2,4,16", depths="2,4", trunk=0, strict=False):
    said = []
    found = settings(
        chosen_rules(names), whole_numbers("k", ks), whole_numbers("depth", depths), trunk,
        drafter_for=lambda info: FakeDrafter(drawing_of(Setting(info.name, 1, 1))), strict=strict, say=said.append,
    )  # fmt: skip
    return found, said


def test_every_rule_is_planned_with_what_it_allows():
    found, said = planned()
    assert found[0] == Setting(PLAIN)
    assert not said
    ks = {name: {s.k for s in found if s.rule == name} for name in RULES}
    for name, info in RULES.items():
        most = info.max_children or 16
        assert ks[name] == ({k for k in (1, 2, 4, 16) if k <= most} if info.trees else {1}), name
    assert {s.depth for s in found if s.rule == "walk"} == {2, 4}
    assert {s.rule.partition(":")[0] for s in found} == {PLAIN, *RULES, *LOSSY}
    assert planned(ks="2")[1] == [s for s in planned(ks="2")[1] if "verifies a single path" in s] != []
    with pytest.raises(OptionError, match="single path"):
        planned("standard", ks="2", strict=True)


def test_a_draft_is_a_drafter_or_a_model():
    known = ["copy:int4", "model:x/y", "lookup", "lookup+model:z", "window:32+256"]
    assert [drafter_spec(draft) for draft in known] == known
    assert [drafter_spec(draft) for draft in ("x/y", "a+b/c:d")] == ["model:x/y", "model:a+b/c:d"]


def test_rules_are_named_once_and_as_a_user_types_them():
    assert [s.rule for s in planned("race,walk,k-seq,lossy-cactus,lossy-cactus:0.2", "1", "2")[0]] == [
        PLAIN, "walk", "spectr", "lossy-cactus:0.2",
    ]  # fmt: skip


def test_what_a_model_is_asked_to_draw():
    assert drawing_of(Setting("walk", 2, 4)).laws, "the optimum needs them"
    assert not drawing_for(rule_named("walk"), Tree()).laws, "the walk does not"
    assert drawing_of(Setting("rrsw", 2, 4, trunk=1)).kind == "without_replacement"
    assert (drawing_of(Setting("rrsw", 2, 4, 1)).trunk, drawing_of(Setting("rrsw", 1, 4, 1)).trunk) == (1, 0)
    with pytest.raises(OptionError, match="whole sequences"):
        drawing_for(rule_named("gls"), Tree(2, 0, 2))
    assert Tree(3, 1, 2).n_nodes(4) == 4 * 9
    assert Tree(3, 1, 2).n_nodes(2) == 2 * 3, "one level is left after the trunk"


# -- the arithmetic ----------------------------------------------------------------------------------------------------


def row(rule, prompt_id, *, k=1, temperature=1.0, tokens=(1, 2, 3), n_forwards=2, decode_s=1.0, **more):
    setting = Setting(rule, 0 if rule == PLAIN else k, 0 if rule == PLAIN else 2)
    tally = Tally(**{name: more.pop(name) for name in list(more) if name in Tally.__dataclass_fields__})
    counts = {"n_tokens": len(tokens), "n_tokens_first": 1, "n_forwards": n_forwards, "n_drafted": 4, "n_accepted": 1}
    times = {"decode_s": decode_s, "draft_s": 0.2, "target_s": 0.5, "rule_s": 0.1, "host_s": 0.1}
    return {
        **{"kind": "run", "setting": setting.name, "rule": rule, "k": setting.k, "depth": setting.depth, "trunk": 0},
        **{"task": "t", "prompt_id": prompt_id, "temperature": temperature, "tokens": list(tokens), "drafts": "iid"},
        **{"accepted_by_depth": [], **counts, **times, "tally": tally.to_json()},
        **more,
    }


def head(exactness="bit-identical"):
    names = {"target": "A", "draft": "B", "suite": "s", "max_tokens": 9, "seed": 0, "profile": "fast", "trunk": 0}
    cpu = {"name": "c", "n_cores": 2}
    versions = {"wager": "1", "openvino": "2"}
    return {"kind": "provenance", "exactness": exactness, "settings": names, "cpu": cpu, "versions": versions,
            "git": None, "started": "now"}  # fmt: skip


def test_numbers_are_sums_over_prompts():
    rows = [
        row("standard", "a", tokens=range(10), n_forwards=4, decode_s=3.0, n_rounds=4, n_first=3, n_children=4,
            n_drawn=8, n_optima=4, optimum=3.2, accepted_by_depth=[[3, 4], [1, 4]]),
        row("standard", "b", tokens=range(2), n_forwards=2, decode_s=1.0, n_rounds=1, n_first=0, n_children=1,
            n_drawn=2, n_optima=1, optimum=0.3, accepted_by_depth=[[0, 1]]),
    ]  # fmt: skip
    [line] = summarise([head(), *rows]).lines
    assert line.tokens_per_forward.value == pytest.approx(12 / 6), "not the mean of 2.5 and 1"
    assert line.first_acceptance == pytest.approx(3 / 5)
    assert line.optimum == pytest.approx(3.5 / 5)
    assert line.accepted_by_depth == [pytest.approx(3 / 5), pytest.approx(1 / 4)]
    assert (line.children, line.drawn, line.fed) == (1.0, pytest.approx(10 / 6), pytest.approx(8 / 6))
    assert line.ms_per_token == pytest.approx(1e3 * 4.0 / (9 + 1))
    assert (line.draft_ms, line.rule_ms) == (pytest.approx(40), pytest.approx(20))
    assert line.n_same == 0
    assert line.speed_up is None, "plain was not run"


def test_speed_up_is_the_median_ratio_of_seconds_a_token():
    plain = [row(PLAIN, i, tokens=range(11), decode_s=1.0, drafts=None) for i in "abc"]
    fast = [row("gls", i, tokens=range(21), decode_s=s) for i, s in zip("abc", (1.0, 0.5, 4.0), strict=True)]
    short = [row("gls", "d", tokens=range(5), decode_s=0.01), row(PLAIN, "d", tokens=range(11), decode_s=1.0)]
    found = summarise([head(), *plain, *fast, *short])
    line = next(line for line in found.lines if line.rule == "gls")
    assert line.speed_up is not None
    assert (line.speed_up.value, line.speed_up.n) == (pytest.approx(2.0), 3), "ratios 2, 4 and .5"


def test_an_interval_of_resampled_prompts():
    found = ratio_of_sums([10, 2], [4, 2])
    assert (found.value, found.low, found.high, found.n) == (2.0, 1.0, 2.5, 2)
    one = ratio_of_sums([7], [2])
    assert (one.low, one.value, one.high) == (3.5, 3.5, 3.5)
    rng = np.random.default_rng(1)
    wide, narrow = (ratio_of_sums(rng.integers(10, 30, n), [10] * n) for n in (8, 200))
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


@pytest.mark.parametrize(
    ("rule", "k", "drafts", "is_bound"),
    [
        ("spectr", 4, "iid", True),
        ("walk", 1, "coupled", True),
        ("walk", 2, "coupled", False),
        ("rrsw", 2, "without_replacement", False),
        ("lossy-cactus:0.2", 1, "iid", False),
    ],
)
def test_where_the_optimum_is_a_bound(rule, k, drafts, is_bound):
    summary = summarise([head(), row(rule, "a", k=k, drafts=drafts, n_optima=1, optimum=0.5, n_rounds=1)])
    assert summary.lines[0].is_bound == is_bound
    assert ("(0.500)" in markdown(summary)) == (not is_bound)


def test_texts_that_must_agree():
    rows = [row(PLAIN, "a"), row("walk", "a", tokens=(1, 9)), row("gls", "a", tokens=(1, 9))]
    assert [(m.setting, m.at) for m in mismatches(rows, True)] == [("walk k=1 depth=2", 1)]
    rows = [r | {"temperature": 0.0} for r in rows]
    assert [m.setting for m in mismatches(rows, True)] == ["walk k=1 depth=2", "gls k=1 depth=2"]
    assert mismatches(rows, False) == []
    assert summarise([head("max (not bit-identical here)"), *rows]).mismatches == []
    assert "**NOT IDENTICAL**" in markdown(summarise([head(), *rows]))


def test_infinite_divergence_is_said_and_stays_json():
    summary = summarise([head(), row("lossy-ensemble:0.5", "a", n_contexts=2, kl=math.inf, tv=0.5)])
    found = json.loads(json.dumps(summary.to_json(), allow_nan=False))
    assert found["lines"][0]["kl"] == "inf"
    assert "| inf " in markdown(summary)


def test_a_form_that_had_no_room_shows_what_it_had():
    rows = [row("gls", "a", k=8, n_rounds=2, n_children=14), row("gls", "a", k=2, n_rounds=2, n_children=4)]
    text = markdown(summarise([head(), *rows]))
    assert "| 8 (7.0) |" in text
    assert "| 2       |" in text


# -- LLM(rule=…) -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _one_home(home, monkeypatch, _own_home):
    monkeypatch.setenv("WAGER_HOME", str(home))


def test_an_llm_says_what_its_rule_promises(tiny_llama):
    draft = f"model:{tiny_llama.with_name('tiny-llama-b')}"
    for rule, lossless, promise in [
        ("walk", True, "bit-identical"),
        ("spectr", True, "lossless: same law as plain decoding, but sampled text depends on the drafts"),
        ("lossy-typical:0.3", False, "lossy: sampled text has another law than plain decoding (lossy-typical:0.3)"),
    ]:
        info = LLM(tiny_llama, drafter=draft, rule=rule, tree_width=2, kv_cache_gb=0.1).info
        assert (info["rule"], info["lossless"], info["exactness"]) == (rule, lossless, promise)
    rounding = LLM(tiny_llama, profile="max", rule="standard", kv_cache_gb=0.1).info["exactness"]
    assert rounding.startswith("lossless: same law as plain decoding, up to rounding")


@pytest.mark.parametrize("rule", ["standard", "gls", "lossy-cactus"])
def test_identity_cannot_be_required_of_a_rule_that_does_not_promise_it(tiny_llama, rule):
    draft = f"model:{tiny_llama.with_name('tiny-llama-b')}"
    with pytest.raises(IdentityError, match="use walk"):
        LLM(tiny_llama, drafter=draft, rule=rule, kv_cache_gb=0.1, require_identical=True)
    LLM(tiny_llama, drafter=draft, rule="race", kv_cache_gb=0.1, require_identical=True)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rule": "nonsense"}, "nonsense"),
        ({"rule": "gls"}, "needs iid drafts"),
        ({"rule": "block", "drafter": "B", "tree_width": 2}, "a single path"),
        ({"rule": "khisti", "drafter": "B", "tree_width": 9}, "at most 8 children"),
        ({"rule": "spectr", "drafter": "B", "tree_width": 2, "tree_levels": 2}, "whole sequences"),
        ({"tree_trunk": 1}, "`tree_width` is 1"),
        ({"drafter": "B", "tree_levels": 2}, "`tree_width` is 1"),
        ({"drafter": "B", "tree_width": 2, "tree_trunk": -1}, "`tree_trunk` is -1"),
        ({"tree_width": 2}, "which drafts single paths"),
    ],
)
def test_what_does_not_fit_together_is_refused(tiny_llama, options, match):
    if options.get("drafter") == "B":
        options = options | {"drafter": f"model:{tiny_llama.with_name('tiny-llama-b')}"}
    with pytest.raises(OptionError, match=match):
        LLM(tiny_llama, kv_cache_gb=0.1, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"drafter": "lookup", "tree_width": 4},
        {"tree_width": 0},
        {"tree_trunk": 3},
        {"num_draft_tokens": -5},
        {"drafter": None, "num_draft_tokens": 5},
    ],
)
def test_an_engine_of_ones_own_refuses_what_the_front_door_refuses(tiny_llama, options):
    llm = LLM(tiny_llama, drafter="none", kv_cache_gb=0.1)
    with pytest.raises(OptionError):
        llm.make_engine(**options)


def test_one_child_after_a_trunk_is_bounded_however_it_was_drawn():
    row = {"rule": "rrsw", "k": 2, "trunk": 1, "drafts": "without_replacement"}
    assert _is_bound(row)
    assert not _is_bound(row | {"trunk": 0})


def test_trunk_and_levels_reach_the_draft(tiny_llama):
    llm = LLM(tiny_llama, drafter="none", kv_cache_gb=0.1)
    seen = []

    def watching(rows, draft, noise):
        seen.append(draft)
        return rule_named("walk").rule(rows, draft, noise)

    drafter = llm.make_drafter(
        f"model:{tiny_llama.with_name('tiny-llama-b')}", drawing_for(RULES["walk"], Tree(2, 1, 2))
    )
    engine = llm.make_engine(
        drafter=drafter, rule=replace(RULES["walk"], rule=watching), num_draft_tokens=4,
        tree_width=2, tree_trunk=1, tree_levels=2,
    )  # fmt: skip
    engine.submit([5, 6, 7], Sampling(temperature=1.0, max_tokens=8, ignore_eos=True), seed=0)
    engine.step()
    assert seen[0].parents.tolist().count(-1) == 1, "a trunk"
    assert len(seen[0]) == 1 + 2 + 4 + 4, "two levels of two children, then paths"
