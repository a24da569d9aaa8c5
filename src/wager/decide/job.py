"""What `wager decide` is asked for: checked before a model is loaded, and what of it fixes the answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from wager.decide.candidates import Candidates, parse_labels, read_candidates
from wager.decide.conformal import INTERVAL_METHODS, SET_METHODS
from wager.decide.costs import read_costs
from wager.decide.metrics import MetricInfo, metric_named
from wager.decide.metrics.registry import positive_label
from wager.decide.options import Options
from wager.decide.reading import Reading, kind_of
from wager.decide.rules import rule_for
from wager.decide.table import Table
from wager.decide.table import kind_of as suffix_of
from wager.decide.template import Template, read_template
from wager.decide.work import Asker, Source
from wager.errors import OptionError
from wager.types import JSON, Sampling

if TYPE_CHECKING:
    from wager.decide.estimate import Estimator
    from wager.llm import LLM

ESTIMATORS = ("enumerate", "sample", "scored")
_LONG_ANSWER = 256  # tokens
_ROOM = 2  # tokens after the longest candidate: whether a word goes on can be seen
_BRIDGE = "\nAnswer:"
_COVERAGE = 0.9
_RANK_ALL = ("list-auc", "dcg", "ndcg")


@dataclass(frozen=True, kw_only=True)
class Job:
    """The options of one run, as on the command line. Raises ``OptionError`` where they do not go together."""

    data: Path
    prompt: Path
    metric: str
    out: Path
    labels: str | None = None
    candidates: Path | None = None
    target: str | None = None
    n: int = 16
    estimator: str | None = None
    compare_estimators: bool = False
    reasoning: bool = False
    bridge: str | None = None
    calibration: Path | None = None
    calibration_rows: int | None = None
    coverage: float | None = None
    conformal: str | None = None
    abstain: float | None = None
    positive: str | None = None
    costs: Path | None = None
    rows: int | None = None
    skip_errors: bool = False
    raw: bool = False
    system: str | None = None
    temperature: float = 1.0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    seed: int = 0
    model: str
    profile: str

    def __post_init__(self) -> None:
        self._check_ranges()
        self._check_parts()
        if self.answers is None and (self.estimator == "enumerate" or self.compare_estimators):
            raise OptionError("to enumerate needs all that may be answered: give --labels or --candidates")
        if self.answers is None and self.reasoning:
            raise OptionError("--reasoning asks for the answer after each chain: give --labels or --candidates")
        if self.temperature != 1 and not self._draws:
            raise OptionError(f"--temperature is {self.temperature}, and nothing is drawn to enumerate: leave it out")
        self._check_metrics()
        self._check_calibrated()

    def _check_ranges(self) -> None:
        for name, value in (("-n", self.n), ("--rows", self.rows), ("--calibration-rows", self.calibration_rows)):
            if value is not None and value < 1:
                raise OptionError(f"{name} is {value}: give at least 1")
        if self.coverage is not None and not 0 < self.coverage < 1:
            raise OptionError(f"--coverage is {self.coverage}: give a share between 0 and 1, e.g. 0.9")
        if self.abstain is not None and not 0 < self.abstain < 1:
            raise OptionError(f"--abstain is {self.abstain}: give a share of the wrong answers, e.g. 0.1")
        if not self.temperature > 0:
            raise OptionError(f"--temperature is {self.temperature}: give a positive number, 1 is the model's own law")
        if not 0 <= self.seed < 2**63:
            raise OptionError(f"--seed is {self.seed}: give an integer in [0, 2^63)")
        if self.estimator is not None and self.estimator not in ESTIMATORS:
            raise OptionError(f"--estimator is `{self.estimator}`: give one of {', '.join(ESTIMATORS)}")
        suffix_of(self.out, "--out")
        for path in (self.data, self.prompt, self.calibration, self.candidates, self.costs):
            if path is not None and self.out.exists() and path.exists() and self.out.samefile(path):
                raise OptionError(f"--out `{self.out}` would overwrite what is read: give another file")

    def _check_parts(self) -> None:
        """Options that need another, or exclude it."""
        if self.labels is not None and self.candidates is not None:
            raise OptionError(f"--labels `{self.labels}` and --candidates `{self.candidates}`: give one of them")
        if self.raw and self.system is not None:
            raise OptionError(f"--system `{self.system}` needs the chat template: leave out --raw")
        needs = (
            ("--calibration", self.calibration, "--target", self.target),
            ("--compare-estimators", self.compare_estimators or None, "--target", self.target),
            ("--calibration-rows", self.calibration_rows, "--calibration", self.calibration),
            ("--coverage", self.coverage, "--calibration", self.calibration),
            ("--conformal", self.conformal, "--calibration", self.calibration),
            ("--abstain", self.abstain, "--calibration", self.calibration),
            ("--costs", self.costs, "--metric cost", "cost" in {metric.name for metric in self.metrics} or None),
            ("--bridge", self.bridge, "--reasoning", self.reasoning or None),
            ("--positive", self.positive, "--metric auc", "auc" in self.metric or None),
        )
        for name, value, needed, there in needs:
            if value is not None and there is None:
                raise OptionError(f"{name} `{value}` needs {needed}: give both or neither")

    def _check_metrics(self) -> None:
        """What a metric must be told is there, or will be learnt."""
        ways = {
            "labels": "give --labels",
            "costs": "give --costs",
            "priors": "give --calibration, whose targets tell them",
        }
        learnt = set() if self.calibration is None else {"priors"}
        for metric in self.metrics:
            lacking = (metric.must | rule_for(metric).must) - self.options.given() - learnt
            for lacks in (name for name in ways if name in lacking):
                raise OptionError(f"--metric `{metric.spec}` needs {lacks}: {ways[lacks]}")
            if metric.name in _RANK_ALL and self.target is not None:
                raise OptionError(
                    f"--metric `{metric.spec}` judges orders of all items, and draws name a few: leave out --target, "
                    "or use wager from Python, which can be told all `labels`"
                )
            if "positive" in metric.takes:
                positive_label(self.options)

    def _check_calibrated(self) -> None:
        """What is asked of calibration rows is possible for these answers."""
        kind = self.reading.kind
        if self.conformal is not None:
            known: dict[str, tuple[str, ...]] = {"numbers": INTERVAL_METHODS}
            if self.answers is not None:
                known["labels"] = SET_METHODS
            if kind not in known:
                raise OptionError(f"--conformal `{self.conformal}` needs numbers or known labels: give --labels")
            if self.conformal not in known[kind]:
                names = ", ".join(known[kind])
                raise OptionError(f"--conformal is `{self.conformal}`: for {kind} give one of {names}")
        if self.abstain is not None:
            if not self.withheld:
                raise OptionError(
                    f"--abstain `{self.abstain}` withholds what is right or wrong: ask for a metric of labels, such as "
                    "accuracy, or look at the intervals"
                )
            for metric in self.withheld:
                if "priors" in rule_for(metric).takes:
                    raise OptionError(
                        f"--abstain promises nothing for `{metric.spec}`, which learns priors from the same rows: "
                        "use MetricAwarePredictor in Python, which halves them"
                    )

    @property
    def withheld(self) -> tuple[MetricInfo, ...]:
        """The metrics whose predictions can be withheld, if that is asked for: they are right or wrong."""
        return tuple(metric for metric in self.metrics if metric.gives == "label" and self.abstain is not None)

    @property
    def _draws(self) -> bool:
        return self.main != "enumerate" or self.reasoning or self.target is not None

    @cached_property
    def metrics(self) -> tuple[MetricInfo, ...]:
        """Each metric once, in the order given."""
        found = [metric_named(name.strip()) for name in self.metric.split(",") if name.strip()]
        if not found:
            raise OptionError("--metric is empty: name one, e.g. rmse")
        return tuple({metric.spec: metric for metric in found}.values())

    @cached_property
    def answers(self) -> Candidates | None:
        """What may be answered, if that was given."""
        if self.labels is not None:
            return parse_labels(self.labels)
        return None if self.candidates is None else read_candidates(self.candidates)

    @cached_property
    def reading(self) -> Reading:
        only_labels = any("labels" in metric.must for metric in self.metrics)
        return Reading(kind_of(self.metrics, self.answers), self.answers, only_labels=only_labels)

    @cached_property
    def options(self) -> Options:
        """What rules and metrics are told."""
        values = self.answers.values if self.answers is not None else None
        positive = None if self.positive is None else self.reading.target(self.positive)
        costs = None
        if self.costs is not None and values is not None:
            costs = read_costs(self.costs, values, self.reading.target)
        return Options(labels=values, costs=costs, positive=positive)

    @cached_property
    def main(self) -> str:
        """The estimator that decides."""
        return self.estimator or ("sample" if self.answers is None else "enumerate")

    @cached_property
    def others(self) -> tuple[str, ...]:
        """The estimators that are only compared."""
        return tuple(name for name in ESTIMATORS if self.compare_estimators and name != self.main)

    @cached_property
    def template(self) -> Template:
        return read_template(self.prompt)

    @cached_property
    def sources(self) -> tuple[Source, ...]:
        """The calibration rows, if any, then the data; columns are checked."""
        data = Source(
            part="data",
            table=self._table(self.data),
            template=self.template,
            target=self.target,
            read_target=self.reading.target,
            most=self.rows,
        )
        if self.calibration is None:
            return (data,)
        return (
            Source(
                part="calibration",
                table=self._table(self.calibration),
                template=self.template,
                target=self.target,
                read_target=self.reading.target,
                most=self.calibration_rows,
            ),
            data,
        )

    def _table(self, path: Path) -> Table:
        table = Table(path)
        self.template.check(table.columns)
        if self.target is not None and path == (self.calibration or self.data):  # new rows may have no targets
            table.require(self.target, "--target")
        return table

    @cached_property
    def settings(self) -> JSON:
        """All that changes what the model answers. Metrics, coverage and --rows do not: they can be changed later."""
        answers = None if self.answers is None else [list(pair) for pair in self.answers.pairs]
        # Labels that are texts are read in the same way whatever the metrics.
        only_labels = self.reading.only_labels and self.reading.kind == "numbers"
        return {
            "data": _named(self.data),
            "prompt": _named(self.prompt),
            "candidates": None if answers is None else self.labels or _named(self.candidates or Path()),
            "kind of answer": "labels only" if only_labels else self.reading.kind,
            "target": self.target,
            "n": self.n,
            "estimators": [self.main, *self.others],
            "reasoning": self._bridge if self.reasoning else None,
            "calibration": None if self.calibration is None else _named(self.calibration),
            "calibration_rows": self.calibration_rows,
            "chat": not self.raw,
            "system": self.system,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "stop": list(self.stop),
            "seed": self.seed,
            "model": self.model,
            "profile": self.profile,
        }

    def asker(self, llm: LLM) -> Asker:
        """What asks ``llm`` about rows."""
        longest = _LONG_ANSWER
        if self.answers is not None:
            texts = [text for _, text in self._spaced(self.answers).pairs]
            longest = max(len(llm.text.encode(text, add_special=False)) for text in texts) + _ROOM
        estimators = {name: self._estimator(name, longest) for name in (self.main, *self.others)}
        compared = self.target is not None
        return Asker(
            llm=llm,
            estimators=estimators,
            greedy=self._estimator("greedy", longest) if compared else None,
            sampled=(estimators.get("sample") or self._estimator("sample", longest)) if compared else None,
            seed=self.seed,
        )

    def _estimator(self, name: str, longest: int) -> Estimator:
        """``longest``: tokens of an answer, a chain of reasoning aside, where ``max_tokens`` was not given."""
        from wager.decide.estimate import Asking, Enumerated, Reasoned, Sampled, Scored

        asking = Asking(chat=not self.raw, system=self.system)
        parse, greedy = self.reading.answer, name == "greedy"
        sampling = self._sampling(longest, greedy=greedy, chain=False)
        n = 1 if self.reasoning or greedy else self.n
        found: Estimator
        if name == "enumerate":
            assert self.answers is not None
            found = Enumerated(candidates=self._spaced(self.answers).pairs, asking=asking)
        elif name == "scored":
            found = Scored(parse=parse, n=n, sampling=sampling, asking=asking)
        else:
            found = Sampled(parse=parse, n=n, sampling=sampling, asking=asking)
        if not self.reasoning:
            return found
        chain = self._sampling(_LONG_ANSWER, greedy=greedy, chain=True)
        n = 1 if greedy else self.n
        return Reasoned(then=found, bridge=self._bridge, n=n, sampling=chain, asking=asking)

    def _spaced(self, answers: Candidates) -> Candidates:
        """A prompt that is continued as it is, and ends in a word, goes on with a space."""
        before = self._bridge if self.reasoning else self.template.text if self.raw else "\n"
        return answers if before[-1:].isspace() else answers.spaced()

    @property
    def _bridge(self) -> str:
        return _BRIDGE if self.bridge is None else self.bridge

    @property
    def level(self) -> float:
        """The coverage of intervals."""
        return _COVERAGE if self.coverage is None else self.coverage

    def _sampling(self, longest: int, *, greedy: bool, chain: bool) -> Sampling:
        after_chain = self.reasoning and not chain
        one_line = self.answers is not None and not chain and (self.raw or after_chain)
        return Sampling(
            temperature=0.0 if greedy else self.temperature,
            max_tokens=longest if after_chain or self.max_tokens is None else self.max_tokens,
            stop=(*(("\n",) if one_line else ()), *(() if after_chain else self.stop)),
        )


def _named(path: Path) -> str:
    """A file by its name and a digest of its bytes."""
    digest = hashlib.blake2b(digest_size=6)
    with path.open("rb") as file:
        while piece := file.read(2**20):
            digest.update(piece)
    return f"{path.name} ({digest.hexdigest()})"
