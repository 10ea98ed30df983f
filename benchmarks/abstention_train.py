"""Trains the detector of `factrl.text.abstention` from the files in `benchmarks/abstention`.

    python benchmarks/abstention_train.py [--check] [--cross]

One file a language holds templates by kind: `[+plain]` and so on decline, `[-hedge]` and so on do not;
`(a|b)` is a choice, `{T}` the question's topic, `{N}` what it asks for, `{X}` and `{Y}` answers, `{F}` a
sentence of `[filler]`.  `words.txt` has words of such talk, and `rows.jsonl.gz` rows of our fixtures and of
public sets (each with its set and licence: EVOUNA, HalluQA and TruthfulQA, Apache-2.0; Czech SimpleQA,
FActScore and SimpleQA, MIT; of each the half whose group's SHA-256 begins with an even byte).  No other data
are read.  Everything is drawn with fixed seeds and fitted by liblinear on one thread, so the weights come out
byte for byte the same: --check compares them with those in the package instead of writing them, and --cross
prints cross-validation by template.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from factrl.text import abstention
from factrl.text.abstention import (
    BUCKETS,
    IS_RUN,
    KATAKANA,
    LEAST,
    NEW,
    Tables,
    grams,
    hashed,
    in_question,
    is_known,
    joined,
    masked,
    mixed,
    question_words,
    tokens,
    unwrapped,
)
from factrl.text.words import fold

DATA = Path(__file__).parent / "abstention"
TARGET = Path(abstention.__file__).with_suffix(".npy")
_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")
_HOLE = re.compile(r"\{([TNXYFDA])\}")
DRAWN = 6  # texts of a template
BARE_FORMS = (
    *("{X} {Y}", "{X}, {Y}", "{X}: {Y}", "{X}. {Y}.", "{X} ({Y})", "{X} {Y} {X}", "{X}\n{Y}", "{X} [{Y}]"),
    *("{N} {X} {Y} {X}.", "{T} {Y} {X}.", "{X} {Y} 1 {X}.", "{N}: {X}", "{T} {X}"),
)
SPACED = {"zh": "", "ja": ""}  # what stands between sentences, where it is no space


def expanded(line: str) -> Iterator[str]:
    """All that a line can say: `(a|b)` is a choice."""
    found = _CHOICE.search(line)
    if found is None:
        yield line
        return
    for way in found[1].split("|"):
        yield from expanded(line[: found.start()] + way + line[found.end() :])


@dataclass(frozen=True)
class Row:
    """A text with its question (may be empty), whether it declines, and where it comes from."""

    question: str
    text: str
    declines: bool
    kind: str
    lang: str
    template: str
    clause: bool = True  # whether its clauses all do what it does


@cache
def sections(lang: str) -> dict[str, list[str]]:
    """The lines of a language's file by section."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (DATA / f"{lang}.txt").read_text(encoding="utf-8").split("\n"):
        if heading := re.fullmatch(r"\[([+-]?\w+)\]", line):
            lines = found.setdefault(heading[1], [])
        elif line.strip():
            lines.append(line.strip())
    return found


def fold_of(text: str) -> str:
    """A text for comparison: small letters, no signs at its edges."""
    return fold(text).strip(" .!?。！？")


def bare_words(lines: Iterable[str]) -> Iterator[str]:
    """The words of lines of a script with spaces."""
    for line in lines:
        for token in tokens().finditer(fold(re.sub(r"[(|)]", " ", _HOLE.sub(" ", line)))):
            if token.lastgroup == "word" and len(token[0]) > 2:
                yield token[0]


@dataclass
class Draw:
    """Texts of one language, from its own random numbers."""

    lang: str
    rng: random.Random

    def chosen(self, template: str) -> str:
        return _CHOICE.sub(lambda found: self.rng.choice(found[1].split("|")), template)

    def one(self, section: str) -> str:
        lines = sections(self.lang)[section]
        return self.rng.choice(lines[0].split(" | ") if len(lines) == 1 and " | " in lines[0] else lines)

    def asked(self) -> tuple[str, dict[str, str]]:
        """A question, and what its holes hold."""
        topic = self.one("topics")
        question, _, noun = self.one("questions").partition(" ; ")
        said = self.chosen(question.replace("{T}", topic))
        return said, {"T": topic, "N": self.chosen(noun)}

    def said(self, template: str, held: dict[str, str]) -> str:
        x, y = self.one("answers"), self.one("answers")

        def hole(found: re.Match[str]) -> str:
            name = found[1]
            if name == "F":
                return self.said(self.one("filler"), held)
            return {"X": x, "Y": y, **held}[name]

        text = _HOLE.sub(hole, self.chosen(template))
        return text[:1].upper() + text[1:] if template[:1] in "({" and self.rng.random() < 0.8 else text


