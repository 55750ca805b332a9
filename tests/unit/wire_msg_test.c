/* wire_msg_test.c - golden bytes of every message (written out by hand from wire/PROTOCOL.md), truncation at every byte, values out
 * of range. */
#include "wire/msg.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define DIGEST_HEX "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

static uint8_t digest[SHA256_BYTES];

typedef int get_fn(const void *p, size_t n, struct err *e);

/* A copy that ends where memory ends: reading one byte too many kills the test. */
static const uint8_t *at_edge(const uint8_t *data, size_t n, void **map, size_t *map_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t size = (n + page - 1) / page * page;
    *map_bytes = size + page;
    uint8_t *m = mmap(NULL, *map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(m != MAP_FAILED);
    assert_int_equal(mprotect(m + size, page, PROT_NONE), 0);
    *map = m;
    if (n)
        memcpy(m + size - n, data, n);
    return m + size - n;
}

/* Bytes as drawn; every shorter message and a longer one are refused, by name. */
static void golden(const struct buf *b, const char *hex, get_fn *get)
{
    assert_true(buf_ok(b));
    char *got = malloc(2 * b->len + 1);
    hex_encode(b->data, b->len, got);
    assert_string_equal(got, hex);
    free(got);
    for (size_t n = 0; n <= b->len; n++) {
        void *map;
        size_t map_bytes;
        const uint8_t *p = at_edge(b->data, n, &map, &map_bytes);
        struct err e = ERR_INIT;
        int rc = get(p, n, &e);
        if (n < b->len && rc != ERR_PROTO)
            fail_msg("%zu of %zu bytes were taken: %s", n, b->len, hex);
        if (n == b->len && rc != 0)
            fail_msg("refused: %s", e.text);
        if (rc)
            assert_non_null(strstr(e.text, "message "));
        munmap(map, map_bytes);
    }
    uint8_t *longer = malloc(b->len + 1);
    memcpy(longer, b->data, b->len);
    longer[b->len] = 0;
    assert_int_equal(get(longer, b->len + 1, NULL), ERR_PROTO);
    free(longer);
}

static struct buf b;

static int set_up(void **state)
{
    for (int i = 0; i < SHA256_BYTES; i++)
        digest[i] = (uint8_t)i;
    buf_init(&b, 1 << 20);
    return 0;
}

static int tear_down(void **state)
{
    buf_fini(&b);
    return 0;
}

/* --- world ------------------------------------------------------------------------------------------------- */
static struct msg_register register_sample(void)
{
    struct msg_register m = {.member = 0x01020304,
                             .incarnation = 0x1122334455667788,
                             .role = ROLE_WORKER,
                             .host = "n1",
                             .rack = "r",
                             .zone = "",
                             .build = "b7",
                             .n_cores = 2,
                             .memory_bytes = 0x100000000,
                             .n_devices = 0,
                             .n_digests = 1,
                             .digests = digest,
                             .address_bytes = 3,
                             .address = (const uint8_t *)"\xaa\xbb\xcc",
                             .url_bytes = 4,
                             .url = "http"};
    return m;
}

#define REGISTER_START                                                                             \
    "04030201"                                                                                     \
    "8877665544332211"                                                                             \
    "04"                                                                                           \
    "02000000"                                                                                     \
    "6e31"                                                                                         \
    "01000000"                                                                                     \
    "72"                                                                                           \
    "00000000"                                                                                     \
    "02000000"                                                                                     \
    "6237"                                                                                         \
    "02000000"                                                                                     \
    "0000000001000000"                                                                             \
    "00000000"
#define REGISTER_END                                                                               \
    "03000000"                                                                                     \
    "aabbcc"                                                                                       \
    "04000000"                                                                                     \
    "68747470"
#define REGISTER_HEX REGISTER_START "01000000" DIGEST_HEX REGISTER_END

static struct msg_register got_register;
static int get_register(const void *p, size_t n, struct err *e)
{
    return msg_register_get(&got_register, p, n, e);
}

static void register_bytes(void **state)
{
    struct msg_register m = register_sample();
    msg_register_put(&b, &m);
    golden(&b, REGISTER_HEX, get_register);
    assert_int_equal(msg_register_get(&got_register, b.data, b.len, NULL), 0);
    assert_int_equal(got_register.member, 0x01020304);
    assert_int_equal(got_register.incarnation, 0x1122334455667788);
    assert_string_equal(got_register.host, "n1");
    assert_string_equal(got_register.zone, "");
    assert_int_equal(got_register.n_digests, 1);
    assert_memory_equal(got_register.digests, digest, SHA256_BYTES);
    assert_ptr_equal(got_register.url, b.data + b.len - 4);
    b.data[12] = 5; /* role */
    assert_int_equal(msg_register_get(&got_register, b.data, b.len, NULL), ERR_PROTO);
    b.data[12] = 4;
    b.data[17] = 0; /* a NUL inside host */
    struct err e = ERR_INIT;
    assert_int_equal(msg_register_get(&got_register, b.data, b.len, &e), ERR_PROTO);
    assert_non_null(strstr(e.text, "REGISTER"));
    assert_non_null(strstr(e.text, "host"));
    memset(m.host, 'x', sizeof m.host); /* no NUL */
    buf_reset(&b);
    msg_register_put(&b, &m);
    assert_false(buf_ok(&b));
}

static int get_roster(const void *p, size_t n, struct err *e)
{
    struct rd r;
    uint32_t count = 0;
    int rc = msg_roster_begin(&r, p, n, &count, e);
    for (uint32_t i = 0; !rc && i < count; i++)
        rc = msg_roster_next(&r, &got_register, e);
    return rc;
}

static void roster_bytes(void **state)
{
    struct msg_register m = register_sample();
    m.n_digests = 0;
    msg_roster_begin_put(&b, 2);
    msg_register_put(&b, &m);
    msg_register_put(&b, &m);
    golden(&b,
           "02000000" REGISTER_START "00000000" REGISTER_END REGISTER_START "00000000" REGISTER_END,
           get_roster);
    assert_string_equal(got_register.build, "b7");
    memcpy(b.data, "\xff\xff\xff\xff", 4);
    assert_int_equal(get_roster(b.data, b.len, NULL), ERR_PROTO);
}

static int get_phase(const void *p, size_t n, struct err *e)
{
    struct msg_phase m;
    return msg_phase_get(&m, p, n, e);
}

static void phase_bytes(void **state)
{
    msg_phase_put(&b, &(struct msg_phase){.member = 3, .phase = 0x0a0b0c0d});
    golden(&b,
           "03000000"
           "0d0c0b0a",
           get_phase);
}

static struct msg_text got_text;
static int get_text(const void *p, size_t n, struct err *e)
{
    return msg_text_get(&got_text, p, n, e);
}

static void text_bytes(void **state)
{
    msg_text_put(&b, &(struct msg_text){.code = ERR_TIMEOUT, .value = 30000, .text = "no"});
    golden(&b,
           "fdffffff"
           "3075000000000000"
           "02000000"
           "6e6f",
           get_text);
    assert_int_equal(got_text.code, ERR_TIMEOUT);
    assert_int_equal(got_text.value, 30000);
    assert_string_equal(got_text.text, "no");
}

/* --- health ------------------------------------------------------------------------------------------------ */
static struct msg_heartbeat heartbeat, got_heartbeat;

static void heartbeat_fill(void)
{
    memset(&heartbeat, 0, sizeof heartbeat);
    heartbeat.member = 5;
    heartbeat.incarnation = 6;
    heartbeat.seq = 7;
    heartbeat.draining = true;
    heartbeat.memory_free_bytes = 8;
    heartbeat.n_replicas = 1;
    heartbeat.replicas[0] = (struct replica_load){.deployment = 1,
                                                  .replica = 2,
                                                  .epoch = 3,
                                                  .incarnation = 4,
                                                  .state = REPLICA_READY,
                                                  .n_active = 5,
                                                  .n_queued = 6,
                                                  .n_slots = 7,
                                                  .kv_free_tokens = 8,
                                                  .kv_total_tokens = 9,
                                                  .step_us = 10,
                                                  .n_steps = 11,
                                                  .n_tokens = 12,
                                                  .step_p50_us = 13,
                                                  .step_p99_us = 14,
                                                  .n_prefill = 15,
                                                  .n_reused = 16,
                                                  .n_preempted = 17,
                                                  .n_drafted = 18,
                                                  .n_draft_held = 19};
}

#define ALIVE_HEX                                                                                  \
    "05000000"                                                                                     \
    "0600000000000000"                                                                             \
    "0700000000000000"
#define LOAD_HEX                                                                                   \
    "01000000"                                                                                     \
    "02000000"                                                                                     \
    "0300000000000000"                                                                             \
    "04000000"                                                                                     \
    "03"                                                                                           \
    "05000000"                                                                                     \
    "06000000"                                                                                     \
    "07000000"                                                                                     \
    "08000000"                                                                                     \
    "09000000"                                                                                     \
    "0a000000"                                                                                     \
    "0b00000000000000"                                                                             \
    "0c00000000000000"                                                                             \
    "0d000000"                                                                                     \
    "0e000000"                                                                                     \
    "0f00000000000000"                                                                             \
    "1000000000000000"                                                                             \
    "1100000000000000"                                                                             \
    "1200000000000000"                                                                             \
    "1300000000000000"
#define HEARTBEAT_HEX                                                                              \
    ALIVE_HEX "01"                                                                                 \
              "0800000000000000"                                                                   \
              "01000000" LOAD_HEX

static int get_heartbeat(const void *p, size_t n, struct err *e)
{
    return msg_heartbeat_get(&got_heartbeat, p, n, e);
}

static void heartbeat_bytes(void **state)
{
    heartbeat_fill();
    msg_heartbeat_put(&b, &heartbeat);
    golden(&b, HEARTBEAT_HEX, get_heartbeat);
    assert_int_equal(get_heartbeat(b.data, b.len, NULL), 0);
    assert_int_equal(got_heartbeat.replicas[0].n_tokens, 12);
    b.data[20] = 2; /* draining */
    assert_int_equal(get_heartbeat(b.data, b.len, NULL), ERR_PROTO);
    b.data[20] = 0;
    b.data[33 + 20] = 7; /* state */
    assert_int_equal(get_heartbeat(b.data, b.len, NULL), ERR_PROTO);
    heartbeat.n_replicas = MSG_MAX_REPLICAS + 1;
    buf_reset(&b);
    msg_heartbeat_put(&b, &heartbeat);
    assert_false(buf_ok(&b));
}

static unsigned n_full, n_alive;
static int get_heartbeats(const void *p, size_t n, struct err *e)
{
    struct rd r;
    uint32_t leader, count = 0;
    bool full;
    n_full = n_alive = 0;
    int rc = msg_heartbeats_begin(&r, p, n, &leader, &count, e);
    for (uint32_t i = 0; !rc && i < count; i++) {
        rc = msg_heartbeats_next(&r, &got_heartbeat, &full, e);
        if (!rc)
            (*(full ? &n_full : &n_alive))++;
    }
    return rc;
}

static void heartbeats_bytes(void **state)
{
    heartbeat_fill();
    msg_heartbeats_begin_put(&b, 9, 2);
    msg_heartbeats_full_put(&b, &heartbeat);
    msg_heartbeats_alive_put(&b, 5, 6, 7);
    golden(&b,
           "09000000"
           "02000000"
           "8e000000" HEARTBEAT_HEX "14000000" ALIVE_HEX,
           get_heartbeats);
    assert_int_equal(get_heartbeats(b.data, b.len, NULL), 0);
    assert_int_equal(n_full, 1);
    assert_int_equal(n_alive, 1);
    assert_int_equal(got_heartbeat.n_replicas, 0);
    assert_int_equal(got_heartbeat.seq, 7);
}

/* --- work -------------------------------------------------------------------------------------------------- */
static struct msg_assign got_assign;
static int get_assign(const void *p, size_t n, struct err *e)
{
    return msg_assign_get(&got_assign, p, n, e);
}

static void assign_bytes(void **state)
{
    struct msg_assign m = {.deployment = 1,
                           .version = 2,
                           .replica = 3,
                           .epoch = 4,
                           .shard = 1,
                           .n_shards = 2,
                           .tp = 2,
                           .engine = "cpu",
                           .n_ctx = 2048,
                           .n_slots = 16,
                           .n_threads = 0,
                           .settings = "queue=9",
                           .n_peers = 2,
                           .peers = (const uint8_t *)"\5\0\0\0\6\0\0\0"};
    memcpy(m.digest, digest, sizeof m.digest);
    msg_assign_put(&b, &m);
    golden(&b,
           "01000000"
           "02000000"
           "03000000"
           "0400000000000000"
           "01000000"
           "02000000"
           "02000000" DIGEST_HEX "03000000"
           "637075"
           "00080000"
           "10000000"
           "00000000"
           "07000000"
           "71756575653d39"
           "02000000"
           "05000000"
           "06000000",
           get_assign);
    assert_int_equal(get_assign(b.data, b.len, NULL), 0);
    assert_int_equal(u32_at(got_assign.peers, 1), 6);
    b.data[20] = 2; /* shard 2 of 2 */
    assert_int_equal(get_assign(b.data, b.len, NULL), ERR_PROTO);
    b.data[20] = 1;
    b.data[28] = 3; /* 2 shards in threes */
    assert_int_equal(get_assign(b.data, b.len, NULL), ERR_PROTO);
    b.data[28] = 1;
    assert_int_equal(get_assign(b.data, b.len, NULL), 0);
    b.data[24] = 4; /* 3 shards, 2 peers */
    assert_int_equal(get_assign(b.data, b.len, NULL), ERR_PROTO);
}

static struct msg_shard got_shard;
static int get_shard(const void *p, size_t n, struct err *e)
{
    return msg_shard_get(&got_shard, p, n, e);
}

static void shard_bytes(void **state)
{
    struct msg_shard m = {.name = {1, 2, 3, 4},
                          .from = 5,
                          .to = 6,
                          .at = 7,
                          .n_bytes = 3,
                          .bytes = (const uint8_t *)"abc"};
    msg_shard_put(&b, &m);
    golden(&b,
           "01000000"
           "02000000"
           "0300000000000000"
           "0400000000000000"
           "05000000"
           "06000000"
           "0700000000000000"
           "03000000"
           "616263",
           get_shard);
    assert_int_equal(get_shard(b.data, b.len, NULL), 0);
    assert_memory_equal(got_shard.bytes, "abc", 3);
    m.n_bytes = MSG_MAX_SHARD_BYTES + 1;
    m.bytes = calloc(1, m.n_bytes);
    buf_reset(&b);
    msg_shard_put(&b, &m);
    assert_false(buf_ok(&b));
    free((void *)m.bytes);
}

static int get_gang(const void *p, size_t n, struct err *e)
{
    struct msg_gang m;
    return msg_gang_get(&m, p, n, e);
}

static void gang_bytes(void **state)
{
    struct msg_gang m = {.name = {1, 2, 3, 4}, .word = GANG_END, .shard = 5, .text = "why"};
    msg_gang_put(&b, &m);
    golden(&b,
           "01000000"
           "02000000"
           "0300000000000000"
           "0400000000000000"
           "02"
           "05000000"
           "03000000"
           "776879",
           get_gang);
    b.data[24] = 4;
    assert_int_equal(get_gang(b.data, b.len, NULL), ERR_PROTO);
}

static int get_service(const void *p, size_t n, struct err *e)
{
    struct msg_service m;
    return msg_service_get(&m, p, n, e);
}

static void service_bytes(void **state)
{
    msg_service_put(&b, &(struct msg_service){.state = SERVICE_DEGRADED,
                                              .job_end_wall_s = 0x65000000,
                                              .n_ready = 7,
                                              .n_wanted = 8,
                                              .n_min = 6,
                                              .progress = "n3"});
    golden(&b,
           "02"
           "0000006500000000"
           "07000000"
           "08000000"
           "06000000"
           "02000000"
           "6e33",
           get_service);
    b.data[0] = 0;
    assert_int_equal(get_service(b.data, b.len, NULL), ERR_PROTO);
}

static struct msg_model got_model;
static int get_model(const void *p, size_t n, struct err *e)
{
    int rc = msg_model_get(&got_model, p, n, e);
    if (!rc) /* looked at here: it points into the input */
        assert_int_equal(got_model.meta[0], 0xe1);
    return rc;
}

static void model_bytes(void **state)
{
    msg_model_put(&b, &(struct msg_model){.deployment = 1,
                                          .version = 2,
                                          .name = "m/x",
                                          .n_ctx = 4096,
                                          .index_bytes = 2,
                                          .meta_bytes = 1,
                                          .index = (const uint8_t *)"\xd1\xd2",
                                          .meta = (const uint8_t *)"\xe1"});
    golden(&b,
           "01000000"
           "02000000"
           "03000000"
           "6d2f78"
           "00100000"
           "02000000"
           "d1d2"
           "01000000"
           "e1",
           get_model);
    assert_int_equal(got_model.index_bytes, 2);
}

/* --- weights ----------------------------------------------------------------------------------------------- */
static struct msg_have got_have;
static int get_have(const void *p, size_t n, struct err *e)
{
    return msg_have_get(&got_have, p, n, e);
}

static void have_bytes(void **state)
{
    struct msg_have m = {.member = 4,
                         .round = 1,
                         .code = ERR_SYS,
                         .text = "disk",
                         .n_segments = 10,
                         .bits = (const uint8_t *)"\xff\x03"};
    memcpy(m.digest, digest, sizeof m.digest);
    msg_have_put(&b, &m);
    golden(&b,
           "04000000"
           "01000000" DIGEST_HEX "f6ffffff"
           "04000000"
           "6469736b"
           "0a000000"
           "ff03",
           get_have);
    assert_int_equal(got_have.n_segments, 10);
    b.data[b.len - 1] = 0x07; /* an eleventh bit */
    assert_int_equal(get_have(b.data, b.len, NULL), ERR_PROTO);
}

static struct msg_round got_round;
static int get_round(const void *p, size_t n, struct err *e)
{
    return msg_round_get(&got_round, p, n, e);
}

static void round_bytes(void **state)
{
    struct msg_round m = {.round = 2,
                          .pack_path = "/p",
                          .n_members = 1,
                          .members = (const uint8_t *)"\7\0\0\0\1\0\0\0",
                          .n_segments = 3,
                          .missing = (const uint8_t *)"\5",
                          .n_tensors = 1,
                          .file_offsets = (const uint8_t *)"\0\20\0\0\0\0\0\0"};
    memcpy(m.digest, digest, sizeof m.digest);
    msg_round_put(&b, &m);
    golden(&b,
           "02000000" DIGEST_HEX "02000000"
           "2f70"
           "01000000"
           "07000000"
           "01000000"
           "03000000"
           "05"
           "01000000"
           "0010000000000000",
           get_round);
    assert_int_equal(got_round.n_tensors, 1);
    assert_string_equal(got_round.pack_path, "/p");
}

static int get_weights(const void *p, size_t n, struct err *e)
{
    struct msg_weights m;
    return msg_weights_get(&m, p, n, e);
}

static void weights_bytes(void **state)
{
    struct msg_weights m = {.code = 0, .text = ""};
    memcpy(m.digest, digest, sizeof m.digest);
    msg_weights_put(&b, &m);
    golden(&b,
           DIGEST_HEX "00000000"
                      "00000000",
           get_weights);
}

/* --- requests ---------------------------------------------------------------------------------------------- */
static const struct attempt ATTEMPT = {.router = 1, .router_inc = 2, .slot = 3, .generation = 4};
#define ATTEMPT_HEX                                                                                \
    "01000000"                                                                                     \
    "02000000"                                                                                     \
    "03000000"                                                                                     \
    "04000000"

static struct msg_submit submit_sample(void)
{
    struct msg_submit m = {.attempt = ATTEMPT,
                           .deployment = 5,
                           .replica = 6,
                           .epoch = 7,
                           .kind = SUBMIT_EMBED,
                           .priority = 200,
                           .tenant = 8,
                           .sampling = {.temperature = 1.0f,
                                        .top_p = 0.5f,
                                        .top_k = 40,
                                        .seed = 99,
                                        .min_p = 0.25f,
                                        .typical_p = 0.75f,
                                        .repetition_penalty = 2.0f,
                                        .frequency_penalty = -1.0f,
                                        .presence_penalty = -2.0f,
                                        .min_tokens = 11,
                                        .want_logprobs = true,
                                        .n_top = 20,
                                        .want_prompt_logprobs = true},
                           .max_tokens = 100,
                           .start = 1,
                           .ttft_ms = 200,
                           .total_ms = 300,
                           .ignore_eos = true,
                           .n_stop_ids = 1,
                           .stop_ids = (const uint8_t *)"\2\0\0\0",
                           .n_bias = 1,
                           .bias = (const uint8_t *)"\7\0\0\0\0\0\xc8\xc2",
                           .constraint = CONSTRAINT_REGEX,
                           .constraint_bytes = 2,
                           .constraint_source = "a+",
                           .n_tokens = 2,
                           .tokens = (const uint8_t *)"\1\0\0\0\xff\0\0\0"};
    return m;
}

static struct msg_submit got_submit;
static int get_submit(const void *p, size_t n, struct err *e)
{
    return msg_submit_get(&got_submit, p, n, e);
}

static void submit_bytes(void **state)
{
    struct msg_submit m = submit_sample();
    msg_submit_put(&b, &m);
    golden(&b,
           ATTEMPT_HEX "05000000"
                       "06000000"
                       "0700000000000000"
                       "01"
                       "c8"
                       "08000000"
                       "0000803f"
                       "0000003f"
                       "28000000"
                       "6300000000000000"
                       "0000803e"
                       "0000403f"
                       "00000040"
                       "000080bf"
                       "000000c0"
                       "0b000000"
                       "01"
                       "14"
                       "01"
                       "64000000"
                       "01000000"
                       "c8000000"
                       "2c010000"
                       "01"
                       "01000000"
                       "02000000"
                       "01000000"
                       "07000000"
                       "0000c8c2"
                       "03"
                       "02000000"
                       "612b"
                       "02000000"
                       "01000000"
                       "ff000000",
           get_submit);
    assert_int_equal(get_submit(b.data, b.len, NULL), 0);
    assert_int_equal(u32_at(got_submit.tokens, 1), 255);
    assert_true(got_submit.sampling.top_p == 0.5f);
    assert_true(got_submit.sampling.presence_penalty == -2.0f);
    assert_true(f32_at(got_submit.bias, 1) == -100.0f);
    assert_memory_equal(got_submit.constraint_source, "a+", 2);
}

static int submit_with(struct msg_submit *m)
{
    buf_reset(&b);
    msg_submit_put(&b, m);
    assert_true(buf_ok(&b));
    return get_submit(b.data, b.len, NULL);
}

/* One field of the sample set to a value that is out of its range. */
static void submit_refuses_numbers(void **state)
{
    const float BAD[] = {NAN, INFINITY, -INFINITY, -1.0f};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        for (unsigned field = 0; field < 7; field++) {
            struct msg_submit m = submit_sample();
            float *at[] = {&m.sampling.temperature,
                           &m.sampling.top_p,
                           &m.sampling.min_p,
                           &m.sampling.typical_p,
                           &m.sampling.repetition_penalty,
                           &m.sampling.frequency_penalty,
                           &m.sampling.presence_penalty};
            *at[field] = BAD[i];
            bool may_be_negative = field >= 5 && BAD[i] == -1.0f;
            assert_int_equal(submit_with(&m), may_be_negative ? 0 : ERR_PROTO);
        }
        uint8_t bias[8] = {1};
        memcpy(bias + 4, &BAD[i], 4);
        struct msg_submit m = submit_sample();
        m.bias = bias;
        assert_int_equal(submit_with(&m), BAD[i] == -1.0f ? 0 : ERR_PROTO);
    }
    struct msg_submit m = submit_sample();
    m.sampling.n_top = MSG_MAX_TOP_LOGPROBS + 1;
    assert_int_equal(submit_with(&m), ERR_PROTO);
    m = submit_sample();
    m.kind = SUBMIT_EMBED + 1;
    assert_int_equal(submit_with(&m), ERR_PROTO);
    m = submit_sample();
    m.constraint = CONSTRAINT_GBNF + 1;
    assert_int_equal(submit_with(&m), ERR_PROTO);
    for (uint8_t kind = CONSTRAINT_NONE; kind <= CONSTRAINT_GBNF; kind++) {
        m = submit_sample();
        m.constraint = kind;
        assert_int_equal(submit_with(&m), kind <= CONSTRAINT_JSON_OBJECT ? ERR_PROTO : 0);
    }
}

