"""Words of English by which claims are marked and compared, as data; by its forms, `won` is `win`."""

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

# Irregular verbs: base, past, participle.
_IRREGULAR = """
arise arose arisen | bear bore borne | beat beat beaten | become became become | begin began begun | bid bid
bid | bind bound bound | break broke broken | breed bred bred | bring brought brought | build built built |
buy bought bought | catch caught caught | choose chose chosen | come came come | deal dealt dealt | dig dug
dug | draw drew drawn | drink drank drunk | drive drove driven | eat ate eaten | fall fell fallen | feed fed
fed | feel felt felt | fight fought fought | find found found | flee fled fled | fly flew flown | forbid
forbade forbidden | forget forgot forgotten | freeze froze frozen | get got gotten | give gave given | go
went gone | grow grew grown | hang hung hung | hear heard heard | hide hid hidden | hit hit hit | hold held
held | keep kept kept | know knew known | lay laid laid | lead led led | learn learnt learnt | leave left
left | lend lent lent | lie lay lain | lose lost lost | make made made | mean meant meant | meet met met |
oversee oversaw overseen | overtake overtook overtaken | pay paid paid | put put put | read read read |
rebuild rebuilt rebuilt | retell retold retold | rewrite rewrote rewritten | ride rode ridden | ring rang
rung | rise rose risen | run ran run | say said said | see saw seen | seek sought sought | sell sold sold |
send sent sent | set set set | shake shook shaken | shine shone shone | shoot shot shot | show showed shown |
sing sang sung | sink sank sunk | sit sat sat | slay slew slain | sleep slept slept | speak spoke spoken |
spend spent spent | spin spun spun | split split split | spread spread spread | stand stood stood | steal
stole stolen | strike struck struck | swear swore sworn | swim swam swum | take took taken | teach taught
taught | tell told told | think thought thought | throw threw thrown | undergo underwent undergone |
understand understood understood | undertake undertook undertaken | win won won | withdraw withdrew withdrawn
| write wrote written | co-write co-wrote co-written | outlive outlived outlived | bear bore born
| go goes gone | use used used | add added added | age aged aged | die died died | tie tied tied
"""

BE = word_set("is are was were am 's isn't aren't wasn't weren't")
HAVE = word_set("has have had hasn't haven't hadn't")
DO = word_set("does do did doesn't don't didn't")
MODAL = word_set(
    "will would can could may might must shall should cannot won't wouldn't can't couldn't shouldn't mustn't"
)
AUXILIARY = BE | HAVE | DO | MODAL

_BASES = {
    form: base
    for verb in " ".join(_IRREGULAR.split()).split("|")
    for base, *forms in (verb.split(),)
    for form in forms
} | dict.fromkeys(("is", "are", "was", "were", "been", "being", "am"), "be")
_BASES |= {"has": "have", "had": "have", "does": "do", "did": "do", "done": "do"}
_BASES |= dict.fromkeys(("note", "notes", "noted", "noting"), "notice")  # else `noted` is `not`
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    " seventeen eighteen nineteen twenty"
)
NUMBERS = {word: str(number) for number, word in enumerate(_UNITS.split())} | {
    word: str(10 * number)
    for number, word in enumerate(["thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], 3)
}
_ENDINGS = (
    *(("ies", "y"), ("ied", "y"), ("sses", "ss"), ("xes", "x"), ("ches", "ch"), ("shes", "sh")),
    *(("ing", ""), ("ed", ""), ("s", "")),
)


def base(word: str) -> str:
    """A word in small letters without what grammar adds, so that its forms are equal.

    >>> [base(word) for word in ("won", "planned", "plans", "prizes", "prize", "cities", "two")]
    ['win', 'plan', 'plan', 'priz', 'priz', 'city', '2']
    """
    word = NUMBERS.get(word) or _BASES.get(word, word)
    for ending, instead in _ENDINGS:
        stem = word[: -len(ending)]
        if word.endswith(ending) and len(stem) >= 3 and not word.endswith(("ss", "us", "is")):
            doubled = ending in ("ing", "ed") and stem[-1] == stem[-2] and stem[-1] not in "lsfz"
            word = stem[:-1] if doubled else stem + instead
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def is_past(word: str) -> bool:
    """Whether a word can be a verb in the past."""
    return word in _BASES or (len(word) > 4 and word.endswith("ed"))


def is_third_person(word: str) -> bool:
    """Whether a word can be a verb as "he" has it: `shows`; a plural looks the same."""
    return len(word) > 2 and word.endswith("s") and not word.endswith("ss")