def of_templates() -> Iterator[Row]:
    """The rows that the grammars give, those of a language in a fixed order."""
    for path in sorted(DATA.glob("??.txt")):
        lang = path.stem
        draw = Draw(lang, random.Random(f"factrl {lang}"))
        rng, told = draw.rng, sections(lang)
        space = SPACED.get(lang, " ")
        plain = [
            line
            for name in ("+plain", "+formal", "+silent", "+indirect", "+colloquial")
            for line in told[name]
        ]
        for name, lines in told.items():
            if name[0] not in "+-":
                continue
            for line in lines:
                if "{D}" in line:
                    continue
                variants = 1
                for choice in _CHOICE.finditer(line):
                    variants *= choice[1].count("|") + 1
                holes = 2 if _HOLE.search(line) else 1
                for number in range(min(DRAWN, max(2, variants * holes))):
                    question, held = draw.asked()
                    text = draw.said(line, held)
                    asked = "" if number % 4 == 3 else question
                    yield Row(asked, text, name[0] == "+", name[1:], lang, f"{lang} {line}", name != "-said")
        for number in range(len(plain) * 3):
            line = plain[number % len(plain)]
            question, held = draw.asked()
            core = draw.said(line, held)
            asked = "" if number % 4 == 3 else question
            filler = [draw.said(draw.one("filler"), held) for _ in range(2)]
            about = "aside" if "aside" in told and number % 3 else "neutral"
            neutral = [draw.said(draw.one(about), held) for _ in range(2)]
            answer = draw.said(rng.choice(told["-answer"]), held)
            hedge = draw.said(rng.choice(told["-hedge"]), held)
            if core[-1:].isalnum():
                core += "。" if lang in SPACED else "."
            mine = f"{lang} {line}"
            yield Row(asked, space.join([core, *filler[: 1 + number % 2]]), True, "long", lang, mine, False)
            beside = [*neutral, core] if number % 2 else [neutral[0], core, neutral[1]]
            yield Row(asked, space.join(beside), True, "beside", lang, mine, False)
            pair = [answer, core] if number % 8 == 0 else [core, answer]
            yield Row(asked, space.join(pair), False, "said", lang, mine, False)
            if number % 3 == 0:
                yield Row(asked, space.join([core, filler[0], hedge]), False, "said", lang, mine, False)
            if number % 5 == 0:
                yield Row(asked, space.join([*neutral, answer]), False, "answer", lang, mine, False)
        # A word alone is an answer, although abstentions have it, unless it is one of theirs.
        brief = [line for name in ("+short", "+refusing", "+colloquial") for line in told[name]]
        short = {fold_of(form) for line in brief for form in expanded(line)}
        single = sorted({word for name in told if name[0] == "+" for word in bare_words(told[name])} - short)
        for word in rng.sample(single, min(len(single), 150 if lang == "en" else 40)):
            text = (word.capitalize() if rng.random() < 0.4 else word) + rng.choice(["", "", "."])
            asked = "" if rng.random() < 0.3 else draw.asked()[0]
            yield Row(asked, text, False, "bare", lang, f"{lang} word {word}")
        for line in BARE_FORMS * 2:
            question, held = draw.asked()
            yield Row(question, draw.said(line, held), False, "bare", lang, f"{lang} {line}")
        for name in ("filler", "neutral"):
            for line in told[name]:
                question, held = draw.asked()
                yield Row(question, draw.said(line, held), False, name, lang, f"{lang} {line}")


def of_file() -> Iterator[Row]:
    """The rows of `rows.jsonl.gz`."""
    path = DATA / "rows.jsonl.gz"
    if not path.exists():
        return
    for number, line in enumerate(gzip.decompress(path.read_bytes()).decode().split("\n")):
        if not line:
            continue
        row = json.loads(line)
        yield Row(
            row["question"], row["text"], row["declines"], row["set"], row["lang"], f"file {number}", False
        )


def beginning(word: str) -> str:
    """The part of a longer word that its endings share, as `is_known` looks for it."""
    return f"{word[: max(LEAST, (2 * len(word) + 2) // 3)]}-" if len(word) > LEAST else ""


