"""Control claims: what a judge says about two claims whose verdicts are known shows whether it still judges.

A judge that is broken, badly set up or talked round by a text in its prompt says the same of everything.  So
a call can carry one true and one false claim about a passage of ours, among the others and in their form; a
call that gets one of them wrong is void.  The subjects are invented: nothing but the passage decides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from factrl.errors import Unscored
from factrl.types import Claim, Passage
from factrl.verifier.judges.replies import Said

_SEALED = (
    ("The Ambrel Hall in Tosk was built in 1834.", "Ambrel Hall was built in {}.", "1834", "1871"),
    (
        "The river Ennish rises near Calder Moor.",
        "The river Ennish rises near {}.",
        "Calder Moor",
        "Port Vale",
    ),
    ("Ilse Vanterpool taught physics in Mora.", "Ilse Vanterpool taught {}.", "physics", "Latin"),
    ("The Corvane Prize was given to Odo Marsh.", "{} got the Corvane Prize.", "Odo Marsh", "Pia Lund"),
    ("Dunmarrow has 4,120 inhabitants.", "Dunmarrow has {} inhabitants.", "4,120", "9,700"),
    ("The ferry Halcine sank in Bray Sound.", "The ferry Halcine sank in {}.", "Bray Sound", "Lake Urm"),
    ("The opera Tessaly has five acts.", "The opera Tessaly has {} acts.", "five", "three"),
    ("Mount Orvel is 2,318 metres high.", "Mount Orvel is {} metres high.", "2,318", "1,460"),
)


@dataclass(frozen=True, slots=True)
class Controls:
    """A true and a false claim about one passage, and where they stand among a call's claims.

    Attributes:
        places: index of the true claim, then of the false one, in the list that `among` makes.
    """

    true: Claim
    false: Claim
    passage: Passage
    places: tuple[int, int]

    def among(
        self, asked: Sequence[tuple[Claim, tuple[Passage, ...]]]
    ) -> list[tuple[Claim, tuple[Passage, ...]]]:
        """The claims of a call with the two among them."""
        whole = list(asked)
        for place, claim in sorted(zip(self.places, (self.true, self.false), strict=True)):
            whole.insert(place, (claim, (self.passage,)))
        return whole

    def check(self, said: Mapping[str, Said | Unscored], ids: Sequence[str]) -> Unscored | None:
        """Why a call is void, None when it is not.

        Args:
            said: what the judge said, by id.
            ids: the ids of all claims of the call, in the order of `among`.
        """
        true, false = (said[ids[place]] for place in self.places)
        if isinstance(true, Said) and isinstance(false, Said):
            if (true.label, false.label == "supported") == ("supported", False):
                return None
            found = f"calls a true claim of ours {true.label!r} and a false one {false.label!r}"
        else:
            found = "says nothing readable about a claim of ours"
        return Unscored("judge_fails_control", f"the judge {found}")


def controls_for(asked: Sequence[tuple[Claim, tuple[Passage, ...]]]) -> Controls:
    """The controls of a call, chosen by all that it asks: the same call has the same ones."""
    text = "\0".join(part for claim, passages in asked for part in (claim.text, *(p.text for p in passages)))
    number = int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    number, which = divmod(number, len(_SEALED))
    evidence, frame, right, wrong = _SEALED[which]
    size = len(asked) + 2
    number, first = divmod(number, size)
    second = (first + 1 + number % (size - 1)) % size
    true, false = (Claim(said, 0, len(said)) for said in (frame.format(right), frame.format(wrong)))
    return Controls(true, false, Passage(evidence), (first, second))
