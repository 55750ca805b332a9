# Tests. tests/unit/<room>_<name>_test.c links its room and the rooms that room uses.
UNIT_SRC := $(wildcard tests/unit/*_test.c)
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(OUT)/tests/unit/%)
unit_room = $(firstword $(subst _, ,$(notdir $(1))))
# rooms in link order (high layers first)
link_order = $(foreach r,cli ranks router engine slurm hdf5io mpi wire text model config base,$(filter $(r),$(1)))
unit_rooms = $(call link_order,$(call closure,$(call unit_room,$(1))))

define UNIT_RULES
$(OUT)/tests/unit/$(1): tests/unit/$(1).c $(call room_libs,$(call unit_rooms,$(1))) $(call extra_libs,$(call unit_rooms,$(1))) $(OUT)/flags/$(call unit_room,$(1)) $(OUT)/flags/link
	@mkdir -p $$(@D); echo "  test  $(1)"
	@$(CC) $$(FLG_$(call unit_room,$(1))) -MMD -MP $$< -o $$@ $(LDFLAGS_ALL) -Wl,--as-needed $(call room_libs,$(call unit_rooms,$(1))) $(call extra_libs,$(call unit_rooms,$(1))) $$(call pkg_libs,$(call link_pkgs,$(call unit_rooms,$(1))) cmocka jansson libpcre2-8) -lm
-include $(OUT)/tests/unit/$(1).d
endef
$(foreach t,$(notdir $(basename $(UNIT_SRC))),$(eval $(call UNIT_RULES,$(t))))

# --- fuzz: clang + libFuzzer for `make fuzz`; the corpora are replayed by `make check` with gcc + asan ---
FUZZ_SRC := $(wildcard tests/fuzz/*_fuzz.c)
FUZZ     := $(notdir $(basename $(FUZZ_SRC)))
FUZZ_SECONDS ?= 60
define FUZZ_RULES
FZROOMS_$(1) := $(call link_order,$(call closure,$(call unit_room,$(1))))
FZSRC_$(1) := $$(filter-out engine/cpu/set_%.c,$$(foreach r,$$(FZROOMS_$(1)),$$(SRC_$$(r))))
# one command compiles all: any header of its rooms counts
$(OUT)/fuzz/$(1): tests/fuzz/$(1).c $$(FZSRC_$(1)) $$(foreach r,$$(FZROOMS_$(1)),$$(wildcard $$(r)/*.h $$(r)/*/*.h)) $$(wildcard tests/tools/*.h) \
        $(call extra_libs,$(call unit_rooms,$(1))) $(OUT)/flags/$(call unit_room,$(1)) $(OUT)/flags/link
	@mkdir -p $$(@D); echo "  fuzz  $(1)"
	@$(CLANG) $$(FLG_$(call unit_room,$(1))) -Wno-everything -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined tests/fuzz/$(1).c $$(FZSRC_$(1)) -o $$@ $(call extra_libs,$(call unit_rooms,$(1))) $$(call pkg_libs,$(call link_pkgs,$(call unit_rooms,$(1))) jansson) -lm
$(OUT)/tests/fuzz/$(1): tests/fuzz/$(1).c tests/fuzz/replay.c $(wildcard tests/tools/*.h) $(call room_libs,$(call unit_rooms,$(1))) \
        $(call extra_libs,$(call unit_rooms,$(1))) $(OUT)/flags/$(call unit_room,$(1)) $(OUT)/flags/link
	@mkdir -p $$(@D)
	@$(CC) $$(FLG_$(call unit_room,$(1))) tests/fuzz/$(1).c tests/fuzz/replay.c -o $$@ $(LDFLAGS_ALL) -Wl,--as-needed $(call room_libs,$(call unit_rooms,$(1))) $(call extra_libs,$(call unit_rooms,$(1))) $$(call pkg_libs,$(call link_pkgs,$(call unit_rooms,$(1))) jansson) -lm
endef
$(foreach t,$(FUZZ),$(eval $(call FUZZ_RULES,$(t))))

.PHONY: unit-bins fuzz fuzz-bins
unit-bins: $(UNIT_BIN) $(if $(filter asan,$(MODE)),$(FUZZ:%=$(OUT)/tests/fuzz/%))
fuzz-bins: $(FUZZ:%=$(OUT)/fuzz/%)
