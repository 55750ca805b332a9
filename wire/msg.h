/* msg.h - every message of the plane and every record of an engine's ring: its struct, its put and its get.
 *
 * Layouts are little-endian, drawn in wire/PROTOCOL.md, held by golden bytes in tests/unit/wire_msg_test.c. Numbers are never reused.
 * `get` functions trust nothing: counts are checked against the bytes that are there; pointers in results point into the input.
 * All return 0 or ERR_PROTO naming the message and the field.
 */
#ifndef EXA_WIRE_MSG_H
#define EXA_WIRE_MSG_H

#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum msg_type {
    /* the world */
    MSG_REGISTER = 1, /* member → scheduler: facts of my node */
    MSG_ROSTER = 2,   /* scheduler → all: who is in the world, with addresses */
    MSG_BARRIER = 3,  /* member → scheduler: I reached phase n */
    MSG_RELEASE = 4,  /* scheduler → all: everybody reached phase n */
    MSG_ABORT = 5,    /* scheduler → all: the start failed, text says why; leave */
    MSG_STOP = 6,     /* scheduler → all: drain for grace_ms, then leave */
    /* health and load */
    MSG_HEARTBEAT = 10,  /* member → its rack leader */
    MSG_HEARTBEATS = 11, /* rack leader → scheduler and routers: merged */
    MSG_TROUBLE = 12,    /* worker → scheduler: why a replica does not serve; value: its number */
    /* work */
    MSG_ASSIGN = 20,   /* scheduler → worker: run this shard */
    MSG_UNASSIGN = 21, /* scheduler → worker: stop it */
    MSG_SERVICE = 22,  /* scheduler → routers: service state and progress */
    MSG_MODEL = 23,    /* scheduler → routers and workers: a pack's index and meta */
    /* gangs: replicas of several shards */
    MSG_GANG = 24,  /* worker → worker: start or end your shards of this replica */
    MSG_SHARD = 25, /* engine → worker → worker → engine: bytes from one shard to another */
    /* weights */
    MSG_HAVE = 30,  /* worker → scheduler: have-bits of a digest, at start and after each round */
    MSG_ROUND = 31, /* scheduler → workers: a broadcast round: who takes part, what is missing */
    MSG_WEIGHTS = 32, /* scheduler → workers: digest complete (or failed, with text) */
    /* requests */
    MSG_SUBMIT = 40, /* router → worker, and worker → engine */
    MSG_CANCEL = 41, /* router → worker, and worker → engine */
    MSG_STEPS = 42,  /* worker → router: step sections; engine → worker: one section */
    /* engine ring only */
    MSG_ENGINE_READY = 60,  /* engine → worker: warmed up; capacity */
    MSG_ENGINE_FAILED = 61, /* engine → worker: last words */
    MSG_ENGINE_STOP = 62,   /* worker → engine: finish and exit */
};

enum {
    MSG_MAX_MEMBERS = 4096,
    MSG_MAX_REPLICAS = 256,   /* of one worker */
    MSG_MAX_TOKENS = 1 << 20, /* prompt + log of one submit */
    MSG_MAX_STOP_IDS = 64,
    MSG_HOST_BYTES = 64,
    MSG_RACK_BYTES = 64,
    MSG_TEXT_BYTES = 512,
    MSG_MODEL_NAME_BYTES = 128,
    MSG_SETTINGS_BYTES = 512,
};

enum member_role { ROLE_SCHEDULER = 1, ROLE_STANDBY = 2, ROLE_ROUTER = 3, ROLE_WORKER = 4 };
const char *role_name(int role); /* "scheduler", "standby", "router", "worker" */

/* --- world ----------------------------------------------------------------------------------------------- */
struct msg_register {
    uint32_t member;
    uint64_t incarnation;
    uint8_t role;
    char host[MSG_HOST_BYTES], rack[MSG_RACK_BYTES], zone[MSG_RACK_BYTES];
    char build[48];
    uint32_t n_cores;       /* allowed cores */
    uint64_t memory_bytes;  /* of the node, available to us */
    uint32_t n_devices;     /* 0: CPU only */
    uint32_t n_digests;     /* images in the node's cache */
    const uint8_t *digests; /* [n_digests][32] */
    uint32_t address_bytes;
    const uint8_t *address; /* plane address */
    uint32_t url_bytes;
    const char *url; /* routers: "http://host:port"; not NUL-terminated */
};
void msg_register_put(struct buf *b, const struct msg_register *m);
int msg_register_get(struct msg_register *m, const void *p, size_t n, struct err *e);

