# make book   build the book and print the page to open
# make test   build it, run the unit tests, run every notebook and compare every output
# make test-browser   build it and open every page in Chromium: silent, whole, accessible, sliders and search alive
#
# make test-lens              the lens on all of its tiny models of transformers; make test takes a few
# make test-lowest            the library at the lowest versions it admits, in an environment of its own (Python 3.10)
# make test-gpu               scans and maps on a GPU, against the CPU (elsewhere they are skipped)
# make test-lab               the notebook edition in a real JupyterLab
# make text ONLY=chapters/1-one-operator/zoo.ipynb   that notebook as a text to edit, .text/1-one-operator/zoo.md
# make from-text              every text in .text/ run and written back, or ONLY=… one of them
# make course                 what students get, without solutions, and what instructors keep, in _build/course
# make edition SOLUTIONS=run  the plain notebooks whose solutions run, for the weekly tests
# make slides                 decks and handouts as PDF; they come with the book as pages
# make slides LENGTH=50       the decks as they are in 50 minutes; 75, 90, 1of2, 2of2
# make pdf                    the whole book on paper, printed by Chromium
# make paper                  the paper of the appendix alone, in two columns
# make version                dates the present version, whose notebooks then install its tag
# make version VERSION=0.2.0  the next version, wherever it is named
# make publish-as OWNER/REPO AUTHOR="First Last"   the book's address and author, wherever a file names them
# make lab                    the chapters in JupyterLab, with their boxes
PYTHON_CANDIDATES ?= python3 python3.14 python3.13 python3.12 python3.11 python3.10 python
PIP_FLAGS ?=
ONLY ?=
SOLUTIONS ?= text
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/installed.stamp
FRESH := _build/fresh.stamp
export OMP_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1

# JupyterLab, and what shows it MyST; both are heavy and of use to `make lab` alone.
LAB := jupyterlab==4.6.6 jupyterlab-myst==2.7.0
# Two notebooks of the edition are tested here; the weekly workflow runs all of them, as Colab would.
EDITION := _build/edition/chapters
TWO_OF_EDITION := $(EDITION)/1-one-operator/two-ways-to-mix.ipynb $(EDITION)/3-three-theorems/head-count.ipynb

# What depends most on the versions of torch and scipy; the weekly workflow runs all unit tests at them.
LOWEST_PYTHON ?= python3.10
LOWEST_TESTS := tests/heads tests/test_tour.py tests/systems tests/scans tests/maps tests/lens/test_lens_measures.py

TEXTS = $(wildcard .text/*.md .text/*/*.md)

.PHONY: book test test-browser test-lens test-lowest test-gpu test-lab notebooks text from-text edition course slides pdf paper version publish-as lab serve bench lint clean

# A page that failed is forgotten, so that a second call reads it again and fails again.
book: $(STAMP) $(FRESH)
	@echo "Building the book (about a minute) ..."
	@PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/jupyter-book build . -W -n --keep-going > _build.log 2>&1 \
	  || { cat _build.log; rm -rf _build; echo "The book did not build: the messages above show where."; exit 1; }
	@rm -f _build.log
	@$(PY) -m headsandstates.site.edition
	@echo "The book is built. Open file://$(CURDIR)/_build/html/chapters/preface.html"

test: book
	@status=0; \
	BOOK_MUST_BE_BUILT=1 $(PY) -m pytest tests -n 2 -q || status=1; \
	$(PY) -m pytest --nbval chapters $(TWO_OF_EDITION) -n 2 -q || status=1; \
	exit $$status

test-browser: book
	@$(PY) -m headsandstates.site.browser
	$(PY) -m pytest tests/browser -n 2 -q

test-lens: $(STAMP)
	LENS_FAMILIES=all $(PY) -m pytest tests/lens/test_lens_zoo.py -n 2 -q

test-lowest:
	@[ -x .venv-lowest/bin/python ] || $(LOWEST_PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) \
	  --constraint tests/packaging/lowest.txt -e ".[fast,lens]" pytest hypothesis control mpmath
	.venv-lowest/bin/python -m pytest -q $(LOWEST_TESTS)

