/* msg_world.c - see msg.h: messages of the start, of phases and of health. */
#include "wire/msg.h"

#include "wire/msg_limits.h"
#include "wire/msg_read.h"

enum {
    ALIVE_BYTES = 4 + 8 + 8,                        /* member, incarnation, seq */
    HEARTBEAT_HEAD_BYTES = ALIVE_BYTES + 1 + 8 + 4, /* draining, memory_free, n_replicas */
    LOAD_BYTES = 4 + 4 + 8 + 4 + 1 + 6 * 4 + 8 + 8 + 2 * 4 + 5 * 8,
};
/* A blob of MSG_HEARTBEATS is told apart by its length alone. */
_Static_assert((int)HEARTBEAT_HEAD_BYTES > (int)ALIVE_BYTES, "a full heartbeat must be longer");
_Static_assert(ALIVE_BYTES == 20 && HEARTBEAT_HEAD_BYTES == 33 && LOAD_BYTES == 109,
               "frozen by PROTOCOL.md");
_Static_assert(ROLE_SCHEDULER == 1 && ROLE_WORKER == 4, "frozen by PROTOCOL.md");
_Static_assert(REPLICA_LOADING == 1 && REPLICA_BROKEN == 6, "frozen by PROTOCOL.md");

const char *role_name(int role)
{
    static const char *const NAMES[] = {"scheduler", "standby", "router", "worker"};
    return role >= ROLE_SCHEDULER && role <= ROLE_WORKER ? NAMES[role - 1] : "unknown";
}

const char *replica_state_name(int state)
{
    static const char *const NAMES[] = {"LOADING",  "WARMING", "READY",
                                        "DRAINING", "FAILED",  "BROKEN"};
    return state >= REPLICA_LOADING && state <= REPLICA_BROKEN ? NAMES[state - 1] : "UNKNOWN";
}

/* --- register, roster ------------------------------------------------------------------------------------ */
void msg_register_put(struct buf *b, const struct msg_register *m)
{
    buf_u32(b, m->member);
    buf_u64(b, m->incarnation);
    buf_u8(b, m->role);
    msg_put_str(b, m->host, sizeof m->host);
    msg_put_str(b, m->rack, sizeof m->rack);
    msg_put_str(b, m->zone, sizeof m->zone);
    msg_put_str(b, m->build, sizeof m->build);
    buf_u32(b, m->n_cores);
    buf_u64(b, m->memory_bytes);
    buf_u32(b, m->n_devices);
    msg_put_array(b, m->digests, m->n_digests, MAX_DIGESTS, SHA256_BYTES);
    msg_put_array(b, m->address, m->address_bytes, MAX_ADDRESS_BYTES, 1);
    msg_put_array(b, (const uint8_t *)m->url, m->url_bytes, MAX_URL_BYTES, 1);
}

static void register_read(struct msg_rd *r, struct msg_register *m)
{
    m->member = msg_rd_u32(r, "member");
    m->incarnation = msg_rd_u64(r, "incarnation");
    m->role = msg_rd_enum(r, ROLE_SCHEDULER, ROLE_WORKER, "role");
    msg_rd_str(r, m->host, sizeof m->host, "host");
    msg_rd_str(r, m->rack, sizeof m->rack, "rack");
    msg_rd_str(r, m->zone, sizeof m->zone, "zone");
    msg_rd_str(r, m->build, sizeof m->build, "build");
    m->n_cores = msg_rd_u32(r, "n_cores");
    m->memory_bytes = msg_rd_u64(r, "memory_bytes");
    m->n_devices = msg_rd_u32(r, "n_devices");
    m->digests = msg_rd_array(r, &m->n_digests, MAX_DIGESTS, SHA256_BYTES, "digests");
    m->address = msg_rd_array(r, &m->address_bytes, MAX_ADDRESS_BYTES, 1, "address");
    m->url = (const char *)msg_rd_array(r, &m->url_bytes, MAX_URL_BYTES, 1, "url");
}

int msg_register_get(struct msg_register *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("REGISTER", rd_make(p, n));
    register_read(&r, m);
    return msg_rd_end(&r, e);
}

void msg_roster_begin_put(struct buf *b, uint32_t n)
{
    if (n > MSG_MAX_MEMBERS)
        b->failed = true;
    buf_u32(b, n);
}

