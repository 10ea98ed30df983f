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

# -- Verbs: those of texts about people, places, works and organisations ---------------------------------

# Regular verbs.  `+` doubles the last letter before -ed and -ing ("plan+": planned, planning).
_REGULAR = """
abandon abolish abstain accept accompany account accuse achieve acknowledge acquire act adapt add address
adhere adjoin administer admit+ adopt advance advertise advise advocate affect affiliate affirm age agree aid
aim air allege allow alter amass amount analyse analyze annex announce appear applaud apply appoint
apprentice approve argue arm arrange arrest arrive ascend ask assassinate assemble assert assign assist
associate assume attach attack attain attempt attend attest attract attribute audition author average award
back ban+ baptise baptize base battle befriend behave believe belong bombard border borrow bowl branch breach
broadcast bury calculate campaign cancel canonise canonize cap+ captain capture care carry cast cause cease
celebrate censor centre certify chair challenge champion change characterise characterize charge chart
christen chronicle cite claim clash classify clear climb close co-author co-chair co-direct co-edit co-found
co-host co-produce co-star+ coach codify coin collaborate collapse collect colonise colonize combine command
commemorate commence commend comment commission commit+ commute compare compel+ compete compile complain
complete compose comprise concede conceive concentrate conclude condemn condense conduct confer+ confirm
connect conquer consider consist consolidate construct consult consume contain contend contest continue
contract contribute control+ convert convict convince cooperate coordinate cope count couple cover crack
crash create credit criticise criticize cross crown cultivate curate dabble dance dash date debate debut
decide declare decline decorate dedicate defeat defect defend define deliver demand demolish demonstrate
denounce deny depart depend depict deploy deport depose derive describe design designate desire destroy
detail detain determine develop devise devote diagnose die differ dilute direct disagree disappear disband
discharge disclose discover discuss dismiss display dispute disqualify dissolve distinguish distribute divide
divorce document domesticate dominate donate doubt draft drain dream drop+ drown dub+ earn ease edit educate
elaborate elect elevate eliminate embark embrace emerge emigrate emit+ emphasise emphasize employ enable
encode encompass encounter encourage end endanger endorse engage engineer engrave enjoy enlarge enlist enrol
enroll ensure enter entertain equip+ erect erode erupt escape escort establish estimate evacuate evaluate
evolve examine excavate exceed excel+ exchange execute exert exhibit exile exist expand expect expel+
experience experiment explain exploit explore export expose express extend face facilitate fail fashion fear
feature fictionalise fictionalize file fill film finalize finance finish fire flourish fluctuate focus follow
force forge form formulate foster found free front function fund gain garner gather generate govern grade
graduate grant gross group guest guide hail happen harbor harbour harm harvest head headline headquarter heal
heat helm help highlight hire honor honour host house hunt ignite illustrate immerse immigrate impact
implement import impose impress imprison improve inaugurate incarnate include incorporate increase indicate
induce induct infect infer+ inflate inflict influence inform inhabit inherit inhibit initiate injure inscribe
insert insist inspect inspire install institute instruct intend interact intern intern+ interpret intervene
interview introduce invade invent invert invest investigate invite involve isolate issue join journey judge
jump justify kick kidnap+ kill knight knock label land last laud launch lecture legalise legalize levy
liberate license like liken limit link list live lobby locate loot love lower maintain major manage
manufacture march mark marry master mature measure medal mention mentor merge merit migrate mine minor mix
mobilise mobilize model modify motivate move multiply murder name narrate narrow nationalise necessitate need
negotiate nickname nominate note number obey oblige observe obsess obtain occupy occur+ offer open operate
oppose opt+ optimise optimize orbit ordain order organise organize originate oscillate outlaw outnumber
outrank overlap+ owe own oxidise oxidize package participate pass patent patrol+ patronise pave peak
penetrate perform perish permit+ persecute persuade pertain photograph pick pilot pioneer pitch place plan+
plant play please pledge plot+ plunder poison poll populate portray pose position possess post pour practice
practise praise pray preach precede precipitate preclude predate predict prefer+ premiere prepare prescribe
present preserve preside press presume prevent print proceed process proclaim produce profess program+
prohibit promise promote propose prosecute prosper protect protest prove provide provoke publish pull
purchase pursue push qualify question raid raise rally range rank rate re-elect reach react realise realize
reappoint reassign recall recapture receive recite reckon recognise recognize recommend reconcile reconstruct
reconvene record recover recruit rectify recur+ redesign rediscover reduce reelect refer+ refine reflect
reform refurbish refuse regain regard register regulate rehearse reign reinforce reissue reject relate relay
release relegate relieve relinquish relocate rely remain remarry remember remix remodel remove rename render
renew renounce renovate reopen repair repeal repeat repel+ replace replicate report represent reprise
reproduce request require rescue research reside resign resist resolve respire respond restore restrict
result resume retain retire retreat retrieve return reunite reveal review revise revive revolve reward
ridicule rival rob+ rotate ruin rule sack sail salute sample save scan+ scatter schedule scheme score scout
scrap+ sculpt seal seat secrete secure seem seize select sentence separate serve settle shape share shatter
shelter shelve shift ship+ sign signal simplify simulate skate sketch slow smoke smuggle solve sound span+
spark specialise specialize specify spell sponsor spot+ stabilise stage stain standardise star+ start state
station stay stem+ step+ stimulate stop+ store strengthen stress stretch strip+ structure struggle study
style subdue subject submit+ subscribe subsist succeed suffer suggest suit supersede supervise supply support
suppress surface surge surprise surrender surround survey survive suspect suspend sustain switch symbolise
symbolize syndicate synthesise synthesize tackle talk target team televise tend testify threaten thrive tie
title top+ torpedo torture tour trace trade train transfer+ transform transition translate transport trap+
travel treat trek+ trigger try turn tutor umpire underlie undermine unify unite unveil update uphold urge use
utilise utilize vacate vaccinate value vary venture veto vibrate view violate visit voice volunteer vote vow
wage walk want warn watch wed+ weigh welcome whistle widow witness wonder work worry worship+ wound yield
zoom
"""

