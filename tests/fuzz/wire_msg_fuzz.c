/* wire_msg_fuzz.c - every getter of wire/msg.h and of HELLO. The first two bytes pick the message (little-endian msg_type; 200 and
 * above: HELLO frames and plane addresses; 210 and above: extensions of a step entry), the rest is the body. What is taken must come out of put again, byte for byte. */
#include "wire/msg.h"
#include "wire/plane_addr.h"
#include "wire/plane_hello.h"

#include <stdlib.h>

enum {
    FUZZ_HELLO = 200,
    FUZZ_CHALLENGE = 201,
    FUZZ_REFUSE = 202,
    FUZZ_ADDRESS = 203,
    FUZZ_LOGPROBS = 210,
    FUZZ_EMBEDDING = 211
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct buf again;

#define TRY(name)                                                                                  \
    do {                                                                                           \
        static struct msg_##name m;                                                                \
        if (msg_##name##_get(&m, p, n, &e) == 0) {                                                 \
            msg_##name##_put(&again, &m);                                                          \
            CHECK(buf_ok(&again) && again.len == n && memcmp(again.data, p, n) == 0);              \
        }                                                                                          \
    } while (0)

static void try_roster(const uint8_t *p, size_t n)
{
    struct rd r;
    uint32_t count;
    struct msg_register m;
    if (msg_roster_begin(&r, p, n, &count, NULL) != 0)
        return;
    msg_roster_begin_put(&again, count);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(msg_roster_next(&r, &m, NULL) == 0); /* begin walked it already */
        msg_register_put(&again, &m);
    }
    CHECK(rd_done(&r) && again.len == n && memcmp(again.data, p, n) == 0);
}

static void try_heartbeats(const uint8_t *p, size_t n)
{
    static struct msg_heartbeat m;
    struct rd r;
    uint32_t leader, count;
    bool full;
    if (msg_heartbeats_begin(&r, p, n, &leader, &count, NULL) != 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        if (msg_heartbeats_next(&r, &m, &full, NULL) != 0)
            return;
    CHECK(rd_done(&r));
}

static void try_steps(const uint8_t *p, size_t n)
{
    struct rd r = rd_make(p, n);
    struct step_section s;
    struct step_entry entry;
    while (rd_left(&r)) {
        size_t at = again.len;
        if (msg_section_get(&r, &s, NULL) != 0)
            return;
        msg_section_put(&again, &s);
        for (uint32_t i = 0; i < s.n_entries; i++) {
            if (msg_entry_get(&r, &entry, NULL) != 0)
                return;
            for (uint16_t t = 0; t < entry.n_tokens; t++)
                (void)u32_at(entry.tokens, t);
            msg_entry_put(&again, &entry);
        }
        msg_section_patch(&again, at, s.n_entries);
    }
    CHECK(buf_ok(&again) && again.len == n && (n == 0 || memcmp(again.data, p, n) == 0));
}

static void try_logprobs(const uint8_t *p, size_t n)
{
    struct rd r;
    struct msg_logprob m;
    uint32_t first, count;
    if (msg_logprobs_begin(&r, p, n, &first, &count, NULL) != 0)
        return;
    msg_logprobs_begin_put(&again, first, count);
    for (uint32_t i = 0; i < count; i++) {
        CHECK(msg_logprobs_next(&r, &m, NULL) == 0); /* begin walked it already */
        msg_logprob_put(&again, m.logprob, m.rank, m.n_top, m.top);
    }
    CHECK(rd_done(&r) && again.len == n && memcmp(again.data, p, n) == 0);
}

static void try_embedding(const uint8_t *p, size_t n)
{
    struct msg_embedding m;
    if (msg_embedding_get(&m, p, n, NULL) != 0)
        return;
    float *v = malloc(4 * (size_t)m.n + 1);
    for (uint32_t i = 0; i < m.n; i++)
        v[i] = f32_at(m.values, i);
    msg_embedding_put(&again, v, m.n);
    free(v);
    CHECK(buf_ok(&again) && again.len == n && memcmp(again.data, p, n) == 0);
}

static void try_hello(unsigned type, const uint8_t *p, size_t n)
{
    struct hello h;
    uint8_t proof[SHA256_BYTES];
    uint32_t code;
    char text[HELLO_TEXT_BYTES];
    struct addr_list addrs;
    if (type == FUZZ_HELLO && hello_get(&h, PLANE_PROTOCOL, p, n, NULL) == 0)
        hello_put(&again, &h);
    else if (type == FUZZ_CHALLENGE && challenge_get(&h, proof, PLANE_PROTOCOL, p, n, NULL) == 0)
        challenge_put(&again, &h, proof);
    else if (type == FUZZ_REFUSE && refuse_get(&code, text, p, n, NULL) == 0)
        refuse_put(&again, code, text);
    else if (type == FUZZ_ADDRESS)
        addr_choose(&addrs, p, n, NULL);
    CHECK(again.len == 0 || (again.len == n && memcmp(again.data, p, n) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = ERR_INIT;
    if (size < 2)
        return 0;
    unsigned type = data[0] | (unsigned)data[1] << 8;
    size_t n = size - 2;
    uint8_t *p = malloc(n ? n : 1); /* of its own, so that the sanitizer sees its end */
    memcpy(p, data + 2, n);
    buf_init(&again, 64 << 20);
    switch (type) {
    case MSG_REGISTER:
        TRY(register);
        break;
    case MSG_ROSTER:
        try_roster(p, n);
        break;
    case MSG_BARRIER:
    case MSG_RELEASE:
        TRY(phase);
        break;
    case MSG_ABORT:
    case MSG_STOP:
    case MSG_TROUBLE:
    case MSG_ENGINE_FAILED:
        TRY(text);
        break;
    case MSG_HEARTBEAT:
        TRY(heartbeat);
        break;
    case MSG_HEARTBEATS:
        try_heartbeats(p, n);
        break;
    case MSG_ASSIGN:
    case MSG_UNASSIGN:
        TRY(assign);
        break;
    case MSG_GANG:
        TRY(gang);
        break;
    case MSG_SHARD:
        TRY(shard);
        break;
    case MSG_SERVICE:
        TRY(service);
        break;
    case MSG_MODEL:
        TRY(model);
        break;
    case MSG_HAVE:
        TRY(have);
        break;
    case MSG_ROUND:
        TRY(round);
        break;
    case MSG_WEIGHTS:
        TRY(weights);
        break;
    case MSG_SUBMIT:
        TRY(submit);
        break;
    case MSG_CANCEL:
        TRY(cancel);
        break;
    case MSG_STEPS:
        try_steps(p, n);
        break;
    case MSG_ENGINE_READY:
        TRY(engine_ready);
        break;
    case FUZZ_LOGPROBS:
        try_logprobs(p, n);
        break;
    case FUZZ_EMBEDDING:
        try_embedding(p, n);
        break;
    default:
        try_hello(type, p, n);
    }
    buf_fini(&again);
    free(p);
    return 0;
}
