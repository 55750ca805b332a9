/* msg_work.c - see msg.h: assignments, service state, models and weights. */
#include "wire/msg.h"

#include "wire/msg_limits.h"
#include "wire/msg_read.h"

_Static_assert(SERVICE_STARTING == 1 && SERVICE_STOPPED == 6, "frozen by PROTOCOL.md");

const char *service_state_name(int state)
{
    static const char *const NAMES[] = {"STARTING", "DEGRADED", "READY",
                                        "DRAINING", "FAILED",   "STOPPED"};
    return state >= SERVICE_STARTING && state <= SERVICE_STOPPED ? NAMES[state - 1] : "UNKNOWN";
}

void msg_assign_put(struct buf *b, const struct msg_assign *m)
{
    buf_u32(b, m->deployment);
    buf_u32(b, m->version);
    buf_u32(b, m->replica);
    buf_u64(b, m->epoch);
    buf_u32(b, m->shard);
    buf_u32(b, m->n_shards);
    buf_u32(b, m->tp);
    buf_put(b, m->digest, sizeof m->digest);
    msg_put_str(b, m->engine, sizeof m->engine);
    buf_u32(b, m->n_ctx);
    buf_u32(b, m->n_slots);
    buf_u32(b, m->n_threads);
    msg_put_str(b, m->settings, sizeof m->settings);
    msg_put_array(b, m->peers, m->n_peers, MSG_MAX_MEMBERS, 4);
}

int msg_assign_get(struct msg_assign *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("ASSIGN or UNASSIGN", rd_make(p, n));
    m->deployment = msg_rd_u32(&r, "deployment");
    m->version = msg_rd_u32(&r, "version");
    m->replica = msg_rd_u32(&r, "replica");
    m->epoch = msg_rd_u64(&r, "epoch");
    m->shard = msg_rd_u32(&r, "shard");
    m->n_shards = msg_rd_u32(&r, "n_shards");
    if (m->n_shards ? m->shard >= m->n_shards : m->shard != 0) /* UNASSIGN may leave both 0 */
        msg_rd_fail(&r, "shard");
    m->tp = msg_rd_u32(&r, "tp");
    if (m->tp && (!m->n_shards || m->n_shards % m->tp))
        msg_rd_fail(&r, "tp");
    msg_rd_digest(&r, m->digest, "digest");
    msg_rd_str(&r, m->engine, sizeof m->engine, "engine");
    m->n_ctx = msg_rd_u32(&r, "n_ctx");
    m->n_slots = msg_rd_u32(&r, "n_slots");
    m->n_threads = msg_rd_u32(&r, "n_threads");
    msg_rd_str(&r, m->settings, sizeof m->settings, "settings");
    m->peers = msg_rd_array(&r, &m->n_peers, MSG_MAX_MEMBERS, 4, "peers");
    if (m->n_shards > 1 ? m->n_peers != m->n_shards : m->n_peers > 1)
        msg_rd_fail(&r, "peers");
    return msg_rd_end(&r, e);
}

void msg_service_put(struct buf *b, const struct msg_service *m)
{
    buf_u8(b, m->state);
    buf_u64(b, m->job_end_wall_s);
    buf_u32(b, m->n_ready);
    buf_u32(b, m->n_wanted);
    buf_u32(b, m->n_min);
    msg_put_str(b, m->progress, sizeof m->progress);
}

int msg_service_get(struct msg_service *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("SERVICE", rd_make(p, n));
    m->state = msg_rd_enum(&r, SERVICE_STARTING, SERVICE_STOPPED, "state");
    m->job_end_wall_s = msg_rd_u64(&r, "job_end_wall_s");
    m->n_ready = msg_rd_u32(&r, "n_ready");
    m->n_wanted = msg_rd_u32(&r, "n_wanted");
    m->n_min = msg_rd_u32(&r, "n_min");
    msg_rd_str(&r, m->progress, sizeof m->progress, "progress");
    return msg_rd_end(&r, e);
}