def vocabulary() -> set[str]:
    """The words and pairs of characters that three abstentions have, and what stands for other endings."""
    words: Counter[str] = Counter()
    for path in sorted(DATA.glob("??.txt")):
        for name, lines in sections(path.stem).items():
            if name[0] == "+" or name in ("filler", "neutral"):
                for line in lines:
                    text = _HOLE.sub(" ", line)
                    parts = re.split(r"[(|)]", text)
                    mine = {
                        token[0]
                        for token in tokens().finditer(fold(" ".join(parts)).replace('"', " "))
                        if token.lastgroup == "word"
                    }
                    for option in (
                        text,
                        *(_CHOICE.sub(lambda f, n=n: (f[1].split("|") * 9)[n], text) for n in range(8)),
                    ):
                        for token in tokens().finditer(fold(option)):
                            if token.lastgroup == "run":
                                run = token[0]
                                mine.update(run)
                                mine.update(run[i : i + 2] for i in range(len(run) - 1))
                                mine.update(name[0] for name in KATAKANA.finditer(run))
                    words.update(mine)
    rows: Counter[str] = Counter()
    for row in of_file():
        if row.declines:
            found = tokens().finditer(unwrapped(row.text))
            said = {fold(t[0]) for t in found if t.lastgroup == "word" and t[0].islower()}
            rows.update(word for word in said if not in_question(word, question_words(row.question)))
    words = Counter({word: count for word, count in words.items() if count > (2 if len(word) > 1 else 20)})
    for path in sorted(DATA.glob("??.txt")):
        words.update(bare_words(line.partition(" ; ")[2] for line in sections(path.stem)["questions"]))
    words.update(word for word, count in rows.items() if count > 1)
    found = {*words, *map(beginning, words)} - {""}
    for word in map(fold, (DATA / "words.txt").read_text(encoding="utf-8").split()):
        pairs = {word[i : i + 2] for i in range(len(word) - 1)}
        found |= pairs if IS_RUN.match(word) else {word, word.rstrip("-")}
    return found


def matrix(texts: Sequence[Sequence[str]]) -> csr_matrix:
    """The features of masked texts, `(len(texts), BUCKETS)`."""
    found, owner = grams(texts)
    sizes = np.bincount(owner, minlength=len(texts))
    made = csr_matrix((1 / np.sqrt(sizes[owner]), (owner, found.astype(np.int64))), (len(texts), BUCKETS))
    made.sum_duplicates()
    return made


def fitted(features: csr_matrix, labels: np.ndarray, weights: np.ndarray, c: float = 8.0) -> np.ndarray:
    """The weights of a logistic regression, the bias last."""
    model = LogisticRegression(C=c, solver="liblinear", random_state=0, tol=1e-3, max_iter=200)
    model.fit(features, labels, sample_weight=weights)
    return np.append(model.coef_.ravel(), model.intercept_)


