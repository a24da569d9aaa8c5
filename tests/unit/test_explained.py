"""What a policy that explains itself says, and that it decides as before."""

from __future__ import annotations

from engine_tools import EOS, V, run, toy
from guide_tools import table
from wager.cost import StepCost
from wager.drafters.blend import Blend
from wager.drafters.lookup import Lookup
from wager.explained import Explained
from wager.policies import CostDriven, Fixed
from wager.types import Sampling

SAMPLING = Sampling(max_tokens=30)
PROMPT = [[1, 2, 5, 1, 2, 5, 1, 2]]


def test_every_step_is_told_with_its_reasons_and_decided_as_before() -> None:
    def policy() -> CostDriven:
        return CostDriven(StepCost([2, 4, 8]), min_rows=2)

    silent = run(toy(), SAMPLING, batch=PROMPT, drafter=Blend(Lookup()), policy=policy())
    told: list[str] = []
    loud = run(toy(), SAMPLING, batch=PROMPT, drafter=Blend(Lookup()), policy=Explained(policy(), told.append))
    assert loud.tokens == silent.tokens
    assert loud.stats[0].n_drafted == silent.stats[0].n_drafted
    assert len(told) == loud.stats[0].n_forwards
    assert told[0].startswith("step 1: ")
    assert any("copy 0." in line and "expected 2 rows" in line and " *" in line for line in told)
    assert sum(int(line.rpartition("accepted ")[2]) for line in told) == loud.stats[0].n_accepted
    assert sum(int(line.partition("fed ")[2].split()[0]) for line in told) == loud.stats[0].n_drafted


def test_forced_tokens_are_told() -> None:
    told: list[str] = []
    sampling = Sampling(max_tokens=30, constraint=table(EOS, V))
    run(toy(), sampling, batch=PROMPT, drafter=Lookup(), policy=Explained(Fixed(0), told.append))
    assert "drafted nothing; fed 0 of 0; 4 forced by the constraint; accepted 4" in told[0]


def test_what_explains_nothing_is_told_too() -> None:
    told: list[str] = []
    run(toy(), SAMPLING, batch=PROMPT * 2, drafter=Lookup(), policy=Explained(Fixed(3), told.append))
    assert any(
        line.startswith("step 1 of 1: lookup, 5 tokens matched; ") and "fed 3 of 3; accepted" in line for line in told
    ), told
    assert any("lookup drafted nothing; fed 0 of 0" in line for line in told)
