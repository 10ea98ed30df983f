"""Signs of reward hacking while a policy trains: what is counted in each step, and when that is an alarm.

`signals` turns the completions of a step into numbers, which are logged beside the others (docs/metrics.md);
`Watch` looks at their course and raises alarms; `HeldOut` compares the reward with the truth on held-out
questions.  None of them changes a reward: an alarm says where to look, and a person decides.

The names and limits are this project's own; that proxy against truth on a held-out slice is the one signal
that holds up, and the others say what the policy may be doing, is what its stress test and the practice of
others suggest (docs/stress.md).
"""

from __future__ import annotations

from factrl.train.signals.alarms import append_alarms, open_watch, read_alarms
from factrl.train.signals.held_out import HeldOut
from factrl.train.signals.step import Sample, Signals, signals
from factrl.train.signals.watch import RULES, Alarm, Rule, Watch

__all__ = [
    "RULES",
    "Alarm",
    "HeldOut",
    "Rule",
    "Sample",
    "Signals",
    "Watch",
    "append_alarms",
    "open_watch",
    "read_alarms",
    "signals",
]
