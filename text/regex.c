/* regex.c - see regex.h. Every item that PCRE2 tries calls back, and pays for itself and for the text since the last one. */
#include "text/regex.h"

#include "text/utf8.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum {
    MAX_PATTERN_BYTES = 64 << 10,
    MAX_TRANSLATED_BYTES = 1 << 20,
    /* Steps allowed for each byte of text, and for any text. Published expressions take under 40 a byte. */
    STEPS_A_BYTE = 256,
    STEPS_FREE = 1 << 20,
    HEAP_LIMIT_KIB = 64 << 10,
};

struct regex {
    pcre2_code *code;
};

struct regex_run {
    pcre2_match_data *data;
    pcre2_match_context *context;
    uint64_t left; /* steps */
    size_t last;   /* where the last step was */
};

int regex_create(struct regex **out, const char *pattern, size_t n, struct err *e)
{
    if (n > MAX_PATTERN_BYTES)
        return err_set(e, ERR_LIMIT, "regular expression: %zu bytes, at most %d", n,
                       MAX_PATTERN_BYTES);
    struct buf text;
    buf_init(&text, MAX_TRANSLATED_BYTES);
    int rc = regex_translate(pattern, n, &text, e);
    struct regex *r = rc ? NULL : calloc(1, sizeof *r);
    pcre2_compile_context *context = r ? pcre2_compile_context_create(NULL) : NULL;
    if (!rc && !context)
        rc = err_set(e, ERR_NOMEM, "regular expression: out of memory");
    if (!rc) {
        int code;
        PCRE2_SIZE at;
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        r->code = pcre2_compile((PCRE2_SPTR)buf_cstr(&text), text.len,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_AUTO_CALLOUT |
                                    PCRE2_NEVER_BACKSLASH_C | PCRE2_NO_AUTO_CAPTURE,
                                &code, &at, context);
        if (!r->code) {
            char why[128] = "";
            pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
            rc = err_set(e, ERR_FORMAT, "regular expression \"%.*s\": %s", n > 80 ? 80 : (int)n,
                         pattern, why);
        }
    }
    pcre2_compile_context_free(context);
    buf_fini(&text);
    if (rc) {
        free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void regex_destroy(struct regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    free(r);
}

static int pay(pcre2_callout_block *block, void *data)
{
    struct regex_run *run = data;
    size_t at = block->current_position;
    uint64_t cost = 1 + (at > run->last ? at - run->last : 0);
    run->last = at;
    if (cost > run->left) {
        run->left = 0;
        return PCRE2_ERROR_MATCHLIMIT;
    }
    run->left -= cost;
    return 0;
}

int regex_run_create(struct regex_run **out, size_t text_bytes, struct err *e)
{
    struct regex_run *run = calloc(1, sizeof *run);
    if (run) {
        run->data = pcre2_match_data_create(4, NULL);
        run->context = pcre2_match_context_create(NULL);
        run->left = (uint64_t)text_bytes * STEPS_A_BYTE + STEPS_FREE;
    }
    if (!run || !run->data || !run->context) {
        regex_run_destroy(run);
        return err_set(e, ERR_NOMEM, "regular expression: out of memory");
    }
    pcre2_set_callout(run->context, pay, run);
    pcre2_set_heap_limit(run->context, HEAP_LIMIT_KIB);
    *out = run;
    return 0;
}

void regex_run_destroy(struct regex_run *run)
{
    if (!run)
        return;
    pcre2_match_data_free(run->data);
    pcre2_match_context_free(run->context);
    free(run);
}

static int search(const struct regex *r, struct regex_run *run, const char *text, size_t n,
                  size_t from, size_t *start, size_t *end, struct err *e)
{
    run->last = from;
    int rc = pcre2_match(r->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, run->data,
                         run->context);
    if (rc == PCRE2_ERROR_NOMATCH)
        return 0;
    if (rc < 0) {
        char why[128] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(e, ERR_LIMIT,
                       "the tokenizer's regular expression takes too long on this text (%s)", why);
    }
    PCRE2_SIZE *ends = pcre2_get_ovector_pointer(run->data);
    *start = ends[0];
    *end = ends[1];
    return 1;
}

int regex_next(const struct regex *r, struct regex_run *run, const char *text, size_t n,
               struct regex_at *at, size_t *start, size_t *end, struct err *e)
{
    while (at->from <= n) {
        int rc = search(r, run, text, n, at->from, start, end, e);
        if (rc <= 0)
            return rc;
        if (*start == *end && at->matched && at->last_end == *end) {
            uint32_t cp;
            at->from += at->from < n ? utf8_next(text + at->from, &cp) : 1;
            continue;
        }
        at->from = at->last_end = *end;
        at->matched = true;
        return 1;
    }
    return 0;
}
