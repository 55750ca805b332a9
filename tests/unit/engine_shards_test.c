/* engine_shards_test.c - one model over several shards, each a thread with a graph of its own: tensor parallel, pipeline, both.
 *
 * The sums of a sharded model are made in another order than the whole one's: its results are compared with the reference by NMSE, and with
 * themselves bit by bit (by chunks, token by token, in company).
 */
#include "families_support.h"

#include <pthread.h>

#include "engine/coll.h"

enum { MAX_SHARDS = 8 };

/* --- a group of threads ---------------------------------------------------------------------------------- */

struct mail {
    const void *p;
    size_t n_bytes;
    bool full;
};
struct group {
    pthread_mutex_t lock;
    pthread_cond_t change;
    uint32_t size, n_waiting, round;
    void *parts[MAX_SHARDS];
    struct mail mail[MAX_SHARDS][MAX_SHARDS]; /* [from][to] */
};
struct member {
    struct coll base;
    struct group *group;
};

static struct group *group_of(struct coll *c)
{
    return ((struct member *)c)->group;
}

static void meet(struct group *g)
{
    pthread_mutex_lock(&g->lock);
    uint32_t round = g->round;
    if (++g->n_waiting == g->size) {
        g->n_waiting = 0;
        g->round++;
        pthread_cond_broadcast(&g->change);
    }
    while (g->round == round)
        pthread_cond_wait(&g->change, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

static void show(struct coll *c, void *part)
{
    struct group *g = group_of(c);
    pthread_mutex_lock(&g->lock);
    g->parts[c->rank] = part;
    pthread_mutex_unlock(&g->lock);
    meet(g);
}

static int all_reduce(struct coll *c, float *x, size_t n, struct err *e)
{
    float *sum = malloc(n * sizeof *sum);
    show(c, x);
    for (size_t i = 0; i < n; i++) {
        sum[i] = ((float *)group_of(c)->parts[0])[i];
        for (uint32_t r = 1; r < c->size; r++)
            sum[i] += ((float *)group_of(c)->parts[r])[i];
    }
    meet(group_of(c));
    memcpy(x, sum, n * sizeof *sum);
    free(sum);
    return 0;
}

static int all_gather(struct coll *c, float *out, const float *in, size_t n, struct err *e)
{
    show(c, (void *)in);
    for (uint32_t r = 0; r < c->size; r++)
        memcpy(out + r * n, group_of(c)->parts[r], n * sizeof *out);
    meet(group_of(c));
    return 0;
}

static int broadcast(struct coll *c, void *p, size_t n_bytes, uint32_t root, struct err *e)
{
    show(c, p);
    if (c->rank != root)
        memcpy(p, group_of(c)->parts[root], n_bytes);
    meet(group_of(c));
    return 0;
}

static int send_to(struct coll *c, const void *p, size_t n_bytes, uint32_t to, struct err *e)
{
    struct group *g = group_of(c);
    struct mail *m = &g->mail[c->rank][to];
    pthread_mutex_lock(&g->lock);
    *m = (struct mail){p, n_bytes, true};
    pthread_cond_broadcast(&g->change);
    while (m->full)
        pthread_cond_wait(&g->change, &g->lock);
    pthread_mutex_unlock(&g->lock);
    return 0;
}

static int recv_from(struct coll *c, void *p, size_t n_bytes, uint32_t from, struct err *e)
{
    struct group *g = group_of(c);
    struct mail *m = &g->mail[from][c->rank];
    pthread_mutex_lock(&g->lock);
    while (!m->full)
        pthread_cond_wait(&g->change, &g->lock);
    bool fits = m->n_bytes == n_bytes;
    if (fits)
        memcpy(p, m->p, n_bytes);
    m->full = false;
    pthread_cond_broadcast(&g->change);
    pthread_mutex_unlock(&g->lock);
    return fits ? 0 : err_set(e, ERR_PROTO, "other size");
}

static const struct coll_ops THREADS = {
    .kind = "threads",
    .all_reduce = all_reduce,
    .all_gather = all_gather,
    .broadcast = broadcast,
    .send = send_to,
    .recv = recv_from,
};

static void group_init(struct group *g, struct member *members, uint32_t size)
{
    memset(g, 0, sizeof *g);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->change, NULL);
    g->size = size;
    for (uint32_t i = 0; i < size; i++)
        members[i] = (struct member){{&THREADS, i, size}, g};
}

static void group_fini(struct group *g)
{
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->change);
}

/* --- a model over shards --------------------------------------------------------------------------------- */

