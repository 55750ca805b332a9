# ExaServe. `make help` lists the targets.
#
#   MODE=release|debug|asan|tsan|cov   which build: build/$(MODE)/bin, lib, obj, tests
#   BUILD=DIR                          where builds go (default: build)
MODE  ?= release
BUILD ?= build
OUT   := $(BUILD)/$(MODE)

.DEFAULT_GOAL := all
include mk/modes.mk
include mk/rooms.mk
include mk/rules.mk
include mk/tests.mk
include mk/tools.mk
-include mk/lint.mk $(wildcard mk/bench-*.mk) mk/tests-router.mk