/* MSG_ROSTER: u32 n, then n registers (digests left out). The getter walks: call msg_roster_begin, then msg_roster_next until 0. */
void msg_roster_begin_put(struct buf *b, uint32_t n);
int msg_roster_begin(struct rd *r, const void *p, size_t n, uint32_t *count, struct err *e);
int msg_roster_next(struct rd *r, struct msg_register *m, struct err *e);

struct msg_phase { /* BARRIER and RELEASE */
    uint32_t member;
    uint32_t phase;
};
void msg_phase_put(struct buf *b, const struct msg_phase *m);
int msg_phase_get(struct msg_phase *m, const void *p, size_t n, struct err *e);

struct msg_text { /* ABORT (code is an err_code), STOP (value = grace_ms), ENGINE_FAILED */
    int32_t code;
    uint64_t value;
    char text[MSG_TEXT_BYTES];
};
void msg_text_put(struct buf *b, const struct msg_text *m);
int msg_text_get(struct msg_text *m, const void *p, size_t n, struct err *e);

/* --- health ---------------------------------------------------------------------------------------------- */
enum replica_state {
    REPLICA_LOADING = 1,
    REPLICA_WARMING = 2,
    REPLICA_READY = 3, /* a real completion came out of it */
    REPLICA_DRAINING = 4,
    REPLICA_FAILED = 5, /* engine gone; the worker will restart it after back-off */
    REPLICA_BROKEN = 6, /* the breaker opened: gave up after several deaths */
};
const char *replica_state_name(int state);

struct replica_load {
    uint32_t deployment, replica;
    uint64_t epoch;
    uint32_t incarnation; /* engine starts under this epoch */
    uint8_t state;        /* enum replica_state */
    uint32_t n_active, n_queued, n_slots;
    uint32_t kv_free_tokens, kv_total_tokens;
    uint32_t step_us; /* last step's time */
    uint64_t n_steps, n_tokens;
    /* Since the engine's start: what half of the steps and 99 of 100 stayed under, rows computed for prompts, their tokens that did not
     * have to be computed, requests that had to give way for a while, speculated tokens and those of them that held. */
    uint32_t step_p50_us, step_p99_us;
    uint64_t n_prefill, n_reused, n_preempted, n_drafted, n_draft_held;
};
struct msg_heartbeat {
    uint32_t member;
    uint64_t incarnation;
    uint64_t seq;
    bool draining;
    uint64_t memory_free_bytes;
    uint32_t n_replicas;
    struct replica_load replicas[MSG_MAX_REPLICAS];
};
void msg_heartbeat_put(struct buf *b, const struct msg_heartbeat *m);
int msg_heartbeat_get(struct msg_heartbeat *m, const void *p, size_t n, struct err *e);
/* MSG_HEARTBEATS: u32 leader, u32 n, then n blobs, each heartbeat bytes (changed) or 20 bytes member, incarnation, seq (alive, unchanged). */
void msg_heartbeats_begin_put(struct buf *b, uint32_t leader, uint32_t n);
void msg_heartbeats_alive_put(struct buf *b, uint32_t member, uint64_t incarnation, uint64_t seq);
void msg_heartbeats_full_put(struct buf *b, const struct msg_heartbeat *m);
int msg_heartbeats_begin(struct rd *r, const void *p, size_t n, uint32_t *leader, uint32_t *count,
                         struct err *e);
/* *full says whether m is whole or only member, incarnation, seq. */
int msg_heartbeats_next(struct rd *r, struct msg_heartbeat *m, bool *full, struct err *e);

/* --- work ------------------------------------------------------------------------------------------------ */
struct msg_assign { /* also UNASSIGN, where only deployment, replica and epoch count */
    uint32_t deployment;
    uint32_t version;
    uint32_t replica;
    uint64_t epoch;
    uint32_t shard, n_shards; /* n_shards = tp * pp; shard = stage * tp + its place in the stage */
    uint32_t tp;              /* shards that share each layer; 0: 1 */
    uint8_t digest[SHA256_BYTES];
    char engine[16];                   /* "cpu" */
    uint32_t n_ctx;                    /* tokens of context a request may use */
    uint32_t n_slots;                  /* requests at once */
    uint32_t n_threads;                /* 0: the worker's share */
    char settings[MSG_SETTINGS_BYTES]; /* engine/settings.h */
    uint32_t n_peers;
    const uint8_t *peers; /* [n_peers] u32 members, little-endian: which worker runs shard i */
};
void msg_assign_put(struct buf *b, const struct msg_assign *m);
int msg_assign_get(struct msg_assign *m, const void *p, size_t n, struct err *e);

