# Programs that run under mpirun: the tool of t0200-bcast.t, and the broadcast bench.
MPI_TOOLS := $(OUT)/tests/tools/mpi_bcast_tool $(OUT)/tests/bench/bcast_bench
MPI_TOOL_ROOMS := mpi model base

define MPI_TOOL_RULES
$(OUT)/tests/$(1): tests/$(1).c tests/tools/mpi_pack.c tests/tools/mpi_pack.h $(call room_libs,$(MPI_TOOL_ROOMS)) $(wildcard mpi/*.h) $(OUT)/flags/mpi $(OUT)/flags/link
	@mkdir -p $$(@D); echo "  link  $$@"
	@$(CC) $$(FLG_mpi) $$< tests/tools/mpi_pack.c -o $$@ $(LDFLAGS_ALL) -Wl,--as-needed $(call room_libs,$(MPI_TOOL_ROOMS)) $$(call pkg_libs,$(call link_pkgs,$(MPI_TOOL_ROOMS))) -lm
endef
$(foreach t,tools/mpi_bcast_tool bench/bcast_bench,$(eval $(call MPI_TOOL_RULES,$(t))))

.PHONY: mpi-tools bench-mpi
mpi-tools: $(MPI_TOOLS)
bench-mpi: $(OUT)/tests/bench/bcast_bench  ## broadcast rate against a bare MPI_Bcast, and the start phases of a world
	@tests/bench/bcast_bench.sh $<
