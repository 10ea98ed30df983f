"""The words with which a text declines to answer, as data; `factrl.abstention` reads them.

All phrases are casefolded (`ß` is `ss`) and spelt out (`I'm` is `i am`), without the words of `ADVERBS`.
Those of scripts with spaces end in a space, so that they match whole words.  Collected by hand; the English
part was extended with what systems wrote in EVOUNA (its Natural Questions part) and FActScore.
"""

from __future__ import annotations


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(" ".join(phrase.split()) + " " for phrase in text.split("|"))


def _joined(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in _phrases(text))


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SPELLINGS = {
    **{"can't": "cannot", "cant": "cannot", "won't": "will not", "dont": "do not", "didnt": "did not"},
    **{"doesnt": "does not", "isnt": "is not", "couldnt": "could not", "im": "i am", "i'm": "i am"},
    **{"i've": "i have", "i'd": "i would", "i'll": "i will", "it's": "it is", "that's": "that is"},
    **{"there's": "there is", "we're": "we are", "we've": "we have", "idk": "i do not know"},
    **{"dunno": "do not know", "isn't": "is not", "ain't": "is not", "i-i": "i"},
}
# Left out wherever they stand, so that each phrase is listed once.
ADVERBS = _words(
    """
    really honestly genuinely simply actually currently truly just still frankly sadly also personally
    definitively reliably accurately confidently exactly quite entirely completely totally fully
    publicly either unfortunately regrettably readily presently immediately quickly independently
    specifically very precisely likely directly even yet now easily further too 100% additionally
    moreover furthermore leider wirklich genau ehrlich vraiment malheureusement realmente
    lamentablemente purtroppo davvero infelizmente bohužel přesně helaas echt niestety
    """
)

# Before the phrase that counts; a clause of openers only is filler.
OPENERS = _phrases(
    """
    i am so sorry | i am sorry | so sorry | sorry | i apologize | apologies | my apologies |
    i am afraid that | i am afraid | i regret that | i must admit that | i must admit | i have to admit |
    i admit | i must confess that | i must confess | i confess that | i confess | i will say that |
    i will say | i must say | i have to say | to be honest | to be frank | to be fair | in all honesty |
    truthfully | the truth is that | the truth is | the fact is | as an ai language model |
    as an ai assistant | as an ai model | as an ai | as a language model | as a large language model |
    well | hmm | hm | um | uh | oh | ah | ok | okay | but | and | so | or | because | since | although |
    though | while | however | therefore | thus | hence | then | that | which | at this time |
    at the moment | at present | as of | to my knowledge | in this case | for this question | in short |
    in summary | overall | the answer is | the final answer is | my answer is | my final answer is |
    answer | final answer | response | i think | i believe | i feel | i guess | it seems that | it seems |
    it appears that | it appears | please note that | note that | for sure | with certainty |
    with confidence | with any certainty | from memory | off the top of my head | good question |
    great question | that is a good question | es tut mir leid | tut mir leid | entschuldigung | aber |
    je suis désolé | je suis désolée | désolé | désolée | pardon | mais | lo siento | perdón | disculpa |
    disculpe | pero | mi dispiace | scusa | scusi | ma | desculpe | lamento | sinto muito | mas | извините |
    простите | к сожалению | но | omlouvám se | ale | na základě dostupných informací |
    na základě kontextu | het spijt me | maar | przepraszam | as
    """
)
OPENERS_SPACELESS = _joined(
    """
    非常抱歉 | 很抱歉 | 十分抱歉 | 抱歉 | 对不起 | 對不起 | 不好意思 | 很遗憾 | 老实说 | 说实话 | 但是 |
    因为 | 所以 | 因此 | 但 | 申し訳ありませんが | 申し訳ございませんが | 申し訳ありません |
    申し訳ございません | すみませんが | すみません | ごめんなさい | 残念ながら | 恐れ入りますが | 正直 |
    죄송하지만 | 죄송합니다만 | 죄송합니다
    """
)