void msg_model_put(struct buf *b, const struct msg_model *m)
{
    buf_u32(b, m->deployment);
    buf_u32(b, m->version);
    msg_put_str(b, m->name, sizeof m->name);
    buf_u32(b, m->n_ctx);
    msg_put_array(b, m->index, m->index_bytes, MAX_INDEX_BYTES, 1);
    msg_put_array(b, m->meta, m->meta_bytes, MAX_META_BYTES, 1);
}

int msg_model_get(struct msg_model *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("MODEL", rd_make(p, n));
    m->deployment = msg_rd_u32(&r, "deployment");
    m->version = msg_rd_u32(&r, "version");
    msg_rd_str(&r, m->name, sizeof m->name, "name");
    m->n_ctx = msg_rd_u32(&r, "n_ctx");
    m->index = msg_rd_array(&r, &m->index_bytes, MAX_INDEX_BYTES, 1, "index");
    m->meta = msg_rd_array(&r, &m->meta_bytes, MAX_META_BYTES, 1, "meta");
    return msg_rd_end(&r, e);
}

/* --- weights --------------------------------------------------------------------------------------------- */
void msg_have_put(struct buf *b, const struct msg_have *m)
{
    buf_u32(b, m->member);
    buf_u32(b, m->round);
    buf_put(b, m->digest, sizeof m->digest);
    buf_u32(b, (uint32_t)m->code);
    msg_put_str(b, m->text, sizeof m->text);
    msg_put_bits(b, m->bits, m->n_segments, MAX_SEGMENTS);
}

int msg_have_get(struct msg_have *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("HAVE", rd_make(p, n));
    m->member = msg_rd_u32(&r, "member");
    m->round = msg_rd_u32(&r, "round");
    msg_rd_digest(&r, m->digest, "digest");
    m->code = (int32_t)msg_rd_u32(&r, "code");
    msg_rd_str(&r, m->text, sizeof m->text, "text");
    m->bits = msg_rd_bits(&r, &m->n_segments, MAX_SEGMENTS, "bits");
    return msg_rd_end(&r, e);
}

void msg_round_put(struct buf *b, const struct msg_round *m)
{
    buf_u32(b, m->round);
    buf_put(b, m->digest, sizeof m->digest);
    msg_put_str(b, m->pack_path, sizeof m->pack_path);
    msg_put_array(b, m->members, m->n_members, MSG_MAX_MEMBERS, 8);
    msg_put_bits(b, m->missing, m->n_segments, MAX_SEGMENTS);
    msg_put_array(b, m->file_offsets, m->n_tensors, MAX_TENSORS, 8);
}

int msg_round_get(struct msg_round *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("ROUND", rd_make(p, n));
    m->round = msg_rd_u32(&r, "round");
    msg_rd_digest(&r, m->digest, "digest");
    msg_rd_str(&r, m->pack_path, sizeof m->pack_path, "pack_path");
    m->members = msg_rd_array(&r, &m->n_members, MSG_MAX_MEMBERS, 8, "members");
    m->missing = msg_rd_bits(&r, &m->n_segments, MAX_SEGMENTS, "missing");
    m->file_offsets = msg_rd_array(&r, &m->n_tensors, MAX_TENSORS, 8, "file_offsets");
    return msg_rd_end(&r, e);
}

void msg_weights_put(struct buf *b, const struct msg_weights *m)
{
    buf_put(b, m->digest, sizeof m->digest);
    buf_u32(b, (uint32_t)m->code);
    msg_put_str(b, m->text, sizeof m->text);
}

int msg_weights_get(struct msg_weights *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("WEIGHTS", rd_make(p, n));
    msg_rd_digest(&r, m->digest, "digest");
    m->code = (int32_t)msg_rd_u32(&r, "code");
    msg_rd_str(&r, m->text, sizeof m->text, "text");
    return msg_rd_end(&r, e);
}
