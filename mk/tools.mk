# What people type: make help.
PREFIX  ?= /usr/local/exaserve
JOBS    ?= $(shell nproc)
MODEL   := $(BUILD)/model/SmolLM2-135M-Instruct.Q4_1.gguf
VENV    := $(BUILD)/venv

.PHONY: help deps model venv demo check check-bins bench install clean
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | sort | awk -F'\t' '{printf "  make %-10s %s\n", $$1, $$2}'
	@echo "  MODE=release|debug|asan|tsan|cov picks the build (default release), BUILD=DIR its folder (default build)"

deps:  ## install the packages of mk/packages.txt (root), or print what a site without root must load
	@mk/deps.sh mk/packages.txt

$(MODEL): tests/tools/get_model.sh
	@tests/tools/get_model.sh $(@D) >/dev/null && touch $@
model: $(MODEL)  ## fetch the real model (SmolLM2-135M, 98 MB) into build/model
	@:

$(VENV)/.done: tests/tools/requirements.txt
	@echo "  venv  $(VENV)"; python3 -m venv $(VENV) && $(VENV)/bin/pip install -q --disable-pip-version-check -r $< && touch $@
venv: $(VENV)/.done  ## Python clients that the tests talk with, in build/venv
	@:

.PHONY: templates
templates:  ## fetch published chat templates (2.5 MB) into build/templates, for the test against Jinja2
	@tests/tools/get_templates.sh $(BUILD)/templates || echo "templates: not to be had; the test with them is skipped" >&2

# deps first, in a make of its own: pkg-config is asked when a makefile is read.
demo:  ## a real model answers through a real Slurm allocation on this machine (root; installs what it needs)
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=release all model
	@tests/cluster/demo.sh $(BUILD)

check:  ## every test, under prove (root; installs what it needs)
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory -j$(JOBS) check-bins model venv templates
	@tests/tools/check.sh $(BUILD)

tools-bins: mpi-tools
.PHONY: tools-bins bench-bins
bench-bins: all $(OUT)/tests/bench/bandwidth_bench $(OUT)/tests/bench/bcast_bench

check-bins:  ## build what check runs, in release, asan and tsan
	@$(MAKE) --no-print-directory MODE=release all unit-bins tools-bins
	@$(MAKE) --no-print-directory MODE=asan all unit-bins tools-bins
	@$(MAKE) --no-print-directory MODE=tsan all unit-bins tools-bins

fuzz: fuzz-bins  ## run each fuzz target for FUZZ_SECONDS (default 60)
	@for t in $(FUZZ); do echo "  fuzz  $$t ($(FUZZ_SECONDS) s)"; mkdir -p $(BUILD)/fuzz-work/$$t; \
	  UBSAN_OPTIONS=print_stacktrace=1 $(OUT)/fuzz/$$t -max_total_time=$(FUZZ_SECONDS) -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
	    -print_final_stats=1 -artifact_prefix=$(BUILD)/fuzz-work/ $(BUILD)/fuzz-work/$$t tests/fuzz/corpus/$${t%_fuzz} \
	    >$(BUILD)/fuzz-work/$$t.log 2>&1 || { tail -30 $(BUILD)/fuzz-work/$$t.log; exit 1; }; \
	  grep -E 'number_of_executed_units|new_units_added' $(BUILD)/fuzz-work/$$t.log | sed 's/^/        /'; done

bench:  ## figures: starts (STARTS=200), broadcast, tokens/s (never part of check)
	@$(MAKE) --no-print-directory -j$(JOBS) MODE=release all model venv bench-bins
	@tests/bench/run.sh $(BUILD)

install: all  ## copy programs, job scripts and documents to PREFIX (default /usr/local/exaserve)
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/jobs $(DESTDIR)$(PREFIX)/docs
	install -m 755 $(foreach p,$(PROGRAMS),$(OUT)/bin/$(p)) $(DESTDIR)$(PREFIX)/bin
	install -m 644 jobs/*.sbatch jobs/*.yaml $(DESTDIR)$(PREFIX)/jobs
	install -m 644 README.md LICENSE $(DESTDIR)$(PREFIX)
	install -m 644 docs/*.md $(DESTDIR)$(PREFIX)/docs

clean:  ## remove all builds (the fetched model, Python clients and fuzz findings stay)
	rm -rf $(foreach m,release debug asan tsan cov lint check test-cache bench-cache bench-run,$(BUILD)/$(m))