# Declines at the start of a clause, whatever follows.
DECLINES = (
    # English
    *_phrases(
        """
        i do not know | i did not know | i would not know | i do not think i know | i do not think i can |
        we do not know | nobody knows | no one knows | only god knows | i am not sure | i am not so sure |
        i am unsure | i am not certain | i am uncertain | i am not confident | i am not aware |
        i am unaware | i am not familiar | i am unfamiliar | i have no idea | i have no clue |
        i have no way | i have not heard | i have never heard | i do not recall | i do not remember |
        i forgot | i have forgotten | i lack | i am not knowledgeable | i would be guessing |
        i would only be guessing | i would rather not | i prefer not to say | i prefer not to answer |
        i prefer not to guess | i would prefer not to | i will not guess | i must decline | i decline |
        i have to decline | i pass | i will pass | i will have to pass | i am going to pass |
        i would have to guess | i wish i knew | beats me | i am stumped | i am drawing a blank |
        i do not understand the question | i did not find | we are not sure | it is not known |
        it is unknown | it is unclear | it is not clear | it is uncertain | it is not certain |
        it cannot be | there is no information | there is no reliable information |
        there is no available information | there is no specific information |
        there is no public information | there is no sufficient information |
        there is no relevant information | there is no definitive answer | there is no definite answer |
        there is no clear answer | there is no concrete answer | there is no known answer |
        there is no single answer | there is not enough | there is insufficient |
        there are no search results | there are no provided | no sources found | no information is |
        no information was | no information about | no information on | no reliable information |
        no specific information | there seems to be a mistake in | beyond my knowledge |
        outside my knowledge | that is beyond my | this is beyond my | it is beyond my |
        that is outside my | this is outside my | not to my knowledge | not that i know of |
        that is not something i | this is not something i | that is something i do not |
        this is something i do not | that one is beyond me | this one is beyond me | that is beyond me |
        this is beyond me | it is beyond me | i am not comfortable answering | i am not comfortable with |
        i will not provide | i will not answer | i will not speculate | i have not come across |
        i have not encountered | i would not want to | i do not want to guess | i do not want to speculate |
        i do not want to give | i do not want to provide | i would rather say i do not |
        i would rather say that i do not | i would rather admit | i do not believe i have |
        i do not think i have | i do not believe i can | i do not believe i know | not that i am aware of |
        i am an ai and do not | i am an ai and cannot | i am a language model and do not |
        i am a language model and cannot | none of the provided | none of the given |
        none of the search results | nothing in the provided | nothing in the given |
        nothing in the context | i am not going to guess | i am at a loss | i will refrain | i refrain |
        i will abstain | you have got me | you've got me | you got me | afraid i do not | afraid i cannot |
        afraid not | there is no mention | there is no indication | there is no reference |
        there is no record | no relevant information | your guess is as good as mine |
        i do not have a clue | i have not a clue | it remains a mystery
        """
    ),
    # German and French
    *_phrases(
        """
        ich weiss nicht | ich weiss es nicht | ich weiss das nicht | weiss nicht | weiss ich nicht |
        das weiss ich nicht | ich bin mir nicht sicher | ich bin nicht sicher | bin mir nicht sicher |
        ich bin unsicher | keine ahnung | ich habe keine | dazu habe ich keine | habe ich dazu keine |
        habe ich keine | ich kenne die antwort nicht | das ist mir nicht bekannt | mir ist nicht |
        mir liegen keine | dazu liegen mir keine | es liegen keine | es gibt keine informationen |
        es ist nicht bekannt | es ist unbekannt | niemand weiss | die antwort kenne ich nicht |
        ich erinnere mich nicht |
        je ne sais pas | je sais pas | je ne le sais pas | je n'en sais rien | je ne suis pas sûr |
        je ne suis pas sûre | je ne suis pas certain | je ne suis pas certaine | je ne connais pas |
        aucune idée | je n'ai aucune | je n'ai pas | je l'ignore | j'ignore | je suis incapable de |
        je ne suis pas en mesure | je ne dispose pas | je ne peux pas | je ne me souviens pas |
        il est impossible | on ne sait pas | on ignore | il n'y a pas suffisamment
        """
    ),
    # Spanish and Italian
    *_phrases(
        """
        no lo sé | no lo se | no sé | no estoy seguro | no estoy segura | no tengo | lo desconozco |
        desconozco | no conozco | no recuerdo | no dispongo | no puedo | no hay información |
        no hay suficiente | no hay datos | no se sabe | se desconoce | ni idea | no sabría | es imposible |
        no encuentro | no encontré | yo no sé | no lo recuerdo | no me acuerdo | yo no lo sé | no cuento con |
        non lo so | non so | non sono sicuro | non sono sicura | non sono certo | non sono certa | non ho |
        non conosco | non posso | non ne ho | non saprei | non ricordo | non dispongo | non si sa |
        non è noto | non sono in grado | lo ignoro | ignoro | è impossibile | boh | non sono a conoscenza |
        io non lo so
        """
    ),
    # Portuguese
    *_phrases(
        """
        não sei | eu não sei | não tenho | eu não tenho | não estou certo | não estou certa | desconheço |
        não conheço | não posso | não consigo | não me lembro | não lembro | não há informações |
        não se sabe | não faço ideia | não é possível | não disponho
        """
    ),
    # Russian, Czech, Dutch, Polish, Swedish, Turkish, Arabic, Hindi
    *_phrases(
        """
        я не знаю | не знаю | я не уверен | я не уверена | не уверен | не уверена | у меня нет |
        мне неизвестно | неизвестно | понятия не имею | не имею понятия | я не могу | не могу | nevím |
        to nevím | nejsem si jist | nejsem si jistý | nejsem si jistá | nejsem schopen | nemám | nemohu |
        neznám | není známo | není mi známo | nedokážu | nepamatuji si | nepodařilo se mi |
        k dispozici nemám | ik weet het niet | ik weet niet | dat weet ik niet | geen idee | ik heb geen |
        ik ben niet zeker | nie wiem | nie jestem pewien | nie jestem pewna | nie mam | jag vet inte |
        jag är inte säker | ingen aning | bilmiyorum | emin değilim | لا أعرف | لا أعلم | لا أدري |
        لست متأكدا | لست متأكدًا | मुझे नहीं पता | मुझे पता नहीं | मैं नहीं जानता | मैं नहीं जानती
        """
    ),
)
DECLINES_SPACELESS = _joined(
    """
    我不知道 | 不知道 | 我并不知道 | 我也不知道 | 我真的不知道 | 我不清楚 | 不清楚 | 我不太清楚 |
    我并不清楚 | 我不确定 | 不确定 | 我不太确定 | 我不能 | 我不了解 | 我不太了解 | 我没有 | 没有足够 |
    没有相关 | 没有找到 | 信息不足 | 我无法 | 我无从 | 我不掌握 | 尚无定论 | 尚无可靠 | 尚无相关 |
    无法确定 | 无法回答 | 无法得知 | 无法判断 | 无法提供 | 无法确认 | 无法找到 | 目前无法 | 不得而知 |
    尚不清楚 | 难以确定 | 对此我不了解 | 对此我不清楚 | 对此我不知道 | 对此我无法 | 对此不清楚 |
    目前没有公开 | 目前没有相关 | 目前没有可靠 | 目前没有足够 | 目前没有确切 | 暂无相关 | 暂无资料 |
    暂无信息 | 暂无可靠 | 暂无定论 | 尚未公开 | 没有公开 | 没有可靠 | 我的知识库中没有 |
    我的训练数据中没有 | 我的资料中没有 | 我记不清 | 记不清 | 我也说不准 | 我说不准 | 说不准 | 我也不清楚 |
    我也不确定 | 难以回答 | 我不想猜测 | 我不记得 | 我未能 | 我不確定 | 我無法 | 無法回答 | 無法確定 |
    我沒有 | 不確定
    """
)
# At the end of a clause, for languages whose verb comes last.
DECLINES_AT_END = _joined(
    """
    わかりません | 分かりません | わからない | 分からない | 判りません | 知りません | 知らない |
    存じません | 存じ上げません | 不明です | 答えられません | お答えできません | 回答できません |
    確認できません | 見つかりませんでした | 見つかりません | 判断できません | 特定できません |
    自信がありません | 情報がありません | わかりかねます | できかねます | 確信が持てません |
    覚えていません | 定かではありません | 모르겠습니다 | 모릅니다 | 모르겠어요 | 몰라요 | 알 수 없습니다 |
    확실하지 않습니다 | 정보가 없습니다 | 답변할 수 없습니다 | 답할 수 없습니다 | 持っていません |
    把握していません | 存じておりません | 没有相关信息 | 未公开 | 没有记载 | 答案不明 | 无从得知 |
    无法确认 | 정보는 없습니다 | 未提及 | 我不知道 | 我不清楚 | 尚不清楚 | 无法确定 | 无法得知 | 不得而知 |
    无法回答 | जानकारी नहीं है | nicht beantworten | nicht sagen | nicht bestimmen
    """
)
# As the complete clause, or before a question word ("No idea who").
BARE = frozenset(
    _joined(
        """
        who knows | unknown | unanswerable | undetermined | indeterminate | not known | not sure | unsure |
        not certain | uncertain | unclear | no idea | no idea whatsoever | no idea at all | no clue |
        no clue whatsoever | no clue at all | not a clue | not enough information | not enough info |
        insufficient information | insufficient data | insufficient context | no information |
        no information available | no information found | information not available |
        information unavailable | not available | not specified | unspecified | not mentioned |
        not provided | not stated | not found | no answer | no answer found | no answer available |
        do not know | undisclosed | not disclosed | unable to say | no data | no data available |
        not sure about that | not sure about this | pas sûr | inconnu | inconnue | réponse inconnue |
        unbekannt | nicht bekannt | desconocido | desconocida | sconosciuto | sconosciuta | desconhecido |
        desconhecida | neznámé | 未知 | 不详 | 不明
        """
    )
)
QUESTION_WORDS = _words("who what when where which whether why how if about as from on of at to")