static void submit_refuses_sizes(void **state)
{
    struct msg_submit m = submit_sample();
    m.start = 3; /* more log than tokens */
    assert_int_equal(submit_with(&m), ERR_PROTO);
    m = submit_sample();
    assert_int_equal(submit_with(&m), 0);
    memcpy(b.data + b.len - 12, "\xff\xff\xff\xff", 4); /* n_tokens */
    assert_int_equal(get_submit(b.data, b.len, NULL), ERR_PROTO);
    assert_true(b.len - 4 - 8 - 2 - 8 < MSG_SUBMIT_FIXED_BYTES);
    void *many = calloc(1, MSG_MAX_CONSTRAINT_BYTES + 1);
    for (int i = 0; i < 3; i++) {
        m = submit_sample();
        if (i == 0) {
            m.n_stop_ids = MSG_MAX_STOP_IDS + 1;
            m.stop_ids = many;
        } else if (i == 1) {
            m.n_bias = MSG_MAX_BIAS + 1;
            m.bias = many;
        } else {
            m.constraint_bytes = MSG_MAX_CONSTRAINT_BYTES + 1;
            m.constraint_source = many;
        }
        struct buf big;
        buf_init(&big, 8 << 20);
        msg_submit_put(&big, &m);
        assert_false(buf_ok(&big));
        buf_fini(&big);
    }
    free(many);
}

