"""lm-evaluation-harness itself over the default model, on local task files: its numbers are those of our own calls."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

lm_eval = pytest.importorskip("lm_eval")

from lm_eval.tasks import TaskManager  # noqa: E402

from wager import LLM  # noqa: E402
from wager.lm_eval import harness_model  # noqa: E402

pytestmark = [pytest.mark.convert, pytest.mark.model]

QUESTIONS = [
    ("The capital of France is", ["Paris", "a banana", "Berlin"], 0),
    ("Two plus two is", ["four", "purple", "ninety"], 0),
    ("At night the sky is", ["made of cheese", "dark", "a spoon"], 1),
]
TEXTS = ["The quick brown fox jumps over the lazy dog.", "Water boils at one hundred degrees."]


def task(folder: Path, name: str, rows: list[dict[str, Any]], **options: Any) -> None:
    data = folder / f"{name}.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    about = {
        "task": name,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        **options,
    }
    (folder / f"{name}.yaml").write_text(json.dumps(about))  # JSON is YAML


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    choices = [{"question": q, "choices": c, "gold": gold} for q, c, gold in QUESTIONS]
    task(
        folder,
        "local_choice",
        choices,
        output_type="multiple_choice",
        doc_to_text="{{question}}",
        doc_to_choice="{{choices}}",
        doc_to_target="gold",
        metric_list=[{"metric": "acc"}],
    )
    task(
        folder,
        "local_text",
        [{"text": text} for text in TEXTS],
        output_type="loglikelihood_rolling",
        doc_to_text="",
        doc_to_target="{{text}}",
        metric_list=[{"metric": "byte_perplexity"}],
    )
    task(
        folder,
        "local_answer",
        [{"question": "The capital of France is", "answer": " Paris"}],
        output_type="generate_until",
        doc_to_text="{{question}}",
        doc_to_target="{{answer}}",
        generation_kwargs={"until": ["\n", "."], "max_gen_toks": 8, "do_sample": False},
        metric_list=[{"metric": "exact_match"}],
    )
    return folder


@pytest.fixture(scope="module")
def found(tasks: Path) -> dict[str, Any]:
    names = ["local_choice", "local_text", "local_answer"]
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    return dict(
        lm_eval.simple_evaluate(
            model=harness_model(), tasks=names, task_manager=manager, log_samples=True, bootstrap_iters=0
        )
    )


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM()


def test_multiple_choice(found: dict[str, Any], llm: LLM) -> None:
    samples = found["samples"]["local_choice"]
    n_right = 0
    for (question, choices, gold), sample in zip(QUESTIONS, samples, strict=True):
        scores = llm.score(question, [f" {c}" for c in choices], chat=False, terminator="none").logprobs
        told = [float(response[0]) for response in sample["filtered_resps"]]
        assert told == pytest.approx(scores.tolist(), abs=1e-4)
        n_right += int(scores.argmax()) == gold
    assert found["results"]["local_choice"]["acc,none"] == pytest.approx(n_right / len(QUESTIONS))


def test_perplexity(found: dict[str, Any], llm: LLM) -> None:
    start = [llm.text.bos_id if llm.text.bos_id is not None else min(llm.text.eos_ids)]
    ids = [llm.text.encode(text, add_special=False) for text in TEXTS]
    total = sum(float(llm.score(start, [path], terminator="none").logprobs[0]) for path in ids)
    n_bytes = sum(len(text.encode()) for text in TEXTS)
    want = math.exp(-total / n_bytes)
    assert found["results"]["local_text"]["byte_perplexity,none"] == pytest.approx(want, rel=1e-4)


def test_generation(found: dict[str, Any], llm: LLM) -> None:
    sampling = llm.sampling(temperature=0.0, max_tokens=8, stop=("\n", "."))
    want = llm.generate("The capital of France is", sampling, chat=False).text
    [sample] = found["samples"]["local_answer"]
    assert sample["resps"][0][0] == want
    assert "Paris" in want
