"""Models that run in this process, without a server and without a key.

`llama` runs quantised language models (llama.cpp), and `nli` scores premise and hypothesis with a
cross-encoder.  Nothing heavy is imported before a model is made, and models
are named as in `factrl.llm.models`.
"""
