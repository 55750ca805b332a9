/* engine_import_test.c - the tiny models of tests/golden/families as Hugging Face folders (config.json, model.safetensors), read as
 * `exaserve pack` reads them: keys, names, permutation and rotary divisors are right if the graph computes transformers' results. */
#include "families_support.h"

#include <sys/stat.h>

#include "model/hf_model.h"

enum { HEADER_BYTES = 1 << 16, FOLDER_BYTES = 4096 };

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

/* --- a folder -------------------------------------------------------------------------------------------- */

static void write_file(const char *folder, const char *name, const void *data, size_t n)
{
    char path[FOLDER_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Names as the classes of transformers save them; experts: %u of them. */
static const struct {
    const char *pack, *hf;
} NAMES[] = {
    {"attn_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate.bias", "mlp.gate_proj.bias"},
    {"ffn_up.bias", "mlp.up_proj.bias"},
    {"ffn_down.bias", "mlp.down_proj.bias"},
};
static const struct {
    const char *pack, *mixtral, *qwen;
} EXPERTS[] = {
    {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight", "mlp.gate.weight"},
    {"ffn_gate_exps.weight", "block_sparse_moe.experts.%u.w1.weight",
     "mlp.experts.%u.gate_proj.weight"},
    {"ffn_up_exps.weight", "block_sparse_moe.experts.%u.w3.weight",
     "mlp.experts.%u.up_proj.weight"},
    {"ffn_down_exps.weight", "block_sparse_moe.experts.%u.w2.weight",
     "mlp.experts.%u.down_proj.weight"},
};

static const char *layer_name(const char *pack, const struct model_params *p)
{
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (!strcmp(pack, NAMES[i].pack))
            return NAMES[i].hf;
    for (size_t i = 0; i < sizeof EXPERTS / sizeof EXPERTS[0]; i++)
        if (!strcmp(pack, EXPERTS[i].pack))
            return strcmp(p->arch, "qwen3moe") ? EXPERTS[i].mixtral : EXPERTS[i].qwen;
    fail_msg("no name for %s", pack);
    return NULL;
}

static void hf_name(char *out, size_t cap, const struct family_case *c, const char *pack,
                    uint32_t expert)
{
    const char *prefix = c->params.pooling ? "" : "model."; /* LlamaModel saves without it */
    unsigned layer;
    int n = 0;
    if (!strcmp(pack, "token_embd.weight"))
        snprintf(out, cap, "%sembed_tokens.weight", prefix);
    else if (!strcmp(pack, "output_norm.weight"))
        snprintf(out, cap, "%snorm.weight", prefix);
    else if (!strcmp(pack, "output.weight"))
        snprintf(out, cap, "lm_head.weight");
    else if (sscanf(pack, "blk.%u.%n", &layer, &n) == 1 && n) {
        const char *name = layer_name(pack + n, &c->params), *number = strstr(name, "%u");
        int at = snprintf(out, cap, "%slayers.%u.", prefix, layer);
        if (number)
            snprintf(out + at, cap - (size_t)at, "%.*s%u%s", (int)(number - name), name, expert,
                     number + 2);
        else
            snprintf(out + at, cap - (size_t)at, "%s", name);
    } else
        fail_msg("no name for %s", pack);
}

struct file {
    char header[HEADER_BYTES];
    size_t n_header;
    struct buf data;
};

/* One tensor of rows x cols (rows 0: a vector), the values as they lie in the files of transformers: not permuted. */
static void file_add(struct file *f, const char *name, const struct family_shape *s, uint32_t part,
                     bool as_bf16)
{
    bool bf16 = as_bf16 && s->rows; /* norms have more bits */
    uint64_t hash = name_hash(s->name), rows = s->rows ? s->rows : 1, n = rows * s->cols;
    size_t begin = f->data.len;
    for (uint64_t k = 0; k < n; k++) {
        float v = family_weight(s->name, hash, part * n + k);
        uint8_t bytes[4];
        memcpy(bytes, &v, 4);
        buf_put(&f->data, bf16 ? bytes + 2 : bytes, bf16 ? 2 : 4); /* exact */
    }
    char shape[48];
    snprintf(shape, sizeof shape, s->rows ? "%u,%u" : "%.0u%u", s->rows, s->cols);
    f->n_header += (size_t)snprintf(
        f->header + f->n_header, sizeof f->header - f->n_header,
        "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
        f->n_header > 1 ? "," : "{", name, bf16 ? "BF16" : "F32", shape, begin, f->data.len);
}

static void write_weights(const char *folder, const struct family_case *c, bool bf16)
{
    static struct file f;
    struct family_shape shapes[FAMILY_MAX_TENSORS];
    uint32_t n = shapes_read(shapes, c);
    f.n_header = 0;
    buf_init(&f.data, 64 << 20);
    for (uint32_t i = 0; i < n; i++) {
        char name[256];
        if (!strncmp(shapes[i].name, "rope_", 5))
            continue; /* from config.json */
        for (uint32_t part = 0; part < shapes[i].n_parts; part++) {
            hf_name(name, sizeof name, c, shapes[i].name, part);
            file_add(&f, name, &shapes[i], part, bf16);
        }
    }
    f.header[f.n_header++] = '}';
    uint64_t length = f.n_header;
    struct buf file;
    buf_init(&file, 64 << 20);
    buf_put(&file, &length, sizeof length);
    buf_put(&file, f.header, f.n_header);
    buf_put(&file, f.data.data, f.data.len);
    write_file(folder, "model.safetensors", file.data, file.len);
    buf_fini(&file);
    buf_fini(&f.data);
}

/* What sentence-transformers keeps beside an embedding model. */
static void write_pooling(const char *folder, const struct family_case *c)
{
    static const char MODULES[] = "[{\"idx\":0,\"name\":\"0\",\"path\":\"\",\"type\":\"sentence_"
                                  "transformers.models.Transformer\"},"
                                  "{\"idx\":1,\"name\":\"1\",\"path\":\"1_Pooling\",\"type\":"
                                  "\"sentence_transformers.models.Pooling\"}]";
    char path[FOLDER_BYTES + 64], config[256];
    bool mean = c->params.pooling == POOLING_MEAN;
    if (!c->params.pooling)
        return;
    snprintf(path, sizeof path, "%s/1_Pooling", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    int n = snprintf(config, sizeof config,
                     "{\"word_embedding_dimension\":%u,\"pooling_mode_mean_tokens\":%s,"
                     "\"pooling_mode_lasttoken\":%s}",
                     c->params.n_embd, mean ? "true" : "false", mean ? "false" : "true");
    write_file(path, "config.json", config, (size_t)n);
    write_file(folder, "modules.json", MODULES, sizeof MODULES - 1);
}

static void folder_make(char *folder, const struct family_case *c, bool bf16)
{
    snprintf(folder, FOLDER_BYTES, "%s/exa-import-XXXXXX", env_or("TMPDIR", "/tmp"));
    assert_non_null(mkdtemp(folder));
    char *config = json_dumps(json_object_get(c->record, "config"), 0);
    write_file(folder, "config.json", config, strlen(config));
    free(config);
    write_weights(folder, c, bf16);
    write_pooling(folder, c);
}

static void folder_drop(const char *folder)
{
    static const char *const FILES[] = {"config.json", "model.safetensors", "modules.json",
                                        "1_Pooling/config.json", "1_Pooling"};
    char path[FOLDER_BYTES + 64];
    for (size_t i = 0; i < sizeof FILES / sizeof FILES[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, FILES[i]);
        remove(path);
    }
    assert_int_equal(rmdir(folder), 0);
}

/* --- read and computed ----------------------------------------------------------------------------------- */

static int few_tokens(const char *folder, struct model_meta *m, struct err *e)
{
    strcpy(m->tok.model, "gpt2");
    m->tok.bos = m->tok.eos = m->tok.unk = m->tok.pad = -1;
    m->tok.n_tokens = 1;
    m->tok.tokens = calloc(1, sizeof *m->tok.tokens);
    m->tok.tokens[0] = strdup("a");
    m->tok.types = calloc(1, 1);
    m->tok.types[0] = TOKEN_NORMAL;
    return 0;
}

/* An image in memory of what the reader brings; h gives its index and meta away. */
static void image_take(struct image *img, struct hf_model *h)
{
    struct tensor_source source = hf_source(h);
    struct err e = ERR_INIT;
    memset(img, 0, sizeof *img);
    img->fd = -1;
    uint64_t bytes = (h->index.image_bytes + TENSOR_ALIGN - 1) / TENSOR_ALIGN * TENSOR_ALIGN;
    uint8_t *map = aligned_alloc(TENSOR_ALIGN, bytes);
    assert_non_null(map);
    for (uint32_t i = 0; i < h->index.n_tensors; i++) {
        const struct tensor_info *t = &h->index.tensors[i];
        const uint8_t *from;
        assert_true(t->n_bytes <= SEGMENT_BYTES);
        MUST(source.read(source.ctx, i, 0, (uint32_t)t->n_bytes, map + t->image_offset, &from, &e),
             e);
        if (from != map + t->image_offset)
            memcpy(map + t->image_offset, from, t->n_bytes);
    }
    img->index = h->index;
    img->meta = h->meta;
    img->map = map;
    img->map_bytes = bytes;
    memset(&h->index, 0, sizeof h->index);
    meta_init(&h->meta);
}

static double error_of(const struct family_case *c, const struct image *img)
{
    struct graph_size size = run_size(c->n_ctx, KV_F32);
    struct run r;
    double worst = 0;
    run_open(&r, img, &size, "ref", 1);
    graph_pool_reset(r.g, 0);
    run_step(&r, 0, c->prompt, 0, c->n_prompt, 0);
    for (uint32_t i = 0; i < c->n_positions; i++) {
        float got[256];
        bool mean = c->params.pooling == POOLING_MEAN;
        const float *from = mean ? graph_pool(r.g, 0) : run_result(&r, &c->params, c->positions[i]);
        for (uint32_t k = 0; k < c->width; k++)
            got[k] = mean ? from[k] / (float)c->n_prompt : from[k];
        double off = nmse(got, c->expected + (size_t)i * c->width, c->width);
        worst = off > worst || isnan(off) ? off : worst;
    }
    run_close(&r);
    return worst;
}

static void check_import(const struct family_case *c, bool bf16)
{
    char folder[FOLDER_BYTES];
    struct hf_model h;
    struct image img;
    struct err e = ERR_INIT;
    folder_make(folder, c, bf16);
    if (hf_open(&h, folder, few_tokens, &e))
        fail_msg("%s: %s", c->name, e.text);
    image_take(&img, &h);
    hf_close(&h);
    assert_string_equal(img.meta.params.arch, c->params.arch);
    double off = error_of(c, &img);
    print_message("%-22s %s: NMSE %.2g\n", c->name, bf16 ? "BF16" : "F32", off);
    if (!(off <= 1e-11))
        fail_msg("%s: NMSE %g", c->name, off);
    image_drop(&img);
    folder_drop(folder);
}

static void test_folders_of_every_family_compute_the_reference(void **state)
{
    for (size_t i = 0; i < json_array_size(cases); i++) {
        struct family_case c;
        family_read(&c, json_array_get(cases, i), results);
        check_import(&c, i % 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders_of_every_family_compute_the_reference),
    };
    return cmocka_run_group_tests_name("engine_import", tests, load, unload);
}