# "I do not have any data": a beginning and a noun that follows.
HAVE = _phrases("i do not have|i do not possess|i have no|we do not have|i could not get|i did not get")
INFORMATION = _words(
    """
    information info data knowledge answer answers details detail access record records context evidence
    source sources clue fact recollection specifics figures insight certainty confirmation mention memory
    ability capability enough sufficient facts expertise training way
    """
)
# "I could not find": a beginning and the verb that must come next.
CANNOT = _phrases(
    """
    i cannot | i could not | i was not able to | i was unable to | i am not able to | i am unable to |
    we cannot | unable to | cannot | could not | i would not be able to | i will not be able to |
    it is impossible to | it is not possible to | it would be impossible to | it is difficult to |
    it is hard to | it is challenging to | it is difficult for me to | it is hard for me to |
    it is impossible for me to | it is not possible for me to | hard to | difficult to | impossible to |
    there is no way to | there is no way for me to | i do not know how to | one cannot |
    i am not in a position to
    """
)
VERBS = _words(
    """
    answer say tell determine find provide verify confirm recall remember identify give guess locate access be
    offer know speculate predict estimate pinpoint assist help fulfill comply discern establish deduce infer
    conclude ascertain respond share recollect name specify state supply retrieve generate browse list look
    check search pin discuss comment elaborate disclose reveal proceed advise
    """
)
# Looks like one of the above and is not.
NOT_DECLINING = _phrases(
    """
    i cannot tell a lie | i cannot say i | i cannot say that i | i cannot say enough | i cannot help but |
    i do not know anyone | i do not know why you | i do not know about you | i do not know a single |
    i do not know a better | i do not know any better | i do not know of a better | i cannot be wrong |
    i am not sure why you | it cannot be denied | it cannot be overstated | it cannot be that |
    i have no doubt | cannot be wrong | i do not have to
    """
)