/* The whole message is walked once here, so nobody acts on half a roster. */
int msg_roster_begin(struct rd *out, const void *p, size_t n, uint32_t *count, struct err *e)
{
    struct msg_rd r = msg_rd_make("ROSTER", rd_make(p, n));
    uint32_t members = msg_rd_u32(&r, "n");
    if (members > MSG_MAX_MEMBERS)
        msg_rd_fail(&r, "n");
    struct rd first = r.r;
    struct msg_register m;
    for (uint32_t i = 0; i < members && !r.r.failed; i++)
        register_read(&r, &m);
    int rc = msg_rd_end(&r, e);
    if (rc)
        return rc;
    *out = first;
    *count = members;
    return 0;
}

int msg_roster_next(struct rd *rd, struct msg_register *m, struct err *e)
{
    struct msg_rd r = msg_rd_make("ROSTER", *rd);
    register_read(&r, m);
    *rd = r.r;
    return msg_rd_part(&r, e);
}

/* --- phases, texts --------------------------------------------------------------------------------------- */
void msg_phase_put(struct buf *b, const struct msg_phase *m)
{
    buf_u32(b, m->member);
    buf_u32(b, m->phase);
}

int msg_phase_get(struct msg_phase *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("BARRIER or RELEASE", rd_make(p, n));
    m->member = msg_rd_u32(&r, "member");
    m->phase = msg_rd_u32(&r, "phase");
    return msg_rd_end(&r, e);
}

void msg_text_put(struct buf *b, const struct msg_text *m)
{
    buf_u32(b, (uint32_t)m->code);
    buf_u64(b, m->value);
    msg_put_str(b, m->text, sizeof m->text);
}

int msg_text_get(struct msg_text *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("text", rd_make(p, n));
    m->code = (int32_t)msg_rd_u32(&r, "code");
    m->value = msg_rd_u64(&r, "value");
    msg_rd_str(&r, m->text, sizeof m->text, "text");
    return msg_rd_end(&r, e);
}

/* --- heartbeats ------------------------------------------------------------------------------------------ */
static void load_put(struct buf *b, const struct replica_load *l)
{
    buf_u32(b, l->deployment);
    buf_u32(b, l->replica);
    buf_u64(b, l->epoch);
    buf_u32(b, l->incarnation);
    buf_u8(b, l->state);
    buf_u32(b, l->n_active);
    buf_u32(b, l->n_queued);
    buf_u32(b, l->n_slots);
    buf_u32(b, l->kv_free_tokens);
    buf_u32(b, l->kv_total_tokens);
    buf_u32(b, l->step_us);
    buf_u64(b, l->n_steps);
    buf_u64(b, l->n_tokens);
    buf_u32(b, l->step_p50_us);
    buf_u32(b, l->step_p99_us);
    buf_u64(b, l->n_prefill);
    buf_u64(b, l->n_reused);
    buf_u64(b, l->n_preempted);
    buf_u64(b, l->n_drafted);
    buf_u64(b, l->n_draft_held);
}

static void load_read(struct msg_rd *r, struct replica_load *l)
{
    l->deployment = msg_rd_u32(r, "replica.deployment");
    l->replica = msg_rd_u32(r, "replica.replica");
    l->epoch = msg_rd_u64(r, "replica.epoch");
    l->incarnation = msg_rd_u32(r, "replica.incarnation");
    l->state = msg_rd_enum(r, REPLICA_LOADING, REPLICA_BROKEN, "replica.state");
    l->n_active = msg_rd_u32(r, "replica.n_active");
    l->n_queued = msg_rd_u32(r, "replica.n_queued");
    l->n_slots = msg_rd_u32(r, "replica.n_slots");
    l->kv_free_tokens = msg_rd_u32(r, "replica.kv_free_tokens");
    l->kv_total_tokens = msg_rd_u32(r, "replica.kv_total_tokens");
    l->step_us = msg_rd_u32(r, "replica.step_us");
    l->n_steps = msg_rd_u64(r, "replica.n_steps");
    l->n_tokens = msg_rd_u64(r, "replica.n_tokens");
    l->step_p50_us = msg_rd_u32(r, "replica.step_p50_us");
    l->step_p99_us = msg_rd_u32(r, "replica.step_p99_us");
    l->n_prefill = msg_rd_u64(r, "replica.n_prefill");
    l->n_reused = msg_rd_u64(r, "replica.n_reused");
    l->n_preempted = msg_rd_u64(r, "replica.n_preempted");
    l->n_drafted = msg_rd_u64(r, "replica.n_drafted");
    l->n_draft_held = msg_rd_u64(r, "replica.n_draft_held");
}