# base past participle
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
| write wrote written | co-write co-wrote co-written | outlive outlived outlived
"""

BE = word_set("is are was were am 's isn't aren't wasn't weren't")
HAVE = word_set("has have had hasn't haven't hadn't")
DO = word_set("does do did doesn't don't didn't")
MODAL = word_set(
    "will would can could may might must shall should cannot won't wouldn't can't couldn't shouldn't mustn't"
)
AUXILIARY = BE | HAVE | DO | MODAL

_DOUBLED = word_set("begin forget get hit put run set sit swim win dig spin bid")


def _past(base: str) -> str:
    if base.endswith("+"):
        return base[:-1] + base[-2] + "ed"
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + "ed"


def _third(base: str) -> str:
    base = base.rstrip("+")
    if base.endswith(("s", "x", "z", "ch", "sh", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in "aeiou":
        return base[:-1] + "ies"
    return base + "s"


def _ing(base: str) -> str:
    if base.endswith("+"):
        return base[:-1] + base[-2] + "ing"
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith(("ee", "oe", "ye")):
        return base[:-1] + "ing"
    return base + "ing"


def _forms() -> tuple[dict[str, str], frozenset[str], frozenset[str]]:
    lemma: dict[str, str] = {}
    past: set[str] = set()
    third: set[str] = set()
    irregular = [verb.split() for verb in " ".join(_IRREGULAR.split()).split("|")]
    kept = {verb[0] for verb in irregular}
    for base in _REGULAR.split():
        plain = base.rstrip("+")
        third.add(_third(base))
        forms = [_third(base), _ing(base)]
        if plain not in kept:
            past.add(_past(base))
            forms.append(_past(base))
        lemma.update(dict.fromkeys(forms, plain))
    for base, preterite, perfect in irregular:
        past.add(preterite)
        third.add(_third(base))
        forms = [_third(base), _ing(base + "+" if base in _DOUBLED else base), preterite, perfect]
        lemma.update(dict.fromkeys(forms, base))
    lemma |= {"is": "be", "are": "be", "was": "be", "were": "be", "been": "be", "being": "be", "am": "be"}
    lemma |= {"has": "have", "had": "have", "having": "have", "does": "do", "did": "do", "done": "do"}
    lemma |= {"born": "bear", "learned": "learn", "burned": "burn", "dreamed": "dream", "spelled": "spell"}
    past |= {"learned", "burned", "dreamed", "spelled"}
    return lemma, frozenset(past), frozenset(third)


LEMMA, PAST, THIRD = _forms()
"""Form -> base; past tense forms; third person forms."""
