# Speed of tokenizing: build/$(MODE)/tests/bench/tokenizer_bench FOLDER TEXT; tests/bench/tokenizer.sh runs it beside the reference.
TEXT_BENCH_ROOMS := text model base
$(OUT)/tests/bench/tokenizer_bench: tests/bench/tokenizer_bench.c $(call room_libs,$(TEXT_BENCH_ROOMS)) $(OUT)/flags/text $(OUT)/flags/link
	@mkdir -p $(@D); echo "  bench $(@F)"
	@$(CC) $(FLG_text) $< -o $@ $(LDFLAGS_ALL) -Wl,--as-needed $(call room_libs,$(TEXT_BENCH_ROOMS)) $(call pkg_libs,$(call link_pkgs,$(TEXT_BENCH_ROOMS))) -lm
bench-bins: $(OUT)/tests/bench/tokenizer_bench
