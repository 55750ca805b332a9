/* config_parse_test.c - serve.yaml: what is accepted and meant, and one clear sentence with the line for each fault. */
#include "base/buf.h"
#include "base/file.h"
#include "config/config.h"
#include "config/options.h"
#include "config/walltime.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/stat.h>
/* cmocka needs these before it */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define M "models:\n  - pack: a.h5\n" /* two lines: what every file needs */

struct fault {
    const char *yaml;
    unsigned line;
    const char *words[3]; /* all must be in the message */
};

static const struct fault FAULTS[] = {
    /* shape of the text */
    {"", 1, {"nothing is configured"}},
    {"# only a comment\n", 1, {"nothing is configured"}},
    {"- a\n- b\n", 1, {"key: value"}},
    {"just words\n", 1, {"key: value"}},
    {"a: b: c\n", 1, {"not valid YAML"}},
    {M "name: \"open\n", 4, {"not valid YAML"}},
    {M "name: {\n", 4, {"not valid YAML"}},
    {M "slurm:\n\tnodes: 1\n", 4, {"not valid YAML"}},
    {M "name: a\xff\n", 3, {"not valid YAML"}},
    {M "name: a\x01\n", 3, {"not valid YAML"}},
    {M "name: \"a\\0b\"\n", 3, {"NUL"}},
    {M "---\nname: x\n", 3, {"second document"}},
    {M "name: &n x\n", 3, {"anchors"}},
    {M "name: *n\n", 3, {"aliases"}},
    {M "name: !!str x\n", 3, {"tags"}},
    {"models: &m\n  - pack: a.h5\n", 1, {"anchors"}},
    {M "name: x\nname: y\n", 4, {"\"name\"", "given before", "line 3"}},
    {M "slurm: {nodes: 1,\n  nodes: 2}\n", 4, {"\"nodes\"", "given before"}},
    {M "? [a]\n: b\n", 3, {"key must be a word"}},
    {M "\"a b\": 1\n", 3, {"key must be a word"}},
    {M "a.b: 1\n", 3, {"key must be a word"}},
    {M "slurm: {a: {b: {c: {d: {e: {f: {g: {h: 1}}}}}}}}\n", 3, {"nested deeper"}},
    /* unknown keys */
    {M "nmae: x\n", 3, {"unknown key \"nmae\"", "did you mean \"name\"?"}},
    {"modles:\n  - pack: a.h5\n", 1, {"unknown key \"modles\"", "\"models\""}},
    {"models:\n  - pack: a.h5\n    replcas: 3\n",
     3,
     {"unknown key \"replcas\" in models[0]", "\"replicas\""}},
    {M "slurm:\n  node: 2\n", 4, {"unknown key \"node\" in slurm", "\"nodes\""}},
    {M "limits:\n  bodybytes: 1\n", 4, {"in limits", "\"body_bytes\""}},
    {M "heartbeat:\n  intervall_ms: 1\n", 4, {"\"interval_ms\""}},
    {M "nodes: 4\n", 3, {"unknown key \"nodes\"", "\"slurm.nodes\""}},
    {M "slurm:\n  name: x\n", 4, {"unknown key \"name\" in slurm"}},
    {M "zebra: 1\n", 3, {"unknown key \"zebra\""}},
    {M "<<: 1\n", 3, {"unknown key"}},
    {M "slurm:\n  nodes: 1\n  exclusiv: no\n", 5, {"\"exclusive\""}},
    /* missing */
    {"name: x\n", 1, {"models is missing"}},
    {"name: x\nmodels:\n  - name: y\n", 3, {"models[0].pack is missing"}},
    {"models: []\n", 1, {"models must have exactly 1 entry, and has 0"}},
    {"models:\n  - pack: a.h5\n  - pack: b.h5\n", 1, {"exactly 1 entry, and has 2"}},
    {"models:\n", 1, {"models has no value", "list of models"}},
    {"models:\n  - a.h5\n", 2, {"models[0] must be a mapping"}},
    {"models:\n  pack: a.h5\n", 1, {"models must be a list of models, and is a mapping"}},
    {"models: a.h5\n", 1, {"list of models"}},
    {"models:\n  - pack:\n", 2, {"models[0].pack has no value"}},
    {"models:\n  - pack: \"\"\n", 2, {"models[0].pack must have 1 to 1000 bytes"}},
    {"models:\n  - pack: ~\n", 2, {"no value"}},
    {"models:\n  - pack: [a.h5]\n", 2, {"single value, and is a list"}},
    {"models:\n  - pack: \"a\\nb\"\n", 2, {"control characters", "a?b"}},
    /* values of a model */
    {"models:\n  - pack: a.h5\n    name: two words\n", 3, {"word without spaces"}},
    {"models:\n  - pack: a.h5\n    replicas: 0\n", 3, {"\"fill\" or a whole number from 1"}},
    {"models:\n  - pack: a.h5\n    replicas: full\n", 3, {"\"fill\"", "and is \"full\""}},
    {"models:\n  - pack: a.h5\n    replicas: -1\n", 3, {"\"-1\""}},
    {"models:\n  - pack: a.h5\n    replicas: 99999999999999999999999\n", 3, {"whole number"}},
    {"models:\n  - pack: a.h5\n    replicas: 2\n    min_replicas: 3\n",
     4,
     {"min_replicas must not be more than replicas (2), and is 3"}},
    {"models:\n  - pack: a.h5\n    engine: cpuu\n", 3, {"engine must be \"cpu\"", "mean \"cpu\""}},
    {"models:\n  - pack: a.h5\n    engine: vllm\n", 3, {"engine must be \"cpu\""}},
    {"models:\n  - pack: a.h5\n    context: 8\n", 3, {"at least 16"}},
    {"models:\n  - pack: a.h5\n    context: 4k\n", 3, {"whole number", "tokens", "\"4k\""}},
    {"models:\n  - pack: a.h5\n    slots: 0\n", 3, {"from 1 to 256"}},
    {"models:\n  - pack: a.h5\n    slots: 257\n", 3, {"from 1 to 256"}},
    {"models:\n  - pack: a.h5\n    step_timeout: 0\n", 3, {"step_timeout", "1 to 3600 s"}},
    {"models:\n  - pack: a.h5\n    tensor_parallel: 0\n", 3, {"tensor_parallel", "1 to 16"}},
    {"models:\n  - pack: a.h5\n    tensor_parallel: 8\n    pipeline_parallel: 4\n",
     4,
     {"pipeline_parallel times tensor_parallel (8)", "at most 16, and is 32"}},
    {"models:\n  - pack: a.h5\n    threads: 1.5\n", 3, {"whole number", "\"1.5\""}},
    {"models:\n  - pack: a.h5\n    kv_type: q4\n", 3, {"models[0].kv_type", "\"q8\""}},
    {"models:\n  - pack: a.h5\n    memory_fraction: 1.1\n", 3, {"0.01 to 1", "\"1.1\""}},
    {"models:\n  - pack: a.h5\n    memory_fraction: half\n", 3, {"0.01 to 1", "\"half\""}},
    {"models:\n  - pack: a.h5\n    token_budget: 5000\n", 3, {"0 to 4096", "\"5000\""}},
    {"models:\n  - pack: a.h5\n    speculation: lookups\n", 3, {"did you mean \"lookup\""}},
    {"models:\n  - pack: a.h5\n    speculation: draft\n", 3, {"no draft model is named"}},
    {"models:\n  - pack: a.h5\n    prefix_cach: true\n", 3, {"prefix_cache"}},
    /* slurm */
    {M "slurm: 3\n", 3, {"slurm must be a mapping of further keys"}},
    {M "slurm:\n", 3, {"slurm has no value"}},
    {M "slurm: []\n", 3, {"slurm must be a mapping", "is a list"}},
    {M "slurm:\n  nodes: 0\n", 4, {"slurm.nodes", "1 to 4096"}},
    {M "slurm:\n  nodes: -2\n", 4, {"\"-2\""}},
    {M "slurm:\n  nodes: 4097\n", 4, {"1 to 4096"}},
    {M "slurm:\n  nodes: 08\n", 4, {"\"08\""}},
    {M "slurm:\n  nodes: 0x8\n", 4, {"\"0x8\""}},
    {M "slurm:\n  nodes: \"8\"\n", 4, {"whole number"}},
    {M "slurm:\n  nodes: [8]\n", 4, {"single value, and is a list"}},
    {M "slurm:\n  nodes: {a: 1}\n", 4, {"slurm.nodes must be a single value"}},
    {M "slurm:\n  time: soon\n", 4, {"Slurm time", "\"soon\""}},
    {M "slurm:\n  time: 1:2:3:4\n", 4, {"Slurm time"}},
    {M "slurm:\n  time: 0\n", 4, {"Slurm time"}},
    {M "slurm:\n  time: 1h\n", 4, {"Slurm time"}},
    {M "slurm:\n  time: \"1:00:00 \"\n", 4, {"Slurm time"}},
    {M "slurm:\n  partition: a b\n", 4, {"slurm.partition", "without spaces"}},
    {M "slurm:\n  account: \"\"\n", 4, {"slurm.account", "1 to 255 bytes"}},
    {M "slurm:\n  exclusive: flase\n", 4, {"true or false", "\"flase\""}},
    {M "slurm:\n  exclusive: 1\n", 4, {"true or false"}},
    {M "slurm:\n  sbatch_args: --x\n", 4, {"sbatch_args must be a list"}},
    {M "slurm:\n  sbatch_args:\n    - --x=1\n    - y\n", 6, {"sbatch_args[1]", "--option=value"}},
    {M "slurm:\n  sbatch_args:\n    - [a]\n", 5, {"sbatch_args[0] must be a single value"}},
    {M "slurm:\n  sbatch_args:\n    - --wrap=true\n", 5, {"one ordinary job"}},
    {M "slurm:\n  sbatch_args: [-a1-3]\n", 4, {"one ordinary job"}},
    /* shape and service */
    {M "control: sharde\n", 3, {"\"shared\" or \"dedicated\"", "did you mean \"shared\"?"}},
    {M "control: 1\n", 3, {"\"shared\" or \"dedicated\""}},
    {M "routers: 65\n", 3, {"0 to 64"}},
    {M "standbys: maybe\n", 3, {"true or false"}},
    {M "port: 65536\n", 3, {"0 to 65535", "\"65536\""}},
    {M "port: http\n", 3, {"whole number"}},
    {M "listen: localhost\n", 3, {"IP address", "\"localhost\""}},
    {M "listen: 1.2.3\n", 3, {"IP address"}},
    {M "name: -x\n", 3, {"beginning with a letter"}},
    {M "name: a/b\n", 3, {"name must be letters"}},
    {M "name: [a, b]\n", 3, {"single value"}},
    {M "start_deadline: 5\n", 3, {"10 to 86400 s"}},
    {M "grace: 1m\n", 3, {"0 to 3600 s"}},
    {M "slurm:\n  time: 1\ngrace: 60\n", 5, {"grace (60 s)", "slurm.time (60 s)"}},
    {M "limits:\n  body_bytes: 10\n", 4, {"1024 to"}},
    {M "limits:\n  connections: 0\n", 4, {"limits.connections"}},
    {M "limits:\n  header_timeout: 100\n  request_timeout: 50\n", 4, {"limits.header_timeout"}},
    {M "limits:\n  idle_timeout: 0\n", 4, {"limits.idle_timeout"}},
    {M "heartbeat:\n  interval_ms: 5\n", 4, {"50 to 60000 ms"}},
    {M "heartbeat:\n  missed: 0\n", 4, {"heartbeat.missed"}},
    {M "cache:\n  bytes: 9223372036854775808\n", 4, {"cache.bytes"}},
    {M "cache:\n  bytes: 1GiB\n", 4, {"whole number", "\"1GiB\""}},
};

