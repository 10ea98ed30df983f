"""GRPO (arXiv:2402.03300) from the first line to the last, with factrl's reward, mask, advantages and credit.

    pip install . torch
    python examples/grpo_from_scratch.py

A small random transformer writes two statements about a town.  All towns are in Peru, so the country can be
learnt; every town has a mayor of its own, who can only be guessed.  The model is first taught the form, with
values by chance, and then by the reward to know the country and to call the mayor unknown.  `factrl train`
does the same with a real model, by TRL; this is what happens inside.  Half a minute on one core.
"""

from __future__ import annotations

import random
import re
from collections import Counter

import torch
from torch import nn

import factrl as fx
from factrl.train.advantages import flip_advantages, group_advantages
from factrl.train.credit import TokenOffsets

COUNTRIES = ("Peru", "Cuba", "Fiji", "Oman")
MAYORS = ("Ann", "Bo", "Cy", "Dee", "Eva", "Gus", "Ida", "Jo")
UNKNOWN = "unknown"
WORDS = ("<pad>", "<end>", *"0123456789", "country", "mayor", ".", UNKNOWN, *COUNTRIES, *MAYORS)
PAD, END = 0, 1
PROMPT, LONGEST = 3, 8  # tokens: the three digits of a town; those of an answer at most

# 1. The policy: words for tokens, and a transformer of two layers


class Tokenizer:
    """As much of a tokenizer as credit needs: the special tokens, and text from tokens."""

    all_special_ids = (PAD, END)

    def encode(self, text: str) -> list[int]:
        return [WORDS.index(word) for word in text.split()]

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        return " ".join(WORDS[i] for i in ids if not (skip_special_tokens and i in self.all_special_ids))


