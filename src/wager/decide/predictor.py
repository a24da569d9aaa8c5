"""The rules as an estimator: ``fit`` on rows with targets, ``predict`` on others, in scikit-learn's manner."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from collections.abc import Sequence as ListLike
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from wager.decide.calibration import Calibration, fit_line, on_line
from wager.decide.conformal import (
    INTERVAL_METHODS,
    SET_METHODS,
    calibrate_intervals,
    calibrate_release,
    calibrate_sets,
    confidence,
)
from wager.decide.law import Law
from wager.decide.metrics import measure, metric_named
from wager.decide.options import Options
from wager.decide.rules import decide, rule_for
from wager.errors import OptionError
from wager.types import F64

# Rows (whatever a prompt is made of: texts, mappings, vectors) to their laws.
Laws = Callable[[Any], ListLike[Law]]
Conformal = Literal["aps", "saps", "absolute", "normalised", "quantile"]


class MetricAwarePredictor:
    """Predicts what is best for ``metric`` under the laws that ``laws`` gives for rows.

    ``labels``: all labels, for sets of them and for rules that take them. ``options``: what else the rule may be told;
    what targets tell (priors, the numbers that ranks are taken in) is learnt by ``fit``. ``affine``: predictions are
    moved by a line fitted to the targets. ``conformal``: the method of ``predict_set`` or ``predict_interval``, at
    ``level``; ``floor`` and ``lam`` are those of conformal.py. ``abstain``: ``released`` withholds answers so that at
    most this share of the wrong ones comes out.

    Without ``fit`` it predicts too, where the rule needs nothing learnt. Where ``fit`` learns a line, priors or ranks
    *and* calibrates, half of the rows (drawn with ``seed``) serve each: guarantees need rows that nothing was fitted
    on. After ``fit``: ``calibration_``, ``options_``, ``n_rows_``; for labels ``classes_``.
    """

    def __init__(
        self,
        laws: Laws | None = None,
        *,
        metric: str = "accuracy",
        labels: tuple[Any, ...] | None = None,
        options: Options | None = None,
        affine: bool = False,
        conformal: Conformal | None = None,
        level: float = 0.9,
        floor: float = 0.1,
        lam: float = 0.1,
        abstain: float | None = None,
        seed: int = 0,
    ) -> None:
        # Nothing is checked here: scikit-learn sets parameters one by one, and copies them as they are.
        self.laws = laws
        self.metric = metric
        self.labels = labels
        self.options = options
        self.affine = affine
        self.conformal = conformal
        self.level = level
        self.floor = floor
        self.lam = lam
        self.abstain = abstain
        self.seed = seed

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments by name. ``deep`` is scikit-learn's; no argument has parameters of its own."""
        return {name: getattr(self, name) for name in _names(self)}

    # Keyword arguments by name are scikit-learn's contract for this one.
    def set_params(self, **params: Any) -> MetricAwarePredictor:
        """Change arguments of the constructor. Raises ``OptionError`` for a name that is none."""
        for name, value in params.items():
            if name not in _names(self):
                raise OptionError(f"`{name}` is no parameter of MetricAwarePredictor: give {', '.join(_names(self))}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items() if name != "laws")
        return f"MetricAwarePredictor({given})"

    def fit(self, X: Any, y: ListLike[Any]) -> MetricAwarePredictor:
        """Learn from n >= 1 rows and their targets what was asked for. Targets are as the laws' values are."""
        info = metric_named(self.metric)
        rule = rule_for(info)
        self._check(numbers=info.gives == "number" and info.kind == "numbers")
        laws = self.predict_law(X)
        targets = _targets(y, numbers=info.kind == "numbers")
        if len(laws) != len(targets) or not targets:
            raise OptionError(f"X has {len(laws)} rows and y {len(targets)} targets: give one per row, at least one")
        options = self._given()
        learns = self.affine or bool({"priors", "reference"} & rule.takes - options.given())
        calibrates = self.conformal is not None or self.abstain is not None
        learn_on, calibrate_on = _split(len(laws), halve=learns and calibrates, seed=self.seed)
        self.options_ = options.learnt([targets[i] for i in learn_on], rule.takes)
        self.calibration_ = Calibration(metric=info.spec)
        if self.affine:
            raw = self._decide([laws[i] for i in learn_on])
            both = [(x, targets[i]) for x, i in zip(raw, learn_on, strict=True) if x is not None]
            self.calibration_ = Calibration(metric=info.spec, line=fit_line(*_columns(both)))
        self._calibrate([laws[i] for i in calibrate_on], [targets[i] for i in calibrate_on])
        self.n_rows_ = len(laws)
        if info.gives == "label":
            self.classes_ = np.unique(np.array(targets))
        if hasattr(X, "shape") and len(X.shape) == 2:
            self.n_features_in_ = int(X.shape[1])
        return self

    def predict_law(self, X: Any) -> list[Law]:
        """The law of each row's answer."""
        if self.laws is None:
            raise OptionError("`laws` was not given: give a function from rows to laws, one per row")
        if hasattr(X, "toarray"):
            raise OptionError(
                "X is sparse, and sparse input is not supported: give rows, or a dense array (X.toarray())"
            )
        laws = list(self.laws(X))
        n_rows = len(X if hasattr(X, "__len__") else np.asarray(X))
        if len(laws) != n_rows:
            raise OptionError(f"`laws` gave {len(laws)} laws for {n_rows} rows: it must give one per row")
        return laws

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """(n,) the best prediction for each row: numbers (NaN where there is no answer), else values (None)."""
        predictions = self._predictions(self.predict_law(X))
        info = metric_named(self.metric)
        if info.gives == "number":
            return np.array([np.nan if x is None else x for x in predictions], dtype=np.float64)
        if info.gives in ("label", "text") and None not in predictions:
            return np.array(predictions)
        listed = np.empty(len(predictions), dtype=object)
        listed[:] = predictions
        return listed

    def predict_interval(self, X: Any) -> F64:
        """(n, 2) low and high ends. Needs ``fit`` with a ``conformal`` method for numbers."""
        found = self._fitted().intervals
        if found is None:
            raise OptionError(
                f"`conformal` is {self.conformal!r}: give one of {INTERVAL_METHODS} and fit, for intervals"
            )
        laws = self.predict_law(X)
        return np.array([found.of(law, x) for law, x in zip(laws, self._predictions(laws), strict=True)])

    def predict_set(self, X: Any) -> list[tuple[Any, ...]]:
        """The labels that each row's target may be. Needs ``fit`` with a ``conformal`` method for labels."""
        found = self._fitted().sets
        if found is None:
            raise OptionError(f"`conformal` is {self.conformal!r}: give one of {SET_METHODS} and fit, for sets")
        return [found.of(law) for law in self.predict_law(X)]

    def released(self, X: Any) -> npt.NDArray[np.bool_]:
        """(n,) whether each row's answer is given out. Needs ``fit`` with ``abstain``."""
        found = self._fitted().release
        if found is None:
            raise OptionError("`abstain` is None: give the share of wrong answers that may come out, and fit")
        return np.array([found.of(confidence(law)) for law in self.predict_law(X)], dtype=np.bool_)

    def score(self, X: Any, y: ListLike[Any]) -> float:
        """The metric, negated where lower is better, as scikit-learn's model selection wants it."""
        info = metric_named(self.metric)
        predictions = self._predictions(self.predict_law(X))
        targets = _targets(y, numbers=info.kind == "numbers")
        value = measure(info, targets, predictions, options=self._options())
        return value if info.better == "higher" else -value

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn may expect: rows of any form, which ``laws`` alone understands, and no need to fit."""
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        gives = metric_named(self.metric).gives
        kind = {"number": "regressor", "label": "classifier"}.get(gives)
        return Tags(
            estimator_type=kind,
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(poor_score=True) if kind == "classifier" else None,
            regressor_tags=RegressorTags(poor_score=True) if kind == "regressor" else None,
            input_tags=InputTags(string=True, dict=True, allow_nan=True),
            no_validation=True,
            requires_fit=False,
        )

    def _options(self) -> Options:
        """What the rule is told: what was learnt, or what was given."""
        learnt = getattr(self, "options_", None)
        return learnt if learnt is not None else self._given()

    def _given(self) -> Options:
        options = self.options or Options()
        taken = options.labels is None and "labels" in rule_for(self.metric).takes
        return replace(options, labels=self.labels) if taken else options

    def _fitted(self) -> Calibration:
        found = getattr(self, "calibration_", None)
        if found is None:
            raise OptionError("this MetricAwarePredictor is not fitted yet: call fit with rows and targets first")
        assert isinstance(found, Calibration)
        return found

    def _decide(self, laws: ListLike[Law]) -> list[Any]:
        rule = rule_for(self.metric)
        return [decide(law, rule, options=self._options()).value for law in laws]

    def _predictions(self, laws: ListLike[Law]) -> list[Any]:
        if not self.affine:
            return self._decide(laws)
        return on_line(self._fitted().line, self._decide(laws))

    def _check(self, *, numbers: bool) -> None:
        """Raises ``OptionError`` for what does not go with the metric."""
        if self.affine and not numbers:
            raise OptionError(f"`affine` was asked for, and {self.metric} does not predict numbers: leave it out")
        if self.conformal is not None and self.conformal not in (INTERVAL_METHODS if numbers else SET_METHODS):
            names = ", ".join(INTERVAL_METHODS if numbers else SET_METHODS)
            raise OptionError(f"`conformal` is {self.conformal!r}: for {self.metric} give one of {names}")
        if self.abstain is not None and numbers:
            raise OptionError("`abstain` needs answers that are right or wrong: for numbers use `conformal` intervals")

    def _calibrate(self, laws: ListLike[Law], targets: ListLike[Any]) -> None:
        done = self.calibration_
        sets, intervals, release = None, None, None
        predictions = self._predictions(laws)
        if self.conformal in INTERVAL_METHODS:
            intervals = calibrate_intervals(
                laws, predictions, targets, level=self.level, method=self.conformal, floor=self.floor
            )
        elif self.conformal in SET_METHODS:
            labels = self.labels or self._options().labels
            if labels is None:
                raise OptionError("`labels` is None: sets are made of labels, so give all of them")
            sets = calibrate_sets(laws, targets, labels=labels, level=self.level, method=self.conformal, lam=self.lam)
        if self.abstain is not None:
            wrong = [x != y for x, y in zip(predictions, targets, strict=True)]
            release = calibrate_release([confidence(law) for law in laws], wrong, alpha=self.abstain)
        self.calibration_ = Calibration(
            metric=done.metric, line=done.line, sets=sets, intervals=intervals, release=release
        )


def _names(predictor: MetricAwarePredictor) -> list[str]:
    """Names of the constructor's arguments."""
    return [name for name in inspect.signature(type(predictor).__init__).parameters if name != "self"]


def _targets(y: Any, *, numbers: bool) -> list[Any]:
    """Python values, so that 1 of numpy and 1 of a law are one label; numbers as floats."""
    if y is None:
        raise OptionError("`y` is None: this estimator requires y to be passed, one target per row")
    listed = np.asarray(y).tolist() if hasattr(y, "__array__") else list(y)
    if not numbers:
        return listed
    try:
        found = [float(value) for value in listed]
    except (TypeError, ValueError) as error:
        raise OptionError(f"targets such as {listed[0]!r} are no numbers: this metric compares numbers") from error
    if not np.isfinite(found).all():
        raise OptionError("Input y contains NaN or infinity: leave these rows out")
    return found


def _split(n: int, *, halve: bool, seed: int) -> tuple[list[int], list[int]]:
    """Rows to learn on and rows to calibrate on: all for both, or a half each."""
    if not halve:
        return list(range(n)), list(range(n))
    order = np.random.default_rng(seed).permutation(n).tolist()
    return sorted(order[: n // 2]), sorted(order[n // 2 :])


def _columns(pairs: ListLike[tuple[Any, Any]]) -> tuple[list[float], list[float]]:
    return [float(x) for x, _ in pairs], [float(y) for _, y in pairs]
