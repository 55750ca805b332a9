# Speed of one engine: `exaserve bench engine`, and the machine's read bandwidth for its roofline (tests/bench/llama.sh).
$(OUT)/tests/bench/bandwidth_bench: tests/bench/bandwidth_bench.c $(call room_libs,base) $(OUT)/flags/base $(OUT)/flags/link
	@mkdir -p $(@D); echo "  bench $(@F)"
	@$(CC) $(FLG_base) -O3 -march=native $< -o $@ $(LDFLAGS_ALL) $(call room_libs,base) $(call pkg_libs,$(PKG_base)) -lm
