# make demo      install, certify a real problem, show its plan
# make test      everything but the tests that take minutes or gigabytes
# make test-all  everything
# make lint      style and types only
# make wheel     build the distribution files into dist/
# make clean     remove all that make made

.POSIX:

VENV  = .venv
BIN   = $(VENV)/bin
STAMP = $(VENV)/.installed

PROBLEM = llama2-7b@h100-64

all: test

# The environment is made anew only when pyproject.toml changes.
$(STAMP): pyproject.toml
	@found=; \
	for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	    if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        found=$$name; break; \
	    fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo "nest-opt needs Python 3.11 or newer; no such python3 is on the PATH" >&2; exit 1; \
	fi; \
	"$$found" -m venv $(VENV) || { \
	    rm -rf $(VENV); \
	    echo "$$found cannot create virtual environments; install its venv module" >&2; exit 1; \
	}
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $(STAMP)

install: $(STAMP)

demo: $(STAMP)
	@mkdir -p build
	$(BIN)/nest-opt certify $(PROBLEM) --out build/certificate.json
	$(BIN)/nest-opt verify build/certificate.json

test: $(STAMP)
	$(BIN)/python -m pytest -n auto -m "not heavy"

test-all: $(STAMP)
	$(BIN)/python -m pytest -n auto

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/mypy

wheel: $(STAMP)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: all install demo test test-all lint wheel clean
