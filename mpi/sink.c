/* sink.c - see sink.h. */
#include "mpi/sink.h"

#include "base/clock.h"

static void sink_work(void *ctx, void *job)
{
    struct segbuf *b = job;
    uint64_t from = clock_now_us();
    b->store_err = (struct err)ERR_INIT;
    b->store_code = image_writer_put(ctx, b->segment, b->data, b->at.n_bytes, &b->store_err);
    b->us = clock_now_us() - from;
}

static void sink_free(void *ctx)
{
    (void)ctx; /* the caller's */
}

int sink_start(struct lane **out, struct image_writer *writer, size_t capacity, struct err *e)
{
    struct lane_spec spec = {capacity, sink_work, sink_free, segbuf_free, writer};
    return lane_start(out, &spec, e);
}