struct shard {
    struct run run;
    pthread_t thread;
    int rc; /* graph_follow's last */
    struct err e;
};
struct gang {
    uint32_t tp, pp;
    struct shard shards[MAX_SHARDS];
    struct member all[MAX_SHARDS], stage[MAX_SHARDS];
    struct group all_group, stage_groups[MAX_SHARDS];
};

static void *follow(void *arg)
{
    struct shard *s = arg;
    do {
        s->rc = graph_follow(s->run.g, &s->e);
    } while (s->rc == 1);
    return NULL;
}

static void gang_open(struct gang *g, const struct image *img, uint32_t n_ctx, const char *kernels,
                      uint32_t tp, uint32_t pp)
{
    g->tp = tp;
    g->pp = pp;
    group_init(&g->all_group, g->all, tp * pp);
    for (uint32_t stage = 0; stage < pp; stage++)
        group_init(&g->stage_groups[stage], &g->stage[stage * tp], tp);
    for (uint32_t i = 0; i < tp * pp; i++) {
        struct graph_size size = run_size(n_ctx, KV_F32);
        size.tp_rank = i % tp;
        size.tp_size = tp;
        size.pp_rank = i / tp;
        size.pp_size = pp;
        size.all = pp > 1 ? &g->all[i].base : NULL;
        size.tp = tp > 1 ? &g->stage[i].base : NULL;
        run_open(&g->shards[i].run, img, &size, kernels, 1);
    }
    for (uint32_t i = 1; i < tp * pp; i++)
        assert_int_equal(pthread_create(&g->shards[i].thread, NULL, follow, &g->shards[i]), 0);
}

static void gang_close(struct gang *g)
{
    graph_end(g->shards[0].run.g);
    for (uint32_t i = 1; i < g->tp * g->pp; i++) {
        pthread_join(g->shards[i].thread, NULL);
        MUST(g->shards[i].rc, g->shards[i].e);
    }
    for (uint32_t i = 0; i < g->tp * g->pp; i++)
        run_close(&g->shards[i].run);
    for (uint32_t stage = 0; stage < g->pp; stage++)
        group_fini(&g->stage_groups[stage]);
    group_fini(&g->all_group);
}

/* all: [n_prompt][width], or of a model that takes the mean its one sum */
static void prompt_run(float *all, const struct family_case *c, struct run *r, uint32_t seq,
                       uint32_t chunk, uint32_t n_company)
{
    graph_pool_reset(r->g, seq);
    for (uint32_t at = 0; at < c->n_prompt; at += chunk) {
        uint32_t n = c->n_prompt - at < chunk ? c->n_prompt - at : chunk;
        run_step(r, seq, c->prompt, at, n, at ? 0 : n_company);
        for (uint32_t i = 0; i < n && c->params.pooling != POOLING_MEAN; i++)
            memcpy(all + (size_t)(at + i) * c->width, run_result(r, &c->params, i),
                   c->width * sizeof *all);
    }
    if (c->params.pooling == POOLING_MEAN)
        memcpy(all, graph_pool(r->g, seq), c->width * sizeof *all);
}

static double error_of(const struct family_case *c, const float *all)
{
    float mean[256];
    double worst = 0;
    for (uint32_t i = 0; i < c->width && c->params.pooling == POOLING_MEAN; i++)
        mean[i] = all[i] / (float)c->n_prompt;
    for (uint32_t i = 0; i < c->n_positions; i++) {
        const float *got =
            c->params.pooling == POOLING_MEAN ? mean : all + (size_t)c->positions[i] * c->width;
        double off = nmse(got, c->expected + (size_t)i * c->width, c->width);
        worst = off > worst || isnan(off) ? off : worst;
    }
    return worst;
}

static void check_gang(const struct family_case *c, const char *kernels, uint32_t tp, uint32_t pp)
{
    static float first[FAMILY_MAX_PROMPT * 256], again[FAMILY_MAX_PROMPT * 256];
    static struct gang g;
    static const struct {
        uint32_t seq, chunk, n_company;
    } ways[] = {{0, FAMILY_MAX_PROMPT, 0}, {1, 1, 0}, {2, 7, 0}, {0, 11, 17}};
    struct image img;
    family_image(&img, c, TENSOR_F16);
    gang_open(&g, &img, c->n_ctx, kernels, tp, pp);
    memset(first, 0, sizeof first);
    prompt_run(first, c, &g.shards[0].run, ways[0].seq, ways[0].chunk, ways[0].n_company);
    double off = error_of(c, first);
    print_message("%-22s %s tp %u pp %u: NMSE %.2g\n", c->name, kernels, tp, pp, off);
    if (!(off <= 1e-11))
        fail_msg("%s, tp %u pp %u: NMSE %g", c->name, tp, pp, off);
    for (size_t w = 1; w < sizeof ways / sizeof ways[0]; w++) {
        memset(again, 0, sizeof again);
        prompt_run(again, c, &g.shards[0].run, ways[w].seq, ways[w].chunk, ways[w].n_company);
        if (memcmp(first, again, sizeof first))
            fail_msg("%s, tp %u pp %u: way %zu gives other bits", c->name, tp, pp, w);
    }
    gang_close(&g);
    image_drop(&img);
}

