/* text_template_fuzz.c - any bytes as a chat template, over a fixed conversation or over one that the
 * input brings too: limits hold, and nothing is left behind.
 *
 * With data: a line "#!json", the template, a line "#!json", then a JSON object with messages,
 * tools, documents and kwargs. */
#include "text/template.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OUT_BYTES = 1 << 16 };
static const char MARK[] = "#!json\n";

static const char FIXED[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, {\"role\": \"user\", "
    "\"content\": "
    "\"Hello, grüß dich \\ud83d\\ude00\"}, {\"role\": \"assistant\", \"content\": "
    "\"<think>\\nhm\\n</think>"
    "\\n\\nHi\", \"tool_calls\": [{\"id\": \"c1\", \"function\": {\"name\": \"f\", \"arguments\": "
    "{\"x\": [1, 2.5, null]}}}]}, {\"role\": \"tool\", \"content\": [{\"type\": \"text\", "
    "\"text\": "
    "\"42\"}]}, {\"role\": \"user\", \"content\": \"\"}], \"tools\": [{\"type\": \"function\", "
    "\"function\": "
    "{\"name\": \"f\", \"parameters\": {\"type\": \"object\", \"properties\": {\"x\": {\"type\": "
    "\"array\"}}}}}], \"kwargs\": {\"s\": \"Some text\", \"n\": 7, \"l\": [3, 1, 2], \"d\": "
    "{\"b\": 2, "
    "\"a\": 1}}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(int rc, const struct err *e, const struct buf *out)
{
    if ((rc != 0) != (e->code != 0) || (rc != 0 && out->len != 0) || out->len > OUT_BYTES)
        abort();
}

static void render(const struct chat_template *t, const json_t *given)
{
    struct err e = ERR_INIT;
    struct buf out;
    struct chat_inputs in = {
        .messages = json_object_get(given, "messages"),
        .tools = json_object_get(given, "tools"),
        .documents = json_object_get(given, "documents"),
        .kwargs = json_object_get(given, "kwargs"),
        .bos = "<s>",
        .eos = "</s>",
        .add_generation_prompt = true,
        .now_s = 1750000000,
    };
    buf_init(&out, OUT_BYTES);
    check(chat_template_render_inputs(t, &in, &out, &e), &e, &out);
    json_t *adapted = NULL;
    e = (struct err)ERR_INIT;
    buf_reset(&out);
    int rc = chat_template_adapt(t, in.messages, true, &adapted, &e);
    in.messages = adapted;
    if (rc == 0)
        rc = chat_template_render_inputs(t, &in, &out, &e);
    check(rc, &e, &out);
    json_decref(adapted);
    buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *source = (const char *)data, *mark = NULL;
    size_t n_source = n, n_mark = sizeof MARK - 1;
    json_t *given = NULL;
    if (n > n_mark && memcmp(source, MARK, n_mark) == 0) {
        source += n_mark;
        mark = memmem(source, n - n_mark, MARK, n_mark);
        n_source = mark ? (size_t)(mark - source) : n - n_mark;
    }
    if (mark) {
        const char *json = mark + n_mark;
        given = json_loadb(json, (size_t)((const char *)data + n - json), JSON_ALLOW_NUL, NULL);
    } else {
        given = json_loads(FIXED, 0, NULL);
    }
    struct err e = ERR_INIT;
    struct chat_template *t = NULL;
    if (given && chat_template_create(&t, source, n_source, &e) == 0)
        render(t, given);
    chat_template_destroy(t);
    json_decref(given);
    return 0;
}