static void faults_have_line_and_reason(void **state)
{
    unsigned bad = 0;
    for (size_t i = 0; i < sizeof FAULTS / sizeof FAULTS[0]; i++) {
        const struct fault *f = &FAULTS[i];
        struct config *c = NULL;
        struct err e = ERR_INIT;
        int rc = config_parse(&c, f->yaml, strlen(f->yaml), "x.yaml", &e);
        char where[32];
        snprintf(where, sizeof where, "x.yaml:%u: ", f->line);
        bool ok = rc == ERR_CONFIG && e.code == rc && strncmp(e.text, where, strlen(where)) == 0 &&
                  !strchr(e.text, '\n') && !c;
        for (size_t w = 0; w < 3 && f->words[w]; w++)
            ok = ok && strstr(e.text, f->words[w]);
        if (!ok)
            fprintf(stderr, "--- %zu: %s\n=> %d %s (want line %u, \"%s\")\n", i, f->yaml, rc,
                    e.text, f->line, f->words[0]);
        bad += !ok;
        config_free(c);
    }
    assert_int_equal(bad, 0);
}

static struct config *parsed(const char *yaml)
{
    struct config *c = NULL;
    struct err e = ERR_INIT;
    if (config_parse(&c, yaml, strlen(yaml), "x.yaml", &e))
        fail_msg("%s", e.text);
    return c;
}