static int get_cancel(const void *p, size_t n, struct err *e)
{
    struct msg_cancel m;
    return msg_cancel_get(&m, p, n, e);
}

static void cancel_bytes(void **state)
{
    msg_cancel_put(&b, &(struct msg_cancel){.attempt = ATTEMPT, .deployment = 5, .replica = 6});
    golden(&b,
           ATTEMPT_HEX "05000000"
                       "06000000",
           get_cancel);
}

static struct step_entry got_entry;
static unsigned n_sections, n_entries;
static int get_steps(const void *p, size_t n, struct err *e)
{
    struct rd r = rd_make(p, n);
    struct step_section s;
    n_sections = n_entries = 0;
    do { /* at least one: an empty body ends the walk at once in use */
        int rc = msg_section_get(&r, &s, e);
        if (rc)
            return rc;
        n_sections++;
        for (uint32_t i = 0; i < s.n_entries; i++, n_entries++)
            if ((rc = msg_entry_get(&r, &got_entry, e)) != 0)
                return rc;
    } while (rd_left(&r));
    return 0;
}

static void steps_bytes(void **state)
{
    size_t at = b.len;
    msg_section_put(&b,
                    &(struct step_section){.deployment = 1, .replica = 2, .epoch = 3, .step = 4});
    struct step_entry entry = {.attempt = ATTEMPT,
                               .position = 9,
                               .n_tokens = 2,
                               .finish = FINISH_STOP,
                               .tokens = (const uint8_t *)"\7\0\0\0\10\0\0\0"};
    msg_entry_put(&b, &entry);
    entry.n_tokens = 0;
    entry.finish = FINISH_ERROR;
    entry.ext_type = EXT_ERROR;
    entry.ext = (const uint8_t *)"\xee\xef";
    entry.ext_bytes = 2;
    msg_entry_put(&b, &entry);
    msg_section_patch(&b, at, 2);
    golden(&b,
           "01000000"
           "02000000"
           "0300000000000000"
           "0400000000000000"
           "02000000" ATTEMPT_HEX "09000000"
           "01"
           "0200"
           "07000000"
           "08000000"
           "0000"
           "00000000" ATTEMPT_HEX "09000000"
           "05"
           "0000"
           "0100"
           "02000000"
           "eeef",
           get_steps);
    assert_int_equal(get_steps(b.data, b.len, NULL), 0);
    assert_int_equal(n_entries, 2);
    assert_int_equal(got_entry.ext_bytes, 2);
    /* two sections behind each other */
    size_t one = b.len;
    buf_reserve(&b, one);
    buf_put(&b, b.data, one);
    assert_int_equal(get_steps(b.data, b.len, NULL), 0);
    assert_int_equal(n_sections, 2);
    b.data[24] = 0xff; /* n_entries that cannot be there */
    b.data[27] = 0xff;
    assert_int_equal(get_steps(b.data, b.len, NULL), ERR_PROTO);
    /* patching a buffer that failed touches nothing */
    struct buf small;
    buf_init(&small, 4);
    msg_section_put(&small, &(struct step_section){.deployment = 1});
    msg_section_patch(&small, 0, 1);
    assert_false(buf_ok(&small));
    buf_fini(&small);
}