/* What one shard of a replica says to another. `gang` counts the starts of the replica's shards together: bytes of an earlier start are dropped. */
struct shard_name {
    uint32_t deployment, replica;
    uint64_t epoch, gang;
};
struct msg_shard {
    struct shard_name name;
    uint32_t from, to; /* shards */
    uint64_t at;       /* bytes sent from `from` to `to` before these */
    uint32_t n_bytes;
    const uint8_t *bytes; /* at most MSG_MAX_SHARD_BYTES */
};
enum { MSG_MAX_SHARD_BYTES = 1 << 20 };
void msg_shard_put(struct buf *b, const struct msg_shard *m);
int msg_shard_get(struct msg_shard *m, const void *p, size_t n, struct err *e);

/* Shard 0's worker leads a gang: it starts all shards once every other worker says that its shard can start, and when one has ended it
 * ends all and starts them again. */
enum gang_word {
    GANG_START = 1, /* leader → `shard`: start as `gang` */
    GANG_END = 2,   /* `shard` of `gang` ended, or is to end: the others too. text: why */
    GANG_HERE =
        3, /* `shard` → leader: no process of mine runs, I can start (said again and again while it is so) */
};
struct msg_gang {
    struct shard_name name;
    uint8_t word;   /* enum gang_word */
    uint32_t shard; /* START: whom it is for; END, HERE: who says it */
    char text[MSG_TEXT_BYTES];
};
void msg_gang_put(struct buf *b, const struct msg_gang *m);
int msg_gang_get(struct msg_gang *m, const void *p, size_t n, struct err *e);

enum service_state {
    SERVICE_STARTING = 1,
    SERVICE_DEGRADED = 2, /* start deadline passed, at least min_replicas are ready */
    SERVICE_READY = 3,
    SERVICE_DRAINING = 4,
    SERVICE_FAILED = 5,
    SERVICE_STOPPED = 6,
};
const char *service_state_name(int state); /* "STARTING", … */

struct msg_service {
    uint8_t state;
    uint64_t job_end_wall_s; /* 0: unknown */
    uint32_t n_ready, n_wanted, n_min;
    char progress[MSG_TEXT_BYTES]; /* one sentence: what is awaited */
};
void msg_service_put(struct buf *b, const struct msg_service *m);
int msg_service_get(struct msg_service *m, const void *p, size_t n, struct err *e);

struct msg_model {
    uint32_t deployment, version;
    char name[MSG_MODEL_NAME_BYTES]; /* as clients write it */
    uint32_t n_ctx;
    uint32_t index_bytes, meta_bytes;
    const uint8_t *index, *meta; /* index_encode, meta_encode */
};
void msg_model_put(struct buf *b, const struct msg_model *m);
int msg_model_get(struct msg_model *m, const void *p, size_t n, struct err *e);

/* --- weights --------------------------------------------------------------------------------------------- */
struct msg_have {
    uint32_t member;
    uint32_t round; /* 0: before any */
    uint8_t digest[SHA256_BYTES];
    int32_t code; /* 0 or err_code: this node cannot go on */
    char text[MSG_TEXT_BYTES];
    uint32_t n_segments;
    const uint8_t *bits; /* [ceil(n_segments/8)] */
};
void msg_have_put(struct buf *b, const struct msg_have *m);
int msg_have_get(struct msg_have *m, const void *p, size_t n, struct err *e);

struct msg_round {
    uint32_t round;
    uint8_t digest[SHA256_BYTES];
    char pack_path[1024];
    uint32_t n_members;
    const uint8_t *members; /* [n_members] u32 member, u32 rack number */
    uint32_t n_segments;
    const uint8_t *missing; /* bits: sent in this round */
    uint32_t n_tensors;
    const uint8_t *file_offsets; /* [n_tensors] u64: where tensors lie in the pack file */
};
void msg_round_put(struct buf *b, const struct msg_round *m);
int msg_round_get(struct msg_round *m, const void *p, size_t n, struct err *e);