static void defaults(void **state)
{
    struct config *c = parsed(M);
    assert_string_equal(c->name, "exaserve");
    assert_int_equal(c->models_count, 1);
    assert_null(c->models[0].name);
    assert_string_equal(c->models[0].pack, "a.h5");
    assert_int_equal(c->models[0].replicas, 0);
    assert_int_equal(c->models[0].min_replicas, 0);
    assert_string_equal(c->models[0].engine, "cpu");
    assert_int_equal(c->models[0].context, 0);
    assert_int_equal(c->models[0].slots, 8);
    assert_int_equal(c->models[0].threads, 0);
    assert_int_equal(c->models[0].step_timeout_s, 60);
    assert_int_equal(c->models[0].tensor_parallel, 1);
    assert_int_equal(c->models[0].pipeline_parallel, 1);
    assert_int_equal(c->models[0].shards_per_node, 0);
    assert_int_equal(c->nodes, 1);
    assert_null(c->time);
    assert_null(c->partition);
    assert_true(c->exclusive);
    assert_int_equal(c->sbatch_args_count, 0);
    assert_int_equal(c->control, CONTROL_SHARED);
    assert_int_equal(c->routers, 0);
    assert_true(c->standbys);
    assert_int_equal(c->port, 0);
    assert_string_equal(c->listen, "0.0.0.0");
    assert_int_equal(c->start_deadline_s, 900);
    assert_int_equal(c->grace_s, 30);
    assert_int_equal(c->max_body_bytes, 8 << 20);
    assert_int_equal(c->max_connections, 4096);
    assert_int_equal(c->header_timeout_s, 15);
    assert_int_equal(c->idle_timeout_s, 75);
    assert_int_equal(c->request_timeout_s, 600);
    assert_int_equal(c->heartbeat_ms, 1000);
    assert_int_equal(c->missed_heartbeats, 3);
    assert_int_equal(c->cache_bytes, 0);
    config_free(c);
}

