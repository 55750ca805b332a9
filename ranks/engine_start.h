/* engine_start.h - the command line and the descriptors of an engine process, and its start through the stub (engine/launch.h).
 * Loop thread only: the engine dies with the thread that spawned it.
 */
#ifndef EXA_RANKS_ENGINE_START_H
#define EXA_RANKS_ENGINE_START_H

#include "base/err.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <uv.h>

enum { ENGINE_MAX_FDS = 16 };

struct engine_start {
    const char *engine_path; /* exaserve-engine */
    const char *image_path;
    const struct msg_assign *assign;
    uint32_t n_threads;
    uint32_t node_index, node_count; /* among the engines of this node; 0 of 0: unknown */
    uint64_t gang;                   /* of several shards: their start's number (ranks/shard.h) */
    bool
        shared_segment; /* the shards talk through the memory at CHANNEL_FD_SHARDS, not through a channel there */
    const int *fds; /* [n_fds] for the engine, from CHANNEL_FD_COMMANDS on */
    int n_fds;
    uv_exit_cb on_exit;
};

/* p is initialised also on failure: close it either way. ERR_SYS: it cannot be started (why). */
int engine_start(uv_loop_t *loop, uv_process_t *p, const struct engine_start *o, struct err *e);

#endif
