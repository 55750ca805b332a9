# make lint: formatting, layers, file lengths, warnings as errors, scripts. Ends with one line that counts.
LINT_OBJS := $(foreach r,$(ROOMS),$(if $(SRC_$(r)),lib/lib$(r).a)) $(foreach p,$(PROGRAMS),$(if $(wildcard $(MAIN_$(p))),obj/$(MAIN_$(p):.c=.o)))

.PHONY: lint lint-build
# -k: name the warnings of every room at once. Builds of their own folder, so that flags do not change the others.
lint: ## formatting, layers, file lengths, warnings as errors, shell scripts
	@tests/tools/lint.sh $(MAKE) -k --no-print-directory -s MODE=release BUILD=$(BUILD)/lint CFLAGS=-Werror lint-build

lint-build: $(addprefix $(OUT)/,$(LINT_OBJS))
