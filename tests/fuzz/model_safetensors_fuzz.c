/* model_safetensors_fuzz.c - any bytes as a safetensors file; what begins as JSON does, as a config.json, too. What is accepted
 * must keep the readers' promises. */
#include "model/hf_config.h"
#include "model/safetensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_tensors(const struct safetensors *s, const uint8_t *data, size_t n)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < s->n_tensors; i++) {
        const struct st_tensor *t = &s->tensors[i];
        CHECK(t->data >= data && t->data <= data + n && t->n_bytes <= (size_t)(data + n - t->data));
        CHECK(t->n_bytes == t->n_weights * st_dtype_bytes(t->dtype));
        CHECK(safetensors_find(s, t->name) == t);
        total += t->n_bytes;
    }
    CHECK(total <= n);
}

static void check_config(const uint8_t *data, size_t n)
{
    struct err e = ERR_INIT;
    struct hf_config c = {0};
    struct model_params p = {0};
    json_t *config;
    if (hf_json_parse(data, n, "config.json", &config, &e) == 0) {
        if (hf_config_read(&c, &p, config, "config.json", &e) == 0) {
            CHECK(c.family && p.n_layers && p.n_embd && p.n_heads && p.head_dim);
            CHECK((p.rope_scaling == ROPE_LLAMA3) == (c.rope_long && !c.rope_short));
        } else {
            CHECK(e.code != 0 && e.text[0] && !strchr(e.text, '\n'));
        }
        hf_config_fini(&c);
        json_decref(config);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct safetensors s;
    struct err e = ERR_INIT;
    if (n && data[0] == '{')
        check_config(data, n);
    if (safetensors_parse(&s, data, n, "input", &e) != 0) {
        CHECK(e.code != 0 && e.text[0] && !strchr(e.text, '\n'));
        return 0;
    }
    check_tensors(&s, data, n);
    safetensors_close(&s);
    return 0;
}