struct msg_weights {
    uint8_t digest[SHA256_BYTES];
    int32_t code; /* 0: complete */
    char text[MSG_TEXT_BYTES];
};
void msg_weights_put(struct buf *b, const struct msg_weights *m);
int msg_weights_get(struct msg_weights *m, const void *p, size_t n, struct err *e);

/* --- requests -------------------------------------------------------------------------------------------- */
/* An attempt is named by its router. Every attempt (replay, hedge, each choice of n) has a new generation, so no late frame can
 * reach another client. */
struct attempt {
    uint32_t router;     /* member id */
    uint32_t router_inc; /* low half of the router's incarnation */
    uint32_t slot;
    uint32_t generation;
};

/* 0 is off (or the neutral value) everywhere but where said otherwise. Definitions: engine/sampler.h. All floats are finite. */
struct sampling {
    float temperature; /* 0: greedy */
    float top_p;       /* 0 or 1: off */
    uint32_t top_k;
    uint64_t seed; /* randomness is a function of (seed, position) */
    float min_p, typical_p;
    float repetition_penalty;                  /* 0 or 1: off */
    float frequency_penalty, presence_penalty; /* may be negative */
    uint32_t min_tokens;                       /* no end-of-generation id before so many tokens */
    bool want_logprobs;                        /* each token comes with its log-probability … */
    uint8_t n_top; /* … and those of so many best, at most MSG_MAX_TOP_LOGPROBS */
    /* The same for the prompt's tokens, once, before the first token (echo). Of a replay: of none. */
    bool want_prompt_logprobs;
};
enum { MSG_MAX_TOP_LOGPROBS = 20, MSG_MAX_BIAS = 1024, MSG_MAX_CONSTRAINT_BYTES = 1 << 20 };

enum submit_kind { SUBMIT_GENERATE = 0, SUBMIT_EMBED = 1 };
/* What the output must be; its source text travels with the request and is compiled (and cached) by router and engine alike. */
enum constraint_kind {
    CONSTRAINT_NONE = 0,
    CONSTRAINT_JSON_OBJECT = 1, /* no source */
    CONSTRAINT_JSON_SCHEMA = 2,
    CONSTRAINT_REGEX = 3,
    CONSTRAINT_CHOICE = 4, /* JSON array of strings */
    CONSTRAINT_GBNF = 5,
};

struct msg_submit {
    struct attempt attempt;
    uint32_t deployment, replica;
    uint64_t epoch;
    uint8_t kind;     /* enum submit_kind */
    uint8_t priority; /* 0 … 255, higher first; 128: usual */
    uint32_t
        tenant; /* fairness is between tenants; 0: the common one. Also keys the prefix cache */
    struct sampling sampling;
    uint32_t max_tokens; /* position limit: tokens generated in all, log included */
    uint32_t
        start; /* tokens of the log already generated: next position is `start` (0 for a new request) */
    uint32_t ttft_ms, total_ms; /* deadlines from receipt; 0: none */
    bool ignore_eos;
    uint32_t n_stop_ids;
    const uint8_t *stop_ids; /* [n_stop_ids] u32: end-of-generation ids */
    uint32_t n_bias;
    const uint8_t *bias; /* [n_bias] u32 id, f32 added to its logit, finite */
    uint8_t constraint;  /* enum constraint_kind */
    uint32_t constraint_bytes;
    const char *constraint_source; /* UTF-8, not NUL-terminated */
    uint32_t n_tokens;             /* prompt + log */
    const uint8_t *tokens;         /* [n_tokens] u32 */
};
enum { MSG_SUBMIT_FIXED_BYTES = 256 }; /* at least what is neither ids, bias nor source */
void msg_submit_put(struct buf *b, const struct msg_submit *m);
int msg_submit_get(struct msg_submit *m, const void *p, size_t n, struct err *e);

struct msg_cancel {
    struct attempt attempt;
    uint32_t deployment, replica;
};
void msg_cancel_put(struct buf *b, const struct msg_cancel *m);
int msg_cancel_get(struct msg_cancel *m, const void *p, size_t n, struct err *e);

