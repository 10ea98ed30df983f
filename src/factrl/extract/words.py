"""Word lists of the rules that mark claims and compare them, as data."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as text."""
    return frozenset(text.split())


ARTICLES = word_set("a an the")
POSSESSIVES = word_set("his her its their my your our whose")
DEMONSTRATIVES = word_set("this that these those")
QUANTIFIERS = word_set(
    """
    some many most several all both each every another other any few one two three four five six seven eight
    nine ten eleven twelve thirteen twenty thirty forty fifty hundred thousand numerous various multiple
    """
)
DETERMINERS = ARTICLES | POSSESSIVES | DEMONSTRATIVES | QUANTIFIERS | {"no"}
SUBJECTS = word_set("he she it they")
OBJECTS = word_set("him her it them")
FIRST_PERSON = word_set("i we")
PREPOSITIONS = word_set(
    """
    in on at by for with from to of into onto during through throughout between among amongst under over
    above below behind beside besides beyond near against about across along around toward towards upon
    within without after before since until till as like unlike via per despite versus including alongside
    outside inside amid following
    """
)
# Opinions: a sentence whose predicate is only one of these cannot be checked.
OPINIONS = word_set(
    """
    nice good great bad amazing awesome wonderful beautiful lovely excellent fantastic terrible awful
    horrible interesting fascinating boring fun funny cool important remarkable incredible impressive
    inspiring delicious ugly perfect brilliant outstanding exciting disappointing sad happy unbelievable
    pleasant unpleasant
    """
)
INTENSIFIERS = word_set(
    "very really truly so quite rather extremely absolutely simply just pretty too incredibly"
)
IMPERATIVES = word_set(
    """
    consider remember imagine please let check see visit try note ensure make use avoid keep take ask call
    contact read look think choose select add remove click go start begin follow write provide give tell
    explain describe find discuss compare consult seek feel be don't do stay get learn explore enjoy join
    ignore mark rate accept treat extract output print return say repeat assume suppose trust believe verify
    score grade label stop wait evaluate gather adjust prepare combine measure serve research shortlist
    determine identify set create apply mix stir cook bake pour place turn
    """
)
# Without meaning of their own: they do not count when two texts are compared.
STOPWORDS = (
    ARTICLES
    | DEMONSTRATIVES
    | POSSESSIVES
    | SUBJECTS
    | OBJECTS
    | FIRST_PERSON
    | (PREPOSITIONS - word_set("before after without"))
    | word_set(
        """
        is are was were am be been being has have had having do does did will would can could may might must
        shall should and or but so then than there here when where who whom which what how why if as also
        just very too its it's me us you your yours myself himself herself itself themselves such own same s
        t etc
        """
    )
)