static const char FULL[] =
    "name: svc-1\n"
    "models:\n"
    "  - {name: org/model, pack: /p/a.h5, replicas: 12, min_replicas: 3, engine: cpu,\n"
    "     context: 2048, slots: 4, threads: 2, step_timeout: 7,\n"
    "     tensor_parallel: 4, pipeline_parallel: 2, shards_per_node: 2}\n"
    "slurm: {nodes: 8, time: 1-02:03:04, partition: p, account: a, qos: q, reservation: r,\n"
    "  constraint: \"x|y\", exclusive: off, sbatch_args: [--mem=0, \"--comment=two words\"]}\n"
    "control: dedicated\nrouters: 3\nstandbys: no\nport: 65535\nlisten: \"::1\"\n"
    "start_deadline: 60\ngrace: 0\n"
    "limits: {body_bytes: 2048, connections: 7, header_timeout: 1, idle_timeout: 2, "
    "request_timeout: 3}\n"
    "heartbeat: {interval_ms: 200, missed: 5}\ncache: {bytes: 9223372036854775807}\n";

static void full_is(const struct config *c)
{
    assert_string_equal(c->name, "svc-1");
    assert_string_equal(c->models[0].name, "org/model");
    assert_string_equal(c->models[0].pack, "/p/a.h5");
    assert_int_equal(c->models[0].replicas, 12);
    assert_int_equal(c->models[0].min_replicas, 3);
    assert_int_equal(c->models[0].context, 2048);
    assert_int_equal(c->models[0].slots, 4);
    assert_int_equal(c->models[0].threads, 2);
    assert_int_equal(c->models[0].step_timeout_s, 7);
    assert_int_equal(c->models[0].tensor_parallel, 4);
    assert_int_equal(c->models[0].pipeline_parallel, 2);
    assert_int_equal(c->models[0].shards_per_node, 2);
    assert_int_equal(c->nodes, 8);
    assert_string_equal(c->time, "1-02:03:04");
    assert_string_equal(c->partition, "p");
    assert_string_equal(c->account, "a");
    assert_string_equal(c->qos, "q");
    assert_string_equal(c->reservation, "r");
    assert_string_equal(c->constraint, "x|y");
    assert_false(c->exclusive);
    assert_int_equal(c->sbatch_args_count, 2);
    assert_string_equal(c->sbatch_args[0], "--mem=0");
    assert_string_equal(c->sbatch_args[1], "--comment=two words");
    assert_int_equal(c->control, CONTROL_DEDICATED);
    assert_int_equal(c->routers, 3);
    assert_false(c->standbys);
    assert_int_equal(c->port, 65535);
    assert_string_equal(c->listen, "::1");
    assert_int_equal(c->start_deadline_s, 60);
    assert_int_equal(c->grace_s, 0);
    assert_int_equal(c->max_body_bytes, 2048);
    assert_int_equal(c->max_connections, 7);
    assert_int_equal(c->header_timeout_s, 1);
    assert_int_equal(c->idle_timeout_s, 2);
    assert_int_equal(c->request_timeout_s, 3);
    assert_int_equal(c->heartbeat_ms, 200);
    assert_int_equal(c->missed_heartbeats, 5);
    assert_int_equal(c->cache_bytes, INT64_MAX);
}