class Prepared:
    """The rows masked, as sentences and as wholes, with their labels and weights."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.sentences = [
            masked(unwrapped(r.text), question_words(r.question) if r.question else frozenset()) for r in rows
        ]
        self._forget()
        self.declines = np.array([row.declines for row in rows])
        self.weights = share([row.template for row in rows], rows)
        every = [words for one in self.sentences for words in one]
        self.row_of = np.array([n for n, one in enumerate(self.sentences) for _ in one])
        self.of_sentences = matrix(every)
        self.of_wholes = matrix([joined(one) for one in self.sentences])
        # What a sentence does is known where it stands alone, and where nothing around it declines.
        alone = np.array(
            [len(one) == 1 and row.kind not in MIXED for one, row in zip(self.sentences, rows, strict=True)]
        )
        plain = np.array([row.kind in PLAIN and not row.declines for row in rows])
        self.known = (alone | plain)[self.row_of]
        self.answers = np.array([not row.declines and row.kind not in SILENT for row in rows])
        self.folds = np.array(
            [int(hashlib.sha256(row.template.encode()).hexdigest(), 16) % FOLDS for row in rows]
        )

    def _forget(self) -> None:
        """Masks the words that no other template has, as those of a new text are, and some at random."""
        of: dict[str, set[str]] = {}
        for row, sentences in zip(self.rows, self.sentences, strict=True):
            for word in {word for words in sentences for word in words}:
                of.setdefault(word, set()).add(row.template)
        rng = random.Random("factrl forgets")
        for sentences in self.sentences:
            rate = 0.0 if rng.random() < 0.5 else FORGOTTEN
            for words in sentences:
                for at, word in enumerate(words):
                    known, letters = len(of[word]), word[:1].isalpha()
                    rare = letters and len(word) > 1 and known < 3
                    if (rare and (known < 2 or rng.random() < 0.5)) or (letters and rng.random() < rate):
                        words[at] = NEW
                words[:] = [w for w, last in zip(words, ["", *words], strict=False) if w != last or w != NEW]

    def heads(self, kept: np.ndarray) -> np.ndarray:
        """The three regressions, fitted on some rows, `(3, BUCKETS + 1)`."""
        mine = self.known & kept[self.row_of]
        rows = self.row_of[mine]
        some = self.of_sentences[mine]
        return np.stack(
            [
                fitted(some, self.declines[rows], self.weights[rows]),
                fitted(some, self.answers[rows], self.weights[rows]),
                fitted(self.of_wholes[kept], self.declines[kept], self.weights[kept]),
            ]
        )

    def numbers(self, heads: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """What `mixed` gives of some rows, `(kept, 9)`."""
        said = self.of_sentences @ heads[:2, :-1].T + heads[:2, -1]
        whole = self.of_wholes @ heads[2, :-1] + heads[2, -1]
        ends = np.cumsum([len(one) for one in self.sentences])
        spans = [slice(ends[n] - len(self.sentences[n]), ends[n]) for n in np.flatnonzero(kept)]
        return np.array(
            [
                mixed(said[span, 0], said[span, 1], whole[n])
                for n, span in zip(np.flatnonzero(kept), spans, strict=True)
            ]
        )


FOLDS = 3
FORGOTTEN = 0.06  # share of the words of half the texts
MIXED = {"long", "beside"}
SILENT = {"filler", "neutral", "back", "grounds"}  # what neither declines nor answers
PLAIN = {
    "EVOUNA, Apache-2.0",
    "FActScore, MIT",
    "TruthfulQA, Apache-2.0",
    "SimpleQA, MIT",
    "HalluQA, Apache-2.0",
}
OURS = 3.0  # weight of a row of the file against a template


def share(templates: Sequence[str], rows: Sequence[Row]) -> np.ndarray:
    """What each row weighs: a template counts by the root of its texts."""
    drawn = Counter(templates)
    return np.array(
        [(OURS if row.template.startswith("file") else 1.0) / np.sqrt(drawn[row.template]) for row in rows]
    )


def crossed(made: Prepared) -> np.ndarray:
    """What `mixed` gives of each row with heads that have not seen its template."""
    numbers = np.zeros((len(made.rows), 9))
    for number in range(FOLDS):
        out = made.folds == number
        numbers[out] = made.numbers(made.heads(~out), out)
    return numbers


def mix(made: Prepared, numbers: np.ndarray) -> np.ndarray:
    """The weights of the nine numbers, the bias last."""
    # What neither declines nor answers is no abstention, and no reward reads it alone.
    model = LogisticRegression(C=1.0, solver="liblinear", random_state=0, tol=1e-6, max_iter=1000)
    model.fit(numbers, made.declines, sample_weight=made.weights)
    return np.append(model.coef_.ravel(), model.intercept_)


def packed(heads: np.ndarray, mixing: np.ndarray, words: set[str]) -> np.ndarray:
    """The bytes that `factrl.text.abstention.tables` reads."""
    scales = np.abs(heads[:, :-1]).max(1) / 127
    rounded = np.round(heads[:, :-1] / scales[:, None]).astype(np.int8)
    head = np.concatenate([scales, heads[:, -1], mixing]).astype(np.float32)
    hashes = np.array(sorted(set(map(hashed, words))), np.uint32)
    return np.concatenate([part.reshape(-1).view(np.uint8) for part in (head, rounded, hashes)])


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def table(made: Prepared, scores: np.ndarray) -> None:
    """Found and falsely found by kind and by language, on templates that were held out."""
    found = scores > 0
    for name in ("kind", "lang"):
        say(f"\n| {name} | decline | found | others | taken for one |\n|---|---|---|---|---|")
        values = [getattr(row, name) for row in made.rows]
        for value in sorted(set(values)):
            mine = np.array([one == value for one in values])
            yes, no = mine & made.declines, mine & ~made.declines
            rates = [f"{100 * found[some].mean():.1f}" if some.any() else "" for some in (yes, no)]
            say(f"| {value} | {yes.sum()} | {rates[0]} | {no.sum()} | {rates[1]} |")


def main() -> None:
    """Fits, and writes, compares or prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare with the weights in the package")
    parser.add_argument("--cross", action="store_true", help="print cross-validation by template")
    chosen = parser.parse_args()
    threadpool_limits(1)  # more threads add up sums in another order
    words = vocabulary()
    known = frozenset(map(hashed, words))
    abstention.tables = lambda: Tables(np.zeros((3, BUCKETS)), np.zeros(3), np.zeros(10), known)
    is_known.cache_clear()
    made = Prepared([*of_templates(), *of_file()])
    say(
        f"{len(made.rows)} texts of {len({row.template for row in made.rows})} templates, "
        f"{made.declines.sum()} decline"
    )
    numbers = crossed(made)
    mixing = mix(made, numbers)
    if chosen.cross:
        table(made, numbers @ mixing[:-1] + mixing[-1])
    raw = packed(made.heads(np.ones(len(made.rows), bool)), mixing, words)
    if chosen.check:
        same = np.array_equal(raw, np.load(TARGET))
        raise SystemExit(0 if same else f"{TARGET.name} differs from what these files give")
    np.save(TARGET, raw)
    say(f"{TARGET.name}: {len(raw)} bytes, {len(words)} words; mix {np.round(mixing, 2)}")


if __name__ == "__main__":
    main()
