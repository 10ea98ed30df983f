"""Evaluation, in the order of one question: `catalogue` has it, `ask` gets texts, `grade` makes each an
`EvalSample`, `numbers` sums them up with `metrics`; `folder` is that on disk, `paired` compares two, and
`report` shows them.
"""