test-gpu: $(STAMP)
	$(PY) -m pytest tests/scans/test_scans_gpu.py tests/maps/test_map_contract.py -k "gpu or device_are_kept" -q

test-lab: book
	@$(PY) -m headsandstates.site.browser
	@$(PY) -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) $(LAB)
	$(PY) -m pytest tests/jupyterlab -q

notebooks: $(STAMP)
	$(PY) -m headsandstates.site.notebooks execute $(ONLY)

text: $(STAMP)
	@$(PY) -m headsandstates.site.notebooks to-text $(ONLY)

from-text: $(STAMP)
	@[ -n "$(ONLY)$(TEXTS)" ] || { echo "There is no text in .text/: start with make text ONLY=chapters/….ipynb"; exit 1; }
	@$(PY) -m headsandstates.site.notebooks from-text $(or $(ONLY),$(TEXTS))

edition: book
	@[ "$(SOLUTIONS)" = text ] || $(PY) -m headsandstates.site.edition --solutions $(SOLUTIONS)

course: book
	@$(PY) -m headsandstates.site.course

slides: book
	@$(PY) -m headsandstates.site.lectures --pdf $(LENGTH)
	@echo "The lectures are in $(CURDIR)/_build/html/slides"

pdf: book
	@$(PY) -m headsandstates.site.paper

paper: book
	@$(PY) -m headsandstates.site.paper --article

version: $(STAMP)
	@$(PY) -m headsandstates.site.release $(VERSION)
	@$(PY) -m headsandstates.site.notebooks normalize > /dev/null

# make takes the address in `make publish-as OWNER/REPO` for a second goal, which needs nothing to be done.
ifeq ($(firstword $(MAKECMDGOALS)),publish-as)
$(word 2,$(MAKECMDGOALS)): ; @:
endif
# By the environment, so that the shell runs nothing of a name.
publish-as: export PUBLISHED_AUTHOR := $(value AUTHOR)
publish-as: $(STAMP)
	@$(PY) -m headsandstates.site.publish "$(word 2,$(MAKECMDGOALS))" "$$PUBLISHED_AUTHOR"

lab: $(STAMP)
	@$(PY) -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) $(LAB)
	$(PY) -m jupyterlab --ServerApp.root_dir=chapters

serve: book
	$(PY) -m http.server --bind 127.0.0.1 --directory _build/html 8000

bench: $(STAMP)
	@$(PY) -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -r benchmarks/requirements.txt
	$(PY) -m benchmarks

lint: $(STAMP)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

clean:
	rm -rf _build _build.log .pytest_cache .ruff_cache .hypothesis ssmbook.egg-info
	find ssmbook headsandstates tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

$(PY):
	@for python in $(PYTHON_CANDIDATES); do \
	  $$python -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || continue; \
	  $$python -c 'import ensurepip, venv' 2>/dev/null \
	    || { echo "$$python lacks the venv module: install it (Debian and Ubuntu: apt install python3-venv) and call make again."; exit 1; }; \
	  echo "Creating $(VENV) with $$python ..."; $$python -m venv $(VENV); exit $$?; \
	done; \
	echo "No Python 3.10 or newer found: install one, or name it with PYTHON_CANDIDATES=/path/to/python3."; exit 1

# Sphinx notices changed pages, not changed extensions, styles and scripts.
$(FRESH): $(wildcard headsandstates/site/*.py headsandstates/site/templates/* headsandstates/chapters/theorem_map/*.py \
  headsandstates/sliders.py headsandstates/lab/* ssmbook/display/*.* chapters/assets/*) _config.yml requirements.txt
	@rm -rf _build && mkdir _build && touch $@

$(STAMP): requirements.txt pyproject.toml | $(PY)
	@echo "Installing the book's packages into $(VENV) (a minute or more) ..."
	@$(PY) -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) -r requirements.txt
	@touch $(STAMP)