static struct msg_logprob got_logprobs[2];
static uint32_t first_logprob;
static int get_logprobs(const void *p, size_t n, struct err *e)
{
    struct rd r;
    uint32_t count;
    int rc = msg_logprobs_begin(&r, p, n, &first_logprob, &count, e);
    for (uint32_t i = 0; !rc && i < count; i++)
        rc = msg_logprobs_next(&r, &got_logprobs[i], e);
    return rc;
}

static void logprobs_bytes(void **state)
{
    const struct token_logprob top[] = {{258, -0.5f}, {3, -1.0f}};
    msg_logprobs_begin_put(&b, 6, 2);
    msg_logprob_put(&b, -1.0f, 1, 2, top);
    msg_logprob_put(&b, 0.0f, 0, 0, NULL);
    golden(&b,
           "06000000"
           "02000000"
           "000080bf"
           "01000000"
           "02"
           "02010000"
           "000000bf"
           "03000000"
           "000080bf"
           "00000000"
           "00000000"
           "00",
           get_logprobs);
    assert_int_equal(get_logprobs(b.data, b.len, NULL), 0);
    assert_int_equal(first_logprob, 6);
    assert_int_equal(got_logprobs[0].n_top, 2);
    assert_int_equal(got_logprobs[0].top[0].id, 258);
    assert_true(got_logprobs[0].top[1].logprob == -1.0f);
    assert_int_equal(got_logprobs[1].n_top, 0);
    const float BAD[] = {NAN, INFINITY, -INFINITY, 0.5f};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++)
        for (int in_top = 0; in_top < 2; in_top++) {
            buf_reset(&b);
            msg_logprobs_begin_put(&b, 6, 1);
            struct token_logprob one = {1, in_top ? BAD[i] : -1.0f};
            msg_logprob_put(&b, in_top ? -1.0f : BAD[i], 1, 1, &one);
            assert_int_equal(get_logprobs(b.data, b.len, NULL), ERR_PROTO);
        }
    msg_logprob_put(&b, 0, 0, MSG_MAX_TOP_LOGPROBS + 1, top);
    assert_false(buf_ok(&b));
}

