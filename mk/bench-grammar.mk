# Cost of constrained output: build/$(MODE)/tests/bench/grammar_bench MODEL.gguf [STEPS]
GRAMMAR_BENCH_ROOMS := text model base
$(OUT)/tests/bench/grammar_bench: tests/bench/grammar_bench.c $(call room_libs,$(GRAMMAR_BENCH_ROOMS)) $(OUT)/flags/text $(OUT)/flags/link
	@mkdir -p $(@D); echo "  bench $(@F)"
	@$(CC) $(FLG_text) $< -o $@ $(LDFLAGS_ALL) -Wl,--as-needed $(call room_libs,$(GRAMMAR_BENCH_ROOMS)) $(call pkg_libs,$(call link_pkgs,$(GRAMMAR_BENCH_ROOMS))) -lm

bench-bins: $(OUT)/tests/bench/grammar_bench
