/* serve.h - one replica's life in an engine process: attach the channel, load, warm up, say READY, then steps until told to stop.
 *
 *   state      event                                     next       action
 *   loading    engine made                               warming    -
 *   warming    a real short completion came out          serving    send ENGINE_READY
 *   serving    SUBMIT, CANCEL                            serving    hand to the engine; a refused one is answered
 *   serving    ENGINE_STOP or SIGTERM                    draining   refuse new requests, finish the running ones
 *   draining   nothing active, or its deadline           ended      exit 0
 *   any        an error that ends the engine             ended      send ENGINE_FAILED, exit non-zero
 */
#ifndef EXA_ENGINE_SERVE_H
#define EXA_ENGINE_SERVE_H

#include "base/err.h"
#include "engine/shards.h"

#include <signal.h>
#include <stdint.h>

struct serve_options {
    const char *kind, *image, *kernels; /* kernels NULL: the best */
    uint32_t deployment, replica;
    uint64_t epoch;
    uint32_t n_ctx, n_slots, n_threads, chunk;
    const char *settings;            /* engine/settings.h; NULL: none */
    uint32_t node_index, node_count; /* as in engine_config */
    struct shards_config
        shards; /* shards but the first are handed steps, not requests: they are READY once loaded */
};

/* Returns when the engine's life is over; stop becomes 1 by a signal handler. */
int serve_run(const struct serve_options *o, const volatile sig_atomic_t *stop, struct err *e);

#endif
