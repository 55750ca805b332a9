# Cost of drawing one token: build/$(MODE)/tests/bench/sampler_bench
SAMPLER_BENCH_ROOMS := engine text wire model base
$(OUT)/tests/bench/sampler_bench: tests/bench/sampler_bench.c $(call room_libs,$(SAMPLER_BENCH_ROOMS)) $(OUT)/flags/engine $(OUT)/flags/link
	@mkdir -p $(@D); echo "  bench $(@F)"
	@$(CC) $(FLG_engine) $< -o $@ $(LDFLAGS_ALL) -Wl,--as-needed $(call room_libs,$(SAMPLER_BENCH_ROOMS)) $(call pkg_libs,$(call link_pkgs,$(SAMPLER_BENCH_ROOMS))) -lm

.PHONY: bench-sampler
bench-sampler: $(OUT)/tests/bench/sampler_bench ## what drawing a token costs, by parameters and vocabulary
	@$<
bench-bins: $(OUT)/tests/bench/sampler_bench
