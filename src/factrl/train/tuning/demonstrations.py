"""The 2-shot prompt that samples for SFT and DPO are asked for with in "Learning to Reason for Factuality".

arXiv:2508.05618, Figures 7 and 8: the model thinks first about what it knows, with care for dates, names
and numbers, checks again and leaves out what it is unsure of, and then, where the request seeks facts,
answers with as many specific details as possible; the two worked examples are a historical event and a
cave.  The words and the two subjects are ours.  The model is trained with the prompt of `[data]` alone.
"""

from __future__ import annotations

ELICITED = ("sft-seed", "margin-length")
"""The method and the rule whose samples are asked for with `TWO_SHOT`."""

TWO_SHOT = """\
Respond to the last request below, in the form of the two examples. First think between <think> and \
</think>: go through what you know about the subject, with special care for dates, names and numbers; \
then check each of them again, correct what does not fit together, and leave out what you are unsure of. \
Then write your response between <answer> and </answer>: where the request seeks facts, with as many \
specific details as possible, all of them from what your thinking has kept.

Request: What happened in the Great Fire of London?

<think>The Great Fire of London was in 1666, in September. It began on a Sunday, early in the morning of \
2 September, in the bakery of Thomas Farriner in Pudding Lane. The summer had been dry, the houses were \
mostly of timber and close together, and a strong wind from the east drove the fire on. The Lord Mayor \
was Sir Thomas Bloodworth, who hesitated to have houses pulled down as firebreaks. Samuel Pepys wrote of \
it in his diary and carried the news to King Charles II. How much burnt: about 13,200 houses, 87 parish \
churches and the old St Paul's Cathedral.
Let me check. 1666 fits: it was the year after the Great Plague of 1665. Was 2 September a Sunday? Yes, \
by the calendar that England then used, and Pepys calls it the Lord's day. Did it burn three days or \
five? It began on the Sunday and was mostly out by the Thursday; I will say that it was largely under \
control by 5 and 6 September. The deaths: only a handful were recorded, and what the true number was is \
disputed, so I will give no number. The Monument near Pudding Lane commemorates it; it was built from \
1671 to 1677, by Christopher Wren and Robert Hooke, and is 202 feet high. I am unsure what the damage \
was in pounds, so I leave that out.</think>
<answer>The Great Fire of London began early on Sunday, 2 September 1666, in Thomas Farriner's bakery in \
Pudding Lane. After a dry summer, a strong east wind carried it through closely built timber houses. The \
Lord Mayor, Sir Thomas Bloodworth, hesitated to have houses pulled down as firebreaks; Samuel Pepys, \
whose diary describes the fire, brought the news to King Charles II. It was largely under control by 5 \
and 6 September. It had destroyed about 13,200 houses, 87 parish churches and the old St Paul's \
Cathedral. Few deaths were recorded, and their true number is disputed. The Monument, 202 feet high, was \
built from 1671 to 1677 to designs by Christopher Wren and Robert Hooke to commemorate the \
fire.</answer>

Request: Tell me about Mammoth Cave.

<think>Mammoth Cave is in Kentucky in the United States, in Mammoth Cave National Park, along the Green \
River. It is the longest known cave system in the world, with more than 400 miles of surveyed passages. \
It formed in limestone. The national park was established in 1941 and became a UNESCO World Heritage \
Site in 1981. Stephen Bishop, an enslaved guide, explored it from 1838 on and drew a map of it. The \
Flint Ridge system was found to be connected with it in 1972.
Let me check. The length: the figure grows with each survey, so "more than 400 miles" is safe, about 640 \
kilometres; 400 times 1.609 is 644, so "more than 640" holds. The World Heritage year: 1981 it is; 1990 \
is when it became a biosphere reserve, which I must not mix up. Bishop came to the cave in 1838 and was \
the first known to cross the Bottomless Pit; his map appeared in the 1840s, and as I am unsure of the \
very year I will say no more. The connection with Flint Ridge: 9 September 1972, by a party of the Cave \
Research Foundation. I am unsure how many people visit each year, so I leave that out.</think>
<answer>Mammoth Cave, in Mammoth Cave National Park in Kentucky, is the longest known cave system in the \
world: more than 400 miles (640 km) of its passages have been surveyed. It formed in limestone along the \
Green River. Stephen Bishop, an enslaved man who guided visitors there from 1838 on, was the first \
person known to cross its Bottomless Pit and drew a map of the cave that appeared in the 1840s. On 9 \
September 1972 a party of the Cave Research Foundation found the connection between it and the Flint \
Ridge cave system. The national park was established in 1941; it became a UNESCO World Heritage Site in \
1981 and a biosphere reserve in 1990.</answer>

Request: {question}"""
