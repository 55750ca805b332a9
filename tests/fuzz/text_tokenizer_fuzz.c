/* text_tokenizer_fuzz.c - any bytes as text for small tokenizers of every kind: what is encoded
 * comes back when it is decoded (where the kind loses nothing), no user's text makes a control
 * token, and stop strings and the detokenizer do not depend on how the stream is cut.
 *
 * The first byte holds the options: bit 0 special tokens, bits 1-4 the tokenizer, the rest the size
 * of the cuts.
 */
#include "tests/tools/tokenizer_kinds.h"
#include "text/stops.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char *const MERGES[] = {"a a",
                               "aa aa",
                               "\xC4\xA0 a",
                               "\xC4\xA0 \xC4\xA0",
                               "a b",
                               "b c",
                               "ab c",
                               "' s",
                               "\xC3\x83 \xC2\xA9",
                               "! !",
                               "1 2",
                               "\xC4\xA0 \xC4\xA0\xC4\xA0"};
static char *const RESULTS[] = {"aa",
                                "aaaa",
                                "\xC4\xA0\x61",
                                "\xC4\xA0\xC4\xA0",
                                "ab",
                                "bc",
                                "abc",
                                "'s",
                                "\xC3\x83\xC2\xA9",
                                "!!",
                                "12",
                                "\xC4\xA0\xC4\xA0\xC4\xA0"};
static char *const SPECIAL[] = {"<|a|>", "<|a", "<|ab|>", "\xC3\xA9\xC3\xA9"};
enum { N_MERGES = 12, N_SPECIAL = 4, N_TOKENS = 256 + N_MERGES + N_SPECIAL };

static struct tokenizer *create(const char *pre)
{
    static char letters[256][3];
    static char *tokens[N_TOKENS];
    static uint8_t types[N_TOKENS];
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; b++) {
        bool own = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        char text[4];
        size_t len = utf8_encode(own ? b : next++, text);
        memcpy(letters[b], text, len);
        letters[b][len] = 0;
        tokens[b] = letters[b];
        types[b] = TOKEN_NORMAL;
    }
    for (int i = 0; i < N_MERGES; i++) {
        tokens[256 + i] = RESULTS[i];
        types[256 + i] = TOKEN_NORMAL;
    }
    for (int i = 0; i < N_SPECIAL; i++) {
        tokens[256 + N_MERGES + i] = SPECIAL[i];
        types[256 + N_MERGES + i] = i % 2 ? TOKEN_USER_DEFINED : TOKEN_CONTROL;
    }
    struct tokenizer_data d = {.model = "gpt2",
                               .n_tokens = N_TOKENS,
                               .tokens = tokens,
                               .types = types,
                               .n_merges = N_MERGES,
                               .merges = (char **)MERGES,
                               .bos = -1,
                               .eos = -1,
                               .unk = -1,
                               .pad = -1};
    snprintf(d.pre, sizeof d.pre, "%s", pre);
    struct tokenizer *t = NULL;
    struct err e = ERR_INIT;
    if (tokenizer_create(&t, &d, &e) != 0)
        abort();
    return t;
}

static void check(bool ok)
{
    if (!ok)
        abort();
}

enum { N_OLD = 2, N_ALL = N_OLD + N_SAMPLES, FIRST_CONTROL = 400, LAST_CONTROL = 401 };

/* Ids, and the text that they write as a stream: valid UTF-8, and bounded. */
static void encode_and_write(const struct tokenizer *t, const char *text, size_t n, bool special)
{
    struct token_vec ids = {0};
    struct err e = ERR_INIT;
    struct buf out;
    struct detok d;
    int rc = tokenizer_encode(t, text, n, special, SIZE_MAX, &ids, &e);
    check(rc == 0 || rc == ERR_LIMIT || utf8_check(text, n) != n);
    buf_init(&out, SIZE_MAX);
    detok_init(&d);
    for (size_t i = 0; i < ids.n; i++) {
        check(ids.ids[i] < tokenizer_vocab(t));
        check(special || ids.ids[i] < FIRST_CONTROL || ids.ids[i] > LAST_CONTROL);
        detok_token(&d, t, ids.ids[i], special, &out);
    }
    detok_finish(&d, &out);
    check(utf8_check((const char *)out.data, out.len) == out.len);
    buf_fini(&out);
    token_vec_fini(&ids);
}

