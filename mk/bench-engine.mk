# Speed of one engine: build/$(MODE)/tests/bench/engine_bench IMAGE [THREADS [KERNELS [STREAMS …]]]
ENGINE_BENCH_ROOMS := engine text wire model base
$(OUT)/tests/bench/engine_bench: tests/bench/engine_bench.c $(call room_libs,$(ENGINE_BENCH_ROOMS)) $(OUT)/flags/engine $(OUT)/flags/link
	@mkdir -p $(@D); echo "  bench $(@F)"
	@$(CC) $(FLG_engine) $< -o $@ $(LDFLAGS_ALL) -Wl,--as-needed $(call room_libs,$(ENGINE_BENCH_ROOMS)) $(call pkg_libs,$(call link_pkgs,$(ENGINE_BENCH_ROOMS))) -lm

# What families and block formats cost in exactness, as tables (docs/internals/families.md keeps one).
.PHONY: families-table
families-table: $(addprefix $(OUT)/tests/unit/engine_,families_test shards_test formats_test) ## errors of families and block formats
	@$(OUT)/tests/unit/engine_families_test 2>&1 | grep NMSE
	@$(OUT)/tests/unit/engine_shards_test 2>&1 | grep NMSE
	@$(OUT)/tests/unit/engine_formats_test 2>&1 | grep '^|'