static json_t *cases;
static float *results;

static int load(void **state)
{
    cases = families_load(FAMILIES);
    results = families_results();
    return 0;
}

static int unload(void **state)
{
    json_decref(cases);
    return 0;
}

static void test_shards_compute_the_same_model(void **state)
{
    static const uint32_t SHAPES[][2] = {{2, 1}, {4, 1}, {1, 2}, {2, 2}};
    for (size_t i = 0; i < json_array_size(cases); i++) {
        struct family_case c;
        family_read(&c, json_array_get(cases, i), results);
        for (size_t s = 0; s < sizeof SHAPES / sizeof SHAPES[0]; s++) {
            /* 6 heads of smollm2 and experts of 32 do not go into 4 */
            uint32_t tp = SHAPES[s][0];
            if (c.params.n_heads % tp || (INSTRUMENTED && (i + s) % 3))
                continue;
            check_gang(&c, "ref", tp, SHAPES[s][1]);
        }
    }
}

/* Pipeline alone changes no sum: the whole model's own bits. */
static void test_a_pipeline_changes_no_bit(void **state)
{
    static float whole[FAMILY_MAX_PROMPT * 256], piped[FAMILY_MAX_PROMPT * 256];
    static struct gang g;
    for (size_t i = 0; i < json_array_size(cases); i += INSTRUMENTED ? 4 : 1) {
        struct family_case c;
        struct image img;
        family_read(&c, json_array_get(cases, i), results);
        family_image(&img, &c, TENSOR_F32);
        for (uint32_t pp = 1; pp <= 2; pp++) {
            gang_open(&g, &img, c.n_ctx, NULL, 1, pp);
            prompt_run(pp == 1 ? whole : piped, &c, &g.shards[0].run, 0, 9, 0);
            gang_close(&g);
        }
        if (memcmp(whole, piped, sizeof whole))
            fail_msg("%s: two stages give other bits", c.name);
        image_drop(&img);
    }
}

/* Copy on write reaches every shard's keys and values. */
static void test_blocks_are_copied_on_all_shards(void **state)
{
    struct family_case c;
    struct image img;
    static struct gang g;
    static float first[256];
    family_read(&c, json_array_get(cases, 0), results);
    family_image(&img, &c, TENSOR_F32);
    gang_open(&g, &img, c.n_ctx, NULL, 2, 2);
    struct run *r = &g.shards[0].run;
    run_step(r, 0, c.prompt, 0, 20, 0);
    run_step(r, 0, c.prompt, 20, 1, 0);
    memcpy(first, graph_logits(r->g, 0), c.width * sizeof *first);
    for (uint32_t b = 0; b < 2; b++) /* what sequence 0 has, to the blocks of sequence 2 */
        graph_kv_copy(r->g, r->tables[b], r->tables[2 * r->stride + b]);
    run_step(r, 2, c.prompt, 20, 1, 0);
    assert_memory_equal(first, graph_logits(r->g, 0), c.width * sizeof *first);
    gang_close(&g);
    image_drop(&img);
}

/* Numbers that are not finite are seen by shard 0 wherever they come up, with the layer's number in the whole model. */
static void test_bad_numbers_are_named_across_stages(void **state)
{
    static const struct {
        const char *tensor;
        uint32_t mark;
    } BAD[] = {
        {"blk.0.ffn_norm.weight", 1}, {"blk.1.attn_norm.weight", 2}, {"output_norm.weight", 3}};
    static struct gang g;
    struct family_case c;
    family_read(&c, json_array_get(cases, 0), results);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct image img;
        struct err e = ERR_INIT;
        const struct batch_row row = {.token = 5};
        family_image(&img, &c, TENSOR_F32);
        uint8_t *at = (uint8_t *)image_tensor(&img, BAD[i].tensor, NULL);
        memcpy(at, "\x00\x00\xc0\x7f", 4); /* NaN */
        gang_open(&g, &img, c.n_ctx, NULL, 2, 2);
        struct run *r = &g.shards[0].run;
        MUST(graph_forward(r->g, &(struct step){&row, 1, 1, r->tables, r->stride}, &e), e);
        assert_int_equal(graph_bad_layer(r->g, 0), BAD[i].mark);
        gang_close(&g);
        image_drop(&img);
    }
}