class Policy(nn.Module):
    """(B, L) tokens -> (B, L, words) logits of the next one."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(len(WORDS), width), nn.Embedding(PROMPT + LONGEST, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, len(WORDS))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        later = nn.Transformer.generate_square_subsequent_mask(length)
        hidden = self.words(ids) + self.places(torch.arange(length))
        logits = self.out(self.layers(hidden, mask=later, is_causal=True))
        return logits.index_fill(-1, torch.tensor([PAD]), -1e4)  # padding is never written


def log_probs(policy: Policy, ids: torch.Tensor) -> torch.Tensor:
    """(B, T): of every token behind the prompt, how likely the policy was to write it."""
    logits = policy(ids[:, :-1])[:, PROMPT - 1 :]
    return logits.log_softmax(-1).gather(-1, ids[:, PROMPT:, None]).squeeze(-1)


@torch.no_grad()
def sample(policy: Policy, prompts: torch.Tensor) -> torch.Tensor:
    """(B, P) prompts -> (B, P + T), padded behind the end token."""
    ids, ended = prompts, torch.zeros(len(prompts), dtype=torch.bool)
    for _ in range(LONGEST):
        drawn = policy(ids)[:, -1].softmax(-1).multinomial(1).squeeze(1).masked_fill(ended, PAD)
        ids, ended = torch.cat([ids, drawn[:, None]], dim=1), ended | (drawn == END)
    return ids


def written(ids: torch.Tensor) -> torch.Tensor:
    """(B, T), True for the tokens that the policy wrote: all but the padding behind the end."""
    return ids[:, PROMPT:] != PAD


# 2. The world, and the reward: what is true earns 1, what is false costs 1, "unknown" is free

FORM = re.compile(r"country (\w+) \. mayor (\w+) \.")


@fx.reward
def truthful(example: fx.Example, completion: fx.Completion) -> fx.Score:
    """Each statement is a step: its sign is the credit of its tokens."""
    if not example.meta["up"]:  # our side failed: no number, and no say in the mean of its siblings
        raise fx.Unscored("connection", "the register did not answer")
    found = FORM.fullmatch(completion)
    if found is None:  # the policy's own doing: the least there is
        return fx.Score({"country": -1, "mayor": -1}, floored="form")
    terms, spans = {}, []
    for number, name in enumerate(("country", "mayor"), start=1):
        right, declined = found[number] == example.meta[name], found[number] == UNKNOWN
        sign = 0 if declined else 1 if right else -1
        terms[name] = float(sign)
        spans.append(fx.Span(*found.span(number), sign))
    return fx.Score(terms, tuple(spans))


def ask(towns: list[str], samples: int, draw: random.Random) -> tuple[torch.Tensor, list[fx.Example]]:
    """Prompts and examples, `samples` of each town one after the other; one call in twenty will fail."""
    tokens = [Tokenizer().encode(" ".join(town)) for town in towns for _ in range(samples)]
    facts = [{"country": "Peru", "mayor": MAYORS[random.Random(town).randrange(8)]} for town in towns]
    examples = [
        fx.Example(f"Town {town}?", meta={**fact, "up": draw.random() >= 0.05})
        for town, fact in zip(towns, facts, strict=True)
        for _ in range(samples)
    ]
    return torch.tensor(tokens), examples


def graded(ids: torch.Tensor, examples: list[fx.Example]) -> tuple[list[str], list[fx.Result]]:
    texts = [Tokenizer().decode(row) for row in ids[:, PROMPT:].tolist()]
    return texts, truthful.batch(examples, [fx.Completion(text) for text in texts])


# 3. The start: the form with values by chance, by maximum likelihood


def warm_start(policy: Policy, draw: random.Random, steps: int) -> None:
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    for _ in range(steps):
        rows = []
        for _ in range(64):
            country, mayor = draw.choice((*COUNTRIES, UNKNOWN)), draw.choice((*MAYORS, UNKNOWN))
            town = " ".join(f"{draw.randrange(1000):03}")
            rows.append([*Tokenizer().encode(f"{town} country {country} . mayor {mayor} ."), END, PAD])
        ids = torch.tensor(rows)
        loss = -log_probs(policy, ids)[written(ids)].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# 4. GRPO: sample groups, grade, compare within each group, step


def train(policy: Policy, draw: random.Random, steps: int, group: int = 8, clip: float = 0.2) -> None:
    optimizer, offsets = torch.optim.AdamW(policy.parameters(), lr=3e-4), TokenOffsets(Tokenizer())
    print("step  reward  masked  clipped")
    for step in range(1, steps + 1):
        towns = [f"{draw.randrange(900):03}" for _ in range(16)]
        prompts, examples = ask(towns, group, draw)
        ids = sample(policy, prompts)
        texts, results = graded(ids, examples)
        # A masked sample is NaN: it gets advantage 0, and its group's mean is over the others.
        rewards = torch.tensor([torch.nan if r.value is None else r.value for r in results])
        advantages = group_advantages(rewards, group)  # (B,)
        # Characters that the reward marked -> signs of tokens -> (B, T): no true step is made less likely.
        pairs = zip(ids[:, PROMPT:].tolist(), texts, results, strict=True)
        signs = torch.tensor([offsets.signs(row, text, r.spans).tolist() for row, text, r in pairs])
        credit = flip_advantages(advantages, signs)
        mask = written(ids) & ~rewards.isnan()[:, None]  # a masked one is not in the loss
        with torch.no_grad():
            before = log_probs(policy, ids)
        for _ in range(2):  # steps on one batch: the ratio is 1 in the first, and limited in the second
            ratio = (log_probs(policy, ids) - before)[mask].exp()
            limited = ratio.clamp(1 - clip, 1 + clip)
            loss = -torch.min(ratio * credit[mask], limited * credit[mask]).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
        if step % 5 == 0 or step == 1:
            masked, clipped = rewards.isnan().float().mean(), (ratio != limited).float().mean()
            print(f"{step:4}  {rewards.nanmean():6.2f}  {masked:6.1%}  {clipped:7.1%}")


def count(policy: Policy) -> Counter[str]:
    """What it says of a hundred towns that it was never asked about."""
    prompts, examples = ask([str(town) for town in range(900, 1000)], 1, random.Random(1))
    words = {1.0: "true", -1.0: "false", 0.0: UNKNOWN}
    results = graded(sample(policy, prompts), examples)[1]
    return Counter(f"{name} {words[value]}" for r in results for name, value in r.terms.items())


def main(warm_steps: int = 100, steps: int = 30) -> tuple[Counter[str], Counter[str]]:
    torch.manual_seed(0)
    draw, policy = random.Random(0), Policy()
    warm_start(policy, draw, warm_steps)
    before = count(policy)
    train(policy, draw, steps)
    after = count(policy)
    print("of towns that it was never asked about  before  after")
    for kind in sorted({*before, *after}):
        print(f"{kind:38}  {before[kind]:6}  {after[kind]:5}")
    return before, after


if __name__ == "__main__":
    main()
