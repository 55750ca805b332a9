/* text_template_fuzz.c - any bytes as a chat template over a fixed conversation: limits hold,
 * and nothing is left behind. */
#include "text/template.h"

#include <stdint.h>
#include <stdlib.h>

enum { OUT_BYTES = 1 << 16 };

static const struct chat_message MESSAGES[] = {
    {"system", "Be brief.", 9},
    {"user", "Hello, gr\xC3\xBC\xC3\x9F dich \xF0\x9F\x98\x80", 23},
    {"assistant", "<think>\nhm\n</think>\n\nHi", 24},
    {"user", "", 0},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = ERR_INIT;
    struct chat_template *t = NULL;
    if (chat_template_create(&t, (const char *)data, n, &e) != 0)
        return 0;
    struct buf out;
    buf_init(&out, OUT_BYTES);
    int rc = chat_template_render(t, MESSAGES, sizeof MESSAGES / sizeof MESSAGES[0], "<s>", "</s>",
                                  true, &out, &e);
    if ((rc != 0) != (e.code != 0) || (rc != 0 && out.len != 0) || out.len > OUT_BYTES)
        abort();
    buf_fini(&out);
    chat_template_destroy(t);
    return 0;
}
