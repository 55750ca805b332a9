# How a room becomes build/$(MODE)/lib/lib<room>.a, and rooms become programs.
#
# Flags are part of the prerequisites: each room has a stamp that changes when its command line does, and one stamp stands
# for what is linked with what.
stamp = mkdir -p $(@D); echo '$(1)' | cmp -s - $@ || echo '$(1)' > $@

# --- one room -------------------------------------------------------------------------------------------
room_sources = $(filter-out $(foreach p,$(PROGRAMS),$(MAIN_$(p))),$(wildcard $(1)/*.c $(1)/*/*.c))
closure = $(sort $(1) $(foreach r,$(USES_$(1)),$(r) $(USES_$(r))))
room_pkgs = $(sort $(foreach r,$(1) $(USES_$(1)),$(PKG_$(r))))
pkg_cflags = $(if $(strip $(1)),$(shell pkg-config --cflags $(1)))
pkg_libs = $(if $(strip $(1)),$(shell pkg-config --libs $(1)))

# llhttp: Debian ships its C sources (node-llhttp), no library. Its loose machine takes any two bytes for a chunk's end.
LLHTTP_SRC     ?= /usr/share/llhttp
LLHTTP_INCLUDE ?= /usr/share/include/llhttp
LLHTTP_INC := -isystem $(LLHTTP_INCLUDE) -DLLHTTP_STRICT_MODE=1
CPPFLAGS_router := $(LLHTTP_INC)
# Kernel sets: one file suffix each; run-time dispatch picks.
CFLAGS_engine := -O3
CFLAGS_model := -O3
ISA_avx2    := -mavx2 -mfma -mf16c
ISA_avxvnni := $(ISA_avx2) -mavxvnni
ISA_avx512  := $(ISA_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni
ISA_amx     := $(ISA_avx512)
ISA_amxemu  := $(ISA_avx512)
ISA_amxbf16 := $(ISA_avx512)
ISA_amxbf16emu := $(ISA_avx512)
isa_flags = $(foreach i,avx2 avxvnni avx512 amx amxemu amxbf16 amxbf16emu,$(if $(filter %/set_$(i).c,$(1)),$(ISA_$(i))))

define ROOM_RULES
SRC_$(1) := $(call room_sources,$(1))
OBJ_$(1) := $$(SRC_$(1):%.c=$(OUT)/obj/%.o)
FLG_$(1) := $(CPPFLAGS_ALL) $(CPPFLAGS_$(1)) $(call pkg_cflags,$(call room_pkgs,$(1))) $(CFLAGS_ALL) $(CFLAGS_$(1))
$(OUT)/flags/$(1): FORCE
	@$$(call stamp,$(CC) $$(FLG_$(1)) $$(foreach s,$$(SRC_$(1)),$$(call isa_flags,$$(s))))
$(OUT)/obj/$(1)/%.o: $(1)/%.c $(OUT)/flags/$(1)
	@mkdir -p $$(@D); echo "  cc    $$<"
	@$(CC) $$(FLG_$(1)) $$(call isa_flags,$$<) -MMD -MP -c $$< -o $$@
$(OUT)/lib/lib$(1).a: $$(OBJ_$(1)) $(OUT)/flags/objs-$(1)
	@mkdir -p $$(@D); rm -f $$@; $(AR) rcs $$@ $$(OBJ_$(1))
$(OUT)/flags/objs-$(1): FORCE
	@$$(call stamp,$$(OBJ_$(1)))
-include $$(OBJ_$(1):.o=.d)
endef
$(foreach r,$(ROOMS),$(eval $(call ROOM_RULES,$(r))))

$(OUT)/lib/libllhttp.a: $(wildcard $(LLHTTP_SRC)/*.c) $(OUT)/flags/router
	@mkdir -p $(OUT)/obj/llhttp $(@D)
	@for f in api http llhttp; do $(CC) -O2 -fPIC $(FLAGS_$(MODE)) $(LLHTTP_INC) -c $(LLHTTP_SRC)/$$f.c -o $(OUT)/obj/llhttp/$$f.o || exit 1; done
	@rm -f $@; $(AR) rcs $@ $(OUT)/obj/llhttp/*.o

# --- programs -------------------------------------------------------------------------------------------
# Archives may name each other within a layer order, so one pass in that order is enough.
room_libs = $(foreach r,$(1),$(OUT)/lib/lib$(r).a)
extra_libs = $(if $(filter router,$(1)),$(OUT)/lib/libllhttp.a)
link_pkgs = $(sort $(foreach r,$(1),$(PKG_$(r))))

define PROGRAM_RULES
$(OUT)/bin/$(1): $(OUT)/obj/$(MAIN_$(1):.c=.o) $(call room_libs,$(ROOMS_$(1))) $(call extra_libs,$(ROOMS_$(1))) $(OUT)/flags/link
	@mkdir -p $$(@D); echo "  link  $$@"
	@$(CC) $(LDFLAGS_ALL) -Wl,--as-needed -o $$@ $$< $(call room_libs,$(ROOMS_$(1))) $(call extra_libs,$(ROOMS_$(1))) $$(call pkg_libs,$(call link_pkgs,$(ROOMS_$(1)))) -lm
-include $(OUT)/obj/$(MAIN_$(1):.c=.d)
endef
$(foreach p,$(PROGRAMS),$(eval $(call PROGRAM_RULES,$(p))))

$(OUT)/flags/link: FORCE
	@$(call stamp,$(LDFLAGS_ALL) $(foreach p,$(PROGRAMS),$(ROOMS_$(p)) /) $(foreach r,$(ROOMS),$(USES_$(r)) - $(PKG_$(r)) /))

.PHONY: all FORCE
FORCE:
all: $(foreach p,$(PROGRAMS),$(OUT)/bin/$(p))  ## build the three programs into build/$(MODE)/bin