void msg_heartbeat_put(struct buf *b, const struct msg_heartbeat *m)
{
    if (m->n_replicas > MSG_MAX_REPLICAS) {
        b->failed = true;
        return;
    }
    buf_u32(b, m->member);
    buf_u64(b, m->incarnation);
    buf_u64(b, m->seq);
    buf_u8(b, m->draining);
    buf_u64(b, m->memory_free_bytes);
    buf_u32(b, m->n_replicas);
    for (uint32_t i = 0; i < m->n_replicas; i++)
        load_put(b, &m->replicas[i]);
}

static void alive_read(struct msg_rd *r, struct msg_heartbeat *m)
{
    m->member = msg_rd_u32(r, "member");
    m->incarnation = msg_rd_u64(r, "incarnation");
    m->seq = msg_rd_u64(r, "seq");
}

int msg_heartbeat_get(struct msg_heartbeat *m, const void *p, size_t n, struct err *e)
{
    struct msg_rd r = msg_rd_make("HEARTBEAT", rd_make(p, n));
    alive_read(&r, m);
    m->draining = msg_rd_flag(&r, "draining");
    m->memory_free_bytes = msg_rd_u64(&r, "memory_free_bytes");
    uint32_t n_replicas = msg_rd_u32(&r, "n_replicas");
    m->n_replicas = 0;
    if (n_replicas > MSG_MAX_REPLICAS || n_replicas > rd_left(&r.r) / LOAD_BYTES)
        msg_rd_fail(&r, "n_replicas");
    for (uint32_t i = 0; i < n_replicas && !r.r.failed; i++)
        load_read(&r, &m->replicas[i]);
    int rc = msg_rd_end(&r, e);
    if (!rc)
        m->n_replicas = n_replicas;
    return rc;
}

void msg_heartbeats_begin_put(struct buf *b, uint32_t leader, uint32_t n)
{
    if (n > MSG_MAX_MEMBERS)
        b->failed = true;
    buf_u32(b, leader);
    buf_u32(b, n);
}

void msg_heartbeats_alive_put(struct buf *b, uint32_t member, uint64_t incarnation, uint64_t seq)
{
    buf_u32(b, ALIVE_BYTES);
    buf_u32(b, member);
    buf_u64(b, incarnation);
    buf_u64(b, seq);
}

void msg_heartbeats_full_put(struct buf *b, const struct msg_heartbeat *m)
{
    if (m->n_replicas > MSG_MAX_REPLICAS) {
        b->failed = true;
        return;
    }
    buf_u32(b, HEARTBEAT_HEAD_BYTES + LOAD_BYTES * m->n_replicas);
    msg_heartbeat_put(b, m);
}

/* The lengths of all blobs are checked here, their content as they are read. */
int msg_heartbeats_begin(struct rd *out, const void *p, size_t n, uint32_t *leader, uint32_t *count,
                         struct err *e)
{
    struct msg_rd r = msg_rd_make("HEARTBEATS", rd_make(p, n));
    uint32_t from = msg_rd_u32(&r, "leader");
    uint32_t blobs = msg_rd_u32(&r, "n");
    if (blobs > MSG_MAX_MEMBERS)
        msg_rd_fail(&r, "n");
    struct rd first = r.r;
    for (uint32_t i = 0; i < blobs && !r.r.failed; i++) {
        size_t len;
        if (!rd_blob(&r.r, HEARTBEAT_HEAD_BYTES + LOAD_BYTES * MSG_MAX_REPLICAS, &len) ||
            (len != ALIVE_BYTES && len < HEARTBEAT_HEAD_BYTES))
            msg_rd_fail(&r, "heartbeat length");
    }
    int rc = msg_rd_end(&r, e);
    if (rc)
        return rc;
    *out = first;
    *leader = from;
    *count = blobs;
    return 0;
}

int msg_heartbeats_next(struct rd *rd, struct msg_heartbeat *m, bool *full, struct err *e)
{
    size_t len;
    const void *p = rd_blob(rd, HEARTBEAT_HEAD_BYTES + LOAD_BYTES * MSG_MAX_REPLICAS, &len);
    if (!p)
        return err_set(e, ERR_PROTO, "message HEARTBEATS: a heartbeat is cut off");
    *full = len != ALIVE_BYTES;
    if (*full)
        return msg_heartbeat_get(m, p, len, e);
    struct msg_rd r = msg_rd_make("HEARTBEATS", rd_make(p, len));
    alive_read(&r, m);
    m->n_replicas = 0;
    return msg_rd_end(&r, e);
}