enum finish {
    FINISH_NONE = 0,
    FINISH_STOP = 1,   /* an end-of-generation id was drawn (it is among the tokens) */
    FINISH_LENGTH = 2, /* max_tokens or the context is full */
    FINISH_CANCELED = 3,
    FINISH_DEADLINE = 4,
    FINISH_ERROR = 5, /* extension EXT_ERROR has the text */
    FINISH_REFUSED =
        6, /* not started (no slot, wrong epoch, draining): another replica may take it */
};
/* Extensions of a step entry. One entry carries one; prompt log-probabilities come in entries without tokens before the first token. */
enum step_ext {
    EXT_NONE = 0,
    EXT_ERROR = 1,           /* msg_text: code and text */
    EXT_LOGPROBS = 2,        /* msg_logprobs of the entry's tokens */
    EXT_PROMPT_LOGPROBS = 3, /* msg_logprobs of prompt tokens `first` … */
    EXT_EMBEDDING = 4,       /* msg_embedding: the vector of a SUBMIT_EMBED, with FINISH_STOP */
};

struct token_logprob {
    uint32_t id;
    float
        logprob; /* natural, of the unmodified distribution, as OpenAI gives it; finite, at most 0 */
};
struct msg_logprob { /* of one token */
    float logprob;
    uint32_t rank; /* tokens that were more likely; 0: the best */
    uint32_t n_top;
    struct token_logprob top[MSG_MAX_TOP_LOGPROBS]; /* best first */
};
/* EXT_LOGPROBS, EXT_PROMPT_LOGPROBS: first is the index of the first token, in the answer or in the prompt. Write `n` items behind
 * the head. The getter walks: msg_logprobs_begin checks all, then msg_logprobs_next `count` times. */
enum { MSG_LOGPROB_MAX_BYTES = 4 + 4 + 1 + 8 * MSG_MAX_TOP_LOGPROBS, MSG_LOGPROBS_PER_EXT = 512 };
void msg_logprobs_begin_put(struct buf *b, uint32_t first, uint32_t n);
void msg_logprob_put(struct buf *b, float logprob, uint32_t rank, uint32_t n_top,
                     const struct token_logprob *top);
int msg_logprobs_begin(struct rd *r, const void *p, size_t n, uint32_t *first, uint32_t *count,
                       struct err *e);
int msg_logprobs_next(struct rd *r, struct msg_logprob *m, struct err *e);

struct msg_embedding {
    uint32_t n;
    const uint8_t *values; /* [n] f32, finite */
};
enum { MSG_MAX_EMBEDDING = 32767 };
void msg_embedding_put(struct buf *b, const float *values, uint32_t n);
int msg_embedding_get(struct msg_embedding *m, const void *p, size_t n, struct err *e);

struct step_entry {
    struct attempt attempt;
    uint32_t position; /* of the first token: tokens generated before it */
    uint16_t n_tokens;
    uint8_t finish;        /* enum finish */
    const uint8_t *tokens; /* [n_tokens] u32 */
    uint16_t ext_type;     /* enum step_ext */
    uint32_t ext_bytes;
    const uint8_t *ext;
};
struct step_section { /* the entries of one replica's step, or of several steps merged */
    uint32_t deployment, replica;
    uint64_t epoch;
    uint64_t step;
    uint32_t n_entries;
};
/* MSG_STEPS body: sections one after another to the end. */
void msg_section_put(struct buf *b,
                     const struct step_section *s); /* n_entries is patched by msg_section_patch */
void msg_section_patch(struct buf *b, size_t section_at,
                       uint32_t n_entries); /* section_at: b->len before msg_section_put */
void msg_entry_put(struct buf *b, const struct step_entry *s);
int msg_section_get(struct rd *r, struct step_section *s, struct err *e);
int msg_entry_get(struct rd *r, struct step_entry *s, struct err *e);

struct msg_engine_ready {
    uint32_t n_slots, n_ctx, kv_total_tokens, n_threads;
    uint64_t load_us, warm_us, memory_bytes;
    char kernels[32];               /* "avx2" */
    uint8_t numerics[SHA256_BYTES]; /* design.md 4: hash of kernel revision, set, formats, TP, PP */
};
void msg_engine_ready_put(struct buf *b, const struct msg_engine_ready *m);
int msg_engine_ready_get(struct msg_engine_ready *m, const void *p, size_t n, struct err *e);

/* u32 array helpers: elements of a [n] u32 little-endian byte array. */
static inline uint32_t u32_at(const uint8_t *p, size_t i)
{
    p += 4 * i;
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline float f32_at(const uint8_t *p, size_t i)
{
    uint32_t bits = u32_at(p, i);
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

#endif