/* All bytes have tokens here, so nothing may be lost. */
static void round_trip(const struct tokenizer *t, const char *text, size_t n, bool special)
{
    struct token_vec ids = {0};
    struct err e = ERR_INIT;
    int rc = tokenizer_encode(t, text, n, special, SIZE_MAX, &ids, &e);
    check((rc == 0) == (utf8_check(text, n) == n));
    struct buf out;
    buf_init(&out, SIZE_MAX);
    for (size_t i = 0; rc == 0 && i < ids.n; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(t, ids.ids[i], true, &len);
        check(bytes);
        buf_put(&out, bytes, len);
    }
    check(rc || (out.len == n && (n == 0 || memcmp(out.data, text, n) == 0)));
    buf_fini(&out);
    token_vec_fini(&ids);
}

static void detok_in_cuts(const char *p, size_t n, size_t cut, struct buf *out)
{
    struct detok d;
    detok_init(&d);
    for (size_t i = 0; i < n; i += cut)
        detok_push(&d, p + i, n - i < cut ? n - i : cut, out);
    detok_finish(&d, out);
}

static bool stop_in_cuts(const char *p, size_t n, size_t cut, struct buf *out)
{
    static const char *const STOPS[] = {"aab", "ab", "\xC3\xA9", "<|a|>"};
    static const size_t LENS[] = {3, 2, 2, 5};
    struct stops *s = NULL;
    struct err e = ERR_INIT;
    check(stops_create(&s, STOPS, LENS, 4, &e) == 0);
    bool met = false;
    for (size_t i = 0; i < n && !met; i += cut)
        met = stops_push(s, p + i, n - i < cut ? n - i : cut, out);
    if (!met)
        stops_finish(s, out);
    stops_destroy(s);
    return met;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct tokenizer *tokenizers[N_ALL];
    struct err e = ERR_INIT;
    for (int i = 0; i < N_ALL && !tokenizers[N_ALL - 1]; i++) {
        tokenizers[i] = i < N_OLD ? create(i ? "gpt-2" : "smollm")
                                  : sample_create((enum tokenizer_sample)(i - N_OLD), &e);
        check(tokenizers[i]);
    }
    if (n == 0)
        return 0;
    const char *text = (const char *)data + 1;
    size_t len = n - 1, cut = (size_t)(data[0] >> 5) + 1, kind = (data[0] >> 1 & 15) % N_ALL;
    bool special = data[0] & 1;
    encode_and_write(tokenizers[kind], text, len, special);
    if (kind < N_OLD ||
        ((kind == N_OLD + SAMPLE_BYTES || kind == N_OLD + SAMPLE_REGEX) && !special))
        round_trip(tokenizers[kind], text, len, special);
    struct buf whole, cuts;
    buf_init(&whole, SIZE_MAX);
    buf_init(&cuts, SIZE_MAX);
    detok_in_cuts(text, len, len + 1, &whole);
    detok_in_cuts(text, len, cut, &cuts);
    check(whole.len == cuts.len && (len == 0 || memcmp(whole.data, cuts.data, cuts.len) == 0));
    check(utf8_check((const char *)whole.data, whole.len) == whole.len);
    buf_reset(&whole);
    buf_reset(&cuts);
    bool met = stop_in_cuts(text, len, len + 1, &whole);
    check(met == stop_in_cuts(text, len, cut, &cuts) && whole.len == cuts.len);
    check(whole.len == 0 || memcmp(whole.data, cuts.data, cuts.len) == 0);
    buf_fini(&whole);
    buf_fini(&cuts);
    return 0;
}
