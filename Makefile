PYTHON ?= python3
VENV ?= .venv

# -qq leaves only errors.
INSTALL = -m pip install -qq -c constraints.txt
VERL = tests/training/verl.txt
TRL_oldest = trl==1.0.0
TRL_newest = trl transformers
OF_TRL = $(addprefix tests/training/test_,beside_trl.py frozen.py grpo.py search_episodes.py)
HOSTS = tests/hosts/requirements.txt
BESIDE = -q -n 3 --dist worksteal # on two cores: a third runs while one waits
PINS = pyproject.toml constraints.txt $(VERL)
# The programs that tests start compile factrl once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-core test-all test-slow test-hosts test-rows test-trl test-verl check docs wheel bench bench-verifier bench-grader bench-gpu clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo ## teach a small real model to say when it does not know (it counts the minutes down; two cores, 3 GB)
	$(VENV)/bin/factrl demo

test: $(VENV)/.dev ## every test but the slow ones
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest $(BESIDE) -m "not slow"

test-core: $(VENV)-core/.test ## the tests that need no torch, which are all that Python 3.10 runs
	OMP_NUM_THREADS=1 $(VENV)-core/bin/python -m pytest $(BESIDE) -m "not torch and not slow"

test-all: test test-core test-slow test-trl test-hosts test-rows ## every night and before a release

test-slow: $(VENV)/.dev ## what takes a minute and more: two processes, Ray, long searches
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest $(BESIDE) -m slow

test-hosts: $(VENV)-hosts/.test ## factrl's rewards in other people's programs: Inspect, verifiers, lm-eval, OpenEnv, MCP
	$(VENV)-hosts/bin/python -m pytest -q tests/hosts

test-rows: $(VENV)-core/.test ## each block of README's first screen in a new environment with the extra that it names (ten minutes, the models in the cache)
	FACTRL_ROWS=$(VENV)-rows $(VENV)-core/bin/python -m pytest -q tests/rows

test-trl: test-trl-oldest test-trl-newest ## the trainer with the oldest TRL that it takes, and with the newest one and the newest transformers of the registry

test-trl-%: $(VENV)/.dev
	rm -rf $(VENV)-trl/$*
	$(VENV)/bin/python -m pip install -qq --no-deps --target $(VENV)-trl/$* $(TRL_$*)
	OMP_NUM_THREADS=1 PYTHONPATH=$(VENV)-trl/$* $(VENV)/bin/python -m pytest -q -W default -m "not slow" $(OF_TRL)

test-verl: $(VENV)-verl/.test ## verl's trainer in the environment that factrl[verl] makes, on CPU cores
	OMP_NUM_THREADS=1 $(VENV)-verl/bin/python -m pytest -q -rs tests/training/test_verl_run.py

check: $(VENV)/.dev ## lint, formatting and types
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

docs: $(VENV)/.docs ## the documentation as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build

wheel: ## the wheel, in dist/; and a text checked with it in a new environment without extras
	rm -rf $(VENV)-wheel dist/factrl-*.whl
	$(PYTHON) -m venv $(VENV)-wheel
	$(VENV)-wheel/bin/python -m pip wheel -qq --no-deps -w dist .
	$(VENV)-wheel/bin/python $(INSTALL) dist/factrl-*.whl
	$(VENV)-wheel/bin/factrl --version
	echo "Marie Curie was born in Warsaw in 1867." > dist/curie.txt
	$(VENV)-wheel/bin/factrl verify "Marie Curie was born in Warsaw in 1868." --docs dist/curie.txt --no-cache

bench: $(VENV)/.dev ## how fast it is, beside its bounds and TRL, in ten minutes; then agreement with people (FACTRL_DATA)
	$(VENV)/bin/python benchmarks/speed.py
	$(VENV)/bin/python benchmarks/grader.py
	$(VENV)/bin/python benchmarks/claims.py local --set twenty

bench-verifier: $(VENV)/.dev ## how often each embedded judge agrees with people, and the same model by llama.cpp; 20 minutes (FACTRL_DATA)
	$(VENV)/bin/python benchmarks/verifier.py --per-set 44 --only weak,local,llama

bench-grader: $(VENV)/.dev ## the rule grader and the abstention detector against people (FACTRL_DATA)
	$(VENV)/bin/python benchmarks/grader.py

bench-gpu: $(VENV)/.dev ## a step of GRPO part by part on a GPU, with random weights (SHAPE=0.5b, 1.5b, 7b; OPTIONS=--vllm)
	$(VENV)/bin/python benchmarks/gpu/speed.py $(or $(SHAPE),0.5b) --json gpu-$(or $(SHAPE),0.5b).json $(OPTIONS)

clean: ## remove the environments and what tools left behind; runs stay
	rm -rf $(VENV) $(VENV)-core $(VENV)-hosts $(VENV)-rows $(VENV)-trl $(VENV)-verl $(VENV)-wheel build dist site .hypothesis .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -exec rm -rf {} +

# An environment is made when its stamp is missing and brought up to date when a pin has changed.  Torch goes
# in first and alone: a CPU build that pip's own settings offer is then kept, without CUDA's packages.
$(VENV)-core/.test: $(PINS)
	@echo "installing factrl[test] into $(VENV)-core"
	@$(PYTHON) -m venv $(VENV)-core
	@$(VENV)-core/bin/python $(INSTALL) -e ".[test]"
	@touch $@

$(VENV)/.demo $(VENV)/.dev: $(VENV)/.%: $(PINS)
	@echo "installing torch and factrl[$*] into $(VENV) (a few minutes the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python $(INSTALL) torch
	@$(VENV)/bin/python $(INSTALL) -e ".[$*]"
	@test $* != dev || $(VENV)/bin/python -m pip install -qq --no-deps -r $(VERL)
	@touch $@

# Their pins and ours exclude each other, so constraints.txt is not for them.
$(VENV)-hosts/.test: pyproject.toml $(HOSTS)
	@echo "installing factrl and $(HOSTS) into $(VENV)-hosts"
	@$(PYTHON) -m venv $(VENV)-hosts
	@$(VENV)-hosts/bin/python -m pip install -qq -e . -r $(HOSTS)
	@$(VENV)-hosts/bin/python -m pip install -qq --no-deps openenv==0.10.0
	@touch $@

# What a cluster gets, without what needs a GPU.
$(VENV)-verl/.test: pyproject.toml constraints-verl.txt
	@echo "installing factrl[verl] into $(VENV)-verl"
	@$(PYTHON) -m venv $(VENV)-verl
	@$(VENV)-verl/bin/python $(INSTALL) torch
	@grep -v -E '^(torch|torchvision|torchaudio|vllm)==' constraints-verl.txt > $(VENV)-verl/pins.txt
	@$(VENV)-verl/bin/python -m pip install -qq -c $(VENV)-verl/pins.txt -e ".[verl]" hypothesis pytest
	@touch $@

$(VENV)/.docs: $(PINS)
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(VENV)/bin/python $(INSTALL) -e ".[docs]"
	@touch $@