static struct msg_embedding got_embedding;
static int get_embedding(const void *p, size_t n, struct err *e)
{
    return msg_embedding_get(&got_embedding, p, n, e);
}

static void embedding_bytes(void **state)
{
    const float v[] = {1.0f, -0.5f};
    msg_embedding_put(&b, v, 2);
    golden(&b,
           "02000000"
           "0000803f"
           "000000bf",
           get_embedding);
    assert_int_equal(get_embedding(b.data, b.len, NULL), 0);
    assert_int_equal(got_embedding.n, 2);
    assert_true(f32_at(got_embedding.values, 1) == -0.5f);
    buf_reset(&b);
    msg_embedding_put(&b, (const float[]){1.0f, NAN}, 2);
    assert_int_equal(get_embedding(b.data, b.len, NULL), ERR_PROTO);
    msg_embedding_put(&b, v, MSG_MAX_EMBEDDING + 1);
    assert_false(buf_ok(&b));
}

static struct msg_engine_ready got_ready;
static int get_ready(const void *p, size_t n, struct err *e)
{
    return msg_engine_ready_get(&got_ready, p, n, e);
}

static void engine_ready_bytes(void **state)
{
    struct msg_engine_ready m = {.n_slots = 1,
                                 .n_ctx = 2,
                                 .kv_total_tokens = 3,
                                 .n_threads = 4,
                                 .load_us = 5,
                                 .warm_us = 6,
                                 .memory_bytes = 7,
                                 .kernels = "avx2"};
    memcpy(m.numerics, digest, sizeof m.numerics);
    msg_engine_ready_put(&b, &m);
    golden(&b,
           "01000000"
           "02000000"
           "03000000"
           "04000000"
           "0500000000000000"
           "0600000000000000"
           "0700000000000000"
           "04000000"
           "61767832" DIGEST_HEX,
           get_ready);
    assert_string_equal(got_ready.kernels, "avx2");
}

