"""Word lists of the rules that take sentences apart, as data."""

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
RELATIVES = word_set("who whom whose which that where when")
# They open a clause or a question, whose verbs are not the sentence's own.
SUBORDINATORS = RELATIVES | word_set(
    """
    because although though while whereas unless whether if why how what whatever whoever whenever wherever
    lest so than
    """
)
# They open a clause or a phrase: a clause only if a verb follows before the next conjunction.
MAYBE_CLAUSE = word_set("after before since until till as once")
# A sentence with one of these is kept whole: it does not say what its parts say.
HYPOTHETICAL = word_set(
    """
    if unless whether either neither nor supposedly allegedly reportedly purportedly hypothetically
    respectively otherwise suppose supposing imagine
    """
)
ADVERBS = word_set(
    """
    also later then soon subsequently eventually finally often still now currently previously formerly
    originally initially first once again further thereafter afterwards afterward even always usually
    generally mainly mostly largely primarily famously widely officially briefly successfully recently
    already immediately quickly together both just only almost nearly since instead thus therefore ultimately
    simultaneously
    """
)
CONNECTIVES = word_set(
    """
    however moreover furthermore additionally also therefore thus consequently hence nevertheless nonetheless
    meanwhile similarly likewise overall notably interestingly importantly specifically besides indeed
    instead finally firstly secondly thirdly lastly first second third next then unfortunately fortunately
    sadly surprisingly historically today currently essentially ultimately accordingly further still yet so
    and but well
    """
)
CONNECTIVE_PHRASES = (
    *("for example", "for instance", "in fact", "in addition", "as a result", "in conclusion", "in summary"),
    *("to this day", "in other words", "of course", "on the other hand", "in contrast", "by contrast"),
    *("as well", "as such", "in particular", "in general", "at the same time", "in short", "that said"),
    *("after all", "above all", "to summarize", "in total"),
)
MONTHS = word_set(
    """
    january february march april may june july august september october november december jan feb mar apr jun
    jul aug sep sept oct nov dec
    """
)
TIME_NOUNS = MONTHS | word_set(
    """
    century centuries decade decades year years month months week weeks day days spring summer autumn fall
    winter war wars death birth age childhood youth career season reign era period 1900s time presidency
    tenure war
    """
)
# Words that make a name something other than a person.
NOT_PEOPLE = word_set(
    """
    university college school academy institute company corporation inc ltd club city county river lake
    mountain mount island islands war battle party association society church museum library hospital airport
    station street road bridge park league cup prize award awards act treaty agreement museum band group
    orchestra union committee council department ministry government army navy force states kingdom republic
    empire festival center centre tower building house castle palace temple cathedral ocean sea bay desert
    language song album film movie book novel series show game magazine newspaper journal times bank studio
    studios records entertainment foundation organization organisation network channel
    """
)
PLURALS = word_set(
    "band team company couple family group people police pair duo trio siblings brothers sisters"
)
WOMEN = word_set(
    """
    woman girl actress queen princess duchess countess empress mother wife daughter sister aunt niece
    grandmother widow lady mrs ms miss heroine goddess waitress hostess businesswoman congresswoman
    sportswoman nun
    """
)
MEN = word_set(
    """
    man boy king prince duke emperor father husband son brother uncle nephew grandfather widower lord mr sir
    gentleman hero god businessman congressman sportsman monk priest pope
    """
)
# What a person is or does, next to words in -er, -or, -ist, -ian and -man.
ROLES = (
    WOMEN
    | MEN
    | word_set(
        """
    politician musician physician magician technician academic scholar critic judge coach guitarist model
    host chef artist poet architect astronaut athlete attorney diplomat author director actor doctor engineer
    entrepreneur executive general admiral captain colonel major lieutenant sergeant cleric bishop archbishop
    cardinal saint rabbi imam monk mathematician chemist physicist biologist nurse pilot president minister
    senator governor mayor ambassador monarch ruler pharaoh sultan shah tsar philanthropist soldier spy thief
    criminal outlaw gangster terrorist activist advocate feminist humanist cricketer footballer golfer boxer
    cyclist sprinter swimmer gymnast goalkeeper midfielder defender striker quarterback linebacker pitcher
    catcher infielder outfielder wrestler jockey sculptor photographer painter playwright dramatist novelist
    essayist journalist columnist blogger broadcaster comedian dancer choreographer conductor composer
    songwriter lyricist singer rapper vocalist pianist violinist cellist drummer bassist keyboardist dj
    producer screenwriter filmmaker cinematographer editor publisher illustrator cartoonist animator designer
    inventor scientist researcher professor teacher lecturer educator historian philosopher theologian
    economist sociologist psychologist psychiatrist anthropologist archaeologist linguist lawyer barrister
    solicitor surgeon dentist pharmacist farmer merchant banker investor businessperson industrialist magnate
    explorer navigator adventurer mountaineer missionary evangelist pastor preacher reformer revolutionary
    leader founder member mp statesman baron earl count marquess viscount knight noble nobleman noblewoman
    aristocrat courtier commander officer aviator sniper umpire referee commentator presenter personality
    celebrity youtuber streamer influencer socialite impresario manager administrator bureaucrat
    civil-servant naturalist botanist zoologist geologist astronomer astrologer alchemist polymath logician
    statistician programmer developer hacker translator interpreter librarian curator collector critic
    satirist humorist orator speaker correspondent reporter anchor native citizen resident immigrant refugee
    survivor victim martyr heir heiress voice-actor stuntman wrestler batsman bowler spinner all-rounder
    winger forward centre guard
    """
    )
)
TITLES = word_set(
    "mr mrs ms miss dr prof professor sir lord lady king queen prince princess pope saint st president"
)
# First names with which a reader expects "she" or "he".
HER_NAMES = word_set(
    """
    mary maria marie anna anne ann elizabeth elisabeth jane sarah emma emily charlotte margaret catherine
    katherine kate susan linda barbara patricia jennifer jessica karen nancy lisa betty helen sandra donna
    carol ruth sharon michelle laura kimberly deborah dorothy amy angela ashley brenda pamela nicole samantha
    christine christina debra rachel carolyn janet virginia diane julie joyce victoria kelly lauren judith
    olivia martha cheryl megan andrea alice ann jean doris rose frances florence ada rosalind irene eve
    audrey marilyn beyonce beyoncé taylor serena venus malala angelina scarlett meryl greta hillary michelle
    melania oprah sophia sofia isabella eleanor cleopatra joan agatha virginia sylvia toni simone frida coco
    ella whitney mariah aretha adele rihanna madonna natalie julia sandra halle viola zendaya tiffany
    mackenzie ellen ingrid astrid elsa lise mileva bronisława
    """
)
HIS_NAMES = word_set(
    """
    james john robert michael william david richard joseph thomas charles christopher daniel matthew anthony
    mark donald steven paul andrew joshua kenneth kevin brian george edward ronald timothy jason jeffrey ryan
    jacob gary nicholas eric jonathan stephen larry justin scott brandon benjamin samuel gregory frank
    alexander raymond patrick jack dennis jerry tyler aaron henry adam douglas nathan peter zachary kyle
    walter harold carl jeremy keith roger gerald ethan arthur terry christian sean lawrence austin joe noah
    jesse albert bryan bruce willie pierre isaac charles ludwig wolfgang leonardo galileo karl friedrich max
    niels werner erwin enrico winston franklin abraham barack donald vladimir joseph adolf napoleon julius
    augustus socrates plato aristotle martin malcolm nelson mahatma steve bill elon jeff muhammad mohammed
    lionel cristiano roger rafael novak usain antonio francesco giovanni marco paolo juan josé jose carlos
    luis miguel fernando diego pablo salvador vincent claude edgar ernest mike tom jim bob harry fred hans
    otto heinrich johann johannes stefan ivan sergei dmitri
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