static void every_key_arrives(void **state)
{
    struct config *c = parsed(FULL);
    full_is(c);
    config_free(c);
}

static void dump_reads_back(void **state)
{
    const char *const TEXTS[] = {FULL, M};
    for (size_t i = 0; i < 2; i++) {
        struct config *c = parsed(TEXTS[i]);
        char *one = NULL, *two = NULL;
        assert_int_equal(config_dump(c, &one, NULL), 0);
        config_free(c);
        c = parsed(one);
        if (i == 0)
            full_is(c);
        assert_int_equal(config_dump(c, &two, NULL), 0);
        assert_string_equal(one, two);
        config_free(c);
        free(one);
        free(two);
    }
}

static void booleans(void **state)
{
    static const struct {
        const char *yaml;
        bool want;
    } ROWS[] = {{M "standbys: true\n", true}, {M "standbys: Yes\n", true},
                {M "standbys: ON\n", true},   {M "standbys: false\n", false},
                {M "standbys: No\n", false},  {M "standbys: OFF\n", false}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        struct config *c = parsed(ROWS[i].yaml);
        assert_int_equal(c->standbys, ROWS[i].want);
        config_free(c);
    }
}

static void too_large_or_too_much(void **state)
{
    struct buf b;
    buf_init(&b, 4 << 20);
    buf_puts(&b, M "#");
    while (b.len <= 1 << 20)
        buf_puts(&b, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    struct config *c = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(config_parse(&c, buf_cstr(&b), b.len, "x.yaml", &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "larger than 1048576 bytes"));
    buf_reset(&b);
    buf_puts(&b, M "slurm:\n  sbatch_args:\n");
    for (int i = 0; i < 5000; i++)
        buf_puts(&b, "    - --a\n");
    assert_int_equal(config_parse(&c, buf_cstr(&b), b.len, "x.yaml", &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "more than 4096 entries"));
    buf_reset(&b);
    for (int i = 0; i < 100000; i++)
        buf_puts(&b, "[");
    assert_int_equal(config_parse(&c, buf_cstr(&b), b.len, "x.yaml", &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "nested deeper"));
    buf_fini(&b);
}

static void path_make(char *out, size_t cap, const char *name)
{
    snprintf(out, cap, "/tmp/exa-config-test-%d-%s", (int)getpid(), name);
}

static void relative_pack_begins_at_the_file(void **state)
{
    char path[128];
    path_make(path, sizeof path, "a.yaml");
    static const char TEXT[] = "models:\n  - pack: sub/a.h5\nrouters: 2\n";
    assert_int_equal(file_publish(path, TEXT, sizeof TEXT - 1, 0600, NULL), 0);
    struct config *c = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(config_load(&c, path, &e), 0);
    assert_string_equal(c->models[0].pack, "/tmp/sub/a.h5");
    config_free(c);
    /* a job of one node cannot hold two routers; one of two can */
    c = NULL;
    assert_int_equal(config_load_for(&c, path, 0, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "a.yaml:3: routers"));
    assert_int_equal(config_load_for(&c, path, 2, &e), 0);
    config_free(c);
    unlink(path);
    assert_int_equal(config_load(&c, path, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, path));
}

/* The documents say what the table says. EXASERVE_UPDATE=1 writes docs/configuration.md anew. */
static void documents_match(void **state)
{
    struct buf want, have;
    buf_init(&want, 1 << 20);
    buf_init(&have, 1 << 20);
    option_describe(&want);
    if (getenv("EXASERVE_UPDATE"))
        assert_int_equal(file_publish("docs/configuration.md", want.data, want.len, 0644, NULL), 0);
    struct err e = ERR_INIT;
    if (file_read("docs/configuration.md", &have, &e))
        fail_msg("%s", e.text);
    assert_string_equal(buf_cstr(&have), buf_cstr(&want));
    buf_fini(&have);
    buf_fini(&want);
}

/* jobs/serve.all.yaml holds every key; what it does not comment out is the default. */
static void example_holds_every_key(void **state)
{
    struct buf text;
    buf_init(&text, 1 << 20);
    struct err e = ERR_INIT;
    if (file_read("jobs/serve.all.yaml", &text, &e))
        fail_msg("%s", e.text);
    struct config *all = parsed(buf_cstr(&text)), *preset = parsed("models: [{pack: model.h5}]\n");
    char *one = NULL, *two = NULL;
    config_dump(all, &one, NULL);
    config_dump(preset, &two, NULL);
    assert_string_equal(one, two);
    free(one);
    free(two);
    config_free(all);
    config_free(preset);
    struct buf moved; /* what is unset: as if it were set */
    buf_init(&moved, 1 << 20);
    for (const char *p = buf_cstr(&text); *p; p++) {
        if (strncmp(p, "#> ", 3) == 0)
            p += 3;
        buf_put(&moved, p, 1);
    }
    struct config *full = parsed(buf_cstr(&moved));
    assert_non_null(full->models[0].name);
    assert_non_null(full->time);
    assert_non_null(full->partition);
    assert_non_null(full->account);
    assert_non_null(full->qos);
    assert_non_null(full->reservation);
    assert_non_null(full->constraint);
    assert_int_equal(full->sbatch_args_count, 1);
    config_free(full);
    for (const struct option *o = option_table(); o->path; o++) {
        char key[80];
        snprintf(key, sizeof key, "%s:", option_key(o));
        if (!strstr(buf_cstr(&moved), key))
            fail_msg("jobs/serve.all.yaml lacks %s", o->path);
    }
    buf_fini(&moved);
    buf_fini(&text);
    struct config *c = NULL;
    if (config_load(&c, "jobs/serve.example.yaml", &e))
        fail_msg("%s", e.text);
    config_free(c);
}

static void walltimes(void **state)
{
    static const struct {
        const char *text;
        uint64_t want; /* UINT64_MAX: refused */
    } ROWS[] = {{"30", 1800},          {"90:30", 5430},           {"1:00:00", 3600},
                {"2-12", 216000},      {"1-2:03", 93780},         {"1-02:03:04", 93784},
                {"UNLIMITED", 0},      {"infinite", 0},           {"", UINT64_MAX},
                {"0", UINT64_MAX},     {"-1", UINT64_MAX},        {"1-", UINT64_MAX},
                {"1:", UINT64_MAX},    {":1", UINT64_MAX},        {"1-2-3", UINT64_MAX},
                {"1:2-3", UINT64_MAX}, {"1-1:2:3:4", UINT64_MAX}, {"9999999", UINT64_MAX},
                {"1 ", UINT64_MAX},    {"+1", UINT64_MAX}};
    for (size_t i = 0; i < sizeof ROWS / sizeof ROWS[0]; i++) {
        uint64_t s = 77;
        bool ok = walltime_parse(ROWS[i].text, &s);
        if (ok != (ROWS[i].want != UINT64_MAX) || (ok && s != ROWS[i].want))
            fail_msg("%s: %d %llu", ROWS[i].text, ok, (unsigned long long)s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_have_line_and_reason),
        cmocka_unit_test(defaults),
        cmocka_unit_test(every_key_arrives),
        cmocka_unit_test(dump_reads_back),
        cmocka_unit_test(booleans),
        cmocka_unit_test(too_large_or_too_much),
        cmocka_unit_test(relative_pack_begins_at_the_file),
        cmocka_unit_test(documents_match),
        cmocka_unit_test(example_holds_every_key),
        cmocka_unit_test(walltimes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