# "The exact date is unknown": a subject, a predicate, and nothing or one of these words after it.
SUBJECTS = _words(
    """
    the this that it his her their its these those answer what who when where whether which how any such
    exact no specific information details
    """
)
EXACT = _words("exact specific precise answer identity information details actual true real correct")
CONTRASTS = _words("but though although however yet because")
CLAUSE_WORDS = CONTRASTS | _words("who whose which that is was are were used called means refers has had")
UNKNOWN = _phrases(
    """
    is unknown | are unknown | remains unknown | remain unknown | was unknown | is not known |
    are not known | is unclear | remains unclear | is uncertain | remains uncertain | is ambiguous |
    is vague | is unanswerable | cannot be determined | cannot be answered | cannot be known |
    cannot be verified | cannot be found | cannot be confirmed | cannot be established |
    cannot be inferred | could not be found | could not be determined | is not available |
    are not available | is not mentioned | are not mentioned | is not specified | are not specified |
    is not provided | are not provided | is not stated | is not given | was not found | is not found |
    is not disclosed | has not been disclosed | has not been determined | has never been established |
    is not in my knowledge | is not in my training | is not in my memory | is not part of my knowledge |
    is not part of my training | is not included in my | is not recorded | is not documented |
    are not given | is not known to me | is unavailable | is beyond my knowledge | is outside my knowledge |
    is undetermined | escapes me | remains a mystery | is lost to history | is anyone's guess | eludes me
    """
)
TAILS = _words(
    """
    to from based with at in by for because since due given without as within here anywhere or so but
    though although however and on using base data cutoff training knowledge
    """
)
NOT_TAILS = _phrases(
    """
    to be | to have | to do | as the | as a | as an | for its | for his | for her | for being | in the wild
    """
)

# "The document does not mention it": a source and a verb.
SOURCES = _words(
    """
    context text passage passages document documents information reference references source sources
    question data article articles knowledge database results result training excerpt material materials
    snippet
    """
)
_SAYING = _words(
    """
    say mention provide contain specify state include give indicate answer cover reveal tell have list
    discuss identify allow extend address describe disclose offer show clarify make
    """
)
SILENT = (
    *(f"{negation} {verb} " for negation in ("does not", "do not", "did not") for verb in sorted(_SAYING)),
    *_phrases(
        """
        is not about | are not about | is not relevant | are not relevant | is insufficient |
        are insufficient | is not sufficient | are not sufficient | is too limited | are too limited |
        gives no | give no | provides no | provide no | makes no mention | is unrelated | are unrelated |
        has no | have no | contains no | contain no | lacks | lack
        """
    ),
)

