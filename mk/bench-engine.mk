# Speed of one engine: `exaserve bench engine`, and the machine's read bandwidth for its roofline (tests/bench/llama.sh).
$(OUT)/tests/bench/bandwidth_bench: tests/bench/bandwidth_bench.c $(call room_libs,base) $(OUT)/flags/base $(OUT)/flags/link
	@mkdir -p $(@D); echo "  bench $(@F)"
	@$(CC) $(FLG_base) -O3 -march=native $< -o $@ $(LDFLAGS_ALL) $(call room_libs,base) $(call pkg_libs,$(PKG_base)) -lm

# What families and block formats cost in exactness, as tables (docs/internals/families.md keeps one).
.PHONY: families-table
families-table: $(addprefix $(OUT)/tests/unit/engine_,families_test shards_test formats_test) ## errors of families and block formats
	@$(OUT)/tests/unit/engine_families_test 2>&1 | grep NMSE
	@$(OUT)/tests/unit/engine_shards_test 2>&1 | grep NMSE
	@$(OUT)/tests/unit/engine_formats_test 2>&1 | grep '^|'
