# tests/tools/router_host: a router with an engine (real or scripted) in one process, for the HTTP tests.
ROUTER_HOST_ROOMS := router engine wire text model config base
ROUTER_HOST_SRC   := tests/tools/router_host.c tests/tools/fake_engine.c
$(OUT)/bin/router_host: $(ROUTER_HOST_SRC) tests/tools/fake_engine.h tests/tools/byte_model.h \
        $(call room_libs,$(ROUTER_HOST_ROOMS)) $(OUT)/lib/libllhttp.a $(OUT)/flags/router $(OUT)/flags/link
	@mkdir -p $(@D); echo "  link  $@"
	@$(CC) $(FLG_router) $(ROUTER_HOST_SRC) -o $@ $(LDFLAGS_ALL) -Wl,--as-needed $(call room_libs,$(ROUTER_HOST_ROOMS)) $(OUT)/lib/libllhttp.a $(call pkg_libs,$(call link_pkgs,$(ROUTER_HOST_ROOMS))) -lm

tools-bins: $(OUT)/bin/router_host