# Asking back: it commits to nothing.
ASKS_BACK = _phrases(
    """
    could you clarify | could you please clarify | can you clarify | can you please clarify |
    could you specify | could you please specify | can you specify | could you provide more |
    could you please provide more | can you provide more | can you please provide more |
    could you give me more | can you give me more | please clarify | please specify | please provide more |
    i would need more | i would need additional | who do you mean | whom do you mean | what do you mean |
    which one do you mean
    """
)
DO_YOU_MEAN = (" do you mean ", " are you referring to ", " are you asking about ", " did you mean ")

# Requests, advice and remarks about oneself: they neither decline nor assert.
FILLERS = _phrases(
    """
    could you | can you | would you | will you | may i | may you | please provide | please check |
    please specify | please clarify | please let | please try | please consult | please verify |
    please refer | please feel | please ask | please give | please share | please rephrase | please see |
    please contact | please do | let me know | feel free | if you have | if you need | if you can |
    if you could | if you would | if you want | if you provide | if you give | if you share | if you are |
    if you know | if you let | if you meant | if you mean | if you like | if there is | if possible |
    thank you | thanks | i would need | i need | i would require | i would be | i will be happy |
    i am happy to | i can try | i could try | i will do my best | i would recommend | i recommend |
    i would suggest | i suggest | i would advise | i hope | i am here | i am an ai | i am only an ai |
    i am a language | i am a large | my knowledge | my training | you can try | you can check |
    you can find | you can look | you could try | you could check | you may want | you may need |
    you may wish | you might want | you might try | you might need | you might find | you should check |
    you should consult | it would be helpful | it would help | it would be best | it is best to |
    it is recommended | it is possible that you | it is possible that there |
    it is possible that this person | perhaps you | maybe you | try checking | try searching | try a |
    try to | check the | consult a | consult the | without more | without additional | without knowing |
    without any | without access | without guessing | with the information | i do not want to mislead |
    i will have to | i will need | is there anything | do you have | did you mean | based on | given the |
    from the | according to the | as of my | as of the | i am sorry for | i am sorry about |
    i am sorry that | i am sorry if | i apologize for | i apologize if | sorry for | sorry about |
    sorry that | i can only | i was trained | i am trained | so that i | so i can | making it |
    making them | there are many people with | there are many individuals with |
    there are several people with | there are multiple people with | there may be | nor can i | nor do i |
    i looked | i have looked | i searched | i have searched | i checked | i have checked | i reviewed |
    rather than guess | rather than guessing | instead of guessing | to avoid giving | to avoid guessing |
    to avoid providing | to avoid misleading | n/a | je suis une | pour plus | si vous | veuillez |
    en tant qu'intelligence | en tant qu'ia | bitte | falls sie | als ki | si necesitas | si puede |
    por favor | como modelo | se hai | se puoi | come modello | se você | como ia | pokud | pro přesnou |
    pro získání | bez dalších | bez přístupu | doporučuji | пожалуйста | как искусственный интеллект
    """
)
FILLERS_SPACELESS = _joined(
    """
    请提供 | 请您 | 如果您 | 如果你 | 如有 | 建议您 | 您可以 | 作为一个 | 作为人工智能 | 作为ai | 根据现有 |
    根据目前 | 根据提供 | 請提供 | もし | 詳しくは | ご不明
    """
)
# Fillers that name a source, and the verbs that make an assertion of them ("Based on the text it is Paris").
ADVERBIAL = _phrases(
    """
    based on | given the | from the | according to the | with the information | as of my | as of the
    """
)
FINITE = _words("is was are were has had did became")

# Where a clause that declined starts to assert.
TURNS = _phrases(
    """
    but | however | though | although | because | maybe | perhaps | probably | possibly | presumably | i
    think | i believe | i guess | i suspect | i assume | i would | i'd | i'll | i will | my guess | my
    best guess | my answer | let me guess | let's say | it is probably | it's probably | it might | it
    may | it could be | it must be | and is | and was | and are | and were | if not | better than |
    likelier than | anyone but | anybody but | anything but | unless it | most likely | other than |
    except | besides | apart from | and it | and he | and she | and they | and the answer | and that is
    | and i | so it | so i | so the | the answer is | aber | jedoch | mais | cependant | pero | però |
    porém | однако | vielleicht | wahrscheinlich | peut-être | quizás | tal vez | forse | talvez |
    возможно | možná
    """
)
