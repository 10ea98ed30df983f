"""What a sentence says: whether it gives an accepted answer, and how both forms of the grader take it."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from factrl.rewards.grading import Grader
from factrl.text.mentions import mentions

SHORT, SENTENCE = Grader(), Grader(form="sentence")
CAPITAL = "What is the capital of France?"

# Of each question and accepted answer, texts that give another one, deny it, replace it or say it of another.
WRONG = {
    "What is the capital of France?": {
        "Paris": [
            *("The capital is not Paris.", "It isn't Paris, it is Lyon.", "It is Lyon."),
            *("The capital of France.", "", "Paris or Lyon.", "It is either Lyon or Paris."),
            *("It is Rome, Berlin, Paris, Madrid or Lyon.", "Paris, London, Rome, Berlin"),
            *("Lyon; Nice; Paris", "Unlike Paris, Lyon is the capital."),
            "Paris " + "x " * 2_000,
            *("Paris… no wait, Lyon.", "Paris - scratch that, Lyon", "The answer is Paris. Correction: Lyon"),
            *("The worst possible answer is Paris", "The wrong answer is Paris", "Paris is wrong"),
            *("I doubt it is Paris", "\\boxed{\\boxed{Paris} Lyon}", "~~Paris~~ Lyon", "<s>Paris</s> Lyon"),
            *("\\sout{Paris} Lyon", "!Paris", "≠ Paris", "Anything but Paris.", "Any city except Paris"),
            *("a suburb of Paris", "near Paris", "Paris's suburb", "Nobody believes that it is Paris"),
            *("Paris is not the answer", "ohne Paris", "hardly Paris", "It's Lyon (some say Paris)."),
        ],
    },
    "When?": {
        "1952": ["In 1953."],
        "May 16, 2018": ["On May 11, 2018."],
        "1952-1958": ["1952"],
        "9 February 2018": ["In 2018.", "In 2017"],  # a year is less than was asked for
        "March 2018": ["In April 2018"],
    },
    "How long?": {"24 hours": ["48 hours."]},
    "How far?": {"5 km": ["It is 5 miles."]},
    "How many?": {
        "1,000": ["100"],
        "10": [
            *("Between 10 and 20", "10,5", "10.5", "10-20", "10 to 20", "at least 10", "-10", "10%"),
            *("10 or 11", "10/11", "10 1/2", "√10", "10²", "10!", "the 10th", "about 10 to 12", "100"),
            *("1010", "ten thousand", "<10", "10+"),
        ],
        "2": ["2 1/2", "2½", "√2", "2^3", "2!", "1/2", "2/3", "2.5", "2,5", "-2", "It is 2 1/2."],
        "5": ["5th", "the fifth", "It is the fifth."],
    },
    "Who won?": {"Serena Williams": ["Venus Williams won."]},
    "Who?": {"Serena Williams": ["Serena van Doorn."]},
    "Is it legal?": {"no": ["Yes.", "Paris"], "yes": ["It isn't legal.", "It depends."]},
    "Which?": {
        "!": ["..."],
        "กิน": ["กัน"],
        "≥ 5": ["5", "≤ 5", "> 5", "It is 5."],
        "5": ["≥ 5", "> 5", "±5"],
        "inorganic": ["organic"],
        "legal": ["illegal", "It is illegal."],
        "symmetric": ["asymmetric", "It is asymmetric."],
        "upper bound": ["lower bound"],
        "Western Australia": ["South Australia", "Australia"],
    },
    "首都是哪里？": {"巴黎": ["首都不是巴黎。", "巴黎还是里昂"]},
    "谁？": {"杜甫": ["李白或杜甫"]},
    "Which one was it?": {
        "South Korea": ["North Korea", "It was North Korea.", "north korea", "Korea"],
        "North Carolina": ["He was born in South Carolina."],
        "Manchester City": ["Manchester United", "It was won by Manchester United in 1999."],
        "Joel Coen": ["Ethan Coen", "The director of Fargo is Ethan Coen."],
        "Barack Obama": ["Michelle Obama", "It was written by Michelle Obama."],
        "Nobel Prize in Chemistry": [
            *("Nobel Prize in Physics", "She won the Nobel Prize in Physics.", "The Physics Nobel Prize"),
        ],
        "Dark blue": ["Dark red", "It is dark red."],
        "New York": ["York", "He lived in York."],
        "York": ["New York"],
        "Virginia": ["West Virginia"],
        "1-2": ["2-1", "They won 2-1."],
        "2:3": ["The ratio is 3:2."],
        "Portland, Oregon": ["Portland, Maine"],
        "Lyndon B. Johnson": ["It was Andrew Johnson who did."],
        "Bank of England": ["Bank of America"],
        "sulfuric acid": ["It is nitric acid."],
        "Chicago White Sox": ["Boston Red Sox"],
        "Los Angeles Clippers": ["The Los Angeles Lakers won it."],
        "George H. W. Bush": ["It was George W. Bush"],
        "George W. Bush": ["George H. W. Bush"],
    },
    "Who was president?": {"George H. W. Bush": ["It was George W. Bush. Bush won twice."]},
    "Which won, Manchester City or Manchester United?": {"Manchester City": ["Manchester United"]},
    "Is it true?": {"yes": ["Paris"]},
    "Were Scott Derrickson and Ed Wood of the same nationality?": {
        "yes": [
            *("Scott Derrickson is American and Ed Wood is Canadian.", "Scott Derrickson and Ed Wood."),
            "They had different nationalities.",
        ],
    },
    "Is France bigger than Spain?": {"yes": ["Spain", "Spain is bigger.", "It is not."]},
    "Which king of France died in 1715?": {
        "Louis XIV": [
            *("It was Louis XV.", "Louis XV", "Louis XIII", "King Louis XVI died then.", "Louis", "Louis 15"),
            "Louis the Fifteenth",
        ],
    },
    "On what date were the attacks?": {
        "September 11, 2001": [
            *("In 2001.", "September 2001", "September 11", "11 September 2002"),
            "It was on September 12, 2001.",
        ],
    },
    "When was she born?": {
        "7 November 1867": [
            *("She was born on 7 November.", "1867", "In November 1867.", "7 November 1876"),
            "November 17, 1867",
        ],
    },
    "Which language?": {
        "C": ["It is written in C++.", "C++", "C#", "Objective-C", "It was written in C#."],
        "C++": ["It is written in C.", "C", "C#"],
    },
    "Blood type?": {
        "O+": ["O-", "O", "It is O negative.", "O−", "AB+", "The type is O-."],
        "O-": ["O+", "O", "It is O+."],
    },
    "How long is it?": {
        "5 m": ["5 cm", "It is 5 cm long.", "5 km", "5 mm", "5 ms", "5 miles", "5 M", "5 ft", "5 m²"],
    },
    "How much energy?": {"5 MJ": ["5 mJ", "It needs 5 mJ.", "5 kJ", "5 J", "5 MW", "5 GJ"]},
    "How big is the file?": {"5 MB": ["5 Mb", "5 mb", "5 GB", "It has 5 Mbit.", "5 KB"]},
    "What is the answer?": {
        "√2": ["2", "It is 2.", "sqrt", "√3", "1.4"],
        "n!": ["n", "It is n."],
        "n": ["n!"],
    },
    "What is the quotient?": {"a/b": ["ab", "b/a", "a-b", "It is ab."]},
    "Which interval?": {"[0, 1)": ["[0, 1]", "(0, 1)", "It is [0, 1].", "(0,1]", "[0,1"]},
    "Which version?": {
        "3.10": ["3.1", "It is version 3.1.", "3.11", "3.100"],
        "3.1": ["3.10", "Version 3.10.", "3"],
    },
    "What is the country code?": {"+44": ["44", "-44", "+45"]},
    "What is the word?": {"año": ["ano", "It is ano."], "ano": ["año"]},
    "Who sang it?": {"Elton John": ["John Elton", "It was John Elton."]},
    "Who wrote it?": {
        "Arthur Miller": ["Miller Arthur", "Henry Miller", "It was Miller Arthur."],
        "Mary Wollstonecraft": ["That was Mary Wollstonecraft Shelley."],
    },
    "When was he killed?": {
        "44 BC": ["44 AD", "44", "In 44 AD.", "45 BC", "He was killed in 44 AD.", "44 CE", "44 n. Chr."],
    },
    "When was it?": {"79 AD": ["79 BC", "In 79 BC.", "79 BCE"]},
    "When does it start?": {"5 pm": ["5 am", "It starts at 5 a.m.", "5", "17", "At 5 in the morning"]},
    "What was the verdict?": {
        "not guilty": ["guilty", "He was found guilty.", "Guilty as charged"],
        "guilty": ["not guilty", "He was found not guilty.", "innocent"],
    },
    "क्या है?": {"किताब": ["कताब", "काताब", "यह कताब है।"]},
    "எது?": {"கல்": ["கால்", "கில்", "கலை"]},
    "What is it?": {
        "Co": ["CO", "It is CO.", "C"],
        "CO2": ["CO", "It is CO.", "C2O", "CO3", "Co2"],
        "π/2": ["π2", "2/π", "π", "It is π."],
        "x^2": ["x2", "x^3", "x", "2x"],
        "-x": ["x", "It is x."],
    },
    "Which ion?": {"Fe2+": ["Fe3+", "Fe", "It is Fe3+."]},
    "Which vitamin?": {"Vitamin B12": ["Vitamin B6", "vitamin B", "B1", "Vitamin B2"]},
    "Who ruled?": {
        "Elizabeth I": ["Elizabeth II", "It was Elizabeth II.", "Elizabeth"],
        "Charles V": ["Charles I", "It was Charles IV.", "Charles X"],
    },
    "Which film?": {"Rocky II": ["Rocky III", "Rocky", "It is Rocky IV."]},
    "Which place did it take?": {"5th": ["5", "15th", "It came 4th."]},
    "What is the capital?": {
        "Paris": [
            *("Paris → Lyon", "Lyon → Paris", "between Paris and Lyon", "It is between Paris and Lyon."),
            *("✗ Paris ✓ Lyon", "✗ Lyon ✓ Paris", "❌ Paris ✅ Lyon", "Paris -> Lyon", "Paris => Lyon"),
            *("Paris | Lyon", "Paris/Lyon", "Paris / Lyon", "Paris vs Lyon", "Paris vs. Lyon"),
            *("Paris or Lyon", "Either Paris or Lyon.", "Paris or maybe Lyon", "Paris, maybe Lyon"),
            *("Paris, or possibly Lyon", "Paris? Lyon?", "Paris? Or Lyon?", "Lyon? Paris?", "Paris; Lyon"),
            *('["Paris", "Lyon"]', "['Lyon', 'Paris']", "“Paris”, “Lyon”"),
            *("Paris\nLyon", "1. Paris\n2. Lyon", "- Paris\n- Lyon", "a) Paris b) Lyon", "Paris oder Lyon"),
            *("Paris ou Lyon", "Paris o Lyon", "zwischen Paris und Lyon", "entre Paris et Lyon"),
            *("If not Paris, then Lyon", "Paris, if not Lyon", "Some say Paris, others Lyon"),
            *("Some say Paris, others say Lyon.", "It could be Paris. It could be Lyon."),
            *("It could be Paris or it could be Lyon.", "Paris or else Lyon", "Paris, alternatively Lyon"),
            *("Paris, perhaps Lyon", "Paris 50%, Lyon 50%", "Paris (or Lyon)", "Paris [or Lyon]"),
            *("Maybe Paris, maybe Lyon", "Possibly Paris, possibly Lyon", "Not Paris", "Paris ↔ Lyon"),
            *("a toss-up between Paris and Lyon", "torn between Lyon and Paris"),
            *("first guess Paris, second guess Lyon", "Option A: Paris; Option B: Lyon", "Paris... or Lyon"),
            *("Lyon or Paris", "Lyon, or rather, maybe Paris", "Paris, Lyon or Nice", "Paris nebo Lyon"),
            *("Paris, otherwise Lyon", "Paris > Lyon", "Lyon < Paris", "Paris = Lyon", "Paris + Lyon"),
            *("Lyon (not Paris)", "Lyon, not Paris", "Paris and/or Lyon", "Paris & Lyon"),
            "both Paris and Lyon",
        ],
    },
    "When did it open?": {
        "1952": [
            *("1952 or 1953", "1952/1953", "1952 → 1953", "between 1952 and 1953", "1952, 1953"),
            *("1952 (1953)", "1952? 1953?", "1952; 1953", "1952-1958", "either 1951 or 1952", "1952 vs 1953"),
            *("✗ 1952 ✓ 1953", "1952 maybe 1953", "'52 BC", "1950s", "about 1950"),
        ],
    },
    "Who wrote Emma?": {
        "Jane Austen": [
            *("Jane Austen or Charlotte Brontë", "Jane Austen / Charlotte Brontë"),
            *("Jane Austen → Charlotte Brontë", "between Jane Austen and Charlotte Brontë"),
            *("Jane Austen; Charlotte Brontë", "Jane Austen, Charlotte Brontë"),
            *("Jane Austen and Charlotte Brontë", "✗ Jane Austen ✓ Charlotte Brontë"),
            *("Charlotte Brontë, maybe Jane Austen", "1. Jane Austen\n2. Charlotte Brontë"),
            *("Jane Austen's sister", "the sister of Jane Austen", "Jane Austen's brother Henry"),
            *("a friend of Jane Austen", "Many believe Jane Austen, but it was Emily Brontë."),
            "Jane Austen is what I said earlier; that was a mistake, and Brontë is right.",
        ],
    },
    "What colour?": {
        "red": [
            *("red or blue", "red/blue", "red → blue", "between red and blue", "✗ red ✓ blue", "red; blue"),
            *("red, maybe blue", "red? blue?", "either red or blue", "not red"),
        ],
    },
    "Wo?": {"Bayern": ["Nicht Bayern", "Baden-Württemberg", "Bayern oder Hessen"]},
    "¿Qué?": {"papá": ["papa"]},
    "Was?": {"schön": ["schon"]},
    "What is the ratio?": {"2:3": ["3:2", "2", "The ratio is 3:2."]},
    "What's the score?": {"10/10": ["10", "1", "9/10"]},
    "Which note?": {"B♭": ["B", "B♯", "It is B."]},
    "Which key?": {"A minor": ["A major", "minor", "A"]},
    "Which platform?": {".NET": ["NET"]},
    "How much?": {
        "$5 million": ["$5 billion", "5 million euros", "€5 million", "$5", "$5.5 million"],
        "$100": ["It cost A$100."],
    },
    "Which agent?": {"007": ["7"]},
    "How cold?": {"-5 °C": ["5 °C", "-5 °F", "It is 5 °C."]},
    "Area?": {"5 km²": ["5 km", "5 m²", "It is 5 km."]},
    "Speed?": {"5 m/s": ["5 m", "5 ms", "5 km/h", "It is 5 km/s."]},
    "What?": {"Pacific Ocean": ["Atlantic Ocean"]},
    "Which is right?": {"p and q": ["p or q"], "all dogs": ["no dogs", "some dogs"]},
    "Does it?": {"increases": ["decreases", "It does not increase.", "It decreases."]},
    "Which hemisphere?": {"northern hemisphere": ["southern hemisphere"]},
    "How high is Mount Everest in metres?": {
        "8,849 metres": ["8849 feet", "It is 8,849 feet high.", "at least 8,849 metres", "!8,849", "≠ 8,849"],
        "8849": ["8849 feet", "It is 8,849 feet high."],
    },
    "How long was it?": {
        "5 years": ["5 days", "It lasted 5 months."],
        "10 km": ["either 10 km or 20 km", "10-20 km"],
        "12 inches": ["12 cm"],
    },
    "How many people died?": {"1234": ["The number of deaths is 123456."], "1 million": ["two million"]},
    "How many wives had he?": {"1": ["Actually I think he had three wives."]},
    "Who is older, Ann or Bob?": {"Ann": ["Bob is older than Ann."]},
    "How many eggs?": {"18": ["9 * 2 = 18, minus costs. \\boxed{20}", "She sells 18 eggs.\n#### 20"]},
    "On what day, month, and year was he born?": {"June 24th, 1896": ["1896", "He was born in June 1896."]},
    "When was the Eiffel Tower opened?": {
        "31 March 1889": [
            *("31 March 1889 or 6 May 1889", "6 May 1889 or 31 March 1889", "before 31 March 1889"),
            *("It opened before 1889.", "I doubt it was 1889.", "1889? I doubt it."),
            *("It is doubtful that it opened in 1889", "after 31 March 1889"),
            *("31 March 1889? No, 6 May 1889.", "It was not 31 March 1889", "no later than 1889"),
            *("~~31 March 1889~~", "не 31 March 1889", "до 31 March 1889", "nicht 31 March 1889"),
            "avant 31 March 1889",
        ],
    },
    "How many children did he have?": {
        "2": ["at least 2", "more than 2", "up to 2", "no fewer than 2", "2 or 3"],
    },
    "Who wrote Hamlet?": {
        "Shakespeare": ["Shakespeare did not write it.", "Contrary to belief, Shakespeare did not write it."],
        "William Shakespeare": ["William Shakespeare Jr."],
    },
    "Welcher Fluss fließt durch Köln?": {"Rhein": ["Der Rhein fließt nicht durch Köln."]},
    "Wer schrieb Faust?": {"Goethe": ["Goethe war es nicht.", "Keinesfalls Goethe.", "Goethes Frau"]},
    "Qui a écrit Les Misérables ?": {"Victor Hugo": ["Hugo ne l'a jamais écrit."]},
    "谁写了《狂人日记》？": {"鲁迅": ["鲁迅没有写。"]},
    "पहले प्रधानमंत्री कौन थे?": {"गांधी": ["गांधी नहीं, नेहरू।"]},
    "Türkiye'nin kurucusu kim?": {"Atatürk": ["Atatürk değil."]},
    "What is 17 + 25?": {
        "42": [
            "42 was my first thought, but the result is 43.",
            *("I first wrote 42, but the right number is 43.", "42\n\nWait, it is 43."),
            *("\\boxed{42} \\boxed{43}", "The answer is 42 and 43."),
        ],
    },
    "Who was the first?": {"Yuri Gagarin": ["Many would say Gagarin; in truth it was Shepard."]},
    "Quel est le plus haut sommet d'Afrique ?": {
        "Kilimandjaro": ["Kilimandjaro. Pardon, je me corrige : le mont Kenya."],
    },
    "Wer malte die Mona Lisa?": {"Leonardo da Vinci": ["Entweder Leonardo da Vinci oder Raffael."]},
    "Who painted it?": {"Pablo Picasso": ["Possible painters include Dalí, Miró and Picasso."]},
    "By how much?": {"20%": ["It rose by 20 percentage points."]},
    "How many basis points?": {"25": ["25 percentage points"]},
    "How many people live in Iceland?": {"380,000": ["Half of 380,000."]},
    "How many legs has a spider?": {"8": ["A spider has twice eight legs."]},
    "Wie viele?": {"750 Millionen": ["Es sind 750 Milliarden Menschen."]},
    "What is x?": {"3/4": ["3/4 i", "x \\neq 3/4", "x ≠ 3/4", "x = 3/4 + C"]},
    "Who beat whom in the final?": {"Italy beat France": ["France beat Italy."]},
    "What happened?": {"Italy beat France": ["France beat Italy."]},
    "Name the colours of the lights from top to bottom.": {"red, amber, green": ["green, amber, red"]},
    "Which country is it?": {"Republic of the Congo": ["It is the Democratic Republic of the Congo."]},
    "谁写的？": {"鲁迅": ["是鲁迅的学生写的。"]},
    "Qui ?": {"Goethe": ["La femme de Goethe"]},
    "Which are they?": {
        "Estonia, Latvia and Lithuania": ["Estonia and Latvia", "They are Estonia and Lithuania."],
        "Spain and France": ["It borders Spain.", "Only France."],
        "red, white and blue": ["red and white", "They are red and blue."],
        "Daimler and Chrysler": ["Chrysler"],
        "London; Paris": ["Paris"],
    },
    "Who were they?": {
        "John Lennon and Paul McCartney": ["Paul McCartney", "Written by Paul McCartney alone."],
        "Wilbur and Orville Wright": ["It was Orville Wright."],
    },
    "What was the temperature?": {
        "5 °C": ["It was minus 5 °C.", "5 degrees Celsius below zero", "negative five"],
        "5": ["It was 5 degrees below zero.", "minus five", "It is negative five."],
        "-5": ["It was 5 degrees.", "5 degrees above zero"],
    },
    "In which year or decade was it built?": {
        "1980": ["In the 1980s.", "1980s", "It was built in the 1980's."],
        "1980s": ["1980", "In 1980."],
        "1900": ["It was built in the 1900s."],
    },
    "Which option is right?": {
        "B": ["A and B", "A, B", "Both A and B", "B and C are correct.", "A, B, C, D", "B & C"],
        "A": ["A, B, C, D"],
    },
    "Who was the winner?": {
        "John Smith": ["It was Jane Smith.", "Jane Smith"],
        "Michael Jackson": ["It was Mahalia Jackson."],
        "Charlotte Brontë": ["Clara Brontë won it."],
        "Serena Williams": ["Sarah Williams won."],
    },
    "What are the coordinates?": {
        "40°N 74°W": ["It lies at 40°S, 74°E.", "40 degrees south, 74 degrees west"],
    },
    "Which release?": {"3.1": ["It is version 3.1.2."], "3.1.2": ["It is version 3.1.3.", "Version 3.1."]},
    "Which song was it?": {"Let It Be": ["It was Let It Go."]},
    "How many moons does Venus have?": {"0": ["None of its 3 moons is large.", "1"], "2": ["It has none."]},
}
# Nothing is said: a sign alone, and a word that an abstention has.
SILENT = ("n!", "NET", "schon")
# Of each question and accepted answer, texts that give it.
RIGHT = {
    "What is the capital of France?": {
        "Paris": [
            *("The capital of France is the city of Paris, on the Seine.", "PARIS, of course!"),
            *("It's not Lyon but Paris.", "Paris¹, or as the Romans called it, Lutetia.", "Paris[1]."),
            *("Not only is Paris the largest city, it is also the capital.", "Yes, it was Paris, not Lyon."),
            *("Paris not Lyon", "There is no doubt that it is Paris", "Without a doubt Paris"),
            *("I don't doubt it's Paris", "It is Paris, not Lyon"),
        ],
    },
    "When did it open?": {
        "1952": [
            *("It opened in Oslo in 1952.", "It opened in 1952.", "In 1952, in Oslo.", "1952 (Oslo)"),
            *("It opened in 1952 and closed in 1960.", "It did not open in 1951 but in 1952."),
        ],
    },
    "When?": {"1952": ["On 3 May 1952"], "March 2018": ["It came out in March of 2018.", "13 March 2018"]},
    "When was it?": {
        "9 February 2018": ["It was February 9, 2018."],
        "79 AD": ["AD 79", "In 79 CE.", "79", "It was in 79 A.D."],
    },
    "In what year?": {"9 February 2018": ["In 2018."]},
    "How long?": {"24 hours": ["About twenty-four hours.", "One day."]},
    "How high is it?": {"8,848 m": ["It is 29,029 feet high."]},
    "How many?": {
        "1,000": ["One thousand."],
        "1000": ["It has 1k of them"],
        "10": ["Ten.", "It is ten.", "There are 10 of them.", "10.", "10.0"],
        "25": ["25 basis points"],
    },
    "Which season?": {"the eighth season": ["In season 8."]},
    "Who played him?": {"David Joseph Madden": ["Dave Madden played him."]},
    "Who was host?": {"John Daly": ["The host was John Charles Daly."]},
    "Who?": {"P. V. Sindhu": ["By Sindhu.", "It was PV Sindhu."], "HUGOWEAVING": ["Hugo Weaving"]},
    "Who said it?": {"President Nixon": ["Richard Nixon."]},
    "What did she sell?": {"Sea Shells": ["She sold seashells."]},
    "Which nationality?": {"Colombia": ["He is Colombian."]},
    "Which colours?": {"Green, White, Orange": ["White, green, orange"]},
    "Which countries?": {"Chile and Argentina": ["Argentina and Chile."]},
    "What is it?": {"Sao Tome": ["São Tomé"], "CO2": ["CO₂", "It is CO2.", "co2"]},
    "Is it legal?": {
        "yes": ["Yes, it is.", "It is legal.", "That is true."],
        "Typically, no": ["No, it is not."],
        "no": ["It is not legal there."],
    },
    "Which Games did it not attend?": {"1980": ["It did not attend the Games of 1980."]},
    "Which song?": {"Not Fair": ['It is "Not Fair".']},
    "Name one.": {"AKROTIRI or DHEKELIA": ["Akrotiri"]},
    "Who are they?": {"Pygmies (short height)": ["Pygmies"]},
    "Is it A or B?": {"B": ["B rather than A"]},
    "首都是哪里？": {"巴黎": ["法国的首都是巴黎。"]},
    "哪一年？": {"1881年": ["他出生于1881年9月25日。"]},
    "谁写的？": {"施耐庵": ["作者不是罗贯中，而是施耐庵。"], "鲁迅": ["鲁迅写的。"]},
    "When was he born?": {"1881": ["Born c. 1881."]},
    "Which one was it?": {
        "Barack Obama": ["Obama", "It was President Obama.", "Barack Hussein Obama", "the politician Obama"],
        "Austen": ["Jane Austen"],
        "Jane Austen": ["Austen", "austen"],
        "Marie Curie": ["Marie S. Curie"],
        "South Korea": ["It is South Korea.", "south korea"],
        "Joel Coen": ["Joel and Ethan Coen"],
        "Manchester City": ["Manchester City F.C.", "It was Manchester City, not Manchester United."],
        "Nobel Prize in Chemistry": ["The Nobel Prize for Chemistry", "The Chemistry Nobel"],
        "New York": ["New York City"],
        "Portland, Oregon": ["Portland", "Portland, in the state of Oregon"],
        "1-2": ["They lost 1-2."],
        "1952-1958": ["From 1952 to 1958."],
        "Dark blue": ["A dark blue"],
        "David Madden": ["Dave Madden"],
        "University of Oxford": ["Oxford", "Oxford University"],
        "George H. W. Bush": ["George Bush", "It was George H.W. Bush."],
        "George Bush": ["George W. Bush"],
        "River Seine": ["The Seine"],
        "Heathrow Airport": ["Heathrow"],
        "54 Mbit": ["54 Mbps"],
    },
    "Were Scott Derrickson and Ed Wood of the same nationality?": {
        "yes": ["They were of the same nationality."],
        "no": ["They were not of the same one."],
    },
    "Is France bigger than Spain?": {"yes": ["France is bigger."]},
    "Which king of France died in 1715?": {
        "Louis XIV": [
            *("It was Louis XIV.", "Louis 14", "King Louis XIV", "Louis the Fourteenth"),
            "The king who died was Louis XIV of France.",
        ],
    },
    "On what date were the attacks?": {
        "September 11, 2001": [
            *("On 11 September 2001.", "2001-09-11", "They were on September 11th, 2001, a Tuesday."),
        ],
    },
    "In what year were the attacks?": {"September 11, 2001": ["In 2001."]},
    "Which language?": {
        "C": ["It is written in C.", "C", "The language is C."],
        "C++": ["It is written in C++.", "C++"],
    },
    "Blood type?": {"O-": ["It is O-.", "O−"]},
    "How long is it?": {"5 m": ["500 cm", "5 metres", "It is 5 meters long.", "5m"]},
    "How much energy?": {"5 MJ": ["5,000 kJ", "5 megajoules", "It needs 5 MJ."]},
    "Which interval?": {"[0, 1)": ["[0,1)", "It is [0, 1)."]},
    "When was he killed?": {
        "44 BC": ["44 BCE", "44 B.C.", "In 44 BC.", "He was killed in 44 B.C.", "44 v. Chr.", "公元前44年"],
    },
    "When does it start?": {"5 pm": ["5 p.m.", "5:00 PM", "It starts at 5 p.m."]},
    "What was the verdict?": {"not guilty": ["He was found not guilty.", "Not guilty."]},
    "क्या है?": {"किताब": ["यह किताब है।", "किताब।"]},
    "Who ruled?": {"Elizabeth I": ["Queen Elizabeth I ruled.", "Elizabeth 1", "Elizabeth I of England"]},
    "What is the capital?": {
        "Paris": [
            *("Paris", "It is Paris, France.", "Paris (France)", "Paris, not Lyon.", "Not Lyon but Paris."),
            *("Paris rather than Lyon", "Paris, however, is also its largest city."),
            *("The capital is **Paris**.", "Paris. However, I may be mistaken, so please verify."),
            *("Paris, I think, but I'm not sure.", "Probably Paris; no guarantee."),
            *("Paris, if I remember correctly, but check it.", "Paris? I am fairly sure."),
            *("Paris – see the map.", "Paris, on the Seine, or as the Romans called it, Lutetia."),
            *("**Answer:** Paris", "Paris, the city of light, is the capital and Lyon is not."),
        ],
    },
    "Who wrote Emma?": {
        "Jane Austen": [
            *("Austen, Jane", "It was Jane Austen, the English novelist.", "Jane Austen (1775–1817)"),
            *("Austen", "Jane Austen wrote it, but she did not publish it under her own name."),
            *("It was Jane Austen, who never published it herself.", "Many believe it was Jane Austen."),
        ],
    },
    "Who wrote it?": {
        "J. R. R. Tolkien": ["J.R.R. Tolkien", "JRR Tolkien", "Tolkien", "It was by J.R.R. Tolkien."],
    },
    "What colour?": {"red": ["It is red.", "Red", "The colour is bright red."]},
    "Which version?": {"3.10": ["It is version 3.10.", "3.10"]},
    "What is the word?": {"año": ["It is año.", "año"]},
    "Quel est le mot?": {"Dvě.": ["Měl dvě děti."]},
    "Where?": {"São Paulo": ["Sao Paulo", "in Sao Paulo, Brazil"]},
    "Which?": {"Gerald Ford": ["Gerald R. Ford"]},
    "How fast?": {"100 km/h": ["100 km/h", "It does 100 km/h."]},
    "How much?": {
        "$5 million": ["5 million dollars", "$5,000,000", "It cost $5 million."],
        "$100": ["100 USD", "US$100"],
    },
    "What are the four?": {"India, China": ["1. **India**\n2. **China**"]},
    "Who did not sign?": {"Shakespeare": ["Shakespeare did not sign."]},
    "Wer schrieb Faust?": {"Goethe": ["Nicht Schiller, sondern Goethe."]},
    "What is 17 + 25?": {"42": ["43. Wait, it is 42."]},
    "What is x?": {"3": ["x = 3"], "3/4": ["The answer is \\boxed{\\frac{3}{4}}."]},
    "By how much?": {"20%": ["It rose by 20 percent."]},
    "Who beat whom in the final?": {"Italy beat France": ["France was beaten by Italy."]},
    "Name the colours of the lights from top to bottom.": {"red, amber, green": ["Red, amber, green"]},
    "Wie viele?": {"750 Millionen": ["750 Millionen Menschen"]},
    "Which are they?": {
        "Estonia, Latvia and Lithuania": ["They are Lithuania, Latvia, and Estonia."],
        "Spain and France": ["It borders France in the north and Spain in the south."],
        "China, India, USA, Indonesia": ["They are China, India, the United States, and Indonesia."],
        "Dom & Vincent": ["They were called Vince and Dom."],
        "Laius, King of Thebes, and his queen, Jocasta": ["Laius and Jocasta"],
        "Portland, Oregon": ["It is in Portland.", "It is in Oregon."],
    },
    "Who were they?": {
        "Justice Harlan": ["It was John Marshall Harlan."],
        "John Lennon and Paul McCartney": ["Lennon and McCartney wrote it."],
        "Wilbur and Orville Wright": ["The Wright brothers did."],
    },
    "What was the temperature?": {
        "-5": ["It was 5 degrees below zero.", "minus five", "It is negative five."],
        "-40 °C": ["It was minus 40 °C.", "minus 40 °C", "It was forty degrees Celsius below zero."],
    },
    "What is left?": {"4": ["10 minus 6 is 4."], "6": ["Ten minus 6 leaves 4."]},
    "In which year or decade was it built?": {
        "1980s": ["In the 1980s.", "It was the 1980's.", "It was built in the1980s1."],
        "1980": ["It was built in 1980, and the 1990s saw it grow."],
    },
    "How long does it take?": {"30 seconds": ["It takes 30s."]},
    "Which option is right?": {"B": ["B, not A.", "It is B, I think.", "B) Paris", "The answer is B."]},
    "Who was the winner?": {
        "John Smith": ["It was J. Smith.", "Jack Smith won."],
        "James Carter": ["It was Jimmy Carter."],
        "Michael Jackson": ["It was Mike Jackson."],
        "Thomas Müller": ["It was Thomas Mueller who won."],
    },
    "What are the coordinates?": {
        "40°N 74°W": ["It lies at 40° N, 74° W.", "40 degrees north and 74 degrees west", "40 N, 74 W"],
    },
    "Which release?": {"3.1.2": ["It is version 3.1.2."], "3.1": ["It is version 3.1."]},
    "In which year did it end?": {"1918": ["On 11.11.1918."]},
    "Which song was it?": {"Let It Be": ["It was let it be."]},
    "How many moons does Venus have?": {"0": ["It has none.", "None."], "none": ["0", "It has none."]},
    "Where was Marie Curie born?": {
        "Warsaw": [
            *("Warsaw. However, I may be mistaken, so please verify.", "Warsaw, but I could be wrong."),
            *("It was Warsaw, although I'm not 100% certain.", "Warsaw. Please double-check this."),
            *("Warsaw. I might be wrong, though.", "Warsaw, if I remember correctly."),
            "Warsaw, I think, but don't quote me on that.",
            "I believe she was born in Warsaw. But I'm not completely sure.",
            "Warsaw. However, my information may be outdated.",
            "She was born in Warsaw. Keep in mind that I may make mistakes.",
            *("Warsaw. But please check a reliable source.", "Warsaw. As an AI I can be wrong."),
            *("Probably Warsaw; no guarantee.", "Warsaw, but take this with a grain of salt."),
            *("Warsaw. However, I cannot confirm this.", "Warsaw. Note: I am not certain about it."),
            "Warsaw. Aber ich kann mich irren.",
            "Warsaw. I don't have access to current sources, so verify it.",
            *("Warsaw. I recommend consulting an encyclopedia.", "Warsaw. Sorry if this is wrong."),
            *("I'm not sure, but Warsaw.", "Warsaw? I am not sure.", "Warsaw, maybe."),
            *("My best guess is Warsaw.", "Warsaw. However, there is some uncertainty in the records."),
            *("Warsaw. It is possible that I am mistaken.", "Warsaw, unless I'm mistaken."),
        ],
    },
}
# Given, once what declines is taken out or units are compared.
CAVEATS = {
    "How fast?": {"100 km/h": ["100 kph"]},
    "Where was Marie Curie born?": {"Warsaw": ["Warsaw – though I can't verify this.", "Warsaw (not sure)."]},
}


def cases(table: dict[str, dict[str, list[str]]]) -> Any:
    """A test for each question and accepted answer."""
    rows = [
        (question, answer, texts) for question, answers in table.items() for answer, texts in answers.items()
    ]
    return pytest.mark.parametrize(("question", "answer", "texts"), rows)


@cases(WRONG)
def test_another_answer_is_wrong_in_either_form(question: str, answer: str, texts: list[str]) -> None:
    assert [text for text in texts if mentions(question, text, [answer]) is not None] == []
    for text in texts:
        labels = {grade(question, text, [answer]).label for grade in (SHORT, SENTENCE)}
        assert labels == {"incorrect"} or (text in SILENT and "correct" not in labels), text


@cases(RIGHT)
def test_the_answer_in_other_words_is_right(question: str, answer: str, texts: list[str]) -> None:
    assert [text for text in texts if mentions(question, text, ["Atlantis", answer]) != answer] == []
    assert [text for text in texts if SENTENCE(question, text, [answer]).label != "correct"] == []


@cases(CAVEATS)
def test_a_caveat_is_no_retraction(question: str, answer: str, texts: list[str]) -> None:
    assert [text for text in texts if SENTENCE(question, text, [answer]).label != "correct"] == []


# The same in another spelling, in either form of grading without a judge.
SPELT = {
    "How high is Mount Everest in metres?": {"8849": ["8849 metres"], "8,849 m": ["8849"]},
    "How high is Mount Everest?": {"8849 metres": ["8.849 km"]},
    "How many goals did he score?": {"12": ["12 goals", "He had 12 goals"]},
    "How many days are there in a week?": {"7": ["7 days"]},
    "How many dollars does she make per week?": {"18": ["$18", "18 dollars"]},
    "What is its top speed in miles per hour?": {"60": ["60 mph", "60 miles per hour"]},
    "What percentage of them voted?": {"62.5": ["62.5%"], "62.5%": ["62.5", "62.5 percent"]},
    "How old was he?": {"35": ["35 years", "35 years old", "aged 35"], "35 years": ["35"]},
    "How much did it cost?": {
        "$26.2 billion": ["$26.2B", "US$26.2 billion", "USD 26.2 billion", "26.2 billion dollars"],
        "£1.5 million": ["£1.5m"],
    },
    "How fast is it?": {"100 km/h": ["100 kilometres per hour"], "3e8 m/s": ["3 × 10^8 m/s"]},
    "How long is a football match?": {"90 minutes": ["90 min", "1.5 h"]},
    "How many people live there?": {"500,000": ["half a million"], "1 million": ["a million"]},
    "When was the Eiffel Tower opened?": {"31 March 1889": ["31/03/1889", "31.03.1889"]},
    "Who wrote Emma?": {"Jane Austen": ["Austen, Jane"]},
    "Which colours has the flag of France?": {"blue, white and red": ["red, white and blue"]},
}
# What may be another answer, and is left to a judge.
UNSURE = {
    "How high is Mount Everest?": {"8849": ["8849 metres"]},  # or feet
    "How many goals did he score?": {"12": ["12 assists", "twelfth", "at least 12"]},
    "How many days are there in a week?": {"7": ["7 weeks"]},
    "How many calories are in 100 grams of rice?": {"130": ["130 grams"]},
    "How many miles does he run per day?": {"10": ["10 days"]},
    "How many metres long is the second bridge?": {"330": ["330 seconds"]},
    "How many people have more than 5 children, or did not say?": {"12": ["more than 12", "not 12", "12 or"]},
    "How many cats are in the 3 houses?": {"4": ["4 houses"]},
    "How tall was it?": {"6'": ['6"']},
    "What are the roots?": {"(2,3)": ["2.3", "(2.3)", "23/10"], "1,2": ["6/5"]},
    "How many wives did he have?": {"2": ["second"]},
    "Who were the winner and the runner-up of 1994?": {"Brazil and Italy": ["Italy and Brazil"]},
    "Who finished first and second?": {"Brazil and Italy": ["Italy and Brazil"]},
    "Who won in 2014?": {"Germany": ["The losing team was Germany.", "The winner's opponent was Germany."]},
    "When was he born?": {"1950": ["The year he died was 1950."]},
    "When was it?": {"3 April 1889": ["03/04/1889"]},  # or the fourth of March
    "What was the score?": {"2, 3": ["3, 2"]},
    "Who wrote Emma?": {"Jane Austen": ["Austen Jane"]},  # as John Elton is not Elton John
    "Which colours has the flag of France?": {"blue, white and red": ["blue, white"]},
}


@cases(SPELT)
def test_one_answer_in_another_spelling_is_right_without_a_judge(
    question: str, answer: str, texts: list[str]
) -> None:
    grades = [grade(question, text, [answer]).label for text in texts for grade in (SHORT, SENTENCE)]
    assert {*grades} == {"correct"}


@cases(UNSURE)
def test_what_may_be_another_answer_is_left_to_a_judge(question: str, answer: str, texts: list[str]) -> None:
    assert [text for text in texts if SHORT(question, text, [answer]).label != "incorrect"] == []


def test_a_sentence_is_graded_by_rule_only_where_it_is_asked_for() -> None:
    text = "The capital of France has been Paris for centuries."
    assert SHORT(CAPITAL, text, ["Paris"]).label == "incorrect"
    grade = SENTENCE(CAPITAL, text, ["Paris"])
    assert (grade.label, grade.how) == ("correct", "rules")


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("I'm sorry, but I don't know.", "abstained"),
        ("I don't know for sure, but I believe it is the city of Paris.", "correct"),
        ("I don't know for sure, but I believe it is the city of Lyon.", "incorrect"),
        ("Lyon. " * 900, "incorrect"),
    ],
)
def test_the_classes_of_sentences(text: str, label: str) -> None:
    assert SENTENCE(CAPITAL, text, ["Paris"]).label == label


@pytest.mark.data
@pytest.mark.skipif(
    not os.environ.get("FACTRL_DATA"), reason="set FACTRL_DATA to a folder with the public data sets"
)
@pytest.mark.parametrize(("part", "least"), [("nq", 0.90), ("tq", 0.94)])
def test_against_human_judgement(part: str, least: float) -> None:
    # EVOUNA (Wang et al. 2023); measured 0.913 and 0.966, notebook/grading.md.
    path = Path(os.environ["FACTRL_DATA"]) / "evouna" / f"evouna_{part}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][::8]
    grade = Grader(form="sentence")
    same = [
        (grade(row["question"], row["prediction"], row["gold"]).label == "correct") == row["human_correct"]
        for row in rows
    ]
    assert sum(same) / len(same) >= least