static void names(void **state)
{
    assert_string_equal(role_name(ROLE_SCHEDULER), "scheduler");
    assert_string_equal(role_name(ROLE_WORKER), "worker");
    assert_string_equal(role_name(0), "unknown");
    assert_string_equal(role_name(5), "unknown");
    assert_string_equal(replica_state_name(REPLICA_BROKEN), "BROKEN");
    assert_string_equal(replica_state_name(-1), "UNKNOWN");
    assert_string_equal(service_state_name(SERVICE_STARTING), "STARTING");
    assert_string_equal(service_state_name(SERVICE_STOPPED), "STOPPED");
    assert_string_equal(service_state_name(7), "UNKNOWN");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(register_bytes),
        CASE(roster_bytes),
        CASE(phase_bytes),
        CASE(text_bytes),
        CASE(heartbeat_bytes),
        CASE(heartbeats_bytes),
        CASE(assign_bytes),
        CASE(service_bytes),
        CASE(model_bytes),
        CASE(have_bytes),
        CASE(round_bytes),
        CASE(weights_bytes),
        CASE(submit_bytes),
        CASE(submit_refuses_numbers),
        CASE(submit_refuses_sizes),
        CASE(cancel_bytes),
        CASE(logprobs_bytes),
        CASE(embedding_bytes),
        CASE(steps_bytes),
        CASE(engine_ready_bytes),
        CASE(names),
        CASE(shard_bytes),
        CASE(gang_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
