"""What is made before training: KLCF's dataset, fact-seeking prompts, and rows for other trainers.

`klcf` makes checklists and truthfulness rows from a model's own answers, `prompts` has a model write new
questions, `convert` hands rows to TRL, verl or OpenRLHF, and `contamination` keeps questions of an evaluation
set out of all of them.
"""