/* A derived image holds slices in place of whole tensors: nothing is copied, and nothing computed differs. */
static void test_an_image_of_slices(void **state)
{
    struct family_case c;
    struct image whole, derived;
    struct family_shape shapes[FAMILY_MAX_TENSORS];
    struct graph_memory need;
    struct err e = ERR_INIT;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        family_read(&c, json_array_get(cases, i), results);
        if (!strcmp(c.name, "mixtral"))
            break;
    }
    family_image(&whole, &c, TENSOR_F16);
    uint32_t n = shapes_read(shapes, &c);
    struct shard_plan plan;
    for (uint32_t i = 0; i < n; i++) {
        MUST(graph_shard_plan(&plan, &c.params, shapes[i].name, TENSOR_F16, 1, 2, &e), e);
        if (plan.scattered)
            *(plan.how == SHARD_ROWS ? &shapes[i].rows : &shapes[i].cols) = plan.n;
    }
    image_make(&derived, &c.params, shapes, n, TENSOR_F16, NULL, family_weight);
    struct graph_size size = run_size(c.n_ctx, KV_F32);
    size.tp_size = 2;
    size.tp_rank = 1;
    MUST(graph_memory(&need, &whole, &size, &OPS_CPU, &e), e);
    assert_true(need.copied_bytes > 0);
    uint64_t total = need.weight_bytes + need.copied_bytes;
    MUST(graph_memory(&need, &derived, &size, &OPS_CPU, &e), e);
    assert_int_equal(need.copied_bytes, 0);
    assert_int_equal(need.weight_bytes, total);
    size.tp_size = 1; /* a slice is no whole model */
    size.tp_rank = 0;
    assert_int_equal(graph_memory(&need, &derived, &size, &OPS_CPU, &e), ERR_FORMAT);
    image_drop(&whole);
    image_drop(&derived);
}

/* --- a member that is gone ------------------------------------------------------------------------------- */

static int n_calls_left;

static int gone(struct coll *c, float *x, size_t n, struct err *e)
{
    return n_calls_left-- > 0 ? 0 : err_set(e, ERR_PEER, "shard 1 is gone");
}
static int heard(struct coll *c, void *p, size_t n_bytes, uint32_t root, struct err *e)
{
    return 0;
}

static void test_a_dead_member_ends_the_step(void **state)
{
    static const struct coll_ops DYING = {.all_reduce = gone, .broadcast = heard};
    struct coll coll = {&DYING, 0, 2};
    struct family_case c;
    struct image img;
    struct run r;
    struct err e = ERR_INIT;
    struct batch_row row = {.out = ROW_NO_OUT};
    family_read(&c, json_array_get(cases, 0), results);
    family_image(&img, &c, TENSOR_F32);
    struct graph_size size = run_size(c.n_ctx, KV_F32);
    size.tp_size = 2;
    size.tp = &coll;
    run_open(&r, &img, &size, NULL, 1);
    const struct step step = {&row, 1, 0, r.tables, r.stride};
    for (n_calls_left = 0; n_calls_left < 4;) { /* two sums a layer, two layers */
        int n = n_calls_left;
        assert_int_equal(graph_forward(r.g, &step, &e), ERR_PEER);
        assert_non_null(strstr(e.text, "shard 1 is gone"));
        n_calls_left = n + 1;
    }
    assert_int_equal(graph_forward(r.g, &step, &e), 0);
    run_close(&r);
    coll.rank = 1; /* a group that is not the shard's own */
    struct graph *g;
    assert_int_equal(graph_create(&g, &img, &size, &OPS_CPU, NULL, &e), ERR_CONFIG);
    image_drop(&img);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shards_compute_the_same_model),
        cmocka_unit_test(test_a_pipeline_changes_no_bit),
        cmocka_unit_test(test_blocks_are_copied_on_all_shards),
        cmocka_unit_test(test_bad_numbers_are_named_across_stages),
        cmocka_unit_test(test_an_image_of_slices),
        cmocka_unit_test(test_a_dead_member_ends_the_step),
    };
    return cmocka_run_group_tests_name("engine_shards", tests, load, unload);
}
